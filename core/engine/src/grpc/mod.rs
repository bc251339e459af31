//! Ends that speak gRPC: connections that gRPC clients make to this host, and those to endpoints that are gRPC servers.
//!
//! [`GrpcEnds`] owns every connection and its streams, what each connection is to do next, and what has been unpacked.
//! It is given values (the time, a connection and a stream, a call that was found, the accounts of what is held) and
//! gives values back: calls to go on with, what their senders may send more, why one ends. It looks no call up and
//! ends none. [`GrpcEvents`] finds the calls of what peers say, [`GrpcOpenings`] makes calls of what clients ask for,
//! `end.rs` is the way back; `reach.rs` joins it with endpoints.
//!
//! * `ends.rs`: the owner, and whole connections; `incoming.rs`: what peers send; `outgoing.rs`: what is sent to them;
//! * `peer.rs`: one connection; `stream.rs`: one stream of it; `replay.rs`: a request that may be sent again;
//! * `frame.rs`: messages as they leave; `unpacking.rs`: how much is unpacked before others have their turn;
//! * `window.rs`: what a connection's streams have taken of its window;
//! * `settings.rs`: how gRPC is spoken here;
//! * `events.rs`, `openings.rs`: events to what follows for calls; `end.rs`: items to commands, as for every end
//!   (`ends.rs` of the crate).
//!
//! # Messages
//! A message is passed on when it is complete. One that streams keeps its part of the stream's window until the
//! application has released it, so a slow application slows the sender; what waits in the daemon is within that window.
//! Of a connection whose window is short, messages that are not complete keep nothing: they would keep it from each
//! other. The one message of a direction that does not stream is held until the direction has ended, because only then
//! it is known to be the only one.
//!
//! # Connections to an endpoint
//! HTTP/2 servers limit the streams of a connection (a hundred is usual), so an endpoint has a pool: a call takes the
//! connection with the fewest streams, and when none has room another is dialled, up to a limit; beyond it calls wait
//! in line for a stream to end. A request the server says it has not seen (REFUSED_STREAM, or a GOAWAY that leaves it
//! out) is sent again, once and elsewhere if there is an elsewhere (gRFC A6, "Transparent Retries").
//!
//! # Before a hand-over
//! These connections cannot move to another process, so they are emptied while this one serves. First, the clients that
//! are there are told to go elsewhere, and their calls end in their own time; a client that comes back is served, so
//! that nobody waits for somebody else's long call. Then calls of the daemon's own services (`handover/awaited.rs`)
//! wait for the next process, but for those of gRPC clients, which this one still answers, and those that are under way
//! are answered: gRPC goes on meanwhile, so that nobody who has called one of them holds up others. Last, for a moment,
//! gRPC is *held*: everybody is told, nobody new is let in (the host sees to that), and calls to gRPC servers wait in
//! line for the engine that takes over, but for those that gRPC clients make (`gateway.rs`), which are waited for. When
//! nothing is left, no call is in the way.
//!
//! # Limits
//! Streams and what they hold are bounded by their windows, by [`Limits`](crate::Limits) per connection, and by what
//! one source may have held; commands by the events and calls they come from.

mod end;
mod ends;
mod events;
mod frame;
mod incoming;
mod openings;
mod outgoing;
mod peer;
mod replay;
mod settings;
mod stream;
mod unpacking;
mod window;

pub use ends::GrpcLeft;
pub(crate) use ends::{GrpcEnds, HeldAccounts};
pub(crate) use events::GrpcEvents;
pub(crate) use openings::GrpcOpenings;
pub(crate) use outgoing::SentOn;
pub(crate) use peer::report_name;
pub use peer::{GrpcPeer, PeerIdentity};
pub use settings::GrpcSettings;
pub(crate) use stream::WebStream;
