//! Attacks by what seems to be another daemon: it has a port to talk to, and proves nothing.

use crate::stage::Stage;
use std::net::TcpStream;
use trunkline_hostile_tests::native::Native;
use trunkline_system_tests::harness::{shards, until};

const MIB: u64 = 1 << 20;
/// What one address may have the daemon hold, and when a message that does not go on is given up.
const BUDGET: &str = "[limits]\nheld_bytes_per_source = \"64 MiB\"\nmessage_stall_s = 1\n";

#[test]
fn who_greets_and_is_silent_has_its_source_s_places_and_no_more() {
    let Some(mut stage) = Stage::set("greeted", "connections_max = 300\n", "") else { return };
    stage.attack("greeted 600");
    // `daemon.connections_per_source_max`: three quarters.
    let stays = |stage: &mut Stage| stage.attack("stay").trim_start_matches("done: ").parse::<u32>().unwrap();
    until("greeted connections are closed", || (stays(&mut stage) <= 225).then_some(()));
    // From another address.
    let address = stage.host.endpoint().trim_start_matches("tcp://").to_owned();
    Native::begin(TcpStream::connect(address).unwrap()).expect("there is a place for others");
    stage.end(32 * MIB);
}

/// Its socket takes a place and a descriptor: whoever has said that it leaves is not waited for.
#[test]
fn who_says_that_it_leaves_and_stays_is_closed() {
    let Some(mut stage) = Stage::set("leaving", "connections_max = 40\n", "") else { return };
    assert_eq!(stage.attack("leaving 20"), "done: 20 connections");
    until("they are closed", || (stage.attack("stay") == "done: 0").then_some(()));
    // There is a place for as many again.
    assert_eq!(stage.attack("leaving 20"), "done: 20 connections");
    stage.end(32 * MIB);
}

#[test]
fn streams_that_a_daemon_does_not_read_cost_their_own_budget() {
    let Some(mut stage) = Stage::set("native unread", "", "") else { return };
    let said = stage.attack("native_unread 100");
    assert_eq!(said, "done: 100 streams of 1 connections");
    // `limits.connection_queue_bytes` of the one connection, and what crosses from shard to shard, which is a copy.
    stage.end(64 * MIB + 16 * MIB + u64::from(shards()) * 32 * MIB);
}

/// Of a receive heap of the good pair's server, too: its calls go on.
#[test]
fn messages_that_only_begin_take_no_heap_from_others() {
    let Some(mut stage) = Stage::set("native begun", "", BUDGET) else { return };
    let said = stage.attack("native_begun 8");
    assert_eq!(said, "done: 800 streams of 8 connections");
    // The attacker is still there, and what it has begun is over.
    stage.until_held_at_most("streams", 0);
    stage.until_held_at_most("heap_bytes", MIB);
    stage.end(24 * MIB);
}

#[test]
fn messages_of_which_most_has_come_share_a_budget_and_do_not_stay() {
    let Some(mut stage) = Stage::set("native halves", "", BUDGET) else { return };
    stage.attack("native_halves 4");
    stage.until_held_at_most("streams", 0);
    stage.until_grown_by_at_most(24 * MIB);
    // The budget, 256 KiB for each connection, and the pieces that make a message when it grows.
    stage.end(64 * MIB + 4 * MIB + 64 * MIB);
}

#[test]
fn metadata_of_calls_that_are_not_whole_shares_a_budget() {
    let Some(mut stage) = Stage::set("native metadata", "", BUDGET) else { return };
    stage.attack("native_metadata 8");
    // The budget, 256 KiB for each connection, and records of calls.
    stage.end(64 * MIB + 8 * MIB + 24 * MIB);
}

#[test]
fn methods_that_are_announced_share_a_budget() {
    let more = "[limits]\nheld_bytes_per_source = \"48 MiB\"\n";
    let Some(mut stage) = Stage::set("announced", "", more) else { return };
    // Of 80 MiB.
    stage.attack("announced 16");
    // The budget, 256 KiB for each connection, and what reads them.
    stage.end(48 * MIB + 16 * MIB / 4 + 16 * MIB);
}
