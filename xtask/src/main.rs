//! `cargo xtask`: set-up, build, then hand over.
fn main() {}
