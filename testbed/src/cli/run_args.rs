//! The words of the command line for scenarios.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;

use super::args::CarrierChoice;

/// `run`.
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    /// Scenario files, or folders with them
    #[arg(required = true, value_name = "FILE")]
    pub paths: Vec<PathBuf>,
    /// Seed of what is chosen at random, instead of the files' own
    #[arg(long)]
    pub seed: Option<u64>,
    /// Shuffle the order, by this seed
    #[arg(long, value_name = "SEED")]
    pub shuffle: Option<u64>,
    /// Only one part of several: 2/3 is the second third
    #[arg(long, value_name = "I/N")]
    pub shard: Option<Shard>,
    /// How often a scenario that failed is run again
    #[arg(long, default_value_t = 0, value_name = "TIMES")]
    pub retry: u32,
    /// Stop at the first failure, and leave the lab up
    #[arg(long)]
    pub keep_on_failure: bool,
    /// Leave labs up that were brought up for the run
    #[arg(long)]
    pub keep: bool,
    /// Write all results as JUnit XML here
    #[arg(long, value_name = "PATH")]
    pub junit: Option<PathBuf>,
    /// Where labs live that are brought up for the run
    #[arg(long, value_enum, default_value_t = CarrierChoice::Auto)]
    pub carrier: CarrierChoice,
}

/// `report`.
#[derive(Clone, Debug, Args)]
pub struct ReportArgs {
    /// A run, or a scenario's name for its last run; all runs in a table if left out
    pub run: Option<String>,
    /// Print the page
    #[arg(long)]
    pub html: bool,
    /// Print JUnit XML
    #[arg(long, conflicts_with = "html")]
    pub junit: bool,
}

/// One part of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Which, from 1.
    pub number: usize,
    /// Of how many.
    pub of: usize,
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
        match parts {
            Some((number, of)) if number >= 1 && number <= of => Ok(Self { number, of }),
            _ => Err("write it like 1/3: the first of three parts".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_numbered_from_one() {
        assert_eq!("2/3".parse(), Ok(Shard { number: 2, of: 3 }));
        for bad in ["0/3", "4/3", "3", "a/b", "1/0", ""] {
            assert!(bad.parse::<Shard>().is_err(), "{bad}");
        }
    }
}
