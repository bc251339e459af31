//! What the emitter must know of a message type: its fields by presence bit.

use trunkline_schema::OneofMask;

/// What to do with a field that is set. One operation per type and cardinality.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EmitOp {
    Uint32,
    /// int32 and open enums: negative values are ten bytes.
    Int32,
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
    RunUint32,
    RunInt32,
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
    PackedUint32,
    PackedInt32,
    PackedVarint64,
    PackedZigzag32,
    PackedZigzag64,
    PackedBool,
    PackedFixed32,
    PackedFixed64,
    PackedClosedEnum,
}

/// One field.
#[derive(Debug, Clone, Copy)]
pub(super) struct EmitEntry {
    pub tag: Tag,
    /// Bytes from the block's start.
    pub slot: u32,
    /// Index of the child's table, or of a closed enum.
    pub child: u32,
    /// For errors only.
    pub number: u32,
    pub op: EmitOp,
    /// Bytes of the slot.
    pub slot_bytes: u8,
    /// Implicit presence: a zero is not sent.
    pub skip_zero: bool,
}

/// A field's tag as it stands on the wire, its bytes at the top of a word: shifted down it makes room for a value.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tag {
    pub top: u64,
    bytes: u8,
}

impl Tag {
    /// No tag, for elements of packed arrays.
    pub(super) const NONE: Tag = Tag { top: 0, bytes: 0 };

    pub(super) fn new(number: u32, wire_type: u32) -> Self {
        let mut rest = u64::from(number) << 3 | u64::from(wire_type);
        let mut top = 0;
        let mut bytes = 0;
        loop {
            let more = u64::from(rest > 0x7f) << 7;
            top = top >> 8 | (rest & 0x7f | more) << 56;
            bytes += 1;
            rest >>= 7;
            if rest == 0 {
                return Tag { top, bytes };
            }
        }
    }

    /// The tag's length.
    #[inline(always)]
    pub(super) fn bytes(self) -> usize {
        usize::from(self.bytes)
    }
}

/// The longest block of a map entry: two words, two slots of eight bytes.
pub(super) const ENTRY_BYTES_MAX: usize = 24;

/// One message type.
#[derive(Debug, Default)]
pub(super) struct EmitTable {
    /// By presence bit.
    pub entries: Box<[EmitEntry]>,
    pub block_bytes: u32,
    pub presence_words: u32,
    /// Presence bits of the fields that are written whether set or not: key and value of a map entry.
    pub forced: u32,
    /// Of a map entry: the block of one in which nothing is set.
    pub defaults: [u8; ENTRY_BYTES_MAX],
    /// Neither a map entry nor one with oneofs.
    pub is_plain: bool,
    /// Bits of which at most one may be set.
    pub oneofs: Box<[OneofMask]>,
    /// The message's index in the schema.
    pub index: u32,
}

impl EmitTable {
    /// A map entry's block with defaults in the slots of what is not set, whatever those slots hold. The presence bits
    /// stay as they are.
    #[cold]
    #[inline(never)]
    pub(super) fn with_defaults(&self, block: &[u8]) -> [u8; ENTRY_BYTES_MAX] {
        let mut patched = self.defaults;
        let present = block.get(4).copied().unwrap_or(0);
        let mut keep = |from: usize, bytes: u8| {
            let range = from..from + usize::from(bytes);
            if let (Some(to), Some(from)) = (patched.get_mut(range.clone()), block.get(range)) {
                to.copy_from_slice(from);
            }
        };
        keep(0, 8);
        for (bit, entry) in self.entries.iter().enumerate() {
            if present >> bit & 1 != 0 {
                keep(entry.slot as usize, entry.slot_bytes);
            }
        }
        patched
    }
}
