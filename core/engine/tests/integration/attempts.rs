//! Shows calls that take more than one attempt, by gRFC A6: what is retried and what is not, what servers say about it,
//! hedges and the losers they leave, streams that are replayed, and the bounds all of it keeps to; under virtual time.

use crate::world;

use trunkline_call::entry::{Completion, Submission};
use trunkline_call::{Code, Deadline, Execution, Instant, TraceParent};
use trunkline_engine::{Limits, export_state};
use trunkline_grpc::service_config::ServiceConfig;
use trunkline_policy::{Chain, Definition};
use trunkline_telemetry::{Ask, Component, FlightRow, Side};
use world::fleet::*;
use world::{PROTO, World, finish, release};

/// A config with so much for every method.
fn config(rest: &str) -> String {
    format!(r#"{{"methodConfig": [{{"name": [{{}}], {rest}}}]}}"#)
}

fn retries(attempts: u32) -> String {
    config(&format!(
        r#""retryPolicy": {{"maxAttempts": {attempts}, "initialBackoff": "0.01s", "maxBackoff": "0.1s",
            "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"]}}"#
    ))
}

fn hedges(attempts: u32, delay: &str) -> String {
    config(&format!(
        r#""hedgingPolicy": {{"maxAttempts": {attempts}, "hedgingDelay": "{delay}",
            "nonFatalStatusCodes": ["UNAVAILABLE"]}}"#
    ))
}

fn generous() -> Limits {
    Limits { attempts_percent: 400, attempts_per_second: 1000, ..Limits::default() }
}

/// One server that answers as the list says, call by call, and then with OK.
fn script(answers: Vec<Answer>) -> Vec<Behaviour> {
    vec![Box::new(move |seen, _| answers.get(seen).cloned().unwrap_or(after(MS, Code::Ok)))]
}

fn one(servers: Vec<Behaviour>, config: &str) -> (Fleet, Ended) {
    let mut fleet = Fleet::with_limits(servers, config, generous());
    fleet.calls(1, MS);
    let ended = fleet.ended[0];
    (fleet, ended)
}

fn failing() -> Answer {
    after(MS, Code::Unavailable)
}

fn said(key: &str, value: &str) -> Answer {
    Answer { trailers: vec![(key.into(), value.into())], ..failing() }
}

#[test]
fn a_retryable_failure_is_tried_again_with_growing_waits() {
    let (fleet, ended) = one(script(vec![failing(), failing()]), &retries(4));
    assert_eq!((ended.code, fleet.seen[0]), (Code::Ok, 3));
    assert_eq!(fleet.previous, ["1", "2"]);
    // 10 ms and 20 ms, each give or take a fifth, and 1 ms per attempt.
    assert!((27 * MS..=39 * MS).contains(&ended.after_ns), "{ended:?}");
}

/// What failed attempts, backoffs and the delay of a hedge take is no work of our own stack: the call waits meanwhile.
#[test]
fn what_attempts_before_took_is_wait_and_no_stack() {
    for (servers, config, before) in [
        (script(vec![failing(), failing()]), retries(4), 26 * MS..39 * MS),
        (vec![always(failing())], retries(2), 9 * MS..15 * MS),
        (script(vec![after(500 * MS, Code::Ok), after(MS, Code::Ok)]), hedges(2, "0.01s"), 10 * MS..11 * MS),
        (script(vec![]), retries(4), 0..MS),
    ] {
        let mut fleet = Fleet::with_limits(servers, &config, generous());
        fleet.calls(1, MS);
        let rows: Vec<FlightRow> = fleet.world.hosts[0].engine.telemetry().recorder().recent().collect();
        let of = |side: Side| rows.iter().filter(move |row| row.side == side);
        let part = |row: &FlightRow, component: Component| row.components.ns[component as usize];
        let [made] = of(Side::Made).collect::<Vec<_>>()[..] else { panic!("{rows:#?}") };
        let queue_ns = part(made, Component::ClientSendQueue);
        assert!(before.contains(&queue_ns), "{config}: {queue_ns} ns, {made:#?}");
        assert!(part(made, Component::RequestStack) < MS, "{config}: {made:#?}");
        // Each attempt counts from its own beginning.
        for attempt in of(Side::Attempt) {
            assert!(part(attempt, Component::ClientSendQueue) < MS, "{config}: {attempt:#?}");
            assert!(part(attempt, Component::RequestStack) < MS, "{config}: {attempt:#?}");
        }
    }
}

/// What an attempt itself waits for, here for its connection, is wait as without attempts.
#[test]
fn what_an_attempt_waits_for_is_wait_and_no_stack() {
    for config in ["{}".to_owned(), retries(4), hedges(2, "10s")] {
        let mut fleet = Fleet::with_limits(script(vec![]), &config, generous());
        fleet.world.dial_ns = 50 * MS;
        fleet.calls(1, 200 * MS);
        let rows: Vec<FlightRow> = fleet.world.hosts[0].engine.telemetry().recorder().recent().collect();
        assert_eq!(rows.len(), if config == "{}" { 1 } else { 2 }, "{rows:#?}");
        for row in rows {
            let part = |component: Component| row.components.ns[component as usize];
            assert!(part(Component::ClientSendQueue) >= 50 * MS, "{config}: {row:#?}");
            assert!(part(Component::RequestStack) < MS, "{config}: {row:#?}");
        }
    }
}

/// Spans, where somebody exports them: one for the call, and below it one for each attempt, whose id its server is
/// told.
#[test]
fn each_attempt_has_a_span_that_its_server_is_told() {
    for (servers, config, attempts) in [
        (script(vec![failing(), failing()]), retries(4), 3),
        (vec![always(failing())], retries(2), 2),
        (script(vec![after(50 * MS, Code::Ok), after(MS, Code::Ok)]), hedges(2, "0.01s"), 2),
        (script(vec![]), "{}".into(), 1),
    ] {
        let mut fleet = Fleet::with_limits(servers, &config, generous());
        fleet.world.hosts[0].engine.trace_calls(1.0, 5);
        fleet.world.hosts[0].engine.telemetry().keep_traced(true);
        fleet.calls(1, MS);
        let now = fleet.world.now;
        let ask = Ask { traced_max: 100, ..Ask::default() };
        let traced = fleet.world.hosts[0].engine.telemetry().snapshot(now, &ask).traced;
        let (made, others): (Vec<_>, Vec<_>) = traced.iter().partition(|call| call.side == Side::Made);
        let [made] = made[..] else { panic!("{traced:#?}") };
        let told: Vec<TraceParent> =
            fleet.parents.iter().map(|text| TraceParent::parse(text).unwrap()).collect();
        assert_eq!(told.len(), attempts, "{config}");
        assert!(told.iter().all(|parent| parent.trace == made.ids.trace && parent.sampled), "{told:?}");
        let mut spans: Vec<u64> = others.iter().map(|attempt| attempt.ids.attempt).collect();
        spans.extend((made.ids.attempt != 0).then_some(made.ids.attempt));
        let mut servers: Vec<u64> = told.iter().map(|parent| parent.span).collect();
        spans.sort_unstable();
        servers.sort_unstable();
        assert_eq!(spans, servers, "{config}");
        assert!(others.iter().all(|attempt| attempt.ids.span == made.ids.span), "{others:?}");
        assert_eq!((made.ids.parent, fleet.seen[0]), (0, attempts));
        assert!(servers.windows(2).all(|pair| pair[0] != pair[1]), "each has its own: {servers:?}");
    }
}

#[test]
fn attempts_end_with_their_number_and_the_last_status_stands() {
    let (fleet, ended) = one(vec![always(failing())], &retries(3));
    assert_eq!((ended.code, ended.execution, fleet.seen[0]), (Code::Unavailable, Execution::Unknown, 3));
    let (fleet, ended) = one(vec![always(after(MS, Code::Internal))], &retries(3));
    assert_eq!((ended.code, fleet.seen[0]), (Code::Internal, 1), "not on the list");
    let (fleet, ended) = one(vec![always(failing())], "{}");
    assert_eq!((ended.code, fleet.seen[0]), (Code::Unavailable, 1), "nobody asked for it");
}

#[test]
fn a_response_that_has_begun_is_never_retried() {
    let begun = Answer { headers: true, ..failing() };
    let (fleet, ended) = one(script(vec![begun]), &retries(5));
    assert_eq!((ended.code, fleet.seen[0]), (Code::Unavailable, 1));
}

#[test]
fn pushback_names_the_time_or_ends_it() {
    let (fleet, ended) = one(script(vec![said("grpc-retry-pushback-ms", "300")]), &retries(3));
    assert_eq!((ended.code, fleet.seen[0], ended.after_ns), (Code::Ok, 2, 302 * MS));
    for never in ["-1", "soon"] {
        let (fleet, ended) = one(script(vec![said("grpc-retry-pushback-ms", never)]), &retries(3));
        assert_eq!((ended.code, fleet.seen[0]), (Code::Unavailable, 1), "{never}");
    }
}

#[test]
fn what_a_server_has_not_seen_is_sent_again_whatever_the_policy_once() {
    let refused = || Answer { refuse: true, ..failing() };
    let policy = retries(2).replace("UNAVAILABLE", "ABORTED");
    let (fleet, ended) = one(script(vec![refused()]), &policy);
    assert_eq!((ended.code, fleet.seen[0], fleet.previous.len()), (Code::Ok, 2, 0), "it does not count");
    let (fleet, ended) = one(script(vec![refused(), refused()]), &policy);
    assert_eq!((ended.code, ended.execution, fleet.seen[0]), (Code::Unavailable, Execution::NotExecuted, 2));
    // It goes elsewhere if there is an elsewhere.
    let (fleet, ended) = one(vec![always(refused()), always(after(MS, Code::Ok))], &policy);
    assert_eq!((ended.code, fleet.seen[..] == [1, 1] || fleet.seen[..] == [0, 1]), (Code::Ok, true));
}

/// Not even by a budget that is spent: a call without a policy has it, too.
#[test]
fn what_a_server_has_not_seen_is_sent_again_whatever_the_budget() {
    let limits = Limits { attempts_percent: 0, attempts_per_second: 0, ..Limits::default() };
    let refused = || Answer { refuse: true, ..failing() };
    for config in [retries(4), "{}".to_owned()] {
        let mut fleet = Fleet::with_limits(script(vec![refused()]), &config, limits.clone());
        fleet.calls(1, MS);
        assert_eq!((fleet.ended[0].code, fleet.seen[0]), (Code::Ok, 2), "{config}");
    }
}

/// What policies have read is what every attempt sends, and its block goes back once.
#[test]
fn a_message_that_policies_have_read_takes_several_attempts() {
    for (deny, expected) in [
        ("request.data == b'other'", (Code::Ok, 2)),
        ("request.data != b'other'", (Code::PermissionDenied, 0)),
    ] {
        let mut fleet = Fleet::with_limits(script(vec![failing()]), &retries(3), generous());
        let side = trunkline_policy::Side::Client;
        let no = Definition { name: "no".into(), side, deny: Some(deny.into()), ..Definition::default() };
        fleet.world.hosts[0].engine.apply_policies(Chain::build(&[no]).unwrap()).unwrap();
        fleet.calls(1, MS);
        assert_eq!((fleet.ended[0].code, fleet.seen[0]), expected, "{deny}");
        assert_eq!(fleet.world.leftovers(), (0, 0), "{deny}");
    }
}

#[test]
fn another_attempt_goes_to_another_endpoint() {
    let servers = (0..4).map(|at| always(if at == 3 { after(MS, Code::Ok) } else { failing() })).collect();
    let mut fleet = Fleet::with_limits(servers, &retries(5), generous());
    fleet.calls(20, 200 * MS);
    assert_eq!(fleet.count(Code::Ok), 20);
    assert!(fleet.attempts() <= 80, "each endpoint at most once: {:?}", fleet.seen);
}

#[test]
fn the_throttle_of_a_service_closes_at_half() {
    let policy = retries(2);
    let policy = format!(
        "{}, \"retryThrottling\": {{\"maxTokens\": 10, \"tokenRatio\": 0.1}}}}",
        &policy[..policy.len() - 1]
    );
    let mut fleet = Fleet::with_limits(vec![always(failing())], &policy, generous());
    fleet.calls(50, 100 * MS);
    // Each failure takes a token: the fifth leaves half.
    assert_eq!(fleet.attempts(), 50 + 2);
}

#[test]
fn with_half_of_the_endpoints_failing_extra_attempts_stay_under_the_share() {
    let servers = || -> Vec<Behaviour> {
        (0..8).map(|at| always(if at < 4 { failing() } else { after(MS, Code::Ok) })).collect()
    };
    let limits = Limits { attempts_percent: 20, attempts_per_second: 0, ..Limits::default() };
    let mut fleet = Fleet::with_limits(servers(), &retries(5), limits);
    fleet.calls(5000, MS);
    let extra = fleet.attempts() - 5000;
    assert!((900..=1000).contains(&extra), "{extra} extra attempts for 5000 calls");
    assert!(fleet.count(Code::Ok) > 3000, "half without retries: {}", fleet.count(Code::Ok));
    println!("retries: {extra} extra attempts for 5000 calls, {} succeed", fleet.count(Code::Ok));
}

#[test]
fn hedging_at_p95_cuts_p99_at_little_cost() {
    let servers = || -> Vec<Behaviour> {
        (0..8)
            .map(|at| -> Behaviour {
                Box::new(move |_, random| {
                    let ns = if at == 0 { 40 * MS } else { MS + random.number() % (2 * MS) };
                    after(ns, Code::Ok)
                })
            })
            .collect()
    };
    let least = r#""loadBalancingConfig": [{"least_request_experimental": {}}]"#;
    let mut alone = Fleet::new(servers(), &format!("{{{least}}}"));
    alone.calls(10_000, MS);
    let (p95, p99) = (alone.quantile(95.0), alone.quantile(99.0));
    let policy = hedges(2, &format!("{:.9}s", p95 as f64 / 1e9));
    let mut hedged = Fleet::new(servers(), &format!("{}, {least}}}", &policy[..policy.len() - 1]));
    hedged.calls(10_000, MS);
    let extra = hedged.attempts() - 10_000;
    let cut = p99 as f64 / hedged.quantile(99.0) as f64;
    println!("hedging: p95 {p95} ns, p99 {p99} ns cut {cut:.1} times, {extra} extra calls for 10000");
    assert!(cut >= 3.0, "p99 {p99} and {}", hedged.quantile(99.0));
    assert!(extra <= 600, "{extra}");
    assert_eq!(hedged.count(Code::Ok), 10_000);
    let losers: usize = hedged.cancelled.iter().sum();
    assert_eq!(losers, extra, "every loser is cancelled");
}

/// A hedge that no server has seen ends its call, while another attempt is at work: nobody can say that the call was
/// not executed.
#[test]
fn a_hedge_does_not_speak_for_the_attempts_beside_it() {
    let unseen = vec![("trunkline-execution".into(), "not-executed".into())];
    let fatal = Answer { trailers: unseen, ..after(MS, Code::ResourceExhausted) };
    let slow = after(500 * MS, Code::Ok);
    let (fleet, ended) = one(script(vec![slow, fatal.clone()]), &hedges(3, "0.010s"));
    assert_eq!((ended.code, ended.execution), (Code::ResourceExhausted, Execution::Unknown));
    assert_eq!((fleet.seen[0], fleet.cancelled[0]), (2, 1));
    let (_, ended) = one(script(vec![fatal]), &hedges(3, "0.010s"));
    assert_eq!((ended.code, ended.execution), (Code::ResourceExhausted, Execution::NotExecuted));
}

#[test]
fn hedges_end_with_the_first_answer_or_a_fatal_one() {
    let slow = || after(100 * MS, Code::Ok);
    let (fleet, ended) = one(script(vec![slow(), slow(), after(5 * MS, Code::Ok)]), &hedges(3, "0.010s"));
    assert_eq!((ended.after_ns, fleet.seen[0], fleet.cancelled[0]), (25 * MS, 3, 2));
    assert_eq!(fleet.previous, ["1", "2"]);
    let (fleet, ended) = one(script(vec![slow(), after(MS, Code::Internal)]), &hedges(3, "0.010s"));
    assert_eq!((ended.code, ended.after_ns, fleet.cancelled[0]), (Code::Internal, 11 * MS, 1));
    // A failure that is not fatal brings the next at once.
    let (fleet, ended) = one(script(vec![failing(), failing()]), &hedges(3, "0.050s"));
    assert_eq!((ended.code, ended.after_ns, fleet.seen[0]), (Code::Ok, 3 * MS, 3));
    let (fleet, ended) = one(vec![always(failing())], &hedges(3, "0.050s"));
    assert_eq!((ended.code, fleet.seen[0]), (Code::Unavailable, 3));
    // All at once.
    let (fleet, ended) = one(script(vec![slow(), slow()]), &hedges(3, "0s"));
    assert_eq!((ended.after_ns, fleet.seen[0], fleet.cancelled[0]), (MS, 3, 2));
    // A server that wants no more gets none; the one under way goes on.
    let stop = said("grpc-retry-pushback-ms", "-1");
    let (fleet, ended) = one(script(vec![after(50 * MS, Code::Ok), stop.clone()]), &hedges(5, "0.010s"));
    assert_eq!((ended.code, ended.after_ns, fleet.seen[0]), (Code::Ok, 50 * MS, 2));
    // None is to come: the failure is the call's at once.
    let (fleet, ended) = one(script(vec![stop.clone()]), &hedges(5, "0.010s"));
    assert_eq!((ended.code, ended.after_ns, fleet.seen[0]), (Code::Unavailable, MS, 1));
    let (fleet, ended) = one(script(vec![after(30 * MS, Code::Unavailable), stop]), &hedges(5, "0.010s"));
    assert_eq!((ended.code, ended.after_ns, fleet.seen[0]), (Code::Unavailable, 30 * MS, 2));
    let (fleet, ended) = one(script(vec![said("grpc-retry-pushback-ms", "30")]), &hedges(5, "0.010s"));
    assert_eq!((ended.code, ended.after_ns, fleet.seen[0]), (Code::Ok, 32 * MS, 2));
}

#[test]
fn a_budget_that_is_spent_leaves_calls_with_what_they_have() {
    let limits = Limits { attempts_percent: 0, attempts_per_second: 0, ..Limits::default() };
    let mut fleet = Fleet::with_limits(vec![always(failing())], &retries(5), limits.clone());
    fleet.calls(10, MS);
    assert_eq!((fleet.attempts(), fleet.count(Code::Unavailable)), (10, 10));
    let mut fleet =
        Fleet::with_limits(vec![always(said("grpc-retry-pushback-ms", "5"))], &hedges(5, "1s"), limits);
    fleet.calls(10, MS);
    assert_eq!((fleet.attempts(), fleet.count(Code::Unavailable)), (10, 10));
}

/// Requests that are kept to be sent again may be tens of megabytes, which are written down while nobody turns: byte by
/// byte, and not as a list of numbers.
#[test]
fn requests_that_are_kept_are_handed_over_as_bytes() {
    let mut world = World::with_limits(generous());
    let engine = &mut world.hosts[0].engine;
    engine.configure_service("world.Echo", &["tcp://10.1.1.1:1".to_owned()]).unwrap();
    engine.configure_calls("world.Echo", ServiceConfig::parse(&retries(4)).unwrap());
    let mut client = world.attach(0, PROTO, None, false);
    let mut server = world.attach(1, PROTO, None, true);
    // Numbers above 23 are longer than a byte.
    let data = vec![200; 200_000];
    let payload = world.blob(&mut client, &data);
    let call = client.call(0, Some(payload), true);
    world.submit(&client, Submission::Call(call)).unwrap();
    world.settle(&mut [&mut client, &mut server]);
    let state = export_state(&world.hosts[0].engine).unwrap().state;
    assert!((data.len()..data.len() + 20_000).contains(&state.len()), "{}", state.len());
    world.replace_engines();
    // What was kept is sent again, by the engine that has read it.
    let first = server.take_call();
    world.submit(&server, Submission::Finish(finish(first.call, Code::Unavailable, None))).unwrap();
    world.settle(&mut [&mut client, &mut server]);
    world.advance(100 * MS);
    world.settle(&mut [&mut client, &mut server]);
    let second = server.take_call();
    for call in [first, second] {
        assert!(world.data(&server, call.payload.unwrap()) == data);
    }
}

#[test]
fn a_deadline_and_a_cancellation_end_all_attempts() {
    let mut fleet =
        Fleet::with_limits(vec![always(after(1000 * MS, Code::Ok))], &hedges(3, "0.010s"), generous());
    let at = fleet.world.now.plus_ns(50 * MS);
    fleet.call(Deadline::at(at));
    fleet.run(100 * MS);
    assert_eq!((fleet.ended[0].code, fleet.ended[0].execution), (Code::DeadlineExceeded, Execution::Unknown));
    assert_eq!((fleet.seen[0], fleet.cancelled[0]), (3, 3));
    // In the middle of a wait.
    let mut fleet = Fleet::with_limits(vec![always(failing())], &retries(5), generous());
    let at = fleet.world.now.plus_ns(5 * MS);
    fleet.call(Deadline::at(at));
    fleet.run(100 * MS);
    assert_eq!((fleet.ended[0].code, fleet.seen[0]), (Code::DeadlineExceeded, 1));
    let call = fleet.call(Deadline::NONE);
    fleet.run(3 * MS);
    fleet.cancel(call);
    fleet.run(100 * MS);
    assert_eq!((fleet.seen[0], fleet.world.leftovers()), (2, (0, 0)));
}

#[test]
fn whatever_servers_do_every_call_ends_once() {
    for (seed, policy) in (0..40).flat_map(|seed| [(seed, retries(4)), (seed, hedges(4, "0.003s"))]) {
        let server = |_| -> Behaviour {
            Box::new(move |_, random| {
                let code =
                    [Code::Ok, Code::Ok, Code::Unavailable, Code::Internal][random.number() as usize % 4];
                let mut answer = after(random.number() % (10 * MS), code);
                answer.headers = random.happens(20.0);
                answer.refuse = random.happens(10.0);
                if random.happens(20.0) {
                    let ms = ["0", "7", "-1"][random.number() as usize % 3];
                    answer.trailers = vec![("grpc-retry-pushback-ms".into(), ms.into())];
                }
                answer
            })
        };
        let mut fleet = Fleet::with_limits((0..3).map(server).collect(), &policy, Limits::default());
        let mut chance = trunkline_policy::Random::new(seed);
        for _ in 0..60 {
            let ns = chance.number() % (20 * MS);
            let limited = chance.happens(30.0);
            let now = fleet.world.now;
            let call = fleet.call(if limited { Deadline::at(now.plus_ns(ns + 1)) } else { Deadline::NONE });
            if chance.happens(10.0) {
                fleet.run(chance.number() % (5 * MS));
                fleet.cancel(call);
            }
            if chance.happens(3.0) && !fleet.world.webs.is_empty() {
                let web = chance.number() as usize % fleet.world.webs.len();
                fleet.hang_up(web);
            }
            fleet.run(chance.number() % (4 * MS));
        }
        fleet.rest();
    }
}

#[test]
fn a_daemon_s_failure_is_retried_and_its_stream_replayed() {
    for route in [0, 1, 3] {
        let mut world = World::with_limits(generous());
        let mut client = world.attach(0, PROTO, Some("tcp://10.0.0.1:1"), false);
        let mut server = world.attach(1, PROTO, None, true);
        world.hosts[0].engine.configure_calls("world.Echo", ServiceConfig::parse(&retries(3)).unwrap());
        let streams = route != 0;
        let payload = world.blob(&mut client, b"one");
        let call = client.call(route, (!streams).then_some(payload), !streams);
        world.submit(&client, Submission::Call(call)).unwrap();
        if streams {
            for (data, end) in [(b"one", false), (b"two", true)] {
                let payload = world.blob(&mut client, data);
                world
                    .submit(&client, Submission::Message { call: call.call, payload, end, a1: Instant(3) })
                    .unwrap();
            }
        }
        for attempt in 0..2 {
            world.settle(&mut [&mut client, &mut server]);
            let got = server.take();
            let Some(Completion::Call(seen)) = got.first() else { panic!("{got:?}") };
            let mut data = seen.payload.map(|payload| world.data(&server, payload)).unwrap_or_default();
            world.submit(&server, release(seen.call, seen.payload, seen.metadata, 0)).unwrap();
            for completion in &got[1..] {
                let Completion::Message { payload, .. } = completion else { continue };
                data.extend(world.data(&server, *payload));
                world.submit(&server, release(seen.call, Some(*payload), Default::default(), 0)).unwrap();
            }
            assert_eq!(data, if streams { b"onetwo".to_vec() } else { b"one".to_vec() }, "attempt {attempt}");
            let code = if attempt == 0 { Code::Unavailable } else { Code::Ok };
            let back = (attempt == 1 && route != 3).then(|| world.blob(&mut server, b"back"));
            world.submit(&server, Submission::Finish(finish(seen.call, code, back))).unwrap();
            world.settle(&mut [&mut client, &mut server]);
            world.advance(20 * MS);
        }
        let finish = client.take().into_iter().find_map(|completion| match completion {
            Completion::Finish(finish) => Some(finish),
            _ => None,
        });
        let finish = finish.expect("the call has ended");
        assert_eq!(finish.code, Code::Ok);
        world.submit(&client, release(finish.call, finish.payload, finish.metadata, 9)).unwrap();
        assert_eq!(world.leftovers().0, 0);
    }
}

#[test]
fn a_request_that_outgrows_what_is_kept_has_the_attempt_it_has() {
    let limits = Limits { grpc_replay_bytes_per_call: 100, ..generous() };
    let mut world = World::with_limits(limits);
    let mut client = world.attach(0, PROTO, Some("tcp://10.0.0.1:1"), false);
    let mut server = world.attach(1, PROTO, None, true);
    world.hosts[0].engine.configure_calls("world.Echo", ServiceConfig::parse(&retries(3)).unwrap());
    let call = client.call(1, None, false);
    world.submit(&client, Submission::Call(call)).unwrap();
    for index in 0..5 {
        let payload = world.blob(&mut client, &[index; 60]);
        world
            .submit(
                &client,
                Submission::Message { call: call.call, payload, end: index == 4, a1: Instant(3) },
            )
            .unwrap();
    }
    world.settle(&mut [&mut client, &mut server]);
    let got = server.take();
    let Some(Completion::Call(seen)) = got.first() else { panic!("{got:?}") };
    let mut data = Vec::new();
    for completion in &got[1..] {
        let Completion::Message { payload, .. } = completion else { continue };
        data.push(world.data(&server, *payload)[0]);
    }
    assert_eq!(data, [0, 1, 2, 3, 4], "all of it, in order");
    world.submit(&server, Submission::Finish(finish(seen.call, Code::Unavailable, None))).unwrap();
    world.settle(&mut [&mut client, &mut server]);
    world.advance(100 * MS);
    world.settle(&mut [&mut client, &mut server]);
    assert!(client.take().iter().any(|completion| matches!(completion, Completion::Finish(_))));
    assert!(
        server.take().iter().all(|completion| !matches!(completion, Completion::Call(_))),
        "and no other"
    );
}

#[test]
fn requests_for_which_there_is_no_room_have_one_attempt() {
    const CALLS: u64 = 40;
    let mut world = World::with_limits(Limits { attempts_bytes: 12_000, ..generous() });
    let mut client = world.attach(0, PROTO, Some("tcp://10.0.0.1:1"), false);
    let mut server = world.attach(1, PROTO, None, true);
    world.hosts[0].engine.configure_calls("world.Echo", ServiceConfig::parse(&retries(2)).unwrap());
    for _ in 0..CALLS {
        let payload = world.blob(&mut client, &[7; 1000]);
        let call = client.call(0, Some(payload), true);
        world.submit(&client, Submission::Call(call)).unwrap();
    }
    world.settle(&mut [&mut client, &mut server]);
    let snapshot = world.hosts[0].engine.snapshot();
    let kept = snapshot.memory.iter().find(|(what, _)| what.contains("further attempts")).unwrap().1;
    // One source alone has about two thirds.
    assert!((6_000..=9_000).contains(&kept), "{kept}");
    let (mut seen, mut ended) = (0, 0);
    for _ in 0..3 {
        for completion in server.take() {
            let Completion::Call(call) = completion else { continue };
            seen += 1;
            world.submit(&server, release(call.call, call.payload, call.metadata, 0)).unwrap();
            world.submit(&server, Submission::Finish(finish(call.call, Code::Unavailable, None))).unwrap();
        }
        world.settle(&mut [&mut client, &mut server]);
        world.advance(100 * MS);
        world.settle(&mut [&mut client, &mut server]);
        for completion in client.take() {
            let Completion::Finish(finish) = completion else { continue };
            assert_eq!(finish.code, Code::Unavailable);
            ended += 1;
            world.submit(&client, release(finish.call, finish.payload, finish.metadata, 9)).unwrap();
        }
    }
    let once: u64 = snapshot.limits_met.iter().map(|(_, calls)| calls).sum();
    assert_eq!((seen, ended), (2 * CALLS - once, CALLS), "{once} without a second attempt");
    assert!((30..CALLS).contains(&once), "{once}");
    let memory = world.hosts[0].engine.snapshot().memory;
    assert!(
        memory.iter().all(|(what, bytes)| !what.contains("further attempts") || *bytes == 0),
        "{memory:?}"
    );
    assert_eq!(world.leftovers().0, 0);
}
