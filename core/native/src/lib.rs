//! The native protocol: calls over one byte stream, without I/O.
//!
//! A [`Connection`] is both directions of one TCP or Unix stream between two daemons. It takes bytes, the time and
//! commands; it gives events, notices, bytes to write and the next time to wake. It does not know what a socket, a
//! handler, a policy or a linear extent is: messages are bytes with an encoding flag, methods are numbers both ends
//! have agreed on, and the owner's own name for a call (`tag`) comes back with every event. The bytes are specified in
//! docs/native-protocol.md; tests read the examples there.
//!
//! # Who owns what
//! A [`Connection`] joins owners; only `connection.rs`, `receive.rs` and `command.rs` see two of them, and
//! `handover.rs`, which writes all of them down. `handshake.rs`: whether the sides have met, and on what.
//! `announced.rs`: methods and callers that one side has named, a value for each direction. `table.rs`: the streams
//! (`stream.rs`) and their ids. `reader.rs`: what the bytes to come are. `window.rs`: what the peer may send on the
//! connection. `outgoing.rs`: what waits to be sent, and what became of it; the streams are lent to it, whose turn it
//! is. `keepalive.rs`, `ending.rs`: silence, and the way out.
//!
//! # The way of the data
//! In: `frame.rs` takes a frame apart and says what is wrong with it by itself; `receive.rs` asks the owners whether it
//! may come now, and what it means. A small frame becomes one [`Event`] that borrows its body from the read buffer: no
//! copy, no allocation. A long message is announced with its length, then arrives in chunks, or is read by the host
//! from the socket straight into place ([`Connection::wanted`]).
//!
//! Out: `command.rs` checks a command and hands a frame to `outgoing.rs`, which lets small frames go at once
//! (`lane.rs`) and large bodies in turn, one segment each. [`Connection::poll_transmit`] shows the gather list; bodies
//! in an application's memory are only named in it ([`SharedRange`]).
//!
//! # Invariants
//! * Bytes from the peer never panic, never allocate by a claim, and end in an event or a [`ProtocolError`] that names
//!   frame, field and value.
//! * A small message waits for at most one segment of a large one; frames of one stream keep their order.
//! * Stream ids rise on the wire in the order the calls were opened.
//! * Every [`Body::Shared`] taken is given back by exactly one [`Notice::BodyDone`].
//! * What is known of a call when the connection ends (*not executed* or *unknown*) errs only towards *unknown*.
//!
//! # Limits
//! [`Limits`] are announced to the peer and held against it; [`Config`] bounds what waits here. At a limit a command is
//! [`Refused`] and a peer's frame is a [`ProtocolError`], except one call too many, which is refused as a call.
#![forbid(unsafe_code)]

mod announced;
mod body;
mod caller;
mod checksum;
mod command;
mod config;
mod connection;
mod ending;
mod error;
mod event;
mod frame;
mod frame_type;
mod handover;
mod handshake;
mod head;
mod hello;
mod input;
mod keepalive;
mod lane;
mod methods;
mod outgoing;
mod probe;
mod reader;
mod receive;
mod stream;
mod stream_id;
mod table;
mod window;
mod wire;

pub use body::{Body, Chunk, Payload, SharedRange};
pub use command::{Failure, NewCall, Outcome};
pub use config::{Config, Features, Limits, Side};
pub use connection::Connection;
pub use error::{ProtocolError, Refused, Unsound};
pub use event::{
    Arriving, CallerNumber, Event, Incoming, IncomingCall, MethodIndex, Notice, StreamId, Trailer,
};
pub use frame_type::{FrameType, MESSAGE_COST_BYTES};
pub use hello::Peer;
pub use input::{INPUT_BYTES_MIN, Input};
pub use outgoing::CallSent;
pub use probe::{PROBE, PROBE_END, Probed};
pub use reader::Placement;
pub use window::Windows;
pub use wire::{HEADER_BYTES, Header, PREAMBLE};
