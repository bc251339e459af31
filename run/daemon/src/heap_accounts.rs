//! How much users have of receive heaps: what lies in them is the daemon's memory, for as long as an application maps
//! them, and the daemon cannot take it back.
//!
//! So a heap counts until the kernel says that nobody else has it any more ([`HeapLease`]), also where its session is
//! over, or another heap has taken its place. That is asked when a limit would refuse something, and every few seconds.
//! Where the kernel does not tell, a heap counts as long as its session has it. Heaps whose sessions ended with an
//! earlier daemon are not known to its successor.

use crate::config::Sessions;
use rustix::fd::AsFd;
use std::collections::HashMap;
use std::sync::Once;
use std::time::{Duration, Instant};
use trunkline_shm::HeapLease;

/// Whose connections are counted together: a user of this host by its number, or an identity by a hash.
pub(crate) type UserKey = u64;

/// How often it is asked whether heaps have been let go.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// A receive heap, as it is counted.
#[derive(Debug, Default)]
pub(crate) struct CountedHeap {
    bytes: u64,
    lease: Option<HeapLease>,
}

/// The heaps of all users.
pub(crate) struct HeapAccounts {
    of_user_max: u64,
    of_all_max: u64,
    users: HashMap<UserKey, UserHeaps>,
    bytes: u64,
    /// Of sessions that are over, and those that others have replaced.
    gone: Vec<(UserKey, CountedHeap)>,
    looked: Instant,
}

/// Those of one user. Kept while there is one.
#[derive(Clone, Copy, Debug, Default)]
struct UserHeaps {
    /// Of all.
    bytes: u64,
    count: usize,
    /// Of those that are gone.
    gone_bytes: u64,
    gone: usize,
}

impl CountedHeap {
    /// Of which nobody is asked whether somebody has it.
    pub fn of_bytes(bytes: u64) -> Self {
        Self { bytes, lease: None }
    }

    /// With the descriptor that an application gets.
    pub fn given(bytes: u64, given: impl AsFd) -> Self {
        static SAID: Once = Once::new();
        let lease = HeapLease::of(given);
        if lease.is_none() {
            SAID.call_once(|| {
                tracing::warn!(
                    "receive heaps of sessions that are over are not counted: no leases (fcntl F_SETLEASE)"
                );
            });
        }
        Self { bytes, lease }
    }

    fn is_held(&self) -> bool {
        self.lease.as_ref().is_some_and(HeapLease::is_held)
    }
}

impl HeapAccounts {
    pub fn new(limits: &Sessions) -> Self {
        Self {
            of_user_max: limits.receive_heap_bytes_of_user_max(),
            of_all_max: limits.receive_heap_bytes_of_all_max(),
            users: HashMap::new(),
            bytes: 0,
            gone: Vec::new(),
            looked: Instant::now(),
        }
    }

    /// A session of a user has this heap.
    pub fn enter(&mut self, user: UserKey, heap: &CountedHeap) {
        let own = self.users.entry(user).or_default();
        own.bytes += heap.bytes;
        own.count += 1;
        self.bytes += heap.bytes;
    }

    /// The session of a heap is over.
    pub fn leave(&mut self, user: UserKey, heap: CountedHeap) {
        if heap.is_held() {
            let own = self.users.entry(user).or_default();
            own.gone_bytes += heap.bytes;
            own.gone += 1;
            self.gone.push((user, heap));
        } else {
            self.forget(user, heap.bytes);
        }
    }

    /// Another heap takes the place of a session's, which the application may have for as long as it likes.
    pub fn replace(&mut self, user: UserKey, heap: &mut CountedHeap, by: CountedHeap) {
        self.enter(user, &by);
        let old = std::mem::replace(heap, by);
        self.leave(user, old);
    }

    /// Whether there may be another heap of so many bytes for a user's new session.
    ///
    /// # Errors
    /// The limit, in a sentence for the application.
    pub fn may_have(&mut self, user: UserKey, heap_bytes: u64) -> Result<(), String> {
        self.fits(user, heap_bytes).or_else(|_| {
            self.look();
            self.fits(user, heap_bytes)
        })
    }

    /// Whether there may be another heap of so many bytes to take the place of a user's. Where the limits are reached
    /// one may at a time, of the user and of all: that memory goes back is worth more.
    pub fn may_replace(&mut self, user: UserKey, heap_bytes: u64) -> bool {
        let may = |all: &Self| {
            let own = all.of(user);
            (own.gone == 0 || own.bytes.saturating_add(heap_bytes) <= all.of_user_max)
                && (all.gone.is_empty() || all.bytes.saturating_add(heap_bytes) <= all.of_all_max)
        };
        may(self) || {
            self.look();
            may(self)
        }
    }

    /// Heaps of which nobody has anything any more count no longer.
    pub fn look(&mut self) {
        self.looked = Instant::now();
        let (held, let_go) = std::mem::take(&mut self.gone).into_iter().partition(|(_, heap)| heap.is_held());
        self.gone = held;
        let let_go: Vec<(UserKey, CountedHeap)> = let_go;
        for (user, heap) in let_go {
            if let Some(own) = self.users.get_mut(&user) {
                own.gone_bytes -= heap.bytes;
                own.gone -= 1;
            }
            self.forget(user, heap.bytes);
        }
    }

    /// The same, if it is time.
    pub fn look_if_due(&mut self) {
        if self.next_look().is_some_and(|at| at <= Instant::now()) {
            self.look();
        }
    }

    /// When it is time.
    pub fn next_look(&self) -> Option<Instant> {
        (!self.gone.is_empty()).then(|| self.looked + LOOK_EVERY)
    }

    /// How many heaps of a user are gone, and how many of all. Each is a descriptor of the daemon.
    pub fn gone(&self, user: UserKey) -> (usize, usize) {
        (self.of(user).gone, self.gone.len())
    }

    /// Whether nothing is counted.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.users.is_empty() && self.gone.is_empty() && self.bytes == 0
    }

    fn of(&self, user: UserKey) -> UserHeaps {
        self.users.get(&user).copied().unwrap_or_default()
    }

    fn forget(&mut self, user: UserKey, bytes: u64) {
        self.bytes -= bytes;
        let Some(own) = self.users.get_mut(&user) else { return };
        own.bytes -= bytes;
        own.count -= 1;
        if own.count == 0 {
            self.users.remove(&user);
        }
    }

    fn fits(&self, user: UserKey, heap_bytes: u64) -> Result<(), String> {
        let own = self.of(user);
        let refuse = |whose: &str, (bytes, gone_bytes): (u64, u64), key: &str, max: u64| {
            let wanted = bytes.saturating_add(heap_bytes);
            let gone = || match gone_bytes {
                0 => String::new(),
                bytes => format!(", {bytes} of them of heaps that are over and that processes still map"),
            };
            let why = || {
                format!(
                    "receive heaps of {whose} would have {wanted} bytes{}; sessions.{key} is {max}",
                    gone()
                )
            };
            if wanted > max { Err(why()) } else { Ok(()) }
        };
        let of_user = (own.bytes, own.gone_bytes);
        refuse("this user's sessions", of_user, "receive_heap_bytes_per_user_max", self.of_user_max)?;
        let of_all = (self.bytes, self.gone.iter().map(|(_, heap)| heap.bytes).sum());
        refuse("all sessions", of_all, "receive_heap_bytes_max", self.of_all_max)
    }
}

#[cfg(test)]
mod tests {
    //! Shows that a heap counts until nobody has it any more.
    use super::*;
    use crate::config::Bytes;
    use rustix::fd::OwnedFd;
    use trunkline_shm::create_receive_heap;

    const HEAP: u64 = 64 << 10;

    fn accounts(heaps: u64) -> HeapAccounts {
        let max = Bytes(heaps * HEAP);
        HeapAccounts::new(&Sessions {
            receive_heap_bytes_max: max,
            receive_heap_bytes_per_user_max: max,
            ..Sessions::default()
        })
    }

    /// A heap and what an application gets of it.
    fn heap() -> (CountedHeap, OwnedFd) {
        let (_, given) = create_receive_heap(HEAP as u32).unwrap();
        (CountedHeap::given(HEAP, &given), given)
    }

    #[test]
    fn a_heap_that_somebody_keeps_counts_when_its_session_is_over() {
        let mut accounts = accounts(3);
        let mut kept = Vec::new();
        for _ in 0..3 {
            accounts.may_have(1, HEAP).unwrap();
            let (heap, given) = heap();
            accounts.enter(1, &heap);
            accounts.leave(1, heap);
            kept.push(given);
        }
        let why = accounts.may_have(1, HEAP).unwrap_err();
        assert!(why.contains("would have 262144 bytes, 196608 of them of heaps that are over"), "{why}");
        assert!(accounts.next_look().is_some());
        kept.pop();
        accounts.may_have(1, HEAP).unwrap();
        assert_eq!(accounts.gone(1), (2, 2));
        drop(kept);
        accounts.look();
        assert!(accounts.is_empty() && accounts.next_look().is_none());
    }

    #[test]
    fn a_heap_that_another_replaces_counts_and_one_may_at_a_time_beyond_the_limits() {
        for room in [1, 2] {
            let mut accounts = accounts(room);
            let (mut current, first) = heap();
            accounts.enter(1, &current);
            assert!(accounts.may_replace(1, HEAP), "room for {room}");
            let (next, _second) = heap();
            accounts.replace(1, &mut current, next);
            assert!(!accounts.may_replace(1, HEAP), "the one before is kept");
            drop(first);
            assert!(accounts.may_replace(1, HEAP), "it was let go");
            accounts.leave(1, current);
        }
    }

    /// As it was before there was a way to ask.
    #[test]
    fn where_the_kernel_does_not_tell_a_heap_counts_as_long_as_its_session() {
        let mut accounts = accounts(1);
        let heap = CountedHeap::of_bytes(HEAP);
        accounts.enter(1, &heap);
        assert!(accounts.may_have(1, HEAP).is_err() && accounts.may_have(2, 0).is_ok());
        accounts.leave(1, heap);
        assert!(accounts.is_empty());
    }
}
