//! The same cases on a kernel in memory and on Linux.
//!
//! Linux is used where the caller is root: in a mount and network namespace of the test's own thread, so that
//! nothing is left whatever happens. Features that the kernel lacks (MPLS, priority bands, delay) are left out of
//! the wanted state, with a printed line.

#![allow(clippy::unwrap_used, clippy::format_push_string)]

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use rtnl::{Socket, addr, link, neigh, netns, route, socket};
use testbed::apply::linux::LinuxKernel;
use testbed::apply::memory::MemoryKernel;
use testbed::apply::{Kernel, Scope};
use testbed::plan::{Change, Faults, Options, Plan, State, desired, diff};
use topologies::lab::Lab;

mod common;
use common::on_linux;

/// A lab file of a ring of sites with chords.
#[derive(Clone, Debug)]
struct Shape {
    planes: u8,
    /// One per site: whether it is a DC (the first always is).
    sites: Vec<bool>,
    /// Chords by site numbers, with capacity in Gbit/s and RTT in milliseconds.
    chords: Vec<(usize, usize, u32, u32)>,
    /// Capacity and RTT of the ring.
    ring: (u32, u32),
    /// Members of the ring's links, and whether they are links of their own.
    lag: (u16, bool),
}

impl Shape {
    fn lab(&self) -> Lab {
        let mut text = format!(
            "name: t\nplanes: {}\ndelay: emulated\nscale: {{bandwidth: 1/20000}}\nsites:\n",
            self.planes
        );
        for (i, dc) in self.sites.iter().enumerate() {
            let kind = if *dc || i == 0 { "dc" } else { "midpoint" };
            text += &format!("  s{i}: {{id: {}, kind: {kind}}}\n", i + 1);
        }
        text += "links:\n";
        let n = self.sites.len();
        let (capacity, rtt) = self.ring;
        let (members, real) = self.lag;
        let lag = if real { "emulated" } else { "declared" };
        for i in 0..n {
            text += &format!(
                "  - {{between: [s{i}, s{}], capacity: {capacity}G, rtt: {rtt}ms, members: {members}, lag: {lag}}}\n",
                (i + 1) % n
            );
        }
        let mut seen = BTreeSet::new();
        for (a, b, capacity, rtt) in &self.chords {
            let (a, b) = ((a % n).min(b % n), (a % n).max(b % n));
            let neighbours = b - a == 1 || (a == 0 && b == n - 1);
            if a != b && !neighbours && seen.insert((a, b)) {
                text += &format!("  - {{between: [s{a}, s{b}], capacity: {capacity}G, rtt: {rtt}ms}}\n");
            }
        }
        Lab::from_str(&text, "t.yaml").unwrap_or_else(|e| panic!("{e}\n{text}")).0
    }
}

fn shape() -> impl Strategy<Value = Shape> {
    let chord = (0..8usize, 0..8usize, 1..800u32, 1..100u32);
    let parts = (
        1..=2u8,
        prop::collection::vec(any::<bool>(), 3..6),
        prop::collection::vec(chord, 0..4),
        (1..800u32, 1..100u32),
        (1..5u16, any::<bool>()),
    );
    parts.prop_map(|(planes, sites, chords, ring, lag)| Shape { planes, sites, chords, ring, lag })
}

fn small() -> Shape {
    let sites = vec![true, false, true, false];
    Shape { planes: 2, sites, chords: vec![(0, 2, 100, 7)], ring: (400, 10), lag: (1, false) }
}

/// What a case gets: a kernel, and what it can do.
struct Bench<'a> {
    kernel: &'a mut dyn Kernel,
    options: Options,
}

impl Bench<'_> {
    fn wanted(&self, lab: &Lab, cuts: &[&str]) -> State {
        desired(lab, &Faults::cut(cuts.iter().copied()), self.options)
    }

    /// Brings the kernel to a state; afterwards there must be nothing left to do.
    fn converge(&mut self, wanted: &State) -> Plan {
        let plan = diff(wanted, &self.kernel.observe(&Scope::all()).unwrap());
        let mut last = None;
        let applied = self.kernel.apply(&plan, &mut |p| last = Some((p.done, p.total)));
        applied.unwrap_or_else(|e| panic!("{e}\nin\n{plan}"));
        assert_eq!(last, Some((plan.actions.len(), plan.actions.len())));
        let mut found = self.kernel.observe(&Scope::all()).unwrap();
        let left = diff(wanted, &found);
        assert!(left.is_empty(), "after\n{plan}\nthere is left\n{left}");
        // The comparison may be wrong itself: what is there must equal what is wanted. Only settings may be more.
        for (name, node) in &mut found.nodes {
            let settings = wanted.nodes.get(name).map(|n| &n.sysctls);
            node.sysctls.retain(|key, _| settings.is_some_and(|s| s.contains_key(key)));
        }
        assert_eq!(&found, wanted, "after\n{plan}");
        plan
    }
}

/// Up, up again, an edit, links cut and restored, down, down again.
fn a_life(bench: &mut Bench<'_>) {
    let lab = small().lab();
    let wanted = bench.wanted(&lab, &[]);
    assert!(!bench.converge(&wanted).is_empty());
    assert!(bench.converge(&wanted).is_empty());

    let mut edited = small();
    edited.ring = (200, 10);
    edited.chords = vec![(1, 3, 50, 5)];
    let edited = edited.lab();
    let state = bench.wanted(&edited, &[]);
    let plan = bench.converge(&state);
    let rebuilds = |c: &Change| matches!(c, Change::CreateNamespace { .. } | Change::SetSysctl { .. });
    assert!(!plan.actions.iter().any(|a| rebuilds(&a.change)), "{plan}");

    for link in edited.links.iter().map(|l| l.name.as_str()).step_by(3) {
        let cut = bench.wanted(&edited, &[link]);
        let plan = bench.converge(&cut);
        assert_eq!(plan.actions.len(), 1, "{plan}");
        assert!(!bench.converge(&state).is_empty());
    }
    // A lab that starts with cut links.
    bench.converge(&State::default());
    let cut = bench.wanted(&edited, &["eb01.s0--eb01.s1", "fa.s0--h1.s0"]);
    bench.converge(&cut);
    bench.converge(&state);
    assert!(!bench.converge(&State::default()).is_empty());
    assert!(bench.converge(&State::default()).is_empty());
}

/// Links that become bundles, lose members, get others, and become plain links again.
fn a_bundle(bench: &mut Bench<'_>) {
    let with = |members, real| Shape { lag: (members, real), ..small() }.lab();
    let (plain, three) = (with(3, false), with(3, true));
    let goal = bench.wanted(&plain, &[]);
    bench.converge(&goal);
    let whole = bench.wanted(&three, &[]);
    let plan = bench.converge(&whole);
    let others = |c: &Change| c.node().starts_with("fa") || c.node().starts_with('h');
    assert!(
        !plan.actions.iter().any(|a| others(&a.change)),
        "a ring that changes touches the fabric\n{plan}"
    );
    let mut faults = Faults::default();
    faults.set_member("eb01.s0--eb01.s1", 2, true);
    let hurt = desired(&three, &faults, bench.options);
    // one end of the member, and the queues of both ends of the bundle
    let costs = if bench.options.bonds { 3 } else { 0 };
    assert_eq!(bench.converge(&hurt).actions.len(), costs);
    faults.cut.insert("eb01.s0--eb01.s1".to_owned());
    let cut = desired(&three, &faults, bench.options);
    bench.converge(&cut);
    bench.converge(&whole);
    // from nothing to a lab with a cut member and a cut bundle
    faults.cut = ["eb02.s0--eb02.s1".to_owned()].into();
    bench.converge(&State::default());
    let broken = desired(&three, &faults, bench.options);
    bench.converge(&broken);
    let five = bench.wanted(&with(5, true), &[]);
    bench.converge(&five);
    bench.converge(&goal);
    bench.converge(&State::default());
}

/// Only the nodes in scope are looked at and changed.
fn a_scope(bench: &mut Bench<'_>) {
    let lab = small().lab();
    let wanted = bench.wanted(&lab, &[]);
    bench.converge(&wanted);
    let cut = bench.wanted(&lab, &["eb01.s0--eb01.s1"]);
    let nodes = BTreeSet::from(["eb01.s0".to_owned(), "eb01.s1".to_owned()]);
    let seen = bench.kernel.observe(&Scope { nodes: Some(nodes.clone()) }).unwrap();
    assert_eq!(seen.nodes.keys().cloned().collect::<BTreeSet<_>>(), nodes);
    let plan = diff(&cut.only(&nodes), &seen);
    assert_eq!(plan.actions.len(), 1, "{plan}");
    bench.kernel.apply(&plan, &mut |_| ()).unwrap();
    assert!(bench.converge(&cut).is_empty());
    bench.converge(&State::default());
}

/// A plan that is out of date is refused where it goes wrong, and nothing after it is begun.
fn a_refusal(bench: &mut Bench<'_>) {
    let lab = small().lab();
    let wanted = bench.wanted(&lab, &[]);
    let plan = diff(&wanted, &State::default());
    bench.kernel.apply(&plan, &mut |_| ()).unwrap();
    let creates = |c: &Change| matches!(c, Change::CreateLink { .. });
    let links: Vec<_> = plan.actions.iter().filter(|a| creates(&a.change)).cloned().collect();
    let count = links.len();
    let error = bench.kernel.apply(&Plan { actions: links }, &mut |_| ()).unwrap_err();
    assert_eq!((error.source.errno, error.others), (libc::EEXIST, count - 1), "{error}");
    assert!(error.to_string().starts_with("+ link eb01.s0:"), "{error}");
    let again = bench.kernel.apply(&plan, &mut |_| ()).unwrap_err();
    assert!(matches!(again.action.map(|a| a.change), Some(Change::CreateNamespace { .. })));
    assert!(bench.converge(&wanted).is_empty());
    bench.converge(&State::default());
}

/// A case of the shared suite.
type Case = fn(&mut Bench<'_>);

const CASES: [(&str, Case); 4] =
    [("a life", a_life), ("a bundle", a_bundle), ("a scope", a_scope), ("a refusal", a_refusal)];

#[test]
fn in_memory() {
    for (name, case) in CASES {
        println!("{name}");
        let mut kernel = MemoryKernel::new();
        case(&mut Bench { kernel: &mut kernel, options: Options::full() });
        assert_eq!(kernel, MemoryKernel::new());
    }
}

#[test]
fn on_the_linux_kernel() {
    on_linux(|kernel, options| {
        for (name, case) in CASES {
            println!("{name}");
            case(&mut Bench { kernel, options });
        }
    });
}

#[test]
fn what_others_own_is_neither_seen_nor_touched() {
    on_linux(|kernel, options| {
        let lab = small().lab();
        let wanted = desired(&lab, &Faults::default(), options);
        Bench { kernel, options }.converge(&wanted);
        // Routes of agents and of BIRD, and an address, a neighbour and a link that a person made.
        let foreign = "fe80::99".parse().unwrap();
        let index = wanted.nodes["eb01.s0"].interfaces["to-s1"].ifindex;
        let hand = addr::Address { ifindex: index, ip: "2001:db8:ffff::1".parse().unwrap(), prefix_len: 64 };
        let routed = |protocol| {
            let dst = format!("2001:db8:{protocol}::/48").parse().unwrap();
            route::Route::unicast(dst, protocol, foreign, index)
        };
        let elsewhere = netns::create().unwrap();
        let near = kernel.namespace("eb01.s0").unwrap().try_clone_to_owned().unwrap();
        let end =
            |netns, name, ifindex| link::LinkEnd { netns, name, ifindex, mac: [2, 0, 0, 0, 0, 7], mtu: 1500 };
        let pair = link::create_veth(&end(near.as_fd(), "by-hand", 77), &end(elsewhere.as_fd(), "far", 78));
        Socket::open(socket::ROUTE).unwrap().request(&pair).unwrap();
        let socket = kernel.socket("eb01.s0").unwrap();
        let mut requests: Vec<_> = [99, 201, 12].map(|p| route::add(&routed(p), rtnl::Mode::Create)).into();
        requests.extend([addr::add(&hand), neigh::set_permanent(index, foreign, [2, 0, 0, 0, 0, 9])]);
        socket.all(&requests).unwrap();
        assert!(Bench { kernel, options }.converge(&wanted).is_empty());
        let mut edited = small();
        edited.chords.clear();
        Bench { kernel, options }.converge(&desired(&edited.lab(), &Faults::default(), options));
        let socket = kernel.socket("eb01.s0").unwrap();
        for protocol in [99, 201, 12] {
            let filter = route::Filter { protocol: Some(protocol), table: None };
            let found = route::dump(socket, filter).unwrap();
            assert_eq!(found.iter().map(|r| r.dst).collect::<Vec<_>>(), [routed(protocol).dst]);
        }
        assert!(link::by_name(socket, "by-hand").is_ok());
        assert!(addr::dump(socket).unwrap().iter().any(|i| i.address == hand));
        Bench { kernel, options }.converge(&State::default());
    });
}

#[test]
fn a_damaged_lab_is_repaired_and_a_second_orchestrator_takes_over() {
    on_linux(|kernel, options| {
        let lab = small().lab();
        let wanted = desired(&lab, &Faults::default(), options);
        Bench { kernel, options }.converge(&wanted);
        let index = wanted.nodes["eb01.s0"].interfaces["to-s1"].ifindex;
        let host_index = wanted.nodes["h1.s0"].interfaces["fa"].ifindex;
        kernel.socket("eb01.s0").unwrap().request(&link::delete(index)).unwrap();
        let small_mtu = link::Change { mtu: Some(1400), ..link::Change::default() };
        let damage = [link::set_up(host_index, false), link::set(host_index, &small_mtu)];
        kernel.socket("h1.s0").unwrap().all(&damage).unwrap();
        kernel.socket("eb02.s0").unwrap().request(&link::set_up(1, false)).unwrap();
        let base = kernel.path("x").parent().unwrap().to_owned();
        let mut second = LinuxKernel::open(&base, "t").unwrap();
        let plan = Bench { kernel: &mut second, options }.converge(&wanted);
        assert!(plan.counts().add > 0);
        assert!(Bench { kernel, options }.converge(&wanted).is_empty());
        // Another lab with the same names sees nothing of it and does not take it.
        let mut stranger = LinuxKernel::open(&base, "other").unwrap();
        assert_eq!(stranger.observe(&Scope::all()).unwrap(), State::default());
        let error = stranger.apply(&diff(&wanted, &State::default()), &mut |_| ()).unwrap_err();
        assert_eq!(error.source.errno, libc::EEXIST);
        assert!(error.to_string().contains("does not belong to testbed:other"), "{error}");
        drop(second);
        Bench { kernel, options }.converge(&State::default());
        assert_eq!(std::fs::read_dir(&base).unwrap().count(), 0);
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any lab, any edit of it, any cut: one plan is enough.
    #[test]
    fn one_plan_is_always_enough(from in shape(), to in shape(), cut in any::<prop::sample::Index>()) {
        let mut kernel = MemoryKernel::new();
        let mut bench = Bench { kernel: &mut kernel, options: Options::full() };
        let (from, to) = (from.lab(), to.lab());
        let wanted = bench.wanted(&from, &[]);
        bench.converge(&wanted);
        let link = &from.links[cut.index(from.links.len())];
        let cut_state = bench.wanted(&from, &[&link.name]);
        let members = usize::from(testbed::plan::bonded_members(link));
        prop_assert_eq!(bench.converge(&cut_state).actions.len(), 1 + members);
        let goal = bench.wanted(&to, &[]);
        bench.converge(&goal);
        bench.converge(&wanted);
        bench.converge(&State::default());
        prop_assert_eq!(kernel, MemoryKernel::new());
    }

    /// An edit of one link's numbers costs its two queues in every plane and nothing else.
    #[test]
    fn numbers_cost_their_queues(shape in shape(), capacity in 801..900u32, rtt in 101..120u32) {
        let before = Shape { chords: vec![(0, 2, 1, 1)], sites: vec![true, false, true, false], ..shape };
        let after = Shape { chords: vec![(0, 2, capacity, rtt)], ..before.clone() };
        let state = |s: &Shape| desired(&s.lab(), &Faults::default(), Options::full());
        let plan = diff(&state(&after), &state(&before));
        prop_assert_eq!(plan.actions.len(), 2 * usize::from(before.planes));
        let is_queue = |c: &Change| matches!(c, Change::SetQueue { from: Some(_), .. });
        prop_assert!(plan.actions.iter().all(|a| is_queue(&a.change)));
    }
}

/// The same random edits on the real kernel, a few of them.
#[test]
fn random_edits_on_linux() {
    on_linux(|kernel, options| {
        let config = ProptestConfig { cases: 6, failure_persistence: None, ..ProptestConfig::default() };
        let mut runner = proptest::test_runner::TestRunner::new(config);
        let kernel = std::cell::RefCell::new(kernel);
        let result = runner.run(&shape(), |shape| {
            let mut kernel = kernel.borrow_mut();
            let mut bench = Bench { kernel: &mut **kernel, options };
            let wanted = bench.wanted(&shape.lab(), &[]);
            bench.converge(&wanted);
            Ok(())
        });
        result.unwrap();
        Bench { kernel: &mut **kernel.borrow_mut(), options }.converge(&State::default());
    });
}

/// Time of a lab of 200 nodes and 600 links, beside the same messages without any plan. Run with
/// `--ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn two_hundred_nodes() {
    on_linux(|kernel, options| {
        let chords = (0..86).flat_map(|i| [(i, (i * 7 + 3) % 86, 400, 9), (i, (i * 13 + 29) % 86, 400, 9)]);
        let sites = (0..86).map(|i| i % 7 == 0).collect();
        let lab =
            Shape { planes: 2, sites, chords: chords.collect(), ring: (400, 10), lag: (1, false) }.lab();
        println!("{} nodes, {} links", lab.nodes.len(), lab.links.len());
        let start = Instant::now();
        let wanted = desired(&lab, &Faults::default(), options);
        println!("desired        {:?}", start.elapsed());
        let start = Instant::now();
        let plan = diff(&wanted, &State::default());
        println!("diff           {:?}, {} actions", start.elapsed(), plan.actions.len());
        for round in 0..3 {
            let (start, cpu_before) = (Instant::now(), cpu());
            let mut marks = Vec::new();
            kernel.apply(&plan, &mut |p| marks.push((p.next, start.elapsed()))).unwrap();
            println!(
                "apply          {:?}, of CPU {:?}: {marks:?}",
                start.elapsed(),
                cpu().saturating_sub(cpu_before)
            );
            for _ in 0..3 {
                let (start, cpu_before) = (Instant::now(), cpu());
                let state = kernel.observe(&Scope::all()).unwrap();
                let left = diff(&wanted, &state);
                println!(
                    "observe + diff {:?}, of CPU {:?}",
                    start.elapsed(),
                    cpu().saturating_sub(cpu_before)
                );
                assert!(left.is_empty());
            }
            let start = Instant::now();
            let down = diff(&State::default(), &kernel.observe(&Scope::all()).unwrap());
            kernel.apply(&down, &mut |_| ()).unwrap();
            println!("down           {:?}", start.elapsed());
            let cpu_before = cpu();
            let floor = floor(&wanted);
            println!(
                "floor          {floor:?}, of CPU {:?} (round {round})",
                cpu().saturating_sub(cpu_before)
            );
        }
    });
}

/// CPU time of this process so far: what a busy machine does not blur.
fn cpu() -> Duration {
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF).unwrap();
    let part = |t: nix::sys::time::TimeVal| {
        Duration::from_micros(u64::try_from(t.tv_sec() * 1_000_000 + t.tv_usec()).unwrap())
    };
    part(usage.user_time()) + part(usage.system_time())
}

/// The least that netlink needs for the same lab: namespaces, pairs, ends up, addresses and neighbours, without
/// marks, names, settings, routes and queues.
fn floor(wanted: &State) -> Duration {
    let places = wanted.places();
    let start = Instant::now();
    let names: Vec<&String> = wanted.nodes.keys().collect();
    let fds = netns::create_many(names.len()).unwrap();
    let borrowed: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    let sockets = netns::tour(&borrowed, |_| Socket::open(socket::ROUTE).unwrap()).unwrap();
    let at = |node: &str| fds[names.iter().position(|n| *n == node).unwrap()].as_fd();
    let mut pairs = Vec::new();
    for (node, state) in &wanted.nodes {
        for (name, i) in &state.interfaces {
            let (peer_node, peer_name) = places[&i.peer_ifindex];
            if (node.as_str(), name.as_str()) > (peer_node, peer_name) {
                continue;
            }
            let p = &wanted.nodes[peer_node].interfaces[peer_name];
            let a = link::LinkEnd { netns: at(node), name, ifindex: i.ifindex, mac: i.mac.0, mtu: i.mtu };
            let b = link::LinkEnd {
                netns: at(peer_node),
                name: peer_name,
                ifindex: p.ifindex,
                mac: p.mac.0,
                mtu: p.mtu,
            };
            pairs.push(link::create_veth(&a, &b));
        }
    }
    Socket::open(socket::ROUTE).unwrap().all(&pairs).unwrap();
    for (mut socket, state) in sockets.into_iter().zip(wanted.nodes.values()) {
        let mut requests = vec![link::set_up(1, true)];
        for i in state.interfaces.values() {
            requests.push(link::set_up(i.ifindex, true));
            let address = |a: &ipnet::Ipv6Net| addr::Address {
                ifindex: i.ifindex,
                ip: a.addr(),
                prefix_len: a.prefix_len(),
            };
            requests.extend(i.addresses.iter().map(|a| addr::add(&address(a))));
            requests.extend(i.neighbours.iter().map(|(ip, mac)| neigh::set_permanent(i.ifindex, *ip, mac.0)));
        }
        socket.all(&requests).unwrap();
    }
    start.elapsed()
}
