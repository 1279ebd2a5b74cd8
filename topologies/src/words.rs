//! Fields that take one of a few words.

use std::str::FromStr;

use crate::inline_schema;
use crate::lab::SiteKind;
use crate::near::suggestion;
use crate::scalar::BadValue;

/// Picks the value of a word, or says which words there are.
pub fn pick<T: Copy>(text: &str, noun: &str, words: &[(&str, T)]) -> Result<T, BadValue> {
    words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value).ok_or_else(|| {
        let names = words.iter().map(|(word, _)| *word);
        BadValue::new(format!("`{text}` is not a {noun}"), suggestion(text, names))
    })
}

/// Makes a type of one of a few words.
#[macro_export]
macro_rules! words {
    ($(#[$about:meta])* $type:ident($inner:ty), $noun:literal, { $($word:literal => $value:expr),+ $(,)? }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $type(pub $inner);

        impl std::str::FromStr for $type {
            type Err = $crate::scalar::BadValue;

            fn from_str(text: &str) -> Result<Self, $crate::scalar::BadValue> {
                $crate::words::pick(text, $noun, &[$(($word, $value)),+]).map(Self)
            }
        }

        $crate::inline_schema!($type, { "enum": [$($word),+] });
    };
}

words!(
    /// Whether delay is emulated.
    DelayMode(bool), "delay mode", { "declared" => false, "emulated" => true }
);
words!(
    /// Whether the circuits of a bundle are links of their own.
    LagMode(bool), "lag mode", { "declared" => false, "emulated" => true }
);
words!(
    /// Kind of a site.
    SiteWord(SiteKind), "kind of site", { "dc" => SiteKind::Dc, "midpoint" => SiteKind::Midpoint }
);
words!(
    /// An LSP mesh, as the position of its class in the order gold, silver, bronze. The control plane's own class
    /// (ICP) rides in the gold mesh and has no demand of its own.
    Mesh(usize), "class with a mesh", { "gold" => 0, "silver" => 1, "bronze" => 2 }
);

/// Names of the meshes, in priority order.
pub const MESHES: [&str; 3] = ["gold", "silver", "bronze"];

words!(
    /// Algorithm for backup paths.
    BackupWord(&'static str), "backup algorithm", {
        "rba" => "rba", "srlg-rba" => "srlg-rba", "fir" => "fir", "none" => "none",
    }
);

words!(
    /// What makes sure that one controller of a plane leads: whether it is etcd.
    LockWord(bool), "lock of controllers", { "embedded" => false, "etcd" => true }
);
words!(
    /// Which bundles a cycle programs: whether it is all of them.
    ReprogramWord(bool), "way to reprogram", { "changed" => false, "always" => true }
);

/// Algorithm for primary paths: a word, and for `ksp-mcf` how many paths of each pair it may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrimaryWord(pub String);

impl FromStr for PrimaryWord {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let k = |k: &str| k.parse::<u16>().is_ok_and(|k| k > 0) && !k.starts_with(['0', '+']);
        if text.strip_prefix("ksp-mcf:").is_some_and(k) {
            return Ok(Self(text.to_owned()));
        }
        let words = ["cspf", "hprr", "mcf", "ksp-mcf"].map(|word| (word, word));
        pick(text, "primary algorithm", &words).map(|word| Self(word.to_owned()))
    }
}

inline_schema!(PrimaryWord, { "type": "string", "pattern": "^(cspf|hprr|mcf|ksp-mcf(:[1-9][0-9]{0,4})?)$" });
