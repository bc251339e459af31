//! A daemon is replaced, whatever an attacker has had it hold.

use crate::stage::Stage;

#[test]
fn a_daemon_with_many_names_is_replaced() {
    let Some(mut stage) = Stage::set("replaced", "", "") else { return };
    stage.attack("paths 40000");
    stage.attack("names 8000");
    let paused = stage.host.replace_daemon();
    eprintln!("replaced: the pause was {paused:?}");
    stage.end(64 << 20);
}
