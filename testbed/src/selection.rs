//! What a user's words select in a lab that runs: nodes, links, programs.

use topologies::lab::Lab;
use topologies::select::{SelectError, Selector};

use crate::api::protocol::ProgramStatus;
use crate::failure::{Code, Failure};

fn usage(error: &SelectError) -> Failure {
    Failure::new(Code::Usage, error.to_string())
}

fn selector(text: &str) -> Result<Selector, Failure> {
    text.parse().map_err(|error| usage(&error))
}

/// Node names that a selector means.
pub fn nodes(lab: &Lab, text: &str) -> Result<Vec<String>, Failure> {
    let nodes = selector(text)?.nodes(lab).map_err(|e| usage(&e))?;
    Ok(nodes.into_iter().map(|n| n.name.clone()).collect())
}

/// Link names that a selector means.
pub fn links(lab: &Lab, text: &str) -> Result<Vec<String>, Failure> {
    let links = selector(text)?.links(lab).map_err(|e| usage(&e))?;
    Ok(links.into_iter().map(|l| l.name.clone()).collect())
}

/// Programs of a name, on the nodes of a selector or on any: `(node, program)`.
pub fn programs(
    lab: &Lab,
    running: &[ProgramStatus],
    name: &str,
    within: Option<&str>,
) -> Result<Vec<(String, String)>, Failure> {
    let place = within.unwrap_or("the lab");
    let within = within.map(|text| nodes(lab, text)).transpose()?;
    let here = |node: &String| within.as_ref().is_none_or(|within| within.contains(node));
    let chosen: Vec<_> = running
        .iter()
        .filter(|p| ::scenario::expr::is_called(&p.name, name) && here(&p.node))
        .map(|p| (p.node.clone(), p.name.clone()))
        .collect();
    if !chosen.is_empty() {
        return Ok(chosen);
    }
    let mut names: Vec<_> = running.iter().map(|p| p.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    Err(Failure::new(Code::Usage, format!("no program `{name}` in {place}"))
        .hint(format!("programs of this lab: {}", names.join(", "))))
}
