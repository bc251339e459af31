//! A daemon takes another's place: between two processes of one host.
//!
//! The old daemon starts the new program with one end of a socket pair, and the two speak [`wire::Word`]s over it,
//! each with the descriptors it is about. Everything slow (reading the configuration, building schemas) happens while
//! the old one still serves; then it stops between two turns, hands over what it has, and waits:
//!
//! ```text
//!   old (leave.rs, parts.rs)                 new (arrive.rs)
//!     Hello: version, build          ──▶       version known? configuration good? new addresses free?
//!                                    ◀──     Able, or Unable with the reason
//!     Past, Recorded … ToldApart     ──▶       minutes, calls recorded until now, who has counters of its own
//!     Schema, Schema … Prepare       ──▶       builds their tables
//!                                    ◀──     Prepared
//!   ┌ control thread and shards stop
//!   │ Socket, Client …               ──▶       the control socket and its connections
//!   │ Listener, Datagrams, Pending   ──▶
//!   │ State (of the engine)          ──▶       a fresh engine reads it (core/engine, handover/)
//!   │ Memory, Peer …                 ──▶       rings and heaps mapped, sockets kept
//!   │ Counted                        ──▶       histograms go on
//!   │ Recorded                       ──▶       the last calls one by one
//!   │ End                            ──▶       everything there? starts its threads, which wait
//!   │                                ◀──     Ready, or Failed with the reason
//!   │ Go                             ──▶     tells applications of their new heaps, turns
//!   └ the process ends, and says goodbye to nobody
//! ```
//!
//! A word has no largest size: what is too long for a packet lies in a sealed memfd beside it, and what is too long for
//! one in several. Descriptor sets are sent once and named by their numbers, so that no schema is built while nobody
//! turns.
//!
//! # Who serves
//! Until it has sent `Go` the old daemon may take everything back: the new one has mapped and read, and touched
//! nothing. Any error, a bound that passes ([`HandOver::start_max`], [`HandOver::step_max`]) or the end of the other
//! process before that makes the old one kill what it started and go on where it stopped. After `Go` it never turns
//! again. If it dies before, the new one ends, too; so there are never two, and at worst none: applications then hear
//! UNAVAILABLE and attach again.
//!
//! # How many shards
//! The new daemon may have more shards, or fewer. What a shard had goes to the one of the same number. One that is left
//! over goes on beside another, on that one's thread (`group.rs`), unless it has nothing; its listeners are the
//! others', which share one with each other where there are too few.
//!
//! # What does not come along
//! Connections that speak HTTP/2 (their state lies in a library): they are emptied first, then closed; calls that are
//! left end as UNAVAILABLE, *unknown*. TLS below version 1.3, and handshakes under way. Sessions of the old process
//! itself, and of applications whose library does not know the word, end as if the daemon had been restarted.

mod arrive;
mod kept_counts;
mod leave;
mod left_out;
mod oom_offer;
mod order;
mod parts;
mod records;
mod settle;
mod take_over;
mod wire;

pub use arrive::{Arrival, TakeOverError};
pub(crate) use arrive::{Inherited, InheritedShard};
pub use kept_counts::KeptCounts;
pub use leave::{HandOver, HandOverError, Handed, Step};
pub(crate) use order::{Leave, Stand, Standing};
pub(crate) use parts::{go_on, hand_over, stand};
pub(crate) use settle::resume;
pub(crate) use take_over::take_over;
