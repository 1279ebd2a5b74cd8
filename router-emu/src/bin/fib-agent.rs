//! The FIB agent as a program.

fn main() -> anyhow::Result<()> {
    let config = router_emu::agent::start()?.running();
    router_emu::agent::run(router_emu::fib::program::run(config))
}
