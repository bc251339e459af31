//! Values while an expression is evaluated: all of them borrow, none allocates.

use super::node::{Constant, Node, Read, Slot};
use std::cmp::Ordering;
use trunkline_message::View;

/// A value. Text is bytes: order, prefix and equality of UTF-8 are those of its bytes.
#[derive(Clone, Copy)]
pub(super) enum Value<'a> {
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Str(&'a [u8]),
    Bytes(&'a [u8]),
    Message(View<'a>),
    /// A repeated field or a map field of the message.
    Repeated(View<'a>, &'a Slot),
    /// A list that stands in the expression; its elements are evaluated when they are asked for.
    Written(&'a [Node]),
    /// A list of names that is known of the call.
    Names(&'a [Box<str>]),
}

impl<'a> Value<'a> {
    pub fn of_constant(constant: &'a Constant) -> Self {
        match constant {
            Constant::Bool(value) => Self::Bool(*value),
            Constant::Int(value) => Self::Int(*value),
            Constant::Uint(value) => Self::Uint(*value),
            Constant::Double(value) => Self::Double(*value),
            Constant::Str(value) => Self::Str(value),
            Constant::Bytes(value) => Self::Bytes(value),
        }
    }

    /// Reads a field; an absent one has its default.
    pub fn of_field(view: View<'a>, slot: &'a Slot) -> Self {
        if let Some(default) = &slot.default
            && !view.has(slot.at)
        {
            return Self::of_constant(default);
        }
        let at = slot.at;
        match slot.read {
            Read::Bool => Self::Bool(view.bool(at)),
            Read::I32 => Self::Int(view.i32(at).into()),
            Read::U32 => Self::Uint(view.u32(at).into()),
            Read::F32 => Self::Double(view.f32(at).into()),
            Read::I64 => Self::Int(view.i64(at)),
            Read::U64 => Self::Uint(view.u64(at)),
            Read::F64 => Self::Double(view.f64(at)),
            Read::Str => Self::Str(view.bytes(at)),
            Read::Bytes => Self::Bytes(view.bytes(at)),
            Read::Message => Self::Message(view.message(at).unwrap_or(View::EMPTY)),
            Read::List(_) | Read::Map(_) => Self::Repeated(view, slot),
        }
    }

    /// What a quantifier's variable stands for at `index` of a repeated field: an element of a list, a key of a map.
    pub fn of_item(view: View<'a>, slot: &'a Slot, index: usize) -> Option<Self> {
        match (&slot.read, Self::of_element(view, slot, index)) {
            (Read::Map(entry), Some(Value::Message(view))) => Some(Self::of_field(view, &entry.0)),
            (_, element) => element,
        }
    }

    /// The element of a repeated field; of a map, its entry.
    pub fn of_element(view: View<'a>, slot: &'a Slot, index: usize) -> Option<Self> {
        let at = slot.at;
        let Read::List(element) = &slot.read else {
            return view.list::<View<'a>>(at).get(index).map(Self::Message);
        };
        Some(match **element {
            Read::Bool => Self::Bool(view.list::<bool>(at).get(index)?),
            Read::I32 => Self::Int((*view.i32s(at).get(index)?).into()),
            Read::U32 => Self::Uint((*view.u32s(at).get(index)?).into()),
            Read::F32 => Self::Double((*view.f32s(at).get(index)?).into()),
            Read::I64 => Self::Int(*view.i64s(at).get(index)?),
            Read::U64 => Self::Uint(*view.u64s(at).get(index)?),
            Read::F64 => Self::Double(*view.f64s(at).get(index)?),
            Read::Str => Self::Str(view.list::<&[u8]>(at).get(index)?),
            Read::Bytes => Self::Bytes(view.list::<&[u8]>(at).get(index)?),
            Read::Message | Read::List(_) | Read::Map(_) => {
                Self::Message(view.list::<View<'a>>(at).get(index)?)
            }
        })
    }

    /// Elements of a repeated field or entries of a map.
    pub fn count(view: View<'a>, slot: &Slot) -> usize {
        let at = slot.at;
        let Read::List(element) = &slot.read else { return view.list::<View<'a>>(at).len() };
        match **element {
            Read::Bool => view.list::<bool>(at).len(),
            Read::I32 | Read::U32 | Read::F32 => view.u32s(at).len(),
            Read::I64 | Read::U64 | Read::F64 => view.u64s(at).len(),
            Read::Str | Read::Bytes => view.list::<&[u8]>(at).len(),
            Read::Message | Read::List(_) | Read::Map(_) => view.list::<View<'a>>(at).len(),
        }
    }

    /// Whether it is what a field without presence has when it is absent.
    pub fn is_zero(self) -> bool {
        match self {
            Self::Bool(value) => !value,
            Self::Int(value) => value == 0,
            Self::Uint(value) => value == 0,
            // Of the two zeros only the positive one is the default; protobuf writes the other.
            Self::Double(value) => value.to_bits() == 0,
            Self::Str(value) | Self::Bytes(value) => value.is_empty(),
            Self::Message(_) | Self::Repeated(..) | Self::Written(_) | Self::Names(_) => false,
        }
    }

    /// Bytes a comparison or search walks.
    pub fn bytes(self) -> &'a [u8] {
        match self {
            Self::Str(value) | Self::Bytes(value) => value,
            _ => &[],
        }
    }

    /// Whether two values the checker found comparable are one. Texts of two lengths are not, whatever is in them.
    #[inline]
    pub fn equals(self, other: Self) -> bool {
        match (self, other) {
            (Self::Str(a), Self::Str(b)) | (Self::Bytes(a), Self::Bytes(b)) => a == b,
            _ => self.compare(other) == Some(Ordering::Equal),
        }
    }

    /// Order of two values the checker found comparable; numbers by where they stand on the number line, whatever
    /// their types. `None` for what has no order (NaN).
    pub fn compare(self, other: Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => Some(a.cmp(&b)),
            (Self::Int(a), Self::Int(b)) => Some(a.cmp(&b)),
            (Self::Uint(a), Self::Uint(b)) => Some(a.cmp(&b)),
            (Self::Double(a), Self::Double(b)) => a.partial_cmp(&b),
            (Self::Str(a), Self::Str(b)) | (Self::Bytes(a), Self::Bytes(b)) => Some(a.cmp(b)),
            (Self::Int(a), Self::Uint(b)) => Some(i128::from(a).cmp(&i128::from(b))),
            (Self::Uint(a), Self::Int(b)) => Some(i128::from(a).cmp(&i128::from(b))),
            (Self::Int(a), Self::Double(b)) => with_double(a.into(), b),
            (Self::Uint(a), Self::Double(b)) => with_double(a.into(), b),
            (Self::Double(a), Self::Int(b)) => with_double(b.into(), a).map(Ordering::reverse),
            (Self::Double(a), Self::Uint(b)) => with_double(b.into(), a).map(Ordering::reverse),
            _ => None,
        }
    }
}

/// Exact: a double beyond 64 bits is beyond every integer, below that its whole part is one.
fn with_double(integer: i128, double: f64) -> Option<Ordering> {
    const BEYOND: f64 = 36_893_488_147_419_103_232.0;
    match double {
        _ if double.is_nan() => None,
        _ if double >= BEYOND => Some(Ordering::Less),
        _ if double <= -BEYOND => Some(Ordering::Greater),
        _ => {
            let whole = integer.cmp(&(double.trunc() as i128));
            Some(whole.then_with(|| 0.0.partial_cmp(&double.fract()).unwrap_or(Ordering::Equal)))
        }
    }
}
