//! The guest's kernel: found in the cache, fetched from the distribution, or taken from where the user points.
//!
//! What a boot needs is worked out once, here: the kernel unpacked to a plain ELF file that QEMU can enter directly, and a
//! flat folder of unpacked, lightened modules with a table of what needs what. A finished kernel appears in the cache by one
//! rename, so a fetch that is killed leaves nothing that looks finished.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::apt::PrivateApt;
use super::bzimage::{self, Packing};
use super::lock::FileLock;
use super::{Lacking, cache_dir, kmod};
use crate::failure::{Code, Failure};

/// The suite whose kernel has everything the labs need (MPLS, nexthop objects, FRA_DSCP_MASK, Soft-RoCE in namespaces).
const SUITE: &str = "trixie-backports";
const PACKAGE: &str = "linux-image-amd64";
const PREFIXES: &[&str] = &["linux-image-", "linux-binary-", "linux-modules-", "linux-base-"];
/// Counts up when what is kept in the cache changes shape.
const FORMAT: u32 = 2;

/// A kernel ready to boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel {
    /// Release, as `uname -r` prints it in the guest.
    pub release: String,
    /// Where it comes from: package and version, or the user's path.
    pub origin: String,
    /// Folder with `image` and `modules/`.
    pub home: PathBuf,
    /// Whether `image` is a plain ELF kernel that QEMU enters directly; otherwise it is a bzImage.
    pub direct: bool,
    format: u32,
}

impl Kernel {
    /// The file QEMU boots.
    pub fn image(&self) -> PathBuf {
        self.home.join("image")
    }

    /// Flat folder of modules, with the table `depends`.
    pub fn modules(&self) -> PathBuf {
        self.home.join("modules")
    }

    fn load(home: &Path) -> Option<Self> {
        let mut kernel: Self = serde_json::from_slice(&fs::read(home.join("kernel.json")).ok()?).ok()?;
        // nothing in the folder depends on where it lies: a copied cache is as good as its original
        home.clone_into(&mut kernel.home);
        (kernel.format == FORMAT && kernel.image().exists()).then_some(kernel)
    }
}

/// The kernel to use: `given` (or `$TESTBED_KERNEL`), else the cached one, else a fetched one. `say` gets progress lines.
///
/// # Errors
/// [`Lacking`] when the mirror or a tool is missing; others when a given path is no kernel or the cache cannot be written.
pub fn ensure(given: Option<&Path>, say: &mut dyn FnMut(&str)) -> Result<Kernel> {
    let from_env = std::env::var_os("TESTBED_KERNEL").filter(|v| !v.is_empty()).map(PathBuf::from);
    let store = cache_dir().join("kernels");
    match given.map(Path::to_owned).or(from_env) {
        Some(path) => import(&path, &store, say),
        None => match cached() {
            Some(kernel) => Ok(kernel),
            None => fetch(&store, say),
        },
    }
}

/// The fetched kernel in the cache, if there is one; never touches the network.
pub fn cached() -> Option<Kernel> {
    let store = cache_dir().join("kernels");
    let name = fs::read_to_string(store.join("current")).ok()?;
    Kernel::load(&store.join(name.trim()))
}

fn open_store(store: &Path, say: &mut dyn FnMut(&str)) -> Result<FileLock> {
    fs::create_dir_all(store).with_context(|| {
        format!("cannot make the cache folder {}; set TESTBED_CACHE to one that is writable", store.display())
    })?;
    let path = store.join("lock");
    let lock = match FileLock::try_exclusive(&path)? {
        Some(lock) => lock,
        None => {
            say("waiting for another testbed that is preparing the guest kernel");
            FileLock::exclusive(&path)?
        }
    };
    // what a killed run left behind
    for entry in fs::read_dir(store)?.filter_map(Result::ok) {
        if entry.file_name().to_string_lossy().starts_with(".new-") {
            fs::remove_dir_all(entry.path())
                .with_context(|| format!("cannot remove {}", entry.path().display()))?;
        }
    }
    Ok(lock)
}

fn fetch(store: &Path, say: &mut dyn FnMut(&str)) -> Result<Kernel> {
    let _lock = open_store(store, say)?;
    if let Some(kernel) = cached() {
        return Ok(kernel);
    }
    let work = Workplace::new(store);
    let work = work.0.as_path();
    let apt = PrivateApt::new(&work.join("apt"), SUITE)?;
    say(&format!("guest kernel: reading {SUITE} of {}", apt.mirror()));
    apt.update()?;
    let packages = apt.closure(PACKAGE, PREFIXES)?;
    let version = apt.show(PACKAGE).as_deref().and_then(|f| field(f, "Version")).unwrap_or_default();
    say(&format!("guest kernel: downloading {PACKAGE} {version} (about 120 MB, once)"));
    let files = apt.download(&packages, &work.join("packages"))?;
    say("guest kernel: unpacking");
    let root = work.join("root");
    for file in &files {
        run("dpkg-deb", [OsStr::new("-x"), file.as_os_str(), root.as_os_str()])?;
    }
    let found = find_in_tree(&root)?;
    let name = safe_name(&format!("{}-{version}", found.release));
    let kernel = finish(&found, &format!("{PACKAGE} {version} of {SUITE}"), work, &store.join(&name))?;
    write_atomic(&store.join("current"), name.as_bytes())?;
    say(&format!("guest kernel: {} is ready in {}", kernel.release, kernel.home.display()));
    Ok(kernel)
}

/// Takes a kernel from the user's own path; kept in the cache under a name made of path, size and time.
fn import(path: &Path, store: &Path, say: &mut dyn FnMut(&str)) -> Result<Kernel> {
    let refuse = |why: String| {
        Failure::new(Code::Usage, format!("cannot use the kernel {}: {why}", path.display()))
            .hint("give a vmlinuz, or a folder with boot/vmlinuz* and lib/modules/")
    };
    let path = fs::canonicalize(path).map_err(|why| refuse(why.to_string()))?;
    let found = if path.is_dir() { find_in_tree(&path) } else { beside_file(&path) };
    let found = found.map_err(|why| refuse(format!("{why:#}")))?;
    let meta = fs::metadata(&found.image)?;
    let age = meta.modified()?.duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_nanos();
    let home =
        store.join(safe_name(&format!("own-{}-{}-{age:x}-{}", found.release, meta.len(), path.display())));
    if let Some(kernel) = Kernel::load(&home) {
        return Ok(kernel);
    }
    let _lock = open_store(store, say)?;
    if let Some(kernel) = Kernel::load(&home) {
        return Ok(kernel);
    }
    say(&format!("guest kernel: preparing {} from {}", found.release, path.display()));
    let work = Workplace::new(store);
    finish(&found, &path.display().to_string(), &work.0, &home)
}

/// A folder that goes away with this value, whatever happened in it.
struct Workplace(PathBuf);

impl Workplace {
    fn new(store: &Path) -> Self {
        Self(store.join(format!(".new-{}", std::process::id())))
    }
}

impl Drop for Workplace {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A kernel file and the module tree that belongs to it.
#[derive(Debug)]
struct Found {
    image: PathBuf,
    release: String,
    tree: Option<PathBuf>,
}

fn find_in_tree(root: &Path) -> Result<Found> {
    let mut images = Vec::new();
    for folder in ["boot", "."] {
        images.extend(list(&root.join(folder)).into_iter().filter(|p| is_image_name(p)));
    }
    for lib in ["usr/lib/modules", "lib/modules"] {
        for release in list(&root.join(lib)) {
            images.extend(list(&release).into_iter().filter(|p| is_image_name(p)));
        }
    }
    let image = images.into_iter().next().with_context(|| {
        format!("no vmlinuz in {} (looked in boot/ and in lib/modules/*/)", root.display())
    })?;
    let release = release_of(&image)?;
    let tree =
        ["usr/lib/modules", "lib/modules"].iter().map(|l| root.join(l).join(&release)).find(|p| p.is_dir());
    Ok(Found { image, release, tree })
}

fn beside_file(image: &Path) -> Result<Found> {
    let release = release_of(image)?;
    let parent = image.parent().unwrap_or(Path::new("/"));
    let near = parent.parent().unwrap_or(Path::new("/"));
    let tree = [
        parent.to_owned(),
        near.join("lib/modules").join(&release),
        Path::new("/lib/modules").join(&release),
    ]
    .into_iter()
    .find(|p| p.join("kernel").is_dir());
    Ok(Found { image: image.to_owned(), release, tree })
}

fn list(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().filter_map(|e| e.ok().map(|e| e.path())).collect();
    paths.sort();
    paths
}

fn is_image_name(path: &Path) -> bool {
    path.is_file() && path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("vmlinu"))
}

fn release_of(image: &Path) -> Result<String> {
    let bytes = fs::read(image).with_context(|| format!("cannot read {}", image.display()))?;
    if bytes.starts_with(b"\x7fELF") {
        const BANNER: &[u8] = b"Linux version ";
        let at = bytes
            .windows(BANNER.len())
            .position(|w| w == BANNER)
            .context("no version banner in the kernel")?;
        let name: Vec<u8> =
            bytes[at + BANNER.len()..].iter().copied().take(128).take_while(|b| *b > b' ').collect();
        return Ok(safe_name(&String::from_utf8_lossy(&name)));
    }
    Ok(bzimage::parse(&bytes).with_context(|| format!("{} is no kernel", image.display()))?.release)
}

/// Builds the finished folder inside `work` and renames it to `home`.
fn finish(found: &Found, origin: &str, work: &Path, home: &Path) -> Result<Kernel> {
    let fresh = work.join("finished");
    fs::create_dir_all(fresh.join("modules"))?;
    let direct = write_image(&found.image, &fresh)?;
    let table = match &found.tree {
        Some(tree) => collect_modules(tree, &fresh.join("modules"))?,
        None => BTreeMap::new(),
    };
    fs::write(fresh.join("modules/depends"), kmod::write_table(&table))?;
    let kernel = Kernel {
        release: found.release.clone(),
        origin: origin.to_owned(),
        home: home.to_owned(),
        direct,
        format: FORMAT,
    };
    fs::write(fresh.join("kernel.json"), serde_json::to_vec_pretty(&kernel)?)?;
    if home.exists() {
        fs::remove_dir_all(home)?;
    }
    fs::rename(&fresh, home)
        .with_context(|| format!("cannot put the kernel in place at {}", home.display()))?;
    Ok(kernel)
}

/// Writes `image` into `folder`, unpacked if its compression can be undone and the result has a direct entry.
fn write_image(image: &Path, folder: &Path) -> Result<bool> {
    let bytes = fs::read(image)?;
    let target = folder.join("image");
    if bytes.starts_with(b"\x7fELF") {
        fs::write(&target, &bytes)?;
        if !bzimage::has_pvh_entry(&bytes) {
            bail!(
                "{} is an ELF kernel without a PVH entry (CONFIG_PVH); give the bzImage instead",
                image.display()
            );
        }
        return Ok(true);
    }
    let parsed = bzimage::parse(&bytes)?;
    let unpacked = match parsed.packing {
        Some(Packing::Zstd) => filter("zstd", &["-dcq", "--long=31"], parsed.payload),
        Some(Packing::Xz) => filter("busybox", &["unxz", "-c"], parsed.payload),
        Some(Packing::Gzip) => filter("busybox", &["gunzip", "-c"], parsed.payload),
        None => None,
    };
    match unpacked.filter(|elf| bzimage::has_pvh_entry(elf)) {
        Some(elf) => fs::write(&target, elf).map(|()| true),
        None => fs::write(&target, &bytes).map(|()| false),
    }
    .with_context(|| format!("cannot write {}", target.display()))
}

/// Feeds `input` through a program; nothing if it is missing or fails (the caller has a slower way).
fn filter(program: &str, args: &[&str], input: &[u8]) -> Option<Vec<u8>> {
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let mut stdin = child.stdin.take()?;
    let output = std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(input));
        child.wait_with_output()
    });
    output.ok().map(|o| o.stdout).filter(|bytes| !bytes.is_empty())
}

/// Copies the wanted modules and all they need, unpacked and lightened; gives the table of needs.
fn collect_modules(tree: &Path, target: &Path) -> Result<BTreeMap<String, Vec<String>>> {
    let index = index_modules(&tree.join("kernel"));
    let mut wanted: BTreeSet<String> = kmod::NAMES.iter().map(|n| (*n).to_owned()).collect();
    for (name, path) in &index {
        let relative = path.strip_prefix(tree).unwrap_or(path);
        if kmod::FOLDERS.iter().any(|folder| relative.starts_with(folder)) {
            wanted.insert(name.clone());
        }
    }
    let mut table = BTreeMap::new();
    loop {
        let batch: Vec<(&String, &PathBuf)> = wanted
            .iter()
            .filter(|n| !table.contains_key(*n))
            .filter_map(|n| index.get_key_value(n))
            .collect();
        if batch.is_empty() {
            return Ok(table);
        }
        unpack(&batch, target)?;
        let mut more = BTreeSet::new();
        for (name, _) in batch {
            let path = target.join(format!("{name}.ko"));
            let mut bytes = fs::read(&path).with_context(|| format!("module {name} did not unpack"))?;
            let needs = kmod::depends(&bytes);
            kmod::lighten(&mut bytes);
            fs::write(&path, bytes)?;
            more.extend(needs.iter().cloned());
            table.insert(name.clone(), needs);
        }
        wanted.append(&mut more);
    }
}

/// Copies files and unpacks them in place, all of one kind with one process.
fn unpack(batch: &[(&String, &PathBuf)], target: &Path) -> Result<()> {
    let mut packed: BTreeMap<&str, Vec<PathBuf>> = BTreeMap::new();
    for (name, path) in batch {
        let ending = path.extension().and_then(OsStr::to_str).unwrap_or_default();
        let file = if ending == "ko" { format!("{name}.ko") } else { format!("{name}.ko.{ending}") };
        let file = target.join(file);
        fs::copy(path, &file).with_context(|| format!("cannot copy {}", path.display()))?;
        match ending {
            "xz" => packed.entry("xz").or_default().push(file),
            "gz" => packed.entry("gz").or_default().push(file),
            "zst" => packed.entry("zst").or_default().push(file),
            _ => {}
        }
    }
    for (ending, files) in packed {
        let (program, mut args): (_, Vec<&OsStr>) = match ending {
            "xz" => ("busybox", vec![OsStr::new("unxz")]),
            "gz" => ("busybox", vec![OsStr::new("gunzip")]),
            _ => ("zstd", ["-dq", "--rm"].map(OsStr::new).to_vec()),
        };
        args.extend(files.iter().map(|f| f.as_os_str()));
        run(program, args)?;
    }
    Ok(())
}

fn index_modules(folder: &Path) -> BTreeMap<String, PathBuf> {
    let mut index = BTreeMap::new();
    let mut todo = vec![folder.to_owned()];
    while let Some(folder) = todo.pop() {
        for path in list(&folder) {
            if path.is_dir() {
                todo.push(path);
            } else if let Some(name) = path.file_name().and_then(|n| kmod::name_of(&n.to_string_lossy())) {
                index.insert(name, path);
            }
        }
    }
    index
}

fn run<S: AsRef<OsStr>>(program: &str, args: impl IntoIterator<Item = S>) -> Result<()> {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output().map_err(|why| {
        Lacking::error(
            format!("cannot run {program} ({why})"),
            format!("apt-get install {}", package_of(program)),
        )
    })?;
    if !output.status.success() {
        bail!("{program} failed ({}): {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

fn package_of(program: &str) -> &str {
    match program {
        "busybox" => "busybox-static",
        "dpkg-deb" => "dpkg",
        other => other,
    }
}

fn field(fields: &str, key: &str) -> Option<String> {
    fields.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(':')).map(|v| v.trim().to_owned())
}

fn safe_name(text: &str) -> String {
    let name: String = text
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || "+-._~".contains(c) { c } else { '_' })
        .collect();
    name.trim_start_matches('.').chars().take(200).collect()
}

/// Writes a file so that readers see the old or the new content, never a part.
pub(crate) fn write_atomic(path: &Path, content: &[u8]) -> Result<()> {
    let near = path.with_extension(format!("new-{}", std::process::id()));
    fs::write(&near, content).with_context(|| format!("cannot write {}", near.display()))?;
    fs::rename(&near, path).with_context(|| format!("cannot replace {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Input: a finished kernel whose folder was copied. Output: it is found where it lies now, and nowhere without its image.
    #[test]
    fn a_copied_kernel_lies_where_it_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let there = Kernel {
            release: "7.0".into(),
            origin: "x".into(),
            home: "/elsewhere/7.0".into(),
            direct: true,
            format: FORMAT,
        };
        fs::write(dir.path().join("kernel.json"), serde_json::to_vec(&there).unwrap()).unwrap();
        assert_eq!(Kernel::load(dir.path()), None);
        fs::write(dir.path().join("image"), "").unwrap();
        assert_eq!(Kernel::load(dir.path()), Some(Kernel { home: dir.path().to_owned(), ..there }));
    }
}
