//! Shows the ABI from C and C++, with the machine's compilers: `tests/c/abi.c` and `../cpp/tests/exam.cpp` plainly,
//! with checks on and under sanitizers, and the examples as users build them, by pkg-config and by CMake. What the
//! machine lacks is named and left out.

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

fn cpp_compiler() -> std::ffi::OsString {
    std::env::var_os("CXX").unwrap_or_else(|| "c++".into())
}

const SANITIZERS: [&str; 3] =
    ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"];

/// Races of threads. The library is built without: what it does with memory of a program is not seen, and no race.
const RACES: [&str; 2] = ["-fsanitize=thread", "-fno-omit-frame-pointer"];
/// So with memory of a send heap, which goes from thread to thread under the library's lock.
const NOT_SEEN: &str =
    "called_from_lib:libtrunkline.so.0\nrace:libtrunkline.so.0\nrace:detail::Arena::copy_out\n";
/// How a program ends in which a race was found.
const RACED: i32 = 66;

/// Whether the compiler has sanitizers; says which test goes without.
fn has_sanitizers(prefix: &Path, what: &str) -> bool {
    let trial = prefix.join("trial.c");
    std::fs::write(&trial, "int main(void) { return 0; }").unwrap();
    let mut cc = Command::new(compiler());
    cc.args(SANITIZERS).arg(&trial).arg("-o").arg(prefix.join("trial"));
    let found = run(cc).status.success();
    if !found {
        eprintln!("skipped: {what}: the compiler has no sanitizers");
    }
    found
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
    let mut cc = Command::new(compiler());
    cc.args(WARNINGS).arg(here("tests/c/abi.c"));
    built(cc, prefix, flags)
}

/// The same of `trunkline.hpp`.
fn examined_in_cpp(prefix: &Path, flags: &[&str]) -> Command {
    let mut cc = Command::new(cpp_compiler());
    cc.args(["-std=c++17", "-Wall", "-Wextra", "-Werror"]).arg(here("../cpp/tests/exam.cpp"));
    built(cc, prefix, flags)
}

/// The same of `tests/c/random.c`.
fn examined_at_random(prefix: &Path, flags: &[&str]) -> Command {
    let mut cc = Command::new(compiler());
    cc.args(WARNINGS).arg(here("tests/c/random.c"));
    built(cc, prefix, flags)
}

fn built(mut cc: Command, prefix: &Path, flags: &[&str]) -> Command {
    let program = prefix.join(format!("exam{}", flags.len()));
    // Lines, for what a sanitizer says; whole debug information takes a compiler half as long again.
    cc.arg("-g1").args(flags).arg("-o").arg(&program);
    cc.arg("-I").arg(prefix.join("include")).arg("-L").arg(prefix.join("lib"));
    cc.args(["-ltrunkline", "-lpthread"]).arg(format!("-Wl,-rpath,{}", prefix.join("lib").display()));
    success("cc", &run(cc));
    Command::new(program)
}

/// What `exam.cpp` says.
const CPP_PARTS: &str = "unary\ndeadlines\nstreams\nqueued\nhandles 0\n";
const PARTS: &str = "unary\nfailures\nqueued\nstreams\nwatches\nanswers\nuntaken\nmisuse\nthreads\nchildren\nforks\n\
     handles 0\n";

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
    if !has_sanitizers(prefix.path(), "the ABI under sanitizers") {
        return;
    }
    let mut program = examined(prefix.path(), &SANITIZERS);
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
    if !has_sanitizers(prefix.path(), "use after release") {
        return;
    }
    let flags = ["-fsanitize=address", "-DUSE_AFTER_RELEASE"];
    let mut program = examined(prefix.path(), &flags);
    program.env("TRUNKLINE_CHECKS", "1");
    let output = run(program);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && told.contains("heap-use-after-free"), "{told}");
}

#[test]
fn the_cpp_header_does_what_it_says_and_is_clean_under_sanitizers() {
    if !has(cpp_compiler(), "C++") {
        return;
    }
    let prefix = installed();
    assert_eq!(success("exam", &run(examined_in_cpp(prefix.path(), &[]))), CPP_PARTS);
    if has_sanitizers(prefix.path(), "C++ under sanitizers") {
        let mut program = examined_in_cpp(prefix.path(), &SANITIZERS);
        program.env("TRUNKLINE_CHECKS", "1");
        assert_eq!(success("exam under sanitizers", &run(program)), CPP_PARTS);
    }
}

/// What protoc-gen-trunkline makes for C++, of the greeter's service.
#[test]
fn generated_cpp_calls_and_serves() {
    if !has(cpp_compiler(), "generated C++") {
        return;
    }
    let prefix = installed();
    let source = include_str!("../../../examples/greeter/proto/greeter.proto");
    let set = trunkline_schema::compile_proto_source("greeter.proto", source).unwrap();
    let headers = trunkline_codegen::generate_cpp(&set, &["greeter.proto".to_owned()]).unwrap();
    for header in &headers {
        std::fs::write(prefix.path().join("include").join(&header.name), &header.text).unwrap();
    }
    let mut cc = Command::new(cpp_compiler());
    cc.args(["-std=c++17", "-Wall", "-Wextra", "-Werror"]).arg(here("../cpp/tests/stubs.cpp"));
    cc.arg("-I").arg(here("../cpp/tests"));
    assert_eq!(success("stubs", &run(built(cc, prefix.path(), &[]))), "handles 0\n");
}

/// gRPC C++'s own surface, by each of its APIs, under sanitizers where there are any. Plainly it is a system test.
#[test]
fn the_surface_of_grpc_cpp_is_clean_under_sanitizers() {
    let what = "gRPC C++'s surface";
    let prefix = installed();
    let flags: &[&str] = if has_sanitizers(prefix.path(), what) { &SANITIZERS } else { &[] };
    let Some(mut program) = examined_over_grpc(prefix.path(), what, flags) else { return };
    program.env("TRUNKLINE_CHECKS", "1");
    assert_eq!(success("exam", &run(program)), GRPC_PARTS);
}

/// What the exam of gRPC C++'s surface says: each API of clients with each of servers.
const GRPC_PARTS: &str =
    "blocking\ncallback\nqueued\nblocking\ncallback\nqueued\nblocking\ncallback\nqueued\nhandles 1\n";

/// The exam of gRPC C++'s surface, with an engine inside it. `None`, and a line that says why, if it cannot be built.
fn examined_over_grpc(prefix: &Path, what: &str, flags: &[&str]) -> Option<Command> {
    if !(has(cpp_compiler(), what) && has("protoc", what) && has("pkg-config", what)) {
        return None;
    }
    let mut asked = Command::new("pkg-config");
    asked.args(["--cflags", "--libs", "trunkline-grpc++"]);
    let found = run({
        asked.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
        asked
    });
    if !found.status.success() {
        eprintln!("skipped: {what}: there is no protobuf");
        return None;
    }
    let page = include_str!("../../../docs/grpc-cpp.md");
    assert!(page.contains("pkg-config --cflags --libs trunkline-grpc++"), "the page says how this is built");
    let sources = here("../cpp/tests/grpc");
    let set = trunkline_schema::compile_proto_files(&[sources.join("exam.proto")], &[&sources]).unwrap();
    let generated = prefix.join("include/trunkline");
    for file in trunkline_codegen::generate_cpp_grpc(&set, &["exam.proto".to_owned()]).unwrap() {
        std::fs::write(generated.join(&file.name), &file.text).unwrap();
    }
    let mut protoc = Command::new("protoc");
    protoc.arg(format!("--proto_path={}", sources.display()));
    protoc.arg(format!("--cpp_out={}", generated.display())).arg("exam.proto");
    success("protoc", &run(protoc));
    let mut cc = Command::new(cpp_compiler());
    cc.args(["-std=c++17", "-Wall", "-Wextra", "-Werror"]).arg(sources.join("exam.cc"));
    cc.arg("-I").arg(&generated).args([generated.join("exam.grpc.pb.cc"), generated.join("exam.pb.cc")]);
    let libraries = String::from_utf8_lossy(&found.stdout).into_owned();
    let flags: Vec<&str> = flags.iter().copied().chain(libraries.split_whitespace()).collect();
    let mut program = built(cc, prefix, &flags);
    program.arg("all").env("TRUNKLINE_EMBEDDED", "1");
    Some(program)
}

/// Threads of programs in C, in C++ and of gRPC C++'s surface. The suppressions are for what the library does; a race
/// of a program's own is found all the same.
#[test]
fn programs_have_no_races() {
    let what = "races of threads";
    if !(has(compiler(), what) && has(cpp_compiler(), what)) {
        return;
    }
    let prefix = installed();
    let not_seen = prefix.path().join("not-seen");
    std::fs::write(&not_seen, NOT_SEEN).unwrap();
    let watched = |mut program: Command| {
        // A thread of the embedded daemon may have ended, and be joined a moment later than the program ends.
        let options = format!("suppressions={} exitcode={RACED} report_thread_leaks=0", not_seen.display());
        program.env("TSAN_OPTIONS", options);
        run(program)
    };
    let trial = prefix.path().join("trial.cpp");
    std::fs::write(&trial, RACE).unwrap();
    let mut cc = Command::new(cpp_compiler());
    let racing = prefix.path().join("trial");
    cc.args(RACES).arg("-pthread").arg(&trial).arg("-o").arg(&racing);
    if !run(cc).status.success() {
        return eprintln!("skipped: {what}: the compiler has no thread sanitizer");
    }
    let found = watched(Command::new(&racing));
    let told = String::from_utf8_lossy(&found.stderr);
    if told.contains("unexpected memory mapping") {
        return eprintln!("skipped: {what}: the thread sanitizer does not run with this kernel's addresses");
    }
    assert!(found.status.code() == Some(RACED) && told.contains("data race"), "a race is found: {told}");

    let shared = shared_linear(prefix.path(), &RACES);
    assert_eq!(success("shared linear messages", &watched(shared)), "shared\n");
    assert_eq!(success("abi", &watched(examined(prefix.path(), &RACES))), PARTS);
    assert_eq!(success("exam", &watched(examined_in_cpp(prefix.path(), &RACES))), CPP_PARTS);
    let Some(program) = examined_over_grpc(prefix.path(), "races of gRPC C++'s surface", &RACES) else {
        return;
    };
    assert_eq!(success("exam of gRPC C++'s surface", &watched(program)), GRPC_PARTS);
}

/// A const message of several threads.
fn shared_linear(prefix: &Path, flags: &[&str]) -> Command {
    let vectors = here("../../tests/data/linear");
    let set = trunkline_schema::compile_proto_files(&[vectors.join("vectors.proto")], &[&vectors]).unwrap();
    for header in trunkline_codegen::generate_cpp_linear(&set, &[]).unwrap() {
        std::fs::write(prefix.join("include").join(&header.name), &header.text).unwrap();
    }
    let mut cc = Command::new(cpp_compiler());
    cc.args(["-std=c++17", "-Wall", "-Wextra", "-Werror"]).arg(here("../cpp/tests/shared_linear.cpp"));
    built(cc, prefix, flags)
}

/// Two threads and one number.
const RACE: &str = "#include <thread>
int number;
int main() {
    std::thread other([] { for (int i = 0; i < 1000; i++) number++; });
    for (int i = 0; i < 1000; i++) number++;
    other.join();
}
";

/// What protoc-gen-trunkline makes with `messages=linear`: of the vectors that every language reads and writes.
#[test]
fn linear_cpp_reads_writes_builds_and_calls_and_is_clean_under_sanitizers() {
    if !has(cpp_compiler(), "linear C++") {
        return;
    }
    let prefix = installed();
    let vectors = here("../../tests/data/linear");
    let files = ["vectors.proto", "vectors2.proto"];
    let set =
        trunkline_schema::compile_proto_files(&files.map(|file| vectors.join(file)), &[&vectors]).unwrap();
    let large = trunkline_schema::compile_proto_source("large.proto", &large_messages()).unwrap();
    let named = trunkline_schema::compile_proto_source("named.proto", NAMED).unwrap();
    for set in [set, large, named] {
        for header in trunkline_codegen::generate_cpp_linear(&set, &[]).unwrap() {
            std::fs::write(prefix.path().join("include").join(&header.name), &header.text).unwrap();
        }
    }
    let compiled = |flags: &[&str]| {
        let mut cc = Command::new(cpp_compiler());
        cc.args(["-std=c++17", "-Wall", "-Wextra", "-Werror"]).arg(here("../cpp/tests/linear.cpp"));
        let mut program = built(cc, prefix.path(), flags);
        program.arg(vectors.join("vectors.txt"));
        program
    };
    // The header of large messages makes a program large: one is compiled, with sanitizers where there are any.
    let flags: &[&str] =
        if has_sanitizers(prefix.path(), "linear C++ under sanitizers") { &SANITIZERS } else { &[] };
    let mut program = compiled(flags);
    let told = success("linear", &run(again(&program)));
    let lines = std::fs::read_to_string(vectors.join("vectors.txt")).unwrap();
    let count = lines.lines().filter(|line| !line.starts_with('#')).count();
    assert_eq!(told, format!("vectors {count}\nhandles 3\n"));
    program.env("TRUNKLINE_CHECKS", "1");
    assert_eq!(success("linear with checks", &run(program)), told);
}

fn again(program: &Command) -> Command {
    let mut other = Command::new(program.get_program());
    other.args(program.get_args());
    other
}

/// What would have one name in C++.
const NAMED: &str = "syntax = \"proto3\";
package named.v1;
service Job { rpc Run(JobClient) returns (JobService); }
message JobClient { oneof Kind { int32 one = 1; } int32 kind = 2; }
message JobService {}
";

/// The smallest and the largest of HPRPC's messages.
fn large_messages() -> String {
    let message = |members: usize| {
        let fields: String = (1..=members).map(|member| format!("  int32 m{member} = {member};\n")).collect();
        format!("message LargeData{members} {{\n{fields}}}\n")
    };
    format!("syntax = \"proto3\";\n{}{}", message(128), message(8192))
}

/// Handles of every kind, ended ones among them, given to every function: under sanitizers where there are any.
#[test]
fn random_calls_crash_nothing_and_leave_nothing_behind() {
    if !has(compiler(), "random calls") {
        return;
    }
    let prefix = installed();
    let flags: &[&str] = if has_sanitizers(prefix.path(), "random calls") { &SANITIZERS } else { &[] };
    let program = examined_at_random(prefix.path(), flags);
    for seed in 1..4 {
        let mut command = Command::new(program.get_program());
        command.args([&seed.to_string(), "10000"]);
        let output = run(command);
        assert_eq!(success(&format!("random {seed}"), &output), "handles 0\n");
        assert!(output.stderr.is_empty(), "seed {seed}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Whoever collects what a service writes may be gone or be slow: that ends neither the process nor its calls.
#[test]
fn a_standard_error_that_nobody_reads_stops_nothing() {
    if !has(compiler(), "a standard error that nobody reads") {
        return;
    }
    let prefix = installed();
    let mut cc = Command::new(compiler());
    cc.args(WARNINGS).arg(here("tests/c/unread.c"));
    let program = built(cc, prefix.path(), &[]);
    for how in ["gone", "full"] {
        let mut command = again(&program);
        command.arg(how).env("TRUNKLINE_CHECKS", "1").env("TRUNKLINE_SOCKET", prefix.path().join("no.sock"));
        // DEADLINE_EXCEEDED each time.
        assert_eq!(success(how, &run(command)), "4\n".repeat(4), "{how}");
    }
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

#[test]
fn the_surface_of_grpc_cpp_is_found_by_cmake() {
    let what = "gRPC C++'s surface by CMake";
    if !(has(cpp_compiler(), what) && has("cmake", what)) {
        return;
    }
    let prefix = installed();
    let build = prefix.path().join("build");
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(here("../cpp/tests/package")).arg("-B").arg(&build);
    configure.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.path().display()));
    success("cmake", &run(configure));
    let mut make = Command::new("cmake");
    make.arg("--build").arg(&build);
    success("cmake --build", &run(make));
    let mut program = Command::new(build.join("channel"));
    program.env("TRUNKLINE_EMBEDDED", "1");
    assert_eq!(success("channel", &run(program)), "state 2\n");
}

/// The client runs, and says that there is no daemon where it was told to look.
fn refuses(client: &Path, prefix: &Path) {
    let mut command = Command::new(client);
    command.env("TRUNKLINE_SOCKET", prefix.join("nobody")).env("LD_LIBRARY_PATH", prefix.join("lib"));
    let output = run(command);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && told.contains("SayHello: code 14"), "{told}");
}
