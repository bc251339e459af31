//! Shows that the programs do what they say: `greeter-patterns` by itself, with an engine inside the process.

use std::process::Command;

#[test]
fn every_pattern_answers() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_greeter-patterns")).env("TRUNKLINE_EMBEDDED", "1").output().unwrap();
    let lines = [
        "Hello, Ada!",
        "INVALID_ARGUMENT: whom shall I greet?",
        "Hello, Ada!",
        "Hej, Ada!",
        "Salut, Ada!",
        "Jambo, Ada!",
        "Hello, Ada and Grace and Barbara!",
        "Nice to meet you, Ada!",
        "Nice to meet you, Grace!",
        "Hello, Margaret!",
    ];
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(printed.lines().collect::<Vec<_>>(), lines, "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success());
}
