//! The `testbed` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(testbed::cli::main())
}
