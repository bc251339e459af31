//! The chain of policies between an application and the rest of the world.
//!
//! An operator writes policies ([`Definition`]), the daemon builds a chain of them ([`Chain::build`]), compiles for
//! every method what applies to it ([`Chain::plan`]), and asks it about every call ([`Policies::admit`]). This room
//! knows definitions, expressions and decisions. It does not know where calls come from, how they wait, or how words
//! reach a caller; time, chance and messages are arguments.
//!
//! # The way of a decision
//! 1. `definition` is what is written, `rule` what is sound of it, `chain` the order, `plan` what fits a
//!    method, compiled and shared.
//! 2. `expr` is the expression language: CEL's syntax, type-checked against the request's schema, compiled to field
//!    offsets, evaluated over the message where it lies.
//! 3. `policies` asks the policies of a plan one by one: the first refusal ends it; what else they say (hold it, bound
//!    its time, log it) adds up in an [`Admission`].
//! 4. `queue` has calls wait their turn, and lets go those that have waited too long.
//! 5. `edit` changes lists of definitions, by name.
//!    `places` counts the copies that are sent elsewhere.
//! 6. `state` keeps what policies remember (`bucket`: token buckets), across changes of the chain.
//! 7. `module` is what the chain asks of policies that come from outside, behind a trait the host implements;
//!    `running` upgrades them with their state and ejects faulty ones; `exchange` stages and commits a new chain;
//!    `bundle` is their states as bytes, for another daemon.
//! 8. `handover` takes all the rest to another process.
//! 9. `host` has limits count for all shards of a host, `places` tells others of places.
//!
//! # Invariants
//! * A chain is built and compiled as a whole or not at all; while it is, the one at work goes on.
//! * A policy that keeps name and kind through a change keeps its state; a module hands it to its next version, or the
//!   old one stays.
//! * What cannot be decided is refused by policies that guard (access), whichever way they are worded.
//! * Asking allocates nothing unless it refuses, takes a permit, or goes through a map of more than a few entries.
//! * The message asked about is the one that is sent: the caller hands in a private copy, checked.
//!
//! # Limits
//! [`POLICIES_MAX`] per chain, 64 KiB and 64 levels per expression, [`STEPS_MAX`] of work per evaluation, a bounded
//! number of keys per rate limit. All end in a [`PolicyError`], an [`EvalError`] or a shared bucket, never in growth.
#![forbid(unsafe_code)]

mod admission;
mod balance;
mod bucket;
mod bundle;
mod chain;
mod definition;
mod edit;
mod exchange;
mod expr;
mod handover;
mod host;
mod module;
mod places;
mod plan;
mod policies;
mod policy_set;
mod queue;
mod refused;
mod rule;
mod running;
mod setting;
mod state;

pub use admission::{Admission, Mirror, Permits, Rejection, Ticket, Verdict};
pub use bundle::{BundleError, ExportedModule, MODULE_STATE_BYTES_MAX, decode_modules, encode_modules};
pub use chain::{Chain, MethodsNamed};
pub use definition::{ClassName, CodeName, Definition, EncodingName, Kind, OnFault, PickName, Side};
pub use edit::{Difference, Edit, EditError};
pub use exchange::Staged;
pub use expr::{EvalError, ExprError, Expression, FieldValue, Inputs, Program, STEPS_MAX, ValueKind, Wanted};
pub use handover::PoliciesState;
pub use host::PlaceNotice;
pub use module::{
    MODULE_FIELDS_MAX, Module, ModuleAnswer, ModuleCall, ModuleEnd, ModuleError, ModuleField, ModuleInfo,
    ModuleLoader, ModuleRow, ModuleState, Modules,
};
pub use plan::{MethodFit, Plan, Subject};
pub use policies::{Policies, PolicyRow};
pub use policy_set::{POLICIES_MAX, PolicySet};
pub use refused::PolicyError;
pub use rule::Class;
pub use setting::{Setting, SettingValue, Settings};
pub use state::Figures;
pub use trunkline_balance::Random;
