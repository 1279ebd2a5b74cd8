//! The guest's first file system: a static busybox, the few modules without which there is no root, and a script of a
//! dozen lines that mounts this machine's files read-only and hands over to process 1 of the lab.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::cpio::Archive;
use super::kernel::Kernel;
use super::{Lacking, kmod};

/// Tag of the 9p share with the machine's files.
pub const ROOT_TAG: &str = "machine";
/// Tag of the 9p share with the lab's state folder.
pub const STATE_TAG: &str = "state";

/// What the first file system leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handover<'a> {
    /// Command line of process 1, on the machine's files.
    pub argv: &'a [String],
    /// Its environment.
    pub env: &'a BTreeMap<String, String>,
}

/// Builds the archive for a boot that hands over.
pub fn build(kernel: &Kernel, to: &Handover<'_>) -> Result<Vec<u8>> {
    let modules = load_list(kernel, &["virtio_mmio", "virtio_pci", "9pnet_virtio", "9p"])?;
    let names: Vec<&str> = modules.iter().map(|(name, _)| name.as_str()).collect();
    archive(&script(&names, to), &modules)
}

/// Builds the archive for a boot that only says `line` and stops.
pub fn build_probe(line: &str) -> Result<Vec<u8>> {
    archive(&format!("#!/bin/busybox sh\necho {}\nexec /bin/busybox reboot -f\n", quote(line)), &[])
}

fn load_list(kernel: &Kernel, names: &[&str]) -> Result<Vec<(String, Vec<u8>)>> {
    let folder = kernel.modules();
    let table = kmod::read_table(&fs::read_to_string(folder.join("depends")).unwrap_or_default());
    kmod::in_load_order(&table, names)
        .into_iter()
        .map(|name| {
            let path = folder.join(format!("{name}.ko"));
            let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            Ok((name, bytes))
        })
        .collect()
}

fn archive(script: &str, modules: &[(String, Vec<u8>)]) -> Result<Vec<u8>> {
    let busybox = fs::read(static_busybox()?).context("cannot read busybox")?;
    let mut archive = Archive::default();
    for folder in ["bin", "dev", "m", "new"] {
        archive.dir(folder);
    }
    archive.char_device("dev/console", 0o600, 5, 1);
    archive.file("bin/busybox", 0o755, &busybox);
    for (name, bytes) in modules {
        archive.file(&format!("m/{name}.ko"), 0o644, bytes);
    }
    archive.file("init", 0o755, script.as_bytes());
    Ok(archive.finish())
}

/// Finds a busybox that needs no libraries.
pub fn static_busybox() -> Result<PathBuf> {
    ["/bin/busybox", "/usr/bin/busybox", "/usr/local/bin/busybox"]
        .iter()
        .map(Path::new)
        .find(|p| fs::read(p).is_ok_and(|bytes| is_static(&bytes)))
        .map(Path::to_owned)
        .ok_or_else(|| {
            Lacking::error("no static busybox for the guest's first steps", "apt-get install busybox-static")
        })
}

/// Whether an ELF file asks for no dynamic loader (no program header of type `PT_INTERP`).
fn is_static(elf: &[u8]) -> bool {
    let half = |at: usize| elf.get(at..at + 2).map(|b| usize::from(u16::from_le_bytes([b[0], b[1]])));
    let table = elf.get(0x20..0x24).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]) as usize);
    let (Some(table), Some(size), Some(count)) = (table, half(0x36), half(0x38)) else { return false };
    elf.starts_with(b"\x7fELF\x02")
        && !(0..count).any(|i| elf.get(table + i * size..table + i * size + 4) == Some(&[3, 0, 0, 0][..]))
}

fn script(modules: &[&str], to: &Handover<'_>) -> String {
    let mut text =
        String::from("#!/bin/busybox sh\nstop() { echo \"testbed: $1\"; exec /bin/busybox reboot -f; }\n");
    for name in modules {
        text.push_str(&format!("/bin/busybox insmod /m/{name}.ko || stop 'module {name} does not load'\n"));
    }
    text.push_str(&format!(
        "/bin/busybox mount -t 9p -o trans=virtio,version=9p2000.L,ro,msize=512000,cache=loose {ROOT_TAG} /new \
         || stop 'no root file system'\n"
    ));
    for (key, value) in to.env {
        text.push_str(&format!("export {key}={}\n", quote(value)));
    }
    let argv: Vec<String> = to.argv.iter().map(|a| quote(a)).collect();
    text.push_str(&format!("exec /bin/busybox switch_root /new {}\n", argv.join(" ")));
    text
}

/// One word for the shell, whatever is in it.
fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_the_shell() {
        let nasty = "it's $HOME `x` \"y\" \\ \n end";
        let output = std::process::Command::new("sh")
            .args(["-c", &format!("printf %s {}", quote(nasty))])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), nasty);
    }

    #[test]
    fn the_script_hands_over_with_its_environment() {
        let env = BTreeMap::from([("A".to_owned(), "b c".to_owned())]);
        let argv = vec!["/x/testbed".to_owned(), "internal".to_owned()];
        let text = script(&["netfs", "9p"], &Handover { argv: &argv, env: &env });
        assert!(
            text.ends_with("export A='b c'\nexec /bin/busybox switch_root /new '/x/testbed' 'internal'\n"),
            "{text}"
        );
        assert!(text.find("netfs.ko").unwrap() < text.find("9p.ko").unwrap());
    }
}
