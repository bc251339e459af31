//! What FEEDBACK says about the workers of a router, and what follows from it.

use crate::extension::{FeedbackPart, NO_REQUEST, Part};
use crate::lease::Ended;
use crate::packet::Packet;
use crate::router::Router;
use crate::router_config::{OnBehalf, RouterConfig};
use crate::served::RequestKey;
use crate::wire::{FeedbackFor, PacketType};
use crate::workers::{Worker, WorkerRow};
use core::net::{Ipv4Addr, SocketAddrV4};
use trunkline_call::Instant;
use trunkline_dispatch::WorkerKey;

/// Leases that end by themselves in one go. What is left is due at once, after the others had their turn.
const EXPIRED_PER_STEP_MAX: usize = 256;

impl Router {
    /// Takes a datagram at the control port.
    pub fn handle_feedback(&mut self, now: Instant, from: SocketAddrV4, datagram: &[u8]) {
        self.attention.attend(now);
        let parsed = Packet::parse(datagram, self.config.extended);
        let Some((packet, about)) =
            parsed.ok().and_then(|packet| packet.feedback_for().ok().map(|about| (packet, about)))
        else {
            self.counters.malformed += 1;
            return;
        };
        if packet.header.kind != PacketType::Feedback {
            self.counters.stray += 1;
            return;
        }
        match packet.extension.map(|extension| (extension.identity, extension.part)) {
            Some((identity, Part::Feedback(part))) => {
                let Some(worker) = self.know(now, from, &part, about == NO_REQUEST) else {
                    self.counters.feedback_foreign += 1;
                    return;
                };
                if about != NO_REQUEST {
                    self.end_lease(
                        now,
                        from,
                        RequestKey { identity: Some(identity), ..key_of(&about) },
                        Some(&part),
                    );
                }
                self.recount(now, worker, &part);
            }
            _ => self.end_lease(now, from, key_of(&about), None),
        }
        self.give_out(now);
    }

    /// The workers, for operators.
    pub fn workers(&self) -> Vec<WorkerRow> {
        let row = |worker: &Worker| WorkerRow {
            address: worker.address,
            slots: worker.slots,
            outstanding: self.dispatcher.outstanding(worker.key).unwrap_or(0),
            served: worker.served,
            rests: worker.rests_until.is_some() || worker.leaving,
        };
        let mut rows: Vec<_> = self.workers.places.iter().flatten().map(row).collect();
        rows.sort_by_key(|row| row.address);
        rows
    }

    /// Requests that wait.
    pub fn queued(&self) -> usize {
        self.dispatcher.queued()
    }

    /// Requests that wait or are at a worker.
    pub fn live(&self) -> usize {
        self.leases.live()
    }

    /// The n of JBSQ(n) in force.
    pub fn bound(&self) -> Option<u32> {
        self.dispatcher.bound()
    }

    /// What has been seen.
    pub fn counters(&self) -> &crate::router_config::RouterCounters {
        &self.counters
    }

    pub(crate) fn join(&mut self, address: SocketAddrV4, slots: u32) -> WorkerKey {
        let key = self.dispatcher.join(slots);
        let worker = Worker {
            address,
            key,
            slots,
            out: 0,
            takes_on_behalf: false,
            beat: None,
            epoch: 0,
            served: 0,
            ahead: 0,
            lapsed: 0,
            adopted: 0,
            lapses: 0,
            rests_until: None,
            leaving: false,
        };
        self.workers.insert(worker);
        self.counters.joined += 1;
        key
    }

    pub(crate) fn expire_leases(&mut self, now: Instant) {
        let attended = self.attention.now();
        let rested = attended.plus_ns(self.config.rest_ns);
        let mut any_rests = false;
        for _ in 0..EXPIRED_PER_STEP_MAX {
            let Some((key, lease)) = self.leases.poll_expired(now, attended) else { break };
            self.counters.lapsed += 1;
            let blames_worker = key.is_extended() || self.patience.lapsed(now, lease.waited_ns);
            let Some(worker) = lease.key.and_then(|key| self.workers.by_key(key)) else { continue };
            worker.out -= 1;
            worker.lapses += u32::from(blames_worker);
            let lapsed = worker.lapses >= self.config.lapses_max && worker.beat.is_none();
            if lapsed && worker.rests_until.is_none() {
                worker.rests_until = Some(rested);
                any_rests = true;
                self.dispatcher.rest(worker.key, true);
            }
            if key.is_extended() && worker.ahead > 0 {
                worker.ahead -= 1;
            } else {
                worker.lapsed += u32::from(key.is_extended());
                self.dispatcher.release(worker.key);
            }
        }
        if any_rests {
            self.workers.look_by(rested);
        }
    }

    pub(crate) fn look_at_workers(&mut self, now: Instant) {
        let (attended, limit) = (self.attention.now(), self.config.silent_ns_max);
        if self.workers.look_at.is_none_or(|at| at > attended) {
            return;
        }
        let (mut silent, mut next) = (Vec::new(), None::<Instant>);
        for worker in self.workers.places.iter_mut().flatten() {
            if worker.rests_until.is_some_and(|until| until <= attended) {
                worker.rests_until = None;
                // The next request tries it: one more that comes to nothing, and it rests again.
                worker.lapses = self.config.lapses_max.saturating_sub(1);
                self.dispatcher.rest(worker.key, false);
            }
            let gone_at = worker.beat.map(|beat| beat.plus_ns(limit));
            if gone_at.is_some_and(|at| at <= attended) {
                silent.push((worker.key, worker.leaving));
            } else {
                next = [next, gone_at, worker.rests_until].into_iter().flatten().min();
            }
        }
        self.workers.look_at = next;
        for (worker, leaving) in silent {
            self.counters.lost += u64::from(!leaving);
            self.bury(now, worker);
        }
    }

    /// A worker is gone; what it had is over, and nobody else gets it: it may have been executed.
    fn bury(&mut self, now: Instant, worker: WorkerKey) {
        if let Some(gone) = self.workers.remove(worker) {
            // Leases are not looked through for each start of one that has none.
            let left = if gone.out > 0 { self.leases.at(worker) } else { Vec::new() };
            for key in left {
                self.leases.end(now, key, None);
            }
            self.dispatcher.remove(worker);
        }
    }

    /// Hears a worker of the extended mode: a new one joins if it may, one that began anew loses what it had.
    /// `joins`: it is about no request. Others may be late, of one that has left.
    fn know(
        &mut self,
        now: Instant,
        from: SocketAddrV4,
        part: &FeedbackPart,
        joins: bool,
    ) -> Option<WorkerKey> {
        let began_anew = |worker: &mut Worker| worker.beat.is_some() && part.epoch != worker.epoch;
        let mut known = self.workers.key_of(from);
        if let Some(key) = known
            && self.workers.by_key(key).is_some_and(began_anew)
        {
            self.bury(now, key);
            known = None;
        }
        let key = match known {
            Some(key) => key,
            None => {
                let full = self.workers.keys.len() >= self.config.workers_max;
                if !joins || part.leaving || full || !self.may_join(from) {
                    return None;
                }
                self.join(from, part.slots.into())
            }
        };
        let sends_on_behalf = self.config.on_behalf != OnBehalf::Never;
        let worker = self.workers.by_key(key)?;
        worker.takes_on_behalf = sends_on_behalf && part.on_behalf;
        let attended = self.attention.now();
        let is_first_beat = worker.beat.replace(attended).is_none();
        if is_first_beat {
            (worker.epoch, worker.served) = (part.epoch, part.served);
            worker.adopted =
                (part.taken - part.served.min(part.taken)).min(u64::from(part.slots) * 64) as u32;
            self.dispatcher.adopt(worker.key, worker.adopted);
        }
        let gone_at = attended.plus_ns(self.config.silent_ns_max);
        if part.leaving && !worker.leaving {
            worker.leaving = true;
            self.counters.left += 1;
            self.dispatcher.rest(worker.key, true);
        } else if !part.leaving && part.slots > 0 && u32::from(part.slots) != worker.slots {
            worker.slots = part.slots.into();
            self.dispatcher.set_slots(worker.key, worker.slots);
        }
        self.workers.beating += usize::from(is_first_beat);
        self.workers.look_by(gone_at);
        Some(key)
    }

    /// Whether a worker may be there. One that has left may still answer.
    pub(crate) fn is_at_worker(&self, ip: Ipv4Addr) -> bool {
        let RouterConfig { workers, join_from, .. } = &self.config;
        workers.iter().any(|(address, _)| *address.ip() == ip)
            || join_from.iter().any(|(network, bits)| is_within(ip, *network, *bits))
    }

    fn may_join(&self, from: SocketAddrV4) -> bool {
        let configured = self.config.workers.iter().any(|(address, _)| *address == from);
        configured
            || self.config.join_from.iter().any(|(network, bits)| is_within(*from.ip(), *network, *bits))
    }

    /// FEEDBACK about a request. It must come from the worker's host; the authors' servers send it from another port.
    fn end_lease(&mut self, now: Instant, from: SocketAddrV4, key: RequestKey, part: Option<&FeedbackPart>) {
        let lease = match self.leases.end(now, key, Some(*from.ip())) {
            Ended::Now(lease) => lease,
            Ended::Foreign => {
                self.counters.feedback_foreign += 1;
                return;
            }
            Ended::Before => {
                self.counters.feedback_unknown += 1;
                return;
            }
            Ended::Unknown => {
                self.counters.feedback_unknown += 1;
                return self.end_adopted(from, part);
            }
        };
        self.counters.feedback += 1;
        if !key.is_extended() {
            self.patience.answered(lease.waited_ns, now.since_ns(lease.since));
        }
        let Some(worker) = lease.key.and_then(|key| self.workers.by_key(key)) else { return };
        worker.out -= 1;
        worker.lapses = 0;
        let Some(part) = part else { return self.dispatcher.release(worker.key) };
        // The count frees the place (`recount`), now or when a later FEEDBACK came first.
        match worker.ahead.checked_sub(1) {
            Some(left) if part.served <= worker.served => worker.ahead = left,
            _ => {
                let key = worker.key;
                if part.served > worker.served {
                    worker.served += 1;
                    self.dispatcher.release(key);
                }
                let (travel_ns, service_ns) = self.times_of(now.since_ns(lease.since), part);
                self.dispatcher.note(travel_ns, service_ns);
            }
        }
    }

    /// How long a request travelled and how long it was in work, of which word is here after so long. FEEDBACK cannot
    /// say a time of 4.29 s or more: then it travelled for as long as others do.
    fn times_of(&self, all_ns: u64, part: &FeedbackPart) -> (u64, u64) {
        let (queue_ns, service_ns) = (u64::from(part.queue_ns), u64::from(part.service_ns));
        if part.queue_ns < u32::MAX && part.service_ns < u32::MAX {
            return (all_ns.saturating_sub(queue_ns + service_ns), service_ns);
        }
        let travel_ns = self.dispatcher.estimate().travel_ns() as u64;
        let measured_ns = all_ns.saturating_sub(queue_ns + travel_ns);
        (travel_ns, if part.service_ns < u32::MAX { service_ns } else { measured_ns.max(service_ns) })
    }

    /// FEEDBACK about a request nobody here has routed: perhaps one from before this router began.
    fn end_adopted(&mut self, from: SocketAddrV4, part: Option<&FeedbackPart>) {
        if let Some(part) = part
            && let Some(worker) = self.workers.key_of(from).and_then(|key| self.workers.by_key(key))
            && worker.adopted > 0
            && part.served > worker.served
        {
            worker.adopted -= 1;
            worker.served += 1;
            self.dispatcher.release(worker.key);
        }
    }

    /// What a worker has served beyond what is known: the FEEDBACK of those was lost, or is late.
    fn recount(&mut self, now: Instant, key: WorkerKey, part: &FeedbackPart) {
        let Some(worker) = self.workers.by_key(key) else { return };
        let missed = part.served.saturating_sub(worker.served);
        worker.served = worker.served.max(part.served);
        // Those whose lease had ended have no place any more.
        let late = missed.min(worker.lapsed.into());
        // The others among them are still in work: no more than it has.
        let in_hand = part.taken.saturating_sub(part.served);
        worker.lapsed = (u64::from(worker.lapsed) - late).min(in_hand) as u32;
        let places = (missed - late).min(self.dispatcher.outstanding(key).unwrap_or(0).into()) as u32;
        worker.ahead += places;
        self.counters.recounted += u64::from(places);
        if places > 0 {
            self.dispatcher.release_many(key, places);
        }
        let idle = part.taken == part.served && worker.out == 0;
        if idle {
            (worker.ahead, worker.lapsed, worker.adopted) = (0, 0, 0);
            let left = self.dispatcher.outstanding(key).unwrap_or(0);
            if left > 0 {
                self.dispatcher.release_many(key, left);
            }
        }
        if worker.leaving && worker.out == 0 {
            self.bury(now, key);
        }
    }
}

fn key_of(about: &FeedbackFor) -> RequestKey {
    RequestKey {
        client: SocketAddrV4::new(Ipv4Addr::from(about.ip), about.port),
        id: about.id,
        identity: None,
    }
}

fn is_within(address: Ipv4Addr, network: Ipv4Addr, bits: u8) -> bool {
    let mask = u32::MAX.checked_shl(32 - u32::from(bits.min(32))).unwrap_or(0);
    u32::from(address) & mask == u32::from(network) & mask
}
