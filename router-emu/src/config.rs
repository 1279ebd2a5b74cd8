//! The one configuration file that all agents of a router read (JSON), and the running version of it.
//!
//! The file is the *base*: what the router was made with. The config-agent keeps the versions that were pushed on top of it
//! in its journal; the last one is what runs ([`Loaded::running`]). A base that has changed since counts for more than
//! anything that was pushed before, until the config-agent has taken it over.

use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::config_agent::journal::Journal;

/// TCP port of openr's control RPC.
pub const OPENR_PORT: u16 = 2018;
/// TCP port of openr's store synchronisation between neighbours, on link-local addresses.
pub const KVSTORE_PORT: u16 = 6667;
/// UDP port of neighbour discovery.
pub const SPARK_PORT: u16 = 6666;
/// UDP port of the notices of lost links.
pub const FLARE_PORT: u16 = 6668;
/// UDP port of single-hop BFD.
pub const BFD_PORT: u16 = 3784;
/// TCP port of the fib-agent.
pub const FIB_AGENT_PORT: u16 = 60100;
/// TCP port of the lsp-agent.
pub const LSP_AGENT_PORT: u16 = 60101;
/// TCP port of the route-agent.
pub const ROUTE_AGENT_PORT: u16 = 60102;
/// TCP port of the config-agent.
pub const CONFIG_AGENT_PORT: u16 = 60103;
/// TCP port of the key-agent.
pub const KEY_AGENT_PORT: u16 = 60104;
/// TCP port of a plane's controller, plus the plane number.
pub const CONTROLLER_PORT: u16 = 60200;

/// TCP port of a plane's traffic-matrix service, plus the plane number.
pub const NHG_TM_PORT: u16 = 60300;

/// Kernel route protocol of Open/R's routes (fib-agent).
pub const PROTO_OPENR: u8 = 99;
/// Kernel route protocol of label-switched state (lsp-agent, route-agent).
pub const PROTO_LSP: u8 = 201;
/// Kernel route protocol of BIRD.
pub const PROTO_BIRD: u8 = 12;
/// Kernel table of a mesh: 100 + mesh code.
pub const MESH_TABLE: u32 = 100;
/// Kernel table in which BIRD leaves remote prefixes over the IGP: the fallback.
pub const FALLBACK_TABLE: u32 = 200;
/// BIRD leaves prefixes whose BGP next hop is site `s` in table 1000 + s, for the route-agent to read.
pub const HANDOVER_TABLE: u32 = 1000;

/// Traffic class code point that control sessions use (CS6), as an IPv6 traffic class octet.
pub const CONTROL_TCLASS: u32 = 48 << 2;

/// Configuration of one router's agents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouterConfig {
    /// Router name, `eb01.prn`.
    pub node: String,
    /// Plane number.
    pub plane: u8,
    /// Site id as in labels.
    pub site: u8,
    /// Site name.
    pub site_name: String,
    /// Whether the site originates demand.
    pub is_dc: bool,
    /// Loopback address.
    pub loopback: Ipv6Addr,
    /// Folder for unix sockets (`openr.sock`, `fib-agent.sock`, `lsp-agent.sock`, `route-agent.sock`).
    pub run_dir: PathBuf,
    /// Folder for state that a restarted agent reads back.
    pub state_dir: PathBuf,
    /// Interface towards the DC fabric, if any: traffic that enters here is classified.
    pub fabric_interface: Option<String>,
    /// Backbone interfaces.
    pub interfaces: Vec<CoreInterface>,
    /// Largest label stack.
    pub max_labels: u8,
    /// Timers of openr.
    pub openr: OpenrTimers,
    /// Encryption of backbone circuits, if they are encrypted. The keys stand in a file of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub macsec: Option<MacsecConfig>,
}

/// Encryption of backbone circuits (MACsec, IEEE 802.1AE).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MacsecConfig {
    /// How long a key is used, milliseconds.
    pub rotate: u64,
    /// Encrypted circuits.
    pub circuits: Vec<SecuredCircuit>,
}

/// An encrypted circuit: a backbone interface, or a member of one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecuredCircuit {
    /// The MACsec interface.
    pub interface: String,
    /// What it sits on.
    pub wire: String,
}

/// A backbone interface as the agents see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoreInterface {
    /// Name.
    pub name: String,
    /// Static label that means "out of this interface".
    pub label: u32,
    /// Link-local address of the far end.
    pub peer_link_local: Ipv6Addr,
    /// Real capacity in bit/s, with all members up.
    pub capacity_bps: u64,
    /// Links under the interface, which is a bundle of them; 0 if it is none.
    #[serde(default)]
    pub members: u16,
    /// Round-trip time in microseconds that the emulated wire does not have, to be added to the measured one;
    /// 0 where the wire really delays.
    pub declared_rtt_us: u64,
    /// Shared-risk groups.
    pub srlgs: Vec<String>,
    /// False: administratively down.
    #[serde(default = "yes")]
    pub enabled: bool,
}

const fn yes() -> bool {
    true
}

/// Open/R's timers, milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OpenrTimers {
    /// Hello period once a neighbour is established.
    pub hello: u64,
    /// Hello period while looking for neighbours.
    pub fast_hello: u64,
    /// Keepalive period.
    pub keepalive: u64,
    /// Silence after which a neighbour is given up.
    pub hold: u64,
    /// Life of a key in the store without refresh.
    pub key_ttl: u64,
    /// Shortest-path debounce, least and most.
    pub spf_min: u64,
    /// Most.
    pub spf_max: u64,
    /// How long a link is kept out after it was lost twice in a row; 0 for no damping of links that go up and down.
    pub flap_first: u64,
    /// How long it is kept out at most, each further loss having doubled the time; also how long it must stay for that to be
    /// forgotten.
    pub flap_most: u64,
    /// Detection of links that fail silently.
    pub bfd: BfdTimers,
}

/// Bidirectional forwarding detection (RFC 5880) on the backbone interfaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BfdTimers {
    /// Whether it runs.
    pub enabled: bool,
    /// How often we would like to send while a session is Up, milliseconds.
    pub tx: u64,
    /// How often we can receive, milliseconds.
    pub rx: u64,
    /// How many packets in a row the neighbour may miss before it gives up the link. Below 3, a killed openr costs its links.
    pub multiplier: u8,
}

impl Default for BfdTimers {
    fn default() -> Self {
        Self { enabled: false, tx: 20, rx: 20, multiplier: 3 }
    }
}

impl Default for OpenrTimers {
    fn default() -> Self {
        Self {
            hello: 20_000,
            fast_hello: 500,
            keepalive: 2_000,
            hold: 30_000,
            key_ttl: 300_000,
            spf_min: 10,
            spf_max: 250,
            flap_first: 1_000,
            flap_most: 8_192,
            bfd: BfdTimers::default(),
        }
    }
}

impl RouterConfig {
    /// Reads a configuration file; the error names the file and the place in it.
    pub fn load(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path)
            .map_err(|e| anyhow::anyhow!("cannot read the router configuration {}: {e}", path.display()))?;
        serde_json::from_str(&text)
            .map_err(|e| anyhow::anyhow!("{}:{}:{}: {e}", path.display(), e.line(), e.column()))
    }

    /// Hash of the content, FNV-1a of its JSON in hexadecimal: the same for the same configuration in every release.
    pub fn hash(&self) -> String {
        let text = serde_json::to_vec(self).unwrap_or_default();
        let hash = text.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        format!("{hash:016x}")
    }

    /// Path of an agent's unix socket.
    pub fn socket(&self, agent: &str) -> PathBuf {
        self.run_dir.join(format!("{agent}.sock"))
    }

    /// Path of the file with the keys of encrypted circuits.
    pub fn keys_file(&self) -> PathBuf {
        self.run_dir.join("keys.json")
    }

    /// Path of the datagram socket on which the lsp-agent hears openr's flares.
    pub fn flare_socket(&self) -> PathBuf {
        self.run_dir.join("lsp-agent.flare")
    }
}

/// A base configuration with the file that it came from.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Where the base lies.
    pub file: PathBuf,
    /// The base.
    pub base: RouterConfig,
}

impl Loaded {
    /// Reads the base.
    ///
    /// # Errors
    /// A file that cannot be read or understood.
    pub fn read(file: &Path) -> anyhow::Result<Self> {
        Ok(Self { file: file.to_owned(), base: RouterConfig::load(file)? })
    }

    /// Reads the base again.
    ///
    /// # Errors
    /// As [`Loaded::read`].
    pub fn again(&self) -> anyhow::Result<Self> {
        Self::read(&self.file)
    }

    /// The configuration that runs: the config-agent's last version of this base, or the base itself.
    pub fn running(&self) -> RouterConfig {
        match Journal::load(&self.base.state_dir) {
            Ok(Some(journal)) if journal.base == self.base => journal.running().clone(),
            Ok(_) => self.base.clone(),
            Err(e) => {
                tracing::error!("{e:#}; the base configuration is used");
                self.base.clone()
            }
        }
    }
}
