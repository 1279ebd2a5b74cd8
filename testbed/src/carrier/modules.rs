//! Loading kernel modules in a guest, from the flat folder of the kernel cache.

use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::path::Path;

use anyhow::{Context, Result, bail};
use nix::errno::Errno;

use super::kmod;

/// Loads `names` and what they need, in order. What is loaded already or built in is passed over.
///
/// # Errors
/// A module of the folder is refused by the kernel; the message has the kernel's reason.
pub fn load(folder: &Path, names: &[&str]) -> Result<()> {
    let path = folder.join("depends");
    let text = fs::read_to_string(&path)
        .with_context(|| format!("cannot read the module table {}", path.display()))?;
    for name in kmod::in_load_order(&kmod::read_table(&text), names) {
        if Path::new("/sys/module").join(&name).exists() {
            continue;
        }
        let path = folder.join(format!("{name}.ko"));
        let file = File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
        // SAFETY: the descriptor is open and the parameter string is a valid empty C string.
        // JUSTIFICATION: nix's wrapper is behind a feature the workspace does not use elsewhere.
        let done = unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), c"".as_ptr(), 0) };
        match Errno::result(done) {
            Ok(_) | Err(Errno::EEXIST) => {}
            Err(why) => bail!("the kernel refuses module {name}: {why}; its log may say more"),
        }
    }
    Ok(())
}
