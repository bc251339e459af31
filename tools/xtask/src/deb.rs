//! `cargo xtask deb`: a Debian package of the `trunkline` binary that was built for release.
//!
//! The tree of the package is laid out below the target folder and packed by `dpkg-deb`. What is in it is listed in
//! [`FILES`]; manual pages and completion scripts are asked of the binary, which has the command line's definition.

use crate::Tree;
use crate::suite::{is_here, target};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A daemon larger than this has taken something in that is not for it.
const BINARY_BYTES_MAX: u64 = 20 << 20;
/// File of the work tree, path in the package, mode.
const FILES: [(&str, &str, u32); 12] = [
    ("packaging/trunkline.service", "usr/lib/systemd/system/trunkline.service", 0o644),
    ("packaging/trunkline.sysusers", "usr/lib/sysusers.d/trunkline.conf", 0o644),
    ("packaging/trunkline.tmpfiles", "usr/lib/tmpfiles.d/trunkline.conf", 0o644),
    ("packaging/daemon.toml", "etc/trunkline/daemon.toml", 0o644),
    ("packaging/debian/copyright", "usr/share/doc/trunkline/copyright", 0o644),
    ("docs/configuration.md", "usr/share/doc/trunkline/configuration.md", 0o644),
    ("docs/install.md", "usr/share/doc/trunkline/install.md", 0o644),
    ("docs/operations.md", "usr/share/doc/trunkline/operations.md", 0o644),
    ("docs/policy.md", "usr/share/doc/trunkline/policy.md", 0o644),
    ("packaging/debian/postinst", "DEBIAN/postinst", 0o755),
    ("packaging/debian/prerm", "DEBIAN/prerm", 0o755),
    ("packaging/debian/postrm", "DEBIAN/postrm", 0o755),
];
/// Shell, path of its script in the package.
const SHELLS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/trunkline"),
    ("zsh", "usr/share/zsh/vendor-completions/_trunkline"),
    ("fish", "usr/share/fish/vendor_completions.d/trunkline.fish"),
];

/// Makes the package of the release build; `revision` is put behind the version, for tests of an upgrade. Returns
/// where it is.
///
/// # Errors
/// What is missing, or what a tool says.
pub fn build(revision: &str) -> Result<PathBuf, String> {
    for tool in ["dpkg-deb", "strip", "gzip"] {
        if !is_here(tool) {
            return Err(format!("{tool} is not installed: packages are made on Debian or a system like it"));
        }
    }
    let (root, target) = (Tree::root(), target());
    let binary = target.join("release/trunkline");
    if !binary.is_file() {
        return Err(format!(
            "{} is not there: cargo build --release --package trunkline-cli",
            binary.display()
        ));
    }
    let version = format!("{}{revision}", env!("CARGO_PKG_VERSION"));
    let name = format!("trunkline_{version}_{}", architecture()?);
    let tree = target.join("deb").join(&name);
    let _ = fs::remove_dir_all(&tree);
    lay_out(&root, &binary, &tree, &version).map_err(|error| format!("{}: {error}", tree.display()))?;
    let package = tree.with_file_name(format!("{name}.deb"));
    let mut pack = Command::new("dpkg-deb");
    run(pack.args(["--root-owner-group", "-Zxz", "--build"]).arg(&tree).arg(&package))
        .map_err(|error| error.to_string())?;
    Ok(package)
}

fn lay_out(root: &Path, binary: &Path, tree: &Path, version: &str) -> io::Result<()> {
    let own = tree.join("usr/bin/trunkline");
    install(binary, &own, 0o755)?;
    run(Command::new("strip").args(["--strip-all", "--remove-section=.comment"]).arg(&own))?;
    let bytes = fs::metadata(&own)?.len();
    if bytes > BINARY_BYTES_MAX {
        let most = BINARY_BYTES_MAX >> 20;
        return Err(io::Error::other(format!("the stripped binary has {bytes} bytes; at most {most} MiB")));
    }
    for (from, to, mode) in FILES {
        install(&root.join(from), &tree.join(to), mode)?;
    }
    for (shell, to) in SHELLS {
        write(&tree.join(to), &run(Command::new(&own).args(["completions", shell]))?)?;
    }
    let pages = tree.join("usr/share/man/man1");
    fs::create_dir_all(&pages)?;
    run(Command::new(&own).arg("man").arg(&pages))?;
    for page in fs::read_dir(&pages)? {
        // Without name and time, so that equal pages are equal files.
        run(Command::new("gzip").args(["-9n"]).arg(page?.path()))?;
    }
    let text = |path: &str| fs::read(root.join(path));
    write(&tree.join("usr/share/doc/trunkline/changelog"), &text("CHANGELOG.md")?)?;
    run(Command::new("gzip").args(["-9n"]).arg(tree.join("usr/share/doc/trunkline/changelog")))?;
    write(&tree.join("DEBIAN/conffiles"), b"/etc/trunkline/daemon.toml\n")?;
    let library = oldest_library(&fs::read(&own)?);
    let architecture = architecture().map_err(io::Error::other)?;
    write(&tree.join("DEBIAN/control"), control(version, &architecture, &library, size_kib(tree)?).as_bytes())
}

/// What dpkg is told of the package.
fn control(version: &str, architecture: &str, library: &str, size_kib: u64) -> String {
    format!(
        "Package: trunkline\nVersion: {version}\nArchitecture: {architecture}\n\
         Maintainer: the authors of Trunkline <trunkline@localhost>\nInstalled-Size: {size_kib}\n\
         Depends: libc6 (>= {library}), libgcc-s1, systemd | systemd-standalone-sysusers | adduser\n\
         Recommends: ca-certificates\nSection: net\nPriority: optional\n\
         Description: remote procedure calls as a managed service of the host\n \
         One daemon per host marshals, checks, routes, balances, transports and measures\n \
         the calls of all applications, which link a thin stub. It speaks gRPC, and can be\n \
         replaced while calls are in flight.\n"
    )
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
    write(to, &fs::read(from).map_err(named)?)?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode))
}

fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
    fs::write(path, content)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o644))
}

fn size_kib(folder: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
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
    //! Shows what dpkg is told, and that what is packed is there.
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn the_control_file_is_one() {
        let text = control("0.1.0+1", "amd64", "2.34", 12_000);
        for line in ["Version: 0.1.0+1", "Installed-Size: 12000", "Depends: libc6 (>= 2.34), libgcc-s1"] {
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

    #[test]
    fn every_file_is_there_and_scripts_can_run() {
        for (from, to, mode) in FILES {
            let found = fs::metadata(Tree::root().join(from));
            let found = found.unwrap_or_else(|error| panic!("{from}: {error}"));
            let is_script = to.starts_with("DEBIAN/");
            assert_eq!((found.mode() & 0o111 != 0, mode == 0o755), (is_script, is_script), "{from}");
        }
    }
}
