//! Connections to other daemons, as ends of calls.
//!
//! [`PeerEnds`] owns every connection (`peer.rs` of the crate) and what is no single one's: who is in line for the
//! host, which send-heap ranges they read, what they have announced, which are the operator's hosts. It is given values
//! (the time, a connection and a stream, a call that was found, the accounts of what is held) and gives values back:
//! what became of a body, calls whose messages stand still, why a frame was not queued. It looks no call up and ends
//! none. [`PeerEvents`] finds the calls of what peers say, `end.rs` is the way back; `reach.rs` joins it with
//! endpoints, `answers.rs` with those who serve what peers have announced.
//!
//! * `ends.rs`: the owner, and whole connections;
//! * `frames.rs`: what is sent; `arriving.rs`: large messages as they come;
//! * `events.rs`: events to what follows for calls; `end.rs`: items to frames, as for every end (`ends.rs` of the
//!   crate).

mod answers;
mod arriving;
mod end;
mod ends;
mod events;
mod frames;

pub(crate) use answers::PeerAnswers;
pub(crate) use ends::PeerEnds;
pub use ends::{Piece, SentCall};
pub(crate) use events::PeerEvents;
