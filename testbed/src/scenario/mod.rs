//! The engine that carries scenarios out, inside the supervisor: its clock is that of events and probes, nothing it does
//! crosses a network, and it takes back what it broke whatever becomes of the client that asked for the run.
//!
//! In this room: a run from begin to end ([`engine`]), its steps in order ([`steps`]), what they do ([`act`]) and how it is taken back ([`undo`]), what is
//! observed ([`observe`], [`traffic`]), what must hold all the while ([`watch`]). Not in this room: the language, the
//! record and the reports (crate `scenario`), and how a link is cut (`supervise`).

mod act;
mod engine;
mod observe;
mod steps;
mod traffic;
mod undo;
mod watch;

pub use engine::run;
