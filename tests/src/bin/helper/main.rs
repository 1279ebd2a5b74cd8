//! Runs inside nodes for the end-to-end suite: `sniff` sums up what arrives, `bundles` and `counters` show what an
//! lsp-agent holds, `events` what it remembers, `adjacencies` what a router announces, `delete` takes bundles away from it
//! as a controller could, `stale` writes as a leader of the past would, `neighbors` shows whom openr sees, `keys` what keys a
//! router's circuits have, `kill-at-change` ends a key-agent at the worst moment, `wire` tells what an interface shows.

use std::process::ExitCode;

mod agent;
mod keys;
mod sniff;
mod wire;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["sniff"] => sniff::run(),
        ["bundles", socket] => agent::bundles(socket),
        ["counters", socket] => agent::counters(socket),
        ["matrix", socket] => agent::matrix(socket),
        ["events", socket] => agent::events(socket),
        ["neighbors", socket] => agent::neighbors(socket),
        ["adjacencies", socket, router] => agent::adjacencies(socket, router),
        ["keys", socket] => keys::show(socket),
        ["kill-at-change", socket, pid] => keys::kill_at_change(socket, pid),
        ["wire", interface] => wire::run(interface),
        ["delete", socket, sids @ ..] => agent::delete(socket, sids),
        ["stale", socket, epoch] => agent::stale(socket, epoch),
        _ => Err(anyhow::anyhow!(
            "usage: e2e-helper sniff | bundles SOCKET | counters SOCKET | events SOCKET | neighbors SOCKET | \
             adjacencies SOCKET ROUTER | matrix SOCKET | delete SOCKET SID... | stale SOCKET EPOCH | keys SOCKET | \
             kill-at-change SOCKET PID | wire INTERFACE"
        )),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("e2e-helper: {error:#}");
            ExitCode::FAILURE
        }
    }
}
