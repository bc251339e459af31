//! JSON values in which no object names a member twice.

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::fmt;

/// A JSON value. Reading one refuses an object with two members of one name: protobuf's JSON mapping does, and whoever
/// wrote it meant one of the two, nobody knows which.
#[derive(Debug)]
pub struct Unique(pub Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reading).map(Unique)
    }
}

struct Reading;

impl<'de> Visitor<'de> for Reading {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let mut out = Vec::new();
        while let Some(Unique(element)) = elements.next_element()? {
            out.push(element);
        }
        Ok(Value::Array(out))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut out = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            if out.contains_key(&name) {
                return Err(A::Error::custom(format!("member {name:?} is there twice; leave one of them")));
            }
            let Unique(value) = members.next_value()?;
            out.insert(name, value);
        }
        Ok(Value::Object(out))
    }
}

#[cfg(test)]
mod tests {
    //! Shows that values survive and that a name is taken once, at any depth.
    use super::*;
    use proptest::prelude::*;

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            "[a-z\"\\\\é]{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-c]{1,2}", inner, 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn values_survive(value in any_value()) {
            let Unique(read) = serde_json::from_str(&value.to_string()).unwrap();
            prop_assert_eq!(read, value);
        }
    }

    #[test]
    fn a_name_is_taken_once() {
        for text in [r#"{"a":1,"a":1}"#, r#"[{"b":{"c":1,"d":2,"c":3}}]"#, r#"{"a":1,"\u0061":2}"#] {
            let error = serde_json::from_str::<Unique>(text).unwrap_err().to_string();
            assert!(error.contains("is there twice"), "{error}");
        }
        assert!(serde_json::from_str::<Unique>(r#"[{"a":1},{"a":1},{"b":{"a":1}}]"#).is_ok());
    }
}
