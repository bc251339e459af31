//! Who is served next where several users wait: the one whose requests have taken the least time.
//!
//! Start-time fair queueing (Goyal, Vin and Cheng 1996) with what a request took as its cost, since nobody knows that
//! beforehand. Whoever begins to wait has taken as much as the one served last: time spent on nobody is nobody's to
//! claim. Within a user, the items take turns.
//!
//! What a user has taken beyond that is remembered while nothing of it waits, also when it has gone: who asks for one
//! dear thing, goes, and comes again with the next would otherwise be first each time. It is what its last item has
//! taken at most, and weighs less the more others take, until it is nothing and the user is forgotten.

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
    /// Users at which some are forgotten next.
    forgets_at: usize,
}

#[derive(Debug)]
struct Waiting<T> {
    taken_ns: u64,
    items: VecDeque<T>,
}

/// Users beyond which those are forgotten of whom nothing waits: all who have taken no more than others, and half of
/// the rest, who have taken least.
const REMEMBERED_MAX: usize = 1024;

impl<U: Copy + Ord + Hash, T> Default for FairQueue<U, T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<U: Copy + Ord + Hash, T> FairQueue<U, T> {
    /// Nothing waits.
    pub fn new() -> Self {
        Self { users: HashMap::new(), order: BTreeSet::new(), served_ns: 0, forgets_at: REMEMBERED_MAX }
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
        let served_ns = self.served_ns;
        let waiting = self.known(user);
        let begins = waiting.items.is_empty();
        if begins {
            waiting.taken_ns = waiting.taken_ns.max(served_ns);
        }
        waiting.items.push_back(item);
        let taken_ns = waiting.taken_ns;
        if begins {
            self.order.insert((taken_ns, user));
        }
    }

    /// Whose item is next, and the item, which stays.
    pub fn peek(&self) -> Option<(U, &T)> {
        let (_, user) = self.order.first()?;
        Some((*user, self.users.get(user)?.items.front()?))
    }

    /// Takes items of a user out that are not to be kept.
    pub fn retain(&mut self, user: U, is_kept: impl Fn(&T) -> bool) {
        let Some(waiting) = self.users.get_mut(&user) else { return };
        waiting.items.retain(is_kept);
        if waiting.items.is_empty() {
            self.order.remove(&(waiting.taken_ns, user));
        }
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

    /// What was done for a user has taken so long. It may have gone meanwhile.
    pub fn charge(&mut self, user: U, ns: u64) {
        let waiting = self.known(user);
        let before = waiting.taken_ns;
        waiting.taken_ns = before.saturating_add(ns);
        let now = waiting.taken_ns;
        if self.order.remove(&(before, user)) {
            self.order.insert((now, user));
        }
    }

    /// A user has gone, with all that waits of it. What it has taken goes when it is no more than others have.
    pub fn leave(&mut self, user: U) {
        let Some(waiting) = self.users.get_mut(&user) else { return };
        self.order.remove(&(waiting.taken_ns, user));
        waiting.items = VecDeque::new();
        if waiting.taken_ns <= self.served_ns {
            self.users.remove(&user);
        }
    }

    /// A user, who has taken as much as the one served last if nothing else is known.
    fn known(&mut self, user: U) -> &mut Waiting<T> {
        if self.users.len() >= self.forgets_at && !self.users.contains_key(&user) {
            self.forget_idle();
        }
        let new = || Waiting { taken_ns: self.served_ns, items: VecDeque::new() };
        self.users.entry(user).or_insert_with(new)
    }

    fn forget_idle(&mut self) {
        let served_ns = self.served_ns;
        self.users.retain(|_, waiting| !waiting.items.is_empty() || waiting.taken_ns > served_ns);
        if self.users.len() > REMEMBERED_MAX / 2 {
            let idle = self.users.iter().filter(|(_, waiting)| waiting.items.is_empty());
            let mut idle: Vec<(u64, U)> = idle.map(|(user, waiting)| (waiting.taken_ns, *user)).collect();
            idle.sort_unstable();
            for (_, user) in idle.iter().take(idle.len().div_ceil(2)) {
                self.users.remove(user);
            }
        }
        // Where something waits of very many, they are not looked through for each that comes.
        self.forgets_at = REMEMBERED_MAX.max(2 * self.users.len());
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

    /// It comes with one dear thing, goes when that is done, and comes again at once.
    #[test]
    fn who_goes_and_comes_again_has_taken_what_it_took() {
        let mut queue = FairQueue::new();
        let mut had = HashMap::from([("dear", 0_u64), ("cheap", 0)]);
        queue.push("cheap", 0);
        queue.push("dear", 0);
        for _ in 0..10_000 {
            let (user, item) = queue.pop().unwrap();
            let ns = if user == "dear" { 100_000 } else { 1000 };
            if user == "dear" {
                queue.leave(user);
            }
            queue.charge(user, ns);
            *had.get_mut(user).unwrap() += ns;
            queue.push(user, item);
        }
        assert!(had["dear"].abs_diff(had["cheap"]) <= 200_000, "{had:?}");
    }

    #[test]
    fn a_user_alone_owes_nobody_more_than_its_last_item() {
        let mut queue = FairQueue::new();
        for _ in 0..1000 {
            queue.push("alone", ());
            queue.pop();
            queue.charge("alone", 50);
            queue.leave("alone");
        }
        assert_eq!(queue.users["alone"].taken_ns - queue.served_ns, 50);
    }

    #[test]
    fn who_has_gone_has_left_nothing() {
        let mut queue = FairQueue::new();
        queue.push("one", 0);
        queue.push("other", 1);
        queue.charge("one", 7);
        queue.leave("one");
        queue.push("other", 2);
        queue.retain("other", |item| *item != 2);
        assert_eq!(queue.peek(), Some(("other", &1)));
        queue.retain("other", |item| *item != 1);
        assert!(queue.peek().is_none() && queue.is_empty());
        queue.push("other", 1);
        assert_eq!(queue.pop(), Some(("other", 1)));
        queue.leave("other");
        assert!(queue.is_empty() && queue.order.is_empty());
        assert_eq!(queue.pop(), None);
        // What it has taken is known until others have taken as much.
        assert_eq!(queue.users.keys().collect::<Vec<_>>(), [&"one"]);
        for _ in 0..2 {
            queue.push("other", 1);
            queue.pop();
            queue.charge("other", 7);
        }
        queue.leave("one");
        assert!(!queue.users.contains_key("one"));
    }
}
