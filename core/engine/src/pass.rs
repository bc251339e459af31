//! The one way every item takes: in order, or held until it can go; and every way a call can end.
//!
//! What becomes of an item `course.rs` says, and this does it; who pays for it while it waits the call says
//! ([`Call::charge_for`]): one of those in `wait_accounts.rs`, each of which counts for itself. Who is told that a call
//! is over `records.rs` says. What may come after an attempt that is over, and which takes its call's place,
//! `attempts/` says: such a call ends when there is no other.

use crate::attempts::{end_attempts, execution_so_far};
use crate::call::{Body, Call, Calls, Direction, Item, ServerEnd};
use crate::call_ends::ReleasedParts;
use crate::course::{Course, ItemVerdict, Reshaping};
use crate::due::Due;
use crate::ends::{Refusal, deliver_to_client, deliver_to_server};
use crate::engine::{Engine, Turn};
use crate::gather::{gather, split};
use crate::in_line::line_up;
use crate::item::ItemWay;
use crate::limits::STALLED;
use crate::nested::Nested;
use crate::owners::Owners;
use crate::records::progress_of_attempts;
use crate::sampled::{sample_answer, sample_request};
use crate::shard::ShardStage;
use crate::source::made_for;
use crate::wait_accounts::WaitAccounts;
use crate::{CallKey, SessionKey};
use std::borrow::Cow;
use trunkline_call::{Blame, Code, Execution, Fault, Instant, Status};
use trunkline_grpc::Outcome;

/// A deadline that is noticed so much later says that this host had no processor, and nothing of the server.
const UNATTENDED_NS: u64 = 20_000_000;
/// Time another shard gets to say how a call ended whose deadline has passed.
const LATE_NS: u64 = 5_000_000;

impl Engine {
    /// Sends an item along its call, once the policies that look at it have.
    pub(crate) fn pass(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        direction: Direction,
        item: &mut Item<'_>,
    ) {
        let Self { calls, owners: Owners { clusters, remotes, admission, timers, plant, steps, .. } } = self;
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
        call.tell_of_all(item);
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
        let Self { calls, owners: Owners { clusters, remotes, admission, timers, plant, .. } } = self;
        let Some(call) = calls.find_mut(key) else { return self.drop_item(item) };
        let mut course = Course { clusters, remotes, admission, timers, plant: *plant };
        let way = ItemWay { key, direction };
        call.tell_of_all(item);
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
                    let Self { calls, owners: Owners { clusters, remotes, admission, timers, plant, .. } } =
                        &mut *self;
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
        let (calls, mut accounts) = self.wait_accounts();
        let Some(call) = calls.find_mut(key) else {
            self.drop_item(&mut { item });
            return Ok([None, None]);
        };
        let comes = item.body().is_some();
        let mut gathered = gather(direction, accounts.take_kept(call, direction), item);
        let (mut dropped, mut freed) = (None, 0);
        if let Some(mut kept) = gathered.kept.take() {
            freed = kept.body_mut().filter(|_| comes).map_or(0, Body::take_window_cost);
            if accounts.may_send_on(call, direction) {
                freed = 0;
            }
            match accounts.keep(call, direction, &kept) {
                Ok(()) => call.half(direction).gathered = Some(Box::new(kept.into_owned())),
                Err(fault) => (dropped, gathered.fault) = (Some(kept), Some(fault)),
            }
        }
        for mut item in gathered.dropped.into_iter().flatten().chain(dropped) {
            self.drop_item(&mut item);
        }
        // A second message would wait for the first to be used, and that for the end behind the second.
        self.open_window(key, direction, freed);
        gathered.fault.map_or(Ok(gathered.goes), Err)
    }

    /// The calls, and those who pay for what waits in them.
    pub(crate) fn wait_accounts(&mut self) -> (&mut Calls, WaitAccounts<'_>) {
        let Self { calls, owners: Owners { sessions, peers, grpc, shards, held, invariants, limits, .. } } =
            self;
        (calls, WaitAccounts { sessions, peers, grpc, shards, held, invariants, limits })
    }

    /// Goes on with what waits in one direction of a call.
    pub(crate) fn unblock(&mut self, turn: &mut Turn<'_>, key: CallKey, direction: Direction) {
        loop {
            let Self { calls, owners } = self;
            let Owners { clusters, remotes, admission, timers, plant, sessions, peers, grpc, .. } = owners;
            let Owners { shards, held, invariants, limits, .. } = owners;
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
        match until.and_then(|until| self.owners.admission.look_again(turn.now, until)) {
            Some(at) => drop(self.owners.timers.insert(at, Due::Paced(key, direction))),
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
                line_up(self, way, blocker);
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

    /// Has an item wait behind those that do, or `first` before them.
    pub(crate) fn hold(&mut self, turn: &mut Turn<'_>, way: ItemWay, item: &mut Item<'_>, first: bool) {
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
        let Self { calls, owners } = self;
        match calls.find_mut(key) {
            Some(call) => owners.drop_unwanted((key, call), direction, item),
            None => owners.drop_item(item),
        }
    }

    /// A body was used: its send block goes back to its session, and who pays for one that has crossed may send more.
    pub(crate) fn used(&mut self, body: &Body<'_>) {
        self.owners.used(body);
    }

    /// Throws an item away: its send block goes back to its session, its receive block to the heap. Nothing is left of
    /// it, so that it is thrown away once.
    pub(crate) fn drop_item(&mut self, item: &mut Item<'_>) {
        self.owners.drop_item(item);
    }

    /// The infrastructure ends a call: the client end gets the fault's status, the server end is told to stop.
    pub(crate) fn fail(&mut self, turn: &mut Turn<'_>, key: CallKey, fault: Fault) {
        if let Fault::Limit { name, .. } = &fault {
            *self.owners.limits_met.entry(name).or_default() += 1;
        }
        let Some(call) = self.calls.find(key) else { return };
        let mut status = fault.status();
        if call.handed_over && status.execution() == Execution::NotExecuted && !fault.knows_execution() {
            // A limit that strikes in the middle of a stream: the handler has been at work for long.
            status = status.with_execution(Execution::Unknown);
        }
        if made_for(&self.calls, call).is_some_and(Call::is_for_elsewhere) {
            status = self.owners.peers.said_here(&status);
        }
        if !is_of_server(&fault) {
            self.excuse_server(turn.now, key);
        }
        self.end(turn, key, &status);
    }

    /// How a call ends says nothing of the endpoint it was given.
    fn excuse_server(&mut self, now: Instant, key: CallKey) {
        let Self { calls, owners: Owners { clusters, .. } } = self;
        if let Some(placed) = calls.find_mut(key).and_then(|call| call.leave_endpoint(None)) {
            clusters.finished(now, placed, None, &[]);
        }
    }

    /// The connection a call was to go on is not there any more.
    pub(crate) fn connection_gone(&self, key: CallKey) -> Fault {
        let Some(call) = self.calls.find(key) else { return Fault::Ended };
        let remote = call.placed.and_then(|placed| self.owners.remotes.find(placed.endpoint));
        let endpoint = remote.map_or_else(|| "its endpoint".to_owned(), |remote| remote.endpoint.to_string());
        Fault::ConnectionLost { endpoint, executed: call.execution() }
    }

    /// The caller does not want the call any more: nobody answers it, the server end is told, children end too.
    pub(crate) fn cancel(&mut self, turn: &mut Turn<'_>, key: CallKey) {
        self.cancel_as(turn, key, Code::Cancelled);
    }

    /// The same, when the caller's side says why: its deadline may have passed there first.
    pub(crate) fn cancel_as(&mut self, turn: &mut Turn<'_>, key: CallKey, code: Code) {
        let Self { calls, owners } = self;
        let attempts = calls.find(key).and_then(|call| call.attempts.as_deref());
        let first = progress_of_attempts(calls, attempts);
        let Some(call) = calls.find_mut(key) else { return };
        if let Some(placed) = call.leave_endpoint(None) {
            owners.clusters.finished(turn.now, placed, None, &[]);
        }
        owners.books().abandoned(turn.now, key, call, code, first);
        owners.nested.add(call.take_children(), code);
        if let Some(attempts) = owners.stop_server(turn.now, (key, call), code) {
            end_attempts(self, turn, key, &attempts, code);
        }
        self.forget(key);
    }

    /// The deadline of a call passed.
    pub(crate) fn expire(&mut self, turn: &mut Turn<'_>, key: CallKey) {
        let Self { calls, owners } = self;
        let Some(executed) = calls.find(key).map(|call| execution_so_far(calls, call)) else { return };
        let Some(call) = calls.find_mut(key) else { return };
        call.timer = None;
        if let ServerEnd::Shard { stage: ShardStage::Opened | ShardStage::Accepted, late, .. } =
            &mut call.server
            && !std::mem::replace(late, true)
        {
            // There it is known whether a handler has seen the call.
            call.timer = Some(owners.timers.insert(turn.now.plus_ns(LATE_NS), Due::Deadline(key)));
            return call.server.cancel(owners, turn.now, (key, call), Code::DeadlineExceeded);
        }
        if call.outcome.is_none() {
            let late_ns = call.deadline.instant().map_or(0, |at| turn.now.since_ns(at));
            if late_ns > UNATTENDED_NS {
                self.excuse_server(turn.now, key);
            }
            self.fail(turn, key, Fault::DeadlinePassed { executed });
        }
    }

    /// A call one of whose ends was the session that is gone.
    pub(crate) fn end_gone(&mut self, turn: &mut Turn<'_>, key: CallKey, gone: SessionKey) {
        let Some(call) = self.calls.find(key) else { return };
        if call.maker().is_some_and(|(session, _)| session == gone) {
            self.cancel(turn, key);
        } else {
            let executed = call.execution();
            self.fail(turn, key, Fault::HandlerGone { executed });
        }
    }

    /// Ends a call with a status made here.
    pub(crate) fn end(&mut self, turn: &mut Turn<'_>, key: CallKey, status: &Status) {
        self.end_as(turn, key, &Outcome::of(status));
    }

    /// The same, in the form an outcome travels in.
    pub(crate) fn end_as(&mut self, turn: &mut Turn<'_>, key: CallKey, outcome: &Outcome<'_>) {
        let (code, execution) = (outcome.code, outcome.execution);
        let mut owners = &mut self.owners;
        let Some(mut call) = self.calls.find_mut(key).filter(|call| call.outcome.is_none()) else { return };
        if let Some(placed) = call.leave_endpoint(Some(code)) {
            owners.clusters.finished(turn.now, placed, Some(code), &[]);
        }
        if let Some(attempts) = owners.stop_server(turn.now, (key, call), code) {
            end_attempts(self, turn, key, &attempts, code);
            owners = &mut self.owners;
            match self.calls.find_mut(key) {
                Some(found) => call = found,
                None => return,
            }
        }
        // Calls its handler made end with it: soon.
        owners.nested.add(call.take_children(), code);
        (call.server_measured, call.response.ended) = (false, true);
        owners.leave_server((key, call));
        let client = call.client.clone();
        let metadata = Cow::Borrowed(&*outcome.metadata);
        let finish = &mut Item::Finish { code, execution, body: None, metadata };
        sample_answer(self, turn, key, finish);
        client.finish(self, turn, key, finish);
    }

    /// Hands the end over, which waits for nothing.
    pub(crate) fn finish_now(&mut self, turn: &mut Turn<'_>, key: CallKey, item: &mut Item<'_>) {
        sample_answer(self, turn, key, item);
        let Some(call) = self.calls.find(key) else { return };
        call.client.clone().finish(self, turn, key, item);
    }

    // LIFE: 22 | record whole: components, histograms, flight recorder | all nine |
    /// The application took a call's last completion: the record is whole, the call is history.
    pub(crate) fn conclude(&mut self, now: Instant, key: CallKey, a18: Instant) {
        let Self { calls, owners } = self;
        let released = calls.put_by_if(key, |call| {
            if call.outcome.is_none() || a18 == Instant::default() {
                return None;
            }
            call.client_stamps.a18 = a18;
            // It may be told later: its application kept the response.
            let ended = a18.max(call.client_stamps.d17).min(now);
            owners.books().recorder.made(ended, call);
            Some(owners.leave((key, call)))
        });
        self.forget_released(key, released);
    }

    /// A call of another host, or of a client of the gateway, has its answer: it is in the books, and history.
    pub(crate) fn conclude_served(&mut self, now: Instant, key: CallKey, code: Code) {
        let Self { calls, owners } = self;
        let released = calls.put_by_without(key, |call| {
            owners.books().served(now, key, call, code);
            // Nearly always, nothing waits in it.
            if call.is_at_rest() && !call.is_at_worker() {
                call.take_server().release(owners, (key, call));
            }
            owners.leave((key, call))
        });
        self.forget_released(key, released);
    }

    /// The server end is through with the call: it makes room for another.
    pub(crate) fn leave_server(&mut self, key: CallKey) {
        let Self { calls, owners } = self;
        if let Some(call) = calls.find_mut(key) {
            owners.leave_server((key, call));
        }
    }

    /// Ends calls whose parent has ended, as many as one step may.
    #[inline]
    pub(crate) fn end_nested(&mut self, turn: &mut Turn<'_>) {
        if !self.owners.nested.is_empty() {
            self.end_some_nested(turn);
        }
    }

    fn end_some_nested(&mut self, turn: &mut Turn<'_>) {
        for _ in 0..Nested::PER_STEP_MAX {
            let Some((child, code)) = self.owners.nested.next() else { return };
            let Some(call) = self.calls.find(child) else { continue };
            let executed = execution_so_far(&self.calls, call);
            let fault = match code {
                Code::DeadlineExceeded => Fault::DeadlinePassed { executed },
                _ => Fault::Cancelled { executed },
            };
            self.fail(turn, child, fault);
        }
    }

    /// Removes a call and everything that names it.
    pub(crate) fn forget(&mut self, key: CallKey) {
        let Self { calls, owners } = self;
        let released = calls.put_by_without(key, |call| owners.leave((key, call)));
        self.forget_released(key, released);
    }

    /// A call is gone, if it was there: what it has given back goes where it belongs.
    #[inline(always)]
    fn forget_released(&mut self, key: CallKey, released: Option<ReleasedParts>) {
        let Some(ReleasedParts { policies, timer, parent, subtree }) = released else { return };
        self.owners.samples.forget(key);
        if let Some(policies) = policies
            && let Some(timer) = self.owners.admission.dismiss(key.to_bits(), policies, None)
        {
            self.owners.timers.cancel(timer);
        }
        if let Some(timer) = timer {
            self.owners.timers.cancel(timer);
        }
        if let Some(parent) = parent.and_then(|parent| self.calls.find_mut(parent)) {
            parent.subtree_below = parent.subtree_below.saturating_add(subtree);
        }
    }
}

/// Whether a fault may be that of the server a call was given to: not what its caller or an operator has asked for, as
/// answers above a limit of the caller's are. A message that does not go on is.
fn is_of_server(fault: &Fault) -> bool {
    let is_stalled = matches!(fault, Fault::Limit { name, .. } if *name == STALLED);
    is_stalled || !matches!(fault.blame(), Blame::Caller | Blame::Operator)
}
