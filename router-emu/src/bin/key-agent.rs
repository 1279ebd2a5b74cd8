//! The key-agent of a router; see [`router_emu::key_agent`].

use router_emu::{agent, key_agent};

fn main() -> anyhow::Result<()> {
    let loaded = agent::start()?;
    agent::run(key_agent::agent::run(loaded.running()))
}
