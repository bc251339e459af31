//! What has ended and is remembered, so that nothing is executed twice.

use crate::config::Config;
use crate::horizon::Horizon;
use crate::served::{RequestKey, Served};
use std::collections::VecDeque;
use trunkline_call::Instant;

/// What is due is forgotten with whatever comes next, or so much later: nobody is woken for each.
const LATE_NS: u64 = 1_000_000_000;

/// Ended requests in the order of their end.
///
/// Three things bound it: time (after `remember_ns` no repetition comes any more), number and bytes. Whatever is
/// forgotten before its time moves the *horizon*: a repetition first sent before it is refused, never executed.
#[derive(Debug)]
pub(crate) struct Memory {
    lifetime_ns: u64,
    remember_ns: u64,
    count_max: usize,
    bytes_max: usize,
    horizon: Horizon,
    extended: VecDeque<(Instant, RequestKey)>,
    compatible: VecDeque<(Instant, RequestKey)>,
    /// Compatible ones have been forgotten that a datagram may be a copy of which came before.
    compatible_until: Instant,
    kept: VecDeque<(RequestKey, usize)>,
    kept_bytes: usize,
}

impl Memory {
    pub fn new(config: &Config, now: Instant) -> Self {
        let (lifetime_ns, remember_ns) = (config.lifetime_ns, config.remember_ns);
        Self {
            lifetime_ns,
            remember_ns,
            count_max: config.remembered_max,
            bytes_max: config.kept_bytes_max,
            horizon: Horizon::new(lifetime_ns, remember_ns, now),
            extended: VecDeque::new(),
            compatible: VecDeque::new(),
            compatible_until: Instant::default(),
            kept: VecDeque::new(),
            kept_bytes: 0,
        }
    }

    /// Whether a request nobody knows may be one that was forgotten: [`Horizon::hides`].
    pub fn may_have_forgotten(&self, now: Instant, came: Instant, age_ns: u64) -> bool {
        self.horizon.hides(now, came, age_ns)
    }

    /// The same for a compatible request, which does not say how old it is. Only a copy made by the network can be one
    /// that was forgotten, and it comes within the longest time of a datagram on its way.
    pub fn may_have_forgotten_compatible(&self, now: Instant, came: Instant) -> bool {
        came < self.compatible_until || self.horizon.hides(now, came, 0)
    }

    /// A request has ended; so many bytes of its reply are kept.
    pub fn remember(&mut self, now: Instant, key: RequestKey, bytes: usize) {
        let ended = if key.is_extended() { &mut self.extended } else { &mut self.compatible };
        ended.push_back((now, key));
        if bytes > 0 {
            self.kept.push_back((key, bytes));
            self.kept_bytes += bytes;
        }
    }

    /// What has ended, and when: oldest first, for each form.
    pub fn ended(&self) -> impl Iterator<Item = (Instant, RequestKey)> {
        self.extended.iter().chain(&self.compatible).copied()
    }

    /// How many of the oldest replies to leave out, so that the others have so many bytes at most.
    pub fn unkept_within(&self, bytes_max: usize) -> usize {
        let mut bytes = 0usize;
        let youngest = self.kept.iter().rev().take_while(|(_, one)| {
            bytes += one;
            bytes <= bytes_max
        });
        self.kept.len() - youngest.count()
    }

    /// Nothing is known of what was first sent before.
    pub fn horizon(&self) -> Instant {
        self.horizon.at()
    }

    /// Goes on with what another process knew.
    pub fn know_since(&mut self, horizon: Instant) {
        self.horizon.set(horizon);
    }

    /// Bytes held: replies that are kept, and a place for each that has ended, here and in the table of requests.
    pub fn held_bytes(&self) -> usize {
        let place = size_of::<(Instant, RequestKey)>() + size_of::<(RequestKey, Served)>();
        self.kept_bytes + (self.extended.len() + self.compatible.len()) * place
    }

    /// When to forget, if nobody comes before.
    pub fn next_expiry(&self) -> Option<Instant> {
        let compatible = self.compatible.front().map(|(at, _)| at.plus_ns(self.lifetime_ns));
        let extended = self.extended.front().map(|(at, _)| at.plus_ns(self.remember_ns));
        compatible.into_iter().chain(extended).min().map(|at| at.plus_ns(LATE_NS))
    }

    /// A compatible request to forget, by time: there are none that came before and have not been taken, but those that
    /// lay in a socket for a second.
    pub fn poll_late_compatible(&mut self, now: Instant) -> Option<RequestKey> {
        let until = Instant(now.0.saturating_sub(LATE_NS));
        let expired = self.poll_expired_compatible(until)?;
        self.compatible_until = self.compatible_until.max(until);
        Some(expired)
    }

    /// A compatible request to forget: its name may be used again by what comes at `now`. There are no more than came
    /// in the longest time of a datagram on its way.
    pub fn poll_expired_compatible(&mut self, now: Instant) -> Option<RequestKey> {
        let is_due = self.compatible.front().is_some_and(|(at, _)| now.since_ns(*at) >= self.lifetime_ns);
        if is_due { self.compatible.pop_front().map(|(_, key)| key) } else { None }
    }

    /// A request of the extended mode to forget.
    pub fn poll_expired(&mut self, now: Instant) -> Option<RequestKey> {
        let full = self.extended.len() + self.compatible.len() > self.count_max;
        let (at, key) = self.extended.front().copied()?;
        let due = now.since_ns(at) >= self.remember_ns;
        if !due && !full {
            return None;
        }
        self.extended.pop_front();
        if self.kept.front().is_some_and(|(kept, _)| *kept == key)
            && let Some((_, bytes)) = self.kept.pop_front()
        {
            self.kept_bytes -= bytes;
        }
        if !due {
            self.horizon.pass(at);
        }
        Some(key)
    }

    /// A request whose reply is to be dropped: more bytes are kept than may be.
    pub fn poll_unkept(&mut self) -> Option<RequestKey> {
        if self.kept_bytes <= self.bytes_max {
            return None;
        }
        let (key, bytes) = self.kept.pop_front()?;
        self.kept_bytes -= bytes;
        Some(key)
    }
}
