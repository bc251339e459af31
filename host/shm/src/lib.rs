//! Memory shared between an application and its daemon, and how the two hand things over in it.
//!
//! One attach is one *session*: two rings of 64-byte entries, a heap the application writes, a heap the daemon writes,
//! and a doorbell for each side. The daemon creates it ([`create_session`]), sends five descriptors over a
//! [`ControlSocket`], and the application opens it ([`open_session`]). The binary interface is `docs/shared-memory.md`.
//!
//! # The way of a message
//! The application takes a [`Block`] of its [`Heap`], writes, lends it (a [`Span`]), stages an entry that names it in
//! its [`Producer`], and publishes through the [`Ringer`]. The daemon pops the entry from its [`Consumer`], and copies
//! the bytes out of the [`AllegedHeap`] or lets the kernel take them ([`send_gather`]). It returns the block's offset
//! in an entry of the other ring, and the application frees it. Answers come the same way through the daemon's [`Heap`]
//! and the application's [`ReceivedHeap`], whose blocks queue their return when dropped.
//!
//! A session whose application is elsewhere has two others in their places, a [`RelayedAppEnd`] beside the daemon and a
//! [`RelayedDaemonEnd`] beside the application: they allocate nothing, and write where entries say ([`RelayedHeap`]).
//!
//! # What this room does not know
//! What an entry means (`trunkline_call`), what a control packet says (`trunkline_control`), messages, calls, sockets
//! to other hosts, threads. It starts nothing and owns no loop; it blocks only where its name says so ([`sleep_on`],
//! [`wait_for_entries`], a blocking [`ControlSocket`]).
//!
//! # Invariants
//! * **Nothing the other side can write is believed.** An index is checked against private ones ([`RingError::Index`]),
//!   a span against the heap ([`SpanError`]), a return against the books ([`FreeError`]). No `&[u8]` is ever made of
//!   memory that an untrusted process can write.
//! * **One owner per block.** Books are private; a block is free, held by one [`Block`], or lent to the other side. The
//!   other side can end only the last.
//! * **No region serves two sessions**, and new memfd pages are zeros: no application reads another's bytes, and
//!   nothing needs to be cleared.
//! * **Regions cannot shrink** (sealed), so touching them cannot kill; nobody but the daemon can become a writer of a
//!   receive heap (sealed).
//! * **Neither side can make the other block**: no lock lies in shared memory, and doorbells share no blocking flag and
//!   no lock that their reader holds for long.
//! * **Publishing and sleeping cannot miss each other** (`ring.rs`; modelled in `tests/loom_ring.rs`).
//! * **Nobody sleeps past what nobody rings for** ([`Sleepers`]; modelled in `tests/loom_sleepers.rs`).
//! * **Nobody sleeps beside a queue that is not empty** ([`WakeFlag`]; modelled in `tests/loom_wake_flag.rs`).
//! * **A forked child touches nothing of its parent** ([`ForkGuard`], [`PerProcess`]); rings and heaps check it
//!   themselves.
//!
//! # Threads
//! Ring ends, [`Doorbell`] and [`Waiter`] are `Send`: one thread at a time. [`Heap`], [`Block`], [`ReceivedHeap`],
//! [`ReceivedBlock`], [`AllegedHeap`], [`SharedSlice`] and [`Ringer`] are `Send` and `Sync`: a message may be built and
//! dropped by any task, at the price of an uncontended lock (about 10 ns).
//!
//! # Limits
//! [`RING_ENTRIES_MAX`], [`HEAP_BYTES_MAX`], [`PACKET_BYTES_MAX`], [`PACKET_FDS_MAX`], [`BLOB_BYTES_MAX`],
//! [`GATHER_PIECES_MAX`], [`SLEEP_FDS_MAX`]; each says why. A full ring ([`RingError::Full`]) and a full heap
//! ([`HeapFull`]) are back-pressure, not errors.
//!
//! The models compile `ring`, `sleepers`, `wait`, `wake_flag` and the doors to their memory alone: `cfg(loom)` leaves
//! out what needs a kernel.

#![warn(clippy::undocumented_unsafe_blocks, clippy::multiple_unsafe_ops_per_block)]

mod entry;
mod ring;
mod ring_memory;
mod sleepers;
mod sync;
mod wait;
mod wake_flag;

#[cfg(not(loom))]
mod alleged;
#[cfg(not(loom))]
mod allocator;
#[cfg(not(loom))]
mod blob;
#[cfg(not(loom))]
mod clock;
#[cfg(not(loom))]
mod config;
#[cfg(not(loom))]
mod control;
#[cfg(not(loom))]
mod doorbell;
#[cfg(not(loom))]
mod fork;
#[cfg(not(loom))]
mod gather;
#[cfg(not(loom))]
mod heap;
#[cfg(not(loom))]
mod inherit;
#[cfg(not(loom))]
mod layout;
#[cfg(not(loom))]
mod lease;
#[cfg(not(loom))]
mod listener;
#[cfg(not(loom))]
mod own_process;
#[cfg(not(loom))]
mod place;
#[cfg(not(loom))]
mod racing;
#[cfg(not(loom))]
mod received;
#[cfg(not(loom))]
mod region;
#[cfg(not(loom))]
mod regions;
#[cfg(not(loom))]
mod relayed;
#[cfg(not(loom))]
mod session;
#[cfg(not(loom))]
mod sleep;
#[cfg(not(loom))]
mod zeroed;

pub use entry::{ENTRY_WORDS, Entry};
#[cfg(loom)]
pub use ring::model_ring;
pub use ring::{Consumer, Producer, RingError};
pub use sleepers::Sleepers;
pub use wait::{Decision, WaitLimits, Waiter};
pub use wake_flag::WakeFlag;

#[cfg(not(loom))]
pub use self::{
    alleged::{AllegedHeap, SharedSlice},
    allocator::{BlockAllocator, BlockState, FreeError, GRANULE_BYTES},
    blob::{BLOB_BYTES_MAX, BlobError, create_blob, read_blob},
    clock::{clock_id, cycle_ticks, monotonic_ns, thread_cpu_ns},
    config::{
        HEAP_BYTES_MAX, HEAP_BYTES_MIN, RING_ENTRIES_MAX, RING_ENTRIES_MIN, SESSION_FDS, SessionConfig,
        SessionError, usual_bytes,
    },
    control::{ControlError, ControlSocket, PACKET_BYTES_MAX, PACKET_FDS_MAX, PeerCredentials},
    doorbell::{Doorbell, Ringer},
    fork::{ForkGuard, PerProcess},
    gather::{GATHER_PIECES_MAX, Piece, send_gather},
    heap::{Block, Heap, HeapFull, Span},
    inherit::{Bells, RingIndices, inherit_heaps, inherit_rings, inherited_socket},
    layout::{LAYOUT_VERSION, RINGS_HEADER_BYTES, RINGS_MAGIC},
    lease::HeapLease,
    listener::ControlListener,
    own_process::{free_bytes, give_memory_back, take_turns},
    place::{Places, SOCKET_VARIABLE},
    received::{HEAP_NUMBERS, ReceivedBlock, ReceivedHeap, SpanError, first_byte, heap_number},
    region::RegionFault,
    regions::{create_receive_heap, open_receive_heap, open_successor_heap},
    relayed::{
        RelayedAppEnd, RelayedDaemonEnd, RelayedHeap, create_relayed_heap, create_relayed_session,
        open_relayed_heap, open_relayed_session,
    },
    session::{AppEnd, DaemonEnd, SessionFds, SessionRegions, create_session, open_session},
    sleep::{SLEEP_FDS_MAX, WaitError, Woken, sleep_on, wait_for_entries},
};
