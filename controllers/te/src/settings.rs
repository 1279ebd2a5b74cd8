//! Settings of a computation: the order of the meshes, their headroom, LSPs per bundle.

use serde::{Deserialize, Serialize};

/// An LSP mesh. The numbers are the codes in labels; gold carries the ICP class too (EBB paper, section 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mesh {
    /// Bulk traffic.
    Bronze = 0,
    /// Default traffic.
    Silver = 1,
    /// User-facing and infrastructure control traffic.
    Gold = 2,
}

impl Mesh {
    /// Allocation order: the class served first comes first.
    pub const BY_PRIORITY: [Self; 3] = [Self::Gold, Self::Silver, Self::Bronze];

    /// Code in labels.
    pub fn code(self) -> u8 {
        match self {
            Self::Bronze => 0,
            Self::Silver => 1,
            Self::Gold => 2,
        }
    }

    /// The mesh of a code in labels.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::BY_PRIORITY.into_iter().find(|m| m.code() == code)
    }

    /// Lower-case name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bronze => "bronze",
            Self::Silver => "silver",
            Self::Gold => "gold",
        }
    }
}

/// Settings of one class round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassSettings {
    /// Which mesh.
    pub mesh: Mesh,
    /// Share, in per cent, of the capacity left by higher classes that this class may use (`reservedBwPercentage`,
    /// EBB paper, section 4.2.1).
    pub reserved_percent: u8,
}

/// Settings of a computation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TeSettings {
    /// Class rounds in order: each works on what the ones before it left.
    pub classes: Vec<ClassSettings>,
    /// LSPs per bundle, all of equal bandwidth.
    pub lsps: u16,
}

impl Default for TeSettings {
    /// Gold, silver, bronze at 80 % each (the share of the paper's evaluation, section 6.2), 16 LSPs.
    fn default() -> Self {
        let class = |mesh| ClassSettings { mesh, reserved_percent: 80 };
        Self { classes: Mesh::BY_PRIORITY.map(class).to_vec(), lsps: 16 }
    }
}
