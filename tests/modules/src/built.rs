//! Where the shared objects are.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The token bucket's first version.
pub const TOKEN_BUCKET_1: &str = "trunkline_example_token_bucket_1";
/// Its second.
pub const TOKEN_BUCKET_2: &str = "trunkline_example_token_bucket_2";
/// The one that does wrong on order.
pub const FAULTY: &str = "trunkline_faulty_module";

/// A module in Rust: cargo puts it where it puts the test itself. It is copied to `folder`, with a mode the daemon
/// trusts.
///
/// # Panics
/// If it is not there.
pub fn rust(folder: &Path, name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a file");
    let built = test.with_file_name(format!("lib{name}.so"));
    trusted(&built, &folder.join(format!("lib{name}.so")))
}

/// `examples/modules/field-check/field_check.c`, compiled into `folder`.
pub fn field_check(folder: &Path) -> PathBuf {
    compiled(folder, "field_check", "examples/modules/field-check/field_check.c", &[])
}

/// `hostile.c` as these macros make it.
pub fn hostile(folder: &Path, name: &str, macros: &[&str]) -> PathBuf {
    compiled(folder, name, "tests/modules/hostile.c", macros)
}

/// A source of this repository as a module.
///
/// # Panics
/// If there is no C compiler, or it finds fault.
pub fn compiled(folder: &Path, name: &str, source: &str, flags: &[&str]) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let out = folder.join(format!("lib{name}.so"));
    let mut cc = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    cc.args(["-std=c11", "-shared", "-fPIC", "-O2", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror"]);
    cc.args(flags).arg("-I").arg(root.join("core/module-abi/include"));
    let done = cc.arg("-o").arg(&out).arg(root.join(source)).output().expect("a C compiler: cc, or CC");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    trusted(&out, &out)
}

fn trusted(from: &Path, to: &Path) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    if from != to {
        std::fs::copy(from, to).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
    }
    std::fs::set_permissions(to, PermissionsExt::from_mode(0o755)).expect("a file of ours");
    to.to_owned()
}
