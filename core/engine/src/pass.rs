//! The one way every item takes: in order, or held until it can go; and every way a call can end.
//!
//! The call is found once, and lent with every other owner to what is done with its item (`onward.rs`) and its end
//! (`ending.rs`). What follows for other calls comes back as a value, and is done here. What may come after an attempt
//! that is over, and which takes its call's place, `attempts/` says: such a call ends when there is no other.

use crate::admission::CallPolicies;
use crate::attempts::{end_attempts, execution_so_far, is_answered, take_for_attempts};
use crate::call::{Call, Direction, Item, ServerEnd};
use crate::call_ends::ReleasedParts;
use crate::course::Reshaping;
use crate::due::Due;
use crate::ending::{self, CallEnding, finish_of, is_of_server, status_of};
use crate::ends::{HandedItem, Refusal};
use crate::engine::Engine;
use crate::gather::split;
use crate::in_line::line_up;
use crate::in_vain::name_first_in_vain;
use crate::item::ItemWay;
use crate::judged::{judge_message, judge_opening};
use crate::lent_call::LentCall;
use crate::nested::Nested;
use crate::onward::{self, Onward};
use crate::owners::Owners;
use crate::permit::permit;
use crate::records::progress_of_attempts;
use crate::served_later::go_on_unserved;
use crate::shard::{self, ShardStage};
use crate::source::CallSources;
use crate::start::{self, Begun};
use crate::target::Target;
use crate::traced::open_spans;
use crate::turn::Turn;
use crate::{CallKey, SessionKey};
use trunkline_call::{Code, Fault, Instant, Status};
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
        let Self { calls, owners } = self;
        let Some(mut lent) = LentCall::of(calls, key) else { return owners.drop_item(item) };
        let onward = onward::pass(owners, turn, &mut lent, direction, item);
        self.go_onward(turn, ItemWay { key, direction }, item, onward);
    }

    /// Sends an item along its call. It is handed over now, or waits behind those that wait already.
    pub(crate) fn pass_on(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        direction: Direction,
        item: &mut Item<'_>,
    ) {
        let Self { calls, owners } = self;
        let Some(mut lent) = LentCall::of(calls, key) else { return owners.drop_item(item) };
        let onward = onward::pass_on(owners, turn, &mut lent, direction, item);
        self.go_onward(turn, ItemWay { key, direction }, item, onward);
    }

    /// Finds the server end of a new call and sends its opening item on the way.
    pub(crate) fn start(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        target: Target,
        opening: &mut Item<'_>,
    ) {
        let Self { calls, owners: Owners { spans, registry, sessions, peers, grpc, .. } } = &mut *self;
        if spans.is_on {
            let sources = CallSources { sessions, peers, grpc };
            open_spans((spans, registry, &sources), calls, key, opening);
        }
        self.begin(turn, key, opening, |owners, turn, lent, opening| {
            start::start(owners, turn, lent, target, opening)
        });
    }

    /// Begins a call, and has the session count it that serves it.
    #[inline(always)]
    fn begin(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        opening: &mut Item<'_>,
        start: impl FnOnce(&mut Owners, &mut Turn<'_>, &mut LentCall<'_>, &mut Item<'_>) -> Begun,
    ) {
        let Self { calls, owners } = self;
        let Some(mut lent) = LentCall::of(calls, key) else { return owners.drop_item(opening) };
        let (onward, handler) = start(owners, turn, &mut lent, opening);
        if let Some(session) = handler {
            owners.count_served(calls, key, session);
        }
        self.go_onward(turn, ItemWay { key, direction: Direction::Request }, opening, onward);
    }

    /// A call begins that has had its server end since its first byte came. Policies are asked about it now.
    #[inline(never)]
    pub(crate) fn open_settled(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        policies: Option<Box<CallPolicies>>,
        opening: &mut Item<'_>,
    ) {
        let Self { calls, owners } = &mut *self;
        let Some(call) = calls.find_mut(key) else { return owners.drop_item(opening) };
        call.policies = policies;
        owners.start_of_call().plan_settled(call);
        match call.policies.take() {
            None => self.pass_on(turn, key, Direction::Request, opening),
            Some(policies) => self.begin(turn, key, opening, |owners, turn, lent, opening| {
                (permit(owners, turn, lent, policies, opening), None)
            }),
        }
    }

    /// A call for the daemon's own, who are between two processes: it waits for the next, if there is room for it.
    #[cold]
    fn start_awaited(&mut self, turn: &mut Turn<'_>, key: CallKey, target: Target, opening: &mut Item<'_>) {
        let Self { calls, owners } = &mut *self;
        let is_waiting = |key| calls.find(key).is_some_and(|call| call.queued.is_some());
        let waits = owners.awaited.admit(key, opening.parked_bytes(), is_waiting);
        self.begin(turn, key, opening, |owners, turn, lent, opening| {
            start::start_awaited(owners, turn, lent, (target, waits), opening)
        });
    }

    /// Another part of a request whose call begins when all of it is there: with the last one it does.
    fn add_part(&mut self, turn: &mut Turn<'_>, key: CallKey, part: &mut Item<'_>) {
        let Self { calls, owners } = &mut *self;
        let Some(call) = calls.find_mut(key) else { return owners.drop_item(part) };
        match onward::join(owners, (key, &mut *call), Direction::Request, part.take()) {
            Ok([Some(mut opening), _]) => {
                let is_made_here = call.maker().is_some() || call.has_moved();
                let kept = call.policies.as_mut().and_then(|policies| policies.begins_at.take());
                let target = kept.unwrap_or(if is_made_here { Target::Anyone } else { Target::Here });
                self.start(turn, key, target, &mut opening);
            }
            Ok(_) => {}
            Err(fault) => self.fail(turn, key, fault),
        }
    }

    /// Begins a call that waited, with whatever has come behind its opening meanwhile; `has_place`: at a worker.
    pub(crate) fn start_with_rest(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        (target, has_place): (Target, bool),
        mut opening: Item<'static>,
    ) {
        let Self { calls, owners } = &mut *self;
        let Some(call) = calls.find_mut(key) else { return owners.drop_item(&mut opening) };
        call.request.ended = false;
        let rest = owners.accounts().take_backlog(key, call, Direction::Request);
        match has_place {
            true => self.begin(turn, key, &mut opening, |owners, turn, lent, opening| {
                start::start_at_worker(owners, turn, lent, target, opening)
            }),
            false => self.start(turn, key, target, &mut opening),
        }
        for mut item in rest {
            self.pass(turn, key, Direction::Request, &mut item);
        }
    }

    /// Does what follows from an item. `false` if it waits now or the call has ended.
    #[inline(always)]
    pub(crate) fn go_onward(
        &mut self,
        turn: &mut Turn<'_>,
        way: ItemWay,
        item: &mut Item<'_>,
        onward: Onward,
    ) -> bool {
        match onward {
            Onward::Handed(HandedItem::Taken) => {}
            Onward::Handed(HandedItem::Served(code)) => self.conclude_served(turn.now, way.key, code),
            Onward::Handed(HandedItem::Left { session, shard, number }) => {
                shard::leave(self, way.key, session, (shard, number));
            }
            rare => return self.go_rarely_onward(turn, way, item, rare),
        }
        // There is nothing in it: nobody needs to look.
        std::mem::forget(onward);
        true
    }

    #[inline(never)]
    fn go_rarely_onward(
        &mut self,
        turn: &mut Turn<'_>,
        way: ItemWay,
        item: &mut Item<'_>,
        onward: Onward,
    ) -> bool {
        match onward {
            Onward::Handed(handed) => return self.go_on_handed(turn, way, item, handed),
            Onward::InLine(blocker) => line_up(self, way, blocker),
            Onward::Rests => {}
            Onward::Fails(fault) => self.fail(turn, way.key, fault),
            Onward::IsPart => self.add_part(turn, way.key, item),
            Onward::IsJudged => judge_message(self, turn, way.key, item),
            Onward::IsOpened(policies) => judge_opening(self, turn, way.key, policies, item),
            Onward::IsAwaited(target) => self.start_awaited(turn, way.key, target, item),
            Onward::IsUnserved(target, fault) => go_on_unserved(self, turn, (way.key, target), item, fault),
            Onward::Changes(reshaping) => self.pass_reshaped(turn, way, item, reshaping),
        }
        false
    }

    /// Does what follows from a hand-over. `false` if the item waits now or the call has ended.
    fn go_on_handed(
        &mut self,
        turn: &mut Turn<'_>,
        way: ItemWay,
        item: &mut Item<'_>,
        handed: HandedItem,
    ) -> bool {
        let key = way.key;
        match handed {
            HandedItem::Taken => {}
            HandedItem::Served(code) => self.conclude_served(turn.now, key, code),
            HandedItem::Over => self.forget(key),
            HandedItem::Left { session, shard, number } => shard::leave(self, key, session, (shard, number)),
            HandedItem::Ends(status) => self.end(turn, key, &status),
            HandedItem::ToAttempts => {
                let taken = take_for_attempts(self, turn, key, item);
                return taken.map_err(|refusal| self.refused(turn, way, item, refusal)).is_ok();
            }
            HandedItem::OfAttempt(call) => {
                if is_answered(self, turn, (call, key), item) {
                    return self.hand_over(turn, key, way.direction, item);
                }
            }
        }
        true
    }

    #[inline(never)]
    fn pass_reshaped(
        &mut self,
        turn: &mut Turn<'_>,
        way: ItemWay,
        item: &mut Item<'_>,
        reshaping: Reshaping,
    ) {
        let Self { calls, owners } = &mut *self;
        let Some(call) = calls.find_mut(way.key) else { return owners.drop_item(item) };
        let shaped = match reshaping {
            Reshaping::Whole => Ok([Some(item.take()), None]),
            Reshaping::Join => onward::join(owners, (way.key, call), way.direction, item.take()),
            Reshaping::Split => Ok(split(item.take())),
        };
        match shaped {
            Ok(shaped) => {
                for mut item in shaped.into_iter().flatten() {
                    let Self { calls, owners } = &mut *self;
                    let Some(mut lent) = LentCall::of(calls, way.key) else {
                        owners.drop_item(&mut item);
                        continue;
                    };
                    let verdict = owners.course().judge_shaped(turn.now, way, lent.call, &item);
                    let onward = onward::carry(owners, turn, &mut lent, way.direction, &mut item, verdict);
                    self.go_onward(turn, way, &mut item, onward);
                }
            }
            Err(fault) => self.fail(turn, way.key, fault),
        }
    }

    /// Goes on with what waits in one direction of a call.
    pub(crate) fn unblock(&mut self, turn: &mut Turn<'_>, key: CallKey, direction: Direction) {
        let way = ItemWay { key, direction };
        loop {
            let Self { calls, owners } = &mut *self;
            let Some(mut lent) = LentCall::of(calls, key) else { return };
            let half = lent.call.half(direction);
            if half.paced_until.is_some_and(|until| owners.admission.pacer().holds(turn.now, until)) {
                return; // its timer comes
            }
            if half.turn_cost_ns().is_some() && !owners.course().has_its_turn(turn.now, way, lent.call) {
                return;
            }
            let half = lent.call.half(direction);
            let Some(mut item) = half.backlog.pop_front() else {
                // What waited as items has gone on: what waits as bytes may follow.
                if let Some(stream) = lent.call.grpc_sender(direction) {
                    self.pump(turn, stream);
                }
                return;
            };
            let had_its_turn = half.paced_until.take().is_some();
            let waited = half.waiting_since.take().map_or(0, |since| turn.now.since_ns(since));
            let for_room = std::mem::take(&mut half.waits_for_room);
            match direction {
                Direction::Request => lent.call.note_request_wait(waited, for_room),
                Direction::Response => lent.call.note_answer_wait(turn.now, waited, had_its_turn),
            }
            owners.accounts().discharge(key, lent.call, direction, &item);
            let onward = match lent.call.policies.as_ref().and_then(|policies| policies.class) {
                Some(class)
                    if !had_its_turn && owners.course().paces(turn.now, way, lent.call, class, &item) =>
                {
                    onward::hold(owners, turn.now, &mut lent, direction, &mut item, true)
                }
                _ => onward::hand_over(owners, turn, &mut lent, direction, &mut item),
            };
            if !self.go_onward(turn, way, &mut item, onward) {
                return;
            }
        }
    }

    /// The timer of a paced item.
    pub(crate) fn paced_due(&mut self, turn: &mut Turn<'_>, key: CallKey, direction: Direction) {
        let Self { calls, owners } = &mut *self;
        let Some(call) = calls.find_mut(key) else { return };
        let waits = call.half_of(direction).turn_cost_ns().is_some();
        if waits && !owners.course().has_its_turn(turn.now, ItemWay { key, direction }, call) {
            return;
        }
        self.unblock(turn, key, direction);
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
        let Self { calls, owners } = self;
        let Some(mut lent) = LentCall::of(calls, key) else {
            owners.drop_item(item);
            return true;
        };
        let onward = onward::hand_over(owners, turn, &mut lent, direction, item);
        self.go_onward(turn, ItemWay { key, direction }, item, onward)
    }

    /// An end would not have an item: it waits now, or the call has ended.
    #[inline(never)]
    pub(crate) fn refused(&mut self, turn: &mut Turn<'_>, way: ItemWay, item: &mut Item<'_>, why: Refusal) {
        let Self { calls, owners } = self;
        let Some(mut lent) = LentCall::of(calls, way.key) else { return owners.drop_item(item) };
        let onward = onward::refused(owners, turn.now, &mut lent, way.direction, item, why);
        self.go_rarely_onward(turn, way, item, onward);
    }

    /// Has an item wait behind those that do.
    pub(crate) fn hold(&mut self, turn: &mut Turn<'_>, way: ItemWay, item: &mut Item<'_>) {
        let Self { calls, owners } = self;
        let Some(mut lent) = LentCall::of(calls, way.key) else { return owners.drop_item(item) };
        let onward = onward::hold(owners, turn.now, &mut lent, way.direction, item, false);
        self.go_rarely_onward(turn, way, item, onward);
    }

    /// One end of a call becomes another: what waits for it is counted where it waits from now on.
    pub(crate) fn change_end(&mut self, key: CallKey, direction: Direction, change: impl FnOnce(&mut Call)) {
        let Self { calls, owners } = self;
        let Some(call) = calls.find_mut(key) else { return };
        let mut accounts = owners.accounts();
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

    /// The infrastructure ends a call: the client end gets the fault's status, the server end is told to stop.
    pub(crate) fn fail(&mut self, turn: &mut Turn<'_>, key: CallKey, fault: Fault) {
        let Self { calls, owners } = self;
        if let Fault::Limit { name, .. } = &fault {
            *owners.limits_met.entry(name).or_default() += 1;
        }
        let Some(mut lent) = LentCall::of(calls, key) else { return };
        let status = status_of(owners, &lent, &fault);
        if !is_of_server(&fault) {
            owners.excuse_server(turn.now, lent.call);
        }
        let outcome = Outcome::of(&status);
        let mut finish = finish_of(&outcome);
        let ending = ending::end(owners, turn, &mut lent, &mut finish);
        self.go_on_ended(turn, key, &mut finish, ending);
    }

    /// The caller does not want the call any more: nobody answers it, the server end is told, children end too.
    pub(crate) fn cancel(&mut self, turn: &mut Turn<'_>, key: CallKey) {
        self.cancel_as(turn, key, Code::Cancelled);
    }

    /// The same, when the caller's side says why: its deadline may have passed there first.
    pub(crate) fn cancel_as(&mut self, turn: &mut Turn<'_>, key: CallKey, code: Code) {
        let Self { calls, owners } = self;
        name_first_in_vain(owners, calls, key);
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
        let Some(executed) = calls.find(key).map(|call| execution_so_far(calls, &owners.peers, call)) else {
            return;
        };
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
                owners.excuse_server(turn.now, call);
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
        let Self { calls, owners } = self;
        let Some(mut lent) = LentCall::of(calls, key) else { return };
        let mut finish = finish_of(outcome);
        let ending = ending::end(owners, turn, &mut lent, &mut finish);
        self.go_on_ended(turn, key, &mut finish, ending);
    }

    /// Does what follows from the end of a call, of which its caller is told so.
    fn go_on_ended(&mut self, turn: &mut Turn<'_>, key: CallKey, finish: &mut Item<'_>, ending: CallEnding) {
        match ending {
            CallEnding::Had => {}
            CallEnding::Told(handed) => self.go_on_told(turn, key, finish, handed),
            CallEnding::Attempts(attempts) => {
                if let Item::Finish { code, .. } = *finish {
                    end_attempts(self, turn, key, &attempts, code);
                }
                let Self { calls, owners } = self;
                let Some(mut lent) = LentCall::of(calls, key) else { return };
                let handed = ending::tell(owners, turn, &mut lent, finish);
                self.go_on_told(turn, key, finish, handed);
            }
        }
    }

    /// Does what follows when a caller was told the end of its call, or an attempt's call is to be.
    fn go_on_told(&mut self, turn: &mut Turn<'_>, key: CallKey, finish: &mut Item<'_>, handed: HandedItem) {
        let HandedItem::OfAttempt(call) = handed else {
            self.go_on_handed(turn, ItemWay { key, direction: Direction::Response }, finish, handed);
            return;
        };
        if is_answered(self, turn, (call, key), finish) {
            let Self { calls, owners } = self;
            let Some(mut lent) = LentCall::of(calls, key) else { return };
            let handed = ending::finish_at_client(owners, turn, &mut lent, finish);
            // An attempt has taken its place: that is none.
            self.go_on_handed(turn, ItemWay { key, direction: Direction::Response }, finish, handed);
        }
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
            let executed = execution_so_far(&self.calls, &self.owners.peers, call);
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
