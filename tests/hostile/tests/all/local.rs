//! Attacks by applications of another user.

use crate::stage::Stage;
use trunkline_system_tests::harness::shards;

/// Every application may name targets.
const EGRESS: &str = "[egress]\nallow = [\"*\"]\n";
const MIB: u64 = 1 << 20;

#[test]
fn paths_leave_with_the_sessions_that_named_them() {
    let Some(mut stage) = Stage::set("paths", "", "") else { return };
    stage.attack("paths 40000");
    stage.attack("drains 20000");
    // One session's 4,000 routes at a time, each with a path of 30 bytes, and the ring of a session.
    stage.end(16 * MIB);
}

#[test]
fn many_services_stop_nobody() {
    let Some(mut stage) = Stage::set("names", "", "") else { return };
    stage.attack("names 8000");
    stage.attack("drains 20000");
    stage.end(48 * MIB);
}

#[test]
fn methods_that_peers_make_up_are_bounded_and_leave_with_their_service() {
    let Some(mut stage) = Stage::set("learned", "", "") else { return };
    stage.attack("names 4000");
    stage.attack("learned 1000");
    stage.end(48 * MIB);
}

#[test]
fn refused_calls_are_not_kept() {
    let Some(mut stage) = Stage::set("refused", "", "") else { return };
    stage.attack("refused 200000");
    // Twice `limits.calls_made_per_session` at some hundred bytes, and as many entries.
    stage.end(16 * MIB);
}

#[test]
fn answers_nobody_takes_leave_room_for_others() {
    let Some(mut stage) = Stage::set("untaken", "", "") else { return };
    stage.attack("untaken 1000");
    stage.attack("untaken_small 1000");
    // What is under way lies in the server's heap and in the attacker's. What crosses from shard to shard is a copy, of
    // as much as each sender may have under way there: the server has two sessions.
    let crossing = if shards() > 1 { 2 * 16 * MIB } else { 0 };
    stage.end(48 * MIB + crossing);
}

/// Memory is given back while the one stays who had it held.
#[test]
fn what_a_session_had_held_is_given_back_while_it_stays() {
    let Some(mut stage) = Stage::set("given up", "", EGRESS) else { return };
    stage.attack("waiting 3000");
    assert!(stage.grown_bytes() > 80 * MIB, "the daemon holds {} bytes more", stage.grown_bytes());
    let said = stage.attack("give_up 3000");
    assert_eq!(said, "done: 3000 calls");
    stage.until_grown_by_at_most(24 * MIB);
    stage.end(4 * 100 * MIB);
}

#[test]
fn large_heaps_cost_what_is_touched() {
    let Some(mut stage) = Stage::set("heaps", "", "") else { return };
    stage.attack("heaps 40");
    stage.end(40 * MIB);
}

#[test]
fn receive_heaps_of_one_user_leave_room_for_others() {
    let limits = "[sessions]\nreceive_heap_bytes_max = \"16 GiB\"\n";
    let Some(mut stage) = Stage::set("heap budget", "", limits) else { return };
    let before = stage.host.held().of("sessions");
    let said = stage.attack("heaps 40");
    let why = "would have 13958643712 bytes; sessions.receive_heap_bytes_per_user_max is 12884901888";
    assert!(said.starts_with("done: 12 sessions") && said.contains(why), "{said}");
    drop(stage.attach());
    stage.host.replace_daemon();
    let said = stage.attack("heaps 40");
    assert!(said.starts_with("done: 0 sessions"), "what it had is counted on: {said}");
    stage.attack("leave");
    stage.host.until_held("sessions", before);
    let said = stage.attack("heaps 40");
    assert!(said.starts_with("done: 12 sessions"), "what has left is not: {said}");
    stage.end(40 * MIB);
}

/// Their pages are the daemon's for as long.
#[test]
fn receive_heaps_that_are_kept_count_on() {
    let limits = "[sessions]\nreceive_heap_bytes_max = \"16 GiB\"\n";
    let Some(mut stage) = Stage::set("kept heaps", "", limits) else { return };
    let said = stage.attack("heaps_kept 40");
    let why = "processes still map; sessions.receive_heap_bytes_per_user_max is 12884901888";
    assert!(said.starts_with("done: 12 sessions") && said.contains(why), "{said}");
    drop(stage.attach());
    stage.attack("leave");
    let said = stage.attack("heaps_kept 40");
    assert!(said.starts_with("done: 12 sessions"), "what was let go does not: {said}");
    stage.end(40 * MIB);
}

#[test]
fn descriptor_sets_of_one_user_leave_room_for_others() {
    let limits = "[sessions]\ndescriptor_bytes_max = \"16 MiB\"\n";
    let Some(mut stage) = Stage::set("sets", "", limits) else { return };
    let said = stage.attack("sets 20");
    assert!(said.contains("sessions.descriptor_bytes_per_user_max"), "{said}");
    stage.host.replace_daemon();
    let said = stage.attack("sets 20");
    assert!(said.starts_with("done: 0 sets"), "what it had is counted on: {said}");
    // Six sets, each once as it came and once in its schema.
    stage.end(48 * MIB);
}

#[test]
fn targets_of_one_user_leave_room_for_others() {
    let Some(mut stage) = Stage::set("targets", "", EGRESS) else { return };
    let said = stage.attack("targets 5000");
    assert!(said.contains("limits.endpoints_per_user"), "{said}");
    let good = stage.attach();
    let bound = good.bind(Vec::new(), vec![("/good.v1.S/M".into(), "tcp://127.0.0.1:9".into())]);
    assert!(bound.is_ok(), "another user's targets leave no room: {bound:?}");
    drop(good);
    stage.end(32 * MIB);
}

#[test]
fn connections_that_never_attach_bar_nobody() {
    let Some(mut stage) = Stage::set("bare", "", "") else { return };
    stage.attack("bare 4200");
    drop(stage.attach());
    stage.end(16 * MIB);
}

/// Each of them would have the control thread to itself for as long as it wants.
#[test]
fn requests_without_end_hold_up_nobody() {
    let Some(mut stage) = Stage::set("flooding", "", "") else { return };
    stage.attack("flooding 3");
    let began = std::time::Instant::now();
    (0..50).for_each(|_| drop(stage.attach()));
    eprintln!("flooding: 50 others attached within {:?}", began.elapsed());
    stage.end(16 * MIB);
}

#[test]
fn a_flood_of_requests_bars_nobody() {
    let Some(mut stage) = Stage::set("flood", "", "") else { return };
    stage.attack("flood 20000");
    drop(stage.attach());
    stage.end(32 * MIB);
}

/// Whoever reads a pipe for long holds its lock, and one who waits to write there cannot even be killed.
#[test]
fn who_holds_its_doorbell_stops_no_shard() {
    let Some(mut stage) = Stage::set("bell", "", "") else { return };
    stage.attack("bell 3");
    drop(stage.attach());
    stage.host.replace_daemon();
    drop(stage.attach());
    stage.end(16 * MIB);
}

/// More than the daemon may have: of those that wait to be closed it has some hundred.
#[test]
fn descriptors_that_are_not_closed_leave_some_for_others() {
    let Some(mut stage) = Stage::set("descriptors", "", "") else { return };
    let before = stage.host.daemon().open_descriptors();
    let said = stage.attack("descriptors 5000");
    assert!(said.contains("wait to be closed"), "{said}");
    let more = stage.host.daemon().open_descriptors() - before;
    assert!(more < 600, "the daemon has {more} descriptors more");
    drop(stage.attach());
    stage.host.replace_daemon();
    drop(stage.attach());
    stage.end(16 * MIB);
}
