//! YAML to types, with positions. The only module that knows which YAML library is used.
//!
//! The library stops at the first error of shape (a missing or unknown field, a list where a value belongs), and
//! that one is reported. So that everything else can be reported together, scalars arrive here as text with their
//! position (`Text`) and are read by `check`.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::near::suggestion;
use crate::problem::Problem;
use crate::scalar::BadValue;

/// Where a value stands in its file; both from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Line.
    pub line: u64,
    /// Column in characters.
    pub column: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// A value and the place where it begins.
#[derive(Clone, Debug)]
pub struct At<T> {
    /// The value.
    pub value: T,
    /// Where it is used; for an alias, the alias and not the anchor.
    pub place: Place,
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for At<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = serde_yaml::Spanned::<T>::deserialize(deserializer)?;
        let at = spanned.referenced;
        Ok(Self { value: spanned.value, place: Place { line: at.line(), column: at.column() } })
    }
}

impl<T: JsonSchema> JsonSchema for At<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

/// A scalar that will be read as a `T`: its text as it stands in the file, quotes removed.
#[derive(Clone, Debug)]
pub struct Text<T> {
    /// The text.
    pub raw: String,
    /// Where it stands.
    pub place: Place,
    read_as: PhantomData<fn() -> T>,
}

impl<T: FromStr<Err = BadValue>> Text<T> {
    /// The value, or why the text is none.
    pub fn read(&self) -> Result<T, BadValue> {
        self.raw.parse()
    }
}

impl<'de, T> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let At { value, place } = At::<String>::deserialize(deserializer)?;
        Ok(Self { raw: value, place, read_as: PhantomData })
    }
}

impl<T: JsonSchema> JsonSchema for Text<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

/// A field that may be left out, but not left empty: unlike with `Option`, a key without a value is an error.
#[derive(Clone, Debug)]
pub struct Given<T>(pub Option<T>);

impl<T> Default for Given<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Given<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(|value| Self(Some(value)))
    }
}

impl<T: JsonSchema> JsonSchema for Given<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

/// A type whose values can be keys of a mapping.
pub trait Key {
    /// Regular expression of the key, for the JSON Schema.
    const PATTERN: &'static str;
}

/// A mapping with free keys, in file order.
#[derive(Clone, Debug)]
pub struct Entries<K, V>(pub Vec<(Text<K>, V)>);

impl<K, V> Default for Entries<K, V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, K, V: Deserialize<'de>> Deserialize<'de> for Entries<K, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect<K, V>(PhantomData<fn() -> (K, V)>);

        impl<'de, K, V: Deserialize<'de>> Visitor<'de> for Collect<K, V> {
            type Value = Entries<K, V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a mapping")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }

        deserializer.deserialize_map(Collect(PhantomData))
    }
}

impl<K: Key, V: JsonSchema> JsonSchema for Entries<K, V> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("MapOf{}", V::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let value = generator.subschema_for::<V>();
        json_schema!({
            "type": "object",
            "propertyNames": { "pattern": K::PATTERN },
            "additionalProperties": value,
        })
    }
}

/// Reads one YAML document. `file` is only for messages.
pub fn read<T: DeserializeOwned>(text: &str, file: &str) -> Result<T, Problem> {
    let options = serde_yaml::options! {
        // The library's default of 250,000 nodes refuses generated labs of some ten thousand links.
        budget: serde_yaml::budget! {
            max_nodes: 20_000_000,
            max_events: 60_000_000,
        },
        // `key:` without a value must reach `check` as an empty text, to be refused with the rest.
        null_as_string: true,
        strict_booleans: true,
        reject_unsupported_tags: true,
        with_snippet: false,
    };
    serde_yaml::from_str_with_options(text, options).map_err(|error| problem(&error, file))
}

/// The library's error in our words.
fn problem(error: &serde_yaml::Error, file: &str) -> Problem {
    let error = error.without_snippet();
    let (line, column) = error.location().map_or((1, 1), |at| (at.line().max(1), at.column().max(1)));
    let (message, hint) = describe(error);
    Problem { file: file.to_owned(), line, column, message, hint: Some(hint) }
}

fn describe(error: &serde_yaml::Error) -> (String, String) {
    use serde_yaml::Error as E;
    match error {
        E::AliasError { error, .. } => {
            let (message, hint) = describe(error);
            (format!("{message} (through an alias)"), hint)
        }
        E::SerdeUnknownField { field, expected, .. } => {
            (format!("unknown field `{field}`"), suggestion(field, expected.iter().copied()))
        }
        E::SerdeMissingField { field, .. } => {
            (format!("field `{field}` is missing"), format!("add `{field}: ...` here"))
        }
        E::SerdeUnknownVariant { variant, expected, .. } => {
            (format!("unknown value `{variant}`"), suggestion(variant, expected.iter().copied()))
        }
        E::DuplicateMappingKey { key, .. } => (
            key.as_ref().map_or_else(|| "duplicate key".to_owned(), |key| format!("duplicate key `{key}`")),
            "an earlier entry of this mapping has the same key; keep one of them".to_owned(),
        ),
        E::Unexpected { expected, .. } => (format!("expected {}", shape(expected)), shape_hint(expected)),
        E::SerdeInvalidType { unexpected, expected, .. } => {
            (format!("expected {}, found {unexpected}", shape(expected)), shape_hint(expected))
        }
        E::MultipleDocuments { .. } => (
            "a second document begins here".to_owned(),
            "a lab file is one document; remove the `---`".to_owned(),
        ),
        E::Eof { .. } => {
            ("the file is empty or ends too early".to_owned(), "see `testbed schema`".to_owned())
        }
        E::UnknownAnchor { .. } => (
            "alias of an unknown anchor".to_owned(),
            "define the anchor (`&name`) before its alias".to_owned(),
        ),
        E::UnsupportedTag { .. } => {
            ("tags mean nothing in a lab file".to_owned(), "remove the `!tag`".to_owned())
        }
        E::Budget { .. } | E::AliasReplayLimitExceeded { .. } | E::AliasReplayStackDepthExceeded { .. } => (
            "the file is too large, too deep, or expands too much through aliases".to_owned(),
            "write fewer aliases or split the lab".to_owned(),
        ),
        other => {
            let text = other.render_with_formatter(&serde_yaml::UserMessageFormatter);
            // The library appends the place in words; ours stands in front.
            let text = text.split(" at line ").next().unwrap_or_default().trim().to_owned();
            (
                format!("not valid YAML: {text}"),
                "check indentation, quotes and brackets just before this".to_owned(),
            )
        }
    }
}

/// A library's word for a shape in the words of a file's author.
fn shape(expected: &str) -> &str {
    match expected {
        "string scalar" | "a string" | "string" | "scalar" => "a single value",
        "mapping start" | "a mapping" | "map" | "mapping" => "a mapping (`key: value`)",
        "sequence start" | "a sequence" | "sequence" => "a list",
        other if other.starts_with("struct ") => "a mapping (`key: value`)",
        other => other,
    }
}

fn shape_hint(expected: &str) -> String {
    match shape(expected) {
        "a single value" => "write one value here, not a list or a mapping",
        "a list" => "begin each entry with `- `, or write `[one, two]`",
        _ => "write `key: value` lines here, indented, or `{key: value}`",
    }
    .to_owned()
}
