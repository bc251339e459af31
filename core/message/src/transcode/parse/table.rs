//! What the parser must know of a message type, in the order it asks.
//!
//! A tag leads straight to an entry of 16 bytes: numbers 1 to 15, whose tags are one byte, through an array whose index
//! cannot be out of range; the numbers above through a dense array while the numbers are, else by binary search.
//! Wide blocks, oneofs and what else is out of the ordinary stand behind a *detour*, so that the ordinary field pays
//! nothing for them.

use std::ops::Range;

/// What to do with a field's value. One operation per type and cardinality, so that none asks what it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum ParseOp {
    /// No such field, or not with this wire type: keep the bytes.
    #[default]
    Unknown,
    /// Step aside to [`Detour`] first.
    Detour,
    Varint32,
    Varint64,
    Zigzag32,
    Zigzag64,
    Bool,
    Fixed32,
    Fixed64,
    ClosedEnum,
    Bytes,
    Text,
    Message,
    Group,
    RunVarint32,
    RunVarint64,
    RunZigzag32,
    RunZigzag64,
    RunBool,
    RunFixed32,
    RunFixed64,
    RunClosedEnum,
    RunBytes,
    RunText,
    RunMessage,
    RunGroup,
    /// A map whose value is a closed enum: an entry with an unknown value is unknown as a whole.
    RunClosedEntry,
    /// What a map's entry does not have: nobody keeps it.
    Dropped,
    PackedVarint32,
    PackedVarint64,
    PackedZigzag32,
    PackedZigzag64,
    PackedBool,
    PackedFixed32,
    PackedFixed64,
    PackedClosedEnum,
}

/// One field.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ParseEntry {
    /// Number and wire type as on the wire; 0 for no field.
    pub tag: u32,
    /// Bytes from the block's start.
    pub slot: u32,
    /// Index of the child's table, the enum's values, or the detour, as `op` has it.
    pub aux: u32,
    pub op: ParseOp,
    /// Presence bit within the first word pair, or [`DRAIN_BIT`].
    pub bit: u8,
    /// The operation for the other wire type a repeated scalar may come in, or for [`ANY_OTHER`].
    pub other_op: ParseOp,
    pub other_wire_type: u8,
}

/// Presence bits below this are collected in a register and stored when the message ends.
pub(super) const REGISTER_BITS: u32 = 63;
/// The bit of the register that stands for no field: detours set presence themselves.
pub(super) const DRAIN_BIT: u8 = 63;

/// In place of a wire type: every tag that is not the entry's.
pub(super) const ANY_OTHER: u8 = 0xff;

impl ParseEntry {
    /// The operation for `tag`, whose number is this entry's or this entry is empty.
    #[inline(always)]
    pub(super) fn op_for(&self, tag: u32) -> ParseOp {
        if self.tag == tag { self.op } else { self.op_for_other(tag) }
    }

    /// The field's presence bit in the register.
    #[inline(always)]
    pub(super) fn presence(&self) -> u64 {
        1 << (self.bit & 63)
    }

    /// Notes that the field is present.
    #[inline(always)]
    pub(super) fn seen(&self, present: &mut u64) -> &Self {
        *present |= self.presence();
        self
    }

    #[cold]
    #[inline(never)]
    fn op_for_other(&self, tag: u32) -> ParseOp {
        let crosses = self.tag >> 3 == tag >> 3 && tag & 7 == u32::from(self.other_wire_type);
        if crosses || self.other_wire_type == ANY_OTHER { self.other_op } else { ParseOp::Unknown }
    }
}

/// A field whose presence needs more than one bit set in the first 63: a member of a oneof, or a far field.
#[derive(Debug)]
pub(super) struct Detour {
    /// The field itself.
    pub field: ParseEntry,
    /// Its presence bit, counted over all words.
    pub bit: u32,
    /// Where `ParseTables` has the bits of the oneof's members, this one's among them; empty if there is no other.
    pub rivals: Range<u32>,
    /// Bytes of the shared slot to clear when another member was set before.
    pub slot_bytes: u8,
}

/// The values of a closed enum.
#[derive(Debug)]
pub(super) struct ClosedEnum {
    /// Bit v is set if v is a value, for 0..256.
    pub small: [u64; 4],
    /// The other values, ascending.
    pub rest: Box<[i32]>,
}

impl ClosedEnum {
    pub(super) fn new(values: &[i32]) -> Self {
        let mut small = [0; 4];
        let mut rest = Vec::new();
        for &v in values {
            match u8::try_from(v) {
                Ok(v) => small[usize::from(v >> 6)] |= 1 << (v & 63),
                Err(_) => rest.push(v),
            }
        }
        rest.sort_unstable();
        ClosedEnum { small, rest: rest.into() }
    }

    #[inline(always)]
    pub(super) fn contains(&self, value: u32) -> bool {
        if value < 256 {
            self.small[(value >> 6) as usize & 3] >> (value & 63) & 1 != 0
        } else {
            self.rest.binary_search(&(value as i32)).is_ok()
        }
    }
}

/// One message type.
#[derive(Debug, Default)]
pub(super) struct ParseTable {
    /// Fields 1..=15 by number.
    pub low: [ParseEntry; 16],
    /// Fields from 16 by number less 16.
    pub dense: Box<[ParseEntry]>,
    /// Fields beyond `dense`, ascending.
    pub sparse: Box<[ParseEntry]>,
    pub block_bytes: u32,
    pub presence_words: u32,
    /// The message's index in the schema.
    pub index: u32,
}

impl ParseTable {
    /// The entry of field `number`; an empty one if there is none.
    #[inline(always)]
    pub(super) fn find(&self, number: u32) -> &ParseEntry {
        if number < 16 {
            return &self.low[number as usize & 15];
        }
        match self.dense.get(number as usize - 16) {
            Some(entry) => entry,
            None => self.find_sparse(number),
        }
    }

    #[inline(never)]
    fn find_sparse(&self, number: u32) -> &ParseEntry {
        match self.sparse.binary_search_by_key(&number, |e| e.tag >> 3) {
            Ok(i) => &self.sparse[i],
            Err(_) => &self.low[0],
        }
    }
}
