//! The configuration as a policy reads it.

use crate::lent::text;
use trunkline_module_abi as abi;

/// What a policy's `config` says. Keys of inner tables and lists are joined by dots: `limits.burst`, `tenants.0`.
#[derive(Clone, Copy, Debug)]
pub struct Config<'a> {
    pub(crate) policy: &'a str,
    pub(crate) pairs: &'a [abi::Pair],
}

/// A value of the configuration.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs, reason = "the names of the types say all there is to say")]
pub enum Setting<'a> {
    Bool(bool),
    Int(i64),
    Double(f64),
    Text(&'a str),
}

impl<'a> Config<'a> {
    /// The policy's name.
    pub fn policy(&self) -> &'a str {
        self.policy
    }

    /// Every key with its value, in the order of keys.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, Setting<'a>)> + use<'a> {
        self.pairs.iter().map(|pair| (text(&pair.key), Setting::of(&pair.value)))
    }

    /// The value of a key.
    pub fn find(&self, key: &str) -> Option<Setting<'a>> {
        self.iter().find(|(known, _)| *known == key).map(|(_, value)| value)
    }

    /// A text.
    pub fn text(&self, key: &str) -> Option<&'a str> {
        if let Some(Setting::Text(text)) = self.find(key) { Some(text) } else { None }
    }

    /// A whole number.
    pub fn int(&self, key: &str) -> Option<i64> {
        if let Some(Setting::Int(value)) = self.find(key) { Some(value) } else { None }
    }

    /// A number, whole or not.
    pub fn number(&self, key: &str) -> Option<f64> {
        match self.find(key)? {
            Setting::Int(value) => Some(value as f64),
            Setting::Double(value) => Some(value),
            Setting::Bool(_) | Setting::Text(_) => None,
        }
    }

    /// Yes or no.
    pub fn bool(&self, key: &str) -> Option<bool> {
        if let Some(Setting::Bool(value)) = self.find(key) { Some(value) } else { None }
    }

    /// Refuses keys that are none of these: a typing error is found when the policy is applied, and not by its effect.
    ///
    /// # Errors
    /// The key, and those there are.
    pub fn only(&self, keys: &[&str]) -> Result<(), String> {
        let known = |key: &str| {
            keys.iter()
                .any(|known| key == *known || key.starts_with(known) && key[known.len()..].starts_with('.'))
        };
        match self.iter().find(|(key, _)| !known(key)) {
            Some((key, _)) => Err(format!("there is no key {key:?}; its keys: {}", keys.join(", "))),
            None => Ok(()),
        }
    }
}

impl<'a> Setting<'a> {
    fn of(value: &'a abi::Value) -> Self {
        match value.kind {
            abi::KIND_BOOL => Self::Bool(value.bits != 0),
            abi::KIND_INT => Self::Int(value.bits.cast_signed()),
            abi::KIND_DOUBLE => Self::Double(f64::from_bits(value.bits)),
            _ => Self::Text(text(&value.text)),
        }
    }
}
