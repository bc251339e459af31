//! Which of several endpoints gets a call, and which get none for a while.
//!
//! A [`Balancer`] stands for the endpoints of one service: a list, or what names stand for at the moment. It is asked
//! for an endpoint ([`Balancer::pick`]), told how the call ended there ([`Balancer::finished`]), and from that alone it
//! knows what is under way, what fails and what an endpoint has to offer. It does not know what an endpoint is: the
//! caller names endpoints by a type of its own and says which can be reached.
//!
//! # The way of a pick
//! 1. `balancer.rs` sorts out who may be picked: not full, not ejected, to be reached, not tried by this call before.
//!    What cannot be had is given up one by one, the least important first; only a full endpoint is never picked.
//! 2. [`Pick`] says how to choose among them: the first, in turn, the less loaded of a few, by weight (`weight.rs`), or
//!    by a key (`ring.rs`).
//! 3. `outlier.rs` counts how calls end, and ejects endpoints that fail more than others (gRFC A50).
//! 4. `attempts.rs` says when a call may be tried once more: back-off, throttle, the host's budget (gRFC A6).
//! 5. `load.rs` reads what servers report about themselves (ORCA).
//!
//! Whoever fails fast has little under way, and so has whom hedges relieve of its calls. So that a balancer by load
//! does not prefer it, a call that failed or was outpaced goes on counting as one under way, and is forgotten with a
//! half-life of a second: a single one after that second, `n` at once after `1 + log2(n)` seconds. Half a call is none,
//! so that nobody is passed over for what is as good as forgotten.
//!
//! # Invariants
//! * What is picked is counted as under way until it is told finished, also when its endpoint leaves the list and comes
//!   back meanwhile.
//! * An endpoint that stays on the list keeps what is known about it.
//! * Ejection never takes more than its share of the endpoints, or one; when nothing else is left an ejected one is
//!   picked.
//! * Whatever has happened to endpoints that can be reached and fail no more, after a while they get their fair shares.
//! * The same seed, times and reports give the same picks.
//!
//! # Limits
//! [`ENDPOINTS_MAX`] endpoints, [`RING_MAX`] places on a ring, and what [`Circuit`] says is under way at once.
#![forbid(unsafe_code)]

mod attempts;
mod balancer;
mod load;
mod member;
mod outlier;
mod random;
mod ring;
mod settings;
mod tally;
mod weight;

pub use attempts::{Backoff, Budget, Throttle};
pub use balancer::{Balancer, ENDPOINTS_MAX, EndpointRow, Full, Readiness, Report, Wanted};
pub use load::LoadReport;
pub use random::Random;
pub use ring::{RING_MAX, key_of};
pub use settings::{Circuit, FailureShare, Outliers, Pick, Settings, SuccessRate, Weighting};
