//! What another user may not do.

use crate::stage::Stage;
use trunkline_system_tests::harness::until;

const MIB: u64 = 1 << 20;

/// The daemon would connect with its own rights.
#[test]
fn targets_are_not_dialled_for_those_who_may_not() {
    let Some(mut stage) = Stage::set("dials", "", "") else { return };
    let said = stage.attack("dials");
    assert_eq!(said.matches("egress.allow").count(), 2, "{said}");
    stage.end(16 * MIB);
}

#[test]
fn a_name_belongs_to_the_user_that_serves_it() {
    let Some(mut stage) = Stage::set("names of others", "", "") else { return };
    let said = stage.attack("takes_a_name");
    assert!(said.contains("uid:0"), "it says whose it is: {said}");
    stage.end(16 * MIB);
}

#[test]
fn who_may_not_call_a_service_does_not() {
    let rule = "[[call]]\nservice = \"probe.v1.Probe\"\nwho = [\"uid:0\"]\n";
    let Some(mut stage) = Stage::set("calls", "", rule) else { return };
    let said = stage.attack("calls");
    assert!(said.contains("PERMISSION_DENIED") || said.contains("[[call]]"), "{said}");
    stage.end(16 * MIB);
}

/// As deep as a session may have calls. They end one after the other, not one within the other.
#[test]
fn calls_within_calls_end_with_the_first() {
    let Some(mut stage) = Stage::set("nested", "", "") else { return };
    assert_eq!(stage.attack("nested 4000"), "done: 4000 deep");
    assert_eq!(stage.attack("give_up 1"), "done: 1 calls", "and all within it");
    assert_eq!(stage.attack("hears 3999"), "done: 3999 ends");
    // Beside one of the good pair's.
    until("the end of all of them", || (stage.host.held().of("calls") <= 1).then_some(()));
    assert_eq!(stage.attack("nested 4000"), "done: 4000 deep");
    stage.attack("leave");
    stage.end(48 * MIB);
}
