//! The C ABI between a daemon and a policy module: tables, values, codes and limits, and nothing that does anything.
//!
//! A policy module is a shared object that exports one piece of data, a [`Table`] named [`SYMBOL`]. The daemon reads it
//! before any code of the module runs, and calls what it points to. `trunkline_policy.h`, in this room's `include`
//! folder, says the same in C; docs/modules.md explains it byte by byte; a test has a C compiler tell where the header
//! puts every member and holds that against what is here.
//!
//! This room does not know how a shared object is loaded or called (that is `host/module`), how a module is written in
//! Rust (that is `bindings/policy-module`), or what a policy is for (that is `core/policy`).
//!
//! # How the ABI grows
//! * [`ABI_VERSION`] says what the members mean. A daemon takes modules of its own version and refuses others.
//! * Within a version, members are added at the end and never moved, changed or taken away. Every struct begins with
//!   its size as its writer knew it; a reader looks at no member beyond that. So a module built against an older header
//!   goes on, and one built against a newer header finds out what this daemon does not say yet.
//! * Reserved members are zero.
//!
//! # Who owns what
//! * What the daemon hands in is read-only and lies there until the callback returns.
//! * What a module says goes into room the daemon lends ([`Words`]) or through a function it is given ([`Answer`]'s
//!   `add_metadata`, [`Sink`]), so that no memory changes hands. The exceptions are constants in the table, and the
//!   fields a module asks for, which lie there for as long as the instance.
//! * Text is UTF-8 and has a length, no NUL at the end.
//!
//! # Limits
//! Named in `limits`; what exceeds one is refused, or the module is ejected, with the limit in the message.
#![forbid(unsafe_code)]

mod call;
mod create;
mod layout;
mod limits;
mod state;
mod table;
mod value;

pub use call::{Answer, Call, End, MetadataPair, NO_DEADLINE, VERDICT_DENY, VERDICT_PASS};
pub use call::{CALL_STREAMS, SIDE_CLIENT, SIDE_SERVER};
pub use create::{Config, Created, FIELD_OPTIONAL, Field, Pair, WANTS_END, WANTS_METADATA};
pub use limits::{
    CONFIG_BYTES_MAX, CONFIG_PAIRS_MAX, FIELDS_MAX, METADATA_ADDED_BYTES_MAX, METADATA_ADDED_MAX,
    NAME_BYTES_MAX, STATE_BYTES_MAX, WORDS_BYTES_MAX,
};
pub use state::{Sink, State};
pub use table::{
    ABI_VERSION, Create, DONE, Decide, Destroy, Export, FAULT, Finish, Head, Import, MAGIC, REFUSED, SYMBOL,
    Table,
};
pub use value::{
    KIND_BOOL, KIND_BYTES, KIND_DOUBLE, KIND_INT, KIND_NONE, KIND_TEXT, KIND_UINT, Slice, Value, Words,
};
