//! Shows that a child of `fork` makes calls of its own and leaves those of its parent alone.

use crate::support::{Host, Process};

#[test]
fn parent_and_child_go_on_through_a_daemon() {
    let mut host = Host::alone();
    let server = host.server("server");
    let mut forker = host.program("forker", "");
    for _ in 0..3 {
        assert_eq!(forker.ask("fork"), "before OK, child OK OK OK, in flight undisturbed, after OK");
    }
    drop((forker, server));
    host.until_held("sessions", 0);
    host.until_idle();
}

#[test]
fn parent_and_child_go_on_embedded() {
    let mut forker = Process::start(&["forker-embedded"], &[("TRUNKLINE_EMBEDDED", "1".into())]);
    assert_eq!(forker.ask("fork"), "before OK, child OK OK OK, in flight undisturbed, after OK");
}
