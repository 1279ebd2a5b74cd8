//! Tests of the core: a kernel in memory, a plane of routers, and what must hold of both.

mod fig7;
pub(crate) mod lab;
mod memory;
mod native;
mod plane;
mod programming;
mod speed;
