//! Reading labs: from a file, from text, and the ready-made ones that the program carries.

use std::path::Path;

use crate::check::check;
use crate::file::LabFile;
use crate::generate::generate;
use crate::lab::Lab;
use crate::near::suggestion;
use crate::parse;
use crate::problem::{Errors, Problem};

/// Name of the lab that is used when none is named.
pub const DEFAULT: &str = "ebb-small";

const BUILTINS: [(&str, &str); 2] = [
    ("ebb-6x4", include_str!("../labs/ebb-6x4.yaml")),
    ("ebb-small", include_str!("../labs/ebb-small.yaml")),
];

/// The text of a ready-made lab.
pub fn builtin(name: &str) -> Option<&'static str> {
    BUILTINS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// Names and texts of the ready-made labs, by name.
pub fn builtins() -> impl Iterator<Item = (&'static str, &'static str)> {
    BUILTINS.into_iter()
}

/// The text of a lab named on a command line: a ready-made lab by name, anything else as a path. With it, the name
/// of the file for messages.
pub fn source(lab: &str) -> Result<(String, String), Errors> {
    if let Some(text) = builtin(lab) {
        return Ok((text.to_owned(), format!("{lab}.yaml")));
    }
    let failed = |error: &std::io::Error| {
        let names = BUILTINS.map(|(name, _)| name);
        let hint = match error.kind() {
            std::io::ErrorKind::NotFound if !lab.contains(['/', '.']) => {
                format!("no ready-made lab has this name; {}", suggestion(lab, names))
            }
            std::io::ErrorKind::NotFound => {
                format!("write a path, or a ready-made lab: {}", names.join(", "))
            }
            _ => "a lab file is readable UTF-8 text".to_owned(),
        };
        whole_file(lab, format!("cannot read the lab file: {error}"), hint)
    };
    let text = std::fs::read_to_string(lab).map_err(|error| failed(&error))?;
    Ok((text, lab.to_owned()))
}

/// Reads and resolves a lab named on a command line, as `source` finds it.
pub fn load(lab: &str) -> Result<(Lab, Vec<Problem>), Errors> {
    let (text, file) = source(lab)?;
    Lab::from_str(&text, &file)
}

fn whole_file(file: &str, message: String, hint: String) -> Errors {
    Errors(vec![Problem { file: file.to_owned(), line: 0, column: 0, message, hint: Some(hint) }])
}

impl Lab {
    /// Reads and resolves a lab file. Gives the lab with warnings, or every error found.
    pub fn from_file(path: &Path) -> Result<(Self, Vec<Problem>), Errors> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| {
            let hint = "give the path of a readable YAML file".to_owned();
            whole_file(&file, format!("cannot read the lab file: {error}"), hint)
        })?;
        Self::from_str(&text, &file)
    }

    /// Reads and resolves a lab from text; `file` is its name in messages.
    pub fn from_str(text: &str, file: &str) -> Result<(Self, Vec<Problem>), Errors> {
        let parsed: parse::At<LabFile> = parse::read(text, file).map_err(|problem| Errors(vec![problem]))?;
        let (spec, warnings) = check(&parsed, file)?;
        Ok((generate(&spec), warnings))
    }
}
