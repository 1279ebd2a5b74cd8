//! A plan as a whole, and how people read it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::action::{Action, Change};

/// Ordered actions; empty if there is nothing to do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// What to do, in order.
    pub actions: Vec<Action>,
}

/// Whether an action brings something, changes it or takes it away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sign {
    /// Brings.
    Add,
    /// Changes.
    Change,
    /// Takes away.
    Remove,
}

impl Sign {
    /// `+`, `~` or `-`.
    pub const fn symbol(self) -> char {
        match self {
            Self::Add => '+',
            Self::Change => '~',
            Self::Remove => '-',
        }
    }
}

impl Change {
    /// Whether it brings, changes or takes away.
    pub const fn sign(&self) -> Sign {
        match self {
            Self::RemoveLabel { .. }
            | Self::RemoveRoute { .. }
            | Self::RemoveNeighbour { .. }
            | Self::RemoveAddress { .. }
            | Self::RemoveQueue { .. }
            | Self::RemoveLink { .. }
            | Self::RemoveNamespace { .. }
            | Self::Wipe { .. } => Sign::Remove,
            Self::LinkDown { .. }
            | Self::LinkUp { .. }
            | Self::RepairLoopback { .. }
            | Self::SetSysctl { .. }
            | Self::JoinBond { .. }
            | Self::MarkLink { .. }
            | Self::SetMtu { .. }
            | Self::SetLabelTable { .. }
            | Self::SetMplsInput { .. }
            | Self::SetFilters { .. }
            | Self::SetQueue { from: Some(_), .. } => Sign::Change,
            Self::CreateNamespace { .. }
            | Self::CreateLink { .. }
            | Self::CreateBond { .. }
            | Self::AddAddress { .. }
            | Self::SetNeighbour { .. }
            | Self::AddRoute { .. }
            | Self::SetQueue { .. }
            | Self::CreateMacsec { .. }
            | Self::SetLabel { .. } => Sign::Add,
        }
    }
}

impl Action {
    /// Whether it brings, changes or takes away: a change of something new brings it.
    pub const fn sign(&self) -> Sign {
        match self.change.sign() {
            Sign::Change if self.fresh => Sign::Add,
            sign => sign,
        }
    }
}

/// How many actions of each sign.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Actions that bring something.
    pub add: usize,
    /// Actions that change something.
    pub change: usize,
    /// Actions that take something away.
    pub remove: usize,
}

impl Plan {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }

    /// How many actions of each sign.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for action in &self.actions {
            match action.sign() {
                Sign::Add => counts.add += 1,
                Sign::Change => counts.change += 1,
                Sign::Remove => counts.remove += 1,
            }
        }
        counts
    }
}

/// Whether two actions are settings of the same new namespace, which are the same everywhere and tell nothing.
fn settings_of_one_new_node(a: &Action, b: &Action) -> bool {
    let setting = |action: &Action| action.fresh && matches!(action.change, Change::SetSysctl { .. });
    setting(a) && setting(b) && a.change.node() == b.change.node()
}

/// Actions under the headings of their phases, one a line with its reason, then the counts.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return writeln!(f, "Nothing to do: the lab is as it should be.");
        }
        for group in self.actions.chunk_by(|a, b| a.change.phase() == b.change.phase()) {
            let title = group.first().map_or("", |a| a.change.phase().title());
            writeln!(f, "{title} ({})", group.len())?;
            for same in group.chunk_by(settings_of_one_new_node) {
                let Some(action) = same.first() else { continue };
                let sign = action.sign().symbol();
                if same.len() > 1 {
                    writeln!(f, "  {sign} {} settings in {}  (new)", same.len(), action.change.node())?;
                } else {
                    writeln!(f, "  {sign} {}  ({})", action.change, action.reason)?;
                }
            }
        }
        let Counts { add, change, remove } = self.counts();
        writeln!(f, "{add} to add, {change} to change, {remove} to remove.")
    }
}
