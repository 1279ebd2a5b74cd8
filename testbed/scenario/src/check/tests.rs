use proptest::prelude::*;

use super::*;

const GOOD: &str = "
scenario: everything
about: >
  Every kind of step
  at least once.
shows: [R1, O1]
lab: ebb-small
seed: 7
sample: 500ms
warnings: [program.exited]
traffic:
  gold: {from: h1.prn, to: h1.lla, rate: 200}
  all: {class: 'icp,gold,silver,bronze', rate: 10}
  late: {from: site:prn, class: bronze}
steps:
  - never: traffic:gold lost > 0
    for: 2s
  - pick: {hop_of: {from: prn, to: lla}, as: hop}
  - pick: {links: plane:2 & kind:core, as: victim}
  - cut: $victim
    for: 3s
    name: a cut in plane 2
  - at: 5s
    cut_member: {links: $hop, member: 2}
  - after: 1s
    impair: {links: $hop, from: role:router, loss: 12.5%, jitter: 1ms, delay: 10ms, rate: 100G}
  - flap: {links: srlg:ohio-duct, period: 2s, count: 3, jitter: 100ms}
  - restore: all
  - when: plane:1 lsps.on_backup == 0
    within: 20s
    crash: eb01.chi
  - boot: eb01.chi
  - kill: lsp-agent@eb01.*
  - stop: ebb-controller
  - pause: bird@fa.prn
    for: 1s
  - crash_loop: openr@eb02.chi
  - resume: openr
  - rpc: {from: h1.prn, to: plane:1, program: lsp-agent, fault: delay, delay: 200ms}
    for: 5s
  - delete: {node: eb01.prn, what: group}
  - drain: {plane: 2}
  - undrain: {plane: '1,2'}
  - drain: {links: $victim, soft: true}
  - cycle: 1
  - apply: ebb-small
  - exec: {node: h1.prn, command: [ping, -c1, h1.lla], prints: 0% packet loss}
  - send: late
  - silence: late, gold
  - parallel:
      - wait: 1s
      - steps:
          - expect: plane:* state == ready
            within: 10s
            stable_for: 1s
  - repeat: {times: 2, steps: [{restart: bird@fa.prn}]}
  - for_each:
      planes: 1,2
      as: plane
      steps:
        - expect: plane:$plane lsps.programmed > 0
  - eventually: event:lsp.repaired count > 0
";

fn find(name: &str) -> Result<Lab, String> {
    topologies::labs::load(name).map(|(lab, _)| lab).map_err(|e| e.to_string())
}

#[test]
fn every_kind_of_step_is_read() {
    let loaded = load(GOOD, "all.yaml", &find).unwrap_or_else(|e| panic!("{e}"));
    let scenario = &loaded.scenario;
    assert_eq!((loaded.lab_name.as_str(), scenario.steps.len(), scenario.seed), ("ebb-small", 29, 7));
    assert_eq!(scenario.title.about, "Every kind of step at least once.");
    let manual: Vec<_> = scenario.traffic.iter().map(|(name, t)| (name.as_str(), t.manual)).collect();
    assert_eq!(manual, [("all", false), ("gold", false), ("late", true)]);
    let mut steps = scenario.steps.clone();
    // the lab itself is not of interest
    for step in &mut steps {
        if let Action::Apply { lab, .. } = &mut step.action {
            lab.nodes.clear();
            lab.links.clear();
        }
    }
    let text = serde_json::to_string(scenario).unwrap();
    assert_eq!(serde_json::from_str::<Scenario>(&text).unwrap(), *scenario);
    let told: Vec<String> = steps
        .iter()
        .map(|s| format!("{} {:?} {:?} {:.120}", s.id, s.timing, s.hold, format!("{:?}", s.action)))
        .collect();
    insta::assert_snapshot!(told.join("\n"));
}

const HEAD: &str =
    "scenario: x\nabout: y\nlab: ebb-small\ntraffic: {gold: {from: h1.prn, to: h1.lla}}\nsteps:\n";

#[test]
fn bad_files_say_where_and_what_to_write() {
    let mut shown = String::new();
    for steps in [
        "",
        "  - cut: plane:9\n",
        "  - {cut: plane:2, crash: eb01.chi}\n",
        "  - {}\n",
        "  - {cuts: plane:2}\n",
        "  - {cut: $victim}\n",
        "  - {pick: {links: plane:1, as: Victim}}\n",
        "  - {pick: {as: x}}\n",
        "  - {expect: plane:1 stat == ready}\n",
        "  - {expect: plane:1 state == ready, within: 10}\n",
        "  - {wait: 1s, within: 3s}\n",
        "  - {wait: 1s, for: 3s}\n",
        "  - {wait: 1s, at: 1s, after: 2s}\n",
        "  - {never: traffic:silver lost > 0}\n",
        "  - {send: silver}\n",
        "  - {delay: {links: plane:1, rtt: 5ms}}\n",
        "  - {impair: {links: plane:1}}\n",
        "  - {impair: {links: plane:1, loss: 120%}}\n",
        "  - {flap: {links: plane:1, period: 10ms, count: 1}}\n",
        "  - {kill: bird@eb09.prn}\n",
        "  - {rpc: {from: h1.prn, to: plane:1, fault: delay}}\n",
        "  - {drain: {}}\n",
        "  - {drain: {plane: 5}}\n",
        "  - {exec: {node: h1.prn}}\n",
        "  - {apply: nowhere.yaml}\n",
        "  - {repeat: {times: 0, steps: []}}\n",
        "  - {for_each: {as: x, steps: []}}\n",
        "  - {wait: 1:30}\n",
        "  - {crash: eb01.chi, wait: 90000s}\n",
    ] {
        let errors = load(&format!("{HEAD}{steps}"), "bad.yaml", &find).expect_err(steps);
        shown += &format!("{}{errors}\n\n", steps);
    }
    for text in [
        "",
        "scenario: x\n",
        "scenario: X Y\nabout: y\nlab: ebb-smal\nsteps: []\n",
        "scenario: x\nabout: ''\nlab: ebb-small\nlap: y\nsteps: []\n",
        "scenario: x\nabout: y\nlab: ebb-small\ntraffic: {a: {from: eb01.prn}, b: {rate: 50000}}\nsteps: []\n",
    ] {
        let errors = load(text, "bad.yaml", &find).expect_err(text);
        shown += &format!("{text}{errors}\n\n");
    }
    insta::assert_snapshot!(shown);
}

#[test]
fn the_schema_is_the_file_beside_it() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/scenario.schema.json");
    let now = format!("{:#}\n", crate::schema());
    if std::env::var("INSTA_UPDATE").is_ok_and(|v| v == "always") {
        std::fs::write(path, &now).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(kept == now, "scenario.schema.json is not what the types say: INSTA_UPDATE=always writes it");
}

proptest! {
    #[test]
    fn any_text_is_a_scenario_or_is_refused(text in "\\PC{0,200}") {
        let _ = load(&text, "any.yaml", &find);
    }

    /// A good file with some characters replaced.
    #[test]
    fn a_spoiled_file_is_read_or_refused(at in 0..GOOD.len(), by in "[ -~\\n]{0,3}") {
        if GOOD.is_char_boundary(at) {
            let end = (at + by.len()).min(GOOD.len());
            let _ = load(&format!("{}{by}{}", &GOOD[..at], &GOOD[end..]), "spoiled.yaml", &find);
        }
    }
}
