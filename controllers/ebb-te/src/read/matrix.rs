//! Demand matrices: a line per demand, `from to [class] rate`, or SNDlib's matrices.

use te::Mesh;
use topologies::Problem;
use topologies::units::Capacity;

use super::{Defaults, is_sndlib, problem, sndlib};
use crate::network::NetworkDemand;

/// Reads demands. A line holds source, destination, class (`gold`, `silver`, `bronze`; without one the traffic is
/// shared out) and rate (`40G`), parted by commas or blanks; `#` begins a comment.
pub fn matrix(text: &str, file: &str) -> Result<Vec<NetworkDemand>, Problem> {
    if is_sndlib(text) {
        return sndlib(text, file, &Defaults::default()).map(|n| n.demands);
    }
    let mut demands = Vec::new();
    for (line, number) in text.trim_start_matches('\u{feff}').lines().zip(1..) {
        let line = line.split('#').next().unwrap_or("");
        let parts: Vec<&str> = if line.contains(',') {
            line.split(',').map(str::trim).collect()
        } else {
            line.split_whitespace().collect()
        };
        match parts[..] {
            [] | [""] => {}
            [from, to, rate] => demands.push(demand(file, number, [from, to], None, rate)?),
            [from, to, class, rate] => {
                let mesh = Mesh::BY_PRIORITY.into_iter().find(|m| m.name() == class).ok_or_else(|| {
                    problem(
                        file,
                        number,
                        format!("unknown class {class:?}"),
                        "classes are gold, silver and bronze",
                    )
                })?;
                demands.push(demand(file, number, [from, to], Some(mesh), rate)?);
            }
            _ => {
                let message = format!("a demand has 3 or 4 parts, this line has {}", parts.len());
                return Err(problem(
                    file,
                    number,
                    message,
                    "write `from to class rate`, such as `prn atn gold 40G`",
                ));
            }
        }
    }
    Ok(demands)
}

fn demand(
    file: &str,
    line: usize,
    [from, to]: [&str; 2],
    mesh: Option<Mesh>,
    rate: &str,
) -> Result<NetworkDemand, Problem> {
    if from.is_empty() || to.is_empty() {
        return Err(problem(file, line, "a node's name is empty", "write `from to class rate`"));
    }
    if from == to {
        let message = format!("the demand goes from {from:?} to itself");
        return Err(problem(file, line, message, "write two different nodes"));
    }
    let hint = "a rate is a number and a unit of T, G, M or k, such as 40G";
    let bps: Capacity =
        rate.parse().map_err(|_| problem(file, line, format!("{rate:?} is not a rate"), hint))?;
    Ok(NetworkDemand { from: from.to_owned(), to: to.to_owned(), mesh, bps: bps.0 })
}
