//! Quantities with units, as they stand in files: `400G`, `24ms`.

use serde::{Deserialize, Serialize};

/// A capacity or rate in bits per second; written `400G`, `2.5T`, `800M`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Capacity(pub u64);

/// A round-trip time in microseconds; written `24ms`, `800us`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rtt(pub u64);
