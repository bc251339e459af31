//! What a run starts does not outlive it.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

/// The kernel kills a child when the *thread* that started it ends, as that of a killed run does.
#[test]
fn a_child_ends_with_who_started_it() {
    let starting = std::thread::spawn(|| {
        let mut child = Command::new(env!("CARGO_BIN_EXE_trunkline-bench"));
        let mut child = child.args(["role", "become", "sleep", "60"]).spawn().unwrap();
        // Not before it has become the other program: what it asked for must outlive that.
        let name = format!("/proc/{}/comm", child.id());
        while std::fs::read_to_string(&name).unwrap().trim() != "sleep" {
            assert_eq!(child.try_wait().unwrap(), None, "it ended before it became the other program");
            std::thread::yield_now();
        }
        child
    });
    let mut child = starting.join().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9));
}

/// A program that is not there is said by its name.
#[test]
fn a_program_that_is_not_there_is_named() {
    let done = Command::new(env!("CARGO_BIN_EXE_trunkline-bench"))
        .args(["role", "become", "/no/such/program"])
        .output()
        .unwrap();
    assert!(!done.status.success());
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(said.contains("/no/such/program: No such file"), "{said}");
}
