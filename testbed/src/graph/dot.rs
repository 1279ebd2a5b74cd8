//! Graphviz.

use std::fmt::Write as _;

use topologies::lab::{Lab, LinkKind, Role};

use super::{fabric, identifier, label, planes, shows_link};

/// The lab for `dot -Tsvg`: a cluster per plane, aggregators and hosts outside.
pub fn dot(lab: &Lab, plane: Option<u8>) -> String {
    let mut text = format!(
        "graph \"{}\" {{\n  layout=fdp; overlap=false; splines=true;\n  \
           node [shape=box, style=\"rounded,filled\", fillcolor=white, fontname=\"sans-serif\"];\n  \
           edge [fontname=\"sans-serif\", fontsize=9];\n",
        lab.name
    );
    for plane in planes(lab, plane) {
        let _ = writeln!(text, "  subgraph cluster_plane{plane} {{\n    label=\"plane {plane}\";");
        for router in lab.routers(plane) {
            let _ = writeln!(text, "    {} [label=\"{}\"];", identifier(&router.name), router.name);
        }
        text += "  }\n";
    }
    for node in fabric(lab) {
        let color = if node.role == Role::Aggregator { "lightblue" } else { "lightyellow" };
        let _ = writeln!(text, "  {} [label=\"{}\", fillcolor={color}];", identifier(&node.name), node.name);
    }
    for link in lab.links.iter().filter(|l| shows_link(l, plane)) {
        let style = if link.kind == LinkKind::Core { "" } else { "color=gray, " };
        let _ = writeln!(
            text,
            "  {} -- {} [{style}label=\"{}\"];",
            identifier(&link.a.node),
            identifier(&link.b.node),
            label(link)
        );
    }
    text += "}\n";
    text
}
