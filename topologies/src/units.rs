//! Quantities with units, as they stand in files: `400G`, `24ms`.
//!
//! Each type reads (`FromStr`), prints (`Display`, which reads back to the same value), travels as a string in
//! YAML and JSON, and has a JSON Schema with a pattern.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::scalar::{BadValue, refuse_ambiguous_number};

/// A capacity or rate in bits per second; written `400G`, `2.5T`, `800M`, `10k`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Capacity(pub u64);

/// A round-trip time in microseconds; written `24ms`, `800us`, `1.5ms`, `1s`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rtt(pub u64);

/// A span of time in microseconds that is not an RTT, such as a controller's cycle; written like one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Period(pub u64);

/// A part of a whole in parts per million; written `5%`, `0.1%`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Share(pub u64);

/// A suffix and how many base units it stands for, largest first.
type Units = &'static [(&'static str, u64)];

const CAPACITY: Units = &[("T", 1_000_000_000_000), ("G", 1_000_000_000), ("M", 1_000_000), ("k", 1_000)];
const SHARE: Units = &[("%", 10_000)];
const TIME: Units = &[("s", 1_000_000), ("ms", 1_000), ("us", 1)];

/// What a quantity is called in messages, an example, and its units.
struct Kind {
    noun: &'static str,
    example: &'static str,
    units: Units,
    /// Unit that a bare number most likely meant.
    usual: &'static str,
}

const CAPACITY_KIND: Kind = Kind { noun: "capacity", example: "400G", units: CAPACITY, usual: "G" };
const RTT_KIND: Kind = Kind { noun: "round-trip time", example: "24ms", units: TIME, usual: "ms" };
const SHARE_KIND: Kind = Kind { noun: "share", example: "5%", units: SHARE, usual: "%" };
const PERIOD_KIND: Kind = Kind { noun: "period", example: "10s", units: TIME, usual: "s" };

/// Reads `number unit` into base units, exactly (no rounding).
fn read(text: &str, kind: &Kind) -> Result<u64, BadValue> {
    refuse_ambiguous_number(text)?;
    let noun = kind.noun;
    let names: Vec<&str> = kind.units.iter().map(|(name, _)| *name).collect();
    let names = names.join(", ");
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let valid = number.split_once('.').map_or(!number.is_empty(), |(whole, part)| {
        !whole.is_empty() && !part.is_empty() && !part.contains('.')
    });
    if !valid {
        return Err(BadValue::new(
            format!("`{text}` is not a {noun}"),
            format!("write a number and a unit of {names}, such as `{}`", kind.example),
        ));
    }
    if unit.is_empty() {
        return Err(BadValue::new(
            format!("{noun} `{text}` has no unit"),
            format!("write {number}{}, not {text} (units: {names})", kind.usual),
        ));
    }
    let Some((_, factor)) = kind.units.iter().find(|(name, _)| *name == unit) else {
        return Err(unknown_unit(text, number, unit, kind, &names));
    };
    scaled(number, *factor).ok_or_else(|| {
        BadValue::new(
            format!("{noun} `{text}` is too large or too finely divided"),
            format!("write it in whole {} or a larger unit", if kind.units == TIME { "us" } else { "bit/s" }),
        )
    })
}

/// The error for a unit that is not one, with the nearest real unit by letter case or by a common suffix.
fn unknown_unit(text: &str, number: &str, unit: &str, kind: &Kind, names: &str) -> BadValue {
    let stripped =
        unit.trim_start().trim_end_matches("bps").trim_end_matches("bit/s").trim_end_matches("bit");
    let near = kind.units.iter().find(|(name, _)| name.eq_ignore_ascii_case(stripped));
    let hint = match near {
        Some((name, _)) => format!("write `{number}{name}` (units: {names})"),
        None => format!("units are {names}, such as `{}`", kind.example),
    };
    BadValue::new(format!("{} `{text}` has the unknown unit `{unit}`", kind.noun), hint)
}

/// `number * factor` where `number` is a decimal with an optional fraction; `None` if not a whole `u64`.
fn scaled(number: &str, factor: u64) -> Option<u64> {
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let whole = whole.parse::<u64>().ok()?.checked_mul(factor)?;
    let part = part.trim_end_matches('0');
    if part.is_empty() {
        return Some(whole);
    }
    let denominator = 10_u64.checked_pow(u32::try_from(part.len()).ok()?)?;
    let scaled = part.parse::<u64>().ok()?.checked_mul(factor)?;
    scaled.is_multiple_of(denominator).then(|| whole.checked_add(scaled / denominator))?
}

/// Prints base units in the largest unit that gives at most three decimals.
fn print(value: u64, units: Units, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (name, factor) in units {
        if value >= *factor && value.is_multiple_of((*factor / 1000).max(1)) {
            let thousandths = u128::from(value) * 1000 / u128::from(*factor);
            let (whole, part) = (thousandths / 1000, thousandths % 1000);
            let fraction = format!(".{part:03}");
            let fraction = fraction.trim_end_matches('0').trim_end_matches('.');
            return f.pad(&format!("{whole}{fraction}{name}"));
        }
    }
    // Nothing fits: the smallest unit, with as many decimals as it takes.
    let (name, factor) = units.last().copied().unwrap_or(("", 1));
    let (whole, part) = (value / factor, value % factor);
    let width = factor.to_string().len() - 1;
    let fraction = if part == 0 { String::new() } else { format!(".{part:0width$}") };
    f.pad(&format!("{whole}{}{name}", fraction.trim_end_matches('0')))
}

macro_rules! quantity {
    ($name:ident, $kind:ident, $pattern:literal, $about:literal) => {
        impl FromStr for $name {
            type Err = BadValue;

            fn from_str(text: &str) -> Result<Self, BadValue> {
                read(text, &$kind).map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                print(self.0, $kind.units, f)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Cow::<'de, str>::deserialize(deserializer)?.parse().map_err(D::Error::custom)
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "pattern": $pattern, "description": $about })
            }
        }
    };
}

quantity!(
    Capacity,
    CAPACITY_KIND,
    "^(0|[1-9][0-9]*)(\\.[0-9]+)?[TGMk]$",
    "A capacity or rate with its unit: `400G`, `2.5T`, `800M`, `10k` (bits per second)."
);
quantity!(
    Rtt,
    RTT_KIND,
    "^(0|[1-9][0-9]*)(\\.[0-9]+)?(s|ms|us)$",
    "A round-trip time with its unit: `24ms`, `800us`, `1.5ms`, `1s`."
);
quantity!(
    Period,
    PERIOD_KIND,
    "^(0|[1-9][0-9]*)(\\.[0-9]+)?(s|ms|us)$",
    "A span of time with its unit: `10s`, `500ms`."
);

quantity!(Share, SHARE_KIND, "^(0|[1-9][0-9]*)(\\.[0-9]+)?%$", "A part of a whole: `5%`, `0.1%`.");

impl Rtt {
    /// Half of it: the delay of one direction.
    pub fn one_way(self) -> Duration {
        Duration::from_micros(self.0) / 2
    }
}

impl From<Period> for Duration {
    fn from(period: Period) -> Self {
        Self::from_micros(period.0)
    }
}

impl TryFrom<Duration> for Period {
    type Error = std::num::TryFromIntError;

    fn try_from(duration: Duration) -> Result<Self, Self::Error> {
        u64::try_from(duration.as_micros()).map(Self)
    }
}

/// Serde of a `Duration` as a string with a unit, `5ms`; for `#[serde(with)]`.
pub(crate) mod duration {
    use super::{Deserialize, Deserializer, Duration, Period, Serialize, Serializer};

    pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        Period::try_from(*duration).map_err(serde::ser::Error::custom)?.serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        Period::deserialize(deserializer).map(Duration::from)
    }
}

/// As `duration`, for one that may be missing.
pub(crate) mod optional_duration {
    use super::{Deserialize, Deserializer, Duration, Period, Serialize, Serializer};

    // Serde fixes the signature.
    #[allow(clippy::ref_option)]
    pub fn serialize<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        let period = duration.map(Period::try_from).transpose().map_err(serde::ser::Error::custom)?;
        period.serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        Option::<Period>::deserialize(deserializer).map(|period| period.map(Duration::from))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_what_files_say() {
        let capacity = |text: &str| text.parse::<Capacity>().unwrap().0;
        assert_eq!(capacity("400G"), 400_000_000_000);
        assert_eq!(capacity("2.5T"), 2_500_000_000_000);
        assert_eq!(capacity("800M"), 800_000_000);
        assert_eq!(capacity("10k"), 10_000);
        let rtt = |text: &str| text.parse::<Rtt>().unwrap().0;
        assert_eq!(rtt("24ms"), 24_000);
        assert_eq!(rtt("800us"), 800);
        assert_eq!(rtt("1.5ms"), 1_500);
        assert_eq!(rtt("1s"), 1_000_000);
    }

    #[test]
    fn says_what_to_write_instead() {
        let hint = |text: &str| text.parse::<Capacity>().unwrap_err().hint;
        assert_eq!(hint("400"), "write 400G, not 400 (units: T, G, M, k)");
        assert_eq!(hint("400g"), "write `400G` (units: T, G, M, k)");
        assert_eq!(hint("400Gbps"), "write `400G` (units: T, G, M, k)");
        assert_eq!(hint("400 G"), "write `400G` (units: T, G, M, k)");
        assert_eq!("24".parse::<Rtt>().unwrap_err().hint, "write 24ms, not 24 (units: s, ms, us)");
        for bad in
            ["", "G", ".5G", "5.G", "1.2.3G", "-4G", "010G", "1:30", "0.5us", "99999999999999999999T", "1e3G"]
        {
            assert!(bad.parse::<Capacity>().is_err() && bad.parse::<Rtt>().is_err(), "{bad}");
        }
    }

    #[test]
    fn prints_the_shortest_exact_form() {
        for text in ["400G", "2.5T", "800M", "10k", "1.234k", "0.001k", "1234.567G", "0k"] {
            let value: Capacity = text.parse().unwrap();
            assert_eq!(value.to_string().parse::<Capacity>().unwrap(), value);
        }
        assert_eq!(Capacity(20_000_000).to_string(), "20M");
        assert_eq!(Capacity(1_500).to_string(), "1.5k");
        assert_eq!(Capacity(12).to_string(), "0.012k");
        assert_eq!(Rtt(1_500).to_string(), "1.5ms");
        assert_eq!(Rtt(0).to_string(), "0us");
        assert_eq!(format!("{:>6}", Rtt(24_000)), "  24ms");
    }

    proptest! {
        #[test]
        fn display_reads_back(value: u64) {
            prop_assert_eq!(Capacity(value).to_string().parse::<Capacity>(), Ok(Capacity(value)));
            prop_assert_eq!(Rtt(value).to_string().parse::<Rtt>(), Ok(Rtt(value)));
            let json = serde_json::to_string(&Period(value)).unwrap();
            prop_assert_eq!(serde_json::from_str::<Period>(&json).unwrap(), Period(value));
        }

        #[test]
        fn arbitrary_text_never_panics(text: String) {
            let _ = text.parse::<Capacity>();
            let _ = text.parse::<Rtt>();
        }

        #[test]
        fn near_misses_never_panic(text in "[0-9._:xXeE+-]{0,24}[a-zA-Z ]{0,4}") {
            let _ = text.parse::<Capacity>();
            let _ = text.parse::<Period>();
        }
    }
}
