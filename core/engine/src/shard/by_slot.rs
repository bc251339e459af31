//! Values by keys of a table, each at its key's slot: nothing is hashed for a message.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use trunkline_call::KeyedMap;

/// Keys from this slot on are hashed: what a number from elsewhere can make this take is bounded.
const SLOTS_MAX: usize = 1 << 16;

/// Values by the [bits](crate::table::Key::to_bits) of keys. Two keys of one slot, one of them stale, have a value
/// each: that which comes later is hashed. It is as large as the highest slot.
#[derive(Debug)]
pub(crate) struct BySlot<V> {
    slots: Vec<Option<(u64, V)>>,
    hashed: KeyedMap<u64, V>,
    /// How many have a slot.
    in_slots: usize,
}

impl<V> BySlot<V> {
    pub fn get(&self, key: u64) -> Option<&V> {
        match self.slots.get(slot_of(key)) {
            Some(Some((of, value))) if *of == key => Some(value),
            _ if self.hashed.is_empty() => None,
            _ => self.hashed.get(&key),
        }
    }

    #[inline(always)]
    pub fn get_mut(&mut self, key: u64) -> Option<&mut V> {
        match self.slots.get_mut(slot_of(key)) {
            Some(Some((of, value))) if *of == key => Some(value),
            _ if self.hashed.is_empty() => None,
            _ => self.hashed.get_mut(&key),
        }
    }

    /// The value of a key, which is made if there is none.
    #[inline]
    pub fn get_or_insert_with(&mut self, key: u64, made: impl FnOnce() -> V) -> &mut V {
        let slot = slot_of(key);
        let is_there = matches!(self.slots.get(slot), Some(Some((of, _))) if *of == key);
        if !is_there && !self.find_slot(key) {
            return self.hashed.entry(key).or_insert_with(made);
        }
        &mut self.slots[slot].get_or_insert_with(|| (key, made())).1
    }

    /// Whether the value of a key that has none in its slot goes there: the slot is free then, and counted with those
    /// that are not.
    fn find_slot(&mut self, key: u64) -> bool {
        let slot = slot_of(key);
        let is_taken = matches!(self.slots.get(slot), Some(Some(_)));
        if is_taken || slot >= SLOTS_MAX || !self.hashed.is_empty() && self.hashed.contains_key(&key) {
            return false;
        }
        if slot >= self.slots.len() {
            self.slots.resize_with(slot + 1, || None);
        }
        self.in_slots += 1;
        true
    }

    #[inline(always)]
    pub fn insert(&mut self, key: u64, value: V) {
        // Nearly always: it has a slot, which is free.
        match self.slots.get_mut(slot_of(key)) {
            Some(place @ None) if self.hashed.is_empty() => {
                *place = Some((key, value));
                self.in_slots += 1;
            }
            _ => self.insert_anew(key, value),
        }
    }

    fn insert_anew(&mut self, key: u64, value: V) {
        let mut value = Some(value);
        let place = self.get_or_insert_with(key, || value.take().expect("it is made once"));
        if let Some(value) = value {
            *place = value;
        }
    }

    #[inline]
    pub fn remove(&mut self, key: u64) -> Option<V> {
        match self.slots.get_mut(slot_of(key)) {
            Some(place) if place.as_ref().is_some_and(|(of, _)| *of == key) => {
                self.in_slots -= 1;
                place.take().map(|(_, value)| value)
            }
            _ if self.hashed.is_empty() => None,
            _ => self.hashed.remove(&key),
        }
    }

    /// All of them, to be changed.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.slots.iter_mut().flatten().map(|(_, value)| value).chain(self.hashed.values_mut())
    }

    /// Removes those that are not to stay.
    pub fn retain(&mut self, mut stays: impl FnMut(u64, &V) -> bool) {
        for place in &mut self.slots {
            if place.as_ref().is_some_and(|(key, value)| !stays(*key, value)) {
                *place = None;
                self.in_slots -= 1;
            }
        }
        self.hashed.retain(|key, value| stays(*key, value));
    }

    pub fn is_empty(&self) -> bool {
        self.in_slots == 0 && self.hashed.is_empty()
    }

    /// All of them, with their keys.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &V)> {
        let in_slots = self.slots.iter().flatten().map(|(key, value)| (*key, value));
        in_slots.chain(self.hashed.iter().map(|(key, value)| (*key, value)))
    }
}

fn slot_of(key: u64) -> usize {
    key as u32 as usize
}

impl<V> Default for BySlot<V> {
    fn default() -> Self {
        Self { slots: Vec::new(), hashed: KeyedMap::default(), in_slots: 0 }
    }
}

/// As a map, which it was.
impl<V: Serialize> Serialize for BySlot<V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for BySlot<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut all = Self::default();
        for (key, value) in KeyedMap::deserialize(deserializer)? {
            all.insert(key, value);
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    //! Shows that it is a map, whatever the keys have in common.
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn it_is_a_map(steps in prop::collection::vec((0..4_u8, 0..4_u64, 0..3_u64, any::<u8>()), 0..200)) {
            let (mut slots, mut map) = (BySlot::default(), BTreeMap::new());
            for (step, index, generation, value) in steps {
                let index = if index == 3 { u64::from(u32::MAX) } else { index };
                let key = generation << 32 | index;
                match step {
                    0 => {
                        slots.insert(key, value);
                        map.insert(key, value);
                    }
                    1 => prop_assert_eq!(slots.remove(key), map.remove(&key)),
                    _ => prop_assert_eq!(
                        *slots.get_or_insert_with(key, || value),
                        *map.entry(key).or_insert(value)
                    ),
                }
                prop_assert_eq!(slots.get(key), map.get(&key));
                prop_assert_eq!(slots.get_mut(key).copied(), map.get(&key).copied());
                prop_assert_eq!(slots.is_empty(), map.is_empty());
                if step == 3 {
                    slots.values_mut().for_each(|kept| *kept = kept.wrapping_add(value));
                    map.values_mut().for_each(|kept| *kept = kept.wrapping_add(value));
                    slots.retain(|key, kept| map.get(&key) == Some(kept) && kept % 4 != 0);
                    map.retain(|_, kept| *kept % 4 != 0);
                }
                let all: BTreeMap<u64, u8> = slots.iter().map(|(key, value)| (key, *value)).collect();
                prop_assert_eq!(&all, &map);
            }
            let json = serde_json::to_string(&slots).unwrap();
            let again: BySlot<u8> = serde_json::from_str(&json).unwrap();
            let all: BTreeMap<u64, u8> = again.iter().map(|(key, value)| (key, *value)).collect();
            prop_assert_eq!(all, map);
            prop_assert!(slots.slots.len() <= 3, "a number from elsewhere takes no room");
        }
    }
}
