//! The one way every item takes: in order, or held until it can go.
//!
//! What becomes of an item `course.rs` says, and this does it; who pays for it while it waits the call says
//! ([`Call::charge_for`]): one of those in `wait_accounts.rs`, each of which counts for itself.

use crate::CallKey;
use crate::call::{Body, Call, Calls, Direction, Item};
use crate::course::{Course, ItemVerdict, Reshaping};
use crate::due::Due;
use crate::ends::{Blocker, ItemWay, Refusal, deliver_to_client, deliver_to_server};
use crate::engine::{Engine, Turn};
use crate::gather::{gather, split};
use crate::mirrors::{Copied, copy_of, mirrored_types};
use crate::registry::{MethodTypes, service_of};
use crate::sampled::{sample_answer, sample_request};
use crate::source::source_of;
use crate::wait_accounts::WaitAccounts;
use std::borrow::Cow;
use std::sync::Arc;
use trunkline_call::{Code, Fault, Instant};
use trunkline_policy::Mirror;

impl Engine {
    /// Sends an item along its call, once the policies that look at it have.
    pub(crate) fn pass(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        direction: Direction,
        item: &mut Item<'_>,
    ) {
        let Self { calls, clusters, remotes, admission, timers, plant, steps, .. } = self;
        let Some(call) = calls.find_mut(key) else { return self.drop_item(item) };
        call.note_step(steps, turn.now, direction, item);
        if direction == Direction::Request && call.has_begun_in_parts() {
            return self.add_part(turn, key, item);
        }
        if call.is_inspected(direction, item) {
            return self.admit_message(turn, key, item);
        }
        // Nearly every answer.
        let way = ItemWay { key, direction };
        if plant.response_hold_ns == 0 && call.ends_as_it_comes(item) {
            call.response.ended = true;
            sample_answer(self, turn, key, item);
            if let Err(refusal) = deliver_to_client(self, turn, way, item) {
                self.refused(turn, way, item, refusal);
            }
            return;
        }
        let mut course = Course { clusters, remotes, admission, timers, plant: *plant };
        let verdict = course.judge(turn.now, way, call, item);
        self.carry(turn, way, item, verdict);
    }

    /// Sends an item along its call. It is handed over now, or waits behind those that wait already.
    pub(crate) fn pass_on(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        direction: Direction,
        item: &mut Item<'_>,
    ) {
        let Self { calls, clusters, remotes, admission, timers, plant, .. } = self;
        let Some(call) = calls.find_mut(key) else { return self.drop_item(item) };
        let mut course = Course { clusters, remotes, admission, timers, plant: *plant };
        let way = ItemWay { key, direction };
        let verdict = course.judge(turn.now, way, call, item);
        self.carry(turn, way, item, verdict);
    }

    // LIFE: 8 | handed to its server end, or held until that takes it: credit, room, pacing | |
    /// Does with an item what has been said.
    #[inline(always)]
    fn carry(&mut self, turn: &mut Turn<'_>, way: ItemWay, item: &mut Item<'_>, verdict: ItemVerdict) {
        match verdict {
            ItemVerdict::HandOver => {
                if way.direction == Direction::Request {
                    sample_request(self, turn, way.key, item);
                }
                self.hand_over(turn, way.key, way.direction, item);
            }
            ItemVerdict::Hold => {
                if way.direction == Direction::Request {
                    sample_request(self, turn, way.key, item);
                }
                self.hold(turn, way, item, false);
            }
            ItemVerdict::Reshape(reshaping) => self.pass_reshaped(turn, way, item, reshaping),
            ItemVerdict::Drop => self.drop_item(item),
            ItemVerdict::Fail(fault) => {
                self.drop_item(item);
                self.fail(turn, way.key, fault);
            }
        }
    }

    #[inline(never)]
    fn pass_reshaped(
        &mut self,
        turn: &mut Turn<'_>,
        way: ItemWay,
        item: &mut Item<'_>,
        reshaping: Reshaping,
    ) {
        let shaped = match reshaping {
            Reshaping::Whole => Ok([Some(item.take()), None]),
            Reshaping::Join => self.join(way.key, way.direction, item.take()),
            Reshaping::Split => Ok(split(item.take())),
        };
        match shaped {
            Ok(shaped) => {
                for mut item in shaped.into_iter().flatten() {
                    let Self { calls, clusters, remotes, admission, timers, plant, .. } = &mut *self;
                    let mut course = Course { clusters, remotes, admission, timers, plant: *plant };
                    let verdict = match calls.find_mut(way.key) {
                        Some(call) => course.judge_shaped(turn.now, way, call, &item),
                        None => ItemVerdict::Drop,
                    };
                    self.carry(turn, way, &mut item, verdict);
                }
            }
            Err(fault) => self.fail(turn, way.key, fault),
        }
    }

    /// Joins an item with what is kept of its direction: what goes on, if it is whole.
    ///
    /// # Errors
    /// What ends the call.
    pub(crate) fn join<'a>(
        &mut self,
        key: CallKey,
        direction: Direction,
        item: Item<'a>,
    ) -> Result<[Option<Item<'a>>; 2], Fault> {
        let gathered = gather(direction, self.take_gathered(key, direction), item);
        for mut item in gathered.dropped.into_iter().flatten() {
            self.drop_item(&mut item);
        }
        if let Some(mut kept) = gathered.kept {
            let (calls, mut accounts) = self.wait_accounts();
            let Some(call) = calls.find_mut(key) else {
                self.drop_item(&mut kept);
                return gathered.fault.map_or(Ok(gathered.goes), Err);
            };
            if let Err(fault) = accounts.keep(call, direction, &kept) {
                self.drop_item(&mut kept);
                return Err(fault);
            }
            call.half(direction).gathered = Some(Box::new(kept.into_owned()));
        }
        gathered.fault.map_or(Ok(gathered.goes), Err)
    }

    /// What is kept of a direction; nobody is charged with it any more.
    pub(crate) fn take_gathered(&mut self, key: CallKey, direction: Direction) -> Option<Item<'static>> {
        let (calls, mut accounts) = self.wait_accounts();
        accounts.take_kept(calls.find_mut(key)?, direction)
    }

    /// The calls, and those who pay for what waits in them.
    pub(crate) fn wait_accounts(&mut self) -> (&mut Calls, WaitAccounts<'_>) {
        let Self { calls, sessions, peers, grpc, shards, held, invariants, limits, .. } = self;
        (calls, WaitAccounts { sessions, peers, grpc, shards, held, invariants, limits })
    }

    /// Goes on with what waits in one direction of a call.
    pub(crate) fn unblock(&mut self, turn: &mut Turn<'_>, key: CallKey, direction: Direction) {
        loop {
            let Self { calls, clusters, remotes, admission, timers, plant, sessions, peers, grpc, .. } = self;
            let Self { shards, held, invariants, limits, .. } = self;
            let Some(call) = calls.find_mut(key) else { return };
            let half = call.half(direction);
            if half.paced_until.is_some_and(|until| admission.look_again(turn.now, until).is_some()) {
                return; // its timer comes
            }
            let Some(mut item) = half.backlog.pop_front() else {
                // What waited as items has gone on: what waits as bytes may follow.
                if let Some(stream) = call.grpc_sender(direction) {
                    self.pump(turn, stream);
                }
                return;
            };
            let had_its_turn = half.paced_until.take().is_some();
            let waited = half.waiting_since.take().map_or(0, |since| turn.now.since_ns(since));
            call.note_wait(direction, waited);
            let class = call.policies.as_ref().and_then(|policies| policies.class).filter(|_| !had_its_turn);
            let mut accounts = WaitAccounts { sessions, peers, grpc, shards, held, invariants, limits };
            accounts.discharge(key, call, direction, &item);
            let way = ItemWay { key, direction };
            let mut course = Course { clusters, remotes, admission, timers, plant: *plant };
            if class.is_some_and(|class| course.paces(turn.now, way, call, class, &item)) {
                return self.hold(turn, way, &mut item, true);
            }
            if !self.hand_over(turn, key, direction, &mut item) {
                return;
            }
        }
    }

    /// The timer of a paced item.
    pub(crate) fn paced_due(&mut self, turn: &mut Turn<'_>, key: CallKey, direction: Direction) {
        let Some(call) = self.calls.find(key) else { return };
        let until = call.half_of(direction).paced_until;
        match until.and_then(|until| self.admission.look_again(turn.now, until)) {
            Some(at) => drop(self.timers.insert(at, Due::Paced(key, direction))),
            None => self.unblock(turn, key, direction),
        }
    }

    /// Hands over to the end the direction leads to. `false` if the item waits now or the call has ended.
    #[inline(never)]
    pub(crate) fn hand_over(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        direction: Direction,
        item: &mut Item<'_>,
    ) -> bool {
        let handed = self.try_hand_over(turn, ItemWay { key, direction }, item);
        handed.map_err(|refusal| self.refused(turn, ItemWay { key, direction }, item, refusal)).is_ok()
    }

    /// An end would not have an item: it waits now, or the call has ended.
    #[inline(never)]
    pub(crate) fn refused(&mut self, turn: &mut Turn<'_>, way: ItemWay, item: &mut Item<'_>, why: Refusal) {
        match why {
            Refusal::Blocked(blocker) => {
                self.line_up(way.key, way.direction, blocker);
                self.hold(turn, way, item, true);
            }
            Refusal::Fault(fault) => {
                self.drop_item(item);
                self.fail(turn, way.key, fault);
            }
        }
    }

    /// Hands over to the end the direction leads to.
    ///
    /// # Errors
    /// What the item has to wait for, or what ends the call.
    #[inline(always)]
    pub(crate) fn try_hand_over(
        &mut self,
        turn: &mut Turn<'_>,
        way: ItemWay,
        item: &mut Item<'_>,
    ) -> Result<(), Refusal> {
        if way.direction == Direction::Request {
            return deliver_to_server(self, turn, way, item);
        }
        sample_answer(self, turn, way.key, item);
        deliver_to_client(self, turn, way, item)
    }

    /// Joins the line of what blocks; whoever unblocks serves the line in order.
    fn line_up(&mut self, key: CallKey, direction: Direction, blocker: Blocker) {
        match blocker {
            Blocker::Session(session) => {
                self.park(key, direction, session, |session| &mut session.parked.room);
            }
            Blocker::Opening(session) => {
                self.park(key, direction, session, |session| &mut session.parked.openings);
            }
            Blocker::Streams(session) => {
                self.park(key, direction, session, |session| &mut session.parked_streams);
            }
            Blocker::Peer(peer) => {
                if let Some(peer) = self.peers.find_mut(peer) {
                    peer.blocked.push_back((key, direction));
                }
            }
            Blocker::Grpc(peer) => self.grpc.line_up(peer, key, direction),
            Blocker::R2p2 => self.r2p2.line_up(key),
            Blocker::Share | Blocker::Stream => {}
            Blocker::Remote(remote) => {
                let source = source_of(self, key);
                self.remotes.line_up(remote, key, source);
            }
            Blocker::Shard(line) => self.shards.line_up(line, key, direction == Direction::Response),
        }
    }

    /// Has an item wait behind those that do, or `first` before them.
    fn hold(&mut self, turn: &mut Turn<'_>, way: ItemWay, item: &mut Item<'_>, first: bool) {
        let (calls, mut accounts) = self.wait_accounts();
        let Some(call) = calls.find_mut(way.key) else { return };
        if let Err(fault) = accounts.charge(way, call, item) {
            self.drop_item(item);
            return self.fail(turn, way.key, fault);
        }
        let (half, item) = (call.half(way.direction), item.take().into_owned());
        if first { half.wait_first(turn.now, item) } else { half.wait(turn.now, item) }
    }

    /// One end of a call becomes another: what waits for it is counted where it waits from now on.
    pub(crate) fn change_end(&mut self, key: CallKey, direction: Direction, change: impl FnOnce(&mut Call)) {
        let (calls, mut accounts) = self.wait_accounts();
        let Some(call) = calls.find_mut(key) else { return };
        let mut waiting = accounts.take_backlog(key, call, direction);
        call.half(direction).large_waits = false;
        change(call);
        // What was gathered for the one it was before.
        waiting.append(&mut call.half(direction).backlog);
        for item in &waiting {
            // Whoever changes it has seen that there is room.
            let _ = accounts.charge(ItemWay { key, direction }, call, item);
        }
        call.half(direction).backlog = waiting;
    }

    /// Throws an item away whose receiver has ended the call: its sender may go on as if it had been taken, for the end
    /// is on its way to it.
    pub(crate) fn drop_unwanted(&mut self, key: CallKey, direction: Direction, item: &mut Item<'_>) {
        let bytes = item.body().map_or(0, Body::window_cost);
        self.drop_item(item);
        self.credit_sender(key, direction, bytes);
    }

    /// A body was used: its send block goes back to its session, and who pays for one that has crossed may send more.
    pub(crate) fn used(&mut self, body: &Body<'_>) {
        if let Some((session, payload)) = body.lent() {
            self.sessions.give_back(session, payload.span);
        } else if let Body::Crossed(crossed) = body {
            self.shards.used(crossed);
        }
    }

    /// Throws an item away: its send block goes back to its session, its receive block to the heap. Nothing is left of
    /// it, so that it is thrown away once.
    pub(crate) fn drop_item(&mut self, item: &mut Item<'_>) {
        match item.take().body() {
            Some(&(Body::Lent { session, payload } | Body::Sealed { session, payload, .. })) => {
                self.sessions.give_back(session, payload.span);
            }
            Some(&Body::Placed { session, block, .. }) => self.sessions.abandon([(session, block.offset)]),
            Some(Body::Crossed(crossed)) => self.shards.used(crossed),
            Some(Body::Wire { .. } | Body::Packed { .. } | Body::Kept(_)) | None => {}
        }
    }

    // LIFE: 7
    /// Makes the copies policies want of a call that goes on with `opening`.
    pub(crate) fn copy_for_mirrors(
        &mut self,
        turn: &Turn<'_>,
        key: CallKey,
        opening: &Item<'_>,
        wanted: Vec<Mirror>,
    ) -> Vec<Copied> {
        if wanted.is_empty() || self.draining {
            return Vec::new();
        }
        let types = self.calls.find(key).and_then(mirrored_types);
        let (Some(types), Item::Open { metadata, body: Some(body), end: true }) = (types, opening) else {
            return Vec::new();
        };
        // One copy of the bytes, however many are sent; each is counted as if it had its own.
        let mut kept = None;
        let mut copies = Vec::new();
        for mirror in wanted {
            let Some(copy) = self.begin_copy(turn.now, key, (&types, body.len()), &mirror) else { continue };
            if kept.is_none() {
                kept = body.kept(&*turn.heaps);
            }
            let Some(kept) = kept.clone() else {
                // Outside the heap: the call itself ends for that reason.
                copy.policies.into_iter().for_each(|policies| self.admission.release(policies.permits));
                return Vec::new();
            };
            self.admission.count_copy(body.len());
            let metadata = Cow::Owned(metadata.to_vec());
            copies.push((copy, Item::Open { metadata, body: Some(Body::Kept(kept)), end: true }));
        }
        copies
    }

    /// Sends them on their way.
    pub(crate) fn send_copies(&mut self, turn: &mut Turn<'_>, copies: Vec<Copied>) {
        for (copy, mut opening) in copies {
            let deadline = copy.deadline.instant();
            let key = self.calls.insert(copy);
            let timer = deadline.map(|at| self.timers.insert(at, Due::Deadline(key)));
            if let Some(copy) = self.calls.find_mut(key) {
                copy.timer = timer;
            }
            self.pass_on(turn, key, Direction::Request, &mut opening);
        }
    }

    /// A copy, if there is room for another; else the policy has left one out.
    fn begin_copy(
        &mut self,
        now: Instant,
        key: CallKey,
        sent: (&Arc<MethodTypes>, u32),
        mirror: &Mirror,
    ) -> Option<Call> {
        let service = service_of(self.registry.path(self.calls.find(key)?.method)).to_owned();
        let endpoints_max = self.limits.endpoints;
        // Without one the host knows as many endpoints as it may.
        let remote = self.remotes.intern(&mirror.target, endpoints_max);
        let cluster =
            remote.and_then(|remote| self.binder().cluster_of_target(remote, &service, endpoints_max));
        let begun = self.admission.begin_copy(mirror, sent.1, self.limits.mirror_bytes, || cluster)?;
        let Some(call) = self.calls.find(key) else {
            self.admission.release(begun.1);
            return None;
        };
        Some(copy_of(now, call, sent, mirror, begun))
    }

    /// A long answer to a copy begins: it was answered, and memory for it is not for nobody. `false`: the call is none.
    pub(crate) fn discard_long_answer(&mut self, turn: &mut Turn<'_>, key: CallKey) -> bool {
        let is_copy = self.calls.find(key).is_some_and(Call::is_copy);
        if is_copy {
            self.end_copy(turn.now, key, Code::Ok);
            self.cancel(turn, key);
        }
        is_copy
    }

    pub(crate) fn end_copy(&mut self, now: Instant, key: CallKey, code: Code) {
        let policies = self.calls.find_mut(key).and_then(|call| call.policies.take());
        if let Some(policies) = policies {
            self.admission.end_copy(now, policies.permits, code);
        }
    }
}
