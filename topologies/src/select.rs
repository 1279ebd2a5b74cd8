//! Selectors: how commands and scenarios name nodes and links.
//!
//! | written | nodes | links |
//! |---|---|---|
//! | `eb01.prn`, `eb01.*`, `h?.prn` | of that name | at those nodes |
//! | `eb01.atn--eb01.prn`, `*--fa.prn` | - | of that name |
//! | `eb01.atn:to-prn`, `eb*.atn:to-prn` | - | at that interface |
//! | `plane:2` | routers of the plane | of the plane, with attachments |
//! | `site:prn` | at the site | with an end there |
//! | `role:router`, `role:aggregator`, `role:host` | in that role | with an end at one |
//! | `kind:core`, `kind:attach`, `kind:access` | - | of that kind |
//! | `srlg:conduit-7` | - | of the shared-risk group |
//!
//! `*` stands for any characters, `?` for one. `=` may stand for the `:` of a keyword. `,` unites, `&` intersects
//! and binds tighter: `plane:2 & site:prn, h1.lla`. Results are sorted by name, without repetition.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use crate::lab::{Lab, Link, LinkKind, Node, Role};
use crate::near::suggestion;

/// A parsed selector: a union of intersections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    union: Vec<Vec<Atom>>,
}

/// One condition.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Atom {
    Name(String),
    Interface { node: String, interface: String },
    Plane(u8),
    Site(String),
    Role(Role),
    Kind(LinkKind),
    Srlg(String),
}

/// Why a selector is none, or selects nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectError {
    /// What is wrong.
    pub message: String,
    /// Names that are near, or what to write.
    pub hint: String,
}

impl fmt::Display for SelectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\nhint: {}", self.message, self.hint)
    }
}

impl std::error::Error for SelectError {}

fn error(message: impl Into<String>, hint: impl Into<String>) -> SelectError {
    SelectError { message: message.into(), hint: hint.into() }
}

const ROLES: [(&str, Role); 3] =
    [("router", Role::Router), ("aggregator", Role::Aggregator), ("host", Role::Host)];
const KINDS: [(&str, LinkKind); 3] =
    [("core", LinkKind::Core), ("attach", LinkKind::Attach), ("access", LinkKind::Access)];
const KEYWORDS: [&str; 5] = ["plane", "site", "role", "kind", "srlg"];

impl FromStr for Selector {
    type Err = SelectError;

    fn from_str(text: &str) -> Result<Self, SelectError> {
        let term =
            |term: &str| term.split('&').map(|atom| atom.trim().parse()).collect::<Result<Vec<Atom>, _>>();
        Ok(Self { union: text.split(',').map(term).collect::<Result<_, _>>()? })
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let term = |term: &Vec<Atom>| term.iter().map(ToString::to_string).collect::<Vec<_>>().join("&");
        f.write_str(&self.union.iter().map(term).collect::<Vec<_>>().join(","))
    }
}

impl FromStr for Atom {
    type Err = SelectError;

    fn from_str(text: &str) -> Result<Self, SelectError> {
        const HINT: &str = "write a name (`eb01.prn`), a pattern (`eb01.*`), `plane:2`, `site:prn`, `role:router`, \
                            `kind:core`, `srlg:...`, or a link (`eb01.atn--eb01.prn`, `eb01.atn:to-prn`)";
        if text.is_empty() {
            return Err(error("part of the selector is empty", HINT));
        }
        if let Some(bad) = text.chars().find(|c| !c.is_ascii_alphanumeric() && !".-:=*?".contains(*c)) {
            return Err(error(format!("`{text}` has the character `{bad}`, which no name has"), HINT));
        }
        let Some((word, value)) = text.split_once([':', '=']) else { return Ok(Self::Name(text.to_owned())) };
        let one_of = |words: &[&str]| {
            error(format!("`{value}` is not a {word}"), suggestion(value, words.iter().copied()))
        };
        match word {
            "plane" => value.parse().map(Self::Plane).map_err(|_| {
                error(format!("`{value}` is not the number of a plane"), "write a number such as `plane:2`")
            }),
            "site" => Ok(Self::Site(value.to_owned())),
            "srlg" => Ok(Self::Srlg(value.to_owned())),
            "role" => find(&ROLES, value).map(Self::Role).ok_or_else(|| one_of(&ROLES.map(|(name, _)| name))),
            "kind" => find(&KINDS, value).map(Self::Kind).ok_or_else(|| one_of(&KINDS.map(|(name, _)| name))),
            node if text.contains(':') && (node.contains('.') || node.contains('*')) => {
                Ok(Self::Interface { node: node.to_owned(), interface: value.to_owned() })
            }
            _ => Err(error(format!("`{word}` selects nothing"), suggestion(word, KEYWORDS))),
        }
    }
}

fn find<T: Copy>(words: &[(&str, T)], text: &str) -> Option<T> {
    words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value)
}

fn word_of<T: PartialEq>(words: &[(&'static str, T)], value: &T) -> &'static str {
    words.iter().find(|(_, known)| known == value).map_or("", |(word, _)| word)
}

impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Interface { node, interface } => write!(f, "{node}:{interface}"),
            Self::Plane(plane) => write!(f, "plane:{plane}"),
            Self::Site(site) => write!(f, "site:{site}"),
            Self::Role(role) => write!(f, "role:{}", word_of(&ROLES, role)),
            Self::Kind(kind) => write!(f, "kind:{}", word_of(&KINDS, kind)),
            Self::Srlg(group) => write!(f, "srlg:{group}"),
        }
    }
}

impl Selector {
    /// The nodes it selects, by name; never none.
    pub fn nodes<'a>(&self, lab: &'a Lab) -> Result<Vec<&'a Node>, SelectError> {
        let names = self.resolve(|atom| atom.nodes(lab))?;
        Ok(lab.nodes.iter().filter(|node| names.contains(node.name.as_str())).collect())
    }

    /// The links it selects, by name; never none.
    pub fn links<'a>(&self, lab: &'a Lab) -> Result<Vec<&'a Link>, SelectError> {
        let names = self.resolve(|atom| atom.links(lab))?;
        Ok(lab.links.iter().filter(|link| names.contains(link.name.as_str())).collect())
    }

    /// Combines what the parts select. A part that selects nothing on its own is an error, since it is most likely
    /// mistyped; so is an empty intersection.
    fn resolve<'a>(
        &self,
        resolve: impl Fn(&Atom) -> Result<BTreeSet<&'a str>, SelectError>,
    ) -> Result<BTreeSet<&'a str>, SelectError> {
        let mut union = BTreeSet::new();
        for term in &self.union {
            let mut parts = term.iter().map(&resolve).collect::<Result<Vec<_>, _>>()?.into_iter();
            let mut names = parts.next().unwrap_or_default();
            for part in parts {
                names.retain(|name| part.contains(name));
            }
            if names.is_empty() {
                let whole = term.iter().map(ToString::to_string).collect::<Vec<_>>().join("&");
                return Err(error(
                    format!(
                        "`{whole}` selects nothing: each part matches something, but nothing matches all"
                    ),
                    "`&` keeps what both sides match; use `,` to add",
                ));
            }
            union.extend(names);
        }
        Ok(union)
    }
}

impl Atom {
    fn nodes<'a>(&self, lab: &'a Lab) -> Result<BTreeSet<&'a str>, SelectError> {
        if let Self::Name(name) = self
            && name.contains("--")
        {
            return Err(self.links_only());
        }
        let matches = |node: &Node| match self {
            Self::Name(pattern) => glob(pattern, &node.name),
            Self::Plane(plane) => node.plane == Some(*plane),
            Self::Site(site) => node.site == *site,
            Self::Role(role) => node.role == *role,
            Self::Interface { .. } | Self::Kind(_) | Self::Srlg(_) => false,
        };
        if matches!(self, Self::Interface { .. } | Self::Kind(_) | Self::Srlg(_)) {
            return Err(self.links_only());
        }
        let names: BTreeSet<&str> =
            lab.nodes.iter().filter(|node| matches(node)).map(|node| node.name.as_str()).collect();
        if names.is_empty() { Err(self.unmatched(lab)) } else { Ok(names) }
    }

    fn links_only(&self) -> SelectError {
        error(format!("`{self}` selects links, and nodes are wanted here"), "write a node such as `eb01.prn`")
    }

    fn links<'a>(&self, lab: &'a Lab) -> Result<BTreeSet<&'a str>, SelectError> {
        let at = |link: &Link, wanted: &dyn Fn(&Node) -> bool| {
            link.ends().iter().any(|end| lab.node(&end.node).is_some_and(wanted))
        };
        let matches = |link: &Link| match self {
            Self::Name(pattern) if pattern.contains("--") => glob(pattern, &link.name),
            Self::Name(pattern) => link.ends().iter().any(|end| glob(pattern, &end.node)),
            Self::Interface { node, interface } => {
                link.ends().iter().any(|end| glob(node, &end.node) && glob(interface, &end.interface))
            }
            Self::Plane(plane) => link.plane == Some(*plane),
            Self::Site(site) => at(link, &|node| node.site == *site),
            Self::Role(role) => at(link, &|node| node.role == *role),
            Self::Kind(kind) => link.kind == *kind,
            Self::Srlg(group) => link.srlgs.contains(group),
        };
        let names: BTreeSet<&str> =
            lab.links.iter().filter(|link| matches(link)).map(|link| link.name.as_str()).collect();
        if names.is_empty() { Err(self.unmatched(lab)) } else { Ok(names) }
    }

    /// The error for a part that matches nothing, with what is near.
    fn unmatched(&self, lab: &Lab) -> SelectError {
        let nodes = || lab.nodes.iter().map(|node| node.name.as_str());
        let hint = match self {
            Self::Name(name) if name.contains("--") => {
                suggestion(name, lab.links.iter().map(|l| l.name.as_str()))
            }
            Self::Name(name) => suggestion(name, nodes()),
            Self::Interface { node, interface } => match lab.node(node) {
                Some(found) => suggestion(interface, found.interfaces.iter().map(|i| i.name.as_str())),
                None => suggestion(node, nodes()),
            },
            Self::Plane(_) => {
                let planes: Vec<String> = lab.planes.iter().map(|plane| plane.id.to_string()).collect();
                format!("planes: {}", planes.join(", "))
            }
            Self::Site(site) => suggestion(site, lab.sites.iter().map(|site| site.name.as_str())),
            Self::Srlg(group) => suggestion(group, lab.srlgs().into_keys()),
            Self::Role(_) | Self::Kind(_) => "this lab has none".to_owned(),
        };
        error(format!("`{self}` matches nothing in lab `{}`", lab.name), hint)
    }
}

/// Whether a pattern with `*` and `?` matches a whole text.
pub fn glob(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    // Where to resume if what follows the last star does not match.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(&byte) if byte == b'?' || byte == text[t] => {
                p += 1;
                t += 1;
            }
            _ => {
                let Some((at, taken)) = star else { return false };
                star = Some((at, taken + 1));
                p = at + 1;
                t = taken + 1;
            }
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lab() -> Lab {
        crate::labs::load("ebb-small").unwrap().0
    }

    fn nodes(text: &str) -> Vec<String> {
        let lab = lab();
        text.parse::<Selector>().unwrap().nodes(&lab).unwrap().iter().map(|node| node.name.clone()).collect()
    }

    fn links(text: &str) -> Vec<String> {
        let lab = lab();
        text.parse::<Selector>().unwrap().links(&lab).unwrap().iter().map(|link| link.name.clone()).collect()
    }

    fn wrong(text: &str) -> SelectError {
        let lab = lab();
        match text.parse::<Selector>() {
            Ok(selector) => selector.nodes(&lab).unwrap_err(),
            Err(error) => error,
        }
    }

    #[test]
    fn selects_nodes() {
        assert_eq!(nodes("eb01.prn"), ["eb01.prn"]);
        assert_eq!(nodes("h1.*").len(), 4);
        assert_eq!(nodes("*").len(), lab().nodes.len());
        assert_eq!(nodes("site:prn"), ["eb01.prn", "eb02.prn", "fa.prn", "h1.prn"]);
        assert_eq!(nodes("plane:2 & site:prn, h?.lla"), ["eb02.prn", "h1.lla"]);
        assert_eq!(nodes("role=router").len(), 12);
        assert_eq!(nodes("role:host&site:atn"), ["h1.atn"]);
    }

    #[test]
    fn selects_links() {
        assert_eq!(links("eb01.atn--eb01.prn"), ["eb01.atn--eb01.prn"]);
        assert_eq!(links("eb01.atn:to-prn"), ["eb01.atn--eb01.prn"]);
        assert_eq!(links("eb*.atn:to-prn").len(), 2);
        assert_eq!(links("site:prn & kind:access"), ["fa.prn--h1.prn"]);
        assert_eq!(links("eb02.prn & kind:attach"), ["eb02.prn--fa.prn"]);
        let group = lab().srlgs().into_keys().next().unwrap().to_owned();
        assert!(links(&format!("srlg:{group} & plane:1")).len() >= 2);
        assert_eq!(links("plane:1").len() * 2 + links("kind:access").len(), lab().links.len());
    }

    #[test]
    fn nothing_is_an_error_with_near_names() {
        assert_eq!(wrong("eb01.prm").hint, "did you mean `eb01.prn`?");
        assert_eq!(wrong("site:prm").hint, "did you mean `prn`?");
        assert_eq!(wrong("plane:3").hint, "planes: 1, 2");
        assert_eq!(wrong("role:roter").hint, "did you mean `router`?");
        assert_eq!(wrong("plnae:2").hint, "did you mean `plane`?");
        assert!(wrong("srlg:x").message.contains("selects links"));
        assert!(wrong("plane:1 & plane:2").message.contains("selects nothing"));
        for bad in ["", "a,,b", "&", "eb01.prn;rm", "plane:x", "plane:"] {
            assert!(bad.parse::<Selector>().is_err(), "{bad}");
        }
        let lab = lab();
        let missing = "eb01.atn:to-prm".parse::<Selector>().unwrap().links(&lab).unwrap_err();
        assert_eq!(missing.hint, "did you mean `to-prn`?");
    }

    #[test]
    fn globs() {
        for (pattern, text) in [("*", ""), ("a*b*c", "axxbyyc"), ("?b", "ab"), ("a**", "a"), ("*a*a", "aaa")]
        {
            assert!(glob(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("", "a"), ("a*b", "ac"), ("?", ""), ("ab", "abc"), ("*a*a", "ba")] {
            assert!(!glob(pattern, text), "{pattern} {text}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text: String) {
            let _ = text.parse::<Selector>();
        }

        #[test]
        fn display_reads_back(text in "[a-z*?.:=,& -]{0,40}") {
            if let Ok(selector) = text.parse::<Selector>() {
                prop_assert_eq!(selector.to_string().parse::<Selector>(), Ok(selector));
            }
        }
    }
}
