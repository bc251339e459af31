//! Shows that copies of calls reach a shadow and nobody notices: not when it is stuck, fails, cannot be reached or
//! answers at length; that their number, bytes and time are bounded and what is left out is counted; that callers who
//! cancel, die or are handed over leave nothing behind; and that nothing is copied twice. Under virtual time.

use crate::world;

use trunkline_call::entry::{Completion, Submission};
use trunkline_call::{Code, Deadline};
use trunkline_engine::{Engine, Limits};
use trunkline_grpc::service_config::ServiceConfig;
use trunkline_policy::{Chain, Definition, Figures, Kind};
use world::fleet::*;
use world::{App, PROTO, World, finish, release};

/// A shadow that never answers.
const NEVER: u64 = 1_000_000 * MS;
const SHADOW: usize = 1;

fn mirror() -> Definition {
    let kind = Kind::Mirror;
    Definition { name: "shadow".into(), kind, target: Some(endpoint(SHADOW)), ..Definition::default() }
}

fn apply(engine: &mut Engine, chain: &[Definition]) {
    engine.apply_policies(Chain::build(chain).unwrap()).unwrap();
}

/// One server that answers within a millisecond, and a shadow.
fn staged(shadow: Answer, policy: Definition, limits: Limits) -> Fleet {
    let servers = vec![always(after(MS, Code::Ok)), always(shadow)];
    let mut fleet = Fleet::with_limits(servers, "{}", limits);
    let engine = &mut fleet.world.hosts[0].engine;
    engine.configure_service("world.Echo", &[endpoint(0)]).unwrap();
    apply(engine, &[policy]);
    fleet
}

fn with(shadow: Answer, policy: Definition) -> Fleet {
    staged(shadow, policy, Limits::default())
}

fn figures(engine: &Engine) -> Figures {
    engine.policy_rows()[0].figures
}

/// Copies sent, left out, and ended other than well.
fn counted(fleet: &Fleet) -> (u64, u64, u64) {
    let Figures { mirrored, left_out, failed, .. } = figures(&fleet.world.hosts[0].engine);
    (mirrored, left_out, failed)
}

/// Every call went as it would have gone alone.
fn are_untouched(fleet: &Fleet, calls: usize) {
    assert_eq!((fleet.ended.len(), fleet.count(Code::Ok), fleet.seen[0]), (calls, calls, calls));
    assert!(fleet.ended.iter().all(|ended| ended.after_ns == MS), "{:?}", fleet.quantile(100.0));
}

#[test]
fn every_call_has_a_copy_once() {
    let mut fleet = with(after(3 * MS, Code::Ok), mirror());
    fleet.calls(50, MS);
    are_untouched(&fleet, 50);
    assert_eq!((fleet.seen[SHADOW], counted(&fleet)), (50, (50, 0, 0)));
}

#[test]
fn a_share_of_the_calls_has_a_copy() {
    let mut fleet = with(after(MS, Code::Ok), Definition { percent: Some(25.0), ..mirror() });
    fleet.calls(2000, MS);
    are_untouched(&fleet, 2000);
    assert!((400..600).contains(&fleet.seen[SHADOW]), "{}", fleet.seen[SHADOW]);
    assert_eq!(counted(&fleet), (fleet.seen[SHADOW] as u64, 0, 0));
}

#[test]
fn a_shadow_that_is_stuck_has_so_many_copies_for_so_long() {
    let policy = Definition { calls_max: Some(8), timeout_ms: Some(500), ..mirror() };
    let mut fleet = with(after(NEVER, Code::Ok), policy);
    fleet.calls(400, MS);
    are_untouched(&fleet, 400);
    assert_eq!((fleet.seen[SHADOW], counted(&fleet)), (8, (8, 392, 8)));
    assert_eq!(fleet.cancelled[SHADOW], 8, "the shadow is told that nobody waits");
    fleet.calls(1, MS);
    assert_eq!((fleet.seen[SHADOW], counted(&fleet)), (9, (9, 392, 9)), "there is room again");
}

#[test]
fn copies_take_so_many_bytes_and_no_more() {
    let bytes = |count: usize| Limits { mirror_bytes: count, ..Limits::default() };
    let mut fleet = staged(after(NEVER, Code::Ok), mirror(), bytes(0));
    fleet.calls(3, MS);
    assert_eq!((fleet.seen[SHADOW], counted(&fleet)), (0, (0, 3, 0)));
    let one = fleet.world.blob(&mut fleet.client, b"hello").span.len as usize;
    let mut fleet = staged(after(NEVER, Code::Ok), mirror(), bytes(3 * one));
    fleet.calls(10, MS);
    are_untouched(&fleet, 10);
    assert_eq!((fleet.seen[SHADOW], counted(&fleet)), (3, (3, 7, 3)));
    fleet.calls(3, MS);
    assert_eq!(counted(&fleet), (6, 7, 6), "what has ended takes none");
}

#[test]
fn a_copy_has_the_deadline_of_its_call() {
    let mut fleet = with(after(NEVER, Code::Ok), mirror());
    let deadline = Deadline::at(fleet.world.now.plus_ns(5 * MS));
    fleet.call(deadline);
    fleet.run(4 * MS);
    assert_eq!((fleet.count(Code::Ok), fleet.cancelled[SHADOW]), (1, 0));
    fleet.run(2 * MS);
    assert_eq!((fleet.cancelled[SHADOW], counted(&fleet)), (1, (1, 0, 1)));
    fleet.rest();
}

#[test]
fn a_shadow_that_fails_is_not_asked_again_and_nobody_hears_of_it() {
    let refused = Answer { refuse: true, ..after(MS, Code::Unavailable) };
    for answer in [after(MS, Code::Unavailable), after(0, Code::Internal), refused] {
        let mut fleet = with(answer, mirror());
        fleet.configure(
            r#"{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 4, "initialBackoff": "0.001s",
                "maxBackoff": "0.1s", "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"]}}]}"#,
        );
        fleet.calls(20, 10 * MS);
        are_untouched(&fleet, 20);
        assert_eq!((fleet.seen[SHADOW], counted(&fleet)), (20, (20, 0, 20)));
    }
}

#[test]
fn a_shadow_nobody_can_reach_costs_nobody_anything() {
    let mut fleet = with(after(MS, Code::Ok), mirror());
    fleet.world.down.insert(endpoint(SHADOW));
    fleet.calls(30, MS);
    are_untouched(&fleet, 30);
    assert_eq!((fleet.seen[SHADOW], counted(&fleet)), (0, (30, 0, 30)));
}

#[test]
fn whoever_cancels_leaves_the_copy_alone() {
    let mut fleet = with(after(20 * MS, Code::Ok), mirror());
    let call = fleet.call(Deadline::NONE);
    fleet.cancel(call);
    assert_eq!((fleet.cancelled[0], fleet.cancelled[SHADOW]), (1, 0));
    fleet.rest();
    assert_eq!((fleet.cancelled[SHADOW], counted(&fleet)), (0, (1, 0, 0)));
}

#[test]
fn whoever_dies_leaves_the_copy_alone() {
    let mut fleet = with(after(20 * MS, Code::Ok), mirror());
    let call = fleet.call(Deadline::NONE);
    fleet.cancel(call);
    fleet.world.detach(&fleet.client);
    fleet.rest();
    assert_eq!((fleet.seen[SHADOW], fleet.cancelled[SHADOW], counted(&fleet)), (1, 0, (1, 0, 0)));
}

#[test]
fn a_policy_that_is_taken_out_has_no_more_copies_and_those_under_way_end() {
    let mut fleet = with(after(20 * MS, Code::Ok), mirror());
    fleet.call(Deadline::NONE);
    apply(&mut fleet.world.hosts[0].engine, &[]);
    fleet.call(Deadline::NONE);
    fleet.rest();
    assert_eq!((fleet.seen[0], fleet.seen[SHADOW]), (2, 1));
}

#[test]
fn what_is_refused_is_not_copied() {
    let mut fleet = with(after(MS, Code::Ok), mirror());
    let deny = Definition { name: "no".into(), deny: Some("true".into()), ..Definition::default() };
    apply(&mut fleet.world.hosts[0].engine, &[mirror(), deny]);
    fleet.call(Deadline::NONE);
    fleet.rest();
    assert_eq!((fleet.seen[SHADOW], counted(&fleet)), (0, (0, 0, 0)));
    assert_eq!(fleet.count(Code::PermissionDenied), 1);
}

#[test]
fn hedges_and_retries_of_a_call_share_one_copy() {
    let servers = vec![always(after(MS, Code::Unavailable)), always(after(MS, Code::Ok))];
    let limits = Limits { attempts_percent: 400, attempts_per_second: 1000, ..Limits::default() };
    let mut fleet = Fleet::with_limits(servers, "{}", limits);
    let engine = &mut fleet.world.hosts[0].engine;
    engine.configure_service("world.Echo", &[endpoint(0)]).unwrap();
    let retries = r#"{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 3, "initialBackoff": "0.01s",
        "maxBackoff": "0.1s", "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"]}}]}"#;
    engine.configure_calls("world.Echo", ServiceConfig::parse(retries).unwrap());
    apply(engine, &[mirror()]);
    fleet.calls(1, MS);
    assert_eq!((fleet.seen[0], fleet.seen[SHADOW]), (3, 1));
}

/// A caller and a server on one host, and a shadow on another daemon's.
struct Hosts {
    world: World,
    client: App,
    server: App,
    shadow: App,
}

impl Hosts {
    fn new() -> Self {
        let mut world = World::new();
        let server = world.attach(0, PROTO, None, true);
        let shadow = world.attach(1, PROTO, None, true);
        let client = world.attach(0, PROTO, None, false);
        let mut hosts = Self { world, client, server, shadow };
        apply(&mut hosts.world.hosts[0].engine, &[mirror()]);
        hosts
    }

    fn settle(&mut self) {
        self.world.settle(&mut [&mut self.client, &mut self.server, &mut self.shadow]);
    }

    /// A call that is served; what the shadow got of it.
    fn call(&mut self, route: usize) -> Option<trunkline_call::entry::Call> {
        let payload = self.world.blob(&mut self.client, &[7; 100_000]);
        let call = self.client.call(route, Some(payload), true);
        self.world.submit(&self.client, Submission::Call(call)).unwrap();
        self.settle();
        let seen = self.server.take_call();
        self.answer(false, seen, 10);
        let shadowed = self.shadow.take().into_iter().find_map(|completion| match completion {
            Completion::Call(call) => Some(call),
            _ => None,
        });
        for completion in self.client.take() {
            let (call, payload, metadata) = match completion {
                Completion::Finish(done) => {
                    assert_eq!(done.code, Code::Ok);
                    (done.call, done.payload, done.metadata)
                }
                Completion::Message { call, payload, .. } => (call, Some(payload), Default::default()),
                other => panic!("{other:?}"),
            };
            self.world.submit(&self.client, release(call, payload, metadata, 9)).unwrap();
        }
        self.settle();
        shadowed
    }

    fn answer(&mut self, is_shadow: bool, call: trunkline_call::entry::Call, bytes: usize) {
        let app = if is_shadow { &mut self.shadow } else { &mut self.server };
        assert_eq!(self.world.data(app, call.payload.unwrap()), [7; 100_000]);
        let payload = self.world.blob(app, &vec![1; bytes]);
        self.world.submit(app, Submission::Finish(finish(call.call, Code::Ok, Some(payload)))).unwrap();
        self.world.submit(app, release(call.call, call.payload, call.metadata, 0)).unwrap();
        self.settle();
    }

    fn figures(&self) -> Figures {
        figures(&self.world.hosts[0].engine)
    }
}

#[test]
fn a_copy_goes_to_another_daemon_as_the_call_would_and_long_answers_are_not_kept() {
    for answer_bytes in [10, 20_000_000] {
        let mut hosts = Hosts::new();
        let copy = hosts.call(0).expect("the shadow has a copy");
        hosts.answer(true, copy, answer_bytes);
        assert!(
            hosts.world.links.iter().all(|link| link.carried < 2_500_000),
            "what nobody wants is not sent"
        );
        let Figures { mirrored, left_out, failed, .. } = hosts.figures();
        assert_eq!((mirrored, left_out, failed), (1, 0, 0));
        let _ = hosts.shadow.take();
        assert_eq!(hosts.world.leftovers(), (0, 0));
    }
}

#[test]
fn streams_have_no_copies() {
    let mut hosts = Hosts::new();
    // One request, a stream of answers.
    assert_eq!(hosts.call(2), None);
    assert_eq!(hosts.figures().mirrored, 0);
}

#[test]
fn copies_end_with_the_daemon_that_made_them() {
    let mut hosts = Hosts::new();
    let copy = hosts.call(0).expect("the shadow has a copy");
    hosts.world.replace_engine(0);
    hosts.settle();
    let heard = hosts.shadow.take();
    assert!(heard.iter().any(|word| matches!(word, Completion::Cancelled { .. })), "{heard:?}");
    assert_eq!(hosts.figures().mirrored, 1, "figures move");
    hosts.answer(true, copy, 10);
    assert_eq!(hosts.world.leftovers(), (0, 0));
    assert!(hosts.call(0).is_some(), "and the next call has a copy again");
}
