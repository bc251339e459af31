//! How a table of timers travels between two daemons.

use super::{Entry, TimerKey, TimerTable, is_live};
use crate::Instant;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::cmp::Reverse;

impl<T> TimerTable<T> {
    /// Writes the live timers that are chosen, as [`Serialize`] does all.
    ///
    /// # Errors
    /// The serializer's.
    pub fn serialize_those<S: Serializer>(
        &self,
        chosen: impl Fn(&T) -> bool,
        serializer: S,
    ) -> Result<S::Ok, S::Error>
    where
        T: Serialize,
    {
        let entries = self.live();
        let live = entries.iter().filter_map(|entry| {
            let slot = self.slots.get(entry.slot as usize)?;
            Some((entry.at, slot.key, slot.what.as_ref().filter(|what| chosen(what))?))
        });
        let live: Vec<_> = live.collect();
        (TimerKey::new(self.inserted, 0).0, live).serialize(serializer)
    }

    /// Entries of live timers, in order.
    fn live(&self) -> Vec<Entry> {
        let all = self.lines.iter().flatten().chain(self.rest.iter().map(|Reverse(entry)| entry));
        let mut live: Vec<_> = all.copied().filter(|entry| is_live(&self.slots, entry)).collect();
        live.sort_unstable();
        live
    }
}

/// Handed over as what is live, with a bound that no key exceeds; keys that were given out stay valid.
impl<T: Serialize> Serialize for TimerTable<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.serialize_those(|_| true, serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for TimerTable<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (bound, live) = <(u64, Vec<(Instant, TimerKey, T)>)>::deserialize(deserializer)?;
        let mut table = Self::new();
        for (at, key, what) in live {
            let index = table.insert(at, what).index();
            table.slots[index].key = key;
            if table.adopted.insert(key, index as u32).is_some() {
                return Err(D::Error::custom("two timers with one key"));
            }
        }
        // Keys given out from now on are none of those.
        table.inserted = table.inserted.max((bound >> TimerKey::INDEX_BITS) + 1);
        Ok(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through(state: &impl Serialize) -> Result<TimerTable<u32>, serde_json::Error> {
        serde_json::from_slice(&serde_json::to_vec(state).unwrap())
    }

    #[test]
    fn keys_stay_valid_over_a_hand_over_and_over_the_next() {
        let mut timers = TimerTable::new();
        let keys: Vec<_> = (0..10_u32).map(|number| timers.insert(Instant(number.into()), number)).collect();
        timers.cancel(keys[3]);
        for round in 0..2 {
            timers = through(&timers).unwrap();
            timers.cancel(keys[4 + round]);
            let new = timers.insert(Instant(50), 50);
            assert!(!keys.contains(&new));
            timers.cancel(new);
        }
        let due: Vec<_> = std::iter::from_fn(|| timers.due(Instant(99))).collect();
        assert_eq!(due, [0, 1, 2, 6, 7, 8, 9]);
        assert!(timers.adopted.is_empty(), "{:?}", timers.adopted);
    }

    #[test]
    fn keys_of_a_predecessor_that_counted_them_are_valid() {
        let state = (5_000_000_u64, vec![(Instant(9), TimerKey(4_999_999), 1), (Instant(8), TimerKey(7), 2)]);
        let mut timers = through(&state).unwrap();
        timers.insert(Instant(9), 3);
        timers.cancel(TimerKey(7));
        assert_eq!(
            [timers.due(Instant(9)), timers.due(Instant(9)), timers.due(Instant(9))],
            [Some(1), Some(3), None]
        );
        let doubled = (9_u64, vec![(Instant(9), TimerKey(1), 1), (Instant(8), TimerKey(1), 2)]);
        assert!(through(&doubled).is_err());
    }
}
