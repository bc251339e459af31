//! Dispatch policies at scale, simulated: p99 against load for every policy, beside what no policy can beat.
//!
//! A [`Scenario`] has workers, a distribution of service times, a travel time and a load. Requests arrive as a Poisson
//! process (open loop: nobody waits for a reply before the next request). The router is `core/dispatch` itself, not a
//! model of it; workers are queues with one server each; a request takes half the travel time from router to worker,
//! and word of its end the other half back. The latency of a request ends when its worker is done with it.
//!
//! The *bound* is M/G/k: the same arrivals and service times, one queue, no travel. No policy that does not know
//! service times beforehand and does not interrupt can do better.
//!
//! * `service.rs`: the distributions, by name: `fixed:10us`, `exponential:10us`, `bimodal:10us` (one in ten takes ten
//!   times as long), `heavy:10us` (bounded Pareto); and times somebody has measured.
//! * `scenario.rs`: one run, one policy; `sweep.rs`: every policy over loads; `plot.rs`: a page with the curves.
//!
//! # Limits
//! A run is deterministic by its seed. Its first tenth is not counted: queues begin empty. It does not know machines:
//! no caches, no interrupts, no lost datagrams (`core/r2p2/tests` has those).
#![forbid(unsafe_code)]

mod plot;
mod scenario;
mod service;
mod sweep;

pub use plot::page;
pub use scenario::{Outcome, Request, Scenario};
pub use service::{Service, UnknownService};
pub use sweep::{Curve, Point, Sweep};
