//! Attacks by programs on the network.

use crate::stage::Stage;
use trunkline_system_tests::harness::shards;

const MIB: u64 = 1 << 20;

#[test]
fn silent_connections_give_way() {
    let Some(mut stage) = Stage::set("silent", "connections_max = 300\n", "") else { return };
    stage.attack("silent 600");
    stage.end(32 * MIB);
}

#[test]
fn streams_that_are_not_read_cost_their_own_budget() {
    let Some(mut stage) = Stage::set("unread", "", "") else { return };
    stage.attack("unread 400");
    // `limits.connection_queue_bytes` of the one connection, and what its streams have sent ahead.
    stage.end(160 * MIB);
}

#[test]
fn slow_connections_of_one_address_share_a_budget() {
    let more = "[limits]\nheld_bytes_per_source = \"64 MiB\"\nparked_bytes_per_session = \"4 MiB\"\n";
    let Some(mut stage) = Stage::set("slow", "", more) else { return };
    // `parked_bytes_per_session`: what each session of the server has on its way to another shard.
    let crossing_bytes = if shards() > 1 { stage.sessions() * 4 * MIB } else { 0 };
    stage.attack("slow 6");
    // The budget, 256 KiB and a message for each connection, and what h2 and sockets keep of each.
    stage.end(64 * MIB + 6 * MIB + crossing_bytes + 32 * MIB);
}

#[test]
fn answers_that_are_overdue_are_dropped() {
    let Some(mut stage) = Stage::set("overdue", "", "") else { return };
    stage.attack("overdue 100");
    // The attacker is still there, and reads nothing.
    stage.until_grown_by_at_most(24 * MIB);
    stage.end(160 * MIB);
}

#[test]
fn large_unfinished_messages_share_a_budget_and_do_not_stay() {
    let more = "[limits]\nheld_bytes_per_source = \"64 MiB\"\nmessage_stall_s = 1\n";
    let Some(mut stage) = Stage::set("large halves", "", more) else { return };
    stage.attack("large_halves 8");
    stage.until_grown_by_at_most(24 * MIB);
    // The budget, 256 KiB for each connection, and the pieces that make a message when it grows.
    stage.end(64 * MIB + 8 * MIB + 64 * MIB);
}

#[test]
fn unfinished_messages_cost_a_window() {
    let Some(mut stage) = Stage::set("halves", "", "") else { return };
    stage.attack("halves 3");
    // `http2.connection_window_bytes` of three connections.
    stage.end(3 * 64 * MIB + 16 * MIB);
}

#[test]
fn references_to_long_headers_stop_nobody() {
    let Some(mut stage) = Stage::set("references", "", "") else { return };
    stage.attack("references 2000");
    stage.end(64 * MIB);
}

#[test]
fn messages_that_become_large_stop_nobody() {
    let Some(mut stage) = Stage::set("bombs", "", "") else { return };
    stage.attack("bombs 2000");
    stage.end(64 * MIB);
}
