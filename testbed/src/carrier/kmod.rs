//! Kernel module files: what they need, and how they are made quick to load.
//!
//! A module says in its `.modinfo` section which others it needs, so a flat folder of files and one table replace modprobe.
//! Two parts of each file cost much time under emulation and give the guest nothing: the signature behind the file (the
//! guest enforces none, and checking one is a public-key operation) and the type information of `.BTF` (parsed and
//! validated on load; the kernel's own stays). The signature is cut off, the section is renamed so that nobody looks for it.

use std::collections::BTreeMap;

/// Whole folders of the kernel's module tree that labs draw from.
pub const FOLDERS: &[&str] = &["kernel/net/sched", "kernel/net/mpls", "kernel/net/netfilter"];

/// Single modules, by name, beside [`FOLDERS`]. What they depend on comes along by itself.
pub const NAMES: &[&str] = &[
    // the guest's own devices and root
    "virtio_mmio",
    "virtio_pci",
    "virtio_net",
    "9pnet_virtio",
    "9p",
    "overlay",
    // links and what may sit on them
    "veth",
    "dummy",
    "ifb",
    "bridge",
    "macvlan",
    "vrf",
    "tun",
    "vxlan",
    "bonding",
    "macsec",
    "8021q",
    "ip_gre",
    "ip6_gre",
    "ip6_tunnel",
    "sit",
    "netdevsim",
    "tcp_bbr",
    "tcp_dctcp",
    "nlmon",
    // diagnosis
    "inet_diag",
    "tcp_diag",
    "udp_diag",
    "unix_diag",
    "af_packet_diag",
    "netlink_diag",
    "psample",
    "sch_fq",
    // remote DMA
    "rdma_rxe",
    "siw",
    "ib_uverbs",
    "rdma_ucm",
    "rdma_cm",
    "ib_umad",
];

/// Modules without which no lab of any kind can live; loaded by process 1 in the guest.
pub const GUEST_BASE: &[&str] = &["veth", "sch_tbf", "sch_prio", "nf_tables"];
/// What a label-switched backbone needs on top.
pub const WAN: &[&str] = &["mpls_router", "mpls_iptunnel", "cls_bpf"];
/// What single labs ask for; the supervisor loads what theirs does.
pub const SINGLE: &[&str] = &["sch_netem", "bonding", "macsec"];
/// What a training fabric needs on top.
pub const FABRIC: &[&str] = &["rdma_rxe", "ib_uverbs", "sch_netem", "sch_htb", "cls_u32", "cls_bpf"];

/// File stem to module name: the kernel writes names with underscores only.
pub fn name_of(file: &str) -> Option<String> {
    let stem = file.split_once(".ko").filter(|(_, rest)| matches!(*rest, "" | ".xz" | ".zst" | ".gz"))?.0;
    Some(stem.replace('-', "_"))
}

/// Names of the modules this one needs, from its `depends=` line.
pub fn depends(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = module.windows(KEY.len()).position(|w| w == KEY) else { return Vec::new() };
    let value: Vec<u8> = module[at + KEY.len()..].iter().copied().take_while(|b| *b != 0).collect();
    let value = String::from_utf8_lossy(&value);
    value.split(',').filter(|n| !n.is_empty()).map(|n| n.replace('-', "_")).collect()
}

/// Cuts off the signature and hides the type information.
pub fn lighten(module: &mut Vec<u8>) {
    cut_signature(module);
    hide_btf(module);
}

/// `struct module_signature` (12 bytes, the last four the big-endian length of what is before it), then a magic line.
fn cut_signature(module: &mut Vec<u8>) {
    const MAGIC: &[u8] = b"~Module signature appended~\n";
    let Some(body) = module.strip_suffix(MAGIC) else { return };
    let Some((rest, length)) = body.split_last_chunk::<4>() else { return };
    let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
    if let Some(end) = rest.len().checked_sub(8).and_then(|n| n.checked_sub(length)) {
        module.truncate(end);
    }
}

fn hide_btf(module: &mut [u8]) {
    for at in btf_names(module).unwrap_or_default() {
        if let Some(letter) = module.get_mut(at + 1) {
            *letter = b'X';
        }
    }
}

/// Offsets of the names `.BTF` and `.BTF.base` in the section name table of a 64-bit little-endian ELF file.
fn btf_names(elf: &[u8]) -> Option<Vec<usize>> {
    let word = |at: usize| -> Option<usize> {
        usize::try_from(u64::from_le_bytes(elf.get(at..at.checked_add(8)?)?.try_into().ok()?)).ok()
    };
    let half = |at: usize| -> Option<usize> {
        Some(usize::from(u16::from_le_bytes(elf.get(at..at.checked_add(2)?)?.try_into().ok()?)))
    };
    if elf.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let (table, size, count, names) = (word(0x28)?, half(0x3a)?, half(0x3c)?, half(0x3e)?);
    let header = |i: usize| table.checked_add(i.checked_mul(size)?);
    let strings = word(header(names)? + 24)?;
    let mut found = Vec::new();
    for i in 0..count {
        let at = header(i)?;
        let name =
            usize::try_from(u32::from_le_bytes(elf.get(at..at.checked_add(4)?)?.try_into().ok()?)).ok()?;
        let at = strings.checked_add(name)?;
        let rest = elf.get(at..)?;
        if rest.starts_with(b".BTF\0") || rest.starts_with(b".BTF.base\0") {
            found.push(at);
        }
    }
    Some(found)
}

/// Names in an order in which each comes after what it needs; unknown names (built in, or not of this kernel) are left out.
pub fn in_load_order(table: &BTreeMap<String, Vec<String>>, names: &[&str]) -> Vec<String> {
    fn visit(
        table: &BTreeMap<String, Vec<String>>,
        name: &str,
        order: &mut Vec<String>,
        open: &mut Vec<String>,
    ) {
        if order.iter().any(|n| n == name) || open.iter().any(|n| n == name) {
            return;
        }
        let Some(needs) = table.get(name) else { return };
        open.push(name.to_owned());
        for need in needs {
            visit(table, need, order, open);
        }
        open.pop();
        order.push(name.to_owned());
    }
    let mut order = Vec::new();
    for name in names {
        visit(table, &name.replace('-', "_"), &mut order, &mut Vec::new());
    }
    order
}

/// One line a module: `name: need need`.
pub fn write_table(table: &BTreeMap<String, Vec<String>>) -> String {
    table.iter().map(|(name, needs)| format!("{name}: {}\n", needs.join(" "))).collect()
}

/// The reverse of [`write_table`]; lines it cannot read are skipped.
pub fn read_table(text: &str) -> BTreeMap<String, Vec<String>> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, needs)| (name.to_owned(), needs.split_whitespace().map(str::to_owned).collect()))
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_and_needs() {
        assert_eq!(name_of("nf-tables.ko.xz").as_deref(), Some("nf_tables"));
        assert_eq!(name_of("modules.dep"), None);
        assert_eq!(
            depends(b"x\0license=GPL\0depends=ip_tunnel,mpls-router\0name=y\0"),
            ["ip_tunnel", "mpls_router"]
        );
        assert!(depends(b"\0depends=\0").is_empty());
    }

    #[test]
    fn needed_modules_come_first_and_only_once() {
        let table = read_table("9p: 9pnet netfs\n9pnet: netfs\nnetfs: \nloop_a: loop_b\nloop_b: loop_a\n");
        assert_eq!(in_load_order(&table, &["9p", "9pnet", "gone"]), ["netfs", "9pnet", "9p"]);
        assert_eq!(in_load_order(&table, &["loop-a"]), ["loop_b", "loop_a"], "a ring ends");
        assert_eq!(read_table(&write_table(&table)), table);
    }

    #[test]
    fn a_signature_is_cut_whole() {
        let mut module = b"body".to_vec();
        module.extend_from_slice(&[7; 5]);
        module.extend_from_slice(&[0; 8]);
        module.extend_from_slice(&5_u32.to_be_bytes());
        module.extend_from_slice(b"~Module signature appended~\n");
        lighten(&mut module);
        assert_eq!(module, b"body");
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(noise in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut elf = b"\x7fELF\x02\x01".to_vec();
            elf.extend_from_slice(&noise);
            lighten(&mut elf);
            let mut signed = noise;
            signed.extend_from_slice(b"~Module signature appended~\n");
            lighten(&mut signed);
            depends(&signed);
        }
    }
}
