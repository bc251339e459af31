//! Generates the admin API, and what tests ask a daemon's health with. Has the linker keep one of functions whose code
//! is the same.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Keeps one of functions whose code is the same, as many are that differ in their types alone: of LLVM's linker, which
/// is the one of rustc on x86-64 Linux. The daemon is 2.6 % smaller for it.
const FOLD: &str = "-Wl,--icf=all";

fn main() -> Result<(), trunkline_build::BuildError> {
    println!("cargo:rerun-if-changed=build.rs");
    if env::var("PROFILE").is_ok_and(|profile| profile == "release") && is_foldable() {
        println!("cargo:rustc-link-arg-bins={FOLD}");
    }
    let protos = ["../../proto/trunkline/admin/v1/admin.proto", "../../proto/grpc/health/v1/health.proto"];
    trunkline_build::compile_protos(&protos, &["../../proto"])
}

/// Whether the linker of this build knows the word: it links a program of one line with it.
fn is_foldable() -> bool {
    let words = ["OUT_DIR", "RUSTC", "TARGET"].map(env::var_os);
    let [Some(folder), Some(rustc), Some(target)] = words else { return false };
    let folder = PathBuf::from(folder);
    let source = folder.join("fold.rs");
    if std::fs::write(&source, "fn main() {}\n").is_err() {
        return false;
    }
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let linker = env::var_os("RUSTC_LINKER").map(PathBuf::from);
    let mut command = Command::new(rustc);
    command.args(flags.split('\u{1f}').filter(|flag| !flag.is_empty()));
    command.args(linker.iter().map(|linker| format!("-Clinker={}", linker.display())));
    command.arg("--target").arg(target).arg(format!("-Clink-arg={FOLD}"));
    links(command.arg("-o").arg(folder.join("fold")), &source)
}

fn links(command: &mut Command, source: &Path) -> bool {
    let status = command.arg(source).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}
