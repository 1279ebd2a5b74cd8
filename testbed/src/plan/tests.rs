//! The plan without a kernel: what a small lab needs, what edits cost, and that every plan is enough.

use std::collections::BTreeSet;

use topologies::lab::Lab;

use super::{Change, Faults, Options, Phase, Plan, State, desired, diff, shut};

const SMALL: &str = "
name: small
planes: 1
delay: emulated
scale: {bandwidth: 1/20000}
sites:
  prn: {id: 1, kind: dc}
  lla: {id: 2, kind: dc}
  chi: {id: 3, kind: midpoint}
links:
  - {between: [prn, chi], capacity: 400G, rtt: 10ms}
  - {between: [chi, lla], capacity: 400G, rtt: 20ms}
";

fn lab(text: &str) -> Lab {
    Lab::from_str(text, "small.yaml").unwrap().0
}

fn wanted(text: &str) -> State {
    desired(&lab(text), &Faults::default(), Options::full())
}

/// The plan of an edit from one text to another.
fn edit(from: &str, to: &str) -> Plan {
    diff(&wanted(to), &wanted(from))
}

#[test]
fn a_small_lab_from_nothing() {
    insta::assert_snapshot!(diff(&wanted(SMALL), &State::default()).to_string());
}

#[test]
fn nothing_to_do_says_so() {
    let plan = edit(SMALL, SMALL);
    assert!(plan.is_empty());
    assert_eq!(plan.to_string(), "Nothing to do: the lab is as it should be.\n");
}

#[test]
fn phases_come_in_order() {
    let plan = diff(&wanted(SMALL), &State::default());
    let phases: Vec<Phase> = plan.actions.iter().map(|a| a.change.phase()).collect();
    assert!(phases.is_sorted());
}

#[test]
fn another_capacity_costs_its_two_queues() {
    let plan = edit(SMALL, &SMALL.replace("400G, rtt: 20ms", "200G, rtt: 20ms"));
    insta::assert_snapshot!(plan.to_string(), @"
    Queues (2)
      ~ queue on eb01.chi:to-lla: 10000000 bit/s, 4 bands, 10000 us delay  (it is 20000000 bit/s, 4 bands, 10000 us delay)
      ~ queue on eb01.lla:to-chi: 10000000 bit/s, 4 bands, 10000 us delay  (it is 20000000 bit/s, 4 bands, 10000 us delay)
    0 to add, 2 to change, 0 to remove.
    ");
}

#[test]
fn another_rtt_costs_its_two_queues() {
    let plan = edit(SMALL, &SMALL.replace("rtt: 20ms", "rtt: 30ms"));
    assert_eq!(plan.actions.len(), 2, "{plan}");
    assert!(plan.actions.iter().all(|a| matches!(a.change, Change::SetQueue { from: Some(_), .. })));
}

#[test]
fn another_link_costs_only_itself() {
    let more = format!("{SMALL}  - {{between: [prn, lla], capacity: 100G, rtt: 50ms}}\n");
    let plan = edit(SMALL, &more);
    let ends = ["eb01.lla", "eb01.prn"];
    assert!(plan.actions.iter().all(|a| ends.contains(&a.change.node())), "{plan}");
    assert_eq!(plan.counts().remove, 0, "{plan}");
    // One pair; two ends up, with an address, a neighbour, a queue, input and a label each.
    assert_eq!(plan.actions.len(), 1 + 2 * 6, "{plan}");
    let back = edit(&more, SMALL);
    assert_eq!(back.counts().remove, back.actions.len(), "{back}");
    assert_eq!(back.actions.len(), 1, "{back}");
}

#[test]
fn a_site_that_goes_takes_only_its_part() {
    let fewer = SMALL
        .replace("  chi: {id: 3, kind: midpoint}\n", "  xxx: {id: 3, kind: midpoint}\n")
        .replace("chi", "xxx");
    let plan = edit(SMALL, &fewer);
    for action in &plan.actions {
        let Change::RemoveNamespace { node } = &action.change else { continue };
        assert_eq!(node, "eb01.chi");
    }
    let touched: BTreeSet<&str> = plan.actions.iter().map(|a| a.change.node()).collect();
    assert_eq!(touched.into_iter().collect::<Vec<_>>(), ["eb01.chi", "eb01.lla", "eb01.prn", "eb01.xxx"]);
    assert!(
        !plan
            .actions
            .iter()
            .any(|a| matches!(a.change, Change::SetSysctl { .. }) && a.change.node() != "eb01.xxx")
    );
}

#[test]
fn a_cut_is_one_action_and_a_restore_puts_back_what_the_kernel_dropped() {
    let lab = lab(SMALL);
    let whole = desired(&lab, &Faults::default(), Options::full());
    let cuts = Faults::cut(["fa.prn--h1.prn", "eb01.chi--eb01.prn"]);
    let cut = desired(&lab, &cuts, Options::full());
    let plan = diff(&cut, &whole);
    insta::assert_snapshot!(plan.to_string(), @"
    Take down (2)
      ~ interface eb01.chi:to-prn down  (the link is cut)
      ~ interface fa.prn:h1 down  (the link is cut)
    0 to add, 2 to change, 0 to remove.
    ");
    let back = diff(&whole, &cut);
    let phases: BTreeSet<Phase> = back.actions.iter().map(|a| a.change.phase()).collect();
    assert_eq!(phases.into_iter().collect::<Vec<_>>(), [Phase::Links, Phase::Addresses]);
    // Each: up, link-local address, neighbour; and the aggregator's route to its host.
    assert_eq!(back.actions.len(), 3 + 3 + 1, "{back}");
}

#[test]
fn a_link_that_becomes_a_bundle_costs_only_itself() {
    let real = SMALL.replace("400G, rtt: 20ms", "400G, rtt: 20ms, members: 2, lag: emulated");
    insta::assert_snapshot!(edit(SMALL, &real).to_string());
    // as a number alone it costs nothing
    assert!(edit(SMALL, &real.replace("emulated}", "declared}")).is_empty());
}

#[test]
fn a_cut_member_costs_itself_and_the_rate_of_its_bundle() {
    let lab = lab(&SMALL.replace("400G, rtt: 20ms", "400G, rtt: 20ms, members: 4, lag: emulated"));
    let mut faults = Faults::default();
    faults.set_member("eb01.chi--eb01.lla", 3, true);
    let whole = desired(&lab, &Faults::default(), Options::full());
    let hurt = desired(&lab, &faults, Options::full());
    insta::assert_snapshot!(diff(&hurt, &whole).to_string(), @"
    Take down (1)
      ~ interface eb01.chi:to-lla_3 down  (the link is cut)
    Queues (2)
      ~ queue on eb01.chi:to-lla: 15000000 bit/s, 4 bands, 10000 us delay  (it is 20000000 bit/s, 4 bands, 10000 us delay)
      ~ queue on eb01.lla:to-chi: 15000000 bit/s, 4 bands, 10000 us delay  (it is 20000000 bit/s, 4 bands, 10000 us delay)
    0 to add, 3 to change, 0 to remove.
    ");
    assert_eq!(diff(&whole, &hurt).actions.len(), 3);
}

/// Labs with and without encryption, whole and hurt, each made of each other in a kernel that refuses what Linux would.
#[test]
fn encrypted_links_come_and_go_and_are_cut() {
    use crate::apply::memory::MemoryKernel;
    use crate::apply::{Kernel as _, Scope};

    let bundle = SMALL.replace("400G, rtt: 20ms", "400G, rtt: 20ms, members: 2, lag: emulated");
    let secured = bundle.replace("planes: 1", "planes: 1\nmacsec: {}");
    let mut hurt = Faults::cut(["eb01.chi--eb01.prn"]);
    hurt.set_member("eb01.chi--eb01.lla", 2, true);
    let states: Vec<State> = [&bundle, &secured]
        .into_iter()
        .flat_map(|text| [Faults::default(), hurt.clone()].map(|f| desired(&lab(text), &f, Options::full())))
        .collect();
    let chi = &states[3].nodes["eb01.chi"].interfaces;
    for (name, up) in
        [("ct-prn", false), ("to-prn", false), ("ct-lla_1", true), ("to-lla_2", false), ("ct-lla_2", false)]
    {
        assert_eq!(chi[name].up, up, "{name}");
    }
    assert!(chi["to-lla"].bond && chi["to-lla"].over.is_none());
    assert_eq!(chi["to-lla_1"].over, Some(chi["ct-lla_1"].ifindex));
    assert_eq!(chi["ct-lla_1"].mtu, chi["to-lla_1"].mtu + rtnl::macsec::OVERHEAD);
    for from in &states {
        for to in &states {
            let mut kernel = MemoryKernel::new();
            for state in [from, to] {
                let plan = diff(state, &kernel.observe(&Scope::all()).unwrap());
                kernel.apply(&plan, &mut |_| ()).unwrap_or_else(|e| panic!("{e}\n{plan}"));
                assert_eq!(&kernel.state, state);
            }
        }
    }
}

#[test]
fn another_round_trip_time_costs_the_two_delays() {
    let lab = lab(SMALL);
    let mut faults = Faults::default();
    faults.rtts.insert("eb01.chi--eb01.lla".to_owned(), topologies::units::Rtt(80_000));
    let plan = diff(&desired(&lab, &faults, Options::full()), &wanted(SMALL));
    insta::assert_snapshot!(plan.to_string(), @"
    Queues (2)
      ~ queue on eb01.chi:to-lla: 20000000 bit/s, 4 bands, 40000 us delay  (it is 20000000 bit/s, 4 bands, 10000 us delay)
      ~ queue on eb01.lla:to-chi: 20000000 bit/s, 4 bands, 40000 us delay  (it is 20000000 bit/s, 4 bands, 10000 us delay)
    0 to add, 2 to change, 0 to remove.
    ");
}

#[test]
fn an_interface_that_its_router_keeps_down_is_left_down() {
    let lab = lab(SMALL);
    let whole = desired(&lab, &Faults::default(), Options::full());
    let mut wanted = whole.clone();
    shut(&mut wanted, &BTreeSet::from([("eb01.chi".to_owned(), "to-prn".to_owned())]));
    // what the kernel has once the router has taken it down
    let mut cuts = Faults::default();
    cuts.cut.insert("eb01.chi--eb01.prn".to_owned());
    let there = desired(&lab, &cuts, Options::full());
    assert_eq!(diff(&wanted, &there).actions, []);
    // and once it has brought it up again: what was dropped is put back
    let mut back = there.clone();
    back.nodes.get_mut("eb01.chi").unwrap().interfaces.get_mut("to-prn").unwrap().up = true;
    let plan = diff(&whole, &back);
    assert!(
        plan.actions.iter().all(|a| a.change.phase() == Phase::Addresses) && plan.actions.len() == 2,
        "{plan}"
    );
}

#[test]
fn without_mpls_there_is_no_label_anywhere() {
    let state = desired(&lab(SMALL), &Faults::default(), Options::without_mpls());
    assert!(
        state
            .nodes
            .values()
            .all(|n| n.labels.is_empty() && !n.sysctls.contains_key("net.mpls.platform_labels"))
    );
    assert!(state.nodes.values().flat_map(|n| n.interfaces.values()).all(|i| !i.mpls_input));
}

#[test]
fn plans_and_states_survive_json() {
    let state = wanted(SMALL);
    let plan = diff(&state, &State::default());
    let text = serde_json::to_string(&(&state, &plan)).unwrap();
    assert_eq!(serde_json::from_str::<(State, Plan)>(&text).unwrap(), (state, plan));
}
