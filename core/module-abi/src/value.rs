//! Text, room for text, and values.

/// Bytes that belong to somebody else. Text is UTF-8. `data` may be null if `bytes` is 0.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    /// The first byte.
    pub data: *const u8,
    /// How many there are.
    pub bytes: usize,
}

/// Room for words. Whoever is lent it writes at most `capacity` bytes of UTF-8 at `data` and says how many in `bytes`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Words {
    /// The first byte of the room.
    pub data: *mut u8,
    /// Its size in bytes.
    pub capacity: u32,
    /// How many were written; 0 when it is lent.
    pub bytes: u32,
}

/// There is no value: an expression without one, or an optional field the message's type does not have.
pub const KIND_NONE: u32 = 0;
/// `bits` is 0 or 1.
pub const KIND_BOOL: u32 = 1;
/// `bits` is a 64-bit integer with a sign, two's complement. Enums are integers.
pub const KIND_INT: u32 = 2;
/// `bits` is a 64-bit integer without a sign.
pub const KIND_UINT: u32 = 3;
/// `bits` is a double by IEEE 754.
pub const KIND_DOUBLE: u32 = 4;
/// `text` is UTF-8.
pub const KIND_TEXT: u32 = 5;
/// `text` is bytes.
pub const KIND_BYTES: u32 = 6;

/// A value of one of the kinds above. In C `bits` is a union of the four numbers.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Value {
    /// Which kind.
    pub kind: u32,
    /// Zero.
    pub reserved: u32,
    /// The number, of the kinds that are numbers.
    pub bits: u64,
    /// The bytes, of the kinds that have some.
    pub text: Slice,
}

impl Slice {
    /// No bytes.
    pub const EMPTY: Self = Self { data: std::ptr::null(), bytes: 0 };

    /// These bytes, which the caller keeps alive for as long as anybody reads the slice.
    pub const fn of(bytes: &[u8]) -> Self {
        Self { data: bytes.as_ptr(), bytes: bytes.len() }
    }
}

impl Value {
    /// No value.
    pub const NONE: Self = Self { kind: KIND_NONE, reserved: 0, bits: 0, text: Slice::EMPTY };

    /// A number, as its bits.
    pub const fn number(kind: u32, bits: u64) -> Self {
        Self { kind, reserved: 0, bits, text: Slice::EMPTY }
    }

    /// Text or bytes.
    pub const fn bytes(kind: u32, bytes: &[u8]) -> Self {
        Self { kind, reserved: 0, bits: 0, text: Slice::of(bytes) }
    }
}
