//! JSON values, wrappers and field masks, from and to what they stand for.

use crate::wkt::value::Kind;
use crate::wkt::{
    BoolValue, BytesValue, DoubleValue, Empty, FieldMask, FloatValue, Int32Value, Int64Value, ListValue,
    NullValue, StringValue, Struct, UInt32Value, UInt64Value, Value,
};
use std::collections::HashMap;

macro_rules! wrapper {
    ($($wrapper:ident($of:ty)),* $(,)?) => {
        $(
            impl From<$of> for $wrapper {
                fn from(value: $of) -> Self {
                    Self { value }
                }
            }

            impl From<$wrapper> for $of {
                fn from(wrapper: $wrapper) -> Self {
                    wrapper.value
                }
            }
        )*
    };
}

wrapper! {
    BoolValue(bool), BytesValue(Vec<u8>), DoubleValue(f64), FloatValue(f32), Int32Value(i32), Int64Value(i64),
    StringValue(String), UInt32Value(u32), UInt64Value(u64),
}

impl From<&str> for StringValue {
    fn from(value: &str) -> Self {
        Self { value: value.to_owned() }
    }
}

impl From<()> for Empty {
    fn from((): ()) -> Self {
        Self {}
    }
}

impl<S: Into<String>> FromIterator<S> for FieldMask {
    fn from_iter<T: IntoIterator<Item = S>>(paths: T) -> Self {
        Self { paths: paths.into_iter().map(Into::into).collect() }
    }
}

impl Value {
    /// JSON's `null`.
    pub fn null() -> Self {
        Self { kind: Some(Kind::NullValue(NullValue::NullValue)) }
    }

    /// The text, if it is a string.
    pub fn as_str(&self) -> Option<&str> {
        match &self.kind {
            Some(Kind::StringValue(text)) => Some(text),
            _ => None,
        }
    }

    /// The number, if it is one.
    pub fn as_f64(&self) -> Option<f64> {
        match self.kind {
            Some(Kind::NumberValue(number)) => Some(number),
            _ => None,
        }
    }

    /// `true` or `false`, if it is one of them.
    pub fn as_bool(&self) -> Option<bool> {
        match self.kind {
            Some(Kind::BoolValue(value)) => Some(value),
            _ => None,
        }
    }

    /// The object, if it is one.
    pub fn as_struct(&self) -> Option<&Struct> {
        match &self.kind {
            Some(Kind::StructValue(object)) => Some(object),
            _ => None,
        }
    }

    /// The elements, if it is an array.
    pub fn as_list(&self) -> Option<&[Value]> {
        match &self.kind {
            Some(Kind::ListValue(list)) => Some(&list.values),
            _ => None,
        }
    }
}

macro_rules! value {
    ($($of:ty => $value:ident => $kind:expr),* $(,)?) => {
        $(
            impl From<$of> for Value {
                fn from($value: $of) -> Self {
                    Self { kind: Some($kind) }
                }
            }
        )*
    };
}

value! {
    bool => value => Kind::BoolValue(value),
    f64 => value => Kind::NumberValue(value),
    i32 => value => Kind::NumberValue(value.into()),
    u32 => value => Kind::NumberValue(value.into()),
    String => value => Kind::StringValue(value),
    &str => value => Kind::StringValue(value.to_owned()),
    Struct => value => Kind::StructValue(value),
    ListValue => value => Kind::ListValue(value),
    Vec<Value> => values => Kind::ListValue(ListValue { values }),
}

impl<S: Into<String>, V: Into<Value>> FromIterator<(S, V)> for Struct {
    fn from_iter<T: IntoIterator<Item = (S, V)>>(members: T) -> Self {
        Self { fields: members.into_iter().map(|(name, value)| (name.into(), value.into())).collect() }
    }
}

impl From<HashMap<String, Value>> for Struct {
    fn from(fields: HashMap<String, Value>) -> Self {
        Self { fields }
    }
}

impl<V: Into<Value>> FromIterator<V> for ListValue {
    fn from_iter<T: IntoIterator<Item = V>>(values: T) -> Self {
        Self { values: values.into_iter().map(Into::into).collect() }
    }
}

#[cfg(test)]
mod tests {
    //! Shows that values go there and come back.
    use super::*;

    #[test]
    fn a_value_is_what_it_was_made_of() {
        let list: ListValue = [1, 2].into_iter().collect();
        let object: Struct =
            [("list", Value::from(list)), ("on", true.into()), ("no", Value::null())].into_iter().collect();
        let value = Value::from(object);
        let fields = &value.as_struct().unwrap().fields;
        let numbers: Vec<_> = fields["list"].as_list().unwrap().iter().map(Value::as_f64).collect();
        assert_eq!(numbers, [Some(1.0), Some(2.0)]);
        assert_eq!(
            (fields["on"].as_bool(), fields["no"].as_bool(), fields["no"].as_str()),
            (Some(true), None, None)
        );
        assert_eq!(Value::from("text").as_str(), Some("text"));
    }

    #[test]
    fn wrappers_and_masks_are_made_of_what_they_hold() {
        assert_eq!(i64::from(Int64Value::from(-7)), -7);
        assert_eq!(String::from(StringValue::from("text")), "text");
        assert_eq!(["a", "b.c"].into_iter().collect::<FieldMask>().paths, ["a", "b.c"]);
    }
}
