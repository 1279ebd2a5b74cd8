//! What the running kernel can do, found by doing it in a network namespace that is thrown away.
//!
//! A version number says little: distributions leave parts out, and parts that are modules may be there but not loaded.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::os::fd::{AsFd as _, BorrowedFd};

use rtnl::rule::{self, Rule};
use rtnl::tc::{self, Netem, Prio, Tbf};
use rtnl::{KernelError, Socket, netns, nexthop};
use serde::{Deserialize, Serialize};

/// Something a lab may need of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Feature {
    /// Forwarding by label (`AF_MPLS` routes).
    MplsRoutes,
    /// Pushing labels onto packets of a route.
    MplsEncap,
    /// Rules that match a range of DSCP values (`FRA_DSCP_MASK`, Linux 6.14).
    DscpMaskRules,
    /// Nexthop objects and groups.
    NexthopGroups,
    /// Token bucket queues.
    Tbf,
    /// Priority queues.
    Prio,
    /// Delay and loss on links.
    Netem,
    /// Bundles of links (bonding).
    Bonds,
    /// Encrypted links (MACsec).
    Macsec,
    /// nftables.
    Nftables,
    /// Filters that lose, refuse and mark packets of connections.
    Filters,
    /// Soft-RoCE that works inside namespaces (Linux 7.1).
    SoftRoce,
    /// User namespaces for those who are not root.
    UserNamespaces,
}

impl Feature {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::MplsRoutes,
        Self::MplsEncap,
        Self::DscpMaskRules,
        Self::NexthopGroups,
        Self::Tbf,
        Self::Prio,
        Self::Netem,
        Self::Bonds,
        Self::Macsec,
        Self::Nftables,
        Self::Filters,
        Self::SoftRoce,
        Self::UserNamespaces,
    ];

    /// The kernel module that brings it, if it is one.
    pub fn module(self) -> Option<&'static str> {
        Some(match self {
            Self::MplsRoutes => "mpls_router",
            Self::MplsEncap => "mpls_iptunnel",
            Self::Tbf => "sch_tbf",
            Self::Prio => "sch_prio",
            Self::Netem => "sch_netem",
            Self::Bonds => "bonding",
            Self::Macsec => "macsec",
            Self::Nftables => "nf_tables",
            Self::Filters => "nft_reject_inet",
            Self::SoftRoce => "rdma_rxe",
            Self::DscpMaskRules | Self::NexthopGroups | Self::UserNamespaces => return None,
        })
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MplsRoutes => "MPLS label routes",
            Self::MplsEncap => "MPLS label push",
            Self::DscpMaskRules => "rules by DSCP range",
            Self::NexthopGroups => "nexthop groups",
            Self::Tbf => "token bucket queues",
            Self::Prio => "priority queues",
            Self::Netem => "link delay (netem)",
            Self::Bonds => "link bundles (bonding)",
            Self::Macsec => "link encryption (MACsec)",
            Self::Nftables => "nftables",
            Self::Filters => "connection filters",
            Self::SoftRoce => "Soft-RoCE in namespaces",
            Self::UserNamespaces => "user namespaces",
        })
    }
}

/// Whether the kernel has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "state", content = "why")]
pub enum Support {
    /// It was tried and works.
    Yes,
    /// A module that is installed but not loaded would give it.
    Loadable(String),
    /// It does not; the kernel's reason.
    No(String),
    /// It could not be tried.
    Unknown(String),
}

impl Support {
    /// Whether a lab on the `host` carrier would have it.
    pub fn usable(&self) -> bool {
        matches!(self, Self::Yes | Self::Loadable(_))
    }
}

/// All features of this kernel.
pub type Features = BTreeMap<Feature, Support>;

/// Tries everything. Without root nothing can be tried, and all but what files tell is unknown.
pub fn probe() -> Features {
    let tried = if nix::unistd::geteuid().is_root() {
        netns::create()
            .map_err(|e| e.to_string())
            .and_then(|ns| in_namespace(ns.as_fd()).map_err(|e| e.to_string()))
    } else {
        Err("only root can try".to_owned())
    };
    let files = ModuleFiles::of_running_kernel();
    Feature::ALL
        .into_iter()
        .map(|feature| {
            let support = match feature {
                Feature::SoftRoce => soft_roce(&files),
                Feature::UserNamespaces => user_namespaces(),
                _ => match &tried {
                    Ok(results) => judge(feature, results.get(&feature), &files),
                    Err(why) => Support::Unknown(why.clone()),
                },
            };
            (feature, support)
        })
        .collect()
}

fn judge(feature: Feature, result: Option<&Result<(), KernelError>>, files: &ModuleFiles) -> Support {
    match result {
        Some(Ok(())) => Support::Yes,
        Some(Err(why)) => match feature.module().filter(|m| files.loadable(m)) {
            Some(module) => Support::Loadable(module.to_owned()),
            None => Support::No(why.to_string()),
        },
        None => Support::Unknown("not tried".to_owned()),
    }
}

type Tries = BTreeMap<Feature, Result<(), KernelError>>;

/// One try of each, in the namespace. `lo` (index 1) is the interface everything hangs on.
fn in_namespace(ns: BorrowedFd<'_>) -> Result<Tries, KernelError> {
    const LO: u32 = 1;
    let mut socket = Socket::open_in(ns, libc::NETLINK_ROUTE as isize)?;
    socket.request(&rtnl::link::set_up(LO, true))?;
    let mut tries = Tries::new();
    let root = tc::handle(1, 0);
    let tbf = Tbf { rate_bps: 8_000_000, burst: 16_384, limit: 65_536 };
    let queues = [
        (Feature::Tbf, tc::tbf(LO, tc::ROOT, root, &tbf)),
        (Feature::Prio, tc::prio(LO, tc::ROOT, root, &Prio::last_by_default(3))),
        (
            Feature::Netem,
            tc::netem(LO, tc::ROOT, root, &Netem { delay_ns: 1_000_000, limit: 100, ..Netem::default() }),
        ),
    ];
    for (feature, request) in queues {
        let done = socket.request(&request);
        if done.is_ok() {
            socket.request(&tc::delete(LO, tc::ROOT))?;
        }
        tries.insert(feature, done);
    }
    let bond =
        rtnl::link::LinkEnd { netns: ns, name: "bundle", ifindex: 77, mac: [2, 0, 0, 0, 0, 1], mtu: 9216 };
    tries.insert(Feature::Bonds, socket.request(&rtnl::link::create_bond(&bond)));
    tries.insert(Feature::Macsec, crate::apply::linux::try_macsec(ns, &mut socket));
    let object = |id, labels| nexthop::Object { id, protocol: 4, oif: LO, gateway: None, labels };
    let group = nexthop::Group::equal(2, 4, [1]);
    let done = socket
        .request(&nexthop::set(&object(1, vec![])))
        .and_then(|()| socket.request(&nexthop::set_group(&group)));
    tries.insert(Feature::NexthopGroups, done);
    tries.insert(Feature::MplsEncap, socket.request(&nexthop::set(&object(3, vec![100]))));
    tries.insert(Feature::DscpMaskRules, dscp_mask(&mut socket));
    tries.insert(Feature::MplsRoutes, label_route(ns, &mut socket));
    tries.insert(
        Feature::Nftables,
        Socket::open_in(ns, libc::NETLINK_NETFILTER as isize).and_then(|mut s| nftables(&mut s)),
    );
    let unable = KernelError { errno: libc::EOPNOTSUPP, text: None, doing: "filter connections".to_owned() };
    let filters = netns::enter(ns, crate::apply::linux::can_filter)?;
    tries.insert(Feature::Filters, if filters { Ok(()) } else { Err(unable) });
    Ok(tries)
}

/// An older kernel takes the rule and forgets the mask, so the rule is read back.
fn dscp_mask(socket: &mut Socket) -> Result<(), KernelError> {
    let wanted = Rule { priority: 100, table: 100, protocol: 4, dscp: Some((0x20, 0x30)), ..Rule::default() };
    socket.request(&rule::add(&wanted))?;
    if rule::dump(socket)?.iter().any(|r| r.priority == 100 && r.dscp == wanted.dscp) {
        return Ok(());
    }
    Err(KernelError { errno: libc::EOPNOTSUPP, text: None, doing: "match a DSCP range".to_owned() })
}

fn label_route(ns: BorrowedFd<'_>, socket: &mut Socket) -> Result<(), KernelError> {
    if rtnl::sysctl::read(ns, &["net.mpls.platform_labels"])?.first().is_none_or(Option::is_none) {
        return Err(KernelError {
            errno: libc::EAFNOSUPPORT,
            text: None,
            doing: "forward by label".to_owned(),
        });
    }
    rtnl::sysctl::write(ns, &[("net.mpls.platform_labels", "1000")])?;
    socket.request(&rtnl::mpls::set(&rtnl::mpls::LabelRoute {
        label: 100,
        protocol: 4,
        hops: vec![rtnl::mpls::LabelHop { via: std::net::Ipv6Addr::LOCALHOST, oif: 1, push: vec![] }],
    }))
}

/// Asks for the ruleset's generation; only a kernel with nftables knows the question.
fn nftables(socket: &mut Socket) -> Result<(), KernelError> {
    const GET_GENERATION: u16 = 10 << 8 | 16;
    let request = rtnl::Request::new(GET_GENERATION, 0, &[0, 0, 0, 0], "ask nftables for its generation");
    socket.get(&request, |_| Some(())).map(drop)
}

fn soft_roce(files: &ModuleFiles) -> Support {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release = release.trim();
    if version(release) < (7, 1) {
        return Support::No(format!("Linux {release} is older than 7.1"));
    }
    if fs::metadata("/sys/module/rdma_rxe").is_ok() {
        Support::Yes
    } else if files.loadable("rdma_rxe") {
        Support::Loadable("rdma_rxe".to_owned())
    } else {
        Support::No("module rdma_rxe is not installed".to_owned())
    }
}

/// Major and minor number of a release name.
fn version(release: &str) -> (u32, u32) {
    let mut parts = release.split(|c: char| !c.is_ascii_digit()).map(|p| p.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

fn user_namespaces() -> Support {
    let read = |path: &str| fs::read_to_string(path).ok().and_then(|t| t.trim().parse::<u64>().ok());
    if read("/proc/sys/user/max_user_namespaces").unwrap_or(0) == 0 {
        return Support::No("user.max_user_namespaces is 0".to_owned());
    }
    if read("/proc/sys/kernel/unprivileged_userns_clone") == Some(0) {
        return Support::No("kernel.unprivileged_userns_clone is 0".to_owned());
    }
    if read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == Some(1) {
        return Support::No("AppArmor restricts them".to_owned());
    }
    Support::Yes
}

/// What `/lib/modules` has for the running kernel.
struct ModuleFiles(String);

impl ModuleFiles {
    fn of_running_kernel() -> Self {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self(fs::read_to_string(format!("/lib/modules/{}/modules.dep", release.trim())).unwrap_or_default())
    }

    fn loadable(&self, module: &str) -> bool {
        self.0
            .lines()
            .filter_map(|l| l.split(':').next()?.rsplit('/').next())
            .any(|file| super::kmod::name_of(file).as_deref() == Some(module))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_compare_by_number() {
        assert_eq!(version("7.3.4+deb13-amd64"), (7, 3));
        assert!(version("6.18.44-fc") < (7, 1) && version("10.0") > (7, 1));
    }

    #[test]
    fn a_module_file_is_found_by_its_name() {
        let files =
            ModuleFiles("kernel/net/mpls/mpls_router.ko.xz: kernel/net/ipv4/ip_tunnel.ko.xz\n".to_owned());
        assert!(files.loadable("mpls_router") && !files.loadable("ip_tunnel"));
    }

    #[test]
    fn root_gets_an_answer_to_each() {
        let features = probe();
        assert_eq!(features.len(), Feature::ALL.len());
        if nix::unistd::geteuid().is_root() {
            assert_eq!(features[&Feature::NexthopGroups], Support::Yes, "{features:?}");
            assert!(!features.values().any(|s| matches!(s, Support::Unknown(_))), "{features:?}");
        }
    }
}
