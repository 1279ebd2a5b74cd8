//! Readers: what they make of good files, what they say about bad ones, and that nothing makes them panic.
#![allow(clippy::unwrap_used)]

use ebb_te::network::{Network, resolve};
use ebb_te::read::{Defaults, graphml, matrix, sndlib, topology};
use proptest::prelude::*;
use te::Mesh;

const GRAPHML: &str = r#"<?xml version="1.0" encoding="utf-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <key attr.name="LinkSpeedRaw" attr.type="double" for="edge" id="e1" />
  <key attr.name="LinkSpeed" attr.type="string" for="edge" id="e2" />
  <key attr.name="LinkSpeedUnits" attr.type="string" for="edge" id="e3" />
  <key attr.name="label" attr.type="string" for="node" id="n1" />
  <key attr.name="Longitude" attr.type="double" for="node" id="n2" />
  <key attr.name="Latitude" attr.type="double" for="node" id="n3" />
  <key attr.name="Network" attr.type="string" for="graph" id="g1" />
  <graph edgedefault="undirected">
    <data key="g1">Three</data>
    <node id="0"><data key="n1">London</data><data key="n2">-0.128</data><data key="n3">51.507</data></node>
    <node id="1"><data key="n1">New York</data><data key="n2">-74.006</data><data key="n3">40.713</data></node>
    <node id="2"><data key="n1">London</data></node>
    <edge source="0" target="1"><data key="e1">10000000000.0</data></edge>
    <edge source="1" target="0"><data key="e2">&gt;40</data><data key="e3">G</data></edge>
    <edge source="1" target="2" />
    <edge source="2" target="2" />
  </graph>
</graphml>
"#;

const SNDLIB: &str = "?SNDlib native format; type: network; version: 1.0
# a network of three

META (
  granularity = none
  unit = GBITPERSEC
)
NODES (
  London ( -0.128 51.507 )
  NewYork ( -74.006 40.713 )
  Drawn ( 300.0 200.0 )
)
LINKS (
  L1 ( London NewYork ) 0.00 0.00 0.00 0.00 ( 10.00 133.00 40.00 200.00 )
  L2 ( NewYork Drawn ) 25.00 0.00 0.00 0.00 ( )
)
DEMANDS (
  D1 ( London Drawn ) 1 4.50 UNLIMITED
  D2 ( Drawn London ) 2 1.00 UNLIMITED
)
ADMISSIBLE_PATHS (
  D1 ( P1 ( L1 L2 ) )
)
";

const MATRIX: &str = "# from to class rate
prn atn gold 40G
prn, lla, 2.5T   # shared out
";

fn names(n: &Network) -> Vec<&str> {
    n.nodes.iter().map(|n| n.name.as_str()).collect()
}

#[test]
fn graphml_with_speeds_coordinates_and_their_lack() {
    let n = graphml(GRAPHML, "three.graphml", &Defaults::default()).unwrap();
    assert_eq!((n.name.as_str(), names(&n)), ("Three", vec!["London", "New York", "London#2"]));
    let link = |from: &str, to: &str, at: usize| {
        let l = n.links.iter().filter(|l| l.from == from && l.to == to).nth(at).unwrap();
        (l.rtt_us, l.capacity_bps, l.interface.as_str())
    };
    assert_eq!(link("London", "New York", 0), (55_702, 10_000_000_000, "to-New York"));
    assert_eq!(link("New York", "London", 1), (55_702, 40_000_000_000, "to-London.2"));
    assert_eq!(link("New York", "London#2", 0), (10_000, 100_000_000_000, "to-London#2"));
    assert_eq!(n.links.len(), 6);
    assert_eq!(
        n.notes,
        [
            "1 edge(s) from a node to itself left out",
            "1 edge(s) without a speed got the default capacity",
            "1 edge(s) without coordinates at both ends got the default RTT"
        ]
    );
    let g = n.graph().unwrap();
    assert!(g.links().all(|l| g.reverse(l).is_some()));
    let directed = GRAPHML.replace("\"undirected\"", "\"directed\"");
    assert_eq!(graphml(&directed, "d", &Defaults::default()).unwrap().links.len(), 3);
}

#[test]
fn sndlib_with_modules_units_and_demands() {
    let n = sndlib(SNDLIB, "/some/where/three.txt", &Defaults::default()).unwrap();
    assert_eq!((n.name.as_str(), names(&n)), ("three", vec!["London", "NewYork", "Drawn"]));
    let all: Vec<_> = n.links.iter().map(|l| (l.from.as_str(), l.rtt_us, l.capacity_bps)).collect();
    assert_eq!(
        all,
        [
            ("London", 55_702, 40_000_000_000),
            ("NewYork", 55_702, 40_000_000_000),
            ("NewYork", 10_000, 25_000_000_000),
            ("Drawn", 10_000, 25_000_000_000)
        ]
    );
    let demands: Vec<_> = n.demands.iter().map(|d| (d.from.as_str(), d.to.as_str(), d.bps)).collect();
    assert_eq!(demands, [("London", "Drawn", 4_500_000_000), ("Drawn", "London", 2_000_000_000)]);
    // without META the unit is Mbit/s
    let plain = SNDLIB.replace("  unit = GBITPERSEC\n", "");
    assert_eq!(sndlib(&plain, "x", &Defaults::default()).unwrap().demands[0].bps, 4_500_000);
}

#[test]
fn matrices_with_and_without_classes() {
    let m = matrix(MATRIX, "m").unwrap();
    assert_eq!((m[0].mesh, m[0].bps), (Some(Mesh::Gold), 40_000_000_000));
    assert_eq!((m[1].mesh, m[1].to.as_str(), m[1].bps), (None, "lla", 2_500_000_000_000));
    assert_eq!(matrix(SNDLIB, "m").unwrap().len(), 2);

    let n = topology(topologies::builtin("ebb-6x4").unwrap(), "lab", &Defaults::default()).unwrap();
    let g = n.graph().unwrap();
    let parts: Vec<u64> = resolve(&g, &m, [30, 30, 40]).unwrap().iter().map(|d| d.bps / 1_000_000).collect();
    assert_eq!(parts, [40_000, 750_000, 750_000, 1_000_000]);
    assert_eq!(resolve(&g, &matrix("prn nowhere 1G", "m").unwrap(), [30, 30, 40]), Err("nowhere".into()));
}

/// A plane of a lab: sites for routers, the plane's own links, its share of the demands.
#[test]
fn a_plane_of_a_lab() {
    let text = topologies::builtin("ebb-6x4").unwrap();
    let plane = |plane| topology(text, "ebb-6x4.yaml", &Defaults { plane, ..Defaults::default() });
    let (one, four) = (plane(1).unwrap(), plane(4).unwrap());
    assert_eq!((one.nodes.len(), one.sources.len(), one.links.len()), (12, 6, 46));
    assert_eq!(four.links.len(), 44, "nyc-ams is absent from plane 4");
    assert_eq!(one.reserved_percent, Some([50, 80, 100]));
    let extra = one.demands.iter().find(|d| d.from == "frc" && d.to == "prn" && d.mesh == Some(Mesh::Bronze));
    assert!(extra.unwrap().bps >= 15_000_000_000);
    let e = plane(5).unwrap_err();
    assert_eq!(e[0].to_string(), "ebb-6x4.yaml: lab ebb-6x4 has no plane 5\nhint: planes are 1 to 4");
}

#[test]
fn errors_say_what_and_where() {
    let edit = |text: &str, from: &str, to: &str| {
        assert!(text.contains(from));
        text.replacen(from, to, 1)
    };
    let g = |from, to| graphml(&edit(GRAPHML, from, to), "g", &Defaults::default()).unwrap_err();
    let s = |from, to| sndlib(&edit(SNDLIB, from, to), "s", &Defaults::default()).unwrap_err();
    let m = |text| matrix(text, "m").unwrap_err();
    for (problem, line, words) in [
        (g("target=\"1\"", "target=\"9\""), 15, "the edge's target is \"9\", and no node has this id"),
        (g("<edge source=\"1\" target=\"2\" />", "<edge source=\"1\" />"), 17, "the edge has no target"),
        (g("id=\"1\">", "id=\"0\">"), 13, "two nodes have the id \"0\""),
        (g("10000000000.0", "fast"), 15, "speed is \"fast\", which is not a number"),
        (g("10000000000.0", "-1"), 15, "speed is \"-1\""),
        (g("e3\">G<", "e3\">X<"), 16, "LinkSpeedUnits is \"X\""),
        (g("</graph>", ""), 20, "not XML"),
        (g("<graph edge", "<tree edge"), 19, "not XML"),
        (s("( London NewYork )", "( London Paris )"), 14, "\"L1\" names the node \"Paris\""),
        (s("0.00 ( 10.00", "( 10.00"), 14, "expected the setup cost, found `(`"),
        (s("25.00", "many"), 15, "the installed capacity is \"many\", which is not a number"),
        (s("25.00", "1e99"), 15, "the capacity is"),
        (s("Drawn ( 300.0 200.0 )", "London ( 1 2 )"), 11, "node \"London\" is listed twice"),
        (s("GBITPERSEC", "FURLONGS"), 6, "unknown unit \"FURLONGS\""),
        (
            s("  D1 ( P1 ( L1 L2 ) )\n)", "  D1 ( P1 ( L1 L2 ) )"),
            21,
            "section ADMISSIBLE_PATHS is not closed",
        ),
        (s("LINKS (", "LINKS"), 14, "expected `(` after \"LINKS\""),
        (s("London NewYork ) 0.00", "London London ) 0.00"), 14, "joins \"London\" to itself"),
        (m("a b gold"), 1, "\"gold\" is not a rate"),
        (m("a b 1G\na b c d 1G"), 2, "a demand has 3 or 4 parts, this line has 5"),
        (m("\n\na b golden 1G"), 3, "unknown class \"golden\""),
        (m("a a 1G"), 1, "from \"a\" to itself"),
        (m(",b,1G"), 1, "a node's name is empty"),
    ] {
        assert!(problem.message.contains(words), "{problem} lacks {words}");
        assert_eq!(problem.line, line, "{problem}");
        assert!(problem.hint.is_some());
    }
    let e = sndlib("NODES ( )", "s", &Defaults::default()).unwrap_err();
    assert!(e.message.contains("not SNDlib"));
    let e = graphml("<html/>", "g", &Defaults::default()).unwrap_err();
    assert!(e.message.contains("<html>, not <graphml>"), "{e}");
    let e = topology("no: lab", "lab.yaml", &Defaults::default()).unwrap_err();
    assert!(e[0].to_string().starts_with("lab.yaml:1:"), "{}", e[0]);
}

/// Everything that is done with what a reader gives.
fn use_it(text: &str) {
    let _ = matrix(text, "m");
    for network in [
        graphml(text, "g", &Defaults::default()).ok(),
        sndlib(text, "s", &Defaults::default()).ok(),
        topology(text, "t", &Defaults::default()).ok(),
    ]
    .into_iter()
    .flatten()
    {
        let _ = network.gravity(u64::MAX);
        if let Ok(graph) = network.graph() {
            let _ = resolve(&graph, &network.demands, [30, 30, 40]);
        }
    }
}

/// A valid file with a few edits: characters changed, pieces cut, doubled, swapped for words that mean something.
fn mutated() -> impl Strategy<Value = String> {
    const WORDS: [&str; 16] = [
        "(", ")", "<", ">", "\"", "NODES", "LINKS", "DEMANDS", "unit", "=", "1e308", "-0", "NaN", "\u{0}",
        "\u{feff}", "é",
    ];
    let edit = (0..4u8, any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..WORDS.len());
    let base = prop::sample::select(vec![GRAPHML, SNDLIB, MATRIX]);
    (base, prop::collection::vec(edit, 1..6)).prop_map(|(base, edits)| {
        let mut text: Vec<char> = base.chars().collect();
        for (kind, a, b, word) in edits {
            let (a, b) = (a.index(text.len() + 1), b.index(text.len() + 1));
            let (from, to) = (a.min(b), a.max(b));
            match kind {
                0 => drop(text.drain(from..to.min(from + 40))),
                1 => drop(text.splice(from..from, WORDS[word].chars())),
                2 => {
                    let piece: Vec<char> = text[from..to.min(from + 80)].to_vec();
                    text.splice(to..to, piece);
                }
                _ => text.truncate(to),
            }
        }
        text.into_iter().collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn arbitrary_bytes_are_no_danger(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let text = String::from_utf8_lossy(&bytes);
        use_it(&text);
        // past the gate of the format
        use_it(&format!("?SNDlib native format\n{text}"));
    }

    #[test]
    fn arbitrary_entries_are_no_danger(body in "([ -~\n]|\\PC){0,200}") {
        use_it(&format!("?SNDlib native format\n{body}"));
        use_it(&format!("<graphml><graph>{body}</graph></graphml>"));
    }

    #[test]
    fn mutated_files_are_no_danger(text in mutated()) {
        use_it(&text);
    }
}
