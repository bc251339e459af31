//! What a descriptor set may ask for, and why.

/// Bytes of an encoded `FileDescriptorSet`. All of googleapis without comments is about 10 MB.
pub const DESCRIPTOR_SET_BYTES_MAX: usize = 16 << 20;
/// Files in one set.
pub const FILES_MAX: usize = 1 << 14;
/// Messages in one set, nested ones and map entries included.
pub const MESSAGES_MAX: usize = 1 << 16;
/// Fields in one set: at some 200 bytes each this bounds a schema near 50 MB.
pub const FIELDS_MAX: usize = 1 << 18;
/// Fields in one message. HPRPC's wide message has 8192; protoc itself stops at 65535.
pub const FIELDS_PER_MESSAGE_MAX: usize = 1 << 16;
/// Members of one oneof. A decoder that meets another member than before clears the bits of all.
pub const ONEOF_MEMBERS_MAX: usize = 1 << 10;
/// Words of 32 fields, ascending by number, among which the members of one oneof are spread: so many a decoder clears
/// for a member of two bytes.
pub const ONEOF_WORDS_MAX: usize = 64;
/// Enum values, and enums, in one set.
pub const ENUM_VALUES_MAX: usize = 1 << 17;
/// Messages and fields that are walked for the fingerprints of one bind's types: what a type leads to is walked for
/// each type. Four million are about 60 MB of SHA-256; a thousand methods with types of 2000 fields take as many.
pub const FINGERPRINT_FIELDS_MAX: usize = 1 << 22;
/// Services plus methods in one set.
pub const METHODS_MAX: usize = 1 << 16;
/// Bytes of one fully qualified name. Names are stored whole, so this bounds what nesting can multiply.
pub const NAME_BYTES_MAX: usize = 512;
/// Messages declared within messages. protoc's own limit is 32.
pub const NESTING_MAX: usize = 32;
/// Bytes of one message block. 8192 strings need 65 KiB; sixteen times that leaves room and keeps a two-byte
/// empty message on the wire from becoming more than this in memory.
pub const BLOCK_BYTES_MAX: u32 = 1 << 20;
/// The highest field number protobuf allows.
pub(crate) const FIELD_NUMBER_MAX: u32 = (1 << 29) - 1;
