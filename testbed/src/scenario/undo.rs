//! Taking back what a run has broken.

use std::sync::Arc;

use scenario::record::{Entry, Fault};
use tokio::sync::mpsc;
use topologies::lab::Lab;

use crate::api::protocol::{
    DrainParts, DrainPlanes, LinkChange, NodeChange, ProgramAction, RpcChange, RpcOrder,
};
use crate::api::server::Writer;
use crate::supervise::events::monotonic_ns;
use crate::supervise::world::World;

/// How a fault is taken back.
#[derive(Clone, Debug)]
pub enum Inverse {
    /// Links.
    Links(Vec<String>, LinkChange),
    /// Nodes boot.
    Boot(Vec<String>),
    /// Programs, `(node, program)`.
    Programs(Vec<(String, String)>, ProgramAction),
    /// Connections.
    Rpc(RpcOrder),
    /// Planes.
    Planes(DrainPlanes),
    /// Links and routers.
    Parts(DrainParts),
    /// The lab is what it was.
    Lab(Box<Lab>),
}

/// A fault in force.
#[derive(Clone, Debug)]
pub struct Undo {
    /// As the record has it.
    pub fault: Fault,
    /// How it is taken back.
    pub inverse: Inverse,
}

/// Faults in force, in the order in which they began.
#[derive(Debug, Default)]
pub struct Undos(std::sync::Mutex<Vec<Undo>>);

impl Undos {
    fn list(&self) -> std::sync::MutexGuard<'_, Vec<Undo>> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// A fault is about to begin. Said before it is made, so that a run that ends in between takes it back, too.
    pub fn add(&self, undo: Undo, book: &mpsc::UnboundedSender<Entry>) {
        let _ = book.send(Entry::Fault(undo.fault.clone()));
        self.list().push(undo);
    }

    /// Forgets faults that a step took back, and says when: those of these kinds of which nothing is left.
    pub fn close(&self, kinds: &[&str], subjects: &[String], book: &mpsc::UnboundedSender<Entry>) {
        self.list().retain_mut(|undo| {
            let fault = &mut undo.fault;
            let over =
                kinds.contains(&fault.kind.as_str()) && fault.subjects.iter().all(|s| subjects.contains(s));
            if over {
                fault.until_ns = monotonic_ns();
                let _ = book.send(Entry::Fault(fault.clone()));
            }
            !over
        });
    }

    /// Takes the fault of a step out of the list, if it is still in force.
    pub fn take(&self, step: &str) -> Option<Undo> {
        let mut list = self.list();
        let at = list.iter().position(|undo| undo.fault.step == step)?;
        Some(list.remove(at))
    }

    /// Takes the latest fault out of the list.
    pub fn take_last(&self) -> Option<Undo> {
        self.list().pop()
    }
}

/// Takes a fault back and says when.
pub async fn take_back(
    world: &Arc<World>,
    mut undo: Undo,
    book: &mpsc::UnboundedSender<Entry>,
) -> anyhow::Result<Vec<String>> {
    let silent = Writer::new(Box::new(tokio::io::sink()));
    let notes = match undo.inverse {
        Inverse::Links(links, change) => world.link(&links, change).await,
        Inverse::Boot(nodes) => world.node(&nodes, NodeChange::Restore).await,
        Inverse::Programs(programs, action) => world.act(&programs, action).await,
        Inverse::Rpc(order) => world.rpc(&RpcOrder { change: RpcChange::Restore, ..order }).await,
        Inverse::Planes(order) => world.drain(&DrainPlanes { drain: false, ..order }, &silent).await,
        Inverse::Parts(parts) => world.drain_parts(&DrainParts { mode: None, ..parts }, &silent).await,
        Inverse::Lab(lab) => world.apply(*lab, &silent).await.map(|_| Vec::new()),
    };
    undo.fault.until_ns = monotonic_ns();
    let _ = book.send(Entry::Fault(undo.fault));
    notes
}
