//! A Linux kernel of a test's own.

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use testbed::apply::linux::{LinuxKernel, probe};
use testbed::plan::Options;

/// Runs `work` with a Linux kernel of its own, if it can be had.
pub fn on_linux(work: impl FnOnce(&mut LinuxKernel, Options) + Send) {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: making namespaces needs root");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET).unwrap();
            mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
                .unwrap();
            let options = probe().unwrap();
            if options != Options::full() {
                println!("this kernel lacks something, which is left out: {options:?}");
            }
            let mut kernel = LinuxKernel::open(folder.path(), "t").unwrap();
            work(&mut kernel, options);
        });
        thread.join().unwrap();
    });
}
