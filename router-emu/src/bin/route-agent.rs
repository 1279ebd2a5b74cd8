//! The route-agent of a router; see [`router_emu::route`].

use router_emu::{agent, route};

fn main() -> anyhow::Result<()> {
    let config = agent::start()?.running();
    agent::run(route::agent::run(config))
}
