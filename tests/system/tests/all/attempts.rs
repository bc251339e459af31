//! Shows retries and hedges over real daemons, counted where calls arrive: with half of the endpoints failing, further
//! attempts stay under the share the host allows; with one that never answers, hedges rescue every call and the losers
//! are told.

use crate::support::{Host, Process, client};
use trunkline::{Code, Request, Wait};
use trunkline_system_tests::handler::HANGING;
use trunkline_system_tests::proto::probe::probe_client::ProbeClient;
use trunkline_system_tests::proto::probe::{Label, Text};

/// Hosts with one server each, in these roles.
fn fleet(roles: &[&str]) -> Vec<(Host, Process)> {
    let host = |role: &&str| {
        let host = Host::over_tcp();
        let server = host.server(role);
        (host, server)
    };
    roles.iter().map(host).collect()
}

fn endpoints(fleet: &[(Host, Process)]) -> Vec<String> {
    fleet.iter().map(|(host, _)| host.endpoint().to_owned()).collect()
}

/// Calls that arrived at a host.
fn arrived(host: &Host) -> u64 {
    std::fs::read_to_string(host.log()).map_or(0, |log| log.lines().count() as u64)
}

/// So many calls, one after the other. How many succeeded.
fn call(client: &ProbeClient, count: u64) -> u64 {
    let call = |number: u64| {
        let request = Request::new(Text { text: "x".into() }).with_metadata("log", number.to_string());
        match client.echo(request.unwrap()).wait() {
            Ok(_) => true,
            Err(status) => {
                assert_eq!(status.code(), Code::Unavailable, "{status}");
                false
            }
        }
    };
    (0..count).map(|number| u64::from(call(number))).sum()
}

#[test]
fn with_half_of_the_endpoints_failing_further_attempts_stay_under_the_share() {
    const CALLS: u64 = 1000;
    const PERCENT: u64 = 20;
    let fleet = fleet(&["server", "failing", "server", "failing"]);
    let retries = r#"{"methodConfig": [{"name": [{}], "waitForReady": true, "retryPolicy": {"maxAttempts": 5,
        "initialBackoff": "0.001s", "maxBackoff": "0.005s", "backoffMultiplier": 2,
        "retryableStatusCodes": ["UNAVAILABLE"]}}]}"#;
    let limits = format!("[limits]\nattempts_percent = {PERCENT}\nattempts_per_second = 0\n");
    let mut near = Host::routed_as(endpoints(&fleet), retries, &limits);
    let succeeded = call(&client(&near, ""), CALLS);
    let seen: Vec<u64> = fleet.iter().map(|(host, _)| arrived(host)).collect();
    let extra = seen.iter().sum::<u64>() - CALLS;
    println!("{CALLS} calls, {succeeded} succeed, {extra} further attempts, seen {seen:?}");
    assert!(extra <= CALLS * PERCENT / 100, "{extra} further attempts for {CALLS} calls: {seen:?}");
    assert!(extra >= CALLS * PERCENT / 100 - 20, "the share is spent: {extra}");
    assert!(succeeded > CALLS / 2 + extra / 4, "{succeeded}");
    assert!(seen.iter().all(|count| *count > CALLS / 10), "{seen:?}");
    near.until_idle();
}

#[test]
fn hedges_rescue_calls_from_an_endpoint_that_hangs_and_cancel_the_losers() {
    const CALLS: u64 = 40;
    let fleet = fleet(&["server", "hanging"]);
    let hedges = r#"{"methodConfig": [{"name": [{}], "waitForReady": true, "hedgingPolicy": {"maxAttempts": 2,
        "hedgingDelay": "0.03s"}}]}"#;
    let limits = "[limits]\nattempts_percent = 100\nattempts_per_second = 1000\n";
    let mut near = Host::routed_as(endpoints(&fleet), hedges, limits);
    assert_eq!(call(&client(&near, ""), CALLS), CALLS);
    near.until_idle();
    let (good, bad) = (arrived(&fleet[0].0), arrived(&fleet[1].0));
    assert!(good >= CALLS, "every call was answered by who answers: {good}");
    assert!((CALLS / 4..=CALLS).contains(&bad), "endpoints take turns: {bad}");
    let there = client(&fleet[1].0, "");
    crate::support::until("every loser to be told", || {
        let seen = there.watch(Label { label: HANGING.into() }).wait().ok()?.into_inner();
        (seen.entered == bad && seen.dropped == bad).then_some(())
    });
}
