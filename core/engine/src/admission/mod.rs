//! Admission: what the chain of policies says about calls, and what of it outlives the moment.
//!
//! [`AdmissionControl`] owns the chain, the buffers in which messages are made private for policies to look at, the
//! schedule of calls that have time, the bytes of copies under way, and the access log. It is given values (the plans
//! that apply to a call, what its ends are called, its message) and answers with values: what an admitted call is bound
//! to, or why it is denied. It knows neither sessions nor connections, and sends nothing: `admission_of_call.rs` joins
//! it with those (`call_facts.rs`), and [`Engine::exchange_policies`](crate::Engine::exchange_policies) puts plans in
//! the places of others.
//!
//! * `call_policies.rs`: what one call has to do with the chain, kept with the call;
//! * `control.rs`: the owner; `inspection.rs`: messages made private and checked;
//! * `pacing.rs`: when a call of class *batch* may move; `plans.rs`: which policies apply to a method;
//! * `bound_plans.rs`: which apply to each method that is bound, and whether a chain fits them;
//! * `access_log.rs`: lines for the host to write.
//!
//! # Limits
//! Misfits, lines of the access log and spare boxes are bounded by constants where they are kept; bytes of copies by
//! [`Limits::mirror_bytes`](crate::Limits::mirror_bytes).

mod access_log;
mod bound_plans;
mod call_policies;
mod control;
mod inspection;
mod pacing;
mod plans;

pub use access_log::AccessRecord;
pub use bound_plans::ChainFit;
pub(crate) use bound_plans::{BoundMethods, BoundPlans, ChainExchange, MethodHolder, MethodSubject};
pub(crate) use call_policies::CallPolicies;
pub(crate) use control::{AdmissionControl, CallFacts, Denied, ExchangedChain, add_metadata};
pub(crate) use inspection::Inspection;
pub(crate) use plans::Applicant;
