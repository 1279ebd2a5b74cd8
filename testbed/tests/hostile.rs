//! The command as a careless or hostile user would call it, without any lab: odd files, odd names, places that cannot be
//! written. What is checked is the exit code, what is said, and what is left.

#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Output, Stdio};

const GOOD: &str = "name: two\nplanes: 1\nsites:\n  a: {id: 1, kind: dc}\n  b: {id: 2, kind: dc}\nlinks:\n  - {between: [a, b], \
                    capacity: 400G, rtt: 1ms}\n";

fn command(state: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_testbed"));
    command.args(args).env("TESTBED_STATE", state).env_remove("TESTBED_LAB").stdin(Stdio::null());
    command
}

fn run(state: &Path, args: &[&str]) -> (i32, String) {
    told(&command(state, args).output().unwrap())
}

fn told(output: &Output) -> (i32, String) {
    (output.status.code().unwrap(), String::from_utf8(output.stderr.clone()).unwrap())
}

/// Input: results that cannot be written. Output: exit code 1 with the reason, neither success nor a panic.
#[test]
fn a_result_that_is_lost_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("good.yaml");
    fs::write(&file, GOOD).unwrap();
    let file = file.to_str().unwrap();
    for args in
        [&["validate", file][..], &["plan", file], &["graph", file], &["schema"], &["gc", "--dry-run"]]
    {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let (code, said) = told(&command(dir.path(), args).stdout(full).output().unwrap());
        assert_eq!(code, 1, "{args:?}: {said}");
        assert!(said.contains("standard output") && !said.contains("panicked"), "{args:?}: {said}");
    }
    // whoever stops reading has had enough
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert_eq!(told(&command(dir.path(), &["graph", file]).stdout(writer).output().unwrap()).0, 0);
    // standard error that takes nothing
    let full = File::options().write(true).open("/dev/full").unwrap();
    let status = command(dir.path(), &["validate", "nothing"]).stderr(full).status().unwrap();
    assert_eq!(status.code(), Some(2));
}

/// Input: a folder, a device without an end, a pipe, text in another encoding, escape sequences.
/// Output: words that fit, and the pipe's lab.
#[test]
fn lab_files_that_are_none() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let refused = |file: &str, why: &str| {
        let (code, said) = run(dir.path(), &["validate", file]);
        assert!(code == 2 && said.contains(why), "{file}: {code} {said}");
        said
    };
    refused(&at(""), "is a folder");
    refused("/dev/zero", "more than 64 MiB");
    refused(&at("missing.yaml"), "no lab file");
    fs::write(at("latin.yaml"), b"# fine\nname: z\xfcrich\n").unwrap();
    refused(&at("latin.yaml"), "line 2 is not UTF-8");
    fs::write(at("escape.yaml"), GOOD.replace("two", "\"\\e[31mred\"")).unwrap();
    let said = refused(&at("escape.yaml"), "not a valid name");
    assert!(!said.contains('\x1b'), "{said:?}");
    let output = Command::new("bash")
        .args(["-c", "\"$0\" validate <(printf %s \"$1\")", env!("CARGO_BIN_EXE_testbed"), GOOD])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// Input: names that lead out of the folders they belong in. Output: exit code 2; nothing made, nothing shown.
#[test]
fn names_lead_nowhere_else() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    fs::create_dir_all(state.join("lab/logs/h1.a")).unwrap();
    fs::write(state.join("lab/token"), "secret").unwrap();
    for args in
        [&["down", "--name", ".."][..], &["down", "--name", ""], &["logs", "h1.a", "--name", "../state/lab"]]
    {
        let (code, said) = run(&state, args);
        assert!(code == 2 && said.contains("cannot name a lab"), "{args:?}: {code} {said}");
    }
    assert!(!dir.path().join("up.lock").exists() && !state.join("up.lock").exists());
    for node in ["..", "../..", "", ".", "h1.a/.."] {
        let output = command(&state, &["logs", node, "--name", "lab"]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{node:?}: {output:?}");
        assert!(output.stdout.is_empty(), "{node:?}: {output:?}");
    }
}

/// Input: state folders that cannot be made or used. Output: exit code 4 and what to do.
#[test]
fn a_state_folder_that_cannot_be_used() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("good.yaml");
    fs::write(&file, GOOD).unwrap();
    for state in [&file, Path::new("/proc/testbed")] {
        let (code, said) = run(state, &["up", file.to_str().unwrap()]);
        assert!(code == 4 && said.contains("TESTBED_STATE"), "{}: {code} {said}", state.display());
    }
}

/// Input: several `up` at the same moment in a fresh folder, and one that finds an empty token.
/// Output: none trips over the others; the token is whole and nobody else's to read.
#[test]
fn one_token_whatever_came_before() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("good.yaml");
    fs::write(&file, GOOD).unwrap();
    // ends at the kernel that is none, after the folder has been claimed
    let args = ["up", file.to_str().unwrap(), "--carrier", "vm", "--kernel", "/nonexistent"];
    for round in 0..10 {
        let state = dir.path().join(round.to_string());
        let spawn = || command(&state, &args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let children: Vec<_> = (0..4).map(|_| spawn()).collect();
        for child in children {
            let (code, said) = told(&child.wait_with_output().unwrap());
            assert!([1, 2, 4].contains(&code), "{code} {said}");
        }
        let token = state.join("two/token");
        assert_eq!(fs::read(&token).unwrap().len(), 32);
        assert_eq!(fs::metadata(&token).unwrap().permissions().mode() & 0o777, 0o600);
        fs::write(&token, "").unwrap();
        run(&state, &args);
        assert_eq!(fs::read(&token).unwrap().len(), 32, "an empty token lets everybody in");
    }
}
