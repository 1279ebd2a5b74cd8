//! Scalars that only scenario files have.

use std::borrow::Cow;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use topologies::scalar::BadValue;
use topologies::{inline_schema, words};

/// Any text that is not empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnyText(pub String);

impl FromStr for AnyText {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let text = text.trim();
        if text.is_empty() {
            return Err(BadValue::new("it is empty", "write something, or remove the key"));
        }
        Ok(Self(text.to_owned()))
    }
}

inline_schema!(AnyText, { "type": "string", "minLength": 1 });

/// Name of traffic or of something picked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(pub String);

impl FromStr for Name {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let good = text.len() <= 32
            && text.starts_with(|c: char| c.is_ascii_lowercase())
            && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_');
        if good {
            return Ok(Self(text.to_owned()));
        }
        Err(BadValue::new(
            format!("`{text}` is not a name"),
            "write a letter, then up to 31 of a-z, 0-9, `-`, `_`",
        ))
    }
}

inline_schema!(Name, { "type": "string", "pattern": "^[a-z][a-z0-9_-]{0,31}$" });

/// One or more, with commas between them: `gold, silver`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List<T>(pub Vec<T>);

impl<T: FromStr<Err = BadValue>> FromStr for List<T> {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        text.split(',').map(|one| one.trim().parse()).collect::<Result<_, _>>().map(Self)
    }
}

impl<T> JsonSchema for List<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "List".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "integer"] })
    }
}

words!(
    /// A class of traffic.
    ClassWord(&'static str), "class", { "icp" => "icp", "gold" => "gold", "silver" => "silver", "bronze" => "bronze" }
);
words!(
    /// What happens to connections.
    RpcWord(&'static str), "fault of connections", { "cut" => "cut", "refuse" => "refuse", "delay" => "delay", "restore" => "restore" }
);
words!(
    /// What is deleted.
    DeleteWord(&'static str), "thing to delete", { "route" => "route", "group" => "group", "queue" => "queue" }
);
