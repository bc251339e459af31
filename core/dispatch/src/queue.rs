//! What waits: a queue per class.

use crate::pool::{CLASSES_MAX, Class};
use std::collections::VecDeque;
use trunkline_call::Instant;

#[derive(Debug)]
pub(crate) struct Queues<T> {
    classes: Vec<VecDeque<Waiting<T>>>,
    len: usize,
}

#[derive(Debug)]
pub(crate) struct Waiting<T> {
    pub since: Instant,
    pub item: T,
}

impl<T> Queues<T> {
    pub fn new() -> Self {
        Self { classes: (0..CLASSES_MAX).map(|_| VecDeque::new()).collect(), len: 0 }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn len_of(&self, class: Class) -> usize {
        self.classes[class.index()].len()
    }

    pub fn push(&mut self, now: Instant, class: Class, item: T) {
        self.classes[class.index()].push_back(Waiting { since: now, item });
        self.len += 1;
    }

    pub fn pop(&mut self, class: Class) -> Option<Waiting<T>> {
        let popped = self.classes[class.index()].pop_front()?;
        self.len -= 1;
        Some(popped)
    }

    /// The class, among those `may` allows, whose head has waited longest.
    pub fn oldest(&self, may: impl Fn(Class) -> bool) -> Option<Class> {
        if self.len == 0 {
            return None;
        }
        let heads = self.classes.iter().enumerate().filter_map(|(index, queue)| {
            let class = Class::new(index as u8);
            queue.front().map(|head| (head.since, class))
        });
        heads.filter(|(_, class)| may(*class)).min_by_key(|(since, _)| *since).map(|(_, class)| class)
    }

    /// Since when the head of a class has waited.
    pub fn head_since(&self, class: Class) -> Option<Instant> {
        self.classes[class.index()].front().map(|head| head.since)
    }

    /// Takes out whatever `keep` does not want.
    pub fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        for queue in &mut self.classes {
            queue.retain(|waiting| keep(&waiting.item));
        }
        self.len = self.classes.iter().map(VecDeque::len).sum();
    }
}
