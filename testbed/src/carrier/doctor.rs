//! What this machine has, what each kind of lab needs, and what would be chosen.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::choose::{self, Kind, Machine, Wish};
use super::features::{Features, Support};
use super::{Carrier, apt, gc, initramfs, kernel, kvm, qemu};
use crate::supervise::etcd;

/// The whole answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Version of this shape.
    pub version: u32,
    /// The machine's kernel release.
    pub kernel: String,
    /// Whether this user is root.
    pub root: bool,
    /// Processors.
    pub cpus: usize,
    /// What the machine's kernel can do.
    pub features: Features,
    /// What guests need: name, and what was found or what is missing.
    pub guest: BTreeMap<String, Found>,
    /// Programs of others that some labs need.
    pub programs: BTreeMap<String, Found>,
    /// By kind of lab.
    pub labs: Vec<LabKind>,
    /// What dead labs left.
    pub leftovers: Vec<String>,
}

/// One thing that was looked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// Whether it is as it should be.
    pub ok: bool,
    /// What was found, or what to do.
    pub detail: String,
}

/// What a kind of lab gets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabKind {
    /// The kind.
    pub kind: Kind,
    /// What `--carrier auto` would take.
    pub auto: Option<Carrier>,
    /// Why, or why nothing.
    pub reason: String,
}

/// Looks at everything; starts no guest and fetches nothing.
pub fn report(state_root: &Path) -> Report {
    let machine = Machine::look();
    let labs = Kind::ALL
        .into_iter()
        .map(|kind| match choose::decide(Wish::Auto, &kind.needs(), &machine) {
            Ok((carrier, reason)) => LabKind { kind, auto: Some(carrier), reason },
            Err(lacking) => LabKind { kind, auto: None, reason: lacking.to_string() },
        })
        .collect();
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Report {
        version: 1,
        kernel: release.trim().to_owned(),
        root: machine.root,
        cpus: qemu::cpus(),
        features: machine.features,
        guest: guest(),
        programs: programs(),
        labs,
        leftovers: gc::find(state_root).iter().map(ToString::to_string).collect(),
    }
}

fn found(result: Result<String, String>) -> Found {
    let ok = result.is_ok();
    Found { ok, detail: result.unwrap_or_else(|why| why) }
}

fn programs() -> BTreeMap<String, Found> {
    BTreeMap::from([("etcd".to_owned(), found(etcd::installed().map(str::to_owned)))])
}

fn guest() -> BTreeMap<String, Found> {
    let qemu = qemu::version().map_err(|e| e.to_string());
    let busybox = initramfs::static_busybox().map(|p| p.display().to_string()).map_err(|e| e.to_string());
    let kernel = match kernel::cached() {
        Some(kernel) => {
            let slow = if kernel.direct {
                ""
            } else {
                "; compressed, as zstd was missing: boots take a second more"
            };
            Ok(format!("{} ({}){slow}", kernel.release, kernel.origin))
        }
        None => match apt::mirror_of_system(Path::new("/etc/apt")) {
            Some(mirror) => Ok(format!("not fetched yet; the first `up` fetches it from {mirror}")),
            None => Err("not fetched, and no Debian mirror is configured; use --kernel PATH".to_owned()),
        },
    };
    let kvm = match (kvm::device(), kvm::known()) {
        (Err(why), _) => Err(format!("{why}; guests are emulated, which is slower but works")),
        (Ok(()), Some(verdict)) if verdict.accel == qemu::Accel::Kvm => Ok(verdict.reason),
        (Ok(()), Some(verdict)) => Err(verdict.reason),
        (Ok(()), None) => Ok("the device is there; the first `up` tries it with a probe guest".to_owned()),
    };
    [("QEMU", qemu), ("busybox", busybox), ("kernel", kernel), ("KVM", kvm)]
        .into_iter()
        .map(|(name, result)| (name.to_owned(), found(result)))
        .collect()
}

impl Report {
    /// The table for people.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        let who = if self.root { "root" } else { "not root" };
        let _ = writeln!(text, "this machine: Linux {}, {} processors, {who}\n", self.kernel, self.cpus);
        let _ = writeln!(text, "{:<26} {:<8} {:<8} its kernel", "a lab may need", "ebb", "roce");
        for (feature, support) in &self.features {
            let mark = |kind: Kind| if kind.needs().contains(feature) { "needs" } else { "-" };
            let found = match support {
                Support::Yes => "has it".to_owned(),
                Support::Loadable(module) => format!("has it as module {module}"),
                Support::No(why) => format!("no: {why}"),
                Support::Unknown(why) => format!("unknown: {why}"),
            };
            let _ = writeln!(
                text,
                "{:<26} {:<8} {:<8} {found}",
                feature.to_string(),
                mark(Kind::Ebb),
                mark(Kind::Roce)
            );
        }
        let _ = writeln!(text, "\nfor guests");
        let rows = |text: &mut String, rows: &BTreeMap<String, Found>| {
            for (name, found) in rows {
                let _ =
                    writeln!(text, "{name:<10} {:<4} {}", if found.ok { "ok" } else { "no" }, found.detail);
            }
        };
        rows(&mut text, &self.guest);
        let _ = writeln!(text, "\nfor single labs");
        rows(&mut text, &self.programs);
        let _ = writeln!(text, "\n--carrier auto");
        for lab in &self.labs {
            let _ = writeln!(text, "{:<10} {}", lab.kind.name(), lab.reason);
        }
        if !self.leftovers.is_empty() {
            let _ = writeln!(text, "\nleft behind (`testbed gc` removes it)");
            for item in &self.leftovers {
                let _ = writeln!(text, "  {item}");
            }
        }
        text
    }

    /// 0 if some kind of lab can live here, else 4.
    pub fn exit_code(&self) -> u8 {
        if self.labs.iter().any(|lab| lab.auto.is_some()) { 0 } else { 4 }
    }
}
