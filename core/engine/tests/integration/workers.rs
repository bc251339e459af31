//! Shows which of several workers of one host gets a call: none stands behind a busy one while another is free, what
//! waits goes on when a worker is free, rests, or dies, and what is not bounded is not held.

use crate::world;

use std::sync::{Arc, Mutex};
use trunkline_call::entry::{Call, Completion, Finish, Submission};
use trunkline_call::{Code, Deadline, Execution, Instant, Metadata};
use trunkline_engine::Limits;
use trunkline_policy::{
    Chain, Definition, Kind, Module, ModuleAnswer, ModuleCall, ModuleEnd, ModuleError, ModuleField,
    ModuleInfo, ModuleLoader, ModuleState, SettingValue, Side, ValueKind,
};
use world::*;

const MS: u64 = 1_000_000;

/// A caller and two workers on one host.
struct Scene {
    world: World,
    client: App,
    workers: [App; 2],
}

impl Scene {
    fn new() -> Self {
        Self::within(World::new(), 0)
    }

    /// The workers are on the shard of this place among the hosts.
    fn within(mut world: World, shard: usize) -> Self {
        let mut attach = |place, serves| {
            world.placed = Some(place);
            world.attach(0, PROTO, None, serves)
        };
        let (client, workers) = (attach(0, false), [attach(shard, true), attach(shard, true)]);
        Self { world, client, workers }
    }

    /// A scene in which calls have been measured to take 10 ms each: a worker gets the next when it is free.
    fn measured() -> Self {
        Self::new().measure()
    }

    fn measure(self) -> Self {
        let mut scene = self;
        for _ in 0..40 {
            let call = scene.call(0, Deadline::NONE);
            let worker = usize::from(scene.delivered(0) == 0);
            scene.serve(worker);
            scene.conclude(call, Code::Ok);
        }
        scene
    }

    fn settle(&mut self) {
        let [first, second] = &mut self.workers;
        self.world.settle(&mut [&mut self.client, first, second]);
    }

    fn call(&mut self, route: usize, deadline: Deadline) -> Call {
        self.call_with(route, deadline, &[])
    }

    fn call_with(&mut self, route: usize, deadline: Deadline, pairs: &[(&str, &str)]) -> Call {
        let payload = self.world.blob(&mut self.client, b"x");
        let mut call = self.client.call(route, Some(payload), route.is_multiple_of(2));
        call.deadline = deadline;
        if !pairs.is_empty() {
            let mut metadata = Metadata::new();
            pairs.iter().for_each(|(key, value)| metadata.insert(key, value).unwrap());
            call.metadata = self.world.put_metadata(&mut self.client, &metadata);
        }
        self.world.submit(&self.client, Submission::Call(call)).unwrap();
        self.settle();
        call
    }

    /// Calls delivered to a worker and not looked at.
    fn delivered(&self, worker: usize) -> usize {
        self.workers[worker].inbox.iter().filter(|one| matches!(one, Completion::Call(_))).count()
    }

    fn take_call(&mut self, worker: usize) -> Call {
        let inbox = &mut self.workers[worker].inbox;
        let at = inbox.iter().position(|one| matches!(one, Completion::Call(_))).expect("a call");
        let Completion::Call(call) = inbox.remove(at) else { unreachable!("found above") };
        call
    }

    /// The first delivered call of a worker is taken, worked on for 10 ms, and answered.
    fn serve(&mut self, worker: usize) {
        let call = self.take_call(worker);
        self.world.submit(&self.workers[worker], release(call.call, call.payload, call.metadata, 0)).unwrap();
        let taken = self.world.now;
        self.world.advance(10 * MS);
        let payload = self.world.blob(&mut self.workers[worker], b"y");
        let answer =
            Finish { taken, published: self.world.now, ..finish(call.call, Code::Ok, Some(payload)) };
        self.world.submit(&self.workers[worker], Submission::Finish(answer)).unwrap();
        self.settle();
    }

    /// Whatever is delivered is answered, which is all of these, and nothing is left.
    #[track_caller]
    fn serve_all(&mut self, calls: Vec<Call>) {
        while let Some(worker) = (0..2).find(|worker| self.delivered(*worker) > 0) {
            self.serve(worker);
        }
        for call in calls {
            self.conclude(call, Code::Ok);
        }
        assert_eq!(self.world.leftovers(), (0, 0));
    }

    fn rests(&mut self, worker: usize) {
        let Host { engine, heaps } = &mut self.world.hosts[0];
        let mut turn = trunkline_engine::Turn { now: self.world.now, heaps };
        let key = self.workers[worker].key;
        engine.free_resting_workers(&mut turn, |asked| asked == key);
        self.settle();
    }

    #[track_caller]
    fn conclude(&mut self, call: Call, code: Code) -> Finish {
        let is_its = |one: &Completion| matches!(one, Completion::Finish(finish) if finish.call == call.call);
        let at = self.client.inbox.iter().position(is_its).expect("the call has ended");
        let Completion::Finish(finish) = self.client.inbox.remove(at) else { unreachable!("found above") };
        assert_eq!(finish.code, code);
        self.world.submit(&self.client, release(finish.call, finish.payload, finish.metadata, 9)).unwrap();
        self.settle();
        finish
    }

    fn waiting(&self) -> bool {
        self.world.hosts[0].engine.calls_wait_for_workers()
    }
}

#[test]
fn nothing_stands_behind_a_busy_worker_while_another_is_free() {
    let mut scene = Scene::measured();
    let calls: Vec<Call> = (0..6).map(|_| scene.call(0, Deadline::NONE)).collect();
    assert_eq!((scene.delivered(0), scene.delivered(1)), (1, 1), "one each, the rest waits");
    // The first worker has a long one; everything else passes it by. Once the queue is old, the other has one in stock.
    for served in 0..5 {
        let in_stock = usize::from(served == 3);
        assert_eq!((scene.delivered(0), scene.delivered(1)), (1, 1 + in_stock), "{served} served");
        scene.serve(1);
        assert_eq!(scene.waiting(), served < 2, "{served} served");
    }
    assert_eq!((scene.delivered(0), scene.delivered(1)), (1, 0));
    scene.serve(0);
    for call in calls {
        scene.conclude(call, Code::Ok);
    }
    assert_eq!(scene.world.leftovers(), (0, 0));
}

#[test]
fn before_anything_is_measured_the_less_busy_worker_gets_the_call() {
    let mut scene = Scene::new();
    let calls: Vec<Call> = (0..8).map(|_| scene.call(0, Deadline::NONE)).collect();
    assert_eq!((scene.delivered(0), scene.delivered(1)), (3, 3), "three each, two wait");
    while scene.delivered(0) + scene.delivered(1) > 0 {
        let worker = usize::from(scene.delivered(0) == 0);
        scene.serve(worker);
    }
    for call in calls {
        scene.conclude(call, Code::Ok);
    }
    assert_eq!(scene.world.leftovers(), (0, 0));
}

#[test]
fn a_worker_that_rests_takes_another_call() {
    let mut scene = Scene::measured();
    let calls: Vec<Call> = (0..4).map(|_| scene.call(0, Deadline::NONE)).collect();
    let mut asked = Vec::new();
    let Host { engine, heaps } = &mut scene.world.hosts[0];
    let mut turn = trunkline_engine::Turn { now: scene.world.now, heaps };
    let any = engine.free_resting_workers(&mut turn, |key| {
        asked.push(key);
        false
    });
    assert_eq!((asked.len(), any), (2, false));
    scene.rests(0);
    assert_eq!((scene.delivered(0), scene.delivered(1)), (2, 1), "its handler waits, its thread does not");
    scene.rests(0);
    assert_eq!((scene.delivered(0), scene.delivered(1), scene.waiting()), (3, 1, false));
    for worker in [0, 0, 0, 1] {
        scene.serve(worker);
    }
    for call in calls {
        scene.conclude(call, Code::Ok);
    }
    assert_eq!(scene.world.leftovers(), (0, 0));
}

#[test]
fn methods_whose_handlers_wait_are_not_bounded() {
    let mut scene = Scene::measured();
    let mut calls = vec![scene.call(0, Deadline::NONE), scene.call(0, Deadline::NONE)];
    for round in 0..5 {
        (0..2).for_each(|_| calls.push(scene.call(0, Deadline::NONE)));
        assert!(scene.waiting() || round > 3, "round {round}");
        scene.rests(0);
        scene.rests(1);
    }
    (0..20).for_each(|_| calls.push(scene.call(0, Deadline::NONE)));
    assert!(!scene.waiting(), "they were seen to wait");
    scene.serve_all(calls);
}

/// An application without types opens its call before it sends the one message, and ends it behind that.
#[test]
fn a_request_in_parts_waits_for_a_worker_when_it_is_whole() {
    let mut scene = Scene::measured();
    let busy = [scene.call(0, Deadline::NONE), scene.call(0, Deadline::NONE)];
    let mut opaque = scene.world.attach_opaque(0, None, false);
    let call = opaque.call(0, None, false);
    scene.world.submit(&opaque, Submission::Call(call)).unwrap();
    scene.settle();
    assert!(!scene.waiting(), "a worker that waited for the rest would be kept from others");
    let payload = scene.world.message(&mut opaque, b"x");
    let message = Submission::Message { call: call.call, payload, end: false, a1: Instant(2) };
    scene.world.submit(&opaque, message).unwrap();
    scene.world.submit(&opaque, Submission::HalfClose { call: call.call }).unwrap();
    scene.settle();
    assert!(scene.waiting());
    (0..2).for_each(|worker| scene.serve(worker));
    assert_eq!(scene.delivered(0) + scene.delivered(1), 1, "it goes on with all it has");
    scene.serve(usize::from(scene.delivered(0) == 0));
    let [first, second] = &mut scene.workers;
    scene.world.settle(&mut [&mut opaque, first, second]);
    let finish = opaque.take_finish();
    assert_eq!(scene.world.data(&opaque, finish.payload.expect("an answer")), b"y");
    scene.world.submit(&opaque, release(finish.call, finish.payload, finish.metadata, 9)).unwrap();
    for call in busy {
        scene.conclude(call, Code::Ok);
    }
    assert_eq!(scene.world.leftovers(), (0, 0));
}

#[test]
fn a_worker_that_dies_gives_its_places_back() {
    let mut scene = Scene::measured();
    let calls: Vec<Call> = (0..4).map(|_| scene.call(0, Deadline::NONE)).collect();
    let [first, _] = &scene.workers;
    scene.world.detach(first);
    scene.settle();
    let gone: Vec<Call> = calls
        .iter()
        .copied()
        .filter(|call| {
            scene
                .client
                .inbox
                .iter()
                .any(|one| matches!(one, Completion::Finish(end) if end.call == call.call))
        })
        .collect();
    assert_eq!(gone.len(), 1, "the one it had in hand");
    assert_eq!(scene.conclude(gone[0], Code::Unavailable).execution, Execution::Unknown);
    scene.serve(1);
    scene.serve(1);
    assert!(!scene.waiting());
    let [_, second] = &scene.workers;
    let queued = [scene.delivered(1), usize::from(scene.waiting())];
    assert_eq!(queued, [1, 0]);
    scene.world.detach(second);
    scene.settle();
    let ended = scene.client.inbox.iter().filter(|one| matches!(one, Completion::Finish(_))).count();
    assert_eq!(ended, 3);
}

#[test]
fn when_the_last_worker_dies_those_that_wait_were_not_executed() {
    let mut scene = Scene::measured();
    let calls: Vec<Call> = (0..4).map(|_| scene.call(0, Deadline::NONE)).collect();
    for worker in 0..2 {
        scene.world.detach(&scene.workers[worker]);
    }
    scene.settle();
    let ends: Vec<Execution> =
        calls.into_iter().map(|call| scene.conclude(call, Code::Unavailable).execution).collect();
    // The first to die had one, and its place was no longer there for those that waited.
    assert_eq!(ends.iter().filter(|end| **end == Execution::NotExecuted).count(), 2, "{ends:?}");
    assert!(!scene.waiting());
}

#[test]
fn a_deadline_strikes_in_the_queue_too() {
    let mut scene = Scene::measured();
    let calls = [scene.call(0, Deadline::NONE), scene.call(0, Deadline::NONE)];
    let late = scene.call(0, Deadline::at(Instant(scene.world.now.0 + 5 * MS)));
    let cancelled = scene.call(0, Deadline::NONE);
    assert!(scene.waiting());
    scene.world.submit(&scene.client, Submission::Cancel { call: cancelled.call }).unwrap();
    scene.world.advance(6 * MS);
    scene.settle();
    assert_eq!(scene.conclude(late, Code::DeadlineExceeded).execution, Execution::NotExecuted);
    assert!(!scene.waiting());
    scene.serve(0);
    scene.serve(1);
    for call in calls {
        scene.conclude(call, Code::Ok);
    }
    assert_eq!(scene.world.leftovers(), (0, 0));
}

/// The shard that made the call looks at its timers late: a worker that is free meanwhile does not get it.
#[test]
fn a_call_whose_deadline_has_passed_in_the_queue_is_not_begun() {
    for shard in [0, 2] {
        let mut scene = Scene::within(World::with_shards(Limits::default(), 2), shard).measure();
        let served = [scene.call(0, Deadline::NONE), scene.call(0, Deadline::NONE)];
        let late = scene.call(0, Deadline::at(scene.world.now.plus_ns(5 * MS)));
        let inbox = |scene: &Scene| [scene.delivered(0), scene.delivered(1)];
        assert_eq!(inbox(&scene), [1, 1], "shard {shard}: one waits");
        let first = scene.take_call(0);
        let taken = scene.world.now;
        scene.world.now = taken.plus_ns(10 * MS);
        let answer = Finish { taken, published: scene.world.now, ..finish(first.call, Code::Ok, None) };
        let released = release(first.call, first.payload, first.metadata, 0);
        scene.world.submit(&scene.workers[0], released).unwrap();
        scene.world.submit(&scene.workers[0], Submission::Finish(answer)).unwrap();
        scene.settle();
        assert_eq!(inbox(&scene), [0, 1], "shard {shard}: it is not begun");
        scene.world.advance(0);
        let outcome = scene.conclude(late, Code::DeadlineExceeded);
        assert_eq!(outcome.execution, Execution::NotExecuted, "shard {shard}");
        scene.serve(1);
        for call in served {
            scene.conclude(call, Code::Ok);
        }
    }
}

#[test]
fn streams_are_not_held() {
    let mut scene = Scene::measured();
    for _ in 0..2 {
        scene.call(0, Deadline::NONE);
    }
    let before = scene.delivered(0) + scene.delivered(1);
    scene.call(3, Deadline::NONE);
    scene.call(2, Deadline::NONE);
    assert_eq!(scene.delivered(0) + scene.delivered(1), before + 2);
    assert!(!scene.waiting());
}

#[test]
fn those_that_wait_go_on_in_the_engine_that_takes_over() {
    let mut scene = Scene::measured();
    let calls: Vec<Call> = (0..4).map(|_| scene.call(0, Deadline::NONE)).collect();
    assert!(scene.waiting());
    scene.world.replace_engine(0);
    scene.settle();
    scene.serve_all(calls);
}

#[test]
fn those_that_wait_end_with_a_client_that_stays_behind() {
    let mut scene = Scene::measured();
    let mut other = scene.world.attach(0, PROTO, None, false);
    let busy = [scene.call(0, Deadline::NONE), scene.call(0, Deadline::NONE)];
    let payload = scene.world.blob(&mut other, b"x");
    let call = other.call(0, Some(payload), true);
    scene.world.submit(&other, Submission::Call(call)).unwrap();
    assert!(scene.waiting());
    scene.world.replace_engine_without(0, &[other.key]);
    scene.settle();
    assert!(!scene.waiting());
    scene.serve(0);
    scene.serve(1);
    for call in busy {
        scene.conclude(call, Code::Ok);
    }
    assert_eq!(scene.world.leftovers(), (0, 0));
}

const STICKY: &[(&str, &str)] = &[("trunkline-sticky", "true")];

fn workers(side: Side, change: impl FnOnce(&mut Definition)) -> Definition {
    let mut definition =
        Definition { name: "workers".into(), kind: Kind::Workers, side, ..Definition::default() };
    change(&mut definition);
    definition
}

fn apply(scene: &mut Scene, definitions: &[Definition]) {
    let Host { engine, heaps } = &mut scene.world.hosts[0];
    engine.apply_policies(Chain::build(definitions).unwrap()).unwrap();
    engine.serve_waiting(&mut trunkline_engine::Turn { now: scene.world.now, heaps });
    scene.settle();
}

#[test]
fn sticky_calls_of_one_caller_go_to_one_worker() {
    let mut scene = Scene::measured();
    let calls: Vec<Call> = (0..6).map(|_| scene.call_with(0, Deadline::NONE, STICKY)).collect();
    let delivered = [scene.delivered(0), scene.delivered(1)];
    assert!(delivered == [6, 0] || delivered == [0, 6], "{delivered:?}");
    let busy = usize::from(delivered[1] > 0);
    // Methods that stream are given out in turn, but for those that are sticky.
    let more: Vec<Call> = (0..4).map(|_| scene.call_with(1, Deadline::NONE, STICKY)).collect();
    assert_eq!(scene.delivered(busy), 10);
    for call in more {
        scene.world.submit(&scene.client, Submission::Cancel { call: call.call }).unwrap();
        scene.settle();
    }
    let other = scene.call(0, Deadline::NONE);
    assert_eq!(scene.delivered(1 - busy), 1, "others pass them by");
    // Whoever has died had them; the next go to the other one.
    scene.serve(1 - busy);
    scene.conclude(other, Code::Ok);
    let gone = &scene.workers[busy];
    scene.world.detach(gone);
    scene.settle();
    calls.into_iter().for_each(|call| {
        let _ = scene.conclude(call, Code::Unavailable);
    });
    let call = scene.call_with(0, Deadline::NONE, STICKY);
    assert_eq!(scene.delivered(1 - busy), 1);
    scene.serve(1 - busy);
    scene.conclude(call, Code::Ok);
}

#[test]
fn a_policy_makes_calls_sticky_and_comes_before_what_they_ask_for() {
    for side in [Side::Client, Side::Server] {
        let mut scene = Scene::measured();
        apply(&mut scene, &[workers(side, |one| one.sticky = Some(true))]);
        let asks: &[(&str, &str)] = &[("trunkline-sticky", "false")];
        let calls: Vec<Call> = (0..6).map(|_| scene.call_with(0, Deadline::NONE, asks)).collect();
        assert_eq!(scene.delivered(0).max(scene.delivered(1)), 6, "{side:?}");
        scene.serve_all(calls);
        apply(&mut scene, &[]);
        let calls: Vec<Call> = (0..6).map(|_| scene.call(0, Deadline::NONE)).collect();
        assert_eq!((scene.delivered(0), scene.delivered(1)), (1, 1), "{side:?}");
        scene.serve_all(calls);
    }
}

#[test]
fn a_worker_kept_for_a_class_serves_no_other() {
    let keep = |one: &mut Definition| {
        one.service = Some("world.Echo".into());
        (one.method, one.worker_class, one.workers_reserved) = (Some("Chat".into()), Some(7), Some(1));
    };
    let mut scene = Scene::measured();
    apply(&mut scene, &[workers(Side::Server, keep)]);
    let mut calls: Vec<Call> = (0..4).map(|_| scene.call(0, Deadline::NONE)).collect();
    let shared = usize::from(scene.delivered(1) > 0);
    assert_eq!((scene.delivered(shared), scene.delivered(1 - shared)), (1, 0), "one is kept free");
    calls.push(scene.call_with(0, Deadline::NONE, &[("trunkline-worker-class", "7")]));
    assert_eq!((scene.delivered(shared), scene.delivered(1 - shared)), (1, 1));
    scene.serve(1 - shared);
    assert_eq!(scene.delivered(1 - shared), 0, "and stays so");
    apply(&mut scene, &[]);
    assert_eq!(scene.delivered(1 - shared), 1, "until the policy goes");
    scene.serve_all(calls);
}

#[test]
fn a_class_there_is_not_is_the_callers_mistake() {
    let mut scene = Scene::measured();
    for pairs in [[("trunkline-worker-class", "32")], [("trunkline-sticky", "yes")]] {
        let call = scene.call_with(0, Deadline::NONE, &pairs);
        assert_eq!(scene.delivered(0) + scene.delivered(1), 0);
        let told = scene.client.inbox.iter().find_map(|one| match one {
            Completion::Finish(finish) => Some(scene.world.metadata(&scene.client, finish.metadata)),
            _ => None,
        });
        let told = told.and_then(|told| told.text("grpc-message").map(str::to_owned)).unwrap_or_default();
        assert!(told.contains(pairs[0].0) && told.contains(pairs[0].1), "{told}");
        assert_eq!(scene.conclude(call, Code::InvalidArgument).execution, Execution::NotExecuted);
    }
    scene.serve_all(Vec::new());
}

fn denies(side: Side) -> Definition {
    let name = format!("no-{}", side.name());
    Definition { name, side, deny: Some("request.data == b'x'".into()), ..Definition::default() }
}

/// Policies judge a call when it begins: those that are at work then, whatever was when it was made.
#[test]
fn a_call_that_waits_for_a_worker_is_judged_by_the_policies_of_that_moment() {
    for side in [Side::Client, Side::Server] {
        let other = Definition { name: "other".into(), ..denies(side) };
        for (before, then, code) in [
            (vec![], vec![denies(side)], Code::PermissionDenied),
            (vec![denies(side)], vec![], Code::Ok),
            (vec![denies(side)], vec![other.clone()], Code::PermissionDenied),
        ] {
            let mut scene = Scene::measured();
            let mut calls = vec![scene.call(0, Deadline::NONE), scene.call(0, Deadline::NONE)];
            apply(&mut scene, &before);
            let waits = scene.call(0, Deadline::NONE);
            assert!(scene.waiting());
            apply(&mut scene, &then);
            scene.serve(0);
            if code == Code::Ok {
                calls.push(waits);
            } else {
                let refused = scene.conclude(waits, code);
                assert_eq!(refused.execution, Execution::NotExecuted);
                let figures = scene.world.hosts[0].engine.policy_rows()[0].figures;
                assert_eq!((figures.seen, figures.refused), (1, 1), "it is asked once");
            }
            scene.serve_all(calls);
        }
    }
}

/// Whoever sends a request in parts does not get past what is applied before the last of them.
#[test]
fn a_request_in_parts_is_judged_by_the_policies_of_its_last_part() {
    for side in [Side::Client, Side::Server] {
        let mut scene = Scene::new();
        let mut opaque = scene.world.attach_opaque(0, None, false);
        let call = opaque.call(0, None, false);
        scene.world.submit(&opaque, Submission::Call(call)).unwrap();
        scene.settle();
        // An application without types has none that a policy on its side could read.
        let by_path = Definition { deny: Some("path.endsWith('Once')".into()), ..denies(side) };
        apply(&mut scene, &[by_path]);
        let payload = scene.world.message(&mut opaque, b"x");
        let message = Submission::Message { call: call.call, payload, end: true, a1: Instant(2) };
        scene.world.submit(&opaque, message).unwrap();
        let [first, second] = &mut scene.workers;
        scene.world.settle(&mut [&mut opaque, first, second]);
        let refused = opaque.take_finish();
        assert_eq!((refused.code, refused.execution), (Code::PermissionDenied, Execution::NotExecuted));
        assert_eq!(scene.delivered(0) + scene.delivered(1), 0, "{side:?}");
    }
}

fn timeout(side: Side, when: Option<&str>) -> Definition {
    let timeout_ms = Some(5);
    Definition {
        name: "time".into(),
        kind: Kind::Timeout,
        side,
        timeout_ms,
        when: when.map(Into::into),
        ..Definition::default()
    }
}

fn has_ended(scene: &Scene) -> bool {
    scene.client.inbox.iter().any(|one| matches!(one, Completion::Finish(_)))
}

/// The time that a policy of the caller gives a call counts from its entry, and is over while it waits.
#[test]
fn a_policys_time_is_over_while_a_call_waits() {
    let mut scene = Scene::measured();
    let calls = vec![scene.call(0, Deadline::NONE), scene.call(0, Deadline::NONE)];
    apply(&mut scene, &[timeout(Side::Client, None)]);
    let waits = scene.call(0, Deadline::NONE);
    scene.world.advance(4 * MS);
    assert!(!has_ended(&scene) && scene.waiting());
    scene.world.advance(MS);
    scene.settle();
    let late = scene.conclude(waits, Code::DeadlineExceeded);
    assert_eq!(late.execution, Execution::NotExecuted);
    scene.serve_all(calls);
}

/// With a condition, and on the side of whoever serves, it is known when the call is judged.
#[test]
fn a_time_that_depends_on_the_call_or_its_server_is_over_when_it_begins() {
    for (side, when) in [
        (Side::Client, Some("path.endsWith('Once')")),
        (Side::Server, Some("path.endsWith('Once')")),
        (Side::Server, None),
    ] {
        let mut scene = Scene::measured();
        let calls = vec![scene.call(0, Deadline::NONE), scene.call(0, Deadline::NONE)];
        apply(&mut scene, &[timeout(side, when)]);
        let waits = scene.call(0, Deadline::NONE);
        scene.world.advance(7 * MS);
        scene.settle();
        assert!(!has_ended(&scene) && scene.waiting(), "{side:?} {when:?}");
        scene.serve(0);
        let late = scene.conclude(waits, Code::DeadlineExceeded);
        assert_eq!((late.execution, scene.delivered(0)), (Execution::NotExecuted, 0), "{side:?} {when:?}");
        scene.serve_all(calls);
    }
}

/// Two applications serve one service, and one of them has no time to lose: it keeps nobody from being served by the
/// other.
#[test]
fn the_time_of_one_server_is_not_that_of_another() {
    let mut world = World::new();
    world.label = Some("canary");
    let canary = world.attach(0, PROTO, None, true);
    world.label = None;
    let (client, stable) = (world.attach(0, PROTO, None, false), world.attach(0, PROTO, None, true));
    let mut scene = Scene { world, client, workers: [canary, stable] }.measure();
    let calls = vec![scene.call(0, Deadline::NONE), scene.call(0, Deadline::NONE)];
    let short = Definition { application: Some("canary".into()), ..timeout(Side::Server, None) };
    apply(&mut scene, &[short]);
    let waits = scene.call(0, Deadline::NONE);
    assert!(scene.waiting());
    scene.serve(1);
    assert_eq!(scene.delivered(1), 1);
    scene.serve(1);
    assert_eq!(scene.conclude(waits, Code::Ok).execution, Execution::Executed);
    scene.serve_all(calls);
}

/// Notes which kinds of values it is shown.
#[derive(Debug)]
struct Shown {
    about: ModuleInfo,
    shown: Arc<Mutex<Vec<String>>>,
}

impl Module for Shown {
    fn about(&self) -> &ModuleInfo {
        &self.about
    }

    fn decide(&mut self, call: &ModuleCall<'_>) -> Result<ModuleAnswer, ModuleError> {
        self.shown.lock().unwrap().push(format!("{}: {:?}", self.about.version, call.values));
        Ok(ModuleAnswer::default())
    }

    fn finish(&mut self, _: &ModuleEnd) -> Result<(), ModuleError> {
        Ok(())
    }

    fn export(&self) -> Result<ModuleState, ModuleError> {
        Ok(ModuleState::default())
    }

    fn import(&mut self, _: &ModuleState) -> Result<(), ModuleError> {
        Ok(())
    }

    fn eject(self: Box<Self>) {}
}

/// Loads version 1, which wants to see the request's bytes, or version 2, which wants the path before them.
struct Versions {
    version: u8,
    shown: Arc<Mutex<Vec<String>>>,
}

impl ModuleLoader for Versions {
    fn load(&self, _: &str, _: &str, _: &[(String, SettingValue)]) -> Result<Box<dyn Module>, ModuleError> {
        let field =
            |expression: &str, kind| ModuleField { expression: expression.into(), kind, optional: false };
        let mut fields = vec![field("request.data", ValueKind::Bytes)];
        if self.version == 2 {
            fields.insert(0, field("path", ValueKind::Text));
        }
        let (version, digest) = (self.version.to_string(), [self.version; 32]);
        let about = ModuleInfo { name: "shown".into(), version, digest, fields, ..ModuleInfo::default() };
        Ok(Box::new(Shown { about, shown: Arc::clone(&self.shown) }))
    }

    fn load_again(
        &self,
        _: &str,
        _: &[u8; 32],
        _: &[(String, SettingValue)],
    ) -> Option<Result<Box<dyn Module>, ModuleError>> {
        None
    }
}

/// A module is shown what it asked for, and not what the one before it did, or what is known before it is loaded.
#[test]
fn a_module_is_shown_what_it_asks_for_of_calls_that_waited() {
    let shown: Arc<Mutex<Vec<String>>> = Arc::default();
    let load = |engine: &mut trunkline_engine::Engine, version, shown: &Arc<Mutex<Vec<String>>>| {
        let (name, path) = ("m".into(), Some("/m".into()));
        let module =
            Definition { name, kind: Kind::Module, side: Side::Client, path, ..Definition::default() };
        let mut chain = Chain::build(&[module]).unwrap();
        let modules = chain.load_modules(&Versions { version, shown: Arc::clone(shown) }).unwrap();
        engine.exchange_checked_policies(chain, modules).unwrap();
    };
    let seen = |shown: &Arc<Mutex<Vec<String>>>| std::mem::take(&mut *shown.lock().unwrap());
    for (version, expected) in [(1, "1: [Bytes([120])]"), (2, "2: [Text([47, 119")] {
        for replaced in [false, true] {
            let mut scene = Scene::measured();
            load(&mut scene.world.hosts[0].engine, 1, &shown);
            let mut calls: Vec<Call> = (0..3).map(|_| scene.call(0, Deadline::NONE)).collect();
            assert!(scene.waiting());
            assert_eq!(seen(&shown), ["1: [Bytes([120])]"; 2]);
            if replaced {
                let shown = Arc::clone(&shown);
                scene.world.taken_over = Some(Box::new(move |engine| load(engine, version, &shown)));
                scene.world.replace_engine(0);
                scene.settle();
            } else {
                load(&mut scene.world.hosts[0].engine, version, &shown);
            }
            scene.serve(0);
            let told = seen(&shown);
            assert!(told.len() == 1 && told[0].starts_with(expected), "{told:?}");
            calls.push(scene.call(0, Deadline::NONE));
            scene.serve_all(calls);
            seen(&shown);
        }
    }
}
