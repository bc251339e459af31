//! The R2P2 router: one thread between UDP sockets and [`trunkline_r2p2::Router`], which decides.
//!
//! Clients send the first packet of every request to the data port; the router picks a worker and sends the packet on;
//! everything else (the rest of the request, the reply) passes it by. Workers say at the control port when they are
//! done. Three ways to send on, one of which is chosen at the start ([`Forwarding`]):
//!
//! * *preserve*: from the control port with the client's address inside, to workers that take requests on behalf of
//!   clients; else through a raw socket, with the client's address as source. The worker's answer goes straight to the
//!   client either way. Needs CAP_NET_RAW, and for the raw socket a network that lets such packets pass.
//! * *on-behalf*: the first of these alone; what cannot be sent so is refused. Needs nothing.
//! * *proxy*: from a socket of the router's own, one for each client address (`proxy.rs`). Every packet passes the
//!   router, both ways. Needs nothing.
//!
//! `process.rs` is the loop, on one page; `report.rs` what operators see: a table, and text for Prometheus over HTTP.
//!
//! Where the cluster has a key (`seals.rs`), what comes without its seal is nobody's, and all that leaves has one.
//!
//! # Invariants
//! * The loop never waits except in the poller; what the kernel does not take is lost, as datagrams may be.
//! * Nothing here decides about a request: it could not be simulated.
//!
//! # Limits
//! Client addresses in proxy mode: [`Settings::flows_max`], and no more than the process may have descriptors. One
//! unused for a minute goes; where there is no room, one of the host that has most of them (`flows.rs`). Where each has
//! one, requests of further hosts are refused as *busy*. One router is one thread.
#![forbid(unsafe_code)]

mod flows;
mod process;
mod proxy;
mod report;
mod seals;
mod settings;

pub use process::{RouterProcess, StartError};
pub use report::{Report, Shared, serve_metrics};
pub use settings::{Forwarding, Settings};
