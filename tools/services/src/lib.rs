//! The services users expect of a gRPC server, answered by the daemon from what it knows.
//!
//! A gRPC server links health checks, reflection and channelz into every program. Here the daemon answers for all
//! applications of its host: it sees who attaches, drains and dies, it holds their descriptors, and it owns the
//! connections. The services are an application of the daemon like the admin API: generated stubs, attached where
//! everybody attaches, reached by native callers and gRPC clients alike.
//!
//! | service | file | answers from |
//! |---|---|---|
//! | `grpc.health.v1.Health` | `health.rs` | who serves what ([`Host::services`]), and when it changes |
//! | `grpc.reflection.v1` and `v1alpha` | `reflection/` | the descriptor sets applications brought |
//! | `grpc.channelz.v1.Channelz` | `channelz.rs` | endpoints, connections and telemetry ([`Host::observe`]) |
//! | `xds.service.orca.v3.OpenRcaService` | `load.rs` | the host's processors and memory, calls served |
//!
//! They *stand by*: an application that binds one of these services itself is the one that is called. The host's own
//! services (package `trunkline`) are not spoken of: nobody outside can call them.
//!
//! Health checks have a server, and so a thread, of their own ([`serve()`]): no question to the others holds them up.
//!
//! What the room does not know: rings, sockets, HTTP/2. It sees a [`Host`] and the library.
//!
//! # Invariants
//! * Nothing is answered from memory that the daemon has changed since: what is kept is kept until the daemon announces
//!   a change, and a change is announced before the application that caused it learns that it has happened.
//! * A stream that waits costs nothing until something changes or its time has come.
//!
//! # Limits
//! * [`STREAMS_MAX`]: streams of one server that wait (Watch; reflection and load reports) at once, so that they never
//!   take the place of a plain question. For one more the oldest of the caller with the most gives way, with
//!   RESOURCE_EXHAUSTED; a caller that has as many as any other is refused.
//! * `reflection::catalog::NAME_BYTES_MAX` bytes of a name that reflection is asked for.
//! * `health::LIST_MAX` services in one answer of List; `channelz::RESULTS_MAX` rows in one page of channelz.
//! * [`load::INTERVAL_MIN`](INTERVAL_MIN): shortest time between two load reports of one stream; the host is looked at
//!   no more often than that, however many streams there are.
#![forbid(unsafe_code)]

mod channelz;
mod health;
mod host;
mod load;
mod pause;
mod reflection;
mod serve;
mod slots;

pub use host::Host;
pub use load::{INTERVAL_MIN, LoadService, Recorder, ReportLoad};
pub use pause::Pause;
pub use reflection::{File, Files};
pub use serve::{add_to, serve};
pub use slots::STREAMS_MAX;

/// Generated from `proto/grpc` and `proto/xds`.
pub mod proto {
    trunkline::include_protos!();
}
