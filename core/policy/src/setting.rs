//! The settings of a module: TOML as an operator writes it, and flat as a module gets it.

use crate::refused::Wrong;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A table of settings.
pub type Settings = BTreeMap<String, Setting>;

/// A value of a module's `config`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(untagged)]
#[allow(missing_docs, reason = "the names of the types say all there is to say")]
pub enum Setting {
    Bool(bool),
    Int(i64),
    Double(f64),
    Text(String),
    List(Vec<Setting>),
    Table(Settings),
}

/// A value of a module's settings.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "the names of the types say all there is to say")]
pub enum SettingValue {
    Bool(bool),
    Int(i64),
    Double(f64),
    Text(String),
}

/// Values of one module.
const SETTINGS_MAX: usize = 256;
/// Bytes of their keys and texts.
const SETTINGS_BYTES_MAX: usize = 64 * 1024;

/// What a module gets: ways and values.
pub(crate) type Flat = Vec<(String, SettingValue)>;

/// `limits = { burst = 2 }` is `limits.burst`, the first of `tenants = ["a"]` is `tenants.0`; in the order of keys.
pub(crate) fn flat(settings: Option<&Settings>) -> Result<Flat, Wrong> {
    let mut pairs = Vec::new();
    for (key, setting) in settings.into_iter().flatten() {
        spread(checked(key)?.to_owned(), setting, &mut pairs)?;
    }
    let bytes = |(key, value): &(String, SettingValue)| {
        key.len() + if let SettingValue::Text(text) = value { text.len() } else { 8 }
    };
    let total: usize = pairs.iter().map(bytes).sum();
    if pairs.len() > SETTINGS_MAX || total > SETTINGS_BYTES_MAX {
        let problem = format!("has {} values of {total} bytes", pairs.len());
        let advice = format!("at most {SETTINGS_MAX} values and {SETTINGS_BYTES_MAX} bytes");
        return Err(Wrong::new("config", problem, advice));
    }
    Ok(pairs)
}

fn spread(key: String, setting: &Setting, into: &mut Flat) -> Result<(), Wrong> {
    let value = match setting {
        Setting::Bool(value) => SettingValue::Bool(*value),
        Setting::Int(value) => SettingValue::Int(*value),
        Setting::Double(value) => SettingValue::Double(*value),
        Setting::Text(value) => SettingValue::Text(value.clone()),
        Setting::List(list) => {
            return list
                .iter()
                .enumerate()
                .try_for_each(|(at, element)| spread(format!("{key}.{at}"), element, into));
        }
        Setting::Table(table) => {
            return table
                .iter()
                .try_for_each(|(name, inner)| spread(format!("{key}.{}", checked(name)?), inner, into));
        }
    };
    into.push((key, value));
    Ok(())
}

/// Parts of a key are joined by dots, so none may have one.
fn checked(key: &str) -> Result<&str, Wrong> {
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    if !key.is_empty() && key.bytes().all(legal) {
        return Ok(key);
    }
    // What the parser makes of a date is a table with a name of its own.
    let advice = if key.starts_with('$') { "write dates as text" } else { "write it with a-z A-Z 0-9 - _" };
    Err(Wrong::new("config", format!("{key:?} is no key"), advice))
}

#[cfg(test)]
mod tests {
    //! Shows what a module gets to see of a table, and what is refused.
    use super::*;

    fn flat_of(text: &str) -> Result<Flat, String> {
        let settings: Settings = toml::from_str(text).unwrap();
        flat(Some(&settings)).map_err(|wrong| format!("{}; {}", wrong.problem, wrong.advice))
    }

    #[test]
    fn tables_and_lists_become_ways() {
        let text = "rate = 5\nshare = 0.5\non = true\nlimits = { burst = 2 }\ntenants = [\"a\", \"b\"]";
        let expected = [
            ("limits.burst", SettingValue::Int(2)),
            ("on", SettingValue::Bool(true)),
            ("rate", SettingValue::Int(5)),
            ("share", SettingValue::Double(0.5)),
            ("tenants.0", SettingValue::Text("a".into())),
            ("tenants.1", SettingValue::Text("b".into())),
        ];
        assert_eq!(flat_of(text).unwrap(), expected.map(|(key, value)| (key.to_owned(), value)));
        assert_eq!(flat(None).unwrap(), []);
    }

    #[test]
    fn what_cannot_be_told_apart_is_refused() {
        assert_eq!(flat_of("\"a.b\" = 1").unwrap_err(), "\"a.b\" is no key; write it with a-z A-Z 0-9 - _");
        assert!(flat_of("at = 2024-01-01").unwrap_err().ends_with("write dates as text"));
        let many: String = (0..257).map(|n| format!("k{n} = 1\n")).collect();
        assert!(flat_of(&many).unwrap_err().starts_with("has 257 values"));
        let long = format!("k = \"{}\"", "x".repeat(SETTINGS_BYTES_MAX));
        assert!(flat_of(&long).unwrap_err().starts_with("has 1 values of 65537 bytes"));
    }
}
