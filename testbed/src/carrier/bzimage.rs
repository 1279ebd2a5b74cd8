//! Reads kernel images: what version a bzImage is, where its compressed payload lies, and whether an ELF kernel has the
//! 32-bit entry point that lets QEMU start it without any decompression (PVH).
//! Formats: Documentation/arch/x86/boot.rst, and `XEN_ELFNOTE_PHYS32_ENTRY` of the ELF notes.

use anyhow::{Context, Result, bail};

/// How a payload is compressed, by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// Zstandard.
    Zstd,
    /// xz.
    Xz,
    /// gzip.
    Gzip,
}

/// What a bzImage says about itself.
#[derive(Debug, PartialEq, Eq)]
pub struct BzImage<'a> {
    /// Release, as `uname -r` prints it.
    pub release: String,
    /// The compressed ELF kernel, without the length word behind it.
    pub payload: &'a [u8],
    /// Its compression, if it is one we can undo.
    pub packing: Option<Packing>,
}

fn le32(bytes: &[u8], at: usize) -> Result<usize> {
    let word = bytes.get(at..at + 4).with_context(|| format!("the file ends before offset {at:#x}"))?;
    let word: [u8; 4] = word.try_into()?;
    Ok(usize::try_from(u32::from_le_bytes(word))?)
}

/// Parses the set-up header.
///
/// # Errors
/// The bytes are not a bzImage of boot protocol 2.08 or newer, or are cut short.
pub fn parse(bytes: &[u8]) -> Result<BzImage<'_>> {
    if bytes.get(0x202..0x206) != Some(b"HdrS") {
        bail!("not a bzImage: no `HdrS` at 0x202");
    }
    let protocol = le32(bytes, 0x206)? & 0xffff;
    if protocol < 0x208 {
        bail!("boot protocol {protocol:#x} is older than 2.08, which says where the payload lies");
    }
    let sectors = usize::from(*bytes.get(0x1f1).context("no set-up size")?).max(1);
    let start = (sectors + 1) * 512 + le32(bytes, 0x248)?;
    let length = le32(bytes, 0x24c)?;
    // the last word is the unpacked size, put there by the kernel's build for every packing but gzip, which has it itself
    let payload = bytes.get(start..start + length).context("the payload lies behind the end of the file")?;
    let packing = match payload {
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Packing::Zstd),
        [0xfd, b'7', b'z', b'X', b'Z', ..] => Some(Packing::Xz),
        [0x1f, 0x8b, ..] => Some(Packing::Gzip),
        _ => None,
    };
    let payload = if packing == Some(Packing::Gzip) { payload } else { &payload[..length.saturating_sub(4)] };
    let text = 0x200 + (le32(bytes, 0x20e)? & 0xffff);
    let text = bytes.get(text..).context("the version string lies behind the end of the file")?;
    let release: Vec<u8> = text.iter().copied().take(256).take_while(|b| !b" \0".contains(b)).collect();
    let release = String::from_utf8(release).context("the version string is not text")?;
    if release.is_empty() || release.contains('/') {
        bail!("the version string `{release}` is no release name");
    }
    Ok(BzImage { release, payload, packing })
}

/// Whether the ELF file has a PVH entry note in one of its note segments.
pub fn has_pvh_entry(elf: &[u8]) -> bool {
    pvh(elf).is_some()
}

fn pvh(elf: &[u8]) -> Option<()> {
    if elf.get(..5)? != b"\x7fELF\x02" {
        return None;
    }
    let u64_at = |at: usize| -> Option<usize> {
        usize::try_from(u64::from_le_bytes(elf.get(at..at.checked_add(8)?)?.try_into().ok()?)).ok()
    };
    let u16_at = |at: usize| -> Option<usize> {
        Some(usize::from(u16::from_le_bytes(elf.get(at..at + 2)?.try_into().ok()?)))
    };
    let (table, size, count) = (u64_at(0x20)?, u16_at(0x36)?, u16_at(0x38)?);
    for i in 0..count {
        let at = table.checked_add(i * size)?;
        if le32(elf, at).ok()? == 4 {
            let (start, length) = (u64_at(at + 8)?, u64_at(at + 32)?);
            if note(elf.get(start..start.checked_add(length)?)?).is_some() {
                return Some(());
            }
        }
    }
    None
}

fn note(mut notes: &[u8]) -> Option<()> {
    loop {
        let (name, data, kind) = (le32(notes, 0).ok()?, le32(notes, 4).ok()?, le32(notes, 8).ok()?);
        if kind == 18 && notes.get(12..16)? == b"Xen\0" {
            return Some(());
        }
        notes = notes.get(12 + name.next_multiple_of(4) + data.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn image() -> Vec<u8> {
        let mut b = vec![0_u8; 4096];
        b[0x1f1] = 1;
        b[0x202..0x206].copy_from_slice(b"HdrS");
        b[0x206..0x208].copy_from_slice(&0x20f_u16.to_le_bytes());
        b[0x20e..0x210].copy_from_slice(&0x100_u16.to_le_bytes());
        b[0x300..0x30c].copy_from_slice(b"6.1.0-9 (me)");
        b[0x248..0x24c].copy_from_slice(&16_u32.to_le_bytes());
        b[0x24c..0x250].copy_from_slice(&100_u32.to_le_bytes());
        b[1040..1044].copy_from_slice(&[0x28, 0xb5, 0x2f, 0xfd]);
        b
    }

    #[test]
    fn release_and_payload_are_found() {
        let b = image();
        let got = parse(&b).unwrap();
        assert_eq!(
            (got.release.as_str(), got.packing, got.payload.len()),
            ("6.1.0-9", Some(Packing::Zstd), 96)
        );
    }

    #[test]
    fn what_is_no_kernel_is_refused() {
        assert!(parse(b"MZ").is_err());
        assert!(!has_pvh_entry(b"\x7fELF\x02"));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(noise in proptest::collection::vec(any::<u8>(), 0..300), at in 0_usize..3000) {
            let mut b = image();
            for (i, n) in noise.iter().enumerate() {
                b[at + i] = *n;
            }
            let _ = parse(&b);
            let _ = has_pvh_entry(&noise);
            let mut elf = b"\x7fELF\x02".to_vec();
            elf.extend_from_slice(&noise);
            let _ = has_pvh_entry(&elf);
            let _ = note(&noise);
        }
    }
}
