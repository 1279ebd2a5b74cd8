//! Every file of `tests/broken` is refused with exactly the message beside it (`UPDATE_GOLDEN=1` writes them anew),
//! every error points into its file, and nothing that anybody could write makes the reader panic.

#![allow(clippy::unwrap_used, clippy::format_push_string)] // tests, and their helpers

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use topologies::builtins;
use topologies::lab::Lab;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/broken")
}

/// What the command line would print: errors, or warnings of a file that is not broken enough.
fn outcome(text: &str, name: &str) -> String {
    match Lab::from_str(text, name) {
        Err(errors) => format!("{errors}\n"),
        Ok((lab, warnings)) => {
            let warnings: Vec<String> = warnings.iter().map(|w| format!("warning: {w}\n")).collect();
            format!("accepted as {} with {} warnings\n{}", lab.name, warnings.len(), warnings.concat())
        }
    }
}

#[test]
fn broken_files_are_refused_with_exact_messages() {
    let update = std::env::var_os("UPDATE_GOLDEN").is_some_and(|value| value == "1");
    let mut files: Vec<PathBuf> = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "yaml"))
        .collect();
    files.sort();
    assert!(files.len() >= 25, "only {} broken files", files.len());
    let mut wrong = Vec::new();
    for path in files {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let got = outcome(&fs::read_to_string(&path).unwrap(), &name);
        let expected = path.with_extension("expected");
        if update {
            fs::write(&expected, &got).unwrap();
        } else if fs::read_to_string(&expected).unwrap_or_default() != got {
            wrong.push(format!("--- {name} gives now\n{got}"));
        }
        // Warnings have files of their own; everything else must be refused.
        if !name.starts_with("warn-") && !got.starts_with(&name) {
            wrong.push(format!("--- {name} is accepted\n{got}"));
        }
    }
    assert!(wrong.is_empty(), "run with UPDATE_GOLDEN=1 if intended:\n{}", wrong.concat());
}

#[test]
fn errors_are_sorted_and_point_into_the_file() {
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|ext| ext != "yaml") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        if let Err(errors) = Lab::from_str(&text, "x.yaml") {
            let lines = text.lines().count() as u64;
            assert!(!errors.0.is_empty());
            assert!(errors.0.is_sorted(), "{}", path.display());
            for problem in &errors.0 {
                assert!(problem.line >= 1 && problem.column >= 1 && problem.line <= lines + 1, "{problem}");
                assert!(problem.hint.as_ref().is_some_and(|hint| !hint.is_empty()), "{problem}");
            }
        }
    }
}

#[test]
fn errors_are_readable_by_machines() {
    let errors = Lab::from_str("name: x\nplanes: 0\nsites: {}\nlinks: []\n", "x.yaml").unwrap_err();
    let json = serde_json::to_value(&errors).unwrap();
    assert_eq!(json[0]["file"], "x.yaml");
    assert_eq!(json[1]["line"], 2);
    assert_eq!(json[1]["column"], 9);
    assert!(json[1]["hint"].is_string());
}

#[test]
fn a_missing_file_is_one_clear_line() {
    let errors = Lab::from_file(Path::new("/nonexistent/lab.yaml")).unwrap_err();
    assert!(errors.to_string().starts_with("/nonexistent/lab.yaml: cannot read the lab file: "), "{errors}");
    let errors = topologies::labs::load("ebb-smal").unwrap_err();
    assert!(errors.to_string().contains("did you mean `ebb-small`?"), "{errors}");
}

#[test]
fn alias_bombs_end_quickly() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let inner = vec![format!("*a{}", level - 1); 10].join(", ");
        text.push_str(&format!("a{level}: &a{level} [{inner}]\n"));
    }
    assert!(Lab::from_str(&text, "x.yaml").is_err());
}

#[test]
fn deep_nesting_is_refused() {
    for opening in ["[", "{a: ", "- ", "? ", "a:\n "] {
        let text = opening.repeat(50_000);
        for prefix in ["", "name: ", "links: ", "unknown: "] {
            assert!(Lab::from_str(&format!("{prefix}{text}"), "x.yaml").is_err());
        }
    }
}

/// A piece of a file that a tired author could put anywhere.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        "[ -~\\n]{0,8}",
        "\\PC{0,4}",
        Just("\t".to_owned()),
        Just("\n".to_owned()),
        Just("010".to_owned()),
        Just("1:30".to_owned()),
        Just("no".to_owned()),
        Just("~".to_owned()),
        Just("*x".to_owned()),
        Just("&x ".to_owned()),
        Just("<<: ".to_owned()),
        Just("!!int ".to_owned()),
        Just("[".to_owned()),
        Just("}".to_owned()),
        Just("999999999999999999999".to_owned()),
        Just("---\n".to_owned()),
        Just("\u{feff}".to_owned()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn arbitrary_text_never_panics(text in "\\PC{0,200}") {
        let _ = outcome(&text, "x.yaml");
    }

    #[test]
    fn mutated_good_files_never_panic(
        which in 0_usize..2,
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0_usize..12, piece()), 1..6),
    ) {
        let (_, good) = builtins().nth(which).unwrap();
        let mut text: Vec<char> = good.chars().collect();
        for (at, removed, added) in edits {
            let from = at.index(text.len() + 1);
            let to = (from + removed).min(text.len());
            text.splice(from..to, added.chars());
        }
        let text: String = text.into_iter().collect();
        let out = outcome(&text, "x.yaml");
        prop_assert!(out.starts_with("x.yaml:") || out.starts_with("accepted"), "{}", out);
    }

    #[test]
    fn any_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = outcome(&String::from_utf8_lossy(&bytes), "x.yaml");
    }
}
