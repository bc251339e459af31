//! The linear message format: built, read, checked and transcoded.
//!
//! A linear message is one stretch of bytes in which every field lies at an offset computed beforehand by
//! `core/schema`. `docs/linear.md` is the format; this room is everything that touches its bytes.
//!
//! It does not know where messages come from or go to: bytes are arguments, memory is whatever implements [`Extent`].
//! It does not know services, calls or JSON.
//!
//! # Way of the data
//! * **Building.** A [`Builder`] holds an extent and grows it; a [`Block`] sets the fields of one message in it, in
//!   place and in any order. Generated code wraps `Block` and implements [`Message`]; [`DynamicBuilder`] does the same
//!   by descriptor.
//! * **Reading.** A [`View`] is a place in an extent, with an accessor per kind of field. [`List`] walks what is not a
//!   slice. [`DynamicView`] reads by descriptor.
//! * **Checking.** [`check`] is what bytes from anybody go through; its [`Verified`] is the token that they did.
//! * **Transcoding.** [`transcode`] turns protobuf into linear messages and back, checking as it goes.
//! * **Looking at protobuf** that nobody calls with: [`PlainFields`] are the fields on the wire, a [`Redaction`]
//!   empties some by their names, [`first_difference`] compares two messages.
//!
//! All of these find a field by its [`FieldAt`], slot and presence bit, and touch bytes only through `bytes`.
//!
//! # Invariants
//! * No function panics on any bytes. A view of unchecked bytes reads what is out of range as zero, and ends recursion
//!   at [`DEPTH_MAX`].
//! * What a builder finishes passes the check. What passes the check can be walked in time linear in its length.
//! * Every byte of a finished extent was written for it: blocks and padding are zeroed, whatever the memory held.
//!
//! # Limits
//! An extent has at most [`EXTENT_BYTES_MAX`] bytes, nesting at most [`DEPTH_MAX`] levels. Beyond them building ends in
//! a [`BuildError`] and checking in a [`CheckError`]. Arrays are read in place, so the machine is little endian and
//! `usize` has 64 bits; elsewhere this crate does not compile.
#![forbid(unsafe_code)]

mod block;
mod builder;
mod bytes;
mod check;
mod difference;
mod dynamic;
mod extent;
mod grow;
mod header;
mod list;
mod message;
mod oneof;
mod place;
mod plain;
mod redact;
mod run;
mod scalar;
pub mod transcode;
mod typed;
mod unknown;
mod view;

pub use block::Block;
pub use builder::{BuildError, Builder, Built};
pub use check::{CheckError, CheckErrorKind, Verified, check};
pub use difference::first_difference;
pub use dynamic::{DynamicBuilder, DynamicList, DynamicView, MismatchError, Value};
pub use extent::{AlignedBuf, Extent, LimitError};
pub use grow::{BytesWriter, ListBuilder, ListItem, MessagesBuilder};
pub use header::{EXTENT_BYTES_MAX, FORMAT_VERSION, HEADER_BYTES, Header, HeaderError};
pub use list::{Element, Elements, List};
pub use message::Message;
pub use place::{DEPTH_MAX, FieldAt, OneofAt};
pub use plain::{PlainFault, PlainField, PlainFields, PlainValue};
pub use redact::{Redacted, Redaction};
pub use scalar::{Blittable, Scalar};
pub use transcode::Transcoder;
pub use view::View;
