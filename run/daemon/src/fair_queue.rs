//! Who is served next where several users wait: the one whose requests have taken the least time.
//!
//! Start-time fair queueing (Goyal, Vin and Cheng 1996) with what a request took as its cost, since nobody knows that
//! beforehand. Whoever begins to wait has taken as much as the one served last: time spent on nobody is nobody's to
//! claim. Within a user, the items take turns.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::Hash;

/// Items of users. Bounded by whoever puts items in: each of them waits once.
#[derive(Debug)]
pub struct FairQueue<U, T> {
    users: HashMap<U, Waiting<T>>,
    /// Users of whom something waits, by what they have taken.
    order: BTreeSet<(u64, U)>,
    /// What the user served last had taken until then.
    served_ns: u64,
}

#[derive(Debug)]
struct Waiting<T> {
    taken_ns: u64,
    items: VecDeque<T>,
}

/// Users beyond which half of those are forgotten of whom nothing waits: who have taken least.
const REMEMBERED_MAX: usize = 1024;

impl<U: Copy + Ord + Hash, T> Default for FairQueue<U, T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<U: Copy + Ord + Hash, T> FairQueue<U, T> {
    /// Nothing waits.
    pub fn new() -> Self {
        Self { users: HashMap::new(), order: BTreeSet::new(), served_ns: 0 }
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// How many items of a user wait.
    pub fn waiting(&self, user: U) -> usize {
        self.users.get(&user).map_or(0, |waiting| waiting.items.len())
    }

    /// Has an item wait, behind the others of its user.
    pub fn push(&mut self, user: U, item: T) {
        if self.users.len() >= REMEMBERED_MAX && !self.users.contains_key(&user) {
            self.forget_idle();
        }
        let new = || Waiting { taken_ns: 0, items: VecDeque::new() };
        let waiting = self.users.entry(user).or_insert_with(new);
        if waiting.items.is_empty() {
            waiting.taken_ns = waiting.taken_ns.max(self.served_ns);
            self.order.insert((waiting.taken_ns, user));
        }
        waiting.items.push_back(item);
    }

    /// Whose item is next, and the item.
    pub fn pop(&mut self) -> Option<(U, T)> {
        let (taken_ns, user) = self.order.first().copied()?;
        let waiting = self.users.get_mut(&user)?;
        let item = waiting.items.pop_front()?;
        if waiting.items.is_empty() {
            self.order.remove(&(taken_ns, user));
        }
        self.served_ns = taken_ns;
        Some((user, item))
    }

    /// What was done for a user has taken so long.
    pub fn charge(&mut self, user: U, ns: u64) {
        let Some(waiting) = self.users.get_mut(&user) else { return };
        let before = (waiting.taken_ns, user);
        waiting.taken_ns = waiting.taken_ns.saturating_add(ns);
        if self.order.remove(&before) {
            self.order.insert((waiting.taken_ns, user));
        }
    }

    fn forget_idle(&mut self) {
        let idle = self.users.iter().filter(|(_, waiting)| waiting.items.is_empty());
        let mut idle: Vec<(u64, U)> = idle.map(|(user, waiting)| (waiting.taken_ns, *user)).collect();
        idle.sort_unstable();
        for (_, user) in idle.iter().take(idle.len().div_ceil(2)) {
            self.users.remove(user);
        }
    }

    /// A user has gone, with all that waits of it.
    pub fn forget(&mut self, user: U) {
        if let Some(waiting) = self.users.remove(&user) {
            self.order.remove(&(waiting.taken_ns, user));
        }
    }
}

#[cfg(test)]
mod tests {
    //! Shows that nobody waits for more than one item of each other user, however many they bring, that time is shared
    //! evenly whatever an item costs, and that nothing is kept of users who have gone.
    use super::*;

    #[test]
    fn who_comes_to_a_flood_is_next_but_one() {
        let mut queue = FairQueue::new();
        (0..1000).for_each(|item| queue.push("flood", item));
        for _ in 0..10 {
            assert_eq!(queue.pop().unwrap().0, "flood");
            queue.charge("flood", 1000);
        }
        queue.push("one", 0);
        let next: Vec<&str> = std::iter::from_fn(|| {
            let (user, _) = queue.pop()?;
            queue.charge(user, 1000);
            Some(user)
        })
        .take(2)
        .collect();
        assert!(next.contains(&"one"), "{next:?}");
    }

    #[test]
    fn time_is_shared_and_not_items() {
        let mut queue = FairQueue::new();
        let mut had = HashMap::from([("dear", 0_u64), ("cheap", 0)]);
        (0..3).for_each(|item| queue.push("dear", item));
        (0..3).for_each(|item| queue.push("cheap", item));
        for _ in 0..10_000 {
            let (user, item) = queue.pop().unwrap();
            let ns = if user == "dear" { 100_000 } else { 1000 };
            queue.charge(user, ns);
            *had.get_mut(user).unwrap() += ns;
            queue.push(user, item);
        }
        assert!(had["dear"].abs_diff(had["cheap"]) <= 200_000, "{had:?}");
    }

    #[test]
    fn the_items_of_a_user_take_turns() {
        let mut queue = FairQueue::new();
        (0..3).for_each(|item| queue.push("one", item));
        let order: Vec<i32> = (0..6)
            .map(|_| {
                let (user, item) = queue.pop().unwrap();
                queue.push(user, item);
                item
            })
            .collect();
        assert_eq!(order, [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn users_who_ask_once_are_not_remembered() {
        let mut queue = FairQueue::new();
        for user in 0..10_000 {
            queue.push(user, ());
            queue.pop();
            queue.charge(user, 1);
        }
        assert!(queue.users.len() <= REMEMBERED_MAX, "{}", queue.users.len());
        assert_eq!((queue.waiting(0), queue.waiting(9_999)), (0, 0));
    }

    #[test]
    fn who_has_gone_has_left_nothing() {
        let mut queue = FairQueue::new();
        queue.push("one", 0);
        queue.push("other", 1);
        queue.charge("one", 7);
        queue.forget("one");
        assert_eq!(queue.pop(), Some(("other", 1)));
        queue.forget("other");
        assert!(queue.is_empty() && queue.users.is_empty() && queue.order.is_empty());
        assert_eq!(queue.pop(), None);
        queue.charge("one", 7);
        queue.forget("one");
    }
}
