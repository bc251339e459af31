//! How a router shows its workers that it understands the extended mode, before they say anything to it.
//!
//! The authors' router takes every datagram at its control port for a FEEDBACK, which frees a place. So a worker that
//! does not know what its router is says nothing until it has been greeted. To the authors' servers a greeting is a
//! later packet of a request nobody has begun: they drop it.

use crate::Transmit;
use crate::packet::Packet;
use crate::router_config::RouterConfig;
use bytes::Bytes;
use core::net::SocketAddrV4;
use std::collections::VecDeque;
use trunkline_call::Instant;

/// The workers a router is configured with, and when they are greeted next.
#[derive(Debug)]
pub(crate) struct Greetings {
    workers: Vec<SocketAddrV4>,
    next: Option<Instant>,
    out: VecDeque<Transmit>,
}

/// Time between two greetings: a tenth of the time for which a worker takes one for true.
const EVERY_NS: u64 = 1_000_000_000;

impl Greetings {
    /// The first are due at once.
    pub fn new(config: &RouterConfig, now: Instant) -> Self {
        let workers: Vec<SocketAddrV4> = config.workers.iter().map(|(address, _)| *address).collect();
        let greets = config.extended && !workers.is_empty();
        Self { workers, next: greets.then_some(now), out: VecDeque::new() }
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        if self.next.is_none_or(|at| at > now) {
            return;
        }
        self.next = Some(now.plus_ns(EVERY_NS));
        let greeting = |to: &SocketAddrV4| Transmit { to: *to, head: Packet::greeting(), body: Bytes::new() };
        self.out.extend(self.workers.iter().map(greeting));
    }

    pub fn poll(&mut self) -> Option<Transmit> {
        self.out.pop_front()
    }

    pub fn next_timeout(&self) -> Option<Instant> {
        self.next
    }
}
