//! Developer commands: `cargo xtask testbed …`, `cargo xtask test`, `cargo xtask setup`.
//!
//! In this room: installing what the machine lacks, building, and handing over. Not in this room: anything that
//! the built programs do themselves. No dependencies, so that the first answer comes at once.

mod build;
mod packages;

use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

const HELP: &str = "\
cargo xtask testbed ARGS…   build, then run the testbed (`cargo xtask testbed --help` for its own help)
cargo xtask test [--full]   set-up, formatting, lints, unit tests, end-to-end tests; --full runs the long forms and
                            writes docs/results.md
cargo xtask setup           only install what this machine lacks
cargo xtask build           only build
";

/// Exit code when the machine lacks something.
const LACKING: u8 = 4;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let verb = args.next().unwrap_or_default();
    let rest: Vec<String> = args.collect();
    let done = match verb.as_str() {
        "testbed" => testbed(&rest),
        "test" => test(&rest),
        "setup" => packages::ensure(packages::RUN.iter().chain(packages::TEST)).map(|()| 0),
        "build" => build::programs().map(|()| 0),
        "" | "help" | "-h" | "--help" => {
            print!("{HELP}");
            Ok(0)
        }
        other => Err(Stop::new(2, format!("no such command: {other}\n\n{HELP}"))),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(stop) => {
            eprintln!("xtask: {}", stop.message);
            ExitCode::from(stop.code)
        }
    }
}

/// Why xtask ends early.
pub struct Stop {
    code: u8,
    message: String,
}

impl Stop {
    fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// Verbs that only read files need none of the packages.
fn needs_packages(args: &[String]) -> bool {
    let verb = args.iter().find(|a| !a.starts_with('-')).map(String::as_str);
    matches!(verb, Some("up" | "deploy" | "demo" | "run"))
}

fn testbed(args: &[String]) -> Result<u8, Stop> {
    if needs_packages(args) {
        packages::ensure(packages::RUN)?;
    }
    build::programs()?;
    let program = build::target_dir()?.join("release/testbed");
    // nothing of ours has to run afterwards: become the program, so that signals and the exit code are its own
    let error = Command::new(&program).args(args).exec();
    Err(Stop::new(5, format!("cannot run {}: {error}", program.display())))
}

fn test(args: &[String]) -> Result<u8, Stop> {
    let full = match args {
        [] => false,
        [one] if one == "--full" => true,
        [one] if one == "--help" || one == "-h" => {
            print!("{HELP}");
            return Ok(0);
        }
        _ => return Err(Stop::new(2, format!("`test` takes nothing but --full\n\n{HELP}"))),
    };
    packages::ensure(packages::RUN.iter().chain(packages::TEST))?;
    if build::has("fmt") {
        build::cargo("formatting", &["fmt", "--all", "--check"])?;
    } else {
        eprintln!("xtask: no rustfmt in this toolchain: formatting is not checked");
    }
    build::programs()?;
    if build::has("clippy") {
        build::cargo("lints", &["clippy", "--quiet", "--release", "--workspace", "--", "-D", "warnings"])?;
    } else {
        eprintln!("xtask: no clippy in this toolchain: lints are not checked");
    }
    // tests run in their package's folder
    let long = [("TESTBED_E2E_FULL", "1"), ("TESTBED_E2E_RESULTS", "../docs/results.md")];
    let long: &[(&str, &str)] = if full { &long } else { &[] };
    build::cargo_with("tests", &["test", "--release", "--workspace", "--no-fail-fast"], long)?;
    if full {
        let ignored = ["test", "--release", "-p", "testbed", "--test", "carrier", "--", "--ignored"];
        build::cargo("guests killed from all sides", &ignored)?;
    }
    eprintln!("xtask: all passed");
    Ok(0)
}
