//! Names that people choose: labs, sites, shared-risk groups, and the node names made from them.

use std::fmt;
use std::str::FromStr;

use crate::inline_schema;
use crate::parse::Key;
use crate::scalar::{BadValue, Whole, is_yaml_word};

/// Longest name of an interface in the kernel, in bytes (`IFNAMSIZ` less the final zero).
pub const MAX_NAME: usize = 15;

/// Reads a name of lower-case letters, digits and single hyphens, beginning with a letter.
fn read(text: &str, noun: &str, longest: usize) -> Result<String, BadValue> {
    if is_yaml_word(text) && !text.is_empty() {
        return Err(BadValue::new(
            format!("{noun} `{text}` is a boolean or null to some YAML readers"),
            "choose another name; quoting would help only here, not on the command line",
        ));
    }
    if text.is_empty() {
        return Err(BadValue::new(format!("the {noun} is empty"), format!("write a {noun}, such as `prn`")));
    }
    if text.len() > longest {
        let shown: String = text.chars().take(40).collect();
        return Err(BadValue::new(
            format!("{noun} `{shown}` has {} characters", text.chars().count()),
            format!("at most {longest}"),
        ));
    }
    let good = text.starts_with(|c: char| c.is_ascii_lowercase())
        && !text.ends_with('-')
        && !text.contains("--")
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if good {
        return Ok(text.to_owned());
    }
    Err(BadValue::new(
        format!("{noun} `{text}` is not a valid name"),
        "use lower-case letters, digits and single hyphens between them, beginning with a letter",
    ))
}

macro_rules! name {
    ($(#[$about:meta])* $type:ident, $noun:literal, $longest:literal) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $type(pub String);

        impl FromStr for $type {
            type Err = BadValue;

            fn from_str(text: &str) -> Result<Self, BadValue> {
                read(text, $noun, $longest).map(Self)
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl Key for $type {
            const PATTERN: &'static str = "^[a-z][a-z0-9]*(-[a-z0-9]+)*$";
        }

        inline_schema!($type, { "type": "string", "pattern": Self::PATTERN, "maxLength": $longest });
    };
}

name!(
    /// Name of a lab.
    LabName,
    "lab name",
    32
);
name!(
    /// Name of a site. Its practical limit is lower, because node and interface names are made from it.
    SiteName,
    "site name",
    64
);
name!(
    /// Name of a shared-risk link group.
    SrlgName,
    "SRLG name",
    32
);

/// Path of a program on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramPath(pub String);

impl FromStr for ProgramPath {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        if text.starts_with('/') && !text.ends_with('/') && !text.contains('\0') {
            return Ok(Self(text.to_owned()));
        }
        let hint = "write the program's whole path, from `/` on: it is started inside the lab";
        Err(BadValue::new(format!("`{text}` is not the absolute path of a program"), hint))
    }
}

inline_schema!(ProgramPath, { "type": "string", "pattern": "^/.*[^/]$" });

/// Name of a host, `h1.prn`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostName(pub String);

impl FromStr for HostName {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let host = text.strip_prefix('h').and_then(|rest| rest.split_once('.'));
        let valid = host.is_some_and(|(number, site)| {
            number.parse::<Whole<1, 99>>().is_ok() && site.parse::<SiteName>().is_ok()
        });
        if valid {
            return Ok(Self(text.to_owned()));
        }
        Err(BadValue::new(format!("`{text}` is not a host name"), "write a host such as `h1.prn`"))
    }
}

inline_schema!(HostName, { "type": "string", "pattern": "^h[1-9][0-9]?\\.[a-z][a-z0-9-]*$" });

impl<const MIN: u32, const MAX: u32> Key for Whole<MIN, MAX> {
    const PATTERN: &'static str = "^[1-9][0-9]*$";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for good in ["prn", "a1", "new-york-2"] {
            assert!(good.parse::<SiteName>().is_ok(), "{good}");
        }
        for bad in
            ["", "1a", "Prn", "a--b", "a-", "-a", "a.b", "a/b", "a b", "ä", "no", "on", "null", "010", "~"]
        {
            assert!(bad.parse::<SiteName>().is_err(), "{bad}");
        }
        assert!("h1.prn".parse::<HostName>().is_ok());
        for bad in ["h0.prn", "h1", "prn", "eb01.prn", "h01.prn", "h1.", "h100.prn"] {
            assert!(bad.parse::<HostName>().is_err(), "{bad}");
        }
    }
}
