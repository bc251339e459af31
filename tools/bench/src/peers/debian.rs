//! Packages of Debian's that peers need: installed ones are used as they are, others are unpacked below the build
//! folder, which needs no right and leaves the system as it is. `peers/debian` has apt-get find what they need in turn,
//! and fetch it.

use crate::harness::children::{Failure, text};
use crate::harness::shell::run;
use clap::ValueEnum;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// Where our sources of the peers are.
pub const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers");

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
        if self.are_installed() {
            return Ok("/".into());
        }
        if peers == Peers::Installed {
            return Err(format!("needs Debian's {}", self.packages.join(", ")).into());
        }
        // A file that says that everything was unpacked.
        if !out.join("unpacked").exists() {
            std::fs::create_dir_all(out)?;
            run(script().args(["unpack", text(out)]).args(&self.packages))?;
        }
        // What was installed before was not unpacked.
        let lacks = |file: &&String| !out.join(file).exists() && !Path::new("/").join(file).exists();
        match self.files.iter().find(lacks) {
            Some(file) => Err(format!("{} have no {file}", self.packages.join(", ")).into()),
            None => Ok(out.to_owned()),
        }
    }

    fn are_installed(&self) -> bool {
        self.files.iter().all(|file| Path::new("/").join(file).exists())
    }
}

/// Installs what is missing of these, all at once.
pub fn install(all: &[&Debian]) -> Result<(), Failure> {
    let missing = all.iter().filter(|debian| !debian.are_installed());
    let packages: Vec<&str> = missing.flat_map(|debian| &debian.packages).map(String::as_str).collect();
    if packages.is_empty() {
        return Ok(());
    }
    eprintln!("installing {}", packages.join(", "));
    run(script().arg("install").args(packages))
}

fn script() -> Command {
    Command::new(format!("{SOURCES}/debian"))
}

/// Where libraries are below a folder that is `/` to them, as the loader wants it.
pub fn libraries_below(root: &Path) -> String {
    ["x86_64", "aarch64"].map(|machine| format!("{}/usr/lib/{machine}-linux-gnu", text(root))).join(":")
}

#[cfg(test)]
mod tests {
    //! What apt-get would install is what is unpacked, with what was asked for, and only where that may be.
    use super::*;

    #[test]
    fn what_is_needed_is_fetched() {
        let dir = tempfile::tempdir().unwrap();
        let fake = "#!/bin/sh\ncase $1 in\n--simulate) echo 'Inst libcapnp (0)'; echo 'Conf libcapnp (0)';;\n\
                    download) shift; touch x.deb; echo \"$@\" >asked;;\nesac\n";
        for program in ["apt-get", "dpkg"] {
            std::fs::write(dir.path().join(program), fake).unwrap();
            run(Command::new("chmod").args(["+x", text(&dir.path().join(program))])).unwrap();
        }
        let path = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap());
        run(script().args(["unpack", text(dir.path()), "capnproto", "libcapnp"]).env("PATH", path)).unwrap();
        let read = |file| std::fs::read_to_string(dir.path().join(file)).unwrap();
        assert_eq!(
            (read("asked").as_str(), read("unpacked").as_str()),
            ("capnproto libcapnp\n", "capnproto\nlibcapnp\n")
        );
    }

    #[test]
    fn unpacked_programs_find_their_libraries() {
        assert!(libraries_below(Path::new("/peers")).starts_with("/peers/usr/lib/x86_64-linux-gnu:/peers/"));
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
