//! Names that stand for things: `$victim` in selectors and conditions.

use std::collections::BTreeMap;

/// What each name stands for.
pub type Vars = BTreeMap<String, String>;

/// Puts in what `$name` and `${name}` stand for; the longest known name counts, so that `$a--$b` can be a link. An
/// unknown name is the error.
pub fn substitute(text: &str, vars: &Vars) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some((name, after)) = rest.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
            out.push_str(vars.get(name).ok_or_else(|| name.to_owned())?);
            rest = after;
            continue;
        }
        let known = vars.iter().filter(|(name, _)| rest.starts_with(name.as_str()));
        let Some((name, value)) = known.max_by_key(|(name, _)| name.len()) else {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            return Err(rest[..end].to_owned());
        };
        out.push_str(value);
        rest = &rest[name.len()..];
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_longest_known_name_counts() {
        let vars: Vars =
            [("a", "eb01.prn"), ("ab", "x"), ("b", "eb01.lla")].map(|(n, v)| (n.into(), v.into())).into();
        assert_eq!(substitute("$a--$b", &vars).unwrap(), "eb01.prn--eb01.lla");
        assert_eq!(substitute("$ab ${a}b", &vars).unwrap(), "x eb01.prnb");
        assert_eq!(substitute("link:$nobody state", &vars), Err("nobody".to_owned()));
        assert_eq!(substitute("costs 5$", &vars), Err(String::new()));
    }

    proptest! {
        #[test]
        fn any_text_is_taken_or_refused(text in "\\PC{0,40}") {
            let _ = substitute(&text, &Vars::from([("a".to_owned(), "$a".to_owned())]));
        }
    }
}
