//! Shows the ABI from C, with the machine's compiler: `tests/c/abi.c` plainly, with checks on and under sanitizers, and
//! the examples as users build them, by pkg-config and by CMake. What the machine lacks is named and left out.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const WATCHDOG: Duration = Duration::from_secs(300);
const WARNINGS: [&str; 5] = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror"];

fn here(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
}

fn compiler() -> std::ffi::OsString {
    std::env::var_os("CC").unwrap_or_else(|| "cc".into())
}

/// Whether a tool is there; says which test goes without.
fn has(tool: impl AsRef<OsStr>, what: &str) -> bool {
    let tool = tool.as_ref();
    let found = Command::new(tool).arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("skipped: {what}: there is no {}", tool.display());
    }
    found
}

/// The library as a package lays it out.
fn installed() -> TempDir {
    let prefix = tempfile::tempdir().unwrap();
    let built = std::env::current_exe().unwrap().with_file_name("libtrunkline_c.so");
    let done = Command::new(here("install")).arg(prefix.path()).arg(&built).status().unwrap();
    assert!(done.success());
    prefix
}

fn success(what: &str, output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{what}: {}\n{out}\n{err}", output.status);
    out.into_owned()
}

/// Runs a program to its end.
fn run(mut command: Command) -> Output {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::null());
    let child = command.spawn().unwrap();
    let pid = child.id();
    let watched = std::thread::spawn(move || child.wait_with_output().unwrap());
    let began = Instant::now();
    while !watched.is_finished() {
        if began.elapsed() > WATCHDOG {
            let _ = Command::new("kill").args(["-ABRT", &pid.to_string()]).status();
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
    watched.join().unwrap()
}

/// Compiles `tests/c/abi.c` with these flags.
fn examined(prefix: &Path, flags: &[&str]) -> Command {
    let program = prefix.join(format!("abi{}", flags.len()));
    let mut cc = Command::new(compiler());
    cc.args(WARNINGS).args(["-g", "-O1"]).args(flags).arg(here("tests/c/abi.c")).arg("-o").arg(&program);
    cc.arg("-I").arg(prefix.join("include")).arg("-L").arg(prefix.join("lib"));
    cc.args(["-ltrunkline", "-lpthread"]).arg(format!("-Wl,-rpath,{}", prefix.join("lib").display()));
    success("cc", &run(cc));
    Command::new(program)
}

const PARTS: &str = "unary\nfailures\nqueued\nstreams\nmisuse\nthreads\nhandles 0\n";

#[test]
fn the_abi_does_what_it_says_from_c() {
    if !has(compiler(), "the ABI from C") {
        return;
    }
    let prefix = installed();
    let output = run(examined(prefix.path(), &[]));
    assert_eq!(success("abi", &output), PARTS);
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut checked = examined(prefix.path(), &[]);
    checked.env("TRUNKLINE_CHECKS", "1");
    let output = run(checked);
    assert_eq!(success("abi with checks", &output), PARTS);
    let told = String::from_utf8_lossy(&output.stderr);
    for misuse in
        ["tl_message_release: 0x", "tl_unary: 0x0 is no open channel", "tl_context_leave: this thread"]
    {
        assert!(told.contains(misuse), "{misuse:?} is not told:\n{told}");
    }
}

#[test]
fn the_abi_is_clean_under_sanitizers() {
    if !has(compiler(), "the ABI under sanitizers") {
        return;
    }
    let prefix = installed();
    let flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"];
    let trial = prefix.path().join("trial.c");
    std::fs::write(&trial, "int main(void) { return 0; }").unwrap();
    let mut cc = Command::new(compiler());
    cc.args(flags).arg(&trial).arg("-o").arg(prefix.path().join("trial"));
    if !run(cc).status.success() {
        return eprintln!("skipped: the ABI under sanitizers: the compiler has none");
    }
    let mut program = examined(prefix.path(), &flags);
    program.env("TRUNKLINE_CHECKS", "1");
    assert_eq!(success("abi under sanitizers", &run(program)), PARTS);
}

/// A message used after its release is seen by the address sanitizer if the library's checks are on.
#[test]
fn use_after_release_is_seen_with_checks_on() {
    if !has(compiler(), "use after release") {
        return;
    }
    let prefix = installed();
    let flags = ["-fsanitize=address", "-DUSE_AFTER_RELEASE"];
    let trial = prefix.path().join("trial.c");
    std::fs::write(&trial, "int main(void) { return 0; }").unwrap();
    let mut cc = Command::new(compiler());
    cc.args(["-fsanitize=address"]).arg(&trial).arg("-o").arg(prefix.path().join("trial"));
    if !run(cc).status.success() {
        return eprintln!("skipped: use after release: the compiler has no address sanitizer");
    }
    let mut program = examined(prefix.path(), &flags);
    program.env("TRUNKLINE_CHECKS", "1");
    let output = run(program);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && told.contains("heap-use-after-free"), "{told}");
}

/// Server and client of `examples`, under a daemon inside the server, cannot meet; with one of the host they do: that
/// is a system test. Here they are built as the documentation says.
#[test]
fn examples_are_built_by_pkg_config_and_by_cmake() {
    if !has(compiler(), "the examples") {
        return;
    }
    let prefix = installed();
    if has("pkg-config", "the examples by pkg-config") {
        let mut asked = Command::new("pkg-config");
        asked.args(["--cflags", "--libs", "trunkline"]);
        let output = run({
            asked.env("PKG_CONFIG_PATH", prefix.path().join("lib/pkgconfig"));
            asked
        });
        let flags = success("pkg-config", &output);
        for example in ["client", "server"] {
            let mut cc = Command::new(compiler());
            cc.args(WARNINGS).arg(here(&format!("examples/{example}.c"))).args(flags.split_whitespace());
            success(
                "cc",
                &run({
                    cc.arg("-o").arg(prefix.path().join(example));
                    cc
                }),
            );
        }
        refuses(&prefix.path().join("client"), prefix.path());
    }
    if has("cmake", "the examples by CMake") {
        let build = prefix.path().join("build");
        let mut configure = Command::new("cmake");
        configure.arg("-S").arg(here("examples")).arg("-B").arg(&build);
        configure.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.path().display()));
        success("cmake", &run(configure));
        let mut make = Command::new("cmake");
        make.arg("--build").arg(&build);
        success("cmake --build", &run(make));
        refuses(&build.join("client"), prefix.path());
    }
}

/// The client runs, and says that there is no daemon where it was told to look.
fn refuses(client: &Path, prefix: &Path) {
    let mut command = Command::new(client);
    command.env("TRUNKLINE_SOCKET", prefix.join("nobody")).env("LD_LIBRARY_PATH", prefix.join("lib"));
    let output = run(command);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && told.contains("SayHello: code 14"), "{told}");
}
