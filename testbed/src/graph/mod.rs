//! The lab as a picture: Graphviz DOT, Mermaid, or text for a terminal.
//!
//! In this room: pure functions from the resolved lab to text. Not in this room: the state of anything that runs
//! (that is `status`), and drawing programs.

mod dot;
mod mermaid;
mod text;

pub use dot::dot;
pub use mermaid::mermaid;
pub use text::text;

use std::fmt::Write as _;

use topologies::lab::{Lab, Link, LinkKind, Node, Role};

/// Whether the node is in the picture: with a plane given, other planes' routers are not.
fn shows_node(node: &Node, plane: Option<u8>) -> bool {
    plane.is_none() || node.plane.is_none() || node.plane == plane
}

/// Whether the link is in the picture.
fn shows_link(link: &Link, plane: Option<u8>) -> bool {
    plane.is_none() || link.plane.is_none() || link.plane == plane
}

/// A name that every drawing language takes: `eb01.prn` as `eb01_prn`. Names of nodes hold letters, digits, dots
/// and dashes; doubling the underscore for a dash keeps different names different.
fn identifier(name: &str) -> String {
    name.replace('-', "__").replace('.', "_")
}

/// What stands beside a link: capacity, RTT and shared-risk groups for the backbone, nothing elsewhere.
fn label(link: &Link) -> String {
    if link.kind != LinkKind::Core {
        return String::new();
    }
    let mut text = format!("{} {}", link.capacity, link.rtt);
    if !link.srlgs.is_empty() {
        let _ = write!(text, " [{}]", link.srlgs.join(", "));
    }
    text
}

/// Planes in the picture.
fn planes(lab: &Lab, plane: Option<u8>) -> impl Iterator<Item = u8> + '_ {
    lab.planes.iter().map(|p| p.id).filter(move |id| plane.is_none() || plane == Some(*id))
}

/// Aggregators and hosts, by name.
fn fabric(lab: &Lab) -> impl Iterator<Item = &Node> {
    lab.nodes.iter().filter(|n| n.role != Role::Router)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::testlab;

    #[test]
    fn pictures() {
        let lab = testlab::small();
        insta::assert_snapshot!("dot", dot(&lab, None));
        insta::assert_snapshot!("mermaid_plane_2", mermaid(&lab, Some(2)));
        insta::assert_snapshot!("text", text(&lab, None));
        insta::assert_snapshot!("text_plane_1", text(&lab, Some(1)));
    }

    #[test]
    fn a_plane_hides_the_others() {
        let lab = testlab::small();
        for picture in [dot(&lab, Some(1)), mermaid(&lab, Some(1)), text(&lab, Some(1))] {
            assert!(picture.contains("eb01") && !picture.contains("eb02"), "{picture}");
        }
    }

    #[test]
    fn text_fits_a_terminal() {
        for (name, _) in topologies::builtins() {
            let (lab, _) = topologies::labs::load(name).unwrap();
            let picture = text(&lab, None);
            let widest = picture.lines().map(|l| l.chars().count()).max().unwrap_or(0);
            assert!(widest <= 100, "{widest} columns:\n{picture}");
        }
    }

    #[test]
    fn identifiers_stay_different() {
        assert_ne!(identifier("h1.a-b"), identifier("h1.a.b"));
    }
}
