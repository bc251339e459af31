//! What has to wait before it may go into a session's receive heap.
//!
//! Messages of streams have their shares (`shares.rs`). *Openings* are held by the handlers of their calls, for as long
//! as those like, so they are told apart by who makes the calls: a source may have twice as much of the usual part of
//! the heap as is free there. The first quarter is not told apart, so one alone may have three quarters. What waits
//! does so by source (`parked.rs`), and streams last.

use super::SessionEnds;
use crate::assembly::{Assembly, AssemblyPlace, Shape, is_usual};
use crate::call::{Body, Call, Direction};
use crate::heaps::Heaps;
use crate::invariants::Invariants;
use crate::parked::ParkedLines;
use crate::session::Session;
use crate::shared_room::is_anybodys;
use crate::shares::{ReceiveHeap, Share, Wait, block_bytes};
use crate::{CallKey, SessionKey};
use std::sync::Arc;
use trunkline_call::Encoding;

/// One of the groups of lines in which calls wait for a session's receive heap.
pub(crate) type LinesOf = fn(&mut Session) -> &mut ParkedLines;

/// Bytes of an opening's message that have no place in the receive heap yet.
pub(super) fn bytes_to_place(body: Option<&Body<'_>>) -> u32 {
    match body {
        Some(Body::Placed { .. }) | None => 0,
        Some(body) => body.len(),
    }
}

impl SessionEnds {
    /// What a message of a stream has to wait for before it may go into the receive heap of `to`, however much room
    /// there is. What lies there already waits for nothing.
    pub fn share_awaited(
        &self,
        heaps: &dyn Heaps,
        to: SessionKey,
        share: &Share,
        body: &Body<'_>,
    ) -> Option<Wait> {
        if matches!(body, Body::Placed { .. }) {
            return None;
        }
        self.admit_to_heap(heaps, to, share, body.len())
    }

    fn admit_to_heap(&self, heaps: &dyn Heaps, to: SessionKey, share: &Share, bytes: u32) -> Option<Wait> {
        let heap = ReceiveHeap {
            capacity: heaps.receive_usual(to),
            free: heaps.receive_free(to),
            // Large messages are beside what streams share; which of them are a stream's is not told apart.
            streams: self.find(to)?.stream_bytes.saturating_sub(heaps.receive_large(to).into()),
        };
        share.admit(heap, bytes).err()
    }

    /// Whether an opening may have so many bytes of a receive heap: its source, if they are to be counted.
    #[inline]
    pub fn opening_may_have(
        &self,
        heaps: &dyn Heaps,
        to: SessionKey,
        bytes: u32,
        source: impl FnOnce() -> Arc<str>,
    ) -> Option<Option<Arc<str>>> {
        let (usual, free) = (heaps.receive_usual(to), heaps.receive_free(to));
        let used = usual.saturating_sub(free);
        // Large ones lie beside what the others share.
        if bytes > usual / 2 || is_anybodys(used.into(), bytes.into(), usual.into()) {
            return Some(None);
        }
        self.opening_has_part(to, bytes, free, source()).map(Some)
    }

    #[cold]
    fn opening_has_part(&self, to: SessionKey, bytes: u32, free: u32, source: Arc<str>) -> Option<Arc<str>> {
        let openings = &self.find(to)?.openings;
        // One that holds nothing waits for nothing but room.
        let may = openings.of(&source) == 0 || openings.may_have(bytes.into(), free.into(), &source);
        may.then_some(source)
    }

    /// The blocks of an opening lie in a receive heap.
    #[cold]
    pub fn opening_holds(&mut self, key: CallKey, to: SessionKey, source: Arc<str>, blocks: [u32; 2]) {
        let bytes = blocks.into_iter().filter(|len| *len > 0).map(block_bytes).sum::<u64>();
        if let Some(session) = self.find_mut(to).filter(|_| bytes > 0) {
            session.openings.count(key, bytes, source);
        }
    }

    /// Blocks of an opening were released. Of one whose call has ended nothing is told any more.
    #[inline]
    pub fn opening_is_released(&mut self, key: CallKey, session: SessionKey, blocks: [u32; 2]) {
        // Nearly always nothing is told apart.
        if let Some(session) = self.find_mut(session).filter(|session| !session.openings.is_empty()) {
            let bytes = blocks.into_iter().filter(|len| *len > 0).map(block_bytes).sum();
            session.openings.count_off(key, bytes);
        }
    }

    /// Where a message of a call goes that is arriving: into the receive heap of the session it is meant for, if that
    /// takes it as it comes, it may and there is room.
    pub fn place_for(
        &self,
        heaps: &mut dyn Heaps,
        (call, direction): (&Call, Direction),
        (encoding, total): (Encoding, u32),
        shape: &Shape,
        source: impl FnOnce() -> Arc<str>,
    ) -> AssemblyPlace {
        let private = AssemblyPlace::Private(Vec::new());
        let meant_for = call.taken_as_it_comes(direction, encoding);
        let Some((session, found)) = meant_for.and_then(|key| Some((key, self.find(key)?))) else {
            return private;
        };
        let header_bytes = Body::header_bytes(encoding);
        let bytes = total.saturating_add(header_bytes);
        let is_usual = is_usual(heaps, session, bytes);
        let has_room = !is_usual || found.may_arrive(bytes, heaps.receive_usual(session));
        let share = &call.half_of(direction).share;
        let may = has_room
            && match shape {
                Shape::Message { .. } => self.admit_to_heap(heaps, session, share, total).is_none(),
                Shape::Open { .. } => self.opening_may_have(heaps, session, total, source).is_some(),
                Shape::Finish { .. } => true,
            };
        if may { AssemblyPlace::for_message(heaps, session, header_bytes, total) } else { private }
    }

    /// What a message takes of its session's receive heap is not counted as arriving any more.
    pub fn arrives_no_more(&mut self, invariants: &mut Invariants, assembly: &Assembly) {
        if let Some((session, _)) = assembly.block()
            && let Some(session) = self.find_mut(session)
        {
            session.arrives_no_more(invariants, assembly.counted);
        }
    }

    /// Nobody wants a message any more that is arriving.
    pub fn give_up(&mut self, invariants: &mut Invariants, assembly: &Assembly) {
        self.arrives_no_more(invariants, assembly);
        self.abandon(assembly.block());
    }

    /// A call waits for a session's receive heap, in the line of its source.
    pub fn park(
        &mut self,
        session: SessionKey,
        lines: LinesOf,
        source: Arc<str>,
        entry: (CallKey, Direction),
    ) {
        if let Some(session) = self.find_mut(session) {
            lines(session).push(source, entry);
        }
    }

    /// The next call of these lines to go on, now that there is room.
    pub fn unpark_next(&mut self, session: SessionKey, lines: LinesOf) -> Option<(CallKey, Direction)> {
        self.find_mut(session).and_then(|found| lines(found).pop())
    }

    /// Whether a call that went on has to wait again: then it is the first of its source, as it was.
    pub fn waits_again(&mut self, session: SessionKey, lines: LinesOf, entry: (CallKey, Direction)) -> bool {
        self.find_mut(session).is_some_and(|found| lines(found).waits_again(entry))
    }

    /// Every source of these lines has been looked at that is to be. Whether nobody waits in them.
    pub fn end_round(&mut self, session: SessionKey, lines: LinesOf) -> bool {
        let Some(lines) = self.find_mut(session).map(lines) else { return false };
        lines.end_round();
        lines.len() == 0
    }
}
