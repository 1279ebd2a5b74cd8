//! The carriers on their own, without the rest of the command line: `carrier guest-exec -- uname -r`.
use std::process::ExitCode;

use testbed::carrier::qemu::Accel;
use testbed::carrier::{guest_exec, kernel};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "internal").collect();
    let result = match args.first().map(String::as_str) {
        Some("guest-run") => Err(guest_exec::run_inside()),
        Some("guest-exec") => guest(&args[1..]),
        _ => Err(anyhow::anyhow!("usage: carrier guest-exec -- COMMAND…")),
    };
    match result {
        Ok(code) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        Err(why) => {
            eprintln!("{why:#}");
            ExitCode::from(5)
        }
    }
}

fn guest(args: &[String]) -> anyhow::Result<i32> {
    let command = args.strip_prefix(&["--".to_owned()]).unwrap_or(args);
    let kernel = kernel::ensure(None, &mut |line| eprintln!("{line}"))?;
    let run = [std::env::current_exe()?.display().to_string(), "internal".to_owned(), "guest-run".to_owned()];
    guest_exec::execute(&kernel, Accel::Tcg, &run, command)
}
