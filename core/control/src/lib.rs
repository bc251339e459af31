//! The words of the control socket: how an application attaches, binds methods and services, and is told why it must
//! go.
//!
//! One message per SOCK_SEQPACKET packet, protobuf encoded ([`Request`] towards the daemon, [`Reply`] towards the
//! application), so that a binding in any language needs nothing but a protobuf library and `recvmsg`. File descriptors
//! ride beside a packet with SCM_RIGHTS. This room knows the messages and their limits; it opens no socket and maps no
//! memory (that is `host/shm`), and it does not decide who may attach (that is `run/daemon`).
//!
//! # The way of an attachment
//! 1. application: [`Attach`] with its ABI version and the sizes it would like.
//! 2. daemon: [`Attached`] with the sizes it gets, and the descriptors named by [`AttachedFds`], in that order.
//! 3. application: [`Bind`], any number of times, with one sealed memfd that holds a `FileDescriptorSet`: which
//!    services it serves, which methods it will call and where. Daemon: [`Bound`] with one number (a route) per method.
//!    Without a memfd the types stay the application's own, and its messages travel as protobuf.
//! 4. either side closes the socket: the session ends. Before that the daemon may send [`Detached`] with the reason,
//!    and an application that leaves in peace sends `Drain` through its submission ring first, and closes after the
//!    daemon's `Drained`: a call that was on its way to it meanwhile is served.
//!
//! A request is answered in order; `tag` is echoed, so that a client may pipeline.
//!
//! An application on another host or in another container says the same through a relay, in [`LinkFrame`]s.
//!
//! # Limits
//! * [`PACKET_BYTES_MAX`]: one packet. Larger things travel in a memfd.
//! * [`DESCRIPTOR_SET_BYTES_MAX`]: one descriptor set.
//! * [`METHODS_MAX`]: methods of one `Bind`.
//!
//! Unknown fields are ignored, unknown requests are answered with `Detached`; a new meaning needs a new ABI version,
//! unless it is an answer to what older ones do not ask.
#![forbid(unsafe_code)]

mod decode;
mod messages;
mod relayed;

pub use decode::{ControlError, decode_reply, decode_request};
pub use messages::{
    Attach, Attached, AttachedFds, Bind, Bound, BoundMethod, CallMethod, Detached, Moved, Reply, Request,
    reply, request,
};
pub use relayed::{
    CLOSE_BYTES_MAX, FRAME_BODY_BYTES_MAX, FRAME_HEADER_BYTES, FRAME_PART_BYTES_MAX, LinkFrame,
    LinkFrameError, RELAY_VERSION, RelayHello,
};

/// Version of rings, entries, heaps and control messages together. Both sides must name the same.
pub const ABI_VERSION: u32 = 1;
/// Largest packet: the default SEQPACKET send buffer takes it without configuration.
pub const PACKET_BYTES_MAX: usize = 64 * 1024;
/// Largest descriptor set: a company's whole proto tree is a few MiB.
pub const DESCRIPTOR_SET_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Most methods in one `Bind`: bounded by the packet, and named so that the error can name it.
pub const METHODS_MAX: usize = 1024;
