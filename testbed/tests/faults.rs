//! Faults as part of the wanted state: whatever is broken and mended, in any order, one plan is enough each time, and in the
//! end nothing is left; on a kernel in memory, and a few cases on Linux, where the caller is root.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use testbed::apply::memory::MemoryKernel;
use testbed::apply::{Kernel, Scope};
use testbed::plan::{Change, Faults, Impairment, Options, Plan, RpcFault, RpcHow, desired, diff};
use topologies::lab::{Lab, Role};
use topologies::units::{Capacity, Period, Rtt};

mod common;
use common::on_linux;

const LAB: &str = "
name: t
planes: 2
delay: emulated
scale: {bandwidth: 1/20000}
sites:
  prn: {id: 1, kind: dc}
  lla: {id: 2, kind: dc}
  chi: {id: 3, kind: midpoint}
links:
  - {between: [prn, chi], capacity: 400G, rtt: 10ms}
  - {between: [chi, lla], capacity: 400G, rtt: 20ms, members: 3, lag: emulated}
";

fn lab() -> Lab {
    Lab::from_str(LAB, "t.yaml").unwrap().0
}

/// One thing that is done to a lab; numbers choose among what there is.
#[derive(Clone, Debug)]
enum Deed {
    Cut(usize),
    Member(usize, u16),
    Delay(usize, u64),
    Impair(usize, usize, Impairment),
    Crash(usize),
    Rpc(usize, usize, RpcHow),
    Restore(usize),
    Boot(usize),
}

fn impairment() -> impl Strategy<Value = Impairment> {
    let ppm = || 0..=1_000_000u32;
    let times = (1..50_000u64, 0..1000u64);
    (ppm(), ppm(), ppm(), ppm(), times, prop::option::of(1..300u64)).prop_map(
        |(loss_ppm, corrupt_ppm, duplicate_ppm, reorder_ppm, (delay, jitter), rate)| Impairment {
            loss_ppm,
            corrupt_ppm,
            duplicate_ppm,
            reorder_ppm,
            delay: Period(delay),
            jitter: Period(jitter),
            rate: rate.map(|giga| Capacity(giga * 1_000_000_000)),
        },
    )
}

fn deed() -> impl Strategy<Value = Deed> {
    let how = prop_oneof![
        Just(RpcHow::Cut),
        Just(RpcHow::Refused),
        (1..4u64).prop_map(|n| RpcHow::Delay(Period(n * 100_000))),
    ];
    let any = || 0..1000usize;
    prop_oneof![
        any().prop_map(Deed::Cut),
        (any(), 1..4u16).prop_map(|(link, member)| Deed::Member(link, member)),
        (any(), 2..100_000u64).prop_map(|(link, rtt)| Deed::Delay(link, rtt)),
        (any(), 0..2usize, impairment()).prop_map(|(link, end, harm)| Deed::Impair(link, end, harm)),
        any().prop_map(Deed::Crash),
        (any(), any(), how).prop_map(|(from, to, how)| Deed::Rpc(from, to, how)),
        any().prop_map(Deed::Restore),
        any().prop_map(Deed::Boot),
    ]
}

/// Puts a deed into the faults in force.
fn perform(faults: &mut Faults, lab: &Lab, deed: &Deed) {
    let link = |n: usize| &lab.links[n % lab.links.len()];
    let node = |n: usize| lab.nodes[n % lab.nodes.len()].name.clone();
    match deed {
        Deed::Cut(n) => {
            faults.cut.insert(link(*n).name.clone());
        }
        Deed::Member(n, member) if link(*n).bonded => {
            faults.set_member(&link(*n).name, *member, true);
        }
        Deed::Delay(n, rtt) if link(*n).rtt.0 > 0 => {
            faults.rtts.insert(link(*n).name.clone(), Rtt(*rtt));
        }
        Deed::Impair(n, end, harm) => {
            let link = link(*n);
            faults.impair(&link.name, &link.ends()[*end].node, *harm);
        }
        Deed::Crash(n) => {
            faults.crashed.insert(node(*n));
        }
        Deed::Rpc(from, to, how) => {
            let hosts: Vec<_> = lab.nodes.iter().filter(|n| n.role == Role::Host).collect();
            let routers: Vec<_> = lab.nodes.iter().filter(|n| n.role == Role::Router).collect();
            faults.set_rpc(RpcFault {
                from: hosts[from % hosts.len()].name.clone(),
                to: routers[to % routers.len()].name.clone(),
                program: "lsp-agent".to_owned(),
                how: *how,
            });
        }
        Deed::Restore(n) => {
            faults.restore(&link(*n).name);
        }
        Deed::Boot(n) => {
            faults.crashed.remove(&node(*n));
        }
        Deed::Member(..) | Deed::Delay(..) => {}
    }
}

/// The inverse of each fault, each by its own name.
fn mend(faults: &mut Faults, lab: &Lab) {
    for link in &lab.links {
        faults.restore(&link.name);
    }
    for node in &lab.nodes {
        faults.crashed.remove(&node.name);
        for other in &lab.nodes {
            faults.restore_rpc(&other.name, &node.name, None);
        }
    }
}

/// Brings a kernel to what is wanted; afterwards there is nothing to do.
fn converge(kernel: &mut dyn Kernel, lab: &Lab, faults: &Faults, options: Options) -> Plan {
    let wanted = desired(lab, faults, options);
    let plan = diff(&wanted, &kernel.observe(&Scope::all()).unwrap());
    kernel.apply(&plan, &mut |_| ()).unwrap_or_else(|e| panic!("{e}\nin\n{plan}"));
    let left = diff(&wanted, &kernel.observe(&Scope::all()).unwrap());
    assert!(left.is_empty(), "after\n{plan}\nthere is left\n{left}");
    plan
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any sequence of faults, then every inverse: no fault is left, and nothing to do.
    #[test]
    fn all_that_is_broken_can_be_mended(deeds in prop::collection::vec(deed(), 1..12)) {
        let lab = lab();
        let mut kernel = MemoryKernel::new();
        let mut faults = Faults::default();
        converge(&mut kernel, &lab, &faults, Options::full());
        for deed in &deeds {
            perform(&mut faults, &lab, deed);
            converge(&mut kernel, &lab, &faults, Options::full());
        }
        // an edit of nothing forgets nothing that the lab can have
        let mut kept = faults.clone();
        kept.retain(&lab);
        prop_assert_eq!(&kept.crashed, &faults.crashed);
        prop_assert_eq!(&kept.rpc, &faults.rpc);
        mend(&mut faults, &lab);
        prop_assert_eq!(&faults, &Faults::default());
        converge(&mut kernel, &lab, &faults, Options::full());
        prop_assert!(diff(&desired(&lab, &faults, Options::full()), &kernel.state).is_empty());
    }
}

/// Input: a crash in memory. Output: its ends go down, it is wiped, nothing of its neighbours changes; a boot puts back what
/// the kernel had dropped.
#[test]
fn a_crash_concerns_one_node() {
    let lab = lab();
    let mut kernel = MemoryKernel::new();
    let mut faults = Faults::default();
    converge(&mut kernel, &lab, &faults, Options::full());
    faults.crashed.insert("eb01.chi".to_owned());
    let plan = converge(&mut kernel, &lab, &faults, Options::full());
    assert!(plan.actions.iter().all(|a| a.change.node() == "eb01.chi"), "{plan}");
    let count = |wanted: fn(&Change) -> bool| plan.actions.iter().filter(|a| wanted(&a.change)).count();
    // two links, one of three members
    assert_eq!(count(|c| matches!(c, Change::LinkDown { .. })), 2 + 3, "{plan}");
    assert_eq!(count(|c| matches!(c, Change::Wipe { .. })), 1, "{plan}");
    faults.crashed.clear();
    let back = converge(&mut kernel, &lab, &faults, Options::full());
    assert!(back.counts().remove == 0 && back.actions.len() > 5, "{back}");
}

/// Input: a lab without the link, the node and the called program. Output: their faults are forgotten, others kept.
#[test]
fn an_edit_forgets_faults_of_what_is_gone() {
    let lab = lab();
    let mut faults = Faults::default();
    let loss = Impairment { loss_ppm: 10_000, ..Impairment::default() };
    faults.impair("eb01.chi--eb01.prn", "eb01.prn", loss);
    faults.impair("eb01.chi--eb01.prn", "eb01.nowhere", loss);
    faults.impair("eb07.chi--eb07.prn", "eb07.prn", loss);
    faults.crashed.extend(["eb01.chi".to_owned(), "eb07.chi".to_owned()]);
    for to in ["eb01.lla", "h1.lla", "eb07.lla"] {
        let (from, program) = ("h1.prn".to_owned(), "lsp-agent".to_owned());
        faults.set_rpc(RpcFault { from, to: to.to_owned(), program, how: RpcHow::Cut });
    }
    faults.retain(&lab);
    assert_eq!(faults.of_link("eb01.chi--eb01.prn"), ["loss 1% from eb01.prn"]);
    assert_eq!((faults.impaired.len(), faults.crashed.len(), faults.rpc.len()), (1, 1, 1));
}

/// The kernel takes harm, late connections and crashes, and reads them back; what it lacks is left out.
#[test]
fn on_the_linux_kernel() {
    on_linux(|kernel, options| {
        let lab = lab();
        let mut faults = Faults::default();
        converge(kernel, &lab, &faults, options);
        let harm = Impairment {
            loss_ppm: 123_456,
            corrupt_ppm: 1,
            duplicate_ppm: 999_999,
            reorder_ppm: 250_000,
            delay: Period(3000),
            jitter: Period(1000),
            rate: Some(Capacity(100_000_000_000)),
        };
        for (link, from) in [
            ("eb01.chi--eb01.prn", "eb01.prn"),
            ("eb01.chi--eb01.lla", "eb01.chi"),
            ("eb01.prn--fa.prn", "fa.prn"),
            ("fa.lla--h1.lla", "h1.lla"),
        ] {
            faults.impair(link, from, harm);
        }
        for (to, how) in [("eb01.lla", RpcHow::Cut), ("eb02.lla", RpcHow::Refused)] {
            let (from, program) = ("h1.prn".to_owned(), "lsp-agent".to_owned());
            faults.set_rpc(RpcFault { from, to: to.to_owned(), program, how });
        }
        for (program, ms) in [("openr", 200), ("fib-agent", 100)] {
            let (from, to) = ("h1.prn".to_owned(), "eb01.chi".to_owned());
            let how = RpcHow::Delay(Period(ms * 1000));
            faults.set_rpc(RpcFault { from, to, program: program.to_owned(), how });
        }
        converge(kernel, &lab, &faults, options);
        faults.crashed.insert("eb01.chi".to_owned());
        converge(kernel, &lab, &faults, options);
        let less = Impairment { loss_ppm: 10, ..Impairment::default() };
        faults.impair("eb01.chi--eb01.prn", "eb01.prn", less);
        faults.rpc.retain(|fault| fault.program != "openr");
        converge(kernel, &lab, &faults, options);
        mend(&mut faults, &lab);
        converge(kernel, &lab, &faults, options);
        faults.impair("eb01.chi--eb01.prn", "eb01.prn", harm);
        converge(kernel, &lab, &faults, options);
    });
}
