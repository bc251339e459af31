//! The owner of the sessions.

use crate::call::{Call, Calls};
use crate::heaps::Heaps;
use crate::held::{HeldBudget, HeldFull};
use crate::invariants::Invariants;
use crate::limits::{ANSWERS, Limits};
use crate::registry::MethodKey;
use crate::session::{Route, Session, ToldLimits, delivered_by};
use crate::session_fault::SessionFault;
use crate::shard::ShardIndex;
use crate::shared_room::SharedRoom;
use crate::snapshot::{SLOTS_PER_PART, SessionRow, TableRows};
use crate::table::Table;
use crate::{CallKey, SessionKey};
use std::collections::VecDeque;
use std::sync::Arc;
use trunkline_call::entry::{Completion, Span};
use trunkline_call::{CallId, Fault};

const COUNTED: &str = "a session's items wait counted";
/// Calls of a session that are booked at once.
const CALLS_BOOKED: usize = 64;

/// The sessions attached to this shard.
#[derive(Debug, Default)]
pub(crate) struct SessionEnds {
    table: Table<Session>,
    /// Those with something in their outbox.
    completing: VecDeque<SessionKey>,
    /// Those that are gone and whose heap no connection reads any more.
    retired: Vec<SessionKey>,
    /// Receive blocks nobody will fill any more.
    abandoned: Vec<(SessionKey, u32)>,
}

/// What of them is handed over.
#[derive(Debug)]
pub(crate) struct ExportedSessions<'a> {
    pub table: &'a Table<Session>,
    pub retired: &'a [SessionKey],
    pub abandoned: &'a [(SessionKey, u32)],
}

/// What a session had that has gone.
#[derive(Debug)]
pub(crate) struct PartedSession {
    pub routes: Vec<Route>,
    pub identity: Box<str>,
    /// Calls whose items were on their way to it.
    pub parked: Vec<CallKey>,
}

impl SessionEnds {
    /// Goes on with what was handed over. Who has completions is found by [`SessionEnds::line_up_all`].
    pub fn take_up(
        &mut self,
        table: Table<Session>,
        retired: Vec<SessionKey>,
        abandoned: Vec<(SessionKey, u32)>,
        stream_window_bytes: u32,
    ) {
        *self = Self { table, completing: VecDeque::new(), retired, abandoned };
        // A program of an older version does not say what each session was told: it was its window of all, and the
        // calls that may be made unless an operator says otherwise.
        let calls_max = Limits::default().calls_made_per_session;
        let told = ToldLimits { calls_max, stream_window_bytes };
        let untold = self.table.iter_mut().filter(|(_, session)| session.told == ToldLimits::default());
        untold.for_each(|(_, session)| session.told = told);
    }

    /// What is handed over.
    pub fn export(&self) -> ExportedSessions<'_> {
        let Self { table, retired, abandoned, .. } = self;
        ExportedSessions { table, retired, abandoned }
    }

    /// The largest window that any session was told of, or this: programs of older versions count with one for all.
    pub fn stream_window_told(&self, own: u32) -> u32 {
        self.table.iter().map(|(_, session)| session.told.stream_window_bytes).fold(own, u32::max)
    }

    /// Counts anew whose heaps connections read: each of these once.
    pub fn count_lent(&mut self, lent: impl Iterator<Item = SessionKey>) {
        self.table.iter_mut().for_each(|(_, session)| session.lent = 0);
        for key in lent {
            if let Some(session) = self.table.find_mut(key) {
                session.lent += 1;
            }
        }
    }

    /// Sets the counts of what waits for sessions and arrives for them to zero.
    pub fn reset_counts(&mut self) {
        for (_, session) in self.table.iter_mut() {
            session.parked_bytes = SharedRoom::default();
            (session.answer_bytes, session.arriving_bytes) = (0, 0);
        }
    }

    /// Counts bytes that wait for a session, whatever its limit: those of a large answer that it does not read
    /// (`is_answer`), or what waits for its receive heap.
    pub fn count_waiting(&mut self, key: SessionKey, bytes: usize, is_answer: bool) {
        let Some(session) = self.table.find_mut(key) else { return };
        if is_answer {
            session.answer_bytes += bytes;
        } else {
            session.parked_bytes.take_untold(bytes as u64);
        }
    }

    /// The methods that sessions have a route to, once for each route.
    pub fn methods_called(&self) -> impl Iterator<Item = MethodKey> {
        let attached = self.table.iter().filter(|(_, session)| !session.gone);
        attached.flat_map(|(_, session)| session.called().map(|(method, ..)| method))
    }

    /// Takes a session in.
    pub fn insert(&mut self, session: Session) -> SessionKey {
        self.table.insert(session)
    }

    /// Takes a session out.
    pub fn remove(&mut self, key: SessionKey) -> Option<Session> {
        self.table.remove(key)
    }

    /// From now on a session gets nothing any more. `None` if it had gone before.
    pub fn part_with(&mut self, key: SessionKey) -> Option<PartedSession> {
        let session = self.table.find_mut(key).filter(|session| !session.gone)?;
        session.gone = true;
        session.outbox.clear();
        let parked = session.parked.drain().into_iter().chain(session.parked_streams.drain());
        Some(PartedSession {
            routes: std::mem::take(&mut session.routes),
            identity: session.identity.clone(),
            parked: parked.map(|(call, _)| call).collect(),
        })
    }

    /// Takes a session out that is gone, unless a connection reads its heap.
    pub fn retire_if_unlent(&mut self, held: &mut HeldBudget, key: SessionKey) {
        if self.table.find(key).is_some_and(|session| session.gone && session.lent == 0) {
            if let Some(session) = self.table.remove(key) {
                held.leave(session.holding);
            }
            self.retired.push(key);
        }
    }

    /// Whether a session may make another call: not where it has as many as it may (`full`), nor where its user or the
    /// host has as much held as they may.
    #[inline]
    pub fn hold_call(
        &mut self,
        held: &mut HeldBudget,
        key: SessionKey,
        full: Option<usize>,
    ) -> Result<(), Fault> {
        if let Some(limit) = full {
            let name = "calls in flight per session (limits.calls_made_per_session)";
            return Err(Fault::Limit { name, limit: limit as u64 });
        }
        let Some(found) = self.table.find_mut(key) else { return Ok(()) };
        if found.made.len() < found.calls_booked {
            return Ok(());
        }
        let booked = std::mem::replace(&mut found.calls_booked, found.made.len() + CALLS_BOOKED);
        let held_bytes = found.held_bytes();
        held.book(&mut found.holding, held_bytes).map_err(|full| {
            found.calls_booked = booked;
            full.fault()
        })
    }

    /// A session has a call less. What is booked for many more than it makes is given back.
    #[inline]
    pub fn release_call(&mut self, held: &mut HeldBudget, key: SessionKey, id: CallId) {
        let Some(found) = self.table.find_mut(key) else { return };
        found.made.remove(&id);
        let needed = found.made.len() + CALLS_BOOKED;
        if found.calls_booked > needed + CALLS_BOOKED || found.made.is_empty() {
            found.calls_booked = if found.made.is_empty() { 0 } else { needed };
            let held_bytes = found.held_bytes();
            held.settle(&mut found.holding, held_bytes);
        }
    }

    /// A session serves a call from now on, of which so many may be in flight there. For whom it is made, `source`
    /// says.
    #[inline]
    pub fn serve(
        &mut self,
        calls: &Calls,
        (call, key): (CallKey, SessionKey),
        calls_max: u64,
        source: impl FnOnce(&Self) -> Arc<str>,
    ) {
        self.note_served(calls, call, key);
        let Some(found) = self.table.find_mut(key) else { return };
        if found.delivered.take_of_anybodys(1, calls_max) {
            return;
        }
        let source = source(self);
        if let Some(found) = self.table.find_mut(key) {
            found.delivered.take(call, 1, calls_max, || source);
        }
    }

    /// Notes a call among those a session serves; it is counted already.
    #[inline]
    pub fn note_served(&mut self, calls: &Calls, call: CallKey, session: SessionKey) {
        if let Some(found) = self.table.find_mut(session) {
            let is_its = |call| calls.find(call).is_some_and(|call| call.handler() == Some(session));
            found.served.enter(call, is_its);
        }
    }

    /// Messages of streams were placed in a session's receive heap.
    #[inline]
    pub fn streams_hold_more(&mut self, key: SessionKey, bytes: u64) {
        if let Some(session) = self.table.find_mut(key) {
            session.stream_bytes += bytes;
        }
    }

    /// Messages of streams were released, or their calls have ended.
    pub fn streams_hold_less(&mut self, invariants: &mut Invariants, key: SessionKey, bytes: u64) {
        if let Some(session) = self.table.find_mut(key) {
            let stream_bytes = session.stream_bytes.checked_sub(bytes);
            session.stream_bytes = invariants.left(stream_bytes, "a stream's messages lie in a heap counted");
        }
    }

    /// An item of so many bytes waits for a session's receive heap, which the daemon holds for it meanwhile.
    ///
    /// # Errors
    /// More waits there already than may; for whom, `source` says.
    pub fn hold_waiting(
        &mut self,
        held: &mut HeldBudget,
        (call, key): (CallKey, SessionKey),
        bytes: u64,
        bytes_max: u64,
        source: impl FnOnce(&Self) -> Arc<str>,
    ) -> Result<(), Fault> {
        let Some(found) = self.table.find(key).filter(|_| bytes > 0) else { return Ok(()) };
        // Known only where somebody may have too much.
        let source = (!found.parked_bytes.is_anybodys(bytes, bytes_max)).then(|| source(self));
        let source = || source.clone().unwrap_or_default();
        if !found.parked_bytes.has_room(bytes, bytes_max, source) {
            return Err(Fault::Limit {
                name: "bytes waiting for a full receive heap (limits.parked_bytes_per_session)",
                limit: bytes_max,
            });
        }
        let Some(session) = self.table.find_mut(key) else { return Ok(()) };
        let held_bytes = session.held_bytes() + bytes;
        held.book(&mut session.holding, held_bytes).map_err(HeldFull::fault)?;
        session.parked_bytes.take(call, bytes, bytes_max, source);
        Ok(())
    }

    /// A large answer of so many bytes waits for a session to read others. Whether it does so there.
    ///
    /// # Errors
    /// More waits there already than may.
    pub fn hold_answer(
        &mut self,
        held: &mut HeldBudget,
        key: SessionKey,
        bytes: usize,
        bytes_max: usize,
    ) -> Result<bool, Fault> {
        let Some(session) = self.table.find_mut(key) else { return Ok(false) };
        let answer_bytes = session.answer_bytes + bytes;
        if answer_bytes > bytes_max {
            return Err(Fault::Limit { name: ANSWERS, limit: bytes_max as u64 });
        }
        let held_bytes = session.held_bytes() + bytes as u64;
        held.book(&mut session.holding, held_bytes).map_err(HeldFull::fault)?;
        session.answer_bytes = answer_bytes;
        Ok(true)
    }

    /// An item that was held so waits no more.
    pub fn release_waiting(
        &mut self,
        (held, invariants): (&mut HeldBudget, &mut Invariants),
        (call, key): (CallKey, SessionKey),
        bytes: u64,
    ) {
        let Some(session) = self.table.find_mut(key) else { return };
        invariants.left(session.parked_bytes.used().checked_sub(bytes), COUNTED);
        session.parked_bytes.give_back(call, bytes);
        let held_bytes = session.held_bytes();
        held.settle(&mut session.holding, held_bytes);
    }

    /// A large answer that was held so waits no more.
    pub fn release_answer(
        &mut self,
        (held, invariants): (&mut HeldBudget, &mut Invariants),
        key: SessionKey,
        bytes: usize,
    ) {
        let Some(session) = self.table.find_mut(key) else { return };
        session.answer_bytes = invariants.left(session.answer_bytes.checked_sub(bytes), COUNTED);
        let held_bytes = session.held_bytes();
        held.settle(&mut session.holding, held_bytes);
    }

    /// Queues a completion and puts the session in line for the host.
    #[inline(always)]
    pub fn complete(&mut self, key: SessionKey, completion: Completion) {
        if let Some(session) = self.table.find_mut(key) {
            let was_empty = session.outbox.is_empty();
            session.complete(completion);
            if was_empty && !session.outbox.is_empty() {
                self.completing.push_back(key);
            }
        }
    }

    /// Returns a send block to its session.
    #[inline(always)]
    pub fn give_back(&mut self, key: SessionKey, span: Span) {
        if let Some(session) = self.table.find_mut(key) {
            let was_empty = session.outbox.is_empty();
            session.give_back(span);
            if was_empty && !session.outbox.is_empty() {
                self.completing.push_back(key);
            }
        }
    }

    /// Tells all that no new calls are taken.
    pub fn go_away(&mut self) {
        for (_, session) in self.table.iter_mut() {
            session.complete(Completion::GoAway);
        }
        self.completing.extend(self.table.iter().map(|(key, _)| key));
    }

    /// Puts a session in line that has brought completions along.
    pub fn line_up(&mut self, key: SessionKey) {
        if self.has_completions(key) {
            self.completing.push_back(key);
        }
    }

    /// Puts every session in line that has completions, and no other.
    pub fn line_up_all(&mut self) {
        let waiting = self.table.iter().filter(|(_, session)| !session.outbox.is_empty());
        self.completing = waiting.map(|(key, _)| key).collect();
    }

    /// Nobody will fill these receive blocks any more.
    pub fn abandon(&mut self, blocks: impl IntoIterator<Item = (SessionKey, u32)>) {
        self.abandoned.extend(blocks);
    }

    /// Gives blocks back to their heaps that nobody will fill any more.
    #[inline]
    pub fn discard_abandoned(&mut self, heaps: &mut dyn Heaps) {
        if self.abandoned.is_empty() {
            return;
        }
        for (session, offset) in self.abandoned.drain(..) {
            heaps.discard(session, offset);
        }
    }

    /// A session whose outbox has something.
    pub fn poll_completing(&mut self) -> Option<SessionKey> {
        self.completing.pop_front()
    }

    /// A session's next completion.
    pub fn poll_completion(&mut self, key: SessionKey) -> Option<Completion> {
        self.table.find_mut(key)?.outbox.pop_front()
    }

    /// A completion had no room in the ring.
    pub fn completion_blocked(&mut self, key: SessionKey, completion: Completion) {
        if let Some(found) = self.table.find_mut(key) {
            found.outbox.push_front(completion);
        }
    }

    /// A session that is gone and whose heaps nobody reads any more.
    pub fn poll_retired(&mut self) -> Option<SessionKey> {
        self.retired.pop()
    }

    /// A session that has not gone.
    ///
    /// # Errors
    /// It has.
    #[inline]
    pub fn attached(&self, key: SessionKey) -> Result<&Session, SessionFault> {
        self.table.find(key).filter(|session| !session.gone).ok_or(SessionFault::Gone)
    }

    /// The same, to be changed.
    #[inline]
    pub fn attached_mut(&mut self, key: SessionKey) -> Result<&mut Session, SessionFault> {
        self.table.find_mut(key).filter(|session| !session.gone).ok_or(SessionFault::Gone)
    }

    /// A session, gone or not.
    #[inline]
    pub fn find(&self, key: SessionKey) -> Option<&Session> {
        self.table.find(key)
    }

    /// The same, to be changed.
    #[inline]
    pub fn find_mut(&mut self, key: SessionKey) -> Option<&mut Session> {
        self.table.find_mut(key)
    }

    /// Every session, in the order of slots.
    pub fn iter(&self) -> impl Iterator<Item = (SessionKey, &Session)> {
        self.table.iter()
    }

    /// The same, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (SessionKey, &mut Session)> {
        self.table.iter_mut()
    }

    /// What operators see of those in the next slots.
    pub fn snapshot(&self, from: usize) -> TableRows<SessionRow> {
        let (sessions, left) = self.table.part(from, SLOTS_PER_PART);
        let attached = sessions.filter(|(_, session)| !session.gone);
        TableRows::of((attached.map(|(key, session)| session.row(key)), left))
    }

    /// Completions of a session that wait for room in its ring.
    pub fn completions_waiting(&self, key: SessionKey) -> usize {
        self.table.find(key).map_or(0, |session| session.outbox.len())
    }

    /// Whether there are any.
    pub fn has_completions(&self, key: SessionKey) -> bool {
        self.completions_waiting(key) > 0
    }

    /// The call a session made under `id`, while it is not concluded.
    #[inline]
    pub fn made_key(&self, key: SessionKey, id: CallId) -> Option<CallKey> {
        self.table.find(key)?.made.get(&id).copied()
    }

    /// The call this shard (`own`) has delivered to a session under `id`, if it still is.
    #[inline]
    pub fn delivered_to<'c>(
        &self,
        calls: &'c Calls,
        own: ShardIndex,
        session: SessionKey,
        id: CallId,
    ) -> Option<(CallKey, &'c Call)> {
        let key = self.delivered_as(own, session, id)?;
        let call = calls.find(key).filter(|call| call.handler() == Some(session))?;
        Some((key, call))
    }

    /// The call that this shard would have delivered to a session under `id`: it is so if that handles it.
    #[inline]
    pub fn delivered_as(&self, own: ShardIndex, session: SessionKey, id: CallId) -> Option<CallKey> {
        if !id.is_delivered() {
            return None;
        }
        let brought = self.table.find(session)?.brought.get(&id);
        Some(brought.copied().unwrap_or_else(|| delivered_by(own, id)))
    }

    /// Every call one of whose ends is this session, in the order of their slots: by the lists it has, whatever others
    /// have.
    pub fn calls_of(&self, calls: &Calls, key: SessionKey) -> Vec<CallKey> {
        let Some(session) = self.table.find(key) else { return Vec::new() };
        let known = session.made.values().copied().chain(session.served.iter());
        let is_its = |call: &CallKey| calls.find(*call).is_some_and(|call| call.is_of(key));
        let mut found: Vec<CallKey> = known.filter(is_its).collect();
        found.sort_unstable_by_key(|call| call.index());
        found.dedup();
        found
    }
}

#[cfg(test)]
mod tests {
    //! Shows that a session is in line once for all it has to be told, and what stays of it when it has gone.
    use super::*;

    #[test]
    fn a_session_is_in_line_once() {
        let mut ends = SessionEnds::default();
        let key = ends.insert(Session::new("a[1]".into(), 4096));
        ends.complete(key, Completion::Drained);
        ends.complete(key, Completion::GoAway);
        assert_eq!((ends.poll_completing(), ends.poll_completing()), (Some(key), None));
        assert_eq!(ends.completions_waiting(key), 2);
        assert!(ends.poll_completion(key).is_some());
        ends.line_up(key);
        assert_eq!(ends.poll_completing(), Some(key));
        ends.line_up_all();
        assert_eq!((ends.poll_completing(), ends.poll_completing()), (Some(key), None));
    }

    #[test]
    fn a_heap_is_dropped_once_nobody_reads_it() {
        let mut ends = SessionEnds::default();
        let mut held = HeldBudget::new(1 << 20, 1 << 20);
        let key = ends.insert(Session::new("a[1]".into(), 4096));
        ends.retire_if_unlent(&mut held, key);
        assert_eq!(ends.poll_retired(), None, "it has not gone");
        ends.find_mut(key).unwrap().lent = 1;
        ends.complete(key, Completion::Drained);
        assert!(ends.part_with(key).is_some_and(|parted| parted.routes.is_empty()));
        assert!(ends.part_with(key).is_none() && ends.attached(key).is_err());
        ends.complete(key, Completion::Drained);
        assert!(!ends.has_completions(key), "nobody hears it");
        ends.retire_if_unlent(&mut held, key);
        assert_eq!(ends.poll_retired(), None, "its heap is read");
        ends.find_mut(key).unwrap().lent = 0;
        ends.retire_if_unlent(&mut held, key);
        assert_eq!((ends.poll_retired(), ends.poll_retired()), (Some(key), None));
        assert!(ends.find(key).is_none());
    }
}
