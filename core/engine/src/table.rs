//! Slots with generations: a key to something that is gone never reaches its successor.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::fmt;
use std::marker::PhantomData;

/// Names a slot of a [`Table`] for as long as its value lives.
pub struct Key<T> {
    index: u32,
    generation: u32,
    of: PhantomData<fn() -> T>,
}

/// A slab whose keys go stale when their value is removed. `S` is where a slot has its value: in itself, or in a box.
/// A slot stays, with a few bytes; a box goes with its value, but for some that are put by.
#[derive(Debug)]
pub struct Table<T, S = T> {
    slots: Vec<Slot<S>>,
    free: Vec<u32>,
    /// Blank values that were put by for the next ones.
    spares: Vec<S>,
    of: PhantomData<fn() -> T>,
}

#[derive(Debug)]
struct Slot<S> {
    /// Of what is here; with [`FREE`], of what comes next.
    generation: u32,
    value: Option<S>,
}

/// Set in the generation of a free slot. No key has it.
const FREE: u32 = 1 << 31;

/// Blank values that are put by however few are alive: calls that come and go by the hundred take no memory. Beyond
/// these, a quarter of what is alive.
const SPARES_MIN: usize = 1024;
const SPARES_PART: usize = 4;

/// Where a slot has its value.
pub trait Stored<T> {
    /// It has this one.
    fn of(value: T) -> Self;

    /// The value.
    fn value(&self) -> &T;

    /// The value, to be changed.
    fn value_mut(&mut self) -> &mut T;

    /// The value, taken out.
    fn into_value(self) -> T;
}

impl<T> Stored<T> for T {
    fn of(value: T) -> Self {
        value
    }

    #[inline(always)]
    fn value(&self) -> &T {
        self
    }

    #[inline(always)]
    fn value_mut(&mut self) -> &mut T {
        self
    }

    fn into_value(self) -> T {
        self
    }
}

impl<T> Stored<T> for Box<T> {
    fn of(value: T) -> Self {
        Box::new(value)
    }

    #[inline(always)]
    fn value(&self) -> &T {
        self
    }

    #[inline(always)]
    fn value_mut(&mut self) -> &mut T {
        self
    }

    fn into_value(self) -> T {
        *self
    }
}

/// A value that is large, and mostly as it was made when it goes: the next one is made of it where it is.
pub trait Renewed {
    /// One without anything.
    fn blank() -> Self;

    /// Lets go of everything it has: it is blank from here on.
    fn clear(&mut self);
}

impl<T: Renewed> Table<T, Box<T>> {
    /// Finds a slot for a blank value, which is to be made what it should be.
    #[inline]
    pub(crate) fn renew(&mut self) -> (Key<T>, &mut T) {
        let index = self.free_slot();
        let slot = &mut self.slots[index as usize];
        slot.generation &= !FREE;
        let key = Key { index, generation: slot.generation, of: PhantomData };
        let spare = self.spares.pop();
        (key, slot.value.insert(spare.unwrap_or_else(boxed_blank)))
    }

    /// Clears a value where it is, and puts it by for the next; its key and all copies of it are stale from here on.
    pub(crate) fn put_by(&mut self, key: Key<T>) {
        self.put_by_without(key, |_| ());
    }

    /// The same of a value of which something is taken before. What that is, if the value is there.
    #[inline(always)]
    pub(crate) fn put_by_without<R>(&mut self, key: Key<T>, take: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.put_by_if(key, |value| Some(take(value)))
    }

    /// The same; the value stays if nothing is to be taken of it.
    #[inline(always)]
    pub(crate) fn put_by_if<R>(&mut self, key: Key<T>, take: impl FnOnce(&mut T) -> Option<R>) -> Option<R> {
        let slot = self.slots.get_mut(key.index as usize).filter(|slot| slot.generation == key.generation)?;
        let taken = take(slot.value.as_mut()?)?;
        slot.generation = next_free(slot.generation);
        self.free.push(key.index);
        let mut value = slot.value.take()?;
        value.clear();
        self.spares.push(value);
        if self.spares.len() > SPARES_MIN {
            self.give_back();
        }
        Some(taken)
    }

    /// Gives memory back when fewer are alive than were: of each that goes its own, and another's.
    #[cold]
    fn give_back(&mut self) {
        let kept = SPARES_MIN.max(self.len() / SPARES_PART);
        let left = self.spares.len().saturating_sub(2).max(kept);
        self.spares.truncate(left);
    }
}

#[cold]
fn boxed_blank<T: Renewed>() -> Box<T> {
    Box::new(T::blank())
}

/// The generation of a slot whose value has gone.
fn next_free(generation: u32) -> u32 {
    generation.wrapping_add(1) | FREE
}

impl<T> Table<T> {
    /// An empty table, whose slots have their values in themselves.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty table that goes on after another: no key of that one is a key here.
    pub(crate) fn after(next_generations: Vec<u32>) -> Self {
        let free = (0..next_generations.len() as u32).rev().collect();
        let slots = next_generations.into_iter().map(|next| Slot { generation: next | FREE, value: None });
        Self { slots: slots.collect(), free, ..Self::default() }
    }
}

impl<T, S: Stored<T>> Table<T, S> {
    /// Stores a value; reuses slots, so their number is the largest that was alive at once.
    pub fn insert(&mut self, value: T) -> Key<T> {
        let stored = match self.spares.pop() {
            Some(mut spare) => {
                *spare.value_mut() = value;
                spare
            }
            None => S::of(value),
        };
        let index = self.free_slot();
        let slot = &mut self.slots[index as usize];
        slot.generation &= !FREE;
        slot.value = Some(stored);
        Key { index, generation: slot.generation, of: PhantomData }
    }

    fn free_slot(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| self.further_slot())
    }

    #[cold]
    fn further_slot(&mut self) -> u32 {
        self.slots.push(Slot { generation: FREE, value: None });
        (self.slots.len() - 1) as u32
    }

    /// Takes a value out; its key and all copies of it are stale from here on.
    pub fn remove(&mut self, key: Key<T>) -> Option<T> {
        let slot = self.slots.get_mut(key.index as usize).filter(|slot| slot.generation == key.generation)?;
        let value = slot.value.take()?;
        slot.generation = next_free(slot.generation);
        self.free.push(key.index);
        Some(value.into_value())
    }

    /// The value, unless it is gone.
    pub fn find(&self, key: Key<T>) -> Option<&T> {
        let slot = self.slots.get(key.index as usize).filter(|slot| slot.generation == key.generation)?;
        slot.value.as_ref().map(S::value)
    }

    /// The value, unless it is gone.
    pub fn find_mut(&mut self, key: Key<T>) -> Option<&mut T> {
        let slot = self.slots.get_mut(key.index as usize).filter(|slot| slot.generation == key.generation)?;
        slot.value.as_mut().map(S::value_mut)
    }

    /// The value, unless it is gone, and the one that it names, if it names another that is there.
    #[inline(always)]
    pub(crate) fn find_with(
        &mut self,
        key: Key<T>,
        named_by: impl FnOnce(&T) -> Option<Key<T>>,
    ) -> Option<(&mut T, Option<&mut T>)> {
        let slot = self.slots.get(key.index as usize).filter(|slot| slot.generation == key.generation)?;
        let Some(named) = named_by(slot.value.as_ref()?.value()) else {
            return Some((self.slots[key.index as usize].value.as_mut()?.value_mut(), None));
        };
        let [value, named] = self.get_disjoint_mut([key, named]);
        Some((value?, named))
    }

    /// Two values at once, each unless it is gone. Of one that is named twice the first.
    #[inline]
    pub(crate) fn get_disjoint_mut(&mut self, [one, other]: [Key<T>; 2]) -> [Option<&mut T>; 2] {
        let slots = [one, other].map(Key::index);
        if slots[0] == slots[1] || slots.iter().any(|slot| *slot >= self.slots.len()) {
            return if self.contains(one) {
                [self.find_mut(one), None]
            } else {
                [None, self.find_mut(other)]
            };
        }
        match self.slots.get_disjoint_mut(slots) {
            Ok([first, second]) => [first.of_key(one), second.of_key(other)],
            Err(_) => [None, None],
        }
    }

    /// Whether the value is there.
    #[inline]
    pub fn contains(&self, key: Key<T>) -> bool {
        self.slots.get(key.index as usize).is_some_and(|slot| slot.generation == key.generation)
    }

    /// Everything alive, in slot order.
    pub fn iter(&self) -> impl Iterator<Item = (Key<T>, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            let key = Key { index: index as u32, generation: slot.generation, of: PhantomData };
            slot.live().map(|value| (key, value))
        })
    }

    /// What is alive in the next `slots` slots from this one on, and the first slot behind them, if there is one.
    pub fn part(&self, from: usize, slots: usize) -> (impl Iterator<Item = (Key<T>, &T)>, Option<usize>) {
        let end = from.saturating_add(slots).min(self.slots.len());
        let from = from.min(end);
        let part = self.slots[from..end].iter().zip(from..).filter_map(|(slot, index)| {
            let key = Key { index: index as u32, generation: slot.generation, of: PhantomData };
            slot.live().map(|value| (key, value))
        });
        (part, (end < self.slots.len()).then_some(end))
    }

    /// Everything alive, in slot order, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Key<T>, &mut T)> {
        self.slots.iter_mut().enumerate().filter(|(_, slot)| slot.is_live()).filter_map(|(index, slot)| {
            let key = Key { index: index as u32, generation: slot.generation, of: PhantomData };
            slot.value.as_mut().map(|value| (key, value.value_mut()))
        })
    }

    /// Of what is stored next in each slot, if all that is there goes: the generations.
    pub(crate) fn next_generations(&self) -> Vec<u32> {
        let next = |slot: &Slot<S>| if slot.is_live() { next_free(slot.generation) } else { slot.generation };
        self.slots.iter().map(|slot| next(slot) & !FREE).collect()
    }

    /// Number alive.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether nothing is alive.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<S> Slot<S> {
    fn is_live(&self) -> bool {
        self.generation & FREE == 0
    }

    /// The value, if this is its key.
    fn of_key<T>(&mut self, key: Key<T>) -> Option<&mut T>
    where
        S: Stored<T>,
    {
        let value = self.value.as_mut().filter(|_| self.generation == key.generation)?;
        Some(value.value_mut())
    }

    fn live<T>(&self) -> Option<&T>
    where
        S: Stored<T>,
    {
        self.value.as_ref().map(S::value)
    }
}

impl<T> Key<T> {
    /// Generations use 31 bits, so that a key fits a delivered call id beside its direction bit.
    const GENERATION_MAX: u32 = u32::MAX >> 1;

    /// Names nothing: no table has so many slots.
    pub(crate) const NOTHING: Self = Self { index: u32::MAX, generation: 0, of: PhantomData };

    /// The key as a number below 2^63.
    pub fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// The key this number would be; it may name nothing. One with the topmost bit, which marks what is no key, never
    /// names anything.
    pub fn from_bits(bits: u64) -> Self {
        let index = if bits >> 63 == 0 { bits as u32 } else { u32::MAX };
        Self { index, generation: (bits >> 32) as u32, of: PhantomData }
    }

    /// The slot, dense from zero: for side tables.
    pub fn index(self) -> usize {
        self.index as usize
    }
}

impl<T> Serialize for Key<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_bits().serialize(serializer)
    }
}

impl<'de, T> Deserialize<'de> for Key<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        u64::deserialize(deserializer).map(Self::from_bits)
    }
}

/// Slot by slot, empty ones too: keys keep their meaning, and stale ones stay stale.
impl<T: Serialize, S: Stored<T>> Serialize for Table<T, S> {
    fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
        serializer.collect_seq(self.slots.iter().map(|slot| (slot.generation & !FREE, slot.live())))
    }
}

impl<'de, T: Deserialize<'de>, S: Stored<T>> Deserialize<'de> for Table<T, S> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let slots = Vec::<(u32, Option<T>)>::deserialize(deserializer)?;
        if slots.iter().any(|(generation, _)| *generation > Key::<T>::GENERATION_MAX) {
            return Err(D::Error::custom("a generation beyond 31 bits"));
        }
        let free = (0..).zip(&slots).filter(|(_, (_, value))| value.is_none()).map(|(index, _)| index);
        let free = free.collect();
        let slot = |(generation, value): (u32, Option<T>)| {
            let free = if value.is_none() { FREE } else { 0 };
            Slot { generation: generation | free, value: value.map(S::of) }
        };
        let slots = slots.into_iter().map(slot).collect();
        Ok(Self { slots, free, ..Self::default() })
    }
}

impl<T, S> Default for Table<T, S> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), spares: Vec::new(), of: PhantomData }
    }
}

impl<T> Clone for Key<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Key<T> {}

impl<T> PartialEq for Key<T> {
    fn eq(&self, other: &Self) -> bool {
        (self.index, self.generation) == (other.index, other.generation)
    }
}

impl<T> Eq for Key<T> {}

impl<T> std::hash::Hash for Key<T> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.to_bits().hash(state);
    }
}

impl<T> fmt::Debug for Key<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}v{}", self.index, self.generation)
    }
}

#[cfg(test)]
mod tests {
    //! Shows that stale keys find nothing and that slots are reused.
    use super::*;

    #[test]
    fn stale_keys_find_nothing() {
        let mut table = Table::new();
        let first = table.insert("a");
        assert_eq!(table.remove(first), Some("a"));
        let second = table.insert("b");
        assert_eq!(first.index(), second.index());
        assert_eq!((table.find(first), table.find(second)), (None, Some(&"b")));
        assert_eq!(table.remove(first), None);
        assert_eq!(Key::from_bits(second.to_bits()), second);
        assert_eq!(table.len(), 1);
        let mut after = Table::after(table.next_generations());
        let third = after.insert("c");
        assert_eq!((after.find(second), after.find(third), after.len()), (None, Some(&"c"), 1));
        assert!(third != first && third.index() == first.index());
    }

    #[test]
    fn two_values_are_had_at_once_and_one_only_once() {
        let mut table = Table::new();
        let [one, other, gone] = ["a", "b", "c"].map(|value| table.insert(value.to_owned()));
        table.remove(gone);
        for (keys, expected) in [
            ([one, other], [Some("a"), Some("b")]),
            ([other, one], [Some("b"), Some("a")]),
            ([one, one], [Some("a"), None]),
            ([gone, other], [None, Some("b")]),
            ([one, gone], [Some("a"), None]),
            ([Key::NOTHING, other], [None, Some("b")]),
            ([one, Key::NOTHING], [Some("a"), None]),
            ([gone, Key::NOTHING], [None, None]),
        ] {
            let found = table.get_disjoint_mut(keys).map(|value| value.map(|value| value.as_str()));
            assert_eq!(found, expected, "{keys:?}");
            assert_eq!(keys.map(|key| table.contains(key)), keys.map(|key| table.find(key).is_some()));
        }
    }

    #[test]
    fn a_value_is_had_with_the_one_it_names() {
        let mut table = Table::new();
        let [one, other, gone] = ["a", "b", "c"].map(|value| table.insert(value.to_owned()));
        table.remove(gone);
        for (key, named, expected) in [
            (one, None, Some(("a", None))),
            (one, Some(other), Some(("a", Some("b")))),
            (other, Some(one), Some(("b", Some("a")))),
            (one, Some(one), Some(("a", None))),
            (one, Some(gone), Some(("a", None))),
            (one, Some(Key::NOTHING), Some(("a", None))),
            (gone, Some(one), None),
            (gone, None, None),
        ] {
            let found = table.find_with(key, |_| named);
            let found = found.map(|(value, named)| (value.as_str(), named.map(|value| value.as_str())));
            assert_eq!(found, expected, "{key:?} {named:?}");
        }
    }

    #[test]
    fn what_is_put_by_is_found_by_nobody_and_blank_for_the_next() {
        #[derive(Debug, PartialEq)]
        struct Letters(String);

        impl Renewed for Letters {
            fn blank() -> Self {
                Self(String::new())
            }

            fn clear(&mut self) {
                self.0.clear();
            }
        }
        let mut table = Table::<Letters, Box<Letters>>::default();
        let (first, value) = table.renew();
        value.0.push('a');
        table.put_by(first);
        let free = [first.to_bits(), first.to_bits() + (1 << 32)];
        for bits in free.into_iter().flat_map(|bits| [bits, bits | 1 << 63]) {
            assert_eq!(table.find(Key::from_bits(bits)), None, "{bits:x}");
        }
        assert_eq!((table.len(), table.iter().count(), table.part(0, 9).0.count()), (0, 0, 0));
        let second = table.renew().0;
        assert_eq!((first.index(), table.find(first)), (second.index(), None));
        assert_eq!(table.find(second), Some(&Letters::blank()));
        let third = table.insert(Letters("b".to_owned()));
        let removed = [table.remove(third), table.remove(third)];
        assert_eq!((removed, table.len()), ([Some(Letters("b".to_owned())), None], 1));
    }

    #[test]
    fn boxes_go_with_their_values() {
        struct Large([u64; 128]);

        impl Renewed for Large {
            fn blank() -> Self {
                Self([0; 128])
            }

            fn clear(&mut self) {
                self.0 = [0; 128];
            }
        }
        let mut table = Table::<Large, Box<Large>>::default();
        for _ in 0..3 {
            let keys: Vec<_> = (0..10_000).map(|_| table.renew().0).collect();
            assert_eq!((table.len(), table.spares.len()), (10_000, 0));
            for (gone, key) in (1..).zip(keys) {
                table.put_by(key);
                let kept = SPARES_MIN.max((10_000 - gone) / SPARES_PART) + 1;
                assert!(table.spares.len() <= kept, "{} of {kept} when {gone} are gone", table.spares.len());
            }
            let boxes = table.slots.iter().filter(|slot| slot.value.is_some()).count() + table.spares.len();
            assert_eq!((table.len(), boxes), (0, SPARES_MIN));
        }
        assert_eq!(table.slots.len(), 10_000, "a slot is a few bytes");
        assert!(size_of::<Slot<Box<Large>>>() <= 16);
    }

    #[test]
    fn parts_are_the_whole() {
        let mut table = Table::new();
        let keys: Vec<_> = (0..10).map(|value| table.insert(value)).collect();
        table.remove(keys[3]);
        for slots in 1..12 {
            let (mut next, mut found) = (Some(0), Vec::new());
            while let Some(from) = next {
                let (part, left) = table.part(from, slots);
                found.extend(part);
                next = left;
            }
            assert_eq!(found, table.iter().collect::<Vec<_>>(), "{slots}");
        }
        assert_eq!(table.part(100, 5).0.count(), 0, "it was larger when somebody began");
    }
}
