//! Shows that the first program of the documentation prints what its page says.

use std::process::Command;

#[test]
fn the_first_program_says_hello() {
    let output = Command::new(env!("CARGO_BIN_EXE_hello")).env("TRUNKLINE_EMBEDDED", "1").output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(printed, "Hello, Ada!\n", "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success());
    let page = include_str!("../../../docs/getting-started.md");
    assert!(page.contains("prints `Hello, Ada!`"), "the page says something else");
}
