//! The lsp-agent of a router; see [`router_emu::lsp`].

use router_emu::{agent, lsp};

fn main() -> anyhow::Result<()> {
    let config = agent::start()?.running();
    agent::run(lsp::agent::run(config))
}
