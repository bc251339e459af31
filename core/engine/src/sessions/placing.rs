//! Items in a session's receive heap: what of them is where, and what is noted of a message that was placed or was not.

use crate::call::{Body, Call, Direction};
use crate::convert_error::{ConvertError, conversion_fault};
use crate::ends::{Blocker, Refusal};
use crate::engine::Turn;
use crate::half::Half;
use crate::heaps::Heaps;
use crate::shares::Wait;
use crate::{SessionFault, SessionKey};
use trunkline_call::entry::{Payload, Span};

/// The application says a message lies there: that must be in its send heap.
pub(super) fn claim(
    turn: &Turn<'_>,
    session: SessionKey,
    payload: Option<Payload>,
) -> Result<(), SessionFault> {
    match payload {
        Some(payload) if !turn.heaps.send_heap_contains(session, payload.span) => {
            Err(SessionFault::OutsideHeap(payload.span))
        }
        _ => Ok(()),
    }
}

/// Where the bytes of an item lie in the destination's receive heap.
pub(super) struct PlacedItem {
    pub payload: Option<Payload>,
    pub metadata: Span,
}

/// Writes metadata into a block of its own; nothing for none. `None` when there is no room.
pub(super) fn place_metadata(turn: &mut Turn<'_>, to: SessionKey, metadata: &[u8]) -> Option<Span> {
    if metadata.is_empty() {
        return Some(Span::default());
    }
    let len = metadata.len() as u32;
    let span = Span { offset: turn.heaps.allocate(to, len)?, len };
    turn.heaps.receive_block(to, span).copy_from_slice(metadata);
    Some(span)
}

/// Metadata that lies in a receive heap is complete, if there is any.
pub(super) fn publish(turn: &mut Turn<'_>, to: SessionKey, metadata: Span) {
    if metadata.len != 0 {
        turn.heaps.publish(to, metadata);
    }
}

/// Notes what the receiver must release before the sender may send as much again; nothing for what comes with the end.
/// How much more messages of streams hold of the heap of `to`, if it is one of a stream.
#[inline(always)]
pub(super) fn note_passed(
    call: &mut Call,
    to: SessionKey,
    direction: Direction,
    (body, is_end): (&Body<'_>, bool),
    payload: Payload,
) -> Option<u64> {
    let streams = !is_end && call.streams(direction);
    let half = call.half(direction);
    half.count(body.len());
    if !streams {
        return None;
    }
    half.expect_release(body.window_cost(), payload.block().len);
    Some(half.share.hold(to, payload.block().len))
}

/// Whether a message waits for room that is not there yet: it is not converted in vain each time that some is made.
#[inline]
pub(super) fn awaits_room(heaps: &mut dyn Heaps, to: SessionKey, half: &mut Half) -> bool {
    let wanted = half.room_wanted;
    if wanted == 0 {
        return false;
    }
    // Another receiver's heap may be smaller, and says so itself.
    if wanted <= heaps.receive_capacity(to) {
        match heaps.allocate(to, wanted) {
            Some(offset) => heaps.discard(to, offset),
            None => return true,
        }
    }
    half.room_wanted = 0;
    false
}

/// What a message of a stream waits for before it may go into the receive heap of `to`.
pub(super) fn blocker_of_stream(wait: Wait, to: SessionKey) -> Blocker {
    match wait {
        Wait::Streams => Blocker::Streams(to),
        Wait::Share => Blocker::Share,
    }
}

/// Why a message has no place in a session's receive heap; for how much room it waits is noted.
pub(super) fn unplaced(
    half: Option<&mut Half>,
    to: SessionKey,
    direction: Direction,
    error: ConvertError,
) -> Refusal {
    let ConvertError::NoRoom { wanted, .. } = error else {
        return Refusal::Fault(conversion_fault(error, direction));
    };
    if let Some(half) = half {
        half.room_wanted = wanted;
    }
    Refusal::Blocked(Blocker::Session(to))
}
