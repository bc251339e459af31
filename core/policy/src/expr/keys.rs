//! The keys of a map, each once: a message may hold several entries with one key, of which the last one counts, and
//! whoever reads the map sees one.

use super::error::EvalError;
use super::steps::StepsLeft;
use super::value::Value;
use trunkline_call::KeyedSet;

/// Maps of up to so many entries are compared key by key, which takes no memory.
const FEW: usize = 16;

/// Keys that have been met on the way through a map.
pub(super) enum Keys<'a> {
    Few(Value<'a>),
    /// Grows with the entries looked at, which cost steps.
    Many(Value<'a>, KeyedSet<Key<'a>>),
}

/// A key that can be looked up.
#[derive(PartialEq, Eq, Hash)]
pub(super) enum Key<'a> {
    Bool(bool),
    Int(i64),
    Uint(u64),
    Text(&'a [u8]),
}

impl<'a> Keys<'a> {
    /// The way through `map`, a map field, which has `entries` of them.
    pub fn of(map: Value<'a>, entries: usize) -> Self {
        if entries <= FEW { Self::Few(map) } else { Self::Many(map, KeyedSet::default()) }
    }

    /// The key of the entry at `index`, if none before it had the same. To be asked for one entry after the other.
    pub fn next(&mut self, steps: &mut StepsLeft, index: usize) -> Result<Option<Value<'a>>, EvalError> {
        let map = match self {
            Self::Few(map) | Self::Many(map, _) => *map,
        };
        let key = item(map, index)?;
        steps.charge(1)?;
        steps.charge_bytes(key.bytes())?;
        let is_new = match self {
            Self::Many(_, met) => met.insert(Key::of(key)),
            Self::Few(_) => {
                let mut is_new = true;
                for earlier in 0..index {
                    let earlier = item(map, earlier)?;
                    steps.charge_bytes(earlier.bytes())?;
                    is_new &= Key::of(earlier) != Key::of(key);
                }
                is_new
            }
        };
        Ok(is_new.then_some(key))
    }
}

/// The key of the entry at `index`.
fn item(map: Value<'_>, index: usize) -> Result<Value<'_>, EvalError> {
    let Value::Repeated(view, slot) = map else { return Err(EvalError::OutOfRange) };
    Value::of_item(view, slot, index).ok_or(EvalError::OutOfRange)
}

impl<'a> Key<'a> {
    fn of(value: Value<'a>) -> Self {
        match value {
            Value::Bool(value) => Self::Bool(value),
            Value::Int(value) => Self::Int(value),
            Value::Uint(value) => Self::Uint(value),
            text => Self::Text(text.bytes()),
        }
    }
}
