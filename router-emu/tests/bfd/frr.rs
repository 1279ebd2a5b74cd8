//! FRR's bfdd, to speak with and to compare with.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use crate::lab::{LINKS, Lab, NODES, link_local};

const ZEBRA: &str = "/usr/lib/frr/zebra";
const BFDD: &str = "/usr/lib/frr/bfdd";

/// Whether it is there.
pub fn is_here() -> bool {
    Path::new(ZEBRA).exists() && Path::new(BFDD).exists()
}

/// Starts it on a router, with a session on every link at `interval` ms and 3 packets.
pub async fn start(lab: &mut Lab, node: &'static str, interval: u64) {
    let folder = lab.path(node);
    let side = NODES.iter().position(|n| *n == node).unwrap();
    let mut config = format!(
        "log file {}\nlog timestamp precision 6\ndebug bfd peer\nbfd\n",
        folder.join("bfdd.log").display()
    );
    for (link, name) in LINKS.iter().enumerate() {
        let (peer, own) = (link_local(link, 1 - side), link_local(link, side));
        let _ = write!(
            config,
            " peer {peer} local-address {own} interface {name}\n  detect-multiplier 3\n  \
             receive-interval {interval}\n  transmit-interval {interval}\n !\n"
        );
    }
    std::fs::write(folder.join("bfdd.conf"), config).unwrap();
    std::fs::write(folder.join("zebra.conf"), "").unwrap();
    // its user writes there, not we
    for old in ["bfdd.log", "zserv"] {
        let _ = std::fs::remove_file(folder.join(old));
    }
    let file = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let arguments = |program: &str| {
        let mut list = vec!["-f".to_owned(), file(&format!("{program}.conf"))];
        list.extend(["-z".to_owned(), file("zserv"), "-i".to_owned(), file(&format!("{program}.pid"))]);
        list.extend(["--vty_socket".to_owned(), file("")]);
        list
    };
    lab.start(node, "zebra", ZEBRA, &arguments("zebra"));
    while !folder.join("zserv").exists() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut list = arguments("bfdd");
    list.extend(["--bfdctl".to_owned(), file("bfdd.sock")]);
    lab.start(node, "bfdd-out", BFDD, &list);
}

/// What its log says of a link's changes: time of day in microseconds, and the words.
pub fn changes(lab: &Lab, node: &str, link: usize) -> Vec<(u64, String)> {
    let here = format!("ifname:{}]", LINKS[link]);
    let log = lab.log(node, "bfdd");
    let lines = log.lines().filter(|line| line.contains("state-change") && line.contains(&here));
    let parse = |line: &str| {
        let clock = line.split_whitespace().nth(1).unwrap();
        let fields: Vec<f64> = clock.split(':').map(|field| field.parse().unwrap()).collect();
        let seconds = fields[0] * 3600.0 + fields[1] * 60.0 + fields[2];
        let words = line.split_once(&here).unwrap().1.trim().to_owned();
        (Duration::from_secs_f64(seconds).as_micros().try_into().unwrap(), words)
    };
    lines.map(parse).collect()
}
