//! What is looked at, and when it is an alarm.
//!
//! The network is compared with itself before the change. Links and paths that are lost are words of the routers; silence
//! and traffic that stays away are only believed when they last, because a busy machine and a pause of the senders look
//! the same at first.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// When it is an alarm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Part of a plane's adjacencies that may be lost, percent.
    pub adjacencies_percent: u64,
    /// Part of a plane's label-switched paths that may be missing, percent.
    pub paths_percent: u64,
    /// Part of a plane's traffic that may stay away, percent.
    pub traffic_percent: u64,
    /// Packets a second below which a plane's traffic says nothing.
    pub least_traffic: u64,
    /// Looks in a row for which a router may not answer, paths be missing and traffic stay away.
    pub patience: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            adjacencies_percent: 20,
            paths_percent: 20,
            traffic_percent: 70,
            least_traffic: 50,
            patience: 2,
        }
    }
}

/// What a router says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Version of its configuration that runs.
    pub version: u64,
    /// Whether that waits for its confirmation.
    pub unconfirmed: bool,
    /// Neighbours that count.
    pub adjacencies: u64,
    /// Label-switched paths in its kernel.
    pub paths: u64,
    /// Packets that have entered the plane here, monotonic.
    pub packets: u64,
}

/// A look at all routers; nothing where one did not answer.
pub type Look = BTreeMap<String, Option<Sample>>;

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alarm {
    /// Plane.
    pub plane: u8,
    /// What.
    pub detail: String,
}

/// Sums of a plane, over the routers that answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    adjacencies: u64,
    paths: u64,
    packets: u64,
    /// What the same routers had before.
    adjacencies_before: u64,
    paths_before: u64,
    /// Whether all routers answered.
    whole: bool,
}

/// Signs that have to last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Sign {
    Silence,
    Paths,
    Traffic,
}

/// The comparison.
#[derive(Debug)]
pub struct Detector {
    limits: Limits,
    planes: BTreeMap<String, u8>,
    before: Look,
    /// Packets that entered each plane before, in a thousand seconds.
    rates_before: BTreeMap<u8, u64>,
    /// Time and sums of the last look in which all routers of a plane answered.
    last: BTreeMap<u8, (u64, Sum)>,
    strikes: BTreeMap<(u8, Sign), u32>,
    /// The same at the last look that was whole.
    rates: BTreeMap<u8, u64>,
}

impl Detector {
    /// Compares with two looks (nanoseconds of a monotonic clock) from before. `planes`: routers with their planes.
    ///
    /// # Errors
    /// A router that did not answer: what is not whole to begin with cannot be compared with.
    pub fn new(
        limits: Limits,
        planes: BTreeMap<String, u8>,
        first: &(u64, Look),
        second: &(u64, Look),
    ) -> Result<Self, String> {
        let mut detector = Self {
            limits,
            planes,
            before: second.1.clone(),
            rates_before: BTreeMap::new(),
            last: BTreeMap::new(),
            strikes: BTreeMap::new(),
            rates: BTreeMap::new(),
        };
        let (a, b) = (detector.sums(&first.1), detector.sums(&second.1));
        for (plane, now) in b {
            let was = a.get(&plane).copied().unwrap_or_default();
            if !was.whole || !now.whole {
                let silent = detector.silent(plane, &second.1).or_else(|| detector.silent(plane, &first.1));
                let router = silent.unwrap_or_default();
                return Err(format!("{router} did not answer before anything was changed"));
            }
            detector.rates_before.insert(plane, rate((first.0, was), (second.0, now)));
            detector.last.insert(plane, (second.0, now));
        }
        Ok(detector)
    }

    /// Judges a look; what must not be.
    pub fn judge(&mut self, at_ns: u64, look: &Look) -> Vec<Alarm> {
        let mut alarms = Vec::new();
        let limits = self.limits.clone();
        for (plane, now) in self.sums(look) {
            let silence = || format!("{} does not answer", self.silent(plane, look).unwrap_or_default());
            let mut signs = vec![
                (Sign::Silence, (!now.whole).then(silence)),
                (Sign::Paths, now.lost_paths(limits.paths_percent)),
            ];
            if now.whole
                && let Some(last) = self.last.insert(plane, (at_ns, now))
            {
                let rate = rate(last, (at_ns, now));
                self.rates.insert(plane, rate);
                signs.push((Sign::Traffic, self.missing(plane)));
            }
            // a router's own word, which needs no second look
            let few = now.lost_adjacencies(limits.adjacencies_percent);
            alarms.extend(few.map(|detail| Alarm { plane, detail }));
            for (sign, found) in signs {
                let strikes = self.strikes.entry((plane, sign)).or_default();
                *strikes = if found.is_some() { *strikes + 1 } else { 0 };
                if let Some(detail) = found.filter(|_| *strikes >= limits.patience) {
                    alarms.push(Alarm { plane, detail });
                }
            }
        }
        alarms
    }

    /// Whether everything is as it was before; else what is missing. Of what the last judged look says.
    ///
    /// # Errors
    /// See there.
    pub fn as_before(&self, look: &Look) -> Result<(), String> {
        for (plane, now) in self.sums(look) {
            if !now.whole {
                return Err(format!("{} does not answer", self.silent(plane, look).unwrap_or_default()));
            }
            let found = now.lost_adjacencies(0).or_else(|| now.lost_paths(0)).or_else(|| self.missing(plane));
            if let Some(why) = found {
                return Err(format!("plane {plane}: {why}"));
            }
        }
        Ok(())
    }

    /// Whether traffic stays away, in words.
    fn missing(&self, plane: u8) -> Option<String> {
        let before = self.rates_before.get(&plane).copied().unwrap_or(0);
        let now = self.rates.get(&plane).copied().unwrap_or(before);
        let counts = before >= self.limits.least_traffic.saturating_mul(1000);
        let least = before / 100 * 100_u64.saturating_sub(self.limits.traffic_percent);
        (counts && now < least)
            .then(|| format!("{} packets/s enter instead of {}", now / 1000, before / 1000))
    }

    fn sums(&self, look: &Look) -> BTreeMap<u8, Sum> {
        let mut sums: BTreeMap<u8, Sum> = BTreeMap::new();
        for (router, plane) in &self.planes {
            let sum = sums.entry(*plane).or_insert(Sum { whole: true, ..Sum::default() });
            match look.get(router).copied().flatten() {
                Some(sample) => {
                    let before = self.before.get(router).copied().flatten().unwrap_or_default();
                    sum.adjacencies += sample.adjacencies;
                    sum.paths += sample.paths;
                    sum.packets += sample.packets;
                    sum.adjacencies_before += before.adjacencies;
                    sum.paths_before += before.paths;
                }
                None => sum.whole = false,
            }
        }
        sums
    }

    fn silent(&self, plane: u8, look: &Look) -> Option<String> {
        let of_plane = self.planes.iter().filter(|(_, p)| **p == plane).map(|(router, _)| router);
        of_plane.into_iter().find(|router| look.get(*router).copied().flatten().is_none()).cloned()
    }
}

impl Sum {
    /// Adjacencies lost beyond a tolerated part, in words.
    fn lost_adjacencies(&self, percent: u64) -> Option<String> {
        lost("adjacencies", self.adjacencies_before, self.adjacencies, percent)
    }

    /// Paths lost beyond a tolerated part, in words.
    fn lost_paths(&self, percent: u64) -> Option<String> {
        lost("label-switched paths", self.paths_before, self.paths, percent)
    }
}

/// What is lost beyond a tolerated part, in words.
fn lost(what: &str, before: u64, now: u64, percent: u64) -> Option<String> {
    let least = before.saturating_mul(100_u64.saturating_sub(percent)).div_ceil(100);
    (now < least).then(|| format!("{now} of {before} {what}"))
}

/// Packets in a thousand seconds between two looks.
fn rate((t0, a): (u64, Sum), (t1, b): (u64, Sum)) -> u64 {
    let packets = u128::from(b.packets.saturating_sub(a.packets));
    let nanos = u128::from(t1.saturating_sub(t0)).max(1);
    u64::try_from(packets * 1_000_000_000_000 / nanos).unwrap_or(u64::MAX)
}
