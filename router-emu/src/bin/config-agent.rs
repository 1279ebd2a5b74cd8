//! The config-agent of a router; see [`router_emu::config_agent`].

use router_emu::{agent, config_agent};

fn main() -> anyhow::Result<()> {
    let base = agent::start()?.base;
    agent::run(config_agent::agent::run(base))
}
