//! GraphML as the Internet Topology Zoo writes it: labels and coordinates on nodes, speeds on edges.

use std::collections::{BTreeMap, BTreeSet};

use roxmltree::{Document, Node, ParsingOptions};
use te::NodeSpec;
use topologies::Problem;

use super::geo::{Place, rtt_us};
use super::{Defaults, problem, whole_bps};
use crate::network::Network;

/// Elements at most: a network has thousands of nodes, not millions.
const MOST_ELEMENTS: u32 = 2_000_000;

struct Reader<'a> {
    document: &'a Document<'a>,
    file: &'a str,
    /// Attribute name by (element, key id).
    keys: BTreeMap<(&'a str, &'a str), &'a str>,
}

/// A node of the file.
struct Site {
    name: String,
    place: Option<Place>,
}

/// Reads a GraphML topology. Links get their speed from `LinkSpeedRaw` (bit/s), else from `LinkSpeed` and
/// `LinkSpeedUnits`, else the default; their RTT from the coordinates of their ends, else the default.
pub fn graphml(text: &str, file: &str, defaults: &Defaults) -> Result<Network, Problem> {
    let options = ParsingOptions { nodes_limit: MOST_ELEMENTS, ..ParsingOptions::default() };
    let document = Document::parse_with_options(text, options).map_err(|e| {
        let hint = "the file must be well-formed XML in UTF-8, with one <graphml> element around everything";
        problem(file, usize::try_from(e.pos().row).unwrap_or(0), format!("not XML: {e}"), hint)
    })?;
    let root = document.root_element();
    let mut reader = Reader { document: &document, file, keys: BTreeMap::new() };
    if root.tag_name().name() != "graphml" {
        let found = format!("the outermost element is <{}>, not <graphml>", root.tag_name().name());
        return Err(reader.at(
            root,
            found,
            "give a GraphML file, an SNDlib file in native format, or a lab file",
        ));
    }
    for key in root.children().filter(|n| n.tag_name().name() == "key") {
        if let (Some(id), Some(name)) = (key.attribute("id"), key.attribute("attr.name")) {
            reader.keys.insert((key.attribute("for").unwrap_or("all"), id), name);
        }
    }
    let graph = root.children().find(|n| n.tag_name().name() == "graph");
    let graph =
        graph.ok_or_else(|| reader.at(root, "there is no <graph> element".into(), "one is needed"))?;
    reader.network(graph, defaults)
}

impl<'a> Reader<'a> {
    fn at(&self, node: Node<'_, '_>, message: String, hint: &str) -> Problem {
        let line = self.document.text_pos_at(node.range().start).row;
        problem(self.file, usize::try_from(line).unwrap_or(0), message, hint)
    }

    /// The `<data>` of an element by attribute name.
    fn data(&self, node: Node<'a, 'a>) -> BTreeMap<&'a str, &'a str> {
        let element = node.tag_name().name();
        let entry = |d: Node<'a, 'a>| {
            let key = d.attribute("key")?;
            let name = self.keys.get(&(element, key)).or_else(|| self.keys.get(&("all", key)))?;
            Some((*name, d.text().unwrap_or("").trim()))
        };
        node.children().filter(|d| d.tag_name().name() == "data").filter_map(entry).collect()
    }

    fn network(&self, graph: Node<'a, 'a>, defaults: &Defaults) -> Result<Network, Problem> {
        let own = self.data(graph);
        let name = own.get("Network").or(own.get("label")).copied().or(graph.attribute("id"));
        let mut network = Network { name: name.unwrap_or("graph").to_owned(), ..Network::default() };
        let sites = self.sites(graph, &mut network)?;
        let both_ways = graph.attribute("edgedefault") != Some("directed");
        let (mut loops, mut guessed_speed, mut guessed_rtt) = (0u32, 0u32, 0u32);
        for edge in graph.children().filter(|n| n.tag_name().name() == "edge") {
            let end = |which: &str| {
                let id = edge.attribute(which).ok_or_else(|| {
                    self.at(
                        edge,
                        format!("the edge has no {which}"),
                        "write source and target, each a node's id",
                    )
                })?;
                sites.get(id).ok_or_else(|| {
                    let message = format!("the edge's {which} is {id:?}, and no node has this id");
                    self.at(
                        edge,
                        message,
                        "every end of an edge must be the id of a <node> of the same graph",
                    )
                })
            };
            let (a, b) = (end("source")?, end("target")?);
            if a.name == b.name {
                loops += 1;
                continue;
            }
            let speed = self.speed(edge)?;
            let rtt = a.place.zip(b.place).map(|(a, b)| rtt_us(a, b));
            guessed_speed += u32::from(speed.is_none());
            guessed_rtt += u32::from(rtt.is_none());
            let before = network.links.len();
            let capacity = speed.unwrap_or(defaults.capacity_bps);
            network.connect(&a.name, &b.name, rtt.unwrap_or(defaults.rtt_us), capacity);
            let directed = edge.attribute("directed").map_or(!both_ways, |d| d == "true");
            if directed {
                network.links.truncate(before + 1);
            }
        }
        let mut note = |n: u32, what: &str| {
            if n > 0 {
                network.notes.push(format!("{n} edge(s) {what}"));
            }
        };
        note(loops, "from a node to itself left out");
        note(guessed_speed, "without a speed got the default capacity");
        note(guessed_rtt, "without coordinates at both ends got the default RTT");
        Ok(network)
    }

    /// Nodes by id. Labels become names where they are unique.
    fn sites(&self, graph: Node<'a, 'a>, network: &mut Network) -> Result<BTreeMap<&'a str, Site>, Problem> {
        let mut sites = BTreeMap::new();
        let mut names = BTreeSet::new();
        for node in graph.children().filter(|n| n.tag_name().name() == "node") {
            let id = node.attribute("id").ok_or_else(|| {
                self.at(node, "the node has no id".into(), "write <node id=\"…\"> with an id of its own")
            })?;
            let data = self.data(node);
            let number = |name| data.get(name).and_then(|t| t.parse::<f64>().ok());
            let place = number("Latitude").zip(number("Longitude")).and_then(|(a, o)| Place::new(a, o));
            let label = data.get("label").copied().filter(|l| !l.is_empty()).unwrap_or(id);
            let mut name = label.to_owned();
            if !names.insert(name.clone()) {
                name = format!("{label}#{id}");
                names.insert(name.clone());
            }
            network.nodes.push(NodeSpec { name: name.clone(), no_transit: false });
            if sites.insert(id, Site { name, place }).is_some() {
                return Err(self.at(node, format!("two nodes have the id {id:?}"), "ids must be unique"));
            }
        }
        // "a#1" may be a label, too
        let distinct: BTreeSet<&str> = network.nodes.iter().map(|n| n.name.as_str()).collect();
        if distinct.len() != network.nodes.len() {
            let message = "node labels are ambiguous even with their ids".to_owned();
            return Err(self.at(graph, message, "give every node a label of its own"));
        }
        Ok(sites)
    }

    /// Speed of an edge, bit/s.
    fn speed(&self, edge: Node<'a, 'a>) -> Result<Option<u64>, Problem> {
        let data = self.data(edge);
        let (number, unit) = if let Some(raw) = data.get("LinkSpeedRaw") {
            (*raw, 1.0)
        } else if let Some(speed) = data.get("LinkSpeed") {
            let unit = match data.get("LinkSpeedUnits").copied().unwrap_or("") {
                "T" => 1e12,
                "G" => 1e9,
                "M" => 1e6,
                "K" | "k" => 1e3,
                "" => 1.0,
                other => {
                    let message = format!("the edge's LinkSpeedUnits is {other:?}");
                    return Err(self.at(edge, message, "units are T, G, M and K"));
                }
            };
            // operators publish bounds as well: `>10`
            (speed.trim_start_matches(['<', '>', '~', '=']), unit)
        } else {
            return Ok(None);
        };
        let wrong = || {
            let message =
                format!("the edge's speed is {number:?}, which is not a number of bit/s up to 10 Pbit/s");
            self.at(edge, message, "write a plain number, such as 10000000000")
        };
        let bps = number.parse::<f64>().ok().and_then(|n| whole_bps(n, unit)).ok_or_else(wrong)?;
        Ok((bps > 0).then_some(bps))
    }
}
