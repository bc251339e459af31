//! Who waits for a place in the ring, a block of the send heap, or leave to make another call.

use super::effects::Effects;
use super::state::Asker;
use std::collections::VecDeque;
use std::task::Waker;

/// What there was none of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    /// The submission ring is full.
    Ring,
    /// The send heap has no block that large.
    Heap,
    /// As many calls are in flight as the daemon allows.
    Calls,
}

/// A place in the queue for one resource.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueuePlace {
    pub(crate) resource: Resource,
    pub(crate) ticket: Ticket,
    /// For [`Resource::Heap`]: the block that was not to be had.
    pub(crate) wanted_bytes: u32,
}

/// Number of a place in a [`WaitQueue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

/// The queues, one for each resource.
#[derive(Debug, Default)]
pub(super) struct WaitQueues {
    ring: WaitQueue,
    heap: WaitQueue,
    calls: WaitQueue,
    /// Waiting tasks whose threads do not drain this session.
    foreign: u32,
}

/// First come, first served: whoever finds others waiting for leave to call or for the ring joins the end. Of the send
/// heap that is true of those who wait only: who finds a block there takes it, so that large messages may wait long in
/// a heap that small ones keep full. One freed place wakes one waiter, and a waiter that leaves (served or not) passes
/// its turn on, so that one event is enough when it made space for several.
#[derive(Debug, Default)]
struct WaitQueue {
    waiting: VecDeque<Waiting>,
    next_ticket: u64,
}

#[derive(Debug)]
struct Waiting {
    ticket: u64,
    waker: Waker,
    foreign: bool,
}

impl WaitQueues {
    /// A place at the end, not yet waited in.
    pub(super) fn join(&mut self, resource: Resource) -> Ticket {
        let queue = self.of(resource);
        queue.next_ticket += 1;
        Ticket(queue.next_ticket)
    }

    /// Waits in a place. It keeps its order also when it is waited in again.
    pub(super) fn park(&mut self, place: QueuePlace, asker: Asker<'_>) {
        let before = self.of(place.resource).park(place.ticket, asker);
        self.foreign = self.foreign + u32::from(asker.foreign) - u32::from(before);
    }

    /// Whether somebody waits before this place.
    pub(super) fn is_behind(&mut self, place: QueuePlace) -> bool {
        self.of(place.resource).waiting.front().is_some_and(|first| first.ticket < place.ticket.0)
    }

    /// Whether the place is still waited in: not woken yet.
    pub(super) fn is_parked(&mut self, place: QueuePlace) -> bool {
        self.of(place.resource).find(place.ticket).is_ok()
    }

    /// Wakes the first who waits for this.
    pub(super) fn wake_next(&mut self, resource: Resource, effects: &mut Effects) {
        if let Some(first) = self.of(resource).waiting.pop_front() {
            self.foreign -= u32::from(first.foreign);
            effects.wakes.push(first.waker);
        }
    }

    /// Gives a place up. If it had been woken, its turn passes on.
    pub(super) fn leave(&mut self, place: QueuePlace, effects: &mut Effects) {
        let queue = self.of(place.resource);
        match queue.find(place.ticket).ok().and_then(|at| queue.waiting.remove(at)) {
            Some(waiting) => self.foreign -= u32::from(waiting.foreign),
            None => self.wake_next(place.resource, effects),
        }
    }

    /// Wakes everybody: the session is over.
    pub(super) fn wake_all(&mut self, effects: &mut Effects) {
        for resource in [Resource::Ring, Resource::Heap, Resource::Calls] {
            while self.is_awaited(resource) {
                self.wake_next(resource, effects);
            }
        }
    }

    /// Whether somebody waits for this already, so that a newcomer must not barge in.
    pub(super) fn is_awaited(&self, resource: Resource) -> bool {
        let queue = match resource {
            Resource::Ring => &self.ring,
            Resource::Heap => &self.heap,
            Resource::Calls => &self.calls,
        };
        !queue.waiting.is_empty()
    }

    /// Tasks that wait here and whose threads do not drain this session.
    pub(super) fn foreign(&self) -> u32 {
        self.foreign
    }

    fn of(&mut self, resource: Resource) -> &mut WaitQueue {
        match resource {
            Resource::Ring => &mut self.ring,
            Resource::Heap => &mut self.heap,
            Resource::Calls => &mut self.calls,
        }
    }
}

impl WaitQueue {
    /// Tells whether a foreign asker waited in that place before.
    fn park(&mut self, ticket: Ticket, asker: Asker<'_>) -> bool {
        let waiting = Waiting { ticket: ticket.0, waker: asker.waker.clone(), foreign: asker.foreign };
        match self.find(ticket) {
            Ok(at) => std::mem::replace(&mut self.waiting[at], waiting).foreign,
            Err(at) => {
                self.waiting.insert(at, waiting);
                false
            }
        }
    }

    fn find(&self, ticket: Ticket) -> Result<usize, usize> {
        self.waiting.binary_search_by_key(&ticket.0, |waiting| waiting.ticket)
    }
}

#[cfg(test)]
mod tests {
    //! Shows that places are served in order, also those that had to wait again, and that foreign waiters are counted.
    use super::*;

    #[test]
    fn a_waiter_that_must_wait_again_keeps_its_place() {
        let (mut queues, mut effects) = (WaitQueues::default(), Effects::default());
        let mut woken = |queues: &mut WaitQueues, act: &dyn Fn(&mut WaitQueues, &mut Effects)| {
            act(queues, &mut effects);
            std::mem::take(&mut effects.wakes).len()
        };
        let abroad = Asker { waker: Waker::noop(), foreign: true };
        let at_home = Asker { waker: Waker::noop(), foreign: false };
        let [first, second] = [(); 2].map(|()| QueuePlace {
            resource: Resource::Heap,
            ticket: queues.join(Resource::Heap),
            wanted_bytes: 0,
        });
        queues.park(first, abroad);
        queues.park(first, abroad);
        queues.park(second, at_home);
        assert_eq!(queues.foreign(), 1, "counted once");
        assert_eq!(woken(&mut queues, &|queues, effects| queues.wake_next(Resource::Heap, effects)), 1);
        assert_eq!((queues.foreign(), queues.is_parked(first)), (0, false));
        queues.park(first, abroad);
        assert_eq!(woken(&mut queues, &|queues, effects| queues.leave(second, effects)), 0);
        assert_eq!(queues.foreign(), 1);
        let gone = woken(&mut queues, &|queues, effects| queues.leave(second, effects));
        assert_eq!(gone, 1, "gone already: the turn passes on, and the first kept its place");
        assert!(!queues.is_awaited(Resource::Heap));
        assert_eq!(queues.foreign(), 0);
    }
}
