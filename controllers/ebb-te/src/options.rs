//! The command line.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Parser, ValueEnum};
use te::{BackupChoice, ClassSettings, Mesh, PrimaryChoice, TeSettings};
use topologies::units::{Capacity, Rtt};

use crate::network::{Network, Shares};

/// What would traffic engineering make of this network? Paths, link utilisation, latency stretch, and the bandwidth
/// that single failures cost.
#[derive(Debug, Parser)]
#[command(name = "ebb-te", version, after_help = AFTER)]
pub struct Options {
    /// Topology: a GraphML file (Internet Topology Zoo), an SNDlib file in native format, a lab file, or the name of a
    /// ready-made lab.
    pub topology: String,

    /// Demands: lines of `from to [gold|silver|bronze] rate`, or an SNDlib matrix. Replaces those of the topology.
    #[arg(long, value_name = "FILE")]
    pub matrix: Option<PathBuf>,

    /// Demands by a gravity model that add up to this rate, such as 10T. Replaces those of the topology.
    #[arg(long, value_name = "RATE", conflicts_with = "matrix")]
    pub gravity: Option<Capacity>,

    /// Multiplies all demands, per cent.
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pub scale: u32,

    /// Shares of the classes in traffic that has no class, per cent.
    #[arg(long, value_name = "CLASS=PERCENT,…", default_value = "gold=30,silver=30,bronze=40")]
    pub share: PerClass<u8>,

    /// Algorithm for primaries, for all classes or by class: cspf, hprr, mcf, ksp-mcf or ksp-mcf:K.
    #[arg(long, value_name = "[CLASS=]NAME,…", default_value = "cspf")]
    pub algorithm: PerClass<PrimaryChoice>,

    /// Algorithm for backups: rba, srlg-rba, fir or none.
    #[arg(long, value_name = "NAME", default_value = "rba")]
    pub backup: BackupChoice,

    /// Share of the capacity left by higher classes that a class may use, per cent. Without it what the lab says, or 80.
    #[arg(long, value_name = "[CLASS=]PERCENT,…")]
    pub reserved: Option<PerClass<u8>>,

    /// LSPs per pair and class. Without it what the lab says, or 16.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub lsps: Option<u16>,

    /// Settings of all planes as JSON, described in docs/ebb-te.md, instead of the options above.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["algorithm", "backup", "reserved", "lsps"])]
    pub settings: Option<PathBuf>,

    /// Plane of a lab, and of the settings.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub plane: u8,

    /// Capacity of links for which the topology has none.
    #[arg(long, value_name = "RATE", default_value = "100G")]
    pub capacity: Capacity,

    /// Round-trip time of links whose ends have no coordinates.
    #[arg(long, value_name = "TIME", default_value = "10ms")]
    pub rtt: Rtt,

    /// Output.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,

    /// Rows of the table of paths, longest stretch first; 0 for all.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub paths: usize,

    /// Writes utilisation.svg, stretch.svg and deficit.svg into this folder.
    #[arg(long, value_name = "DIR")]
    pub plots: Option<PathBuf>,
}

const AFTER: &str = "Examples:
  ebb-te ebb-6x4
  ebb-te ebb-6x4 --algorithm gold=cspf,bronze=hprr --backup srlg-rba --plots out
  ebb-te Abilene.graphml --gravity 40G --format json
  ebb-te germany50.txt --scale 300 --algorithm ksp-mcf:64

Exit codes: 0 fine, 2 bad usage or input, 5 a fault of ours.";

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tables for people.
    Table,
    /// One JSON document, described in docs/ebb-te.md.
    Json,
}

/// A value per class, where classes that are not named may fall back on one for all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerClass<T> {
    all: Option<T>,
    by_class: Vec<(Mesh, T)>,
}

impl<T: Copy> PerClass<T> {
    /// The value of a class, if it has one.
    pub fn get(&self, mesh: Mesh) -> Option<T> {
        self.by_class.iter().find(|(m, _)| *m == mesh).map(|(_, v)| *v).or(self.all)
    }
}

impl<T: FromStr> FromStr for PerClass<T>
where
    T::Err: std::fmt::Display,
{
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parsed = Self { all: None, by_class: Vec::new() };
        for part in text.split(',').map(str::trim) {
            let value = |v: &str| v.parse().map_err(|e| format!("{part:?}: {e}"));
            let Some((class, v)) = part.split_once('=') else {
                if parsed.all.replace(value(part)?).is_some() {
                    return Err(format!("{part:?} is a second value for all classes; name the classes"));
                }
                continue;
            };
            let mesh = Mesh::BY_PRIORITY.into_iter().find(|m| m.name() == class).ok_or_else(|| {
                format!("{part:?}: unknown class {class:?}; classes are gold, silver and bronze")
            })?;
            if parsed.by_class.iter().any(|(m, _)| *m == mesh) {
                return Err(format!("{part:?}: {class} has a value already"));
            }
            parsed.by_class.push((mesh, value(v)?));
        }
        Ok(parsed)
    }
}

impl Options {
    /// Settings for `te` from the options.
    pub fn te_settings(&self, network: &Network) -> TeSettings {
        let lab = network.reserved_percent;
        let class = |(i, mesh): (usize, Mesh)| ClassSettings {
            mesh,
            reserved_percent: self
                .reserved
                .as_ref()
                .and_then(|r| r.get(mesh))
                .or(lab.map(|l| l[i]))
                .unwrap_or(80),
            algorithm: self.algorithm.get(mesh).unwrap_or_default(),
        };
        TeSettings {
            classes: Mesh::BY_PRIORITY.into_iter().enumerate().map(class).collect(),
            lsps: self.lsps.or(network.lsps).unwrap_or(16),
            backup: self.backup,
        }
    }

    /// Shares of the classes in traffic that has none; they must add up to 100.
    pub fn shares(&self) -> Result<Shares, String> {
        let shares = Mesh::BY_PRIORITY.map(|m| self.share.get(m).unwrap_or(0));
        let sum: u32 = shares.iter().map(|&s| u32::from(s)).sum();
        if sum == 100 {
            Ok(shares)
        } else {
            Err(format!("--share adds up to {sum} per cent; it must be 100"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_per_class() {
        let a: PerClass<PrimaryChoice> = "gold=cspf,bronze=ksp-mcf:64,hprr".parse().unwrap();
        assert_eq!(Mesh::BY_PRIORITY.map(|m| a.get(m).unwrap().to_string()), ["cspf", "hprr", "ksp-mcf:64"]);
        let e = |t: &str| t.parse::<PerClass<PrimaryChoice>>().unwrap_err();
        assert!(
            e("gold=hpr").starts_with("\"gold=hpr\": no primary algorithm is called \"hpr\"; known: cspf")
        );
        assert!(e("golden=cspf").contains("classes are gold, silver and bronze"));
        assert!(e("gold=cspf,gold=mcf").contains("already"));
        assert!(e("cspf,mcf").contains("name the classes"));
    }

    #[test]
    fn the_command_line_is_sound() {
        use clap::CommandFactory as _;
        Options::command().debug_assert();
    }
}
