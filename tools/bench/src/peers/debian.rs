//! Packages of Debian's that peers need: installed ones are used as they are, others are unpacked below the build
//! folder, which needs no right and leaves the system as it is. `apt-get` finds what they need in turn, and fetches it.

use crate::harness::children::{Failure, text};
use crate::harness::shell::{output, run, said};
use clap::ValueEnum;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// What is done about peers that are not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Peers {
    /// Fetch and unpack them below the build folder.
    #[default]
    Unpack,
    /// Install the packages of Debian they need, with apt-get (through sudo, if need be); unpack or build the others.
    Install,
    /// Use what is installed, fetch no package.
    Installed,
}

static PACKAGES: LazyLock<BTreeMap<String, Debian>> = LazyLock::new(|| {
    toml::from_str(include_str!("../../packages.toml")).expect("a test reads packages.toml")
});

/// Packages, and files of theirs without which they are not there.
#[derive(Debug, Deserialize)]
pub struct Debian {
    packages: Vec<String>,
    files: Vec<String>,
}

/// File that says that everything was unpacked.
const UNPACKED: &str = "unpacked";

impl Debian {
    /// Those of a name in `packages.toml`.
    pub fn of(name: &str) -> Result<&'static Self, Failure> {
        PACKAGES.get(name).ok_or_else(|| format!("packages.toml has no {name:?}").into())
    }

    /// The folder that is `/` to them: where they are installed, `/` itself, else `out`, where they are unpacked.
    ///
    /// # Errors
    /// They are not there, and cannot or may not be fetched.
    pub fn root(&self, out: &Path, peers: Peers) -> Result<PathBuf, Failure> {
        if self.are_in(Path::new("/")) {
            return Ok("/".into());
        }
        if peers == Peers::Installed {
            return Err(format!("needs Debian's {}", self.packages.join(", ")).into());
        }
        if !self.are_in(out) {
            std::fs::create_dir_all(out)?;
            self.unpack(out)?;
        }
        if self.are_in(out) {
            return Ok(out.to_owned());
        }
        Err(format!("{} have no {}", self.packages.join(", "), self.files.join(", ")).into())
    }

    /// Whether all of them are there. What was installed before was not unpacked.
    pub fn are_in(&self, root: &Path) -> bool {
        let is_there = |file: &String| root.join(file).exists() || Path::new("/").join(file).exists();
        self.files.iter().all(is_there) && (root == Path::new("/") || root.join(UNPACKED).exists())
    }

    fn unpack(&self, out: &Path) -> Result<(), Failure> {
        let mut options = Vec::new();
        let wanted = match self.closure(&options) {
            Ok(wanted) => wanted,
            // Nobody has asked for the lists of packages on this machine yet: they are fetched to a place of our own.
            Err(_) => {
                options = own_lists(out)?;
                run(Command::new("apt-get").args(&options).args(["-qq", "update"]))?;
                self.closure(&options)?
            }
        };
        run(Command::new("apt-get").args(&options).arg("download").args(&wanted).current_dir(out))?;
        for entry in std::fs::read_dir(out)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "deb") {
                run(Command::new("dpkg").args(["-x", text(&path), text(out)]))?;
                std::fs::remove_file(path)?;
            }
        }
        Ok(std::fs::write(out.join(UNPACKED), wanted.join("\n"))?)
    }

    /// The packages, and what they need that is not installed.
    fn closure(&self, options: &[String]) -> Result<Vec<String>, Failure> {
        let mut simulated = Command::new("apt-get");
        simulated.args(options).args(["--simulate", "--no-install-recommends", "install"]);
        Ok(wanted(&self.packages, &said(simulated.args(&self.packages).env("LC_ALL", "C"))?))
    }
}

/// Installs what is missing of these, all at once.
pub fn install(all: &[&Debian]) -> Result<(), Failure> {
    let missing = all.iter().filter(|debian| !debian.are_in(Path::new("/")));
    let packages: Vec<&str> = missing.flat_map(|debian| &debian.packages).map(String::as_str).collect();
    if packages.is_empty() {
        return Ok(());
    }
    let is_root = output("id", &["-u"])? == "0";
    let apt = |words: &[&str]| {
        let mut command = Command::new(if is_root { "apt-get" } else { "sudo" });
        command.args((!is_root).then_some("apt-get")).args(words).env("DEBIAN_FRONTEND", "noninteractive");
        command
    };
    eprintln!("installing {}", packages.join(", "));
    run(&mut apt(&["-qq", "update"]))?;
    run(apt(&["-qq", "--yes", "--no-install-recommends", "install"]).args(packages))
}

/// Where libraries are below a folder that is `/` to them, as the loader wants it.
pub fn libraries_below(root: &Path) -> String {
    ["x86_64", "aarch64"].map(|machine| format!("{}/usr/lib/{machine}-linux-gnu", text(root))).join(":")
}

/// What the simulation would install, and what was asked for: a part of it may be installed already, and builds look
/// for all of it in one place.
fn wanted(asked: &[String], simulated: &str) -> Vec<String> {
    let installed = simulated.lines().filter_map(|line| line.strip_prefix("Inst ")?.split(' ').next());
    let mut all: Vec<String> = installed.map(str::to_owned).chain(asked.iter().cloned()).collect();
    all.sort();
    all.dedup();
    all
}

/// Options that keep lists of packages below `out`.
fn own_lists(out: &Path) -> Result<Vec<String>, Failure> {
    let mut options = Vec::new();
    for (key, folder) in [("State::lists", "lists"), ("Cache", "cache")] {
        let folder = out.join(folder);
        std::fs::create_dir_all(folder.join("partial"))?;
        options.extend(["-o".to_owned(), format!("Dir::{key}={}", text(&folder))]);
    }
    options.extend(["-o", "Debug::NoLocking=true"].map(str::to_owned));
    Ok(options)
}

#[cfg(test)]
mod tests {
    //! What apt-get would install is what is unpacked, with what was asked for.
    use super::*;

    #[test]
    fn the_simulation_is_read() {
        let said = "Reading package lists...\nInst libcapnp-0.9.2 (0.9.2-2 Debian:12 [amd64])\nInst capnproto (0)\n\
                    Conf capnproto (0)\n";
        assert_eq!(
            wanted(&["capnproto", "libcapnp-dev"].map(str::to_owned), said),
            ["capnproto", "libcapnp-0.9.2", "libcapnp-dev"]
        );
    }

    #[test]
    fn nothing_is_fetched_where_only_what_is_installed_counts() {
        let [packages, files] = ["no-such-package", "no/such/file"].map(|name| vec![name.to_owned()]);
        let debian = Debian { packages, files };
        let out = tempfile::tempdir().unwrap();
        let why = debian.root(out.path(), Peers::Installed).unwrap_err().to_string();
        assert_eq!(why, "needs Debian's no-such-package");
        assert_eq!(std::fs::read_dir(out.path()).unwrap().count(), 0);
    }
}
