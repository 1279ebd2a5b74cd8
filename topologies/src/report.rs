//! Findings in a file, collected while it is checked, so that an author sees all of them at once.

use std::str::FromStr;

use crate::parse::{Given, Place, Text};
use crate::problem::{Errors, Problem};
use crate::scalar::{BadValue, Whole};

/// Findings so far.
#[derive(Debug)]
pub struct Report<'a> {
    file: &'a str,
    errors: Vec<Problem>,
    warnings: Vec<Problem>,
}

impl<'a> Report<'a> {
    /// No findings yet; `file` is its name in messages.
    pub fn new(file: &'a str) -> Self {
        Self { file, errors: Vec::new(), warnings: Vec::new() }
    }

    /// Whether no error was found so far.
    pub fn is_clean(&self) -> bool {
        self.errors.is_empty()
    }

    /// The warnings, or every error; both in file order, each once.
    pub fn finish(self) -> Result<Vec<Problem>, Errors> {
        let in_order = |mut found: Vec<Problem>| {
            found.sort();
            found.dedup();
            found
        };
        if self.errors.is_empty() { Ok(in_order(self.warnings)) } else { Err(Errors(in_order(self.errors))) }
    }

    fn problem(&self, place: Place, message: String, hint: String) -> Problem {
        Problem {
            file: self.file.to_owned(),
            line: place.line,
            column: place.column,
            message,
            hint: Some(hint),
        }
    }

    /// Adds an error.
    pub fn error(&mut self, place: Place, message: impl Into<String>, hint: impl Into<String>) {
        let problem = self.problem(place, message.into(), hint.into());
        self.errors.push(problem);
    }

    /// Adds a warning.
    pub fn warn(&mut self, place: Place, message: impl Into<String>, hint: impl Into<String>) {
        let problem = self.problem(place, message.into(), hint.into());
        self.warnings.push(problem);
    }

    /// Reads a scalar; on failure reports it and gives `None`.
    pub fn read<T: FromStr<Err = BadValue>>(&mut self, text: &Text<T>, what: &str) -> Option<T> {
        match text.read() {
            Ok(value) => Some(value),
            Err(_) if text.raw.is_empty() => {
                self.error(text.place, format!("`{what}` has no value"), "write a value, or remove the key");
                None
            }
            Err(bad) => {
                // Names say themselves what they are; numbers and words need the field.
                let message =
                    if bad.message.contains(what) { bad.message } else { format!("{what}: {}", bad.message) };
                self.error(text.place, message, bad.hint);
                None
            }
        }
    }

    /// A required field of the mapping at `place`; a finding if it is missing.
    pub fn need<'f, T>(&mut self, field: &'f Given<T>, place: Place, name: &str) -> Option<&'f T> {
        if field.0.is_none() {
            self.error(
                place,
                format!("field `{name}` is missing"),
                format!("add `{name}: ...` to this mapping"),
            );
        }
        field.0.as_ref()
    }

    /// Reads a required scalar of the mapping at `place`.
    pub fn read_needed<T: FromStr<Err = BadValue>>(
        &mut self,
        field: &Given<Text<T>>,
        place: Place,
        name: &str,
        what: &str,
    ) -> Option<T> {
        self.need(field, place, name).and_then(|text| self.read(text, what))
    }

    /// Reads an optional scalar; absent or unreadable is `None`.
    pub fn read_given<T: FromStr<Err = BadValue>>(&mut self, text: &Given<Text<T>>, what: &str) -> Option<T> {
        text.0.as_ref().and_then(|text| self.read(text, what))
    }

    /// Reads an optional whole number, with a default.
    pub fn whole<const MIN: u32, const MAX: u32>(
        &mut self,
        text: &Given<Text<Whole<MIN, MAX>>>,
        what: &str,
        default: u32,
    ) -> u32 {
        self.read_given(text, what).map_or(default, Whole::get)
    }
}
