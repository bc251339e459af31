//! The owners of what is at the ends of calls, lent with a call that was found once for what happens to it.
//!
//! Whoever finds a call has its ends let go of it, stop, or send more (`ends.rs`), with the call and with these. What
//! is rarely called is lent all of them anew ([`EndOwners::lent`]): elsewhere nobody has them together in memory.

use crate::CallKey;
use crate::admission::AdmissionControl;
use crate::attempts::CallAttempts;
use crate::call::{Body, Call, Calls, ClientEnd, Direction, Item, ServerEnd};
use crate::call_ends::ReleasedParts;
use crate::cluster::Clusters;
use crate::due::Due;
use crate::ended::EndedCalls;
use crate::engine::Engine;
use crate::grpc::GrpcEnds;
use crate::held::HeldBudget;
use crate::invariants::Invariants;
use crate::limits::Limits;
use crate::nested::Nested;
use crate::peers::PeerEnds;
use crate::plant::Plant;
use crate::r2p2::R2p2;
use crate::records::{CallBooks, CallRecorder};
use crate::registry::Registry;
use crate::remote::Remotes;
use crate::sessions::SessionEnds;
use crate::shard::ShardLinks;
use crate::unserved::UnservedCalls;
use crate::wait_accounts::WaitAccounts;
use crate::worker_places::WorkerPlaces;
use crate::workers::Workers;
use trunkline_call::{Code, Instant, TimerTable};
use trunkline_telemetry::Telemetry;

/// The owners of what is at the ends of calls. They are lent with a call, which was found by whoever lends them.
pub(crate) struct EndOwners<'e> {
    pub sessions: &'e mut SessionEnds,
    pub peers: &'e mut PeerEnds,
    pub grpc: &'e mut GrpcEnds,
    pub r2p2: &'e mut R2p2,
    pub shards: &'e mut ShardLinks,
    pub workers: &'e mut Workers,
    pub unserved: &'e mut UnservedCalls,
    pub remotes: &'e mut Remotes,
    pub clusters: &'e mut Clusters,
    pub nested: &'e mut Nested,
    pub admission: &'e mut AdmissionControl,
    pub timers: &'e mut TimerTable<Due>,
    pub telemetry: &'e mut Telemetry,
    pub ended: &'e mut EndedCalls,
    pub held: &'e mut HeldBudget,
    pub invariants: &'e mut Invariants,
    pub registry: &'e Registry,
    pub plant: &'e Plant,
    pub limits: &'e Limits,
}

impl<'e> EndOwners<'e> {
    /// The calls, and these owners.
    #[inline(always)]
    pub fn of(engine: &'e mut Engine) -> (&'e mut Calls, Self) {
        let Engine { calls, sessions, peers, grpc, r2p2, shards, workers, unserved, clusters, .. } = engine;
        let Engine { remotes, nested, admission, timers, telemetry, ended, held, invariants, .. } = engine;
        let Engine { registry, plant, limits, .. } = engine;
        let owners = Self {
            sessions,
            peers,
            grpc,
            r2p2,
            shards,
            workers,
            unserved,
            remotes,
            clusters,
            nested,
            admission,
            timers,
            telemetry,
            ended,
            held,
            invariants,
            registry,
            plant,
            limits,
        };
        (calls, owners)
    }

    /// The same owners, lent on to what is rarely called. Nobody has them together in memory before that.
    #[inline(always)]
    pub fn lent(&mut self) -> EndOwners<'_> {
        let Self { sessions, peers, grpc, r2p2, shards, workers, unserved, clusters, nested, .. } = self;
        let Self {
            remotes,
            admission,
            timers,
            telemetry,
            ended,
            held,
            invariants,
            registry,
            plant,
            limits,
            ..
        } = self;
        EndOwners {
            sessions,
            peers,
            grpc,
            r2p2,
            shards,
            workers,
            unserved,
            remotes,
            clusters,
            nested,
            admission,
            timers,
            telemetry,
            ended,
            held,
            invariants,
            registry,
            plant,
            limits,
        }
    }

    /// Those who are told that a call is over, beside its ends.
    #[inline(always)]
    pub fn books(&mut self) -> CallBooks<'_> {
        let Self { telemetry, registry, plant, sessions, peers, grpc, r2p2, admission, timers, .. } = self;
        let recorder = CallRecorder { telemetry, registry, plant };
        CallBooks { recorder, sessions, peers, grpc, r2p2, admission, timers }
    }

    /// Those who keep places for calls.
    #[inline(always)]
    pub fn places(&mut self) -> WorkerPlaces<'_> {
        let Self { workers, unserved, shards, registry, .. } = self;
        WorkerPlaces { workers, unserved, shards, registry }
    }

    /// Those who pay for what waits.
    #[inline(always)]
    pub fn accounts(&mut self) -> WaitAccounts<'_> {
        let Self { sessions, peers, grpc, shards, held, invariants, limits, .. } = self;
        WaitAccounts { sessions, peers, grpc, shards, held, invariants, limits }
    }

    /// A body was used: its send block goes back to its session, and who pays for one that has crossed may send more.
    #[inline(always)]
    pub fn used(&mut self, body: &Body<'_>) {
        if let Some((session, payload)) = body.lent() {
            self.sessions.give_back(session, payload.span);
        } else if let Body::Crossed(crossed) = body {
            self.shards.used(crossed);
        }
    }

    /// Throws an item away: its send block goes back to its session, its receive block to the heap. Nothing is left of
    /// it, so that it is thrown away once.
    #[inline(always)]
    pub fn drop_item(&mut self, item: &mut Item<'_>) {
        match item.take().body() {
            Some(&(Body::Lent { session, payload } | Body::Sealed { session, payload, .. })) => {
                self.sessions.give_back(session, payload.span);
            }
            Some(&Body::Placed { session, block, .. }) => self.sessions.abandon([(session, block.offset)]),
            Some(Body::Crossed(crossed)) => self.shards.used(crossed),
            Some(Body::Wire { .. } | Body::Packed { .. } | Body::Kept(_)) | None => {}
        }
    }

    /// Throws an item away whose receiver has ended the call: its sender may go on as if it had been taken, for the end
    /// is on its way to it.
    #[inline]
    pub fn drop_unwanted(&mut self, call: (CallKey, &mut Call), direction: Direction, item: &mut Item<'_>) {
        let bytes = item.body().map_or(0, Body::window_cost);
        self.drop_item(item);
        self.credit_sender(call, direction, bytes);
    }

    /// Whoever sends in this direction may send so many bytes more, if the direction is a stream.
    #[inline(always)]
    pub fn credit_sender(&mut self, (key, call): (CallKey, &mut Call), direction: Direction, bytes: u32) {
        if bytes > 0 && call.streams(direction) {
            self.lent().open_window((key, call), direction, bytes);
        }
    }

    /// The same, whether the end's method streams or not.
    #[inline(never)]
    pub fn open_window(mut self, (key, call): (CallKey, &mut Call), direction: Direction, bytes: u32) {
        let from_session = match direction {
            Direction::Request => matches!(call.client, ClientEnd::Session { .. }),
            Direction::Response => matches!(call.server, ServerEnd::Session { .. }),
        };
        let half = call.half(direction);
        // Others are counted where their connection is.
        half.charged -= if from_session { i64::from(bytes) } else { 0 };
        let over = half.ended;
        match direction {
            Direction::Request => call.client.credit(&mut self, (key, call), bytes, over),
            Direction::Response => call.server.credit(&mut self, (key, call), bytes, over),
        }
    }

    /// Tells the server end of a call that nobody waits any more, if it does not know. What waits in the call is thrown
    /// away before, while it is known who is charged with it: the session it leads to, or the connection it came from.
    /// Its attempts, if it has any, are to be ended then.
    pub fn stop_server(
        mut self,
        now: Instant,
        (key, call): (CallKey, &mut Call),
        code: Code,
    ) -> Option<Box<CallAttempts>> {
        if !call.is_at_rest() {
            let waiting = self.accounts().take_waiting(key, call);
            waiting.for_each(|mut item| self.drop_item(&mut item));
        }
        call.server.cancel(&mut self, now, (key, call), code);
        call.attempts.take()
    }

    /// The server end of a call is through with it: it makes room for another.
    #[inline(always)]
    pub fn leave_server(&mut self, (key, call): (CallKey, &mut Call)) {
        if call.is_at_worker() {
            self.places().leave(key, call);
        }
        call.take_server().release(self, (key, call));
    }

    /// A call is over, and both its ends are through with it: what it gives back beside that.
    #[inline(always)]
    pub fn leave(&mut self, (key, call): (CallKey, &mut Call)) -> ReleasedParts {
        if !call.has_let_go() {
            self.lent().let_go((key, call));
        }
        call.take_client().release(self, (key, call));
        call.take_released()
    }

    /// Throws away what waits in a call, which has the ends it waits for, and has its server end leave it.
    #[inline(never)]
    fn let_go(mut self, (key, call): (CallKey, &mut Call)) {
        let waiting = (!call.is_at_rest()).then(|| self.accounts().take_waiting(key, call));
        if call.is_at_worker() {
            self.places().leave(key, call);
        }
        let server = call.take_server();
        waiting.into_iter().flatten().for_each(|mut item| self.drop_item(&mut item));
        server.release(&mut self, (key, call));
    }
}
