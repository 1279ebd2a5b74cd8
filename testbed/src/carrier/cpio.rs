//! Writes `newc` archives, the format in which the kernel takes its first file system (Documentation/driver-api/early-userspace/buffer-format.rst).

use std::fmt::Write as _;

/// An archive under construction.
#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    inode: u32,
}

const DIR: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const CHAR: u32 = 0o020_000;

impl Archive {
    /// Adds a folder; `path` has no leading slash. Parents must be added first.
    pub fn dir(&mut self, path: &str) {
        self.entry(path, DIR | 0o755, &[], (0, 0));
    }

    /// Adds a regular file with permission bits `mode`.
    pub fn file(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.entry(path, FILE | mode, content, (0, 0));
    }

    /// Adds a character device node.
    pub fn char_device(&mut self, path: &str, mode: u32, major: u32, minor: u32) {
        self.entry(path, CHAR | mode, &[], (major, minor));
    }

    /// Closes the archive and hands over its bytes.
    pub fn finish(mut self) -> Vec<u8> {
        self.inode = 0;
        self.entry("TRAILER!!!", 0, &[], (0, 0));
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8], device: (u32, u32)) {
        let size = u32::try_from(content.len()).unwrap_or(u32::MAX);
        let name_size = u32::try_from(path.len() + 1).unwrap_or(u32::MAX);
        let inode = self.inode;
        self.inode += 1;
        // ino mode uid gid nlink mtime filesize devmajor devminor rdevmajor rdevminor namesize check
        let fields = [inode, mode, 0, 0, 1, 0, size, 0, 0, device.0, device.1, name_size, 0];
        let mut header = String::from("070701");
        for field in fields {
            let _ = write!(header, "{field:08x}");
        }
        self.bytes.extend_from_slice(header.as_bytes());
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        while !self.bytes.len().is_multiple_of(4) {
            self.bytes.push(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Archive;

    #[test]
    fn every_part_is_aligned_and_the_fields_say_what_follows() {
        let mut archive = Archive::default();
        archive.dir("dev");
        archive.char_device("dev/console", 0o600, 5, 1);
        archive.file("init", 0o755, b"hello");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        let at = bytes.windows(5).position(|w| w == b"init\0").unwrap();
        let header = std::str::from_utf8(&bytes[at - 110..at]).unwrap();
        assert_eq!(&header[..6], "070701");
        assert_eq!(&header[14..22], "000081ed", "mode of a 0755 file");
        assert_eq!(&header[54..62], "00000005", "size");
        assert_eq!(&header[94..102], "00000005", "name with its zero");
        // 110 + 5 is padded to 116
        assert_eq!(&bytes[at - 110 + 116..at - 110 + 121], b"hello");
        let console = bytes.windows(12).position(|w| w == b"dev/console\0").unwrap();
        assert_eq!(&bytes[console - 110 + 78..console - 110 + 94], b"0000000500000001");
        assert!(bytes.windows(11).any(|w| w == b"TRAILER!!!\0"));
    }
}
