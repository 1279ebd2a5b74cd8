//! The bundle of the paper's Figure 7: exactly those groups and routes, duplicates included.

use super::memory::{driver, lsp, path_with};
use crate::label::{Mesh, Sid};
use crate::proto::{self, Phase};

const SID: Sid = Sid { src: 1, dst: 2, mesh: Mesh::Gold, version: false };

/// Label of a hop: 1000 + 32 * first letter + last letter or digit of the far end, so that tests can name it.
fn label(a: &str, b: &str) -> u32 {
    let of = |s: &str| u32::from(s.as_bytes()[0]) * 128 + u32::from(s.as_bytes()[s.len() - 1]);
    (of(a) * 31 + of(b)) % 400_000 + 16
}

fn bundle() -> proto::Bundle {
    let lsps = [
        "SRC G H J DST",
        "SRC A B M2 J DST",
        "SRC C D M1 M2 J DST",
        "SRC X Y M1 M2 J DST",
        "SRC E F M1 I K DST",
    ];
    let lsps = lsps.map(|p| lsp(path_with(&p.split(' ').collect::<Vec<_>>(), label), None));
    proto::Bundle { sid: SID.encode(), lsps: lsps.to_vec() }
}

fn l(hop: &str) -> u32 {
    let (a, b) = hop.split_once('>').unwrap();
    label(a, b)
}

#[test]
fn source_pushes_to_the_intermediates() {
    let mut source = driver("SRC", 1, &["G", "A", "C", "X", "E"], None);
    let (results, _) = source.program(Phase::Source, vec![bundle()]).unwrap();
    assert!(results[0].ok, "{}", results[0].error);
    let known = source.engine.known();
    let group = known.groups.values().next().unwrap();
    let sid = SID.encode();
    let stacks: Vec<_> =
        group.iter().map(|(id, _)| (known.members[id].ifindex, known.members[id].labels.to_vec())).collect();
    assert_eq!(
        stacks,
        [
            (1000, vec![l("G>H"), l("H>J"), l("J>DST")]),
            (1001, vec![l("A>B"), l("B>M2"), sid]),
            (1002, vec![l("C>D"), l("D>M1"), sid]),
            (1003, vec![l("X>Y"), l("Y>M1"), sid]),
            (1004, vec![l("E>F"), l("F>M1"), sid]),
        ]
    );
    assert_eq!(source.kernel.truth, *known);
}

#[test]
fn intermediates_have_their_share_with_duplicates() {
    let routes = |name: &str, neighbors: &[&str]| {
        let mut transit = driver(name, 9, neighbors, None);
        let (results, _) = transit.program(Phase::Transit, vec![bundle()]).unwrap();
        assert!(results[0].ok, "{}", results[0].error);
        let sids = transit.kernel.truth.sids.clone();
        let exits = sids
            .into_iter()
            .flat_map(|(label, exits)| exits.into_iter().map(move |e| (label, e.ifindex, e.labels.to_vec())));
        exits.collect::<Vec<_>>()
    };
    let sid = SID.encode();
    let to_m2 = (sid, 1000, vec![l("M2>J"), l("J>DST")]);
    assert_eq!(routes("M1", &["M2", "I"]), [to_m2.clone(), to_m2, (sid, 1001, vec![l("I>K"), l("K>DST")])]);
    assert_eq!(routes("M2", &["J"]), [(sid, 1000, vec![l("J>DST")])]);
    for crossed in ["J", "B", "D", "DST"] {
        assert_eq!(routes(crossed, &[]), []);
    }
}
