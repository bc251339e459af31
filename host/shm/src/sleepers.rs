//! Who of a session's threads sleeps for how long: leader, followers, listener.
//!
//! Several threads may wait for entries of one ring. One of them, the *leader*, drains it; the others are *followers*
//! and sleep until they are woken (leader/followers: Schmidt et al., POSA 2, 2000). A *listener* waits on behalf of
//! tasks that have no thread of their own. Some things nobody rings for: room in a full ring, a deadline that a daemon
//! which has stopped does not enforce. Somebody has to look at them by the clock, and soon enough. This type decides
//! who: the leader, or the listener, whenever it goes to sleep; and a follower that brings such a thing while the
//! leader already sleeps for longer than that makes the leader think again, after having slept as long as the thing
//! can wait itself (most calls are answered before that, and then nobody is woken for them).
//!
//! It holds no lock and no clock; whoever owns it calls it under the lock that guards what is waited for. That lock is
//! what makes it right: what a follower brings is there before it asks how the leader sleeps, and the leader looks at
//! what is there before it writes down how it sleeps. `tests/loom_sleepers.rs` runs it with a full ring, a leader
//! asleep and a daemon that says nothing.

/// Sleeping threads of a session, each named by a `K` that wakes it.
#[derive(Debug)]
pub struct Sleepers<K> {
    followers: Vec<K>,
    /// The last leader that went to sleep, until somebody had to wake it. One that is awake again may still stand
    /// here: waking it once more does no harm, and it writes itself down anew before it sleeps.
    leader: Option<Asleep<K>>,
    /// How long the listener said it would sleep at most.
    listener_ns: Option<u64>,
}

#[derive(Debug)]
struct Asleep<K> {
    wakes: K,
    /// `None`: until it is woken.
    timeout_ns: Option<u64>,
}

impl<K> Default for Sleepers<K> {
    fn default() -> Self {
        Self { followers: Vec::new(), leader: None, listener_ns: None }
    }
}

impl<K> Sleepers<K> {
    /// The leader is about to sleep until woken, or for `due_ns` if something is to be looked at by then.
    pub fn leader_sleeps(&mut self, wakes: K, due_ns: Option<u64>) {
        self.leader = Some(Asleep { wakes, timeout_ns: due_ns });
    }

    /// The listener is about to sleep for `due_ns`.
    pub fn listener_sleeps(&mut self, due_ns: Option<u64>) {
        self.listener_ns = due_ns;
    }

    /// Whether the listener, if it sleeps, sleeps longer than until something is due.
    #[must_use]
    pub fn listener_oversleeps(&self, due_ns: Option<u64>) -> bool {
        is_longer(self.listener_ns, due_ns)
    }

    /// A thread follows, from now until [`Sleepers::unfollow`] or until it is chosen to lead. Tells how long it may
    /// sleep; when that has passed it asks [`Sleepers::oversleeper`].
    #[must_use]
    pub fn follow(&mut self, wakes: K, due_ns: Option<u64>) -> Option<u64> {
        self.followers.push(wakes);
        let leader = self.leader.as_ref()?;
        if is_longer(leader.timeout_ns, due_ns) { due_ns } else { None }
    }

    /// A thread no longer follows. Does nothing if it was chosen to lead.
    pub fn unfollow(&mut self, is_it: impl Fn(&K) -> bool) {
        self.followers.retain(|follower| !is_it(follower));
    }

    /// The leader, to be woken, if it sleeps longer than until something is due: it will look at what is due before it
    /// sleeps again.
    #[must_use]
    pub fn oversleeper(&mut self, due_ns: Option<u64>) -> Option<K> {
        let leader = self.leader.as_ref()?;
        if is_longer(leader.timeout_ns, due_ns) {
            self.leader.take().map(|leader| leader.wakes)
        } else {
            None
        }
    }

    /// A follower, to be woken and to lead. It follows no longer.
    pub fn next_leader(&mut self) -> Option<K> {
        self.followers.pop()
    }

    /// Everybody who follows, to be woken: there is nothing to wait for any more.
    pub fn dismiss(&mut self) -> impl Iterator<Item = K> + '_ {
        self.followers.drain(..)
    }

    /// Whether some thread follows.
    #[must_use]
    pub fn has_followers(&self) -> bool {
        self.followers() > 0
    }

    /// How many threads follow.
    #[must_use]
    pub fn followers(&self) -> usize {
        self.followers.len()
    }
}

/// Whether a sleep of `timeout_ns` ends after `due_ns`; `None` is never, in both.
fn is_longer(timeout_ns: Option<u64>, due_ns: Option<u64>) -> bool {
    due_ns.is_some_and(|due_ns| timeout_ns.is_none_or(|timeout_ns| timeout_ns > due_ns))
}
