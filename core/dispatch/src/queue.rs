//! What waits: a queue per class.

use crate::pool::{CLASSES_MAX, Class};
use std::collections::VecDeque;
use trunkline_call::Instant;

#[derive(Debug)]
pub(crate) struct Queues<T> {
    classes: Vec<VecDeque<Waiting<T>>>,
    /// A bit for every class of which something waits.
    waiting: u32,
    len: usize,
}

const _: () = assert!(CLASSES_MAX <= u32::BITS as usize);

#[derive(Debug)]
pub(crate) struct Waiting<T> {
    pub since: Instant,
    pub item: T,
}

impl<T> Queues<T> {
    pub fn new() -> Self {
        Self { classes: (0..CLASSES_MAX).map(|_| VecDeque::new()).collect(), waiting: 0, len: 0 }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn len_of(&self, class: Class) -> usize {
        self.classes[class.index()].len()
    }

    pub fn push(&mut self, now: Instant, class: Class, item: T) {
        self.classes[class.index()].push_back(Waiting { since: now, item });
        self.waiting |= 1 << class.index();
        self.len += 1;
    }

    pub fn pop(&mut self, class: Class) -> Option<Waiting<T>> {
        let queue = &mut self.classes[class.index()];
        let popped = queue.pop_front()?;
        self.waiting &= !(u32::from(queue.is_empty()) << class.index());
        self.len -= 1;
        Some(popped)
    }

    /// Takes the last of a class.
    pub fn pop_last(&mut self, class: Class) -> Option<T> {
        let queue = &mut self.classes[class.index()];
        let popped = queue.pop_back()?;
        self.waiting &= !(u32::from(queue.is_empty()) << class.index());
        self.len -= 1;
        Some(popped.item)
    }

    /// The class, among those `may` allows, whose head has waited longest.
    pub fn oldest(&self, may: impl Fn(Class) -> bool) -> Option<Class> {
        let mut left = self.waiting;
        let classes = std::iter::from_fn(|| {
            let index = left.trailing_zeros();
            left &= left.checked_sub(1)?;
            Some(Class::new(index as u8))
        });
        classes.filter(|class| may(*class)).min_by_key(|class| self.head_since(*class))
    }

    /// Since when the head of a class has waited.
    pub fn head_since(&self, class: Class) -> Option<Instant> {
        self.classes[class.index()].front().map(|head| head.since)
    }

    /// Takes the first that `may` go, of the class whose head has waited longest and among so many of it.
    pub fn take_first(&mut self, looked_max: usize, may: impl Fn(&T) -> bool) -> Option<T> {
        let class = self.oldest(|_| true)?;
        let queue = &mut self.classes[class.index()];
        let at = queue.iter().take(looked_max).position(|waiting| may(&waiting.item))?;
        let taken = queue.remove(at)?;
        self.waiting &= !(u32::from(queue.is_empty()) << class.index());
        self.len -= 1;
        Some(taken.item)
    }

    /// Takes out whatever `keep` does not want.
    pub fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        self.waiting = 0;
        for (index, queue) in self.classes.iter_mut().enumerate() {
            queue.retain(|waiting| keep(&waiting.item));
            self.waiting |= u32::from(!queue.is_empty()) << index;
        }
        self.len = self.classes.iter().map(VecDeque::len).sum();
    }
}
