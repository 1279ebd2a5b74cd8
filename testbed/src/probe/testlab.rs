//! Small labs for tests: full mesh in every plane, so that one static route per loopback can stand for the IGP.

use std::fmt::Write as _;

use topologies::lab::Lab;

/// Two DCs, prn and lla, a midpoint chi, two planes.
pub fn small() -> Lab {
    build(&["prn", "lla"], &["chi"], 2)
}

/// DCs with a host each and midpoints. Sites are numbered in order from 1.
pub fn build(dcs: &[&str], midpoints: &[&str], planes: u8) -> Lab {
    let mut text = format!("name: test\nplanes: {planes}\nsites:\n");
    let kinds = dcs.iter().map(|s| (s, "dc")).chain(midpoints.iter().map(|s| (s, "midpoint")));
    for ((site, kind), id) in kinds.zip(1..) {
        let _ = writeln!(text, "  {site}: {{id: {id}, kind: {kind}}}");
    }
    text += "links:\n";
    let sites: Vec<&&str> = dcs.iter().chain(midpoints).collect();
    for (i, a) in sites.iter().enumerate() {
        for b in &sites[i + 1..] {
            let _ = writeln!(
                text,
                "  - {{between: [{a}, {b}], capacity: 400G, rtt: 24ms, members: 4, srlgs: [{a}-duct]}}"
            );
        }
    }
    match Lab::from_str(&text, "test.yaml") {
        Ok((lab, _)) => lab,
        Err(errors) => panic!("{errors}\n{text}"),
    }
}
