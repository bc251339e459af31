//! A message on its way out: what may be sent now, what has arrived, what is to be sent again.

use crate::cut::Cut;
use crate::extension::AckPart;
use bytes::Bytes;
use std::collections::VecDeque;
use trunkline_call::Instant;

/// Packets of one message.
///
/// Compatible messages are let out at once and forgotten: the authors' endpoints acknowledge nothing. In the extended
/// mode a window follows what arrives (doubling until the first loss, then growing by one per round trip, halved by
/// each loss), packets named lost by an ACK go again at once, and a timer catches the rest.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Outgoing {
    #[serde(with = "trunkline_call::octets")]
    pub body: Bytes,
    cut: Cut,
    count: u16,
    /// Lowest index that is not known to have arrived.
    base: u16,
    /// Packets sent from `base` on.
    flight: VecDeque<Sent>,
    /// Sent, neither arrived nor given up for lost.
    under_way: u16,
    window: f64,
    /// Doubling until the first loss.
    doubling: bool,
    /// Losses of packets sent before this count as the one already answered.
    cut_at: Instant,
    /// Smoothed, zero before the first.
    round_trip_ns: u64,
    /// Let out since the last pause, and when the next may go.
    burst: u16,
    not_before: Instant,
    /// Timers run out since something arrived, and when the first did.
    silent: u32,
    silent_since: Option<Instant>,
    rto_ns: u64,
    timer: Option<Instant>,
}

#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
struct Sent {
    at: Instant,
    arrived: bool,
    lost: bool,
    times: u8,
}

/// Packets that go out before anything has come back. A switch port buffers some hundred; ten senders may meet there.
const WINDOW_START: f64 = 16.0;
const WINDOW_MIN: f64 = 4.0;
/// What an ACK can name, and so what may be under way.
const WINDOW_MAX: f64 = AckPart::BEYOND as f64;
/// Packets in a row before the pace is looked at: what segmentation offload takes at once.
const BURST_MAX: u16 = 16;
/// Longest round trip believed. What is measured beyond says that somebody got no processor meanwhile; a pace and a
/// timer that followed it would keep the message waiting for seconds after that is over.
const ROUND_TRIP_NS_MAX: u64 = 200_000_000;
/// Longest pause between two bursts: as the first retransmission; the window bounds what goes out anyway.
const PAUSE_NS_MAX: u64 = 20_000_000;
/// Longest time of the timer: eight of them fit what is waited before somebody is taken for gone.
const TIMEOUT_NS_MAX: u64 = 1_000_000_000;
/// Later packets that arrived before one is taken for lost: overtaking by two is common, by more is not.
const OVERTAKING_MAX: u16 = 3;

impl Outgoing {
    /// `None` if the message is longer than its form allows. `from` is the first packet to send here.
    pub fn new(body: Bytes, cut: Cut, from: u16, rto_ns: u64) -> Option<Self> {
        let count = cut.count(body.len())?;
        Some(Self {
            body,
            cut,
            count,
            base: from,
            flight: VecDeque::new(),
            under_way: 0,
            window: WINDOW_START,
            doubling: true,
            cut_at: Instant::default(),
            round_trip_ns: 0,
            burst: 0,
            not_before: Instant::default(),
            silent: 0,
            silent_since: None,
            rto_ns,
            timer: None,
        })
    }

    pub fn count(&self) -> u16 {
        self.count
    }

    /// Packets that have arrived in order.
    pub fn packets(&self) -> u16 {
        self.base
    }

    /// The payload of a packet.
    pub fn payload(&self, index: u16) -> Bytes {
        self.body.slice(self.cut.range(index, self.body.len()))
    }

    /// The next packet to send, if one may go now.
    pub fn poll(&mut self, now: Instant) -> Option<u16> {
        if f64::from(self.under_way) >= self.window {
            return None;
        }
        let index = self.next_index()?;
        if !self.paced(now) {
            return None;
        }
        let slot = usize::from(index - self.base);
        let times = self.flight.get(slot).map_or(0, |sent| sent.times);
        let sent = Sent { at: now, arrived: false, lost: false, times: times.saturating_add(1) };
        match self.flight.get_mut(slot) {
            Some(place) => *place = sent,
            None => self.flight.push_back(sent),
        }
        self.under_way += 1;
        self.timer = Some(now.plus_ns(self.timeout_ns()));
        Some(index)
    }

    /// Takes what the receiver says. Whether the message has arrived.
    pub fn handle_ack(&mut self, now: Instant, ack: &AckPart) -> bool {
        if ack.done || ack.next >= self.count {
            self.base = self.count;
            self.flight.clear();
            self.timer = None;
            return true;
        }
        let mut news = 0;
        while self.base < ack.next {
            let Some(sent) = self.flight.pop_front() else { break };
            news += self.arrived(now, sent);
            self.base += 1;
        }
        let mut highest = None;
        for bit in 0..AckPart::BEYOND {
            if ack.beyond & (1 << bit) == 0 {
                continue;
            }
            let Some(slot) = (u32::from(ack.next) + 1 + u32::from(bit)).checked_sub(self.base.into()) else {
                continue;
            };
            let Some(sent) = self.flight.get(slot as usize).copied() else { break };
            news += self.arrived(now, sent);
            self.flight[slot as usize].arrived = true;
            highest = Some(slot as u16);
        }
        if let Some(highest) = highest {
            self.give_up_overtaken(now, highest);
        }
        if news > 0 {
            (self.silent, self.silent_since) = (0, None);
            self.grow(news);
            self.timer = Some(now.plus_ns(self.timeout_ns()));
        }
        false
    }

    /// The timer ran out: whatever is under way is taken for lost. How often it ran out in a row, and since when that
    /// goes on, in nanoseconds.
    pub fn handle_timeout(&mut self, now: Instant) -> (u32, u64) {
        self.silent += 1;
        let since = *self.silent_since.get_or_insert(now);
        for sent in self.flight.iter_mut().filter(|sent| !sent.arrived) {
            sent.lost = true;
        }
        self.under_way = 0;
        self.window = WINDOW_MIN;
        self.doubling = false;
        self.timer = Some(now.plus_ns(self.timeout_ns()));
        (self.silent, now.since_ns(since))
    }

    /// When to look again: the pace, or the timer.
    pub fn next_timeout(&self) -> Option<Instant> {
        let waits_for_pace = f64::from(self.under_way) < self.window && self.next_index().is_some();
        match self.timer {
            Some(timer) if waits_for_pace => Some(timer.min(self.not_before)),
            None if waits_for_pace => Some(self.not_before),
            timer => timer,
        }
    }

    /// Whether the retransmission timer has run out.
    pub fn is_overdue(&self, now: Instant) -> bool {
        self.timer.is_some_and(|timer| timer <= now)
    }

    /// Goes on with what another process had sent of it. `false` if that contradicts itself, or is cut in another way.
    pub fn take_up(&mut self, cut: Cut) -> bool {
        let out = self.flight.iter().filter(|sent| !sent.arrived && !sent.lost).count();
        let flight_max = usize::from(AckPart::BEYOND).min(usize::from(self.count.saturating_sub(self.base)));
        self.under_way = out as u16;
        self.round_trip_ns = self.round_trip_ns.min(ROUND_TRIP_NS_MAX);
        self.rto_ns = self.rto_ns.min(TIMEOUT_NS_MAX);
        self.burst = self.burst.min(BURST_MAX);
        self.silent = self.silent.min(u32::MAX / 2);
        self.cut == cut
            && cut.count(self.body.len()) == Some(self.count)
            && self.base <= self.count
            && self.flight.len() <= flight_max
            && (WINDOW_MIN..=WINDOW_MAX).contains(&self.window)
    }

    fn next_index(&self) -> Option<u16> {
        if let Some(lost) = self.flight.iter().position(|sent| sent.lost && !sent.arrived) {
            return Some(self.base + lost as u16);
        }
        let next = self.base + self.flight.len() as u16;
        (next < self.count && self.flight.len() < usize::from(AckPart::BEYOND)).then_some(next)
    }

    /// Counts a packet that has arrived; how many news that is.
    fn arrived(&mut self, now: Instant, sent: Sent) -> u16 {
        if sent.arrived {
            return 0;
        }
        if !sent.lost {
            self.under_way = self.under_way.saturating_sub(1);
        }
        // Karn: of a packet sent twice nobody knows which copy arrived.
        if sent.times == 1 {
            let sample = now.since_ns(sent.at).clamp(1, ROUND_TRIP_NS_MAX);
            let smooth = self.round_trip_ns;
            self.round_trip_ns = if smooth == 0 { sample } else { (smooth * 7 + sample) / 8 };
        }
        1
    }

    fn give_up_overtaken(&mut self, now: Instant, highest: u16) {
        let settled = now.0.saturating_sub(self.round_trip_ns);
        let mut lost_any = false;
        for slot in 0..highest.saturating_sub(OVERTAKING_MAX - 1) {
            let sent = &mut self.flight[usize::from(slot)];
            // What went a moment ago may still be on its way again.
            if sent.arrived || sent.lost || (sent.times > 1 && sent.at.0 > settled) {
                continue;
            }
            sent.lost = true;
            lost_any |= sent.at >= self.cut_at;
            self.under_way = self.under_way.saturating_sub(1);
        }
        if lost_any {
            self.cut_at = now;
            self.doubling = false;
            self.window = (self.window / 2.0).max(WINDOW_MIN);
        }
    }

    fn grow(&mut self, news: u16) {
        let step = if self.doubling { f64::from(news) } else { f64::from(news) / self.window };
        self.window = (self.window + step).min(WINDOW_MAX);
    }

    /// Lets bursts out, spread over the round trip.
    fn paced(&mut self, now: Instant) -> bool {
        if now < self.not_before {
            return false;
        }
        self.burst += 1;
        if self.burst >= BURST_MAX && self.round_trip_ns > 0 {
            // A quarter faster than the window drains, so that the pace is never what holds it back.
            let gap_ns = self.round_trip_ns as f64 * f64::from(BURST_MAX) / self.window * 0.75;
            self.not_before = now.plus_ns((gap_ns as u64).min(PAUSE_NS_MAX));
            self.burst = 0;
        }
        true
    }

    fn timeout_ns(&self) -> u64 {
        (self.rto_ns.max(self.round_trip_ns * 2) << self.silent.min(5)).min(TIMEOUT_NS_MAX)
    }
}
