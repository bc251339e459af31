//! Who waits for room: in the ring, in the send heap, or among the calls a session may have in flight.

use super::state::Asker;
use std::collections::VecDeque;
use std::task::Waker;

/// What there was no room in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// The submission ring is full.
    Ring,
    /// The send heap has no block that large.
    Heap,
    /// As many calls are in flight as the daemon allows.
    Calls,
}

/// A place in a [`RoomQueue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

/// First come, first served: whoever finds others waiting joins the end, so that a large message is not overtaken by
/// small ones for ever. One freed place wakes one waiter, and a waiter that leaves (served or not) passes its turn
/// on, so that one event is enough when it made room for several.
#[derive(Debug, Default)]
pub(crate) struct RoomQueue {
    waiting: VecDeque<Waiting>,
    next_ticket: u64,
}

#[derive(Debug)]
struct Waiting {
    ticket: u64,
    waker: Waker,
    foreign: bool,
}

impl RoomQueue {
    /// A place at the end, not yet waited in.
    pub(crate) fn join(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket)
    }

    /// Waits in the place of `ticket`. A place keeps its order also when it is waited in again.
    pub(crate) fn park(&mut self, ticket: Ticket, asker: Asker<'_>, foreign: &mut u32) {
        let place = self.waiting.partition_point(|waiting| waiting.ticket < ticket.0);
        let waker = asker.waker.clone();
        match self.waiting.get_mut(place).filter(|waiting| waiting.ticket == ticket.0) {
            Some(waiting) => {
                *foreign = *foreign + u32::from(asker.foreign) - u32::from(waiting.foreign);
                (waiting.waker, waiting.foreign) = (waker, asker.foreign);
            }
            None => {
                *foreign += u32::from(asker.foreign);
                self.waiting.insert(place, Waiting { ticket: ticket.0, waker, foreign: asker.foreign });
            }
        }
    }

    /// Whether somebody waits before this place.
    pub(crate) fn is_behind(&self, ticket: Ticket) -> bool {
        self.waiting.front().is_some_and(|first| first.ticket < ticket.0)
    }

    /// Whether the place is still waited in: not woken yet.
    pub(crate) fn is_parked(&self, ticket: Ticket) -> bool {
        self.waiting.binary_search_by_key(&ticket.0, |waiting| waiting.ticket).is_ok()
    }

    /// Takes the first waiter out, to be woken.
    pub(crate) fn next(&mut self, foreign: &mut u32) -> Option<Waker> {
        let first = self.waiting.pop_front()?;
        *foreign -= u32::from(first.foreign);
        Some(first.waker)
    }

    /// Gives a place up. `false`: it had been woken, and its turn is to be passed on.
    pub(crate) fn leave(&mut self, ticket: Ticket, foreign: &mut u32) -> bool {
        let Ok(place) = self.waiting.binary_search_by_key(&ticket.0, |waiting| waiting.ticket) else {
            return false;
        };
        if let Some(waiting) = self.waiting.remove(place) {
            *foreign -= u32::from(waiting.foreign);
        }
        true
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    //! Shows that places are served in order, also those that had to wait again, and that foreign waiters are counted.
    use super::*;

    #[test]
    fn a_waiter_that_must_wait_again_keeps_its_place() {
        let mut queue = RoomQueue::default();
        let mut foreign = 0;
        let abroad = Asker { waker: Waker::noop(), foreign: true };
        let at_home = Asker { waker: Waker::noop(), foreign: false };
        let [first, second] = [queue.join(), queue.join()];
        queue.park(first, abroad, &mut foreign);
        queue.park(first, abroad, &mut foreign);
        queue.park(second, at_home, &mut foreign);
        assert_eq!(foreign, 1, "counted once");
        assert!(queue.next(&mut foreign).is_some());
        assert_eq!((foreign, queue.is_parked(first)), (0, false));
        queue.park(first, abroad, &mut foreign);
        assert!(queue.leave(second, &mut foreign));
        assert!(!queue.leave(second, &mut foreign), "gone already: the turn passes on");
        assert_eq!(foreign, 1);
        assert!(queue.next(&mut foreign).is_some(), "the first kept its place");
        assert!(queue.is_empty());
    }
}
