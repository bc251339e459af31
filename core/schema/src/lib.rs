//! Protobuf descriptors in; messages, methods, block layouts and fingerprints out.
//!
//! This room answers "what does this message look like?" for every other room, once, at bind time. Its input is a
//! `FileDescriptorSet` (from an application, a peer or the compiler in [`compile_proto_files`]); its output is a
//! [`Schema`]: plain data, immutable, shared by `Arc`, with every name already resolved to an index.
//!
//! It does not know message bytes: reading, building and checking them is `core/message`, moving them is everybody
//! else's business. Only the functions behind feature `protox` read files; nothing else here does any I/O.
//!
//! # Way of the data
//! 1. `wire` cuts descriptor bytes into fields; `descriptor` keeps the few it needs, borrowed.
//! 2. `features` resolves what proto2, proto3 and editions say differently to the same handful of facts.
//! 3. `build` gives every message and enum an index and resolves type names.
//! 4. `layout` places each field in its message's block: a pure function of the resolved fields, nothing else.
//! 5. [`Schema::fingerprint`] condenses what two ends must agree on to pass a linear message untouched.
//!
//! # Invariants
//! * Hostile descriptors yield a [`SchemaError`] that names file, message and field; never a panic, and never
//!   memory or time beyond a small multiple of [`DESCRIPTOR_SET_BYTES_MAX`]. Limits live in `limits`.
//! * Every index held in a `Schema` is in range for that `Schema`.
//! * The same resolved descriptor gives the same layout and fingerprint in every process, version and language.
//!
//! # Not here
//! Extensions have no slot (their bytes travel with the unknown fields), custom options and comments are skipped.
#![forbid(unsafe_code)]

mod build;
#[cfg(feature = "protox")]
mod compile;
mod default;
mod descriptor;
mod error;
mod features;
mod field;
mod fingerprint;
mod kind;
mod layout;
mod limits;
mod message;
mod names;
mod placement;
mod schema;
mod service;
mod wire;

#[cfg(feature = "protox")]
pub use compile::{compile_error, compile_proto_files, compile_proto_source};
pub use default::DefaultValue;
pub use error::{Place, SchemaError};
pub use kind::{Cardinality, Enum, EnumIndex, EnumValue, Kind, MessageIndex};
pub use layout::{Form, Layout, OneofMask, PresenceWord, Slot};
pub use limits::{
    BLOCK_BYTES_MAX, DESCRIPTOR_SET_BYTES_MAX, ENUM_VALUES_MAX, FIELDS_MAX, FIELDS_PER_MESSAGE_MAX,
    FILES_MAX, FINGERPRINT_FIELDS_MAX, MESSAGES_MAX, METHODS_MAX, NAME_BYTES_MAX, NESTING_MAX,
    ONEOF_MEMBERS_MAX, ONEOF_WORDS_MAX,
};
pub use message::{Field, Message, Oneof};
pub use schema::Schema;
pub use service::{Method, Service};
