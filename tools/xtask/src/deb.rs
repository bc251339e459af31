//! `cargo xtask deb`: Debian packages of what was built for release.
//!
//! The tree of a package is laid out below the target folder and packed by `dpkg-deb`. `daemon.rs` has what is in the
//! daemon's, `library.rs` what is in those of the library for C and C++.

mod daemon;
mod library;

pub use daemon::daemon;
pub use library::library;

use crate::suite::{is_here, target};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What dpkg is told of a package.
struct Control {
    name: &'static str,
    version: String,
    architecture: String,
    depends: String,
    section: &'static str,
    /// Further fields, each with its newline.
    further: &'static str,
    /// A line, and the lines of a paragraph, each of which begins with a space.
    description: &'static str,
}

impl Control {
    fn text(&self, size_kib: u64) -> String {
        let Self { name, version, architecture, depends, section, further, description } = self;
        format!(
            "Package: {name}\nVersion: {version}\nArchitecture: {architecture}\n\
             Maintainer: the authors of Trunkline <trunkline@localhost>\nInstalled-Size: {size_kib}\n\
             Depends: {depends}\n{further}Section: {section}\nPriority: optional\n\
             Description: {description}\n"
        )
    }
}

/// Makes a package of what `lay_out` puts below a folder; returns where it is.
fn pack(control: &Control, lay_out: impl FnOnce(&Path) -> io::Result<()>) -> Result<PathBuf, String> {
    for tool in ["dpkg-deb", "strip", "gzip"] {
        if !is_here(tool) {
            return Err(format!("{tool} is not installed: packages are made on Debian or a system like it"));
        }
    }
    let name = format!("{}_{}_{}", control.name, control.version, control.architecture);
    let tree = target().join("deb").join(&name);
    let _ = fs::remove_dir_all(&tree);
    let laid_out = lay_out(&tree).and_then(|()| {
        let text = control.text(size_kib(&tree)?);
        write(&tree.join("DEBIAN/control"), text.as_bytes(), 0o644)
    });
    laid_out.map_err(|error| format!("{}: {error}", tree.display()))?;
    let package = tree.with_file_name(format!("{name}.deb"));
    let mut pack = Command::new("dpkg-deb");
    run(pack.args(["--root-owner-group", "-Zxz", "--build"]).arg(&tree).arg(&package))
        .map_err(|error| error.to_string())?;
    Ok(package)
}

/// A program or shared object without what only debuggers read.
fn stripped(built: &Path, how_much: &str) -> io::Result<Vec<u8>> {
    let to = built.with_extension("stripped");
    run(Command::new("strip").args([how_much, "--remove-section=.comment", "-o"]).arg(&to).arg(built))?;
    let bytes = fs::read(&to)?;
    fs::remove_file(&to)?;
    Ok(bytes)
}

/// The changelog, packed, as packages have it.
fn changelog(root: &Path, folder: &Path) -> io::Result<()> {
    let to = folder.join("changelog");
    install(&root.join("CHANGELOG.md"), &to, 0o644)?;
    // Without name and time, so that equal pages are equal files.
    run(Command::new("gzip").args(["-9n"]).arg(&to)).map(drop)
}

/// The newest version of the C library whose symbols a program asks for: it needs that one or a newer one.
fn oldest_library(program: &[u8]) -> String {
    let marks = program.windows(6).enumerate().filter(|(_, window)| window == b"GLIBC_");
    let versions = marks.filter_map(|(at, _)| {
        let text = program[at + 6..].iter().take_while(|byte| byte.is_ascii_digit() || **byte == b'.');
        let text: String = text.map(|byte| char::from(*byte)).collect();
        let (major, minor) = text.split_once('.')?;
        Some((major.parse::<u32>().ok()?, minor.split('.').next()?.parse::<u32>().ok()?))
    });
    let (major, minor) = versions.max().unwrap_or((2, 17));
    format!("{major}.{minor}")
}

fn architecture() -> Result<String, String> {
    let asked = run(Command::new("dpkg").arg("--print-architecture")).map_err(|error| error.to_string())?;
    Ok(String::from_utf8_lossy(&asked).trim().to_owned())
}

fn install(from: &Path, to: &Path, mode: u32) -> io::Result<()> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", from.display()));
    write(to, &fs::read(from).map_err(named)?, mode)
}

fn write(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
    fs::write(path, content)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

fn size_kib(folder: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        // Of a link itself, not of where it leads.
        let found = entry.metadata()?;
        bytes += if found.is_dir() { size_kib(&entry.path())? << 10 } else { found.len() };
    }
    Ok(bytes.div_ceil(1 << 10))
}

/// Runs a tool to its end; what it printed.
fn run(command: &mut Command) -> io::Result<Vec<u8>> {
    let ran = command.stdin(Stdio::null()).output()?;
    if ran.status.success() {
        return Ok(ran.stdout);
    }
    let told = String::from_utf8_lossy(&ran.stderr).into_owned();
    Err(io::Error::other(format!("{:?}: {}: {told}", command.get_program(), ran.status)))
}

#[cfg(test)]
mod tests {
    //! Shows what dpkg is told.
    use super::*;

    #[test]
    fn the_control_file_is_one() {
        let control = Control {
            name: "trunkline",
            version: "0.1.0+1".into(),
            architecture: "amd64".into(),
            depends: "libc6 (>= 2.34), libgcc-s1".into(),
            section: "net",
            further: "Recommends: ca-certificates\n",
            description: "calls\n of all applications",
        };
        let text = control.text(12_000);
        for line in [
            "Version: 0.1.0+1",
            "Installed-Size: 12000",
            "Depends: libc6 (>= 2.34), libgcc-s1",
            "Recommends:",
        ] {
            assert!(text.lines().any(|found| found.starts_with(line)), "{line}:\n{text}");
        }
        // A description's further lines begin with a space.
        let (_, description) = text.split_once("Description: ").unwrap();
        assert!(description.lines().skip(1).all(|line| line.starts_with(' ')), "{text}");
    }

    #[test]
    fn the_c_library_is_the_newest_asked_for() {
        assert_eq!(oldest_library(b"\0GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.4\0GLIBC_PRIVATE\0"), "2.34");
        assert_eq!(oldest_library(b"static"), "2.17");
    }
}
