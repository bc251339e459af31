//! A daemon is replaced, whatever an attacker has had it hold.

use crate::stage::Stage;

const EGRESS: &str = "[egress]\nallow = [\"*\"]\n";
const MIB: u64 = 1 << 20;

/// More than one memfd of a hand-over has: 90 MiB of metadata that applications may have a daemon hold.
#[test]
fn a_daemon_that_holds_much_is_replaced() {
    let Some(mut stage) = Stage::set("much", "", EGRESS) else { return };
    stage.attack("waiting 3000");
    assert!(stage.grown_bytes() > 80 * MIB, "the daemon holds {} bytes more", stage.grown_bytes());
    for _ in 0..2 {
        let paused = stage.host.replace_daemon();
        eprintln!("much: the pause was {paused:?}");
        assert_eq!(stage.host.held().of("calls") / 3000, 1, "they wait on");
    }
    // The state is read as it comes, and then makes an engine.
    stage.end(4 * 100 * MIB);
}

/// Messages and calls of native peers that have only begun move with their connections, and cost no more than what has
/// come of them.
#[test]
fn a_daemon_is_replaced_beside_what_peers_have_only_begun() {
    // What has only begun stays for as long as two replacements may take where the host is busy with something else.
    let more = "[limits]\nheld_bytes_per_source = \"64 MiB\"\nmessage_stall_s = 600\n";
    let Some(mut stage) = Stage::set("begun moved", "", more) else { return };
    let paused = stage.host.replace_daemon();
    eprintln!("begun moved: the pause was {paused:?} before the attack");
    for attack in ["announced 2", "native_metadata 1", "native_halves 1", "native_begun 4"] {
        stage.attack(attack);
    }
    let streams = stage.host.held().of("streams");
    assert!(streams > 1000, "{streams}");
    for _ in 0..2 {
        let paused = stage.host.replace_daemon();
        eprintln!(
            "begun moved: the pause was {paused:?}, and the daemon has grown by {} KiB",
            stage.grown_bytes() >> 10
        );
    }
    let after = stage.host.held().of("streams");
    assert_eq!(after, streams, "they wait on");
    // The budget, 256 KiB for each connection, and a state that is read as it comes.
    stage.end(3 * 64 * MIB);
}

#[test]
fn targets_are_counted_and_forgotten_through_replacements() {
    let Some(mut stage) = Stage::set("targets moved", "", EGRESS) else { return };
    stage.attack("targets 2500");
    stage.host.replace_daemon();
    let said = stage.attack("targets 5000");
    assert!(said.contains("limits.endpoints_per_user"), "{said}");
    stage.host.replace_daemon();
    stage.end(48 * MIB);
}

#[test]
fn a_daemon_with_many_names_is_replaced() {
    let Some(mut stage) = Stage::set("replaced", "", "") else { return };
    stage.attack("paths 40000");
    stage.attack("names 8000");
    let paused = stage.host.replace_daemon();
    eprintln!("replaced: the pause was {paused:?}");
    stage.end(64 << 20);
}
