//! Values of tests: numbers with units, words, and how they compare with what a document has.

use serde_json::Value as Json;

use super::Operator;

/// What a field is compared with.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A number; times in milliseconds, shares in percent.
    Number(f64),
    /// A word, `true`, `false` and `none` among them.
    Word(String),
}

impl Value {
    /// Reads one; the text of a number with a unit that is none says what units there are.
    pub fn parse(text: &str) -> Result<Self, String> {
        let split = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '-').unwrap_or(text.len());
        let (number, unit) = text.split_at(split);
        let Ok(number) = number.parse::<f64>() else { return Ok(Self::Word(text.to_owned())) };
        match unit {
            "" | "ms" | "%" => Ok(Self::Number(number)),
            "s" | "k" => Ok(Self::Number(number * 1e3)),
            "us" => Ok(Self::Number(number / 1e3)),
            "M" => Ok(Self::Number(number * 1e6)),
            "G" => Ok(Self::Number(number * 1e9)),
            // 400G is also how `status` prints a capacity; a dotted or dashed word begins with a digit, too
            _ if unit.chars().count() > 2 || unit.starts_with(['.', '-', ':', '_']) => {
                Ok(Self::Word(text.to_owned()))
            }
            _ => Err(format!("`{unit}` is no unit; units are us, ms, s, %, k, M, G")),
        }
    }

    /// The number, if it is one.
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Word(_) => None,
        }
    }
}

/// A field of a document by the words of its path; null if it is not there.
pub fn field(document: &Json, path: &[String]) -> Json {
    let mut at = document;
    for word in path {
        let next = match at {
            Json::Array(list) => word.parse::<usize>().ok().and_then(|i| list.get(i)),
            other => other.get(word),
        };
        let Some(next) = next else { return Json::Null };
        at = next;
    }
    at.clone()
}

/// Whether what was observed compares so.
pub fn compare(observed: &Json, operator: Operator, value: &Value) -> bool {
    match operator {
        Operator::Contains => contains(observed, value),
        Operator::Equal => equal(observed, value),
        Operator::Unequal => !equal(observed, value),
        _ => {
            let (Some(a), Some(b)) = (observed.as_f64(), value.number()) else { return false };
            match operator {
                Operator::Less => a < b,
                Operator::AtMost => a <= b,
                Operator::More => a > b,
                _ => a >= b,
            }
        }
    }
}

fn equal(observed: &Json, value: &Value) -> bool {
    match (observed, value) {
        // numbers of documents are whole or have few decimals: one that is written the same is the same
        (Json::Number(a), Value::Number(b)) => a.as_f64().is_some_and(|a| (a - b).abs() < 1e-9),
        (Json::Bool(a), Value::Word(b)) => a.to_string() == *b,
        (Json::Null, Value::Word(b)) => b == "none",
        (Json::String(a), Value::Word(b)) => a == b,
        // a document's `400G` or `24ms` is text; what was written was read as a number
        (Json::String(a), Value::Number(b)) => {
            Value::parse(a).ok().and_then(|a| a.number()).is_some_and(|a| (a - b).abs() < 1e-9)
        }
        (Json::Array(list), Value::Word(b)) => list.is_empty() && b == "none",
        _ => false,
    }
}

fn contains(observed: &Json, value: &Value) -> bool {
    let Value::Word(word) = value else { return false };
    match observed {
        Json::String(text) => text.contains(word.as_str()),
        Json::Array(list) => {
            list.iter().any(|one| one.as_str().is_some_and(|one| one.contains(word.as_str())))
        }
        _ => false,
    }
}

/// A value for people.
pub fn show(value: &Json) -> String {
    match value {
        Json::Null => "none".to_owned(),
        Json::String(text) => text.clone(),
        Json::Number(n) => n.as_f64().map_or_else(|| n.to_string(), number),
        Json::Array(list) if list.is_empty() => "none".to_owned(),
        Json::Array(list) => list.iter().map(show).collect::<Vec<_>>().join("/"),
        other => other.to_string(),
    }
}

/// A number with at most three decimals.
pub fn number(number: f64) -> String {
    let text = format!("{number:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
