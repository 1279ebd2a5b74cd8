//! Mermaid, for Markdown pages.

use std::fmt::Write as _;

use topologies::lab::{Lab, Role};

use super::{identifier, label, planes, shows_link, shows_node};

/// The lab as a Mermaid flowchart: a subgraph per plane, aggregators round, hosts as stadiums.
pub fn mermaid(lab: &Lab, plane: Option<u8>) -> String {
    let mut text = "graph LR\n".to_string();
    for plane in planes(lab, plane) {
        let _ = writeln!(text, "  subgraph plane{plane} [plane {plane}]");
        for router in lab.routers(plane) {
            let _ = writeln!(text, "    {}[\"{}\"]", identifier(&router.name), router.name);
        }
        text += "  end\n";
    }
    for node in lab.nodes.iter().filter(|n| shows_node(n, plane)) {
        let (open, close) = match node.role {
            Role::Router => continue,
            Role::Aggregator => ("((", "))"),
            Role::Host => ("([", "])"),
        };
        let _ = writeln!(text, "  {}{open}\"{}\"{close}", identifier(&node.name), node.name);
    }
    for link in lab.links.iter().filter(|l| shows_link(l, plane)) {
        let label = label(link);
        let label = if label.is_empty() { label } else { format!("|\"{label}\"|") };
        let _ = writeln!(text, "  {} ---{label} {}", identifier(&link.a.node), identifier(&link.b.node));
    }
    text
}
