//! The order of what waits: a line for each source, and the lines in turn.
//!
//! Whoever waits has two neighbours in the order of its class (who came before it, who after), and two in the line of
//! its source. The first order tells who has waited longest, the second who is next: the first of the source whose turn
//! it is. A source's turn is a number; one that is served gets the next number there is, in all its classes at once, so
//! that nobody has more turns by asking in several. While one source waits alone its number stays, and the order is
//! that of coming.
//!
//! Coming and going cost no more for a long line than for a short one. There are no more lines than there are that
//! wait.

use crate::pool::{CLASSES_MAX, Class};
use std::collections::BTreeMap;
use trunkline_call::{Instant, KeyedMap};

/// Names what waits, until it goes: see [`Dispatcher::withdraw`](crate::Dispatcher::withdraw).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WaitingKey {
    at: u32,
    number: u32,
}

#[derive(Debug)]
pub(crate) struct SourceLines {
    nodes: Vec<Node>,
    free: Vec<u32>,
    /// Keys given so far.
    numbers: u32,
    classes: Vec<OfClass>,
    /// A bit for every class of which something waits.
    waiting: u32,
    sources: Vec<Source>,
    free_sources: Vec<u32>,
    by_number: KeyedMap<u64, u32>,
    /// The last turn there is.
    turns: u64,
}

const _: () = assert!(CLASSES_MAX <= u32::BITS as usize);

#[derive(Debug)]
struct Node {
    /// `None` if nothing waits here.
    number: Option<u32>,
    since: Instant,
    class: Class,
    source: u32,
    of_class: Neighbours,
    of_line: Neighbours,
}

#[derive(Clone, Copy, Debug, Default)]
struct Neighbours {
    before: Option<u32>,
    after: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default)]
struct List {
    first: Option<u32>,
    last: Option<u32>,
}

#[derive(Debug, Default)]
struct OfClass {
    all: List,
    len: usize,
    /// The sources of which something waits, by their turns.
    turns: BTreeMap<u64, u32>,
}

#[derive(Debug)]
struct Source {
    number: u64,
    turn: u64,
    /// What waits of it, in each class of which something does.
    lines: Vec<(Class, List)>,
    /// How much that is.
    len: usize,
}

impl SourceLines {
    pub fn new() -> Self {
        Self {
            nodes: Vec::new(),
            free: Vec::new(),
            numbers: 0,
            classes: (0..CLASSES_MAX).map(|_| OfClass::default()).collect(),
            waiting: 0,
            sources: Vec::new(),
            free_sources: Vec::new(),
            by_number: KeyedMap::default(),
            turns: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.nodes.len() - self.free.len()
    }

    pub fn len_of(&self, class: Class) -> usize {
        self.classes[class.index()].len
    }

    /// How much of a source waits.
    pub fn len_of_source(&self, source: u64) -> usize {
        self.by_number.get(&source).map_or(0, |source| self.sources[*source as usize].len)
    }

    /// Something of this source waits from now on.
    pub fn push(&mut self, now: Instant, class: Class, source: u64) -> (u32, WaitingKey) {
        let source = self.source(source);
        self.numbers = self.numbers.wrapping_add(1);
        let (number, since) = (Some(self.numbers), now);
        let (of_class, of_line) = Default::default();
        let node = Node { number, since, class, source, of_class, of_line };
        let at = match self.free.pop() {
            Some(at) => {
                self.nodes[at as usize] = node;
                at
            }
            None => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
        };
        let (entered, of) = (&mut self.sources[source as usize], &mut self.classes[class.index()]);
        let line = match entered.lines.iter().position(|(of, _)| *of == class) {
            Some(line) => line,
            None => {
                of.turns.insert(entered.turn, source);
                entered.lines.push((class, List::default()));
                entered.lines.len() - 1
            }
        };
        of.all.push(&mut self.nodes, at, |node| &mut node.of_class);
        entered.lines[line].1.push(&mut self.nodes, at, |node| &mut node.of_line);
        of.len += 1;
        entered.len += 1;
        self.waiting |= 1 << class.index();
        (at, WaitingKey { at, number: self.numbers })
    }

    /// Where it waits, if it does.
    pub fn find(&self, key: WaitingKey) -> Option<u32> {
        let node = self.nodes.get(key.at as usize)?;
        (node.number == Some(key.number)).then_some(key.at)
    }

    /// It waits no more. Since when it had.
    pub fn remove(&mut self, at: u32) -> Instant {
        let (class, source) = (self.nodes[at as usize].class, self.nodes[at as usize].source);
        let (left, of) = (&mut self.sources[source as usize], &mut self.classes[class.index()]);
        of.all.remove(&mut self.nodes, at, |node| &mut node.of_class);
        of.len -= 1;
        left.len -= 1;
        self.waiting &= !(u32::from(of.len == 0) << class.index());
        if let Some(line) = left.lines.iter().position(|(of, _)| *of == class) {
            left.lines[line].1.remove(&mut self.nodes, at, |node| &mut node.of_line);
            if left.lines[line].1.first.is_none() {
                left.lines.swap_remove(line);
                of.turns.remove(&left.turn);
            }
        }
        if left.lines.is_empty() {
            self.by_number.remove(&left.number);
            self.free_sources.push(source);
        }
        self.nodes[at as usize].number = None;
        self.free.push(at);
        self.nodes[at as usize].since
    }

    /// It is given out next: that is the turn of its source.
    pub fn pass_turn(&mut self, at: u32) {
        if self.by_number.len() <= 1 {
            return;
        }
        self.turns += 1;
        let source = self.nodes[at as usize].source;
        let served = &mut self.sources[source as usize];
        for (class, _) in &served.lines {
            let turns = &mut self.classes[class.index()].turns;
            turns.remove(&served.turn);
            turns.insert(self.turns, source);
        }
        served.turn = self.turns;
    }

    /// Who has waited longest of all, and since when.
    pub fn oldest(&self) -> Option<(u32, Instant)> {
        let firsts = self.waiting_classes().filter_map(|class| self.classes[class.index()].all.first);
        firsts.map(|at| (at, self.nodes[at as usize].since)).min_by_key(|(_, since)| *since)
    }

    /// Who is next among the classes that `may` go: the first of the source whose turn it is, and of its classes that
    /// of the one who has waited longest.
    pub fn next(&self, may: impl Fn(Class) -> bool) -> Option<(u32, Class)> {
        let firsts = self.waiting_classes().filter(|class| may(*class)).filter_map(|class| {
            let (turn, source) = self.classes[class.index()].turns.first_key_value()?;
            let at = self.first_of(*source, class)?;
            Some(((*turn, self.nodes[at as usize].since), at, class))
        });
        firsts.min_by_key(|(order, ..)| *order).map(|(_, at, class)| (at, class))
    }

    /// The first so many of a class, in the order of the turns: of each source an equal part.
    pub fn first_of_each(&self, class: Class, looked_max: usize) -> impl Iterator<Item = u32> {
        let turns = &self.classes[class.index()].turns;
        let each_max = looked_max.checked_div(turns.len()).unwrap_or_default().max(1);
        let firsts = turns.values().filter_map(move |source| self.first_of(*source, class));
        let lines = firsts
            .map(|first| std::iter::successors(Some(first), |at| self.nodes[*at as usize].of_line.after));
        lines.flat_map(move |line| line.take(each_max)).take(looked_max)
    }

    /// All that wait, class by class, in the order they came.
    pub fn all(&self) -> impl Iterator<Item = u32> {
        let firsts = self.waiting_classes().filter_map(|class| self.classes[class.index()].all.first);
        firsts.flat_map(|first| {
            std::iter::successors(Some(first), |at| self.nodes[*at as usize].of_class.after)
        })
    }

    fn waiting_classes(&self) -> impl Iterator<Item = Class> + use<> {
        let mut left = self.waiting;
        std::iter::from_fn(move || {
            let index = left.trailing_zeros();
            left &= left.checked_sub(1)?;
            Some(Class::new(index as u8))
        })
    }

    fn first_of(&self, source: u32, class: Class) -> Option<u32> {
        let lines = &self.sources[source as usize].lines;
        lines.iter().find(|(of, _)| *of == class).and_then(|(_, line)| line.first)
    }

    /// Who comes anew has its turn behind all others.
    fn source(&mut self, number: u64) -> u32 {
        if let Some(source) = self.by_number.get(&number) {
            return *source;
        }
        self.turns += 1;
        let at = match self.free_sources.pop() {
            Some(at) => {
                let source = &mut self.sources[at as usize];
                (source.number, source.turn) = (number, self.turns);
                at
            }
            None => {
                self.sources.push(Source { number, turn: self.turns, lines: Vec::new(), len: 0 });
                (self.sources.len() - 1) as u32
            }
        };
        self.by_number.insert(number, at);
        at
    }
}

impl List {
    fn push(&mut self, nodes: &mut [Node], at: u32, of: impl Fn(&mut Node) -> &mut Neighbours) {
        let before = self.last.replace(at);
        *of(&mut nodes[at as usize]) = Neighbours { before, after: None };
        match before {
            Some(before) => of(&mut nodes[before as usize]).after = Some(at),
            None => self.first = Some(at),
        }
    }

    fn remove(&mut self, nodes: &mut [Node], at: u32, of: impl Fn(&mut Node) -> &mut Neighbours) {
        let Neighbours { before, after } = *of(&mut nodes[at as usize]);
        match before {
            Some(before) => of(&mut nodes[before as usize]).after = after,
            None => self.first = after,
        }
        match after {
            Some(after) => of(&mut nodes[after as usize]).before = before,
            None => self.last = before,
        }
    }
}
