//! Keys of encrypted circuits: what a network's key management would give out, made here for the life of the world.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::Context as _;
use router_emu::config::{MacsecConfig, SecuredCircuit};
use router_emu::key_agent::kdf;
use router_emu::key_agent::keys::{Given, Keys, from_hex, to_hex};
use topologies::lab::{Interface, Lab, Node, Wire};

/// What all keys of the world are made of.
const SECRET: &str = "/run/testbed/secret";

/// An encrypted end of a circuit.
struct Secured<'a> {
    interface: &'a str,
    wire: &'a Wire,
    /// Interface at the other end.
    peer: String,
    peer_node: &'a str,
}

/// The encrypted circuits of a node.
fn secured<'a>(lab: &'a Lab, node: &'a Node) -> impl Iterator<Item = Secured<'a>> {
    let of = move |i: &'a Interface| {
        let own = i.wire.iter().map(move |wire| Secured {
            interface: &i.name,
            wire,
            peer: i.peer_interface.clone(),
            peer_node: &i.peer_node,
        });
        let far =
            lab.node(&i.peer_node).and_then(|n| n.interfaces.iter().find(|f| f.name == i.peer_interface));
        let far = far.map_or(&[][..], |far| &far.members);
        let members = i.members.iter().zip(far).filter_map(move |(own, far)| {
            let wire = own.wire.as_ref()?;
            Some(Secured { interface: &own.name, wire, peer: far.name.clone(), peer_node: &i.peer_node })
        });
        own.chain(members)
    };
    node.interfaces.iter().flat_map(of)
}

/// What a router's configuration says of encryption.
pub fn config(lab: &Lab, node: &Node) -> Option<MacsecConfig> {
    let settings = lab.macsec.as_ref()?;
    let circuits = secured(lab, node)
        .map(|s| SecuredCircuit { interface: s.interface.to_owned(), wire: s.wire.name.clone() })
        .collect();
    Some(MacsecConfig { rotate: u64::try_from(settings.rotate.as_millis()).unwrap_or(u64::MAX), circuits })
}

/// The text of a router's key file. Both ends of a circuit get the same key under the same name, that of its lesser end.
fn key_file(lab: &Lab, node: &Node, secret: &[u8; 16]) -> anyhow::Result<String> {
    let given = |s: Secured<'_>| {
        let ends = [format!("{}:{}", node.name, s.interface), format!("{}:{}", s.peer_node, s.peer)];
        let ckn = ends.into_iter().min().unwrap_or_default();
        let cak = to_hex(&kdf::derive(secret, "testbed CAK", ckn.as_bytes()));
        (s.interface.to_owned(), Given { ckn, cak })
    };
    let keys: Keys = secured(lab, node).map(given).collect();
    Ok(serde_json::to_string_pretty(&keys)?)
}

/// Writes the key files of all routers that have encrypted circuits.
///
/// # Errors
/// A file cannot be written.
pub fn write(lab: &Lab) -> anyhow::Result<()> {
    if lab.macsec.is_none() {
        return Ok(());
    }
    let secret = secret(Path::new(SECRET))?;
    for node in lab.nodes.iter().filter(|node| secured(lab, node).next().is_some()) {
        let path = super::files::run_dir(&node.name).join("keys.json");
        let text = key_file(lab, node, &secret)?;
        let doing = || format!("cannot write {}", path.display());
        let draft = path.with_extension("new");
        let _ = fs::remove_file(&draft);
        private(&draft).and_then(|mut file| file.write_all(text.as_bytes())).with_context(doing)?;
        fs::rename(&draft, &path).with_context(doing)?;
    }
    Ok(())
}

/// The world's secret; made when it is asked for first.
fn secret(path: &Path) -> anyhow::Result<[u8; 16]> {
    match private(path) {
        Ok(mut file) => {
            let fresh: [u8; 16] = rand::random();
            file.write_all(to_hex(&fresh).as_bytes())?;
            Ok(fresh)
        }
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {
            let text = fs::read_to_string(path)?;
            let bytes = from_hex(text.trim()).and_then(|bytes| bytes.try_into().ok());
            bytes.with_context(|| format!("{} is no secret", path.display()))
        }
        Err(e) => Err(e).with_context(|| format!("cannot make {}", path.display())),
    }
}

/// A new file that only its owner can read.
fn private(path: &Path) -> std::io::Result<File> {
    File::options().write(true).create_new(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const LAB: &str = "
name: small
planes: 1
macsec: {rotate: 5s}
sites:
  prn: {id: 1, kind: dc}
  lla: {id: 2, kind: dc}
links:
  - {between: [prn, lla], capacity: 400G, rtt: 10ms}
  - {between: [prn, lla], parallel: 2, capacity: 400G, rtt: 10ms, members: 2, lag: emulated}
";

    #[test]
    fn both_ends_of_a_circuit_have_its_key_and_nobody_else() {
        let lab = Lab::from_str(LAB, "small.yaml").unwrap().0;
        let keys = |node: &str| -> Keys {
            let node = lab.node(node).unwrap();
            serde_json::from_str(&key_file(&lab, node, &[3; 16]).unwrap()).unwrap()
        };
        let (prn, lla) = (keys("eb01.prn"), keys("eb01.lla"));
        let names: Vec<&String> = prn.keys().collect();
        assert_eq!(names, ["to-lla", "to-lla.2_1", "to-lla.2_2"]);
        for (interface, given) in &prn {
            let other = &lla[&interface.replace("lla", "prn")];
            assert!(given == other, "{interface}");
            assert_eq!(given.ckn, format!("eb01.lla:{}", interface.replace("lla", "prn")));
            assert_eq!(prn.values().filter(|g| g.cak == given.cak).count(), 1);
            given.read().unwrap();
        }
        let config = config(&lab, lab.node("eb01.prn").unwrap()).unwrap();
        let wires: Vec<&str> = config.circuits.iter().map(|c| c.wire.as_str()).collect();
        assert_eq!((config.rotate, wires), (5_000, vec!["ct-lla", "ct-lla.2_1", "ct-lla.2_2"]));
    }

    #[test]
    fn the_secret_is_made_once_and_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        let first = secret(&path).unwrap();
        assert_eq!(secret(&path).unwrap(), first);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
