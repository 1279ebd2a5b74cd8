//! Debian packages that labs and tests need: which are missing, and how they come.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::{LACKING, Stop};

/// A package and how to see that it is there.
pub struct Package {
    name: &'static str,
    /// Any of these files means that it is installed.
    files: &'static [&'static str],
    /// What for.
    why: &'static str,
}

const fn package(name: &'static str, files: &'static [&'static str], why: &'static str) -> Package {
    Package { name, files, why }
}

/// What a lab needs.
pub const RUN: &[Package] = &[
    package("qemu-system-x86", &["/usr/bin/qemu-system-x86_64"], "the vm carrier"),
    package("busybox-static", &["/usr/share/doc/busybox-static"], "the guest's first process"),
    package("bird2", &["/usr/sbin/bird"], "BGP in the lab"),
    package("iproute2", &["/usr/bin/ip", "/bin/ip", "/usr/sbin/ip", "/sbin/ip"], "looking at nodes"),
    package("iputils-ping", &["/usr/bin/ping", "/bin/ping"], "looking at nodes"),
    package("ca-certificates", &["/etc/ssl/certs/ca-certificates.crt"], "fetching the guest's kernel"),
    package("zstd", &["/usr/bin/zstd"], "unpacking the guest's kernel"),
];

/// What the tests need beyond that.
pub const TEST: &[Package] = &[
    package("tcpdump", &["/usr/bin/tcpdump", "/usr/sbin/tcpdump"], "captures"),
    package("etcd-server", &["/usr/bin/etcd"], "the lock of labs with several controllers a plane"),
];

impl Package {
    fn installed(&self) -> bool {
        self.files.iter().any(|f| Path::new(f).exists())
    }
}

/// Installs what is missing if this is root on a Debian; else says the one command to type (exit code 4).
pub fn ensure<'a>(wanted: impl IntoIterator<Item = &'a Package>) -> Result<(), Stop> {
    let missing: Vec<&Package> = wanted.into_iter().filter(|p| !p.installed()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    for p in &missing {
        eprintln!("xtask: missing: {} ({})", p.name, p.why);
    }
    let names: Vec<&str> = missing.iter().map(|p| p.name).collect();
    if !Path::new("/usr/bin/apt-get").exists() {
        let message = format!("this is no Debian: install what your system calls {}", names.join(", "));
        return Err(Stop::new(LACKING, message));
    }
    let install = format!("apt-get install -y --no-install-recommends {}", names.join(" "));
    if !is_root() {
        return Err(Stop::new(
            LACKING,
            format!("type this once, then try again:\n\n    sudo sh -c 'apt-get update && {install}'\n"),
        ));
    }
    eprintln!("xtask: apt-get update && {install}");
    let _quiet = NoServices::begin();
    run(&["update", "-q"])?;
    let mut args = vec!["install", "-y", "-q", "--no-install-recommends"];
    args.extend(&names);
    run(&args)?;
    let still: Vec<&str> = missing.iter().filter(|p| !p.installed()).map(|p| p.name).collect();
    if still.is_empty() {
        return Ok(());
    }
    Err(Stop::new(LACKING, format!("apt-get said it was fine, but still missing: {}", still.join(", "))))
}

fn run(args: &[&str]) -> Result<(), Stop> {
    let status = Command::new("apt-get")
        .args(args)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        // standard output belongs to whatever the user asked for
        .stdout(std::io::stderr())
        .status()
        .map_err(|e| Stop::new(LACKING, format!("cannot run apt-get: {e}")))?;
    if status.success() {
        return Ok(());
    }
    Err(Stop::new(LACKING, format!("`apt-get {}` failed; is the network there?", args.join(" "))))
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|o| o.stdout == b"0\n")
}

/// While it lives, installing a package starts no service: BIRD's own would speak BGP on this machine.
struct NoServices(bool);

/// What Debian's maintainer scripts ask before they start a service (invoke-rc.d(8)).
const POLICY: &str = "/usr/sbin/policy-rc.d";

impl NoServices {
    fn begin() -> Self {
        use std::os::unix::fs::PermissionsExt as _;
        if Path::new(POLICY).exists() {
            return Self(false);
        }
        let written = std::fs::write(POLICY, "#!/bin/sh\nexit 101\n")
            .and_then(|()| std::fs::set_permissions(POLICY, std::fs::Permissions::from_mode(0o755)));
        Self(written.is_ok())
    }
}

impl Drop for NoServices {
    fn drop(&mut self) {
        if self.0 {
            let _ = std::fs::remove_file(POLICY);
            // installed by us, used only inside labs: not at the next boot either
            let _ = Command::new("systemctl")
                .args(["disable", "bird.service", "etcd.service"])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
        }
    }
}
