//! The supervisor: process 1 of a lab's world.
//!
//! In this room: keeping the lab as the lab file wants it, starting and watching programs, answering the API,
//! draining planes, the state of it all. Not in this room: how the world came about (`carrier`), what the
//! kernel must be told (`plan`, `apply`), how packets are counted (`probe`).

pub mod compare;
pub mod config;
pub mod controller;
pub mod drain;
pub mod etcd;
pub mod events;
pub mod exec;
pub mod fabric;
mod faults;
pub mod files;
pub mod handle;
mod keys;
pub mod leader;
mod life;
pub mod links;
pub mod main;
mod parts;
pub mod programs;
mod queues;
pub mod reaper;
pub mod repairs;
mod rollout;
pub mod status;
mod streams;
mod supplies;
pub mod world;
