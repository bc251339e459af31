//! Protobuf to linear and back, by tables built from a [`Schema`](trunkline_schema::Schema) at run time.
//!
//! [`Transcoder::decode`] reads protobuf bytes once and leaves a linear message in an [`Extent`](crate::Extent);
//! [`Transcoder::encode`] checks a linear message and writes protobuf bytes, in one walk. Neither allocates per field,
//! both take hostile input: what is wrong comes back as a typed error that says where.
//!
//! What makes them quick, and where it is:
//! * a tag leads to an entry without a search (`parse/table`), an entry names one operation per type and cardinality;
//! * bytes are looked at through windows of fixed size (`varint`), so that bounds are checked once per field;
//! * presence bits are gathered in a register and stored when the message ends (`parse/walk`);
//! * runs of a repeated field are read by a loop of their own (`parse/repeated`);
//! * output is written backwards, so no pass computes sizes (`emit`);
//! * extents and output buffers are reused, which matters more than all of the above.
//!
//! Unknown fields, values that a closed enum does not have, and fields whose wire type does not fit go to the unknown
//! bytes of their message and come out in front of its known fields: for readers, who take the last word, nothing among
//! them displaces what the slots say. A map's entry keeps no unknown fields, as no reader has a place for them.

mod copy;
mod emit;
mod encoded;
mod error;
mod limits;
mod parse;
mod transcoder;
mod varint;

pub use emit::HEADROOM_BYTES;
pub use encoded::Encoded;
pub use error::{DecodeError, DecodeErrorKind, EncodeError};
pub use limits::{DecodeLimits, GROWTH_FREE_BYTES, LINEAR_BYTES_MAX, WIRE_BYTES_MAX};
pub use transcoder::{Transcoder, room_for};
