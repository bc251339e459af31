//! The package of the daemon: the `trunkline` binary, `trunkline-insight` beside it, unit, user, folders, pages and
//! completions.
//!
//! What is in it is listed in [`FILES`]; manual pages and completion scripts are asked of the binary, which has the
//! command line's definition.

use super::{Control, architecture, changelog, install, oldest_library, pack, run, stripped, write};
use crate::Tree;
use crate::suite::target;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A daemon larger than this has taken something in that is not for it.
const BINARY_BYTES_MAX: u64 = 20 << 20;
/// File of the work tree, path in the package, mode.
const FILES: [(&str, &str, u32); 15] = [
    ("packaging/trunkline.service", "usr/lib/systemd/system/trunkline.service", 0o644),
    ("packaging/trunkline-relay.service", "usr/lib/systemd/system/trunkline-relay.service", 0o644),
    ("packaging/trunkline.sysusers", "usr/lib/sysusers.d/trunkline.conf", 0o644),
    ("packaging/trunkline.tmpfiles", "usr/lib/tmpfiles.d/trunkline.conf", 0o644),
    ("packaging/daemon.toml", "etc/trunkline/daemon.toml", 0o644),
    ("packaging/debian/copyright", "usr/share/doc/trunkline/copyright", 0o644),
    ("docs/configuration.md", "usr/share/doc/trunkline/configuration.md", 0o644),
    ("docs/install.md", "usr/share/doc/trunkline/install.md", 0o644),
    ("docs/operations.md", "usr/share/doc/trunkline/operations.md", 0o644),
    ("docs/policy.md", "usr/share/doc/trunkline/policy.md", 0o644),
    ("docs/remote.md", "usr/share/doc/trunkline/remote.md", 0o644),
    ("packaging/grafana/trunkline.json", "usr/share/doc/trunkline/grafana.json", 0o644),
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
pub fn daemon(revision: &str) -> Result<PathBuf, String> {
    let binary = target().join("release/trunkline");
    if !binary.is_file() {
        return Err(format!(
            "{} is not there: cargo build --release --package trunkline-cli",
            binary.display()
        ));
    }
    let own = stripped(&binary, "--strip-all").map_err(|error| error.to_string())?;
    let control = Control {
        name: "trunkline",
        version: format!("{}{revision}", env!("CARGO_PKG_VERSION")),
        architecture: architecture()?,
        depends: format!(
            "libc6 (>= {}), libgcc-s1, systemd | systemd-standalone-sysusers | adduser",
            oldest_library(&own)
        ),
        section: "net",
        further: "Recommends: ca-certificates\n",
        description: "remote procedure calls as a managed service of the host\n \
             One daemon per host marshals, checks, routes, balances, transports and measures\n \
             the calls of all applications, which link a thin stub. It speaks gRPC, and can be\n \
             replaced while calls are in flight.",
    };
    let insight = stripped(&binary.with_file_name("trunkline-insight"), "--strip-all");
    let insight = insight.map_err(|error| error.to_string())?;
    pack(&control, |tree| lay_out(&Tree::root(), &own, &insight, tree))
}

fn lay_out(root: &Path, binary: &[u8], insight: &[u8], tree: &Path) -> io::Result<()> {
    if binary.len() as u64 > BINARY_BYTES_MAX {
        let most = BINARY_BYTES_MAX >> 20;
        let problem = format!("the stripped binary has {} bytes; at most {most} MiB", binary.len());
        return Err(io::Error::other(problem));
    }
    let own = tree.join("usr/bin/trunkline");
    write(&own, binary, 0o755)?;
    let insight_program = tree.join("usr/bin/trunkline-insight");
    write(&insight_program, insight, 0o755)?;
    for (from, to, mode) in FILES {
        install(&root.join(from), &tree.join(to), mode)?;
    }
    for (shell, to) in SHELLS {
        write(&tree.join(to), &run(Command::new(&own).args(["completions", shell]))?, 0o644)?;
    }
    let pages = tree.join("usr/share/man/man1");
    fs::create_dir_all(&pages)?;
    for program in [&own, &insight_program] {
        run(Command::new(program).arg("man").arg(&pages))?;
    }
    for page in fs::read_dir(&pages)? {
        // Without name and time, so that equal pages are equal files.
        run(Command::new("gzip").args(["-9n"]).arg(page?.path()))?;
    }
    changelog(root, &tree.join("usr/share/doc/trunkline"))?;
    write(&tree.join("DEBIAN/conffiles"), b"/etc/trunkline/daemon.toml\n", 0o644)
}

#[cfg(test)]
mod tests {
    //! Shows that what is packed is there.
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn every_file_is_there_and_scripts_can_run() {
        for (from, to, mode) in FILES {
            let found = fs::metadata(Tree::root().join(from));
            let found = found.unwrap_or_else(|error| panic!("{from}: {error}"));
            let is_script = to.starts_with("DEBIAN/");
            assert_eq!((found.mode() & 0o111 != 0, mode == 0o755), (is_script, is_script), "{from}");
        }
    }

    #[test]
    fn units_are_what_the_service_manager_reads() {
        if Command::new("systemd-analyze").arg("--version").output().is_err() {
            return eprintln!("NOT SHOWN, because systemd-analyze is not installed");
        }
        let folder = std::env::temp_dir().join(format!("trunkline-units-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        for (from, ..) in FILES.iter().filter(|(from, ..)| from.ends_with(".service")) {
            // The program is not installed here.
            let text = fs::read_to_string(Tree::root().join(from)).unwrap();
            let unit = folder.join(Path::new(from).file_name().unwrap());
            fs::write(&unit, text.replace("=/usr/bin/trunkline ", "=/bin/true ")).unwrap();
            let verified = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&unit).output();
            let verified = verified.unwrap();
            let said = String::from_utf8_lossy(&verified.stderr);
            // It speaks of other units of this machine, too.
            let of_this = said.lines().filter(|line| line.contains("trunkline")).collect::<Vec<_>>();
            assert!(verified.status.success() && of_this.is_empty(), "{from}: {said}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
