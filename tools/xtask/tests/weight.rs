//! Shows what the first build of a newcomer has to compile: the demo without the C library of cryptography that takes
//! half a minute, and the library for those who have a daemon without an engine, TLS or HTTP/2 of its own.

use std::collections::BTreeSet;
use std::process::Command;
use xtask::Tree;

/// Crates that `cargo build` with these arguments compiles for the program itself, build scripts left out unless asked.
fn compiled(edges: &str, arguments: &[&str]) -> BTreeSet<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(Tree::root()).args(["tree", "--locked", "--prefix", "none", "--edges", edges]);
    // What members want together is not what a newcomer builds.
    command.env_remove("CARGO_UNSTABLE_FEATURE_UNIFICATION").env_remove("CARGO_RESOLVER_FEATURE_UNIFICATION");
    let asked = command.args(arguments).output().expect("cargo runs");
    assert!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));
    let listed = String::from_utf8(asked.stdout).expect("names of crates are text");
    listed.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

fn assert_without(found: &BTreeSet<String>, heavy: &[&str]) {
    let found: Vec<_> = heavy.iter().filter(|name| found.contains(**name)).collect();
    assert!(found.is_empty(), "{found:?} came back");
}

#[test]
fn the_library_without_an_engine_is_light() {
    let arguments = ["--package", "trunkline", "--no-default-features"];
    let found = compiled("normal", &arguments);
    assert!(found.contains("trunkline-shm"), "{found:?}");
    let heavy =
        ["trunkline-daemon", "trunkline-engine", "trunkline-net", "rustls", "h2", "tokio", "regex", "protox"];
    assert_without(&found, &heavy);
}

#[test]
fn the_demo_takes_the_lighter_cryptography() {
    let makefile = std::fs::read_to_string(Tree::root().join("Makefile")).expect("there is a Makefile");
    let recipe =
        makefile.split("\ndemo:").nth(1).and_then(|rest| rest.split("\n\n").next()).unwrap_or_default();
    let words: Vec<&str> = recipe.split_whitespace().collect();
    let at =
        words.iter().position(|word| *word == "--features").expect("the demo says which features it wants");
    let mut arguments = vec!["--no-default-features", "--features", words[at + 1]];
    for (at, _) in words.iter().enumerate().filter(|(_, word)| **word == "--package") {
        arguments.extend([words[at], words[at + 1]]);
    }
    assert!(words.contains(&"--no-default-features"), "{recipe}");
    let found = compiled("normal,build", &arguments);
    assert!(found.contains("ring") && found.contains("trunkline-cli"), "{found:?}");
    assert_without(&found, &["aws-lc-sys", "aws-lc-rs", "cmake"]);
}
