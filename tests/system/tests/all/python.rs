//! Shows the Python package, as its wheel installs it, under a daemon of the host: its own tests, and load while
//! daemons are replaced and servers killed. What the machine lacks is named, and the test passes without.

use crate::c_programs::{killed_under, replaced_under};
use crate::support::Host;
use crate::support::c_programs::{Command, root};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::OnceLock;

/// A Python with the wheel and what its tests need, beside cargo's other output; `None`, and a line that says why, if
/// there can be none.
fn python() -> Option<Command> {
    static MADE: OnceLock<Result<String, String>> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        let test = std::env::current_exe().unwrap();
        let folder = test.parent().and_then(|deps| deps.parent()).unwrap().join("python");
        let shared = test.with_file_name("libtrunkline_c.so");
        let output = process::Command::new(root().join("bindings/python/venv"))
            .arg(folder)
            .arg(shared)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        match output.status.code() {
            Some(0) => Ok(said),
            Some(77) => Err(said),
            _ => panic!("the wheel: {said}\n{}", String::from_utf8_lossy(&output.stderr)),
        }
    });
    match made {
        Ok(python) => Some(Command::of(python)),
        Err(why) => {
            eprintln!("skipped: Python: {why}");
            None
        }
    }
}

/// Messages, stubs and services that are generated for Python, beside cargo's other output: of the vectors that every
/// language reads and writes, of HPRPC's messages, of the probe, and of the page for users.
fn generated() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        let test = std::env::current_exe().unwrap();
        let folder = test.parent().and_then(|deps| deps.parent()).unwrap().join("python/modules");
        let _ = std::fs::remove_dir_all(&folder);
        let compiled = |files: &[&str], folder: &str| {
            let folder = root().join(folder);
            let files: Vec<_> = files.iter().map(|file| folder.join(file)).collect();
            trunkline_schema::compile_proto_files(&files, &[folder]).unwrap()
        };
        let of_source = |source: &str| trunkline_schema::compile_proto_source("made.proto", source).unwrap();
        let page = std::fs::read_to_string(root().join("docs/python.md")).unwrap();
        let of_page = page.split("```proto\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        let probe = std::fs::read_to_string(root().join("tests/system/proto/probe.proto")).unwrap();
        let newer = ["message Text {", "message Item {", "message Outcome {"]
            .iter()
            .fold(probe, |probe, of| probe.replace(of, &format!("{of}\n  int64 added = 900;")));
        for (set, below) in [
            (compiled(&["vectors.proto", "vectors2.proto"], "tests/data/linear"), ""),
            (compiled(&["probe.proto"], "tests/system/proto"), ""),
            (of_source(&newer), "newer"),
            (of_source(&large_messages()), ""),
            (of_source(of_page), ""),
        ] {
            for module in trunkline_codegen::generate_python(&set, &[]).unwrap() {
                let path = folder.join(below).join(&module.name);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, module.text).unwrap();
            }
        }
        folder
    })
}

/// Those of the vectors: as many members as powers of two from 128 to 8192.
fn large_messages() -> String {
    let message = |members: usize| {
        let fields: String = (1..=members).map(|member| format!("  int32 m{member} = {member};\n")).collect();
        format!("message LargeData{members} {{\n{fields}}}\n")
    };
    let messages: String = (7..=13).map(|power| message(1 << power)).collect();
    format!("syntax = \"proto3\";\n{messages}")
}

/// The program that plays Python's part in the matrix of languages.
pub fn pairs() -> Option<Command> {
    let script = root().join("tests/system/python/pairs.py");
    let modules = format!("TRUNKLINE_TEST_MODULES={}", generated().display());
    let python = python()?.program().to_string_lossy().into_owned();
    Some(Command::of("env").with(&[&modules, "PYTHONDONTWRITEBYTECODE=1", &python, script.to_str().unwrap()]))
}

/// The program that makes load.
pub fn load() -> Option<Command> {
    let script = root().join("bindings/python/tests/load.py");
    Some(python()?.with(&[script.to_str().unwrap()]))
}

#[test]
fn the_tests_of_the_package_pass() {
    let Some(python) = python() else { return };
    let host = Host::over_tcp();
    let tests = root().join("bindings/python/tests");
    let mut command = process::Command::new(python.program());
    command
        .args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "--color=no"])
        .arg(&tests)
        .current_dir(&tests);
    // They need gRPC's sources; all others run everywhere.
    if std::env::var_os("TRUNKLINE_GRPC_SOURCES").is_none() {
        command.arg("--ignore=test_grpcio_interop.py");
    }
    command.env("TRUNKLINE_SOCKET", host.socket()).env("PYTHONDONTWRITEBYTECODE", "1");
    command.env("TRUNKLINE_TEST_MODULES", generated());
    command.env("TRUNKLINE_TEST_PORT", host.endpoint().trim_start_matches("tcp://"));
    let output = command.env_remove("TRUNKLINE_EMBEDDED").output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    let last = out.lines().last().unwrap_or_default();
    assert!(last.contains(" passed") && !last.contains("skipped"), "{last}");
}

#[test]
fn daemons_are_replaced_under_load_from_python() {
    let Some(load) = load() else { return };
    replaced_under(&load, &["client", "aio"]);
}

#[test]
fn servers_and_daemons_are_killed_under_load_from_python() {
    let Some(load) = load() else { return };
    killed_under(&load, "client");
}
