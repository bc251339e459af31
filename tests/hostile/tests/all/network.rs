//! Attacks by programs on the network.

use crate::stage::Stage;

const MIB: u64 = 1 << 20;

#[test]
fn silent_connections_give_way() {
    let Some(mut stage) = Stage::set("silent", "connections_max = 300\n", "") else { return };
    stage.attack("silent 600");
    stage.attack("greeted 600");
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
