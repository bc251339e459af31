//! What a router is told at birth, and what it counts.

use crate::extension::Reason;
use core::net::{Ipv4Addr, SocketAddrV4};
use trunkline_dispatch::{Policy, Reservation};

/// Whether requests of the extended mode are sent in the router's own name, with the client's address in them, to
/// workers that take them so. Those answer the client straight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnBehalf {
    /// Never: where clients cannot be reached past the router.
    #[default]
    Never,
    /// Where that can be; the host sends the others from their clients' addresses.
    Preferred,
    /// The others are refused: for a host that may not write clients' addresses.
    Only,
}

/// Settings of a router, with the reason of every number.
#[derive(Clone, Debug)]
pub struct RouterConfig {
    /// Where workers send FEEDBACK: written into requests of the extended mode.
    pub control: SocketAddrV4,
    /// Whether requests are sent in the router's own name.
    pub on_behalf: OnBehalf,
    /// How a worker is picked.
    pub policy: Policy,
    /// Workers kept for a class.
    pub reservations: Vec<Reservation>,
    /// Workers that are there from the start, and what each works on at once. For those that do not join by themselves.
    pub workers: Vec<(SocketAddrV4, u16)>,
    /// Networks whose hosts may join as workers: address and prefix length.
    pub join_from: Vec<(Ipv4Addr, u8)>,
    /// Most workers.
    pub workers_max: usize,
    /// Whether the extended mode is understood.
    pub extended: bool,
    /// Requests that may wait.
    pub queue_max: usize,
    /// Longest time one waits before it is dropped: later its client has given up.
    pub delay_ns_max: u64,
    /// A request sent on occupies its worker for at most this time without FEEDBACK. Longer than requests take: a place
    /// given up early is one more request in the queue of a busy worker.
    pub lease_ns: u64,
    /// Requests waiting or sent on.
    pub leases_max: usize,
    /// See [`crate::Config::lifetime_ns`].
    pub lifetime_ns: u64,
    /// See [`crate::Config::remember_ns`].
    pub remember_ns: u64,
    /// Requests of the extended mode that are over, in rows of up to eight of one client (32 bytes a row, two tables
    /// of so many rows): the oldest go first, and repetitions as old as they are refused. At the rate one router can
    /// forward, clients with thousands of requests each fit ten times over.
    pub remembered_rows_max: usize,
    /// A worker that says when it is there and has not for so long is gone: five times its heartbeat. Of a time in
    /// which the router was not called at all only a fifth of this counts, for it heard nobody then.
    pub silent_ns_max: u64,
    /// Leases in a row that ended by themselves after which a worker without heartbeat rests, and for how long.
    pub lapses_max: u32,
    /// See `lapses_max`.
    pub rest_ns: u64,
    /// Where drawing begins, and what tables of requests are keyed with: whoever knows it can make them slow.
    pub seed: u64,
}

const MS: u64 = 1_000_000;

impl Default for RouterConfig {
    fn default() -> Self {
        Self {
            control: SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0),
            on_behalf: OnBehalf::default(),
            policy: Policy::default(),
            reservations: Vec::new(),
            workers: Vec::new(),
            join_from: Vec::new(),
            workers_max: 4096,
            extended: true,
            queue_max: 65_536,
            delay_ns_max: 1000 * MS,
            lease_ns: 1000 * MS,
            leases_max: 1 << 18,
            lifetime_ns: 10 * MS,
            remember_ns: 10_000 * MS,
            remembered_rows_max: 1 << 18,
            silent_ns_max: 500 * MS,
            lapses_max: 3,
            rest_ns: 1000 * MS,
            seed: 1,
        }
    }
}

/// What a router has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouterCounters {
    /// Requests taken in.
    pub requests: u64,
    /// Sent on, repetitions apart.
    pub forwarded: u64,
    /// Of those and of repetitions, in the router's own name on behalf of the client.
    pub on_behalf: u64,
    /// Of those forwarded, after waiting here; for how long in all, and the longest.
    pub waited: u64,
    /// Nanoseconds.
    pub waited_ns: u64,
    /// Nanoseconds.
    pub waited_ns_max: u64,
    /// Requests that had come before.
    pub duplicates: u64,
    /// Datagrams that are none of ours.
    pub malformed: u64,
    /// Datagrams a router has no business with.
    pub stray: u64,
    /// Requests that came too soon after the start to be sure they are new.
    pub unsure: u64,
    /// Of those forwarded, which the host could not send.
    pub unsent: u64,
    /// Repetitions that were not sent on, since they would have come from another address than their request.
    pub moved: u64,
    /// Refused, by reason.
    pub dropped: [u64; Reason::COUNT],
    /// FEEDBACK that ended a lease.
    pub feedback: u64,
    /// FEEDBACK for requests never routed, or over already.
    pub feedback_unknown: u64,
    /// FEEDBACK from somebody who is no worker, or not the one the request went to.
    pub feedback_foreign: u64,
    /// Leases that ended without FEEDBACK.
    pub lapsed: u64,
    /// Places found again by the count in FEEDBACK, its own having been lost.
    pub recounted: u64,
    /// Workers that came.
    pub joined: u64,
    /// Workers that said they leave.
    pub left: u64,
    /// Workers that fell silent.
    pub lost: u64,
}

impl RouterCounters {
    pub(crate) fn note_wait(&mut self, waited_ns: u64) {
        self.waited += 1;
        self.waited_ns += waited_ns;
        self.waited_ns_max = self.waited_ns_max.max(waited_ns);
    }
}
