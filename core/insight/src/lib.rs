//! What the records of a host or of many say.
//!
//! Daemons keep the last calls one by one; `trunkline record` takes them and writes them down with the number of calls
//! each stands for. This crate knows the file ([`block`]), puts the calls of many files under common numbers
//! ([`Fleet`]), and answers: the study's figures 1 to 23 as one page ([`report`]), what would help ([`effects`]), what
//! changed ([`differences`]), who is above whom ([`Trees`]), and the same calls in formats of others ([`export`]).
//!
//! It also makes a fleet that nobody has: records drawn from the distributions the study published ([`synth`]), and it
//! holds any records against these ([`Published::check`]).
//!
//! # The way of the data
//! ```text
//! bytes ──▶ BlockReader ──▶ RecordBlock ──▶ Fleet ──▶ WeightedValues ──▶ figures ──▶ report
//!                └──▶ Faults                                      └──▶ effects, differences, check
//! ```
//!
//! # Invariants
//! * Every estimate uses the calls' weights: the inverse of the probability with which each was kept.
//! * Whatever a file holds, what is sound is used, and what is not is counted and named ([`Faults`]).
//! * One question has one answer: resamples are drawn from fixed numbers, and nothing here reads a clock or a file.
//! * A figure that the records do not say is a sentence that tells why, never zero.
//!
//! # Limits
//! * [`fleet::CALLS_MAX`] calls are looked at together; a method needs [`fleet::METHOD_CALLS_MIN`] for percentiles.
//! * [`block::HEAD_BYTES_MAX`], [`block::BODY_BYTES_MAX`]: what a block may hold.
#![forbid(unsafe_code)]

pub mod block;
mod common_sides;
mod critical;
mod driven;
mod effects;
pub mod estimate;
pub mod export;
mod faults;
mod figures;
pub mod fleet;
mod fleet_call;
pub mod machines;
mod measures;
mod published;
mod recorded;
mod report;
mod synth;
mod trees;
mod twice;
pub mod words;

pub use block::{BlockHead, BlockReader, RecordBlock};
pub use common_sides::CommonSides;
pub use critical::{TreeCall, WholeTree};
pub use driven::DrivenCalls;
pub use effects::{EFFECT_CALLS_MIN, Effect, FleetDifference, differences, effects, scaled};
pub use faults::{Faults, FileFault};
pub use figures::{Drawing, StudyFigure, basis, figures};
pub use fleet::{
    DividedCalls, FileContents, Fleet, FleetCall, FleetLateHandler, FleetTrace, METHOD_CALLS_MIN,
};
pub use published::{Checked, Published, check_rows, summary};
pub use report::report;
pub use synth::{Synthetic, synth};
pub use trees::{TreePlace, Trees, count_ancestors};
pub use trunkline_call::{printable, printable_lines};
