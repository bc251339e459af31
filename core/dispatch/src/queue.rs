//! What waits, by who is next of it.

use crate::lines::{SourceLines, WaitingKey};
use crate::pool::Class;
use trunkline_call::Instant;

#[derive(Debug)]
pub(crate) struct Queues<T> {
    lines: SourceLines,
    /// Where [`SourceLines`] says.
    items: Vec<Option<T>>,
}

#[derive(Debug)]
pub(crate) struct Waiting<T> {
    pub since: Instant,
    pub item: T,
}

impl<T> Queues<T> {
    pub fn new() -> Self {
        Self { lines: SourceLines::new(), items: Vec::new() }
    }

    pub fn len(&self) -> usize {
        self.lines.len()
    }

    pub fn len_of(&self, class: Class) -> usize {
        self.lines.len_of(class)
    }

    /// How many of a source wait, in all classes.
    pub fn len_of_source(&self, source: u64) -> usize {
        self.lines.len_of_source(source)
    }

    pub fn push(&mut self, now: Instant, class: Class, source: u64, item: T) -> WaitingKey {
        let (at, key) = self.lines.push(now, class, source);
        if self.items.len() <= at as usize {
            self.items.resize_with(at as usize + 1, || None);
        }
        self.items[at as usize] = Some(item);
        key
    }

    /// Takes out what has waited longest.
    pub fn pop_oldest(&mut self) -> Option<Waiting<T>> {
        let (at, _) = self.lines.oldest()?;
        self.take(at)
    }

    /// Since when what has waited longest has.
    pub fn waits_since(&self) -> Option<Instant> {
        self.lines.oldest().map(|(_, since)| since)
    }

    /// The class, among those `may` allows, of what is next.
    pub fn next_class(&self, may: impl Fn(Class) -> bool) -> Option<Class> {
        self.lines.next(may).map(|(_, class)| class)
    }

    /// Gives out what is next of a class.
    pub fn pop(&mut self, class: Class) -> Option<Waiting<T>> {
        let (at, _) = self.lines.next(|one| one == class)?;
        self.lines.pass_turn(at);
        self.take(at)
    }

    /// Gives out the first that `may` go, among so many of the class of what is next.
    pub fn pop_first(&mut self, looked_max: usize, may: impl Fn(&T) -> bool) -> Option<T> {
        let (_, class) = self.lines.next(|_| true)?;
        let may_go = |at: &u32| self.items[*at as usize].as_ref().is_some_and(&may);
        let at = self.lines.first_of_each(class, looked_max).find(may_go)?;
        self.lines.pass_turn(at);
        self.take(at).map(|taken| taken.item)
    }

    /// Takes out what a key names.
    pub fn withdraw(&mut self, key: WaitingKey) -> Option<T> {
        let at = self.lines.find(key)?;
        self.take(at).map(|taken| taken.item)
    }

    /// Takes out whatever `keep` does not want.
    pub fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        let unwanted = |at: &u32| self.items[*at as usize].as_ref().is_some_and(|item| !keep(item));
        let leaving: Vec<_> = self.lines.all().filter(unwanted).collect();
        leaving.into_iter().for_each(|at| _ = self.take(at));
    }

    fn take(&mut self, at: u32) -> Option<Waiting<T>> {
        let since = self.lines.remove(at);
        self.items[at as usize].take().map(|item| Waiting { since, item })
    }
}
