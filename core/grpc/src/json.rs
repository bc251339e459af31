//! Reading JSON with the place of everything at hand, for messages that say where.

use serde_json::{Map, Value};
use std::fmt;

/// What is wrong with a service config, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {found}; write {advice}")]
pub struct ServiceConfigError {
    /// `methodConfig[0].retryPolicy.maxAttempts`.
    pub place: String,
    /// What is there.
    pub found: String,
    /// What is to be there.
    pub advice: &'static str,
}

/// Where in the document: a step, and the place it was taken from.
#[derive(Clone, Debug)]
pub struct Place<'a> {
    parent: Option<&'a Place<'a>>,
    step: Step,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Root,
    Key(&'static str),
    KeyItem(&'static str, usize),
    Item(usize),
}

/// An object, its keys asked for one by one. A key whose value is `null` is not there (proto3's JSON mapping).
#[derive(Debug)]
pub struct Members<'a> {
    map: &'a Map<String, Value>,
    at: &'a Place<'a>,
}

/// Longest piece of what was found that a message repeats.
const FOUND_CHARS_MAX: usize = 80;
/// The duration type's own range (protobuf, duration.proto): 10,000 years.
const SECONDS_MAX: u64 = 315_576_000_000;

impl Place<'_> {
    /// The whole document.
    pub fn root() -> Place<'static> {
        Place { parent: None, step: Step::Root }
    }

    /// A place in a list here.
    pub fn item(&self, index: usize) -> Place<'_> {
        Place { parent: Some(self), step: Step::Item(index) }
    }

    /// What is wrong here.
    pub fn wrong(&self, found: String, advice: &'static str) -> ServiceConfigError {
        let found = match found.char_indices().nth(FOUND_CHARS_MAX) {
            Some((end, _)) => format!("{}\u{2026}", &found[..end]),
            None => found,
        };
        ServiceConfigError { place: self.to_string(), found, advice }
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nested = self.parent.filter(|parent| !matches!(parent.step, Step::Root));
        if let Some(parent) = nested {
            parent.fmt(f)?;
        }
        let dot = if nested.is_some() { "." } else { "" };
        match self.step {
            Step::Root => f.write_str("service config"),
            Step::Key(key) => write!(f, "{dot}{key}"),
            Step::KeyItem(key, index) => write!(f, "{dot}{key}[{index}]"),
            Step::Item(index) => write!(f, "[{index}]"),
        }
    }
}

impl<'a> Members<'a> {
    pub fn get(&self, key: &'static str) -> Option<(&'a Value, Place<'a>)> {
        let value = self.map.get(key).filter(|value| !value.is_null())?;
        Some((value, Place { parent: Some(self.at), step: Step::Key(key) }))
    }

    pub fn required(&self, key: &'static str) -> Result<(&'a Value, Place<'a>), ServiceConfigError> {
        let place = Place { parent: Some(self.at), step: Step::Key(key) };
        self.get(key)
            .ok_or_else(|| place.wrong("missing".into(), "it, for the others mean nothing without it"))
    }

    pub fn text(&self, key: &'static str) -> Result<Option<String>, ServiceConfigError> {
        let Some((value, at)) = self.get(key) else { return Ok(None) };
        let text = value.as_str().ok_or_else(|| at.wrong(value.to_string(), "text in quotes"))?;
        Ok(Some(text.to_owned()))
    }

    pub fn boolean(&self, key: &'static str) -> Result<Option<bool>, ServiceConfigError> {
        let Some((value, at)) = self.get(key) else { return Ok(None) };
        value.as_bool().map(Some).ok_or_else(|| at.wrong(value.to_string(), "true or false"))
    }

    /// A number of bytes; more than can be sent is as much as can be.
    pub fn bytes(&self, key: &'static str) -> Result<Option<u32>, ServiceConfigError> {
        let Some((value, at)) = self.get(key) else { return Ok(None) };
        let bytes = whole(value).ok_or_else(|| at.wrong(value.to_string(), "a whole number of bytes"))?;
        Ok(Some(u32::try_from(bytes).unwrap_or(u32::MAX)))
    }

    /// A whole number.
    pub fn number(&self, key: &'static str) -> Result<Option<u64>, ServiceConfigError> {
        let Some((value, at)) = self.get(key) else { return Ok(None) };
        whole(value).map(Some).ok_or_else(|| at.wrong(value.to_string(), "a whole number"))
    }

    pub fn list(&self, key: &'static str) -> Result<Vec<(Place<'a>, &'a Value)>, ServiceConfigError> {
        let Some((value, at)) = self.get(key) else { return Ok(Vec::new()) };
        let list = value.as_array().ok_or_else(|| at.wrong(value.to_string(), "a list"))?;
        let place = |index| Place { parent: Some(self.at), step: Step::KeyItem(key, index) };
        Ok(list.iter().enumerate().map(|(index, item)| (place(index), item)).collect())
    }
}

/// Refuses a text that is too long to be looked at.
pub fn check_size(text: &str, bytes_max: usize) -> Result<(), ServiceConfigError> {
    if text.len() > bytes_max {
        return Err(Place::root().wrong(format!("{} bytes", text.len()), "at most 256 KiB"));
    }
    Ok(())
}

/// A number, or the same in quotes: proto3's JSON mapping takes either for a number of any type, and so do gRPC's own
/// parsers.
pub fn real(value: &Value) -> Option<f64> {
    let number = match value {
        Value::String(text) if is_number(text) => text.parse().ok(),
        value => value.as_f64(),
    };
    number.filter(|number| number.is_finite())
}

/// A whole number from 0, in quotes or not. `3.0` and `3e0` are.
pub fn whole(value: &Value) -> Option<u64> {
    let exact = match value {
        Value::String(text) if is_number(text) => text.parse().ok(),
        value => value.as_u64(),
    };
    // Beyond 64 bits a double is all there is, and whoever asks has a bound far below.
    exact.or_else(|| {
        real(value).filter(|number| number.fract() == 0.0 && *number >= 0.0).map(|number| number as u64)
    })
}

/// A number as JSON writes it: no sign in front but minus, no `inf`, no spaces.
fn is_number(text: &str) -> bool {
    text.starts_with(|first: char| first == '-' || first.is_ascii_digit())
        && serde_json::from_str::<serde_json::Number>(text).is_ok()
}

/// An object's members.
pub fn members<'a>(value: &'a Value, at: &'a Place<'a>) -> Result<Members<'a>, ServiceConfigError> {
    let map =
        value.as_object().ok_or_else(|| at.wrong(value.to_string(), "an object, as {\"key\": value}"))?;
    Ok(Members { map, at })
}

/// `"1.5s"`: seconds with up to nine decimal places (proto3's JSON mapping of a duration). Negative ones mean nothing
/// here.
pub fn duration_ns(value: &Value, at: &Place<'_>) -> Result<u64, ServiceConfigError> {
    let wrong = || at.wrong(value.to_string(), "seconds in quotes, such as \"0.25s\"");
    let digits = value.as_str().and_then(|text| text.strip_suffix('s')).ok_or_else(wrong)?;
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let number = |text: &str, digits_max: usize| {
        let sound = (1..=digits_max).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        sound.then(|| text.parse::<u64>().ok()).flatten().ok_or_else(wrong)
    };
    let (seconds, decimals) = (number(whole, 12)?, number(fraction, 9)?);
    if seconds > SECONDS_MAX {
        return Err(wrong());
    }
    let ns = decimals * 10u64.pow(9 - fraction.len() as u32);
    Ok(seconds.saturating_mul(1_000_000_000).saturating_add(ns))
}
