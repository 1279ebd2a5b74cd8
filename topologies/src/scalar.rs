//! Scalars other than quantities: whole numbers, switches, ratios, and why a text is not one of them.
//!
//! YAML readers disagree about plain scalars: `010` is 8, 10 or text, `1:30` is 90 or text, `no` is false or text,
//! depending on the reader. A lab file must mean the same to all of them, so every such spelling is refused
//! here, on the text as it stands in the file.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

/// Why a text is not a value of the wanted type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadValue {
    /// What is wrong, quoting the text.
    pub message: String,
    /// What to write instead.
    pub hint: String,
}

impl BadValue {
    /// A new one.
    pub fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into() }
    }
}

impl fmt::Display for BadValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.hint)
    }
}

impl std::error::Error for BadValue {}

/// Refuses spellings that YAML readers disagree about, where a number is wanted.
pub(crate) fn refuse_ambiguous_number(text: &str) -> Result<(), BadValue> {
    if let Some(seconds) = base_60(text) {
        return Err(BadValue::new(
            format!("`{text}` is a base-60 number to some YAML readers ({seconds})"),
            "write a plain number, with a unit where one is needed (`90s`, not `1:30`)",
        ));
    }
    if let Some(rest) = text.strip_prefix('0')
        && rest.starts_with(|c: char| c.is_ascii_digit())
    {
        let plain = text.trim_start_matches('0');
        let plain = if plain.starts_with(|c: char| c.is_ascii_digit()) { plain } else { "0" };
        return Err(BadValue::new(
            format!("`{text}` looks octal: some YAML readers take a leading zero as base 8"),
            format!("drop the leading zero: `{plain}`"),
        ));
    }
    let lower = text.to_ascii_lowercase();
    if ["0x", "0o", "0b"].iter().any(|prefix| lower.starts_with(prefix)) {
        return Err(BadValue::new(format!("`{text}` is not decimal"), "write a decimal number"));
    }
    if text.contains('_') && text.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(BadValue::new(
            format!("`{text}` has an underscore, which only some YAML readers drop"),
            format!("write `{}`", text.replace('_', "")),
        ));
    }
    Ok(())
}

/// The value of a YAML 1.1 base-60 number (`1:30` is 90), if the text is one.
fn base_60(text: &str) -> Option<u64> {
    let parts: Vec<&str> = text.split(':').collect();
    if parts.len() < 2 || parts.iter().any(|p| p.is_empty() || p.len() > 6) {
        return None;
    }
    parts.iter().try_fold(0_u64, |sum, part| {
        part.bytes().all(|b| b.is_ascii_digit()).then_some(())?;
        sum.checked_mul(60)?.checked_add(part.parse().ok()?)
    })
}

/// Whether a plain scalar is a boolean or null to some YAML reader (`no`, `on`, `y`, `null`).
pub(crate) fn is_yaml_word(text: &str) -> bool {
    const WORDS: [&str; 11] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null", "~", ""];
    WORDS.contains(&text.to_ascii_lowercase().as_str())
}

/// A whole number from `MIN` to `MAX`, written in decimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Whole<const MIN: u32, const MAX: u32>(u32);

impl<const MIN: u32, const MAX: u32> Whole<MIN, MAX> {
    /// The number.
    pub fn get(self) -> u32 {
        self.0
    }
}

impl<const MIN: u32, const MAX: u32> FromStr for Whole<MIN, MAX> {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        refuse_ambiguous_number(text)?;
        let range = || format!("write a whole number from {MIN} to {MAX}");
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let negative =
            text.strip_prefix('-').is_some_and(|t| !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit()));
        if !digits && !negative {
            return Err(BadValue::new(format!("`{text}` is not a whole number"), range()));
        }
        match text.parse::<u32>() {
            Ok(value) if (MIN..=MAX).contains(&value) => Ok(Self(value)),
            _ => Err(BadValue::new(format!("{text} is out of range"), range())),
        }
    }
}

impl<const MIN: u32, const MAX: u32> JsonSchema for Whole<MIN, MAX> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("Whole{MIN}To{MAX}").into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": MIN, "maximum": MAX })
    }
}

/// `true` or `false`, and no other spelling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch(pub bool);

impl FromStr for Switch {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        match text {
            "true" => Ok(Self(true)),
            "false" => Ok(Self(false)),
            _ if is_yaml_word(text) => Err(BadValue::new(
                format!("`{text}` is a boolean to some YAML readers and text to others"),
                "write `true` or `false`",
            )),
            _ => Err(BadValue::new(format!("`{text}` is not a boolean"), "write `true` or `false`")),
        }
    }
}

impl JsonSchema for Switch {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Switch".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "boolean" })
    }
}

/// A scale `1/N`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ratio {
    /// The `N` of `1/N`, at least 1.
    pub divisor: u64,
}

impl FromStr for Ratio {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        const HINT: &str = "write `1/20000`: 400G is then emulated as 20M";
        let bad = || BadValue::new(format!("`{text}` is not a scale"), HINT);
        let rest = text.strip_prefix("1/").ok_or_else(bad)?;
        refuse_ambiguous_number(rest)?;
        if !rest.bytes().all(|b| b.is_ascii_digit()) {
            return Err(bad());
        }
        match rest.parse::<u64>() {
            Ok(divisor) if (1..=1_000_000_000).contains(&divisor) => Ok(Self { divisor }),
            Ok(_) => {
                Err(BadValue::new(format!("scale `{text}` is out of range"), "from `1/1` to `1/1000000000`"))
            }
            Err(_) => Err(bad()),
        }
    }
}

impl JsonSchema for Ratio {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Ratio".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^1/[1-9][0-9]{0,9}$" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_decimal_and_in_range() {
        assert_eq!("8".parse::<Whole<1, 8>>().unwrap().get(), 8);
        for bad in
            ["9", "0", "-1", "010", "0x8", "1:30", "1_0", "1.0", "1e0", "", "eight", "99999999999", "+3"]
        {
            assert!(bad.parse::<Whole<1, 8>>().is_err(), "{bad}");
        }
        assert_eq!("010".parse::<Whole<1, 99>>().unwrap_err().hint, "drop the leading zero: `10`");
        assert_eq!("0".parse::<Whole<0, 8>>().unwrap().get(), 0);
    }

    #[test]
    fn base_60_is_recognised() {
        assert_eq!(base_60("1:30"), Some(90));
        assert_eq!(base_60("1:00:00"), Some(3600));
        assert_eq!(base_60("a:b"), None);
        assert_eq!(base_60("1:"), None);
        assert_eq!(base_60("99999999:1"), None);
    }

    #[test]
    fn switches_and_ratios() {
        assert_eq!("true".parse(), Ok(Switch(true)));
        assert!("yes".parse::<Switch>().is_err());
        assert_eq!("1/20000".parse(), Ok(Ratio { divisor: 20_000 }));
        for bad in ["20000", "1/0", "2/3", "1/", "1/x", "0.5", "1/020", "1/99999999999999999999999"] {
            assert!(bad.parse::<Ratio>().is_err(), "{bad}");
        }
    }
}
