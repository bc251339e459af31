//! Attacks by datagrams, whose sender proves nothing.

use crate::stage::Stage;

const MIB: u64 = 1 << 20;
const PORT: &str = "[r2p2]\nlisten = \"127.0.0.1:0\"\n";

/// Requests of a service whose rule names peers are refused, whoever sends them. The good pair of this host goes on.
#[test]
fn a_stranger_calls_nothing_that_a_rule_names() {
    let rule =
        format!("{PORT}[[call]]\nservice = \"probe.v1.*\"\nwho = [\"*\"]\npeers = [\"spiffe://corp/*\"]\n");
    let Some(mut stage) = Stage::set("datagrams refused", "", &rule) else { return };
    let said = stage.attack("datagrams_refused 50");
    assert_eq!(said, "done: 50 times PERMISSION_DENIED");
    stage.attack("datagrams_requests 20000");
    stage.end(32 * MIB);
}

#[test]
fn requests_whose_replies_nobody_reads_share_a_budget() {
    let Some(mut stage) = Stage::set("datagrams", "", PORT) else { return };
    stage.attack("datagrams_requests 20000");
    stage.attack("datagrams_forged 20000");
    stage.end(48 * MIB);
}
