//! Settings of a computation: the order of the meshes, their headroom and algorithms, LSPs per bundle; and how planes
//! may differ.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::choice::{BackupChoice, PrimaryChoice};
use crate::engine::TeError;

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
    /// Algorithm for the primaries.
    #[serde(default)]
    pub algorithm: PrimaryChoice,
}

impl ClassSettings {
    /// A class with CSPF.
    pub fn new(mesh: Mesh, reserved_percent: u8) -> Self {
        Self { mesh, reserved_percent, algorithm: PrimaryChoice::Cspf }
    }
}

/// Settings of a computation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TeSettings {
    /// Class rounds in order: each works on what the ones before it left.
    pub classes: Vec<ClassSettings>,
    /// LSPs per bundle, all of equal bandwidth.
    pub lsps: u16,
    /// Algorithm for the backups of all classes.
    pub backup: BackupChoice,
}

impl Default for TeSettings {
    /// Gold, silver, bronze at 80 % each (the share of the paper's evaluation, section 6.2), 16 LSPs, CSPF and RBA.
    fn default() -> Self {
        let class = |mesh| ClassSettings::new(mesh, 80);
        Self { classes: Mesh::BY_PRIORITY.map(class).to_vec(), lsps: 16, backup: BackupChoice::Rba }
    }
}

impl TeSettings {
    /// Says what is wrong with them, if anything.
    pub fn check(&self) -> Result<(), TeError> {
        if self.lsps == 0 {
            return Err(TeError::Settings("lsps is 0".into()));
        }
        for (i, c) in self.classes.iter().enumerate() {
            if self.classes[..i].iter().any(|o| o.mesh == c.mesh) {
                return Err(TeError::Settings(format!("classes lists {} twice", c.mesh.name())));
            }
            if !(1..=100).contains(&c.reserved_percent) {
                let (mesh, percent) = (c.mesh.name(), c.reserved_percent);
                return Err(TeError::Settings(format!("reserved_percent of {mesh} is {percent}")));
            }
        }
        Ok(())
    }
}

/// Settings of all planes: one set, and what single planes do differently. Planes are nearly equal networks, so an
/// algorithm is tried on one of them first (EBB paper, sections 3.2 and 4.1).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PlaneSettings {
    /// What holds where a plane says nothing.
    pub all: TeSettings,
    /// By plane number.
    pub planes: BTreeMap<u8, PlaneOverride>,
}

/// What one plane does differently.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PlaneOverride {
    /// Algorithm by mesh.
    pub algorithm: BTreeMap<Mesh, PrimaryChoice>,
    /// Reserved percentage by mesh.
    pub reserved_percent: BTreeMap<Mesh, u8>,
    /// LSPs per bundle.
    pub lsps: Option<u16>,
    /// Algorithm for backups.
    pub backup: Option<BackupChoice>,
}

impl PlaneSettings {
    /// The settings of a plane, checked.
    pub fn of(&self, plane: u8) -> Result<TeSettings, TeError> {
        let mut settings = self.all.clone();
        if let Some(own) = self.planes.get(&plane) {
            for (&mesh, &algorithm) in &own.algorithm {
                class_of(&mut settings, plane, mesh)?.algorithm = algorithm;
            }
            for (&mesh, &percent) in &own.reserved_percent {
                class_of(&mut settings, plane, mesh)?.reserved_percent = percent;
            }
            settings.lsps = own.lsps.unwrap_or(settings.lsps);
            settings.backup = own.backup.unwrap_or(settings.backup);
        }
        settings.check()?;
        Ok(settings)
    }
}

fn class_of(settings: &mut TeSettings, plane: u8, mesh: Mesh) -> Result<&mut ClassSettings, TeError> {
    let wrong = || TeError::Settings(format!("plane {plane} names {}, which is not in classes", mesh.name()));
    settings.classes.iter_mut().find(|c| c.mesh == mesh).ok_or_else(wrong)
}
