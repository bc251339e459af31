//! What calls carry: JSON, once for all or anew for each.

use crate::call::{Requests, RequestsError};
use prost_reflect::MessageDescriptor;
use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// What may stand in a template.
const PLACES: [&str; 4] = ["number", "random", "uuid", "time_ms"];

/// A place of a template that nothing is filled into.
pub fn unknown_place(text: &str) -> Option<&str> {
    let places = text.split("{{").skip(1).filter_map(|rest| rest.split_once("}}"));
    // Two braces in a string, far from others, are no place.
    let is_name =
        |name: &str| !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "_-.".contains(c));
    places.map(|(name, _)| name.trim()).find(|name| is_name(name) && !PLACES.contains(name))
}

/// Requests of one call: one message each, or all that are given if the method streams.
#[derive(Debug)]
pub struct Data {
    descriptor: MessageDescriptor,
    unknown: bool,
    streams: bool,
    source: Source,
    /// For `{{random}}` and `{{uuid}}`.
    seed: RandomState,
}

#[derive(Debug)]
enum Source {
    /// Encoded once. A method that streams gets all of them in every call, any other the next in turn.
    Fixed(Vec<Arc<[u8]>>),
    /// Filled in and encoded for every call.
    Template(String),
}

impl Data {
    /// Reads JSON values; one with `{{…}}` in it is a template.
    ///
    /// # Errors
    /// If what there is, or what the template makes for the first call, is not JSON of the request type.
    pub fn new(
        descriptor: MessageDescriptor,
        text: &str,
        streams: bool,
        unknown: bool,
    ) -> Result<Self, RequestsError> {
        let source = Source::Template(text.to_owned());
        let mut data = Self { descriptor, unknown, streams, source, seed: RandomState::new() };
        let first = data.encoded(&data.filled(text, 0))?;
        if !text.contains("{{") {
            data.source = Source::Fixed(if first.is_empty() { vec![Arc::default()] } else { first });
        }
        Ok(data)
    }

    /// What call number `number` sends.
    ///
    /// # Errors
    /// If the template does not make JSON of the request type this time.
    pub fn of_call(&self, number: u64) -> Result<Cow<'_, [Arc<[u8]>]>, RequestsError> {
        match &self.source {
            Source::Fixed(all) if self.streams => Ok(Cow::Borrowed(all)),
            Source::Fixed(all) => {
                let at = (number % all.len() as u64) as usize;
                Ok(Cow::Borrowed(&all[at..=at]))
            }
            Source::Template(text) => {
                let mut made = self.encoded(&self.filled(text, number))?;
                if made.is_empty() {
                    made.push(Arc::default());
                }
                made.truncate(if self.streams { usize::MAX } else { 1 });
                Ok(Cow::Owned(made))
            }
        }
    }

    fn encoded(&self, text: &str) -> Result<Vec<Arc<[u8]>>, RequestsError> {
        let requests = Requests::new(self.descriptor.clone(), text.as_bytes()).allow_unknown(self.unknown);
        requests.map(|request| request.map(Arc::from)).collect()
    }

    /// `{{number}}`: the call's, from 0. `{{random}}`: 64 random bits in decimal. `{{uuid}}`: a random UUID (RFC 9562,
    /// version 4). `{{time_ms}}`: milliseconds since 1970. Nothing else stands there ([`unknown_place`]).
    fn filled(&self, text: &str, number: u64) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        let mut place = 0;
        while let Some((before, after)) = rest.split_once("{{") {
            let Some((name, behind)) = after.split_once("}}") else { break };
            out.push_str(before);
            let random = |part: u64| self.seed.hash_one((number, place, part));
            match name.trim() {
                "number" => out.push_str(&number.to_string()),
                "random" => out.push_str(&random(0).to_string()),
                "uuid" => out.push_str(&uuid(random(0), random(1))),
                "time_ms" => out.push_str(&time_ms().to_string()),
                _ => out.push_str(&format!("{{{{{name}}}}}")),
            }
            place += 1;
            rest = behind;
        }
        out.push_str(rest);
        out
    }
}

fn uuid(high: u64, low: u64) -> String {
    let bits = u128::from(high) << 64 | u128::from(low);
    let bits = bits & !(0xf << 76) & !(0x3 << 62) | (0x4 << 76) | (0x2 << 62);
    let hex = format!("{bits:032x}");
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

fn time_ms() -> u128 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |time| time.as_millis())
}

#[cfg(test)]
mod tests {
    //! Shows what each call gets, from fixed data and from templates.
    use super::*;
    use crate::call::test_pool;

    fn data(text: &str, streams: bool) -> Data {
        let ask = test_pool().get_message_by_name("a.v1.Ask").unwrap();
        Data::new(ask, text, streams, false).unwrap()
    }

    fn lens(data: &Data, number: u64) -> Vec<usize> {
        data.of_call(number).unwrap().iter().map(|message| message.len()).collect()
    }

    #[test]
    fn fixed_data_goes_round_or_whole() {
        let text = r#"{"text": "a"} {"text": "bb"}"#;
        let (unary, stream) = (data(text, false), data(text, true));
        assert_eq!((lens(&unary, 0), lens(&unary, 1), lens(&unary, 2)), (vec![3], vec![4], vec![3]));
        assert_eq!(lens(&stream, 7), [3, 4]);
        assert_eq!(lens(&data("", false), 0), [0], "nothing is the empty message");
    }

    #[test]
    fn templates_are_filled_for_each_call() {
        let unary = data(r#"{"text": "{{number}}", "numbers": [{{number}}]}"#, false);
        assert_eq!(lens(&unary, 0), [2 + 1 + 2 + 1]);
        assert_eq!(lens(&unary, 1000), [2 + 4 + 2 + 2]);
        let filled = unary.filled("{{uuid}} {{random}} {{other}} {{", 1);
        let parts: Vec<&str> = filled.split(' ').collect();
        assert_eq!(
            (parts[0].len(), parts[0].as_bytes()[14], parts[2], parts[3]),
            (36, b'4', "{{other}}", "{{")
        );
        assert_ne!(parts[0], unary.filled("{{uuid}}", 2));
    }

    #[test]
    fn places_nothing_is_filled_into_are_found() {
        for (text, unknown) in [
            (r#"{"text": "{{number}} {{ uuid }}"}"#, None),
            (r#"{"text": "{{number}} {{foo}}"}"#, Some("foo")),
            (r#"{"ask": {"text": "{{"}}"#, None),
            ("{{}}", None),
        ] {
            assert_eq!(unknown_place(text), unknown, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_shows_at_once() {
        let ask = test_pool().get_message_by_name("a.v1.Ask").unwrap();
        for text in ["{", r#"{"txt": 1}"#, r#"{"text": {{number}}}"#] {
            assert!(Data::new(ask.clone(), text, false, false).is_err(), "{text}");
        }
    }
}
