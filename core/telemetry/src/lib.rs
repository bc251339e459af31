//! Where the time of a call goes.
//!
//! A call is stamped at fixed points on both hosts ([`trunkline_call::ClientStamps`],
//! [`trunkline_call::ServerStamps`]). When it is over, both ends' stamps meet in one [`Record`], and this room divides
//! its completion time into the nine components of the cloud-scale study (seed 004 §3.1), counts them, and answers the
//! question *a slow service, a slow network, or a slow client?*
//!
//! This room knows stamps and numbers. It does not know who took the stamps, reads no clock, and prints nothing:
//! answers are plain data ([`Snapshot`], [`Explanation`], [`TopRow`]) and pure functions that turn them into text
//! ([`render`], [`prometheus`]).
//!
//! # The way of the data
//! ```text
//! Record ──▶ timeline: put the stamps in order ──▶ record: nine parts ──▶ Series      (histograms, every call)
//!    │                                                    ▲          └──▶ FlightRecorder (the last 64 k, one by one)
//!    └─────▶ clock: what the call proves about θ ─────────┘
//!                                                   Telemetry::snapshot ──▶ Snapshot ──▶ merge over shards
//!                                                        ──▶ Explanation, top, what_if ──▶ render
//!                                                        ──▶ Exposition (families of points) ──▶ prometheus
//!                                                   Telemetry::calls ──▶ CallsAnswer ──▶ files (core/insight)
//! ```
//! Calls are counted in batches. Where they are many, one stands for others of its batch in the buckets of histograms
//! (`batch.rs`); counters and sums are those of every call at any rate.
//!
//! A call that belongs to a trace also stands for others of its duration ([`Exemplars`]), and waits in a queue for
//! whoever exports it ([`TracedCall`]).
//!
//! Histograms keep no time; a [`CallHistory`] is told of snapshots, and keeps what was counted between them. Whoever
//! reads counters is told of so many series one by one, always the same ([`ToldApart`]).
//!
//! Whole calls with their messages, of which a daemon may keep some, are no part of this: here is only the form in
//! which they lie in a file ([`CallSample`], [`SampleFileReader`]).
//!
//! Apart from calls, a daemon's threads measure what their own processor time goes into ([`tax_stage`],
//! [`TaxTotals`]): the clocks are lent by whoever owns the thread, and nothing depends on what they say.
//!
//! # Invariants
//! * The nine components sum to the completion time exactly, and none is negative: whatever the clocks say, whatever
//!   stamps are missing, whatever a peer claims. A property test tries wild stamps.
//! * What was not measured is not shown as zero. A peer without stamps gives *5 of 9*; a stamp that was missing or out
//!   of order is named in [`Components::stand_ins`].
//! * The clock offset only moves time between the two wires.
//!
//! # Limits
//! * [`Telemetry::METHODS_MAX`], [`Telemetry::PEERS_MAX`], [`Telemetry::SERIES_MAX`]: what is told apart; everything
//!   beyond is counted under `(other)`.
//! * [`TRACED_CALLS_MAX`]: calls of traces that wait for whoever exports them; nobody does, and none is kept. They are
//!   shared between those for whom calls are made ([`SpanRoom`]).
//! * [`recorder::RING_CALLS`], [`recorder::STRATUM_CALLS`]: calls kept one by one; [`recorder::TRACES_MAX`] with the
//!   ids of their trace and all their stamps.
//! * Recording allocates nothing once a method's orders of magnitude have been seen. `cargo run --release --example
//!   cost` prints what it costs.
#![forbid(unsafe_code)]

mod batch;
mod calls;
mod clock;
mod component;
mod explain;
mod exposition;
mod flight;
pub mod histogram;
mod history;
mod in_order;
mod index;
mod names;
mod passing;
mod peer_clock;
pub mod prometheus;
mod quantile;
mod record;
mod recorded_trace;
pub mod recorder;
mod refused;
pub mod render;
mod resample;
mod row_fault;
mod sample_file;
mod sampled_rows;
mod series;
mod series_slot;
mod snapshot;
mod snapshot_parts;
mod span_room;
mod tax;
mod telemetry;
mod timeline;
mod told_apart;
mod top;
mod traced;
mod what_if;

pub use calls::{CallsAnswer, CallsAsk, RecordedCall};
pub use clock::{ClockOffset, ClockPair};
pub use component::{Component, Components, Coverage, Stamp, StampSet};
pub use explain::{Explanation, Row, Spread};
pub use exposition::{BoundCounts, Exposition, Figure, FigureFamily, FigureKind, FigurePoint};
pub use flight::FlightRow;
pub use histogram::Histogram;
pub use history::{CallHistory, MeanInterval, Past, QuantileInterval};
pub use index::{MethodIndex, PeerIndex};
pub use names::is_own_method;
pub use passing::UnaryCall;
pub use record::{Record, Side};
pub use recorded_trace::RecordedTrace;
pub use recorder::{FlightRecorder, LateHandler, Weighted};
pub use resample::Intervals;
pub use row_fault::RowFault;
pub use sample_file::{CallSample, SampleEntry, SampleFault, SampleFaults, SampleFileReader};
pub use series::Series;
pub use snapshot::{Ask, Detail, Entry, Sample, Snapshot};
pub use snapshot_parts::SnapshotParts;
pub use span_room::{SPAN_SOURCES_MAX, SpanOwner, SpanRoom, SpanSource};
pub use tax::{
    TaxClocks, TaxGuard, TaxSetup, TaxStage, TaxTimes, TaxTotals, TaxWait, UNATTRIBUTED, begin_tax,
    begin_tax_round, end_tax, note_idle_round, tax_stage, tax_wait,
};
pub use telemetry::Telemetry;
pub use timeline::settle;
pub use told_apart::ToldApart;
pub use top::{TopRow, top};
pub use traced::{CallTrace, Exemplar, Exemplars, TRACED_CALLS_MAX, TracedCall};
pub use what_if::{WhatIf, what_if};
