//! The link-state agent as a program.

fn main() -> anyhow::Result<()> {
    let config = router_emu::agent::start()?;
    router_emu::agent::run(router_emu::openr::program::run(config))
}
