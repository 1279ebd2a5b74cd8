//! etcd, the lock service of the planes' controllers: members on hosts of the lab, reached in-band.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use ebb::fence::etcd::{CLIENT_PORT, PEER_PORT};
use nix::mount::{MsFlags, mount};
use topologies::lab::{Lab, Node};

use super::files::run_dir;

/// Where Debian puts it.
const PROGRAM: &str = "/usr/bin/etcd";
/// The package that brings it.
const PACKAGE: &str = "etcd-server";

/// Where etcd is on this machine.
///
/// # Errors
/// It is not; the message says what to install.
pub fn installed() -> Result<&'static str, String> {
    let there = Path::new(PROGRAM).exists();
    there.then_some(PROGRAM).ok_or_else(|| {
        format!("{PROGRAM} is not there: labs with `lock: etcd` need `apt-get install {PACKAGE}`")
    })
}

/// The package that is missing on this machine for this lab, if any.
pub fn missing(lab: &Lab) -> Option<&'static str> {
    (!lab.etcd_members().is_empty() && !Path::new(PROGRAM).exists()).then_some(PACKAGE)
}

/// Where a host's member keeps its data.
fn folder(host: &str) -> PathBuf {
    run_dir(host).join("etcd")
}

/// The command line of the member on `node`. Members of another cluster have another folder below the same one.
pub fn command_line(lab: &Lab, node: &Node, dir: &Path) -> Vec<String> {
    let members = lab.etcd_members();
    let url = |node: &Node, port: u16| format!("http://[{}]:{port}", node.address);
    let cluster: Vec<String> = members
        .iter()
        .filter_map(|member| Some(format!("{member}={}", url(lab.node(member)?, PEER_PORT))))
        .collect();
    let token = members.join("+");
    let data = dir.join("etcd").join(&token);
    let (client, peer) = (url(node, CLIENT_PORT), url(node, PEER_PORT));
    let options: [(&str, &str); 13] = [
        ("name", &node.name),
        ("data-dir", &data.to_string_lossy()),
        ("listen-client-urls", &client),
        ("advertise-client-urls", &client),
        ("listen-peer-urls", &peer),
        ("initial-advertise-peer-urls", &peer),
        ("initial-cluster", &cluster.join(",")),
        ("initial-cluster-token", &token),
        ("initial-cluster-state", "new"),
        // an emulated processor can be late; a lease is at least one and a half election timeouts
        ("heartbeat-interval", "250"),
        ("election-timeout", "2500"),
        ("logger", "zap"),
        ("log-level", "warn"),
    ];
    let option = |(name, value): (&str, &str)| format!("--{name}={value}");
    [PROGRAM.to_owned()].into_iter().chain(options.map(option)).collect()
}

/// Makes the folders of the members' data, each a file system that takes only the memory that is written: etcd reserves
/// 64 MiB a log file, which in a tmpfs would be memory, and a ramfs knows no reserving.
pub fn prepare(lab: &Lab) -> anyhow::Result<()> {
    let mounted = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    for folder in lab.etcd_members().iter().map(|member| folder(member)) {
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let text = folder.to_string_lossy();
        if mounted.lines().any(|line| line.split(' ').nth(1) == Some(&text)) {
            continue;
        }
        let done = mount(Some("ramfs"), &folder, Some("ramfs"), MsFlags::empty(), Some("mode=0700"));
        done.with_context(|| format!("cannot mount a ramfs on {}", folder.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_know_each_other_by_their_addresses() {
        let base = topologies::builtin("ebb-small").unwrap();
        let (lab, _) = Lab::from_str(&format!("{base}\ncontrollers: {{lock: etcd}}\n"), "lab.yaml").unwrap();
        let node = lab.node("h1.frc").unwrap();
        let argv = command_line(&lab, node, Path::new("/run/x"));
        let has = |option: &str| assert!(argv.iter().any(|a| a == option), "no {option} in {argv:?}");
        has("--name=h1.frc");
        has("--data-dir=/run/x/etcd/h1.atn+h1.frc+h1.lla");
        has("--listen-peer-urls=http://[2001:db8:3:1::1]:2380");
        has(
            "--initial-cluster=h1.atn=http://[2001:db8:2:1::1]:2380,h1.frc=http://[2001:db8:3:1::1]:2380,h1.lla=http://[2001:db8:4:1::1]:2380",
        );
    }
}
