//! The types of the ABI, as C sees them.
#![allow(non_camel_case_types, reason = "these are C's names")]

use std::ffi::c_void;

/// Bytes that belong to somebody else. `data` may be null if `len` is 0.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tl_slice {
    /// The first byte.
    pub data: *const u8,
    /// How many there are.
    pub len: usize,
}

/// Where calls go. Released by `tl_channel_release`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct tl_channel {
    /// 0 is no channel.
    pub id: u64,
}

/// A completion queue. Released by `tl_queue_release`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct tl_queue {
    /// 0 is no queue.
    pub id: u64,
}

/// A call, made or delivered. Released by `tl_call_release`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct tl_call {
    /// 0 is no call.
    pub id: u64,
}

/// A received message. Released by `tl_message_release`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct tl_message {
    /// 0 is no message.
    pub id: u64,
}

/// Pairs of keys and values. Released by `tl_metadata_release`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct tl_metadata {
    /// 0 is no metadata.
    pub id: u64,
}

/// How something failed. Released by `tl_status_release`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct tl_status {
    /// 0 is success.
    pub id: u64,
}

/// A server. Released by `tl_server_release`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct tl_server {
    /// 0 is no server.
    pub id: u64,
}

/// Types of messages, read from descriptors. Released by `tl_schema_release`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct tl_schema {
    /// 0 is no schema.
    pub id: u64,
}

/// Memory to build a linear message in (docs/linear.md), header included. Released by `tl_memory_release`, or by the
/// function that sends what was built in it. One thread at a time uses it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tl_memory {
    /// 0 is no memory.
    pub id: u64,
    /// The first byte, aligned to 8. What it holds at first is anything.
    pub data: *mut u8,
    /// Bytes that may be written.
    pub capacity: usize,
    /// For what is yet to come: written by the library, and not looked at.
    pub reserved: u64,
}

// These have no size of their own, and lie in arrays and in other structures: they stay as they are, and what is new
// goes into what is reserved.
const _: () = assert!(size_of::<tl_memory>() == 32 && size_of::<tl_event>() == 96);

/// A code of gRPC's: `TL_OK` to `TL_UNAUTHENTICATED`.
pub type tl_code = u32;

/// Success.
pub const TL_OK: u32 = 0;
/// The caller cancelled.
pub const TL_CANCELLED: u32 = 1;
/// Nobody knows.
pub const TL_UNKNOWN: u32 = 2;
/// An argument makes no sense; also a handle of nothing, of another kind, or used after its end.
pub const TL_INVALID_ARGUMENT: u32 = 3;
/// The deadline passed.
pub const TL_DEADLINE_EXCEEDED: u32 = 4;
/// It is not there.
pub const TL_NOT_FOUND: u32 = 5;
/// It is there already.
pub const TL_ALREADY_EXISTS: u32 = 6;
/// It is not allowed.
pub const TL_PERMISSION_DENIED: u32 = 7;
/// A limit was reached.
pub const TL_RESOURCE_EXHAUSTED: u32 = 8;
/// Not in this state; also a second operation of one kind at a time on a call.
pub const TL_FAILED_PRECONDITION: u32 = 9;
/// Somebody else was faster.
pub const TL_ABORTED: u32 = 10;
/// Past the end; also a buffer too short.
pub const TL_OUT_OF_RANGE: u32 = 11;
/// The method is not implemented.
pub const TL_UNIMPLEMENTED: u32 = 12;
/// An invariant was broken; also a panic inside the library.
pub const TL_INTERNAL: u32 = 13;
/// Not there at the moment.
pub const TL_UNAVAILABLE: u32 = 14;
/// Data were lost.
pub const TL_DATA_LOSS: u32 = 15;
/// Nobody knows who calls.
pub const TL_UNAUTHENTICATED: u32 = 16;

/// The handler ran; the status is its own answer.
pub const TL_EXECUTED: u32 = 0;
/// The call never reached the handler: making it again is sound.
pub const TL_NOT_EXECUTED: u32 = 1;
/// The call may have run: make it again only if the method is idempotent.
pub const TL_EXECUTION_UNKNOWN: u32 = 2;

/// Flag of `tl_call_open` and `tl_call_send`: no message follows.
pub const TL_LAST: u32 = 1;
/// Flag of `tl_call_open`: there is no first message yet; the slice is not looked at.
pub const TL_NO_MESSAGE: u32 = 2;
/// Flag of `tl_call_open`, `tl_call_send` and `tl_outcome`: the message is not compressed towards a gRPC peer, whatever
/// its call says (metadata `grpc-encoding`) or the daemon's configuration.
pub const TL_UNCOMPRESSED: u32 = 4;

/// Flag of `tl_event`: its message came compressed from a gRPC peer. What comes from this host, or from another's
/// daemon, does not.
pub const TL_COMPRESSED: u32 = 1;

/// What the environment says, else the host's daemon, else one inside the process.
pub const TL_ANY_DAEMON: u32 = 0;
/// A daemon inside the process.
pub const TL_EMBEDDED: u32 = 1;
/// A daemon of the host, never one inside the process.
pub const TL_ATTACHED: u32 = 2;

/// A unary call has ended: `message` if it went well, `headers`, `trailers`, `status`.
pub const TL_EVENT_REPLY: u32 = 1;
/// A call was opened, or not: `status`.
pub const TL_EVENT_OPENED: u32 = 2;
/// A message was sent, or not: `status`.
pub const TL_EVENT_SENT: u32 = 3;
/// Response headers came: `headers`.
pub const TL_EVENT_HEADERS: u32 = 4;
/// A message came: `message`.
pub const TL_EVENT_MESSAGE: u32 = 5;
/// The caller sends no more messages. Only servers get it.
pub const TL_EVENT_REQUESTS_END: u32 = 6;
/// The call has ended: `status`, `trailers`.
pub const TL_EVENT_END: u32 = 7;
/// A call was delivered to a server: `call`, to be answered and released.
pub const TL_EVENT_CALL: u32 = 8;
/// A delivered call is over: answered, or no longer wanted. A call that was made has ended: `status`.
pub const TL_EVENT_OVER: u32 = 9;
/// What `tl_queue_post` was given.
pub const TL_EVENT_POSTED: u32 = 10;

/// Settings of a channel. Set all to zero, then `size`, then what is wanted.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tl_channel_options {
    /// `sizeof(tl_channel_options)`.
    pub size: u32,
    /// `TL_ANY_DAEMON`, `TL_EMBEDDED` or `TL_ATTACHED`.
    pub daemon: u32,
    /// Not 0: calls wait for a daemon and for a connection until their deadline, instead of failing.
    pub wait_for_ready: u32,
    /// 0.
    pub reserved: u32,
    /// `tcp://host:port`, `dns:///host:port`, ...; empty for whoever serves the called service.
    pub target: tl_slice,
    /// The daemon's socket, instead of `TRUNKLINE_SOCKET` and the default places.
    pub socket: tl_slice,
    /// The name operators see, instead of the program's file name.
    pub name: tl_slice,
}

/// Settings of a call. Set all to zero, then `size`, then what is wanted.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tl_call_options {
    /// `sizeof(tl_call_options)`.
    pub size: u32,
    /// 0.
    pub reserved: u32,
    /// The call must have ended after so many nanoseconds; 0 for no limit.
    pub timeout_ns: i64,
    /// Metadata of the request, copied; 0 for none.
    pub metadata: tl_metadata,
    /// A delivered call, whose deadline, cancellation and trace context are inherited; 0 for that of the thread.
    pub parent: tl_call,
    /// Where the request was built, instead of the slice, which is not looked at then. The memory is released by the
    /// function that is given the options, also if it fails.
    pub built: tl_memory,
    /// How many bytes the built request has.
    pub built_bytes: usize,
    /// Of `tl_cancellation_new`: by it the call is cancelled from another thread, before it is made and while a
    /// function waits for it; 0 for none. Of one call at a time.
    pub cancellation: tl_call,
}

/// Settings of a server. Set all to zero, then `size`, then what is wanted.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tl_server_options {
    /// `sizeof(tl_server_options)`.
    pub size: u32,
    /// `TL_ANY_DAEMON`, `TL_EMBEDDED` or `TL_ATTACHED`.
    pub daemon: u32,
    /// Threads that receive calls; 0 for one.
    pub workers: u32,
    /// 0.
    pub reserved: u32,
    /// The daemon's socket, instead of `TRUNKLINE_SOCKET` and the default places.
    pub socket: tl_slice,
    /// The name operators see, instead of the program's file name.
    pub name: tl_slice,
}

/// How a delivered call ends. Set all to zero, then `size`, then what is wanted.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tl_outcome {
    /// `sizeof(tl_outcome)`.
    pub size: u32,
    /// The code.
    pub code: tl_code,
    /// What people read; UTF-8.
    pub message: tl_slice,
    /// A serialized `google.rpc.Status`, or nothing.
    pub details: tl_slice,
    /// Trailing metadata, copied; 0 for none.
    pub trailers: tl_metadata,
    /// Where the last response was built, instead of the slice, which is not looked at then. The memory is released by
    /// the function that is given the outcome, also if it fails.
    pub built: tl_memory,
    /// How many bytes the built response has.
    pub built_bytes: usize,
    /// `TL_UNCOMPRESSED`, or 0.
    pub flags: u32,
    /// 0.
    pub reserved: u32,
}

/// What came of an operation. `tl_event_clear` releases all but the call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tl_event {
    /// As given with the operation, or to `tl_server_add_service`.
    pub tag: u64,
    /// `TL_EVENT_REPLY`, ...
    pub kind: u32,
    /// The code of `status`.
    pub code: tl_code,
    /// The call it is about; 0 in blocking operations.
    pub call: tl_call,
    /// A message, or 0.
    pub message: tl_message,
    /// Response headers, or 0.
    pub headers: tl_metadata,
    /// Trailers, or 0.
    pub trailers: tl_metadata,
    /// What failed, or 0.
    pub status: tl_status,
    /// `TL_COMPRESSED`, or 0.
    pub flags: u32,
    /// 0.
    pub reserved: u32,
    /// 0.
    pub reserved_words: [u64; 4],
}

/// Handles a delivered call on the thread that received it, which must not be kept for long: other calls wait. It may
/// answer, or keep the call for later; it releases the call in the end.
pub type tl_handler = Option<unsafe extern "C" fn(user: *mut c_void, call: tl_call)>;
