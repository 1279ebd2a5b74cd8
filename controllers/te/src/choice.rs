//! Names of algorithms: what settings and command lines say, and what runs.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::backup::{BackupAlgorithm, Fir, Rba, SrlgRba};
use crate::cspf::Cspf;
use crate::hprr::Hprr;
use crate::mcf::{KspMcf, Mcf};
use crate::round::PrimaryAlgorithm;

/// Algorithm for the primaries of a class. As text: `cspf`, `hprr`, `mcf`, `ksp-mcf` or `ksp-mcf:K`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum PrimaryChoice {
    /// Shortest path with room, one LSP of every pair in turn.
    #[default]
    Cspf,
    /// CSPF, then rerouting away from hot links.
    Hprr,
    /// Multi-commodity flow over any path.
    Mcf,
    /// Multi-commodity flow over this many shortest paths per pair.
    KspMcf(u16),
}

/// Paths per pair when `ksp-mcf` does not say: the lesser of the paper's two values.
const DEFAULT_K: u16 = 512;

/// Algorithm for backups. As text: `rba`, `srlg-rba`, `fir` or `none`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum BackupChoice {
    /// Reserved-bandwidth-aware, for single links.
    #[default]
    Rba,
    /// Reserved-bandwidth-aware, for risk groups.
    SrlgRba,
    /// Least extra reserved bandwidth.
    Fir,
    /// No backups.
    None,
}

/// A name that no algorithm has.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("no {kind} algorithm is called {given:?}; known: {known}")]
pub struct UnknownAlgorithm {
    kind: &'static str,
    given: String,
    known: &'static str,
}

impl PrimaryChoice {
    /// The algorithm, with the paper's constants.
    pub fn algorithm(self) -> Box<dyn PrimaryAlgorithm> {
        match self {
            Self::Cspf => Box::new(Cspf::default()),
            Self::Hprr => Box::new(Hprr::default()),
            Self::Mcf => Box::new(Mcf::default()),
            Self::KspMcf(k) => Box::new(KspMcf::new(usize::from(k))),
        }
    }
}

impl BackupChoice {
    /// The algorithm.
    pub fn algorithm(self) -> Box<dyn BackupAlgorithm> {
        match self {
            Self::Rba => Box::new(Rba),
            Self::SrlgRba => Box::new(SrlgRba),
            Self::Fir => Box::new(Fir),
            Self::None => Box::new(crate::backup::NoBackup),
        }
    }
}

impl FromStr for PrimaryChoice {
    type Err = UnknownAlgorithm;

    fn from_str(text: &str) -> Result<Self, UnknownAlgorithm> {
        let k = |k: &str| k.parse().ok().filter(|&k| k > 0).map(Self::KspMcf);
        let choice = match text {
            "cspf" => Some(Self::Cspf),
            "hprr" => Some(Self::Hprr),
            "mcf" => Some(Self::Mcf),
            "ksp-mcf" => Some(Self::KspMcf(DEFAULT_K)),
            _ => text.strip_prefix("ksp-mcf:").and_then(k),
        };
        choice.ok_or_else(|| UnknownAlgorithm {
            kind: "primary",
            given: text.to_owned(),
            known: "cspf, hprr, mcf, ksp-mcf (512 paths per pair) and ksp-mcf:K with K from 1 to 65535",
        })
    }
}

impl fmt::Display for PrimaryChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cspf => f.write_str("cspf"),
            Self::Hprr => f.write_str("hprr"),
            Self::Mcf => f.write_str("mcf"),
            Self::KspMcf(k) => write!(f, "ksp-mcf:{k}"),
        }
    }
}

impl FromStr for BackupChoice {
    type Err = UnknownAlgorithm;

    fn from_str(text: &str) -> Result<Self, UnknownAlgorithm> {
        [Self::Rba, Self::SrlgRba, Self::Fir, Self::None]
            .into_iter()
            .find(|c| c.to_string() == text)
            .ok_or_else(|| UnknownAlgorithm {
                kind: "backup",
                given: text.to_owned(),
                known: "rba, srlg-rba, fir and none",
            })
    }
}

impl fmt::Display for BackupChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rba => "rba",
            Self::SrlgRba => "srlg-rba",
            Self::Fir => "fir",
            Self::None => "none",
        })
    }
}

macro_rules! as_text {
    ($choice:ty) => {
        impl From<$choice> for String {
            fn from(choice: $choice) -> Self {
                choice.to_string()
            }
        }
        impl TryFrom<String> for $choice {
            type Error = UnknownAlgorithm;
            fn try_from(text: String) -> Result<Self, UnknownAlgorithm> {
                text.parse()
            }
        }
    };
}
as_text!(PrimaryChoice);
as_text!(BackupChoice);
