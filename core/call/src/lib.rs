//! The trade's words: what every other room means by a call, a status, a deadline, a stamp.
//!
//! This room holds the nouns of remote procedure calls and nothing that acts on them. It has no clock, no
//! socket and no allocation policy, and depends on no other room; what travels is a value that can be copied, compared,
//! printed and written to a fixed layout.
//!
//! * [`CallId`], [`RouteIndex`], [`Encoding`], [`Pattern`]: what a call is known by.
//! * [`Code`], [`Status`], [`Execution`]: how a call ended, and whether the handler may have run. Execution is a
//!   fact about *this* attempt: `NotExecuted` may be retried soundly, `Unknown` only if the method is idempotent.
//! * [`Fault`]: everything that can go wrong in the infrastructure, with the party to blame. One total function,
//!   [`Fault::status`], turns it into a gRPC status; a test lists every case.
//! * [`Instant`], [`Deadline`]: nanoseconds on the host's monotonic clock, always passed in as an argument.
//! * [`Metadata`]: ordered key/value pairs, and their one encoded form in shared memory and on the native wire, which
//!   [`MetadataWriter`] writes and [`MetadataReader`] reads without a copy of every pair.
//! * [`ClientStamps`], [`ServerStamps`]: the fixed points at which a call is timed, and the 64-byte trailer in
//!   which the server's part travels back to the caller.
//! * [`entry`]: the 64-byte ring entries an application and its daemon exchange.
//! * [`TimerTable`]: deadlines of many calls, asked "who is due at this instant?".
//! * [`Steps`]: how many answers came soon, for whoever must decide how to wait for the next.
//! * [`KeyedMap`], [`KeyedSet`]: tables whose hash is cheap, with keys nobody outside knows.
//! * [`TraceParent`]: which trace a call belongs to, by the header of W3C Trace Context.
//! * [`printable`]: a name that came from elsewhere, as a person may be shown it.
//! * [`Caller`], [`VouchedCaller`]: who makes a call, as its handler is told, and by the word of another host's daemon.
//!
//! # Invariants
//! * Decoding never panics: every `decode` takes hostile bytes and returns a value or a [`Fault`].
//! * A `Metadata` that exists is within [`Metadata::BYTES_MAX`] and has legal keys.
//! * Layouts here are ABI. A change needs a new version in the attach handshake or the native hello.
#![forbid(unsafe_code)]

mod caller;
mod carried;
mod choice;
mod encoded;
pub mod entry;
mod fault;
mod id;
mod keyed;
mod metadata;
#[cfg(feature = "serde")]
pub mod octets;
mod printable;
mod stamps;
mod status;
mod steps;
mod time;
mod timer;
mod trace_parent;
mod trailers;
mod vouched;

pub use caller::{CALLER_KEY, Caller};
pub use carried::ClockShift;
pub use choice::{STICKY_KEY, WORKER_CLASS_KEY, WorkerChoice};
pub use encoded::{MetadataReader, MetadataWriter};
pub use fault::{Blame, Fault, NOBODY_SERVES};
pub use id::{CallId, Encoding, Pattern, RouteIndex};
pub use keyed::{Keyed, KeyedMap, KeyedSet, mix};
pub use metadata::{Metadata, MetadataError, MetadataPairs};
pub use printable::{printable, printable_json, printable_lines};
pub use stamps::{ClientStamps, SERVER_TRAILER_BYTES, ServerStamps};
pub use status::{Code, Execution, Status};
pub use steps::{Step, Steps};
pub use time::{Deadline, Instant};
pub use timer::{TimerKey, TimerTable};
pub use trace_parent::TraceParent;
pub use vouched::VouchedCaller;
