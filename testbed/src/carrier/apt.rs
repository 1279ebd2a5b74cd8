//! Packages from the machine's own mirror, without touching the machine.
//!
//! The system's sources are read for one thing, the address of its Debian mirror; apt then runs with a state, cache and
//! source list of its own in the cache folder, so it needs no root and leaves the system's lists alone. The system's other
//! settings (proxies, credentials) stay in force, and so does the check of signatures.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::Lacking;

const KEYRINGS: &[&str] =
    &["/usr/share/keyrings/debian-archive-keyring.gpg", "/usr/share/keyrings/debian-archive-keyring.pgp"];

/// An apt with a private state.
#[derive(Debug)]
pub struct PrivateApt {
    home: PathBuf,
    mirror: String,
    suite: String,
}

impl PrivateApt {
    /// Lays out the private state under `home` for `suite` of the machine's mirror (or `$TESTBED_MIRROR`).
    ///
    /// # Errors
    /// [`Lacking`] if there is no apt, no mirror or no archive keyring.
    pub fn new(home: &Path, suite: &str) -> Result<Self> {
        if Command::new("apt-get")
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_err()
        {
            return Err(Lacking::error("no apt-get here to fetch a guest kernel with", OWN_KERNEL));
        }
        let mirror = match std::env::var("TESTBED_MIRROR") {
            Ok(uri) if !uri.is_empty() => uri,
            _ => mirror_of_system(Path::new("/etc/apt")).ok_or_else(|| {
                Lacking::error(
                    "the sources in /etc/apt name no Debian mirror to fetch a guest kernel from",
                    format!("set TESTBED_MIRROR to the address of one, or: {OWN_KERNEL}"),
                )
            })?,
        };
        let keyring = KEYRINGS.iter().find(|k| Path::new(k).exists()).ok_or_else(|| {
            Lacking::error(
                "Debian's archive keys are missing, so a download could not be checked",
                "apt-get install debian-archive-keyring",
            )
        })?;
        for folder in ["state/lists/partial", "cache/archives/partial", "sources.d", "preferences.d"] {
            fs::create_dir_all(home.join(folder))
                .with_context(|| format!("cannot make {folder} in {}", home.display()))?;
        }
        fs::write(home.join("state/status"), "")?;
        let architecture = "amd64";
        let source = format!(
            "Types: deb\nURIs: {mirror}\nSuites: {suite}\nComponents: main\nArchitectures: {architecture}\nSigned-By: {keyring}\n"
        );
        fs::write(home.join("sources.d/kernel.sources"), source)?;
        fs::write(home.join("apt.conf"), configuration(home))?;
        Ok(Self { home: home.to_owned(), mirror, suite: suite.to_owned() })
    }

    /// Fetches the suite's package list.
    ///
    /// # Errors
    /// [`Lacking`] with apt's last complaint if the mirror cannot be reached, lacks the suite or is not signed.
    pub fn update(&self) -> Result<()> {
        self.run("apt-get", ["-q", "update"]).map(drop).map_err(|why| {
            Lacking::error(
                format!("no package list of {} from the mirror {}: {why:#}", self.suite, self.mirror),
                format!("connect this machine to its mirror, or: {OWN_KERNEL}"),
            )
        })
    }

    /// Package fields (`Package`, `Version`, `Depends`, …) as apt-cache shows them; none if the suite has no such package.
    pub fn show(&self, package: &str) -> Option<String> {
        self.run("apt-cache", ["show", "--no-all-versions", package]).ok()
    }

    /// `package` and everything it needs whose name starts with one of `prefixes`, as far as the suite has it; sorted.
    ///
    /// # Errors
    /// [`Lacking`] if the suite does not have `package` itself.
    pub fn closure(&self, package: &str, prefixes: &[&str]) -> Result<Vec<String>> {
        let mut todo = vec![package.to_owned()];
        let mut found = std::collections::BTreeSet::new();
        while let Some(name) = todo.pop() {
            if found.contains(&name) {
                continue;
            }
            let Some(fields) = self.show(&name) else {
                if name == package {
                    return Err(Lacking::error(
                        format!("{} of the mirror {} has no package {package}", self.suite, self.mirror),
                        OWN_KERNEL,
                    ));
                }
                continue;
            };
            todo.extend(needs(&fields).into_iter().filter(|n| prefixes.iter().any(|p| n.starts_with(p))));
            found.insert(name);
        }
        Ok(found.into_iter().collect())
    }

    /// Downloads packages into `folder`, checked against the signed list; gives their files.
    ///
    /// # Errors
    /// [`Lacking`] with apt's last complaint.
    pub fn download(&self, packages: &[String], folder: &Path) -> Result<Vec<PathBuf>> {
        fs::create_dir_all(folder)?;
        let args: Vec<&str> =
            ["-q", "download"].into_iter().chain(packages.iter().map(String::as_str)).collect();
        self.run_in(folder, "apt-get", args).map_err(|why| {
            Lacking::error(
                format!("the download from {} broke off: {why:#}", self.mirror),
                format!("try again when the mirror answers, or: {OWN_KERNEL}"),
            )
        })?;
        let mut files: Vec<PathBuf> = fs::read_dir(folder)?
            .filter_map(|e| e.ok().map(|e| e.path()))
            .filter(|p| p.extension().is_some_and(|e| e == "deb"))
            .collect();
        files.sort();
        if files.len() != packages.len() {
            bail!("asked for {} packages, {} are in {}", packages.len(), files.len(), folder.display());
        }
        Ok(files)
    }

    /// The mirror's address.
    pub fn mirror(&self) -> &str {
        &self.mirror
    }

    fn run<S: AsRef<OsStr>>(&self, program: &str, args: impl IntoIterator<Item = S>) -> Result<String> {
        self.run_in(&self.home, program, args)
    }

    fn run_in<S: AsRef<OsStr>>(
        &self,
        folder: &Path,
        program: &str,
        args: impl IntoIterator<Item = S>,
    ) -> Result<String> {
        let output = Command::new(program)
            .args(args)
            .env("APT_CONFIG", self.home.join("apt.conf"))
            .env("LC_ALL", "C")
            .current_dir(folder)
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("cannot start {program}"))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        bail!("{}", complaint(&String::from_utf8_lossy(&output.stderr)))
    }
}

const OWN_KERNEL: &str =
    "give a kernel of your own with --kernel PATH (a vmlinuz, or a folder with boot/ and lib/modules/)";

/// apt's first error line, which names the cause; what follows is usually its echo.
fn complaint(stderr: &str) -> String {
    let line = |mark: &str| stderr.lines().find_map(|l| l.strip_prefix(mark)).map(|l| l.trim().to_owned());
    line("E:")
        .or_else(|| line("Err:"))
        .or_else(|| line("W:"))
        .unwrap_or_else(|| "apt gave no reason".to_owned())
}

fn configuration(home: &Path) -> String {
    let home = home.display();
    format!(
        r#"Dir::State "{home}/state";
Dir::State::status "{home}/state/status";
Dir::Cache "{home}/cache";
Dir::Cache::pkgcache "pkgcache.bin";
Dir::Cache::srcpkgcache "srcpkgcache.bin";
Dir::Etc::SourceList "/dev/null";
Dir::Etc::SourceParts "{home}/sources.d";
Dir::Etc::Preferences "/dev/null";
Dir::Etc::PreferencesParts "{home}/preferences.d";
APT::Architecture "amd64";
APT::Sandbox::User "root";
APT::Update::Error-Mode "any";
Acquire::Languages "none";
Acquire::Retries "2";
Acquire::http::Timeout "20";
Acquire::https::Timeout "20";
#clear Acquire::IndexTargets::deb::DEP-11;
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Post-Invoke;
"#
    )
}

/// First alternatives of `Depends` and `Pre-Depends`, without versions and architectures.
fn needs(fields: &str) -> Vec<String> {
    fields
        .lines()
        .filter_map(|l| l.strip_prefix("Depends:").or_else(|| l.strip_prefix("Pre-Depends:")))
        .flat_map(|l| l.split(','))
        .filter_map(|alternatives| alternatives.split('|').next()?.split_whitespace().next())
        .map(|name| name.split(':').next().unwrap_or(name).to_owned())
        .collect()
}

/// The address of the first Debian archive among the system's enabled sources, in the order apt reads them.
pub fn mirror_of_system(etc: &Path) -> Option<String> {
    let mut files = vec![etc.join("sources.list")];
    let mut parts: Vec<PathBuf> = fs::read_dir(etc.join("sources.list.d"))
        .into_iter()
        .flatten()
        .filter_map(|e| e.ok().map(|e| e.path()))
        .collect();
    parts.sort();
    files.append(&mut parts);
    files.iter().find_map(|file| {
        let text = fs::read_to_string(file).ok()?;
        match file.extension()?.to_str()? {
            "list" => mirror_in_list(&text),
            "sources" => mirror_in_deb822(&text),
            _ => None,
        }
    })
}

/// Suites of Debian proper; a mirror that carries one of them carries the others.
fn is_debian(uri: &str, suite: &str) -> bool {
    const RELEASES: &[&str] =
        &["bookworm", "trixie", "forky", "sid", "unstable", "testing", "stable", "oldstable"];
    let release = suite.split(['-', '/']).next().unwrap_or_default();
    let path = uri.trim_end_matches('/');
    RELEASES.contains(&release)
        && !suite.contains("security")
        && !path.ends_with("-security")
        && ["http://", "https://", "mirror+", "file:", "copy:"].iter().any(|s| uri.starts_with(s))
        && path.rsplit('/').next().is_some_and(|last| {
            last == "debian" || last.strip_suffix(".list").is_some() || last.ends_with('Z')
        })
}

/// One-line style: `deb [options] uri suite components…`.
pub fn mirror_in_list(text: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let mut rest = line.trim().strip_prefix("deb ")?.trim_start();
        if rest.starts_with('[') {
            rest = rest.split_once(']')?.1.trim_start();
        }
        let mut words = rest.split_whitespace();
        let (uri, suite) = (words.next()?, words.next()?);
        (words.any(|c| c == "main") && is_debian(uri, suite)).then(|| uri.to_owned())
    })
}

/// Paragraph style (deb822).
pub fn mirror_in_deb822(text: &str) -> Option<String> {
    let mut paragraphs: Vec<std::collections::BTreeMap<String, String>> =
        vec![std::collections::BTreeMap::new()];
    let mut last = String::new();
    for line in text.lines().filter(|l| !l.starts_with('#')) {
        if line.trim().is_empty() {
            paragraphs.push(std::collections::BTreeMap::new());
        } else if let Some(current) = paragraphs.last_mut() {
            if line.starts_with([' ', '\t']) {
                current.entry(last.clone()).or_default().push_str(&format!(" {}", line.trim()));
            } else if let Some((key, value)) = line.split_once(':') {
                last = key.trim().to_ascii_lowercase();
                current.insert(last.clone(), value.trim().to_owned());
            }
        }
    }
    paragraphs.iter().find_map(|p| {
        let words = |key: &str| p.get(key).map(String::as_str).unwrap_or_default().split_whitespace();
        let off = words("enabled")
            .any(|v| matches!(v.to_ascii_lowercase().as_str(), "no" | "false" | "off" | "0" | "disable"));
        if off || !words("types").any(|t| t == "deb") || !words("components").any(|c| c == "main") {
            return None;
        }
        words("uris").find(|uri| words("suites").any(|suite| is_debian(uri, suite))).map(str::to_owned)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_are_read_and_foreign_archives_passed_over() {
        let text = "Types: deb\nURIs: https://deb.example.org/node\nSuites: nodistro\nComponents: main\n\n\
                    Types: deb\nEnabled: no\nURIs: http://off.example.org/debian\nSuites: trixie\nComponents: main\n\n\
                    # comment\nTypes: deb deb-src\nURIs: http://sec.example.org/debian-security\nSuites: trixie-security\nComponents: main\n\n\
                    Types: deb\nURIs:\n http://mirror.example.org/debian/\nSuites: trixie\n trixie-updates\nComponents: main contrib\n";
        assert_eq!(mirror_in_deb822(text).as_deref(), Some("http://mirror.example.org/debian/"));
    }

    #[test]
    fn lines_are_read_with_their_options() {
        let text = "# deb http://old.example.org/debian bookworm main\n\
                    deb-src http://src.example.org/debian bookworm main\n\
                    deb http://third.example.org/apt cloud-bookworm main\n\
                    deb [arch=amd64 signed-by=/x.gpg] https://m.example.org/pub/debian bookworm main contrib\n";
        assert_eq!(mirror_in_list(text).as_deref(), Some("https://m.example.org/pub/debian"));
        assert_eq!(mirror_in_list("deb http://m.example.org/debian bookworm-security main"), None);
    }

    #[test]
    fn needs_take_the_first_alternative() {
        let fields = "Package: a\nDepends: linux-base-1 (= 1), dracut | initramfs-tools (>= 0.1), kmod:any\nPre-Depends: linux-base (>= 4)\n";
        assert_eq!(needs(fields), ["linux-base-1", "dracut", "kmod", "linux-base"]);
    }

    #[test]
    fn the_cause_is_in_one_line() {
        assert_eq!(
            complaint("W: x\nE: Failed to fetch y\nE: Some index files failed\n"),
            "Failed to fetch y"
        );
    }
}
