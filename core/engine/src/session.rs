//! One attached session, as the engine sees it.

use crate::held::{HELD_CALL_BYTES, Holding};
use crate::invariants::Invariants;
use crate::limits::Limits;
use crate::parked::{ParkedCalls, ParkedLines};
use crate::registry::{MethodKey, MethodTypes};
use crate::served_calls::ServedCalls;
use crate::shard::{Majority, Origin, ShardIndex, application_of};
use crate::shared_room::{SharedRoom, ToldParts};
use crate::snapshot::SessionRow;
use crate::target::Target;
use crate::{CallKey, SessionKey};
use std::collections::VecDeque;
use std::sync::Arc;
use trunkline_call::entry::{Completion, FREED_MAX, Span};
use trunkline_call::{CallId, KeyedMap, VouchedCaller};
use trunkline_policy::Plan;

/// An application gets its send blocks back when there are so many bytes of them, however large its heap is: what it
/// cannot use again yet it takes from pages it has not touched.
const FREED_BYTES_MAX: u64 = 8 << 20;

/// An attached session.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub struct Session {
    /// Name and process, for operators.
    pub(crate) label: String,
    pub(crate) routes: Vec<Route>,
    /// Who its process is; empty if nobody said.
    pub(crate) identity: Box<str>,
    /// The program of that process; empty if nobody said.
    #[serde(default)]
    pub(crate) program: Box<str>,
    /// Whether that is one of this host's files: set with it. Of a daemon that took any process at its word it is not.
    #[serde(default)]
    pub(crate) program_is_of_host: bool,
    /// The control group of that process; empty if nobody said.
    #[serde(default)]
    pub(crate) cgroup: Box<str>,
    /// What is said of its calls to the operator's other hosts.
    #[serde(skip)]
    pub(crate) caller: Arc<VouchedCaller>,
    /// Rises whenever that changes.
    #[serde(skip)]
    pub(crate) caller_revision: u32,
    /// Calls this session has made and not yet released, by the id it chose. The hash is keyed, and cheap: each call
    /// asks three times.
    pub(crate) made: KeyedMap<CallId, CallKey>,
    /// Calls it may make before more are booked: so many are, those it makes among them.
    #[serde(skip)]
    pub(crate) calls_booked: usize,
    /// Calls delivered to it and not finished.
    pub(crate) delivered: SharedRoom,
    /// Which those are.
    #[serde(skip)]
    pub(crate) served: ServedCalls,
    /// Those of them it knows by another id than [`delivered_id`] says, because they were delivered on another shard.
    #[serde(default)]
    pub(crate) brought: KeyedMap<CallId, CallKey>,
    /// Completions the host has not yet written into the ring.
    #[serde(with = "crate::handover::entries")]
    pub(crate) outbox: VecDeque<Completion>,
    /// Send blocks to be returned, not yet in an entry.
    freed: Vec<u32>,
    freed_bytes: u64,
    /// Ask for Freed entries as soon as this many bytes wait: an eighth of the send heap.
    freed_bytes_max: u64,
    /// Calls with a message waiting for room in this session's receive heap (`parked.rs`).
    pub(crate) parked: ParkedCalls,
    /// The same of streams that hold nothing of that heap; served when nobody else waits (`shares.rs`).
    #[serde(default)]
    pub(crate) parked_streams: ParkedLines,
    /// What openings hold of that heap, by who makes their calls, of those that came when it was not nearly empty.
    #[serde(skip)]
    pub(crate) openings: ToldParts,
    /// Bytes of that heap in messages of streams whose calls are open.
    #[serde(default)]
    pub(crate) stream_bytes: u64,
    /// Bytes of that heap in messages of other daemons that are not complete.
    #[serde(skip)]
    pub(crate) arriving_bytes: u32,
    /// Bytes of messages that wait so that the daemon holds itself.
    pub(crate) parked_bytes: SharedRoom,
    /// Bytes of large answers of other hosts that wait, beside those.
    #[serde(default)]
    pub(crate) answer_bytes: usize,
    /// What is booked for those.
    #[serde(skip)]
    pub(crate) holding: Holding,
    /// Where its calls cross to.
    #[serde(skip)]
    pub(crate) crossings: SessionCrossings,
    /// Who it is, in the words that go to other shards with its calls; made with the first of them.
    #[serde(skip)]
    origin: Option<Arc<Origin>>,
    /// Send-heap ranges a connection still reads from.
    pub(crate) lent: usize,
    pub(crate) draining: bool,
    /// It is draining, and is to be told when its last call has ended.
    #[serde(default)]
    awaits_drained: bool,
    /// What it was told when it attached.
    #[serde(default)]
    pub(crate) told: ToldLimits,
    /// Serves only what nobody else serves.
    pub(crate) stands_by: bool,
    /// It is told who makes the calls that are delivered to it (`callers.rs`).
    #[serde(default)]
    pub(crate) told_callers: bool,
    /// Gone: the slot stays until no connection reads its heap any more.
    pub(crate) gone: bool,
}

/// The limits an application was told of, which it counts on for as long as it is attached, whatever daemons that take
/// over are configured to tell others. None are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct ToldLimits {
    pub calls_max: usize,
    pub stream_window_bytes: u32,
}

impl ToldLimits {
    pub fn of(limits: &Limits) -> Self {
        Self { calls_max: limits.calls_made_per_session, stream_window_bytes: limits.stream_window_bytes }
    }

    /// Calls a session may make: it queues none that it may by what it knows, and may find that there is more room now.
    pub fn calls_max(&self, limits: &Limits) -> usize {
        self.calls_max.max(limits.calls_made_per_session)
    }

    pub fn stream_window_bytes(&self, limits: &Limits) -> u32 {
        self.stream_window_bytes.max(limits.stream_window_bytes)
    }
}

/// To which shard most calls of a session cross, since it was asked last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SessionCrossings {
    to: Majority<ShardIndex>,
    /// Calls that stayed on its own shard.
    pub stayed: u64,
}

impl SessionCrossings {
    /// A call crosses.
    pub fn note(&mut self, to: ShardIndex) {
        self.to.note(to);
    }

    /// The shard, and by how many calls more cross to it than elsewhere or nowhere.
    pub fn most(&self) -> Option<(ShardIndex, u64)> {
        let (shard, calls) = self.to.most()?;
        Some((shard, calls.checked_sub(self.stayed).filter(|calls| *calls > 0)?))
    }
}

/// A number an application may put into an entry.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) enum Route {
    Calls {
        method: MethodKey,
        types: Arc<MethodTypes>,
        target: Target,
        #[serde(skip)]
        plan: Option<Arc<Plan>>,
    },
    Serves,
}

impl Session {
    pub(crate) fn new(label: String, send_heap_bytes: u64) -> Self {
        let mut session = Self {
            label,
            routes: Vec::new(),
            identity: Box::default(),
            program: Box::default(),
            program_is_of_host: false,
            cgroup: Box::default(),
            caller: Arc::default(),
            caller_revision: 0,
            made: KeyedMap::default(),
            calls_booked: 0,
            delivered: SharedRoom::default(),
            served: ServedCalls::default(),
            brought: KeyedMap::default(),
            outbox: VecDeque::new(),
            freed: Vec::with_capacity(FREED_MAX),
            freed_bytes: 0,
            freed_bytes_max: (send_heap_bytes / 8).min(FREED_BYTES_MAX),
            parked: ParkedCalls::default(),
            parked_streams: ParkedLines::default(),
            openings: ToldParts::default(),
            stream_bytes: 0,
            arriving_bytes: 0,
            parked_bytes: SharedRoom::default(),
            answer_bytes: 0,
            holding: Holding::default(),
            crossings: SessionCrossings::default(),
            origin: None,
            lent: 0,
            draining: false,
            awaits_drained: false,
            told: ToldLimits::default(),
            stands_by: false,
            told_callers: false,
            gone: false,
        };
        session.describe(Vec::new());
        session
    }

    /// What operators see of it.
    pub(crate) fn row(&self, key: SessionKey) -> SessionRow {
        SessionRow {
            key,
            label: self.label.clone(),
            calls_made: self.made.len(),
            calls_delivered: self.delivered.used() as usize,
            completions_queued: self.outbox.len(),
            parked: self.parked.len() + self.parked_streams.len(),
            receive_heap_bytes: 0,
            draining: self.draining,
        }
    }

    /// The methods it calls, each with its types there and where its calls go.
    pub(crate) fn called(&self) -> impl Iterator<Item = (MethodKey, &Arc<MethodTypes>, Target)> {
        self.routes.iter().filter_map(|route| match route {
            Route::Calls { method, types, target, .. } => Some((*method, types, *target)),
            Route::Serves => None,
        })
    }

    /// Whether a message of which nothing has come yet may have so many bytes of its receive heap: of the `usual_bytes`
    /// that usual messages share, those that are complete always have half.
    pub(crate) fn may_arrive(&self, bytes: u32, usual_bytes: u32) -> bool {
        u64::from(self.arriving_bytes) + u64::from(bytes) <= u64::from(usual_bytes / 2)
    }

    /// So many bytes of its receive heap are for a message that is not whole. How many of them are counted.
    pub(crate) fn arrives(&mut self, bytes: u32) -> u32 {
        self.arriving_bytes += bytes;
        bytes
    }

    /// It is whole, or will never be.
    pub(crate) fn arrives_no_more(&mut self, invariants: &mut Invariants, counted: u32) {
        let left = self.arriving_bytes.checked_sub(counted);
        self.arriving_bytes = invariants.left(left, "messages that arrive in a heap are counted");
    }

    /// A connection reads a block of its send heap no more.
    pub(crate) fn lent_no_more(&mut self, invariants: &mut Invariants) {
        self.lent = invariants.left(self.lent.checked_sub(1), "a block is lent before it comes back");
    }

    /// Puts together what is said of its calls elsewhere, with the services it serves.
    pub(crate) fn describe(&mut self, services: Vec<Box<str>>) {
        let caller = VouchedCaller {
            identity: self.identity.clone(),
            name: self.application().into(),
            program: self.program.clone(),
            services,
        };
        self.caller = Arc::new(caller.within_bounds());
        self.origin = None;
        self.caller_revision = self.caller_revision.wrapping_add(1);
    }

    /// Who it is, for the shards its calls go to.
    #[inline]
    pub(crate) fn origin(&mut self) -> &Arc<Origin> {
        let Self { label, identity, caller, origin, .. } = self;
        match origin {
            Some(origin) => origin,
            none => none.insert(described(label, identity, caller)),
        }
    }

    /// Whether its counts can be those of a session.
    pub(crate) fn is_sound(&self) -> bool {
        self.freed.len() <= FREED_MAX && self.freed_bytes <= u64::from(u32::MAX) * FREED_MAX as u64
    }

    /// Its application's name: the label without the process id.
    pub(crate) fn application(&self) -> &str {
        application_of(&self.label)
    }

    /// Whether calls wait for its receive heap.
    #[inline]
    pub(crate) fn has_parked(&self) -> bool {
        self.entries_in_line() > 0
    }

    /// How many entries the lines of those have.
    pub(crate) fn entries_in_line(&self) -> usize {
        self.parked.len() + self.parked_streams.len()
    }

    /// Whether one more call may be delivered to it, of this source.
    pub(crate) fn has_room(&self, limits: &Limits, source: impl FnOnce() -> Arc<str>) -> bool {
        let limit = limits.calls_delivered_per_session as u64;
        !self.draining && !self.gone && self.delivered.has_room(1, limit, source)
    }

    /// One more call is delivered to it, if it may be whosever it is. Whether it may.
    #[inline]
    pub(crate) fn takes_anybodys_call(&mut self, limits: &Limits) -> bool {
        let limit = limits.calls_delivered_per_session as u64;
        !self.draining && !self.gone && self.delivered.take_of_anybodys(1, limit)
    }

    /// Bytes that the daemon holds for it: messages that wait for it to read, and the calls it makes.
    #[inline]
    pub(crate) fn held_bytes(&self) -> u64 {
        let calls = self.calls_booked as u64 * HELD_CALL_BYTES;
        self.parked_bytes.used() + self.answer_bytes as u64 + calls
    }

    /// It serves no new calls. Whether it is to be told now that it has none left: each order is heard once.
    pub(crate) fn drain(&mut self, answer: bool) -> bool {
        self.awaits_drained |= answer && !self.draining;
        self.draining = true;
        self.has_drained()
    }

    /// A call delivered to it has ended, which it knows by this id if not by [`delivered_id`]. Whether it is to be told
    /// now that it was the last.
    pub(crate) fn undeliver(&mut self, call: CallKey, known_as: Option<CallId>) -> bool {
        if let Some(id) = known_as {
            self.brought.remove(&id);
        }
        self.delivered.give_back(call, 1);
        self.openings.count_off(call, u64::MAX);
        self.has_drained()
    }

    fn has_drained(&mut self) -> bool {
        self.delivered.used() == 0 && std::mem::take(&mut self.awaits_drained)
    }

    /// Queues a completion; waiting Freed entries travel along for free.
    #[inline(always)]
    pub(crate) fn complete(&mut self, completion: Completion) {
        if self.gone {
            return;
        }
        self.outbox.push_back(completion);
        if !self.freed.is_empty() {
            self.flush_freed();
        }
    }

    /// Returns a send block. It reaches the application with the next completion, or soon enough that neither the
    /// number nor the bytes of unreturned blocks can starve its allocator.
    #[inline(always)]
    pub(crate) fn give_back(&mut self, span: Span) {
        if span.len == 0 || self.gone {
            return;
        }
        self.freed.push(span.offset);
        self.freed_bytes += u64::from(span.len);
        if self.freed.len() >= FREED_MAX || self.freed_bytes > self.freed_bytes_max {
            self.flush_freed();
        }
    }

    /// Queues a completion that returns what there is to return.
    #[inline(never)]
    fn flush_freed(&mut self) {
        let mut offsets = [0; FREED_MAX];
        for (slot, offset) in offsets.iter_mut().zip(self.freed.drain(..)) {
            *slot = offset;
        }
        self.freed_bytes = 0;
        self.outbox.push_back(Completion::Freed { offsets });
    }
}

#[cold]
fn described(label: &str, identity: &str, caller: &Arc<VouchedCaller>) -> Arc<Origin> {
    let (label, identity, described) = (label.into(), identity.into(), Arc::clone(caller));
    Arc::new(Origin::Application { label, identity, described })
}

/// Where the id of a delivered call says which shard has delivered it, so that calls a session brings from one shard to
/// another are told from those of that one: above the slots, of which there are never so many.
const SHARD_SHIFT: u32 = 26;

/// The id under which a call that a shard delivers is known to its handler.
pub(crate) fn delivered_id(shard: ShardIndex, key: CallKey) -> CallId {
    CallId((key.to_bits() ^ u64::from(shard.0) << SHARD_SHIFT) | CallId::DELIVERED)
}

/// The call that this shard has delivered by this id.
pub(crate) fn delivered_by(shard: ShardIndex, id: CallId) -> CallKey {
    CallKey::from_bits((id.0 & !CallId::DELIVERED) ^ u64::from(shard.0) << SHARD_SHIFT)
}

/// Credit for a session's stream.
pub(crate) fn credit(call: CallId, bytes: u32) -> Completion {
    Completion::Credit { call, bytes }
}
