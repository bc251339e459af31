//! Shows, over random histories of two hosts, that every call ends exactly once, every send block comes back exactly
//! once, and nothing is left when all is done — whatever is cancelled, cut, killed, malformed or late in between.

pub(crate) mod world;

use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use trunkline_call::entry::{Completion, Finish, Payload, Span, Submission};
use trunkline_call::{CallId, Code, Deadline, Encoding, Instant};
use trunkline_engine::Limits;
use world::*;

/// One thing that happens. Numbers pick among what there is.
#[derive(Clone, Debug)]
enum Step {
    Call {
        app: u8,
        method: u8,
        bytes: u32,
        end: bool,
        deadline_ns: Option<u16>,
    },
    Malformed {
        app: u8,
    },
    Message {
        pick: u8,
        bytes: u32,
        end: bool,
    },
    Answer {
        pick: u8,
        bytes: u32,
    },
    Finish {
        pick: u8,
        ok: bool,
        bytes: u32,
    },
    Cancel {
        pick: u8,
    },
    Nested {
        pick: u8,
    },
    Cut,
    /// The far host wants its connections made anew.
    Redial,
    Pass {
        ns: u16,
    },
    Move,
    /// An application dies, where sessions move.
    Die {
        app: u8,
    },
    /// A few pieces move, and nobody comes to rest.
    Nudge {
        pieces: u8,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let bytes = prop_oneof![4 => 0u32..200, 2 => 4_000u32..6_000, 1 => 15_000u32..200_000];
    let call = (any::<u8>(), any::<u8>(), bytes.clone(), any::<bool>(), proptest::option::of(1u16..2_000));
    let step = prop_oneof![
        6 => call
            .prop_map(|(app, method, bytes, end, deadline_ns)| Step::Call { app, method, bytes, end, deadline_ns }),
        1 => any::<u8>().prop_map(|app| Step::Malformed { app }),
        3 => (any::<u8>(), bytes.clone(), any::<bool>())
            .prop_map(|(pick, bytes, end)| Step::Message { pick, bytes, end }),
        3 => (any::<u8>(), bytes.clone()).prop_map(|(pick, bytes)| Step::Answer { pick, bytes }),
        4 => (any::<u8>(), any::<bool>(), bytes).prop_map(|(pick, ok, bytes)| Step::Finish { pick, ok, bytes }),
        1 => any::<u8>().prop_map(|pick| Step::Cancel { pick }),
        1 => any::<u8>().prop_map(|pick| Step::Nested { pick }),
        1 => Just(Step::Cut),
        1 => Just(Step::Redial),
        2 => (0u16..1_000).prop_map(|ns| Step::Pass { ns }),
        6 => Just(Step::Move),
        1 => any::<u8>().prop_map(|app| Step::Die { app }),
        3 => (1u8..20).prop_map(|pieces| Step::Nudge { pieces }),
    ];
    proptest::collection::vec(step, 1..80)
}

/// What the test remembers, to hold the engines to it.
#[derive(Default)]
struct Books {
    /// Calls made and not ended: (application, id) to method.
    open: BTreeMap<(usize, u64), usize>,
    /// Calls delivered and neither finished nor cancelled: (application, id) to method.
    delivered: BTreeMap<(usize, u64), usize>,
    /// Calls cancelled: an outcome may have been on its way already.
    cancelled: BTreeSet<(usize, u64)>,
    /// How the last call ended.
    last: Option<Code>,
    /// Connections cut.
    cuts: usize,
    /// Send blocks out: (application, offset).
    lent: BTreeSet<(usize, u32)>,
    /// Applications that died.
    deaths: usize,
    /// Sessions that went to another shard.
    moves: usize,
}

struct History {
    world: World,
    apps: Vec<App>,
    books: Books,
    /// After every step another session goes to another shard of its host.
    migrates: bool,
}

impl History {
    fn new(piece_bytes: usize, replaces: bool) -> Self {
        Self::of(World::new(), piece_bytes, replaces)
    }

    /// With hosts of three shards, between which sessions move.
    fn of_three_shards(piece_bytes: usize, replaces: bool) -> Self {
        let world = World::with_shards(Limits::default(), 3);
        Self { migrates: true, ..Self::of(world, piece_bytes, replaces) }
    }

    fn of(mut world: World, piece_bytes: usize, replaces: bool) -> Self {
        world.replaces = replaces;
        world.piece_bytes = piece_bytes;
        let target = Some("tcp://127.0.0.1:1");
        // Two that serve and call, on either host; one more on the near host whose target is its own host.
        let apps = vec![
            world.attach(0, PROTO, target, true),
            world.attach(1, PROTO, None, true),
            world.attach(0, OLDER_PROTO, None, false),
        ];
        Self { world, apps, books: Books::default(), migrates: false }
    }

    /// One application, counting around, goes to the next shard or to the one before, if nothing keeps it; each time
    /// all have had their turn, all go, so that some change places.
    fn migrate(&mut self, step: usize) {
        let count = self.apps.len();
        let (first, last) =
            if step % (count + 1) == count { (0, count) } else { (step % count, step % count + 1) };
        for app in first..last {
            let places = self.world.shards[self.apps[app].host % 2].clone();
            let at = places.iter().position(|place| *place == self.apps[app].host).unwrap();
            let to = places[(at + 1 + (step + app) / count % 2) % places.len()];
            self.books.moves += usize::from(self.world.migrate(&mut self.apps[app], to));
        }
    }

    /// An application dies, and another like it comes.
    fn die(&mut self, app: usize) {
        let (world, books) = (&mut self.world, &mut self.books);
        world.detach(&self.apps[app]);
        books.open.retain(|(of, _), _| *of != app);
        books.delivered.retain(|(of, _), _| *of != app);
        books.cancelled.retain(|(of, _)| *of != app);
        books.lent.retain(|(of, _)| *of != app);
        books.deaths += 1;
        let (host, target) = (self.apps[app].host % 2, (app == 0).then_some("tcp://127.0.0.1:1"));
        let proto = if app == 2 { OLDER_PROTO } else { PROTO };
        self.apps[app] = world.attach(host, proto, target, app != 2);
    }

    fn blob(&mut self, app: usize, bytes: u32) -> Payload {
        let payload = self.world.blob(&mut self.apps[app], &vec![app as u8; bytes as usize]);
        self.books.lent.insert((app, payload.span.offset));
        payload
    }

    fn call(
        &mut self,
        app: usize,
        method: usize,
        payload: Option<Payload>,
        end: bool,
        deadline: Deadline,
        parent: CallId,
    ) {
        let mut call = self.apps[app].call(method, payload, end);
        (call.deadline, call.parent) = (deadline, parent);
        self.books.open.insert((app, call.call.0), method);
        self.world.submit(&self.apps[app], Submission::Call(call)).unwrap();
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Call { app, method, bytes, end, deadline_ns } => {
                let (app, method) = (usize::from(app) % 3, usize::from(method) % 4);
                let streams = method == 1 || method == 3;
                let payload = (!streams || bytes % 2 == 0).then(|| self.blob(app, bytes));
                let deadline =
                    deadline_ns.map_or(Deadline::NONE, |ns| Deadline::at(self.world.now.plus_ns(ns.into())));
                self.call(app, method, payload, end || !streams, deadline, CallId(0));
            }
            Step::Malformed { app } => {
                let app = usize::from(app) % 3;
                let payload = self.world.put(&mut self.apps[app], &[0xee; 300], Encoding::Linear);
                self.books.lent.insert((app, payload.span.offset));
                self.call(app, 0, Some(payload), true, Deadline::NONE, CallId(0));
            }
            Step::Message { pick, bytes, end } => {
                let Some((app, id)) = nth(&self.books.open, pick) else { return };
                let payload = self.blob(app, bytes);
                self.submit(app, Submission::Message { call: CallId(id), payload, end, a1: Instant(1) });
            }
            Step::Answer { pick, bytes } => {
                let Some((app, id)) = nth(&self.books.delivered, pick) else { return };
                if self.books.delivered[&(app, id)] < 2 {
                    return;
                }
                let payload = self.blob(app, bytes);
                self.submit(
                    app,
                    Submission::Message { call: CallId(id), payload, end: false, a1: Instant(1) },
                );
            }
            Step::Finish { pick, ok, bytes } => {
                let Some((app, id)) = nth(&self.books.delivered, pick) else { return };
                self.finish(app, id, ok, bytes);
            }
            Step::Cancel { pick } => {
                let Some((app, id)) = nth(&self.books.open, pick) else { return };
                self.cancel(app, id);
            }
            Step::Nested { pick } => {
                let Some((app, id)) = nth(&self.books.delivered, pick) else { return };
                let payload = self.blob(app, 10);
                self.call(app, 0, Some(payload), true, Deadline::NONE, CallId(id));
            }
            Step::Redial => self.world.ask_to_redial(),
            Step::Cut => {
                if let Some(link) = self.world.links.iter().rposition(|link| link.up) {
                    self.world.cut(link);
                    self.books.cuts += 1;
                }
            }
            Step::Pass { ns } => self.world.advance(ns.into()),
            Step::Move => self.settle(),
            Step::Die { app } if self.migrates => self.die(usize::from(app) % 3),
            Step::Die { .. } => {}
            Step::Nudge { pieces } => {
                let mut apps: Vec<&mut App> = self.apps.iter_mut().collect();
                for _ in 0..pieces {
                    self.world.step(&mut apps);
                }
                self.take_completions();
            }
        }
    }

    fn finish(&mut self, app: usize, id: u64, ok: bool, bytes: u32) {
        let method = self.books.delivered.remove(&(app, id)).unwrap();
        let payload = (ok && method < 2).then(|| self.blob(app, bytes));
        let code = if ok { Code::Ok } else { Code::Aborted };
        // Some servers are hostile.
        let cpu_ns = if id.is_multiple_of(3) { WILD_CPU_NS } else { 0 };
        let finish = Finish { cpu_ns, ..finish(CallId(id), code, payload) };
        self.submit(app, Submission::Finish(finish));
    }

    fn cancel(&mut self, app: usize, id: u64) {
        self.books.open.remove(&(app, id));
        self.books.cancelled.insert((app, id));
        self.submit(app, Submission::Cancel { call: CallId(id) });
    }

    fn submit(&mut self, app: usize, submission: Submission) {
        self.world.submit(&self.apps[app], submission).unwrap();
    }

    /// Moves everything and takes what came, releasing it at once.
    fn settle(&mut self) {
        let mut apps: Vec<&mut App> = self.apps.iter_mut().collect();
        self.world.settle(&mut apps);
        self.take_completions();
    }

    fn take_completions(&mut self) {
        for app in 0..self.apps.len() {
            for completion in std::mem::take(&mut self.apps[app].inbox) {
                self.take_completion(app, completion);
            }
        }
    }

    fn take_completion(&mut self, app: usize, completion: Completion) {
        match completion {
            Completion::Call(call) => {
                let path = self.apps[app].served.iter().position(|(_, route)| *route == call.route);
                let twice = self.books.delivered.insert((app, call.call.0), path.unwrap());
                assert!(twice.is_none(), "a handler sees a call once");
                self.release(app, call.call, call.payload, call.metadata, 0);
            }
            Completion::Message { call, payload, .. } => {
                self.release(app, call, Some(payload), Span::default(), 0)
            }
            Completion::Headers { call, metadata } => self.release(app, call, None, metadata, 0),
            Completion::Finish(finish) => {
                let ended = (app, finish.call.0);
                let known = self.books.open.remove(&ended).is_some() || self.books.cancelled.remove(&ended);
                assert!(known, "call {:?} ended twice", finish.call);
                self.books.last = Some(finish.code);
                let lost = finish.code == Code::Unavailable;
                let losses = self.books.cuts + self.books.deaths;
                let said = self.world.metadata(&self.apps[app], finish.metadata);
                assert!(!lost || losses > 0, "{:?}: no connection was lost: {said:?}", finish.call);
                self.release(app, finish.call, finish.payload, finish.metadata, 9);
            }
            Completion::Cancelled { call, .. } => {
                self.books.delivered.remove(&(app, call.0));
            }
            Completion::Freed { offsets } => {
                for offset in offsets.into_iter().filter(|offset| *offset != 0) {
                    assert!(self.books.lent.remove(&(app, offset)), "block {offset} came back twice");
                }
            }
            Completion::HalfClose { .. }
            | Completion::Credit { .. }
            | Completion::GoAway
            | Completion::Drained => {}
        }
    }

    fn release(&mut self, app: usize, call: CallId, payload: Option<Payload>, metadata: Span, a18: u64) {
        self.submit(app, release(call, payload, metadata, a18));
    }

    /// A call of every kind that is answered.
    fn fresh_call(&mut self, app: usize) {
        let bytes = if self.world.replaces { 100 } else { 5_000 };
        for method in 0..4 {
            let payload = self.blob(app, bytes);
            let end = method == 0 || method == 2;
            self.call(app, method, Some(payload), end, Deadline::NONE, CallId(0));
            let ((_, id), _) = self.books.open.iter().next().map(|(key, method)| (*key, *method)).unwrap();
            self.settle();
            if !end {
                self.submit(app, Submission::HalfClose { call: CallId(id) });
                self.settle();
            }
            let (server, delivered) = nth(&self.books.delivered, 0).expect("the call is delivered");
            self.finish(server, delivered, true, bytes);
            self.settle();
            assert!(self.books.open.is_empty(), "the call is answered");
            assert_eq!(self.books.last, Some(Code::Ok));
        }
        assert_eq!(self.world.leftovers(), (0, 0), "calls and receive blocks left");
    }

    /// A call that may fail where engines are replaced: who was cut off before it had heard a word tries HTTP/2 next,
    /// and in such a world nobody speaks it.
    fn knock(&mut self, app: usize) {
        if !self.world.replaces {
            return;
        }
        let payload = self.blob(app, 10);
        self.call(app, 0, Some(payload), true, Deadline::NONE, CallId(0));
        self.settle();
        if let Some((server, delivered)) = nth(&self.books.delivered, 0) {
            self.finish(server, delivered, true, 10);
            self.settle();
        }
        assert!(self.books.open.is_empty(), "the call has ended");
    }

    /// Everything still open is ended; then nothing may be left.
    fn end(&mut self) {
        for _ in 0..100 {
            self.settle();
            let Some((app, id)) = nth(&self.books.delivered, 0) else { break };
            self.finish(app, id, true, 50);
        }
        while let Some((app, id)) = nth(&self.books.open, 0) {
            self.cancel(app, id);
        }
        self.settle();
        self.world.advance(1);
        self.settle();
        self.world.bury();
        assert_eq!(self.world.leftovers(), (0, 0), "calls and receive blocks left");
        for row in self.world.hosts.iter().flat_map(|host| host.engine.snapshot().peers) {
            assert_eq!((row.streams, row.queued_bytes), (0, 0), "{row:?}");
        }
        // Whatever has been, whoever calls now is served.
        self.world.advance(10_000_000_000);
        self.settle();
        for app in 0..self.apps.len() {
            self.knock(app);
        }
        self.world.advance(10_000_000_000);
        self.settle();
        for app in 0..self.apps.len() {
            self.fresh_call(app);
        }
        // Fewer than a full entry of send blocks may still be waiting for company.
        for app in 0..self.apps.len() {
            let out = self.books.lent.iter().filter(|(owner, _)| *owner == app).count();
            assert!(out < 14, "{out} send blocks of application {app} never came back");
        }
    }
}

/// The `pick`-th key, counting around.
fn nth<V>(map: &BTreeMap<(usize, u64), V>, pick: u8) -> Option<(usize, u64)> {
    map.keys().nth(usize::from(pick) % map.len().max(1)).copied()
}

/// With shards there are twice as many engines, and each is replaced as often.
const CASES: u32 = if module_path!().len() > "random".len() { 30 } else { 100 };

/// `PROPTEST_CASES` says how many, if it is set.
fn cases(ordinary: u32) -> ProptestConfig {
    let all = ProptestConfig::default();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { all.cases } else { ordinary };
    ProptestConfig { cases, max_shrink_iters: 300, ..all }
}

proptest! {
    #![proptest_config(cases(CASES))]

    #[test]
    fn histories(steps in steps(), piece in prop_oneof![Just(usize::MAX), Just(700), Just(9_000)]) {
        let mut history = History::new(piece, false);
        for step in steps {
            history.take(step);
        }
        history.end();
    }

    /// With three engines on each host, between which sessions go with their calls after every step, and applications
    /// that die.
    #[test]
    fn histories_of_sessions_that_move(
        steps in steps(),
        piece in prop_oneof![Just(usize::MAX), Just(700), Just(9_000)],
    ) {
        let mut history = History::of_three_shards(piece, false);
        for (number, step) in steps.into_iter().enumerate() {
            history.take(step);
            history.migrate(number);
        }
        history.end();
    }
}

/// A connection that is cut before a word of the other end is heard, while nobody waits who would ask by HTTP/2.
#[test]
fn a_connection_cut_behind_a_cancelled_call() {
    let mut history = History::new(usize::MAX, true);
    history.take(Step::Call { app: 24, method: 0, bytes: 0, end: false, deadline_ns: None });
    history.take(Step::Nudge { pieces: 1 });
    history.take(Step::Cancel { pick: 0 });
    history.take(Step::Cut);
    history.end();
}

// Two engines are replaced after each step.
proptest! {
    #![proptest_config(cases(CASES / 2))]

    /// The same with an engine that is replaced by another after every single step: submission, piece of a frame, round
    /// of completions.
    #[test]
    fn histories_of_replaced_engines(
        steps in steps(),
        piece in prop_oneof![Just(usize::MAX), Just(700), Just(9_000)],
    ) {
        let mut history = History::new(piece, true);
        for step in steps {
            history.take(step);
        }
        history.end();
    }
}

// Six are.
proptest! {
    #![proptest_config(cases(CASES / 15))]

    /// The same with engines that are replaced after every single step.
    #[test]
    fn histories_of_sessions_that_move_between_engines_that_are_replaced(
        steps in steps(),
        piece in prop_oneof![Just(usize::MAX), Just(700), Just(9_000)],
    ) {
        let mut history = History::of_three_shards(piece, true);
        for (number, step) in steps.into_iter().enumerate() {
            history.take(step);
            history.migrate(number);
        }
        history.end();
    }
}
