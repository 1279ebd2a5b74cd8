//! What the end-to-end suite is made of: a runner of the real `testbed` program, the documents that it prints (written
//! down here a second time, so that their documented shape is what is tested), waiting with a deadline, captures inside
//! nodes, an inventory of what a lab could leave behind, and the evidence that is kept when a test fails.
//!
//! Not in this room: the tests themselves (`e2e/`), and anything of the `testbed` crate: the suite is a user.

pub mod capture;
pub mod cli;
pub mod documents;
pub mod evidence;
pub mod inventory;
pub mod kernel;
pub mod lab;
pub mod mesh;
pub mod model;
pub mod results;
pub mod traffic;
pub mod wait;

pub use cli::{Cli, Output};
pub use lab::Lab;
pub use wait::wait_until;

/// Prints a line under the running test: what was measured.
pub fn note(text: impl AsRef<str>) {
    for line in text.as_ref().lines() {
        println!("    {line}");
        results::noted(line);
    }
}
