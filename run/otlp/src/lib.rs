//! Figures and spans for an OpenTelemetry collector: OTLP 1.x over HTTP/1.1, as JSON.
//!
//! An [`Exporter`] is a thread that asks its owner for figures and for calls of traces, writes them as the messages of
//! `opentelemetry-proto` in their JSON form, and posts them to a collector. It does not know where figures come from,
//! and nothing waits for it: shards are asked as any operator asks them, and what a collector does costs this thread
//! alone.
//!
//! JSON, because the collector takes it as it takes protobuf, and it needs neither generated code nor a client of gRPC
//! here. TLS is that of `trunkline-net`; its files are looked at every second, and read again when they change.
//!
//! # The way of the data
//! ```text
//! ExportSource::traced ──▶ queue ──▶ spans.rs ──┐
//!                                               ├──▶ body.rs: requests of a bounded size ──▶ post.rs ──▶ connection.rs
//! ExportSource::figures ─────────▶ metrics.rs ──┘
//! ```
//!
//! # Invariants
//! * Figures are cumulative since the daemon's start, so one set that is lost is made good by the next.
//! * A span is sent until the collector has taken or refused it, or the queue is full; what is lost is counted
//!   ([`ExportFigures`]).
//! * A request has its time, the answer its size: a collector that is slow, or sends without end, costs no more.
//!
//! # Limits
//! [`SPANS_MAX`] calls wait here; a request has [`REQUEST_BYTES_MAX`] bytes and one more item at most, an answer is
//! read up to [`ANSWER_BYTES_MAX`]; each exchange has [`TIME_MAX`]. After a failure the collector is left alone for a
//! time, which doubles up to half a minute.
#![forbid(unsafe_code)]

mod body;
mod connection;
mod exporter;
mod metrics;
mod post;
mod spans;
mod tls;

pub use body::REQUEST_BYTES_MAX;
pub use exporter::{ExportFigures, ExportSettings, ExportSource, Exporter, SPANS_MAX};
pub use post::{ANSWER_BYTES_MAX, TIME_MAX};
