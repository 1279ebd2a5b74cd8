//! One page per run that needs nothing but a browser: no network, no other file.

use super::figures::{outcome, plain};
use super::text::text;
use crate::record::Run;

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
/// Functions only, up to the last one, which calls them; all of them within one function of their own.
const SCRIPTS: [&str; 5] = [
    include_str!("page/page.js"),
    include_str!("page/timeline.js"),
    include_str!("page/plots.js"),
    include_str!("page/map.js"),
    include_str!("page/tables.js"),
];

/// The page of a run, UTF-8. The record is in it as JSON (`<script id="run" type="application/json">`), and everything
/// the page shows comes from there.
pub fn html(run: &Run) -> String {
    let name = if run.title.name.is_empty() { "run" } else { &run.title.name };
    let mut out = String::new();
    let mut rest = PAGE;
    while let Some((before, after)) = rest.split_once("{{") {
        let (slot, after) = after.split_once("}}").unwrap_or((after, ""));
        out.push_str(before);
        match slot {
            "title" => out.push_str(&escape(&plain(&format!("{name}: {}", outcome(run.outcome))))),
            "style" => out.push_str(STYLE),
            "seed" => out.push_str(&run.seed.to_string()),
            "text" => out.push_str(&escape(&text(run, false))),
            "run" => out.push_str(&json(run)),
            "script" => out.push_str(&SCRIPTS.concat()),
            _ => {}
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

/// JSON that cannot end the element it is in, nor a line of script.
fn json(run: &Run) -> String {
    let text = serde_json::to_string(run).unwrap_or_else(|_| "{}".to_owned());
    let mut out = String::with_capacity(text.len() + text.len() / 16);
    for c in text.chars() {
        match c {
            // outside of strings JSON has none of these
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    /// The page's parts: what is before the record, the record, what comes after it.
    fn parts(page: &str) -> (&str, &str, &str) {
        let (before, rest) = page.split_once(r#"<script id="run" type="application/json">"#).unwrap();
        let (record, after) = rest.split_once("</script>").unwrap();
        (before, record, after)
    }

    #[test]
    fn the_record_in_the_page_is_the_record() {
        for run in [sample::run(), sample::hostile(), sample::crowded(), Run::default()] {
            let page = html(&run);
            let (_, record, after) = parts(&page);
            let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
            assert!(read(record) == read(&serde_json::to_string(&run).unwrap()), "{}", run.id);
            assert!(after.trim_end().ends_with("</html>") && !page.contains("{{"));
        }
    }

    #[test]
    fn hostile_names_stay_text() {
        let page = html(&sample::hostile());
        assert_eq!(page.matches("</script").count(), 2, "the record's and the page's own");
        assert!(!page.contains("<img") && !page.contains(['\0', '\u{2028}', '\u{1b}']));
        // the page's frame is the same whatever the record says
        assert_eq!(parts(&page).2, parts(&html(&sample::run())).2);
    }

    /// The page's own text asks for nothing from elsewhere, has no handlers in attributes, and makes no HTML of strings.
    #[test]
    fn it_stands_alone() {
        let own = [PAGE, STYLE, &SCRIPTS.concat()].concat().replace("http://www.w3.org/2000/svg", "");
        for word in [
            "http:", "https:", "//cdn", "@import", "url(", "src=", "fetch(", "XMLHttp", "import(",
            " onclick", " onload",
        ] {
            assert!(!own.contains(word), "{word}");
        }
        for word in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "</script",
        ] {
            assert!(!SCRIPTS.concat().contains(word), "{word}");
        }
        assert!(PAGE.contains("\"use strict\"") && PAGE.contains("default-src 'none'"));
    }
}
