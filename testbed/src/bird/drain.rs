//! How a router tells its aggregator to prefer the other planes.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Drain state of one router, towards its aggregator only: inside the plane nothing changes, so packets that are
/// already in the plane find their way out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Drain {
    /// Not drained.
    #[default]
    Normal,
    /// Everything is withdrawn from the aggregator: the other sites' prefixes, and the plane's loopbacks, without which
    /// controllers reach no router. With every plane in this state the sites are cut off from each other.
    Withdraw,
    /// The prefixes carry the GRACEFUL_SHUTDOWN community (RFC 8326), which the aggregator turns into local
    /// preference 0. With every plane in this state all of them carry traffic again: the default method.
    GracefulShutdown,
    /// The AS path is made three hops longer.
    Prepend,
}

impl Drain {
    /// The number that stands in `drain.conf`.
    pub const fn code(self) -> u8 {
        match self {
            Self::Normal => 0,
            Self::Withdraw => 1,
            Self::GracefulShutdown => 2,
            Self::Prepend => 3,
        }
    }

    /// Text of `drain.conf` for this state.
    pub fn conf(self) -> String {
        format!("# 0 normal, 1 withdraw, 2 graceful shutdown, 3 prepend\ndefine DRAINED = {};\n", self.code())
    }

    /// Reads a `drain.conf` back; `None` if it holds no known state.
    pub fn from_conf(text: &str) -> Option<Self> {
        let code = text.lines().find_map(|line| {
            line.trim().strip_prefix("define DRAINED = ")?.strip_suffix(';')?.trim().parse::<u8>().ok()
        })?;
        [Self::Normal, Self::Withdraw, Self::GracefulShutdown, Self::Prepend]
            .into_iter()
            .find(|d| d.code() == code)
    }
}

impl fmt::Display for Drain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Normal => "normal",
            Self::Withdraw => "withdraw",
            Self::GracefulShutdown => "graceful-shutdown",
            Self::Prepend => "prepend",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conf_reads_back() {
        for drain in [Drain::Normal, Drain::Withdraw, Drain::GracefulShutdown, Drain::Prepend] {
            assert_eq!(Drain::from_conf(&drain.conf()), Some(drain));
        }
        assert_eq!(Drain::from_conf("define DRAINED = 9;\n"), None);
        assert_eq!(Drain::from_conf(""), None);
    }
}
