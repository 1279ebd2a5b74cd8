//! Which carrier a lab gets, as a pure function of what it needs and what the machine has.

use serde::{Deserialize, Serialize};
use topologies::lab::Lab;

use super::features::{self, Feature, Features};
use super::{Carrier, Lacking, kmod, qemu};

/// What the user asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// Whatever holds the lab, the host first.
    Auto,
    /// This one or none.
    Only(Carrier),
}

impl From<crate::cli::args::CarrierChoice> for Wish {
    fn from(choice: crate::cli::args::CarrierChoice) -> Self {
        use crate::cli::args::CarrierChoice;
        match choice {
            CarrierChoice::Auto => Self::Auto,
            CarrierChoice::Host => Self::Only(Carrier::Host),
            CarrierChoice::Vm => Self::Only(Carrier::Vm),
        }
    }
}

/// Kinds of labs, by what they need of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A label-switched backbone.
    Ebb,
    /// A training fabric.
    Roce,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Ebb, Self::Roce];

    /// What every lab of this kind needs.
    pub fn needs(self) -> Vec<Feature> {
        match self {
            Self::Ebb => vec![
                Feature::MplsRoutes,
                Feature::MplsEncap,
                Feature::DscpMaskRules,
                Feature::NexthopGroups,
                Feature::Tbf,
                Feature::Prio,
                Feature::Nftables,
            ],
            Self::Roce => vec![Feature::SoftRoce, Feature::Tbf, Feature::Nftables],
        }
    }

    /// Its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ebb => "ebb",
            Self::Roce => "roce",
        }
    }
}

/// A carrier, and what the world on it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The carrier.
    pub carrier: Carrier,
    /// Kind of lab.
    pub kind: Kind,
    /// Number of nodes, for the size of a guest.
    pub nodes: usize,
}

impl Choice {
    /// Kernel modules that every lab of the kind needs; what a lab needs beyond them is loaded when it comes.
    pub fn modules(&self) -> Vec<&'static str> {
        let of_kind = match self.kind {
            Kind::Ebb => kmod::WAN,
            Kind::Roce => kmod::FABRIC,
        };
        [kmod::GUEST_BASE, of_kind].concat()
    }
}

/// What of the machine bears on the choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Whether this user is root.
    pub root: bool,
    /// Whether QEMU is installed.
    pub qemu: bool,
    /// What the running kernel can do.
    pub features: Features,
}

impl Machine {
    /// Looks at this machine.
    pub fn look() -> Self {
        Self {
            root: nix::unistd::geteuid().is_root(),
            qemu: qemu::version().is_ok(),
            features: features::probe(),
        }
    }

    /// What stands between the lab and the `host` carrier; nothing if it would hold it.
    pub fn host_obstacle(&self, needs: &[Feature]) -> Option<String> {
        if !self.root {
            return Some("you are not root".to_owned());
        }
        let missing: Vec<String> = needs
            .iter()
            .filter(|need| !self.features.get(need).is_some_and(features::Support::usable))
            .map(Feature::to_string)
            .collect();
        (!missing.is_empty()).then(|| format!("this kernel lacks {}", missing.join(", ")))
    }
}

/// Decides, and says why in one line.
///
/// # Errors
/// [`Lacking`] if no carrier, or not the one asked for, can hold the lab.
pub fn decide(wish: Wish, needs: &[Feature], machine: &Machine) -> Result<(Carrier, String), Lacking> {
    let obstacle = machine.host_obstacle(needs);
    match (wish, obstacle) {
        (Wish::Auto | Wish::Only(Carrier::Host), None) => {
            Ok((Carrier::Host, "carrier host: this kernel has all that the lab needs".to_owned()))
        }
        (Wish::Only(Carrier::Host), Some(obstacle)) => Err(Lacking {
            what: format!("the host carrier cannot hold this lab: {obstacle}"),
            next: "leave out `--carrier host` to use a guest".to_owned(),
        }),
        (Wish::Auto, Some(obstacle)) if machine.qemu => Ok((Carrier::Vm, format!("carrier vm: {obstacle}"))),
        (Wish::Only(Carrier::Vm), _) if machine.qemu => Ok((Carrier::Vm, "carrier vm: asked for".to_owned())),
        (Wish::Auto, Some(obstacle)) => Err(Lacking {
            what: format!(
                "no carrier can hold this lab: host, because {obstacle}; vm, because QEMU is not installed"
            ),
            next: "apt-get install qemu-system-x86".to_owned(),
        }),
        (Wish::Only(Carrier::Vm), _) => Err(Lacking {
            what: format!("the vm carrier needs {}", qemu::PROGRAM),
            next: "apt-get install qemu-system-x86".to_owned(),
        }),
    }
}

/// What this lab needs of a kernel.
pub fn needs(lab: &Lab) -> Vec<Feature> {
    let mut needs = Kind::Ebb.needs();
    if lab.emulate_delay {
        needs.push(Feature::Netem);
    }
    if lab.links.iter().any(|link| link.bonded) {
        needs.push(Feature::Bonds);
    }
    if lab.macsec.is_some() {
        needs.push(Feature::Macsec);
    }
    needs
}

/// Chooses for a lab on this machine.
///
/// # Errors
/// As [`decide`].
pub fn choose(wish: Wish, lab: &Lab) -> anyhow::Result<(Choice, String)> {
    if let Some(package) = crate::supervise::etcd::missing(lab) {
        return Err(Lacking::error(
            "this lab asks for etcd as the lock of its controllers, and this machine has no etcd",
            format!("apt-get install {package}, or write `lock: embedded` in the lab file"),
        ));
    }
    let machine = match wish {
        // nothing about the running kernel matters then
        Wish::Only(Carrier::Vm) => {
            Machine { root: false, qemu: qemu::version().is_ok(), features: Features::new() }
        }
        _ => Machine::look(),
    };
    let (carrier, reason) = decide(wish, &needs(lab), &machine).map_err(anyhow::Error::new)?;
    // a member of etcd takes as much memory as a few nodes
    let nodes = lab.nodes.len() + 4 * lab.etcd_members().len();
    Ok((Choice { carrier, kind: Kind::Ebb, nodes }, reason))
}

#[cfg(test)]
mod tests {
    use super::super::features::Support;
    use super::*;

    fn machine(root: bool, qemu: bool, missing: &[Feature]) -> Machine {
        let support = |f: &Feature| if missing.contains(f) { Support::No("x".into()) } else { Support::Yes };
        Machine { root, qemu, features: Feature::ALL.iter().map(|f| (*f, support(f))).collect() }
    }

    #[test]
    fn the_host_comes_first_and_the_reason_names_the_obstacle() {
        let needs = Kind::Ebb.needs();
        let decide = |wish, m: &Machine| decide(wish, &needs, m);
        let (carrier, why) = decide(Wish::Auto, &machine(true, true, &[])).unwrap();
        assert_eq!(
            (carrier, why.as_str()),
            (Carrier::Host, "carrier host: this kernel has all that the lab needs")
        );
        let (carrier, why) =
            decide(Wish::Auto, &machine(true, true, &[Feature::MplsRoutes, Feature::Netem])).unwrap();
        assert_eq!((carrier, why.as_str()), (Carrier::Vm, "carrier vm: this kernel lacks MPLS label routes"));
        let (carrier, why) = decide(Wish::Auto, &machine(false, true, &[])).unwrap();
        assert_eq!((carrier, why.as_str()), (Carrier::Vm, "carrier vm: you are not root"));
        assert_eq!(decide(Wish::Only(Carrier::Vm), &machine(true, true, &[])).unwrap().0, Carrier::Vm);
    }

    #[test]
    fn what_cannot_be_says_what_to_do() {
        let needs = Kind::Ebb.needs();
        let lacking = decide(Wish::Auto, &needs, &machine(false, false, &[])).unwrap_err();
        assert!(
            lacking.what.contains("you are not root") && lacking.next.contains("qemu-system-x86"),
            "{lacking}"
        );
        let lacking =
            decide(Wish::Only(Carrier::Host), &needs, &machine(true, true, &[Feature::Tbf])).unwrap_err();
        assert!(lacking.what.ends_with("this kernel lacks token bucket queues"), "{lacking}");
        assert!(decide(Wish::Only(Carrier::Vm), &needs, &machine(true, false, &[])).is_err());
    }

    #[test]
    fn a_lab_names_what_it_needs_beyond_its_kind() {
        let needs = |top: &str, link: &str| {
            let sites = "sites: {prn: {id: 1, kind: dc}, lla: {id: 2, kind: dc}}";
            let text = format!(
                "name: x\nplanes: 1\n{top}\n{sites}\nlinks: [{{between: [prn, lla], capacity: 400G, rtt: 10ms{link}}}]"
            );
            let needs = needs(&Lab::from_str(&text, "x.yaml").unwrap().0);
            needs.into_iter().filter(|need| !Kind::Ebb.needs().contains(need)).collect::<Vec<_>>()
        };
        assert!(needs("lag: emulated", "").is_empty(), "a bundle of one is a link");
        assert!(needs("", ", members: 4").is_empty());
        assert_eq!(needs("lag: emulated", ", members: 4"), [Feature::Bonds]);
        assert_eq!(needs("delay: emulated", ", members: 4, lag: emulated"), [Feature::Netem, Feature::Bonds]);
        assert_eq!(needs("macsec: {}", ""), [Feature::Macsec]);
        let (_, why) =
            decide(Wish::Auto, &[Feature::Bonds], &machine(true, true, &[Feature::Bonds])).unwrap();
        assert_eq!(why, "carrier vm: this kernel lacks link bundles (bonding)");
    }

    #[test]
    fn a_module_that_can_be_loaded_is_as_good() {
        let mut machine = machine(true, false, &[]);
        machine.features.insert(Feature::MplsRoutes, Support::Loadable("mpls_router".into()));
        assert_eq!(decide(Wish::Auto, &Kind::Ebb.needs(), &machine).unwrap().0, Carrier::Host);
    }
}
