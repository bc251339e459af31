//! Shows that what an operator writes once for a host counts for all its shards: over random histories of calls by two
//! and by three shards, with engines that are replaced and without, no limit lets more pass than its bound, and hardly
//! less; whoever waits on one shard goes on when a place comes free on another.

use crate::world;

use proptest::prelude::*;
use std::collections::{BTreeSet, VecDeque};
use trunkline_call::entry::{Completion, Submission};
use trunkline_call::{CallId, Code};
use trunkline_engine::{Limits, Turn};
use trunkline_policy::{Chain, Definition, Kind, Side};
use world::*;

const MS: u64 = 1_000_000;

/// The near host with an application on each of its shards that calls, and one that serves.
struct Host {
    world: World,
    clients: Vec<App>,
    servers: Vec<App>,
    /// Calls that were delivered and are not answered, oldest first, and at which server.
    at_work: VecDeque<(usize, CallId)>,
    /// Calls that were made and have neither ended nor been given up.
    open: BTreeSet<(usize, u64)>,
    /// How calls ended.
    ended: Vec<Code>,
}

impl Host {
    fn new(shards: usize, definition: Definition) -> Self {
        let mut world = World::with_shards(Limits::default(), shards);
        let mut attach = |serves| {
            let attach = |shard| {
                world.placed = Some(2 * shard);
                world.attach(0, PROTO, None, serves)
            };
            (0..shards).map(attach).collect()
        };
        let (clients, servers) = (attach(false), attach(true));
        let mut host = Self {
            world,
            clients,
            servers,
            at_work: VecDeque::new(),
            open: BTreeSet::new(),
            ended: Vec::new(),
        };
        host.apply(&[definition]);
        host
    }

    fn apply(&mut self, definitions: &[Definition]) {
        let chain = Chain::build(definitions).unwrap();
        for place in self.world.shards[0].clone() {
            let shard = &mut self.world.hosts[place];
            shard.engine.apply_policies(chain.clone()).unwrap();
            shard.engine.serve_waiting(&mut Turn { now: self.world.now, heaps: &mut shard.heaps });
        }
    }

    fn call(&mut self, index: usize) {
        let client = &mut self.clients[index];
        let payload = self.world.blob(client, b"?");
        // One whose request streams: it waits for no worker, only for what the policy says.
        let call = client.call(1, Some(payload), true);
        self.open.insert((index, call.call.0));
        self.world.submit(client, Submission::Call(call)).unwrap();
        self.settle();
    }

    fn answer(&mut self) {
        let Some((server, call)) = self.at_work.pop_front() else { return };
        self.world.submit(&self.servers[server], Submission::Finish(finish(call, Code::Ok, None))).unwrap();
        self.settle();
    }

    /// Gives one of the calls up.
    fn cancel(&mut self, nth: usize) {
        let Some((client, call)) = self.open.iter().nth(nth % self.open.len().max(1)).copied() else {
            return;
        };
        self.open.remove(&(client, call));
        self.world.submit(&self.clients[client], Submission::Cancel { call: CallId(call) }).unwrap();
        self.settle();
    }

    fn settle(&mut self) {
        let mut apps: Vec<&mut App> = self.clients.iter_mut().collect();
        apps.extend(&mut self.servers);
        self.world.settle(&mut apps);
        for (index, server) in self.servers.iter_mut().enumerate() {
            for completion in server.take() {
                match completion {
                    Completion::Call(call) => {
                        self.at_work.push_back((index, call.call));
                        let release = release(call.call, call.payload, call.metadata, 0);
                        self.world.submit(server, release).unwrap();
                    }
                    Completion::Cancelled { call, .. } => self.at_work.retain(|one| *one != (index, call)),
                    _ => {}
                }
            }
        }
        for (index, client) in self.clients.iter_mut().enumerate() {
            for completion in client.take() {
                let Completion::Finish(end) = completion else { continue };
                assert!(self.open.remove(&(index, end.call.0)), "{end:?}");
                self.ended.push(end.code);
                self.world.submit(client, release(end.call, end.payload, end.metadata, 9)).unwrap();
            }
        }
    }

    /// All engines go on as others.
    fn replace(&mut self, wanted: bool) {
        if wanted {
            self.world.replace_engines();
            self.settle();
        }
    }

    /// Answers everything that is at work or waits for it.
    fn end(&mut self) {
        while !self.at_work.is_empty() {
            self.answer();
        }
        self.settle();
        assert!(self.open.is_empty(), "{} calls have not ended", self.open.len());
        self.world.advance(1);
        assert_eq!(self.world.leftovers(), (0, 0), "calls and receive blocks left");
    }
}

fn limit(kind: Kind) -> Definition {
    let side = if kind == Kind::Queue { Side::Server } else { Side::Client };
    Definition { name: "limit".into(), kind, side, ..Definition::default() }
}

/// Calls of one client, some of them at a time, and what time passes.
fn steps() -> impl Strategy<Value = Vec<(u8, u8, u16)>> {
    proptest::collection::vec((any::<u8>(), 0u8..6, 0u16..600), 1..24)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, max_shrink_iters: 100, ..ProptestConfig::default() })]

    #[test]
    fn a_rate_is_the_hosts(shards in 2usize..4, burst in 1u32..40, replaces in any::<bool>(), steps in steps()) {
        let rate = Definition { calls_per_second: Some(10_000.0), burst: Some(burst), ..limit(Kind::RateLimit) };
        let mut host = Host::new(shards, rate);
        let (interval_ns, begun) = (100_000, host.world.now);
        let (mut made, mut refused_ns) = (0u32, 0u64);
        for (pick, calls, wait_us) in steps {
            for _ in 0..calls {
                host.call(usize::from(pick) % shards);
                made += 1;
            }
            host.replace(replaces && pick % 4 == 0);
            while !host.at_work.is_empty() {
                host.answer();
            }
            let wait_ns = u64::from(wait_us) * 50;
            refused_ns += wait_ns;
            host.world.advance(wait_ns);
        }
        let passed = host.ended.iter().filter(|code| **code == Code::Ok).count() as u32;
        prop_assert_eq!(host.ended.len(), made as usize);
        let refused = host.ended.iter().filter(|code| **code == Code::ResourceExhausted).count() as u32;
        prop_assert_eq!(passed + refused, made, "nobody else refuses");
        let elapsed = host.world.now.since_ns(begun).max(refused_ns);
        let most = burst + burst / 16 + (elapsed / interval_ns) as u32 + 1;
        prop_assert!(passed <= most, "{passed} of {made} passed, {most} may");
        // What passes for certain: the burst, but for what other shards keep. A replaced engine begins with nothing.
        let least = made.min(burst - burst / 16);
        prop_assert!(passed >= least || replaces, "{passed} of {made} passed, {least} do");
        host.end();
    }

    #[test]
    fn a_number_of_calls_is_the_hosts(
        shards in 2usize..4,
        calls_max in prop_oneof![1u32..6, 60u32..90],
        replaces in any::<bool>(),
        steps in steps(),
    ) {
        let many = Definition { calls_max: Some(calls_max), ..limit(Kind::ConcurrencyLimit) };
        let mut host = Host::new(shards, many);
        for (pick, calls, answers) in steps {
            for _ in 0..calls * if calls_max > 10 { 6 } else { 1 } {
                let (before, ended) = (host.at_work.len() as u32, host.ended.len());
                host.call(usize::from(pick) % shards);
                let let_in = host.ended.len() == ended;
                prop_assert!(!let_in || before < calls_max, "{before} were under way");
                prop_assert!(let_in || before >= calls_max - calls_max / 8, "{before} of {calls_max}");
            }
            host.replace(replaces && pick % 4 == 0);
            (0..answers % 20).for_each(|_| host.answer());
        }
        host.end();
    }

    /// Places of a queue: never more calls at work than it says, nobody waits beside a free place, and who has waited
    /// is served, on whichever shard.
    #[test]
    fn a_queue_is_the_hosts(
        shards in 2usize..4,
        calls_max in prop_oneof![1u32..5, 40u32..50],
        replaces in any::<bool>(),
        steps in steps(),
    ) {
        let queue = Definition {
            calls_max: Some(calls_max),
            waiting_max: Some(1000),
            target_ms: Some(60_000),
            interval_ms: Some(60_000),
            ..limit(Kind::Queue)
        };
        let mut host = Host::new(shards, queue);
        for (pick, calls, what) in steps {
            for _ in 0..calls * if calls_max > 10 { 3 } else { 1 } {
                host.call(usize::from(pick) % shards);
            }
            host.replace(replaces && pick % 4 == 0);
            match what % 4 {
                0 => host.cancel(what.into()),
                1 | 2 => (0..what % 9).for_each(|_| host.answer()),
                _ => {}
            }
            let waiting = host.open.len() - host.at_work.len();
            prop_assert!(host.at_work.len() <= calls_max as usize, "{} at work", host.at_work.len());
            prop_assert!(
                waiting == 0 || host.at_work.len() == calls_max as usize,
                "{waiting} wait, and {} of {calls_max} are at work",
                host.at_work.len()
            );
        }
        host.end();
        prop_assert!(host.ended.iter().all(|code| *code == Code::Ok));
    }
}

/// Who waits on one shard is not behind everybody of another: they have their turn one after the other.
#[test]
fn shards_have_their_turn_at_a_place() {
    let queue = Definition {
        calls_max: Some(1),
        waiting_max: Some(1000),
        target_ms: Some(60_000),
        interval_ms: Some(60_000),
        ..limit(Kind::Queue)
    };
    let mut host = Host::new(3, queue);
    (0..30).for_each(|_| host.call(0));
    host.call(1);
    host.call(2);
    assert_eq!((host.at_work.len(), host.open.len()), (1, 32));
    // Three answers later both have been at work.
    (0..4).for_each(|_| host.answer());
    let waiting = host.world.hosts[2].engine.snapshot().calls + host.world.hosts[4].engine.snapshot().calls;
    assert_eq!(waiting, 0, "those of the other shards are answered");
    host.end();
    assert_eq!(host.ended.len(), 32);
}

/// As many wait as may on the host, and one more for each further shard at most.
#[test]
fn who_may_wait_is_counted_for_the_host() {
    for shards in [2, 3] {
        let queue = Definition {
            calls_max: Some(1),
            waiting_max: Some(10),
            target_ms: Some(60_000),
            interval_ms: Some(60_000),
            ..limit(Kind::Queue)
        };
        let mut host = Host::new(shards, queue);
        (0..60).for_each(|call| host.call(call % shards));
        let refused = host.ended.iter().filter(|code| **code == Code::Unavailable).count();
        assert_eq!(refused, host.ended.len());
        assert_eq!(60 - 1 - refused, 10);
        host.end();
    }
}

/// A policy that says something else goes on with what it remembers, on all shards.
#[test]
fn a_limit_that_is_changed_keeps_what_it_remembers() {
    let rate =
        |burst| Definition { calls_per_second: Some(0.001), burst: Some(burst), ..limit(Kind::RateLimit) };
    let mut host = Host::new(2, rate(4));
    host.world.advance(MS);
    (0..3).for_each(|call| host.call(call % 2));
    host.apply(&[rate(40)]);
    host.world.advance(MS);
    (0..60).for_each(|call| host.call(call % 2));
    while !host.at_work.is_empty() {
        host.answer();
    }
    let passed = host.ended.iter().filter(|code| **code == Code::Ok).count();
    // Three before, and a quarter of the burst after; what other shards keep is left out.
    assert!((3 + 8..=3 + 10).contains(&passed), "{passed}");
    // Taken out and put in again, it begins anew.
    host.apply(&[]);
    host.apply(&[rate(4)]);
    let before = host.ended.len();
    (0..8).for_each(|call| host.call(call % 2));
    while !host.at_work.is_empty() {
        host.answer();
    }
    let passed = host.ended[before..].iter().filter(|code| **code == Code::Ok).count();
    assert_eq!(passed, 4);
    host.end();
}
