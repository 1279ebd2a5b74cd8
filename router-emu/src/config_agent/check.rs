//! What a configuration may say: everything that can be refused is refused before it runs.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

use crate::config::{BfdTimers, CoreInterface, OpenrTimers, RouterConfig};

/// Largest capacity of an interface, bit/s: a thousand times what a bundle has today.
const MOST_CAPACITY: u64 = 10_000_000_000_000_000;
/// Largest round-trip time, microseconds.
const MOST_RTT: u64 = 60_000_000;
/// Longest timer, milliseconds.
const LONGEST: u64 = 3_600_000;

/// What is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Path of the field, `interfaces.to-chi.capacity_bps`; empty for the whole.
    pub path: String,
    /// What is wrong with it.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            f.write_str(&self.message)
        } else {
            write!(f, "{}: {}", self.path, self.message)
        }
    }
}

fn finding(path: impl Into<String>, message: impl Into<String>) -> Finding {
    Finding { path: path.into(), message: message.into() }
}

/// Reads a configuration that is to replace that of a router whose base is `base`.
///
/// # Errors
/// Everything that is wrong with it.
pub fn read(base: &RouterConfig, text: &str) -> Result<RouterConfig, Vec<Finding>> {
    let value: Value = serde_json::from_str(text).map_err(|e| {
        vec![finding("", format!("not JSON: {e} (line {}, column {})", e.line(), e.column()))]
    })?;
    let config = typed(&value).map_err(|f| vec![f])?;
    let findings: Vec<Finding> = fixed(base, &config).into_iter().chain(ranges(&config)).collect();
    if findings.is_empty() { Ok(config) } else { Err(findings) }
}

/// The value as a configuration; the finding names the field.
fn typed(value: &Value) -> Result<RouterConfig, Finding> {
    serde_path_to_error::deserialize(value)
        .map_err(|e| finding(named(value, e.path()), e.inner().to_string()))
}

/// A path in which interfaces stand by name.
fn named(value: &Value, path: &serde_path_to_error::Path) -> String {
    use serde_path_to_error::Segment;
    let mut words: Vec<String> = Vec::new();
    for segment in path {
        match segment {
            Segment::Seq { index } if words == ["interfaces"] => words.push(interface_name(value, *index)),
            Segment::Seq { index } => words.push(index.to_string()),
            Segment::Map { key } => words.push(key.clone()),
            Segment::Enum { variant } => words.push(variant.clone()),
            Segment::Unknown => {}
        }
    }
    words.join(".")
}

fn interface_name(value: &Value, index: usize) -> String {
    let name = value.get("interfaces").and_then(|list| list.get(index)?.get("name")?.as_str());
    name.map_or_else(|| index.to_string(), str::to_owned)
}

/// What differs from the base and cannot change while the router runs.
pub fn fixed(base: &RouterConfig, config: &RouterConfig) -> Vec<Finding> {
    let wanted = frozen(base, config);
    let (base, wanted) = (json(base), json(&wanted));
    let mut paths = BTreeSet::new();
    differences(&base, &wanted, &mut Vec::new(), &mut paths);
    let why = |path: String| {
        let message = "cannot change while the router runs; edit what it was made with, and make it anew";
        finding(path, message)
    };
    paths.into_iter().map(why).collect()
}

/// `config` with everything that may change live as `base` has it: what is left must be equal.
fn frozen(base: &RouterConfig, config: &RouterConfig) -> RouterConfig {
    let live = |interface: &CoreInterface| {
        let old = base.interfaces.iter().find(|i| i.name == interface.name);
        old.map_or_else(
            || interface.clone(),
            |old| CoreInterface {
                capacity_bps: old.capacity_bps,
                declared_rtt_us: old.declared_rtt_us,
                srlgs: old.srlgs.clone(),
                enabled: old.enabled,
                ..interface.clone()
            },
        )
    };
    RouterConfig {
        interfaces: config.interfaces.iter().map(live).collect(),
        openr: base.openr.clone(),
        ..config.clone()
    }
}

fn json(config: &RouterConfig) -> Value {
    // of a type of ours: it cannot fail
    serde_json::to_value(config).unwrap_or_default()
}

/// Paths at which two values differ.
fn differences(a: &Value, b: &Value, path: &mut Vec<String>, found: &mut BTreeSet<String>) {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            for key in a.keys().chain(b.keys()) {
                path.push(key.clone());
                differences(
                    a.get(key).unwrap_or(&Value::Null),
                    b.get(key).unwrap_or(&Value::Null),
                    path,
                    found,
                );
                path.pop();
            }
        }
        // lists of things with names are compared thing by thing
        (Value::Array(a), Value::Array(b)) if names(a).is_some() && names(a) == names(b) => {
            for (old, new) in a.iter().zip(b) {
                path.push(old["name"].as_str().unwrap_or_default().to_owned());
                differences(old, new, path, found);
                path.pop();
            }
        }
        _ if a == b => {}
        _ => drop(found.insert(path.join("."))),
    }
}

fn names(list: &[Value]) -> Option<Vec<&str>> {
    list.iter().map(|thing| thing.get("name")?.as_str()).collect()
}

/// Values out of range.
fn ranges(config: &RouterConfig) -> Vec<Finding> {
    let mut findings = Vec::new();
    for interface in &config.interfaces {
        let at = |field: &str| format!("interfaces.{}.{field}", interface.name);
        let mut check = |field: &str, value: u64, range: std::ops::RangeInclusive<u64>| {
            if !range.contains(&value) {
                let words = format!("{value} is not from {} to {}", range.start(), range.end());
                findings.push(finding(at(field), words));
            }
        };
        check("capacity_bps", interface.capacity_bps, 1..=MOST_CAPACITY);
        check("declared_rtt_us", interface.declared_rtt_us, 0..=MOST_RTT);
        let unique: BTreeSet<&String> = interface.srlgs.iter().collect();
        if unique.len() < interface.srlgs.len() {
            findings.push(finding(at("srlgs"), "names a group twice"));
        }
        if interface.srlgs.iter().any(|name| name.is_empty() || name.len() > 64) {
            findings.push(finding(at("srlgs"), "a group has a name of 1 to 64 bytes"));
        }
    }
    findings.extend(timers(&config.openr));
    findings
}

fn timers(openr: &OpenrTimers) -> Vec<Finding> {
    let OpenrTimers {
        hello,
        fast_hello,
        keepalive,
        hold,
        key_ttl,
        spf_min,
        spf_max,
        flap_first,
        flap_most,
        bfd,
    } = openr;
    let BfdTimers { enabled: _, tx, rx, multiplier } = bfd;
    let rows: [(&str, u64, u64, u64); 12] = [
        ("openr.hello", *hello, 10, LONGEST),
        ("openr.fast_hello", *fast_hello, 10, LONGEST),
        ("openr.keepalive", *keepalive, 10, LONGEST),
        ("openr.hold", *hold, 100, LONGEST),
        ("openr.key_ttl", *key_ttl, 1_000, 24 * LONGEST),
        ("openr.spf_min", *spf_min, 0, 60_000),
        ("openr.spf_max", *spf_max, 0, 60_000),
        ("openr.flap_first", *flap_first, 0, LONGEST),
        ("openr.flap_most", *flap_most, 0, LONGEST),
        ("openr.bfd.tx", *tx, 5, 10_000),
        ("openr.bfd.rx", *rx, 5, 10_000),
        ("openr.bfd.multiplier", u64::from(*multiplier), 3, 50),
    ];
    let outside = rows.iter().filter(|(_, value, least, most)| value < least || value > most);
    let mut findings: Vec<Finding> = outside
        .map(|(path, value, least, most)| finding(*path, format!("{value} is not from {least} to {most}")))
        .collect();
    if keepalive.saturating_mul(3) > *hold {
        let words =
            format!("{hold} ms are over before three keepalives of {keepalive} ms: links would come and go");
        findings.push(finding("openr.hold", words));
    }
    if spf_min > spf_max {
        findings.push(finding(
            "openr.spf_min",
            format!("{spf_min} ms are more than openr.spf_max, {spf_max} ms"),
        ));
    }
    findings
}
