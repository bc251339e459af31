//! The messages, written as structs so that neither side needs a protobuf compiler. docs/shared-memory.md has them as a
//! `.proto` for other languages.

/// What an application says.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Request {
    /// Echoed in the reply.
    #[prost(uint64, tag = "1")]
    pub tag: u64,
    /// Exactly one.
    #[prost(oneof = "request::Kind", tags = "2, 3")]
    pub kind: Option<request::Kind>,
}

/// The kinds of [`Request`].
pub mod request {
    /// See [`super::Request`].
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Kind {
        /// First packet of a connection.
        #[prost(message, tag = "2")]
        Attach(super::Attach),
        /// Any time after that.
        #[prost(message, tag = "3")]
        Bind(super::Bind),
    }
}

/// What the daemon says.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Reply {
    /// Of the request; zero for what the daemon says unasked.
    #[prost(uint64, tag = "1")]
    pub tag: u64,
    /// Exactly one.
    #[prost(oneof = "reply::Kind", tags = "2, 3, 4, 5")]
    pub kind: Option<reply::Kind>,
}

/// The kinds of [`Reply`].
pub mod reply {
    /// See [`super::Reply`].
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Kind {
        /// Answer to `Attach`.
        #[prost(message, tag = "2")]
        Attached(super::Attached),
        /// Answer to `Bind`.
        #[prost(message, tag = "3")]
        Bound(super::Bound),
        /// The session is over, or was refused; the socket closes after it.
        #[prost(message, tag = "4")]
        Detached(super::Detached),
        /// Unasked: another daemon has taken this one's place, and writes into another receive heap.
        #[prost(message, tag = "5")]
        Moved(super::Moved),
    }
}

/// Opens a session.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Attach {
    /// [`crate::ABI_VERSION`] of the library.
    #[prost(uint32, tag = "1")]
    pub abi_version: u32,
    /// Name to show to operators; the daemon adds pid and uid from the kernel.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Wanted; 0 for the daemon's default. The daemon rounds and caps.
    #[prost(uint32, tag = "3")]
    pub submission_entries: u32,
    /// Wanted; 0 for the daemon's default.
    #[prost(uint32, tag = "4")]
    pub completion_entries: u32,
    /// Wanted; 0 for the daemon's default.
    #[prost(uint64, tag = "5")]
    pub send_heap_bytes: u64,
    /// Wanted; 0 for the daemon's default.
    #[prost(uint64, tag = "6")]
    pub receive_heap_bytes: u64,
    /// What this session serves, it serves only while no other session does.
    #[prost(bool, tag = "7")]
    pub stands_by: bool,
    /// The application understands [`Moved`]. One that does not is detached when its daemon is replaced.
    #[prost(bool, tag = "8")]
    pub may_move: bool,
    /// The metadata of calls delivered here is to say who makes them.
    #[prost(bool, tag = "9")]
    pub tells_callers: bool,
    /// By a relay: who the application has proved to be, by its certificate. Only those may say it who are named in
    /// `relay.by` of the daemon's configuration.
    #[prost(string, tag = "10")]
    pub identity: String,
}

/// The session as it is.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Attached {
    /// [`crate::ABI_VERSION`] of the daemon.
    #[prost(uint32, tag = "1")]
    pub abi_version: u32,
    /// For logs and `trunkline list`.
    #[prost(uint64, tag = "2")]
    pub session: u64,
    /// Entries of the submission ring, a power of two.
    #[prost(uint32, tag = "3")]
    pub submission_entries: u32,
    /// Entries of the completion ring, a power of two.
    #[prost(uint32, tag = "4")]
    pub completion_entries: u32,
    /// Bytes of the send heap.
    #[prost(uint64, tag = "5")]
    pub send_heap_bytes: u64,
    /// Bytes of the receive heap.
    #[prost(uint64, tag = "6")]
    pub receive_heap_bytes: u64,
    /// Most calls of this session in flight; more are refused with RESOURCE_EXHAUSTED.
    #[prost(uint32, tag = "7")]
    pub calls_max: u32,
    /// Bytes one stream may send before it needs credit.
    #[prost(uint32, tag = "8")]
    pub stream_window_bytes: u32,
    /// The daemon's name.
    #[prost(string, tag = "9")]
    pub node: String,
    /// The metadata of calls delivered here says who makes them, as was asked: the key `trunkline-caller` is the
    /// daemon's. Without this it is an application's like any other.
    #[prost(bool, tag = "10")]
    pub tells_callers: bool,
    /// Whom the daemon takes the application for, as a relay said. Empty from daemons that do not know of relays: the
    /// session has the relay's own rights then.
    #[prost(string, tag = "11")]
    pub identity: String,
}

/// The descriptors that come with [`Attached`], in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum AttachedFds {
    /// memfd: both rings.
    Rings = 0,
    /// memfd: the heap the application writes.
    SendHeap = 1,
    /// memfd: the heap the application may only read.
    ReceiveHeap = 2,
    /// eventfd: the application rings it after submitting.
    SubmissionDoorbell = 3,
    /// The reading end of a pipe: the daemon rings it after completing (docs/shared-memory.md says why no eventfd).
    CompletionDoorbell = 4,
}

/// Names methods; comes with one memfd holding a `FileDescriptorSet`, or with none.
///
/// Without a descriptor set the methods are *opaque*: their messages are protobuf in both heaps, which the daemon does
/// not read except for an end that is typed, and both sides may stream. A service is then served as a whole: the one
/// route of `/package.Service/*` stands for all its methods, and each call says its path (docs/shared-memory.md).
#[derive(Clone, PartialEq, prost::Message)]
pub struct Bind {
    /// Bytes of the descriptor set in the memfd; zero if there is no memfd.
    #[prost(uint64, tag = "1")]
    pub descriptor_set_bytes: u64,
    /// Full names of services this session serves from now on: `search.v1.Search`.
    #[prost(string, repeated, tag = "2")]
    pub serves: Vec<String>,
    /// Methods this session will call.
    #[prost(message, repeated, tag = "3")]
    pub calls: Vec<CallMethod>,
}

/// One method to be called.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CallMethod {
    /// `/package.Service/Method`.
    #[prost(string, tag = "1")]
    pub path: String,
    /// `tcp://host:port`, `unix:path`, or empty: whoever serves it, this host first, then the configuration.
    #[prost(string, tag = "2")]
    pub target: String,
}

/// Numbers for the methods of a [`Bind`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct Bound {
    /// One route per element of `calls`, in order.
    #[prost(uint32, repeated, tag = "1")]
    pub calls: Vec<u32>,
    /// Every method of every service of `serves`.
    #[prost(message, repeated, tag = "2")]
    pub serves: Vec<BoundMethod>,
    /// Empty, or why nothing of the `Bind` took effect: names the file, message, service or limit at fault.
    #[prost(string, tag = "3")]
    pub error: String,
    /// The number of the status code that says the same: FAILED_PRECONDITION or PERMISSION_DENIED. Zero from daemons
    /// that do not say.
    #[prost(uint32, tag = "4")]
    pub code: u32,
}

/// One served method.
#[derive(Clone, PartialEq, prost::Message)]
pub struct BoundMethod {
    /// `/package.Service/Method`, or `/package.Service/*` for a service bound without a descriptor set.
    #[prost(string, tag = "1")]
    pub path: String,
    /// What delivered calls carry in their `route`.
    #[prost(uint32, tag = "2")]
    pub route: u32,
}

/// The session goes on in another receive heap, because another daemon writes it or the one before had grown: comes
/// with one memfd, the heap. Without a memfd: the heap is in use now, and nothing is left in any before it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Moved {
    /// Bytes of the heap: what they were.
    #[prost(uint64, tag = "1")]
    pub receive_heap_bytes: u64,
    /// Completions that point into this heap have this number in the low six bits of their offsets.
    #[prost(uint32, tag = "2")]
    pub heap_number: u32,
}

/// Why a session was refused or ended.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Detached {
    /// What was wrong, and what to do about it.
    #[prost(string, tag = "1")]
    pub reason: String,
}
