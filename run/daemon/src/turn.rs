//! The daemon's loop. Everything a shard does is on this page.
//!
//! A turn looks once at everything that may have work, in this order: what other shards say, submission rings, sockets
//! and commands, timers; then it lets out what came of it: to other shards, bytes to sockets, completions to rings. A
//! turn that found nothing is followed by a wait (`group.rs`): look and yield for as long as the last waits make that
//! worthwhile, then block until a doorbell, a socket or a timer.

use crate::clock::now;
use crate::datagrams::UdpPorts;
use crate::http::HttpSockets;
use crate::reports::{AskedReport, CopiedPart, ReportStage, Reported, copy_figures};
use crate::shard::{Shard, UNWRITTEN_MAX};
use crate::sockets::NativeSockets;
use crate::token::Token;
use trunkline_call::Instant;
use trunkline_call::entry::{Entry, carried_bytes, gives_back, returned_bytes};
use trunkline_engine::{SessionKey, Turn};
use trunkline_net::{Poller, Ready};
use trunkline_shm::RingError;
use trunkline_telemetry::{Ask, TaxStage, tax_stage, tax_wait};

/// Entries taken from one ring before the others get their turn.
pub(crate) const ENTRIES_PER_TURN: usize = 64;
/// Bytes after which the others get their turn: of messages and metadata in those entries, and read from or written to
/// one connection. Large pieces are cheaper, and somebody else's small call waits at each hop until they are through:
/// some tens of microseconds for one that is beside others, four times as long where nobody else wants anything.
const TURN_BYTES_ALONE: usize = 256 << 10;
pub(crate) const TURN_BYTES_BESIDE: usize = 64 << 10;
/// An application that lets its completion ring run full does not ring when it makes room; it is asked again this
/// often.
const CHOKED_RETRY_NS: u64 = 10_000_000;
/// A worker that begins to rest does not ring; while calls wait for one they are looked at this often.
const RESTING_RETRY_NS: u64 = 200_000;
/// After this time without work from sockets, they are looked at every few turns only: while same-host calls keep the
/// loop busy, a first byte waits for a few microseconds.
const SPARSE_AFTER_NS: u64 = 1_000_000;
const SPARSE_TURNS: u32 = 8;
/// Looks in a row that told of as many sockets as one can, for which timers wait: what says that a peer is there, or
/// all of a request, may lie in a socket that is told of next. Beyond, somebody floods.
const LOOKS_BEFORE_TIMERS_MAX: u32 = 16;
/// Completions that wait for room in a ring beyond which the session's entries wait, too: whoever reads nothing could
/// have any number of them kept. Twice what its calls need by the limits' defaults.
const COMPLETIONS_WAITING_MAX: usize = 16_384;
/// Rings looked at for one part of a report, if nothing is in them, and how many of those with entries.
const RINGS_PER_PART: usize = 256;
const LOOKS_PER_PART: usize = 4;
/// Turns without an entry after which a session's ring is armed instead of looked at.
const IDLE_TURNS_MAX: u32 = 256;

impl Shard {
    /// One turn. Whether there was anything to do.
    pub fn turn(&mut self) -> bool {
        let _library = tax_stage(TaxStage::RpcLibrary);
        let crossed = self.crossings.take(&mut self.engine, &mut Turn { now: now(), heaps: &mut self.heaps });
        let mut worked = crossed
            | self.drain_submissions()
            | std::mem::take(&mut self.pressing)
            | self.with_natives(NativeSockets::read_on);
        if worked {
            self.let_out();
        }
        if self.sockets_are_due() && self.look_at_sockets(Some(0)) | self.hear_who_rang() | self.fire_timers()
        {
            self.let_out();
            worked = true;
        }
        if self.engine.calls_wait_for_workers() && self.ask_who_rests() {
            self.let_out();
            worked = true;
        }
        if !self.reports.are_done() && self.report() {
            // A report begins by looking at every ring.
            self.let_out();
            worked = true;
        }
        worked | self.pressing
    }

    /// Bytes moved for one session or connection before the others get their turn. Of those with large messages one
    /// program alone is nobody's trouble; where the rings of several are looked at, somebody waits.
    pub(crate) fn turn_bytes(&self) -> usize {
        if self.sessions.active.len() > 1 { TURN_BYTES_BESIDE } else { TURN_BYTES_ALONE }
    }

    /// What came of the work goes where it belongs.
    pub(crate) fn let_out(&mut self) {
        self.tell_changes();
        self.crossings.send(&mut self.engine, &mut Turn { now: now(), heaps: &mut self.heaps });
        self.look_up_names();
        self.dial();
        self.with_natives(NativeSockets::transmit);
        self.with_https(HttpSockets::transmit);
        self.with_udp(UdpPorts::send);
        self.publish_completions();
        self.bury_retired();
        self.attend_heaps();
        self.report_policies(UNWRITTEN_MAX);
        self.samples.iter().for_each(|sink| sink.take_from(&mut self.engine));
        // A queue was full, or something more came of the rest.
        self.pressing |= self.crossings.has_more(&self.engine);
    }

    /// Names are looked up elsewhere; what they stand for comes back as a command.
    fn look_up_names(&mut self) {
        while let Some(name) = self.engine.poll_name_forgotten() {
            self.names.forget(self.index, &name);
        }
        while let Some(name) = self.engine.poll_lookup() {
            self.names.ask(self.index, &name, &self.engine.who_names(&name));
        }
    }

    /// Asking the poller is a system call, and dear beside a ring that is looked at for nothing. While sockets bring
    /// work it is asked every turn; when they have brought none for a while, every few turns.
    fn sockets_are_due(&mut self) -> bool {
        self.turns_unlooked += 1;
        self.turns_unlooked >= SPARSE_TURNS || now().since_ns(self.sockets_worked) < SPARSE_AFTER_NS
    }

    /// Every ring is armed, so whoever publishes next rings. `false`: something has come meanwhile.
    pub fn arm_all(&mut self) -> bool {
        for key in std::mem::take(&mut self.sessions.active) {
            if !self.arm(key) {
                self.sessions.activate(key);
            }
        }
        self.sessions.active.is_empty() && self.crossings.arm()
    }

    /// How long it may sleep, if not until somebody rings.
    pub fn rest_ns(&mut self) -> Option<u64> {
        let reported = self.reports.next_due();
        let due = self.engine.next_timeout().into_iter().chain(self.socket_timers.next_due());
        let due = due.chain(reported).min();
        let timer_ns = due.map(|at| at.since_ns(now()));
        let choked_ns = (!self.choked.is_empty()).then_some(CHOKED_RETRY_NS);
        let waited_ns = self.engine.calls_wait_for_workers().then_some(RESTING_RETRY_NS);
        let waiting_ns = self.pending.has_waiting().then_some(0);
        timer_ns.into_iter().chain(choked_ns).chain(waited_ns).chain(waiting_ns).min()
    }

    /// Sleeps until there is something to do, and does it; not at all, if others were asleep for it. Whether there was
    /// anything before the time was over.
    pub fn sleep(&mut self, timeout_ns: Option<u64>) -> bool {
        let _library = tax_stage(TaxStage::RpcLibrary);
        let worked = self.look_at_sockets(timeout_ns);
        self.crossings.disarm();
        self.hear_who_rang();
        self.fire_timers();
        self.let_out();
        worked
    }

    /// Calls wait for workers: those whose thread rests could take one. Whether any does.
    fn ask_who_rests(&mut self) -> bool {
        let Self { engine, sessions, heaps, .. } = self;
        engine.free_resting_workers(&mut Turn { now: now(), heaps }, |key| {
            // A damaged ring is found out by whoever uses it next.
            sessions.find(key).is_some_and(|rings| rings.completions.consumer_rests().unwrap_or(false))
        })
    }

    /// Lets a session sleep. `false` if entries came meanwhile.
    fn arm(&mut self, key: SessionKey) -> bool {
        let Some(rings) = self.sessions.find(key) else { return true };
        rings.active = false;
        match rings.submissions.arm() {
            Ok(armed) => armed,
            Err(error) => {
                self.dismiss(key, ring_fault(&error));
                true
            }
        }
    }

    fn drain_submissions(&mut self) -> bool {
        if self.tenants.are_several() {
            return self.drain_by_tenants();
        }
        let mut worked = false;
        for index in (0..self.sessions.active.len()).rev() {
            let Some(&key) = self.sessions.active.get(index) else { continue };
            worked |= self.drain_session(key);
            self.sessions.leave_resting(index);
        }
        worked
    }

    /// The same where several tenants are attached: those in credit go, and who is in debt waits for as long as
    /// somebody in credit has anything. Begins with another session every time, because the first of a tenant's may use
    /// up what all have.
    fn drain_by_tenants(&mut self) -> bool {
        let count = self.sessions.active.len();
        self.sessions.begins_at = if count == 0 { 0 } else { (self.sessions.begins_at + 1) % count };
        let order = (0..self.sessions.begins_at).rev().chain((self.sessions.begins_at..count).rev());
        let mut worked = false;
        self.tenants.begin_turn();
        for index in order {
            let Some(&key) = self.sessions.active.get(index) else { continue };
            worked |= self.drain_session(key);
        }
        for key in self.tenants.relieve() {
            worked |= self.drain_session(key);
        }
        // Not meanwhile: the last takes the place of one that rests, and from the middle on it may have gone by.
        self.sessions.leave_all_resting();
        worked
    }

    // LIFE: 3
    /// Takes a session's entries, up to its share of the turn.
    pub(crate) fn drain_session(&mut self, key: SessionKey) -> bool {
        if !self.load.is_by_session() {
            return self.take_entries(key);
        }
        let began = now();
        let worked = self.take_entries(key);
        if worked && let Some(rings) = self.sessions.find(key) {
            rings.work.entries_ns += now().since_ns(began);
        }
        worked
    }

    fn take_entries(&mut self, key: SessionKey) -> bool {
        let is_shared = self.tenants.are_several();
        let mut left = self.turn_bytes() as u32;
        for taken in 0..ENTRIES_PER_TURN {
            if left == 0 {
                return true;
            }
            // Judged and taken by one reading: its application may change it between two.
            let judged = (is_shared && !self.tenants.may_go(key)).then(|| self.next_entry(key)).flatten();
            if judged.is_some_and(|entry| self.must_wait(key, &entry)) {
                self.tenants.wait(key);
                return taken > 0;
            }
            if self.engine.outboxes().waiting(key) >= COMPLETIONS_WAITING_MAX {
                self.hold_back(key);
                return taken > 0;
            }
            let Some(rings) = self.sessions.find(key) else { return true };
            let hop = tax_stage(TaxStage::SharedMemoryHop);
            let entry = match judged {
                Some(entry) => {
                    rings.submissions.take_peeked();
                    Ok(Some(entry))
                }
                None => rings.submissions.pop(),
            };
            drop(hop);
            let entry = match entry {
                Ok(Some(entry)) => entry,
                Ok(None) if taken > 0 => return true,
                Ok(None) => {
                    self.rest(key);
                    return false;
                }
                Err(error) => {
                    self.dismiss(key, ring_fault(&error));
                    return true;
                }
            };
            rings.idle_turns = 0;
            let bytes = carried_bytes(&entry);
            if self.load.is_by_session() {
                rings.work.carried(bytes.saturating_add(returned_bytes(&entry)));
            }
            left = left.saturating_sub(bytes);
            let payer = (is_shared && !gives_back(&entry)).then(|| self.engine.on_behalf_of(key, &entry));
            let mut turn = Turn { now: now(), heaps: &mut self.heaps };
            if let Err(fault) = self.engine.handle_submission(&mut turn, key, &entry) {
                self.dismiss(key, fault.to_string());
                return true;
            }
            // What was refused is nobody's to pay but for its sender, who is gone with it.
            if let Some(payer) = payer {
                self.tenants.charge(payer, bytes);
            }
        }
        true
    }

    /// The next entry of a session, which is not taken yet. A damaged ring is found out by whoever takes one.
    fn next_entry(&mut self, key: SessionKey) -> Option<Entry> {
        self.sessions.find(key)?.submissions.peek().ok().flatten()
    }

    /// Whether an entry of a session is its own tenant's to pay. What it does for others, it does at once: those pay,
    /// and are not to wait for what this one may have.
    fn must_wait(&self, key: SessionKey, entry: &Entry) -> bool {
        !gives_back(entry) && self.tenants.are_one(key, self.engine.on_behalf_of(key, entry))
    }

    /// Takes what applications published without ringing, as the blocks and last stamps they return when nothing is
    /// urgent: before telling what is held, and how the last calls went. Looks at the last of these sessions, and
    /// leaves those that are still to be looked at; `looks` is how often the last of them was.
    pub(crate) fn look_at_rings(&mut self, sessions: &mut Vec<SessionKey>, mut looks: usize) -> usize {
        let mut left = RINGS_PER_PART;
        while let Some(key) = sessions.last().copied() {
            if left == 0 {
                break;
            }
            left -= 1;
            let Some(rings) = self.sessions.find(key) else {
                (_, looks) = (sessions.pop(), 0);
                continue;
            };
            // A full ring, and not what a busy application adds meanwhile.
            let looks_max = (rings.submissions.capacity() as usize / ENTRIES_PER_TURN).max(1);
            // A damaged ring is found out by whoever takes an entry.
            let is_empty = rings.submissions.peek().is_ok_and(|entry| entry.is_none());
            if is_empty || looks >= looks_max {
                (_, looks) = (sessions.pop(), 0);
                continue;
            }
            self.sessions.activate(key);
            self.drain_session(key);
            looks += 1;
            left = left.saturating_sub(RINGS_PER_PART / LOOKS_PER_PART);
        }
        self.sessions.leave_all_resting();
        looks
    }

    /// Copies another part of the report that is asked for, if it is time. Whether there is more to copy at once.
    fn report(&mut self) -> bool {
        let _telemetry = tax_stage(TaxStage::Telemetry);
        let began = now();
        if self.reports.next_due().is_none_or(|at| at > began) {
            return false;
        }
        match self.reports.take_asked() {
            Some(AskedReport::Whole(ask, reply)) => self.reports.begin(ask, reply, self.sessions.keys()),
            Some(AskedReport::Calls(ask, reply)) => {
                let answer = self.engine.telemetry().calls(&ask);
                let ended = now();
                self.reports.rest(ended, ended.since_ns(began));
                let _ = reply.send(answer);
            }
            None => {
                let mut reports = std::mem::take(&mut self.reports);
                reports.go_on(began, now, |ask, stage| self.report_part(began, ask, stage));
                self.reports = reports;
            }
        }
        self.reports.is_under_way()
    }

    /// A part of a whole report: rings first, so that it tells of what was published before it was asked for.
    fn report_part(&mut self, began: Instant, ask: &Ask, stage: ReportStage) -> CopiedPart {
        match stage {
            ReportStage::Rings(mut sessions, mut looks) => {
                looks = self.look_at_rings(&mut sessions, looks);
                if !sessions.is_empty() {
                    return CopiedPart::More(ReportStage::Rings(sessions, looks));
                }
                let mut state = self.engine.begin_state();
                state.set_datagrams_refused(self.udp.refused());
                CopiedPart::More(ReportStage::State(Box::new(state)))
            }
            ReportStage::State(mut state) => {
                let known = state.sessions_mut().len();
                let has_more = self.engine.copy_state(began, &mut state);
                for row in &mut state.sessions_mut()[known..] {
                    row.receive_heap_bytes = self.heaps.receive_bytes_in_use(row.key).into();
                }
                if has_more {
                    return CopiedPart::More(ReportStage::State(state));
                }
                let measured = self.engine.telemetry().begin_snapshot(began, ask.clone());
                let report = Reported { state: *state, measured };
                CopiedPart::More(ReportStage::Figures(Box::new(report)))
            }
            ReportStage::Figures(report) => copy_figures(self.engine.telemetry(), report),
        }
    }

    /// Tells all that is asked for now, before the shard stands still or ends.
    pub(crate) fn finish_reports(&mut self) {
        while !self.reports.are_done() {
            self.reports.hurry();
            self.report();
        }
    }

    /// A session without entries: after many such turns it is armed and left alone.
    fn rest(&mut self, key: SessionKey) {
        let Some(rings) = self.sessions.find(key) else { return };
        rings.idle_turns += 1;
        if rings.idle_turns < IDLE_TURNS_MAX {
            return;
        }
        if !self.arm(key)
            && let Some(rings) = self.sessions.find(key)
        {
            rings.active = true;
        }
    }

    /// A session whose completions wait is not looked at until it has read some: [`Shard::publish_session`].
    fn hold_back(&mut self, key: SessionKey) {
        if let Some(rings) = self.sessions.find(key) {
            (rings.active, rings.is_held_back) = (false, true);
        }
    }

    /// Asks the poller, at most `timeout_ns`, and serves whatever is ready.
    pub(crate) fn look_at_sockets(&mut self, timeout_ns: Option<u64>) -> bool {
        let mut ready = std::mem::take(&mut self.ready);
        if let Err(error) = self.ask_poller(timeout_ns, &mut ready) {
            tracing::error!(%error, "cannot poll");
        }
        let worked = !ready.is_empty() || self.pending.has_waiting();
        self.full_looks = if ready.len() < Poller::EVENTS_MAX { 0 } else { self.full_looks + 1 };
        self.turns_unlooked = 0;
        if worked {
            self.sockets_worked = now();
        }
        if ready.len() > 1 && self.sockets.are_long() {
            // Nobody's small message waits behind what others say at length.
            let is_long = |event: &Ready| match Token::from_bits(event.token.0) {
                Token::Peer(key) => self.sockets.is_long(key),
                _ => false,
            };
            ready.sort_by_cached_key(is_long);
        }
        self.serve_waiting();
        for event in ready.drain(..) {
            match Token::from_bits(event.token.0) {
                Token::Waker => self.take_commands(),
                Token::Beside => self.beside_rang = true,
                Token::Session(key) => self.wake_session(key),
                Token::Peer(key) => self.with_natives(|natives, lent| natives.serve(lent, key, event)),
                Token::Listener(index) => self.accept(index),
                Token::Http(key) => self.with_https(|https, lent| https.serve(lent, key, event)),
                Token::Pending(id) if self.pending.waits_its_turn(id) => self.have_wait(id, event),
                Token::Pending(id) => self.serve_pending(id, event),
                Token::Lingering(id) => self.serve_lingering(id),
                Token::Datagrams(port) => self.with_udp(|udp, lent| udp.take(lent, port)),
            }
        }
        self.ready = ready;
        self.pressing |= self.pending.has_waiting();
        worked
    }

    /// Goes on with connections that wait for their part of a look, which begins.
    fn serve_waiting(&mut self) {
        self.pending.begin_look();
        while let Some(id) = self.pending.poll_waiting() {
            let token = Token::Pending(id).to_poller();
            self.serve_pending(id, Ready { token, readable: true, writable: false, is_gone: false });
        }
    }

    /// A pending connection waits for the next look, if anybody is there to be answered.
    fn have_wait(&mut self, id: u64, event: Ready) {
        match event.is_gone {
            true => self.pending_over(id, "gone"),
            false => self.pending.have_wait(id, &self.poller),
        }
    }

    /// A look belongs to what is found; a wait is nobody's.
    fn ask_poller(&self, timeout_ns: Option<u64>, ready: &mut Vec<Ready>) -> std::io::Result<()> {
        if timeout_ns == Some(0) {
            let _networking = tax_stage(TaxStage::Networking);
            return self.poller.wait(timeout_ns, ready);
        }
        let _wait = tax_wait();
        self.poller.wait(timeout_ns, ready)
    }

    /// An application rang: its ring is looked at from now on, and its completions may have room.
    fn wake_session(&mut self, key: SessionKey) {
        if let Some(rings) = self.sessions.find(key) {
            let _hop = tax_stage(TaxStage::SharedMemoryHop);
            let _ = rings.own_doorbell.quiet();
            self.waiter.woken(rings.submissions.rung_ns_ago(now().0));
            self.sessions.activate(key);
            self.sessions.have_rung = true;
        }
    }

    /// Takes the entries of applications that have rung: an answer that is in its ring has come before a deadline that
    /// is noticed with it. After a while without a processor both are there.
    fn hear_who_rang(&mut self) -> bool {
        std::mem::take(&mut self.sessions.have_rung) && self.drain_submissions()
    }

    /// Does what is due by the clock, once all sockets have been read that had something.
    fn fire_timers(&mut self) -> bool {
        if (1..LOOKS_BEFORE_TIMERS_MAX).contains(&self.full_looks) {
            self.pressing = true;
            return false;
        }
        self.full_looks = 0;
        let now = now();
        let mut fired = false;
        while let Some(token) = self.socket_timers.due(now) {
            fired = true;
            match token {
                Token::Http(key) => self.with_https(|https, lent| https.timed_out(lent, key)),
                Token::Pending(id) => self.pending_timed_out(id),
                Token::Lingering(id) => self.lingering_timed_out(id),
                Token::Listener(index) => self.listener_rested(index),
                Token::Session(key) => self.look_at_heap(key),
                Token::Waker | Token::Beside | Token::Peer(_) | Token::Datagrams(_) => {}
            }
        }
        if self.engine.next_timeout().is_some_and(|at| at <= now) {
            self.engine.handle_timeout(&mut Turn { now, heaps: &mut self.heaps });
            fired = true;
        }
        fired
    }

    /// Writes every waiting completion into its ring, then shows each ring once.
    fn publish_completions(&mut self) {
        for key in std::mem::take(&mut self.choked) {
            self.publish_session(key);
        }
        while let Some(key) = self.engine.outboxes().poll_session() {
            self.publish_session(key);
        }
    }

    // LIFE: 14
    fn publish_session(&mut self, key: SessionKey) {
        let _hop = tax_stage(TaxStage::SharedMemoryHop);
        let Some(rings) = self.sessions.find(key) else { return };
        let mut fault = None;
        while let Some(completion) = self.engine.outboxes().poll(key) {
            match rings.completions.stage(&completion.encode()) {
                Ok(()) => {}
                Err(RingError::Full { .. }) => {
                    self.engine.outboxes().blocked(key, completion);
                    self.choked.push(key);
                    break;
                }
                Err(error) => {
                    fault = Some(ring_fault(&error));
                    break;
                }
            }
        }
        if rings.completions.publish() {
            let _ = rings.peer_doorbell.ring();
        }
        let has_read = self.engine.outboxes().waiting(key) <= COMPLETIONS_WAITING_MAX / 2;
        if has_read && std::mem::take(&mut rings.is_held_back) {
            self.sessions.activate(key);
            self.pressing = true;
        }
        if let Some(reason) = fault {
            self.dismiss(key, reason);
        }
    }

    fn bury_retired(&mut self) {
        while let Some(key) = self.engine.poll_retired() {
            self.heaps.take_out(key).into_iter().for_each(|heaps| self.unmapper.unmap_session(heaps));
        }
    }
}

fn ring_fault(error: &RingError) -> String {
    format!("shared ring is damaged: {error}")
}

#[cfg(test)]
mod tests {
    //! Shows that no time is up while sockets have not been read, that a flood does not stop the clock, what a
    //! session may have done in a visit, and who gives its memory back.
    use super::*;
    use crate::handle::tests::{attach, attach_as, shards_at_rest};
    use crate::purpose::Purpose;
    use crate::unmapper;
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use trunkline_call::entry::{Span, Submission};
    use trunkline_call::{CallId, Metadata};
    use trunkline_net::Stream;
    use trunkline_shm::SessionConfig;

    /// It may be half a second's work for the kernel, and calls of others are this thread's.
    #[test]
    fn memory_of_a_session_that_is_over_is_given_back_by_another_thread() {
        let (_daemon, mut shards) = shards_at_rest("[daemon]\nshards = 1\n");
        let shard = &mut shards[0];
        let (_go_on, waiting) = unmapper::tests::hold(&shard.unmapper);
        let config =
            SessionConfig { send_heap_bytes: 8 << 20, receive_heap_bytes: 1 << 20, ..<_>::default() };
        for (written, elsewhere) in [(64, 0), (4 << 20, 1)] {
            let (key, app) = attach_as(shard, "app", &config);
            app.send_heap.allocate(written).unwrap().bytes_mut().fill(1);
            drop(app);
            shard.detach(key);
            shard.let_out();
            assert_eq!(waiting(), elsewhere, "{written} bytes written");
        }
    }

    /// Reading it takes as long as what a message of as many bytes costs.
    #[test]
    fn metadata_counts_in_a_turn() {
        let (_daemon, mut shards) = shards_at_rest("[daemon]\nshards = 1\n");
        let (key, mut app) = attach(&mut shards[0], "app");
        let mut visits = |metadata_bytes| {
            let metadata = Span { offset: 0, len: metadata_bytes };
            let entry = Submission::Headers { call: CallId(1), metadata }.encode();
            (0..ENTRIES_PER_TURN).for_each(|_| app.submissions.stage(&entry).unwrap());
            let _ = app.submissions.publish();
            std::iter::from_fn(|| shards[0].drain_session(key).then_some(())).count()
        };
        let bytes = Metadata::BYTES_MAX;
        assert_eq!(visits(64), 1);
        assert_eq!(visits(bytes as u32), ENTRIES_PER_TURN * bytes / TURN_BYTES_ALONE);
    }

    #[test]
    fn timers_wait_for_sockets_that_have_not_been_read() {
        let (_daemon, mut shards) = shards_at_rest("[daemon]\nshards = 1\nconnections_max = 4096\n");
        let shard = &mut shards[0];
        let connect = |shard: &mut Shard| {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            ours.set_nonblocking(true).unwrap();
            theirs.write_all(b"P").unwrap();
            shard.admit_accepted(Stream::inherit(ours.into(), false).unwrap(), &Purpose::Peers);
            theirs
        };
        let _clients: Vec<_> = (0..Poller::EVENTS_MAX + 1).map(|_| connect(shard)).collect();
        shard.socket_timers.insert(now(), Token::Lingering(1));
        let begin = |shard: &mut Shard| shard.look_at_sockets(Some(0)) && shard.fire_timers();
        assert!(!begin(shard), "some have not been read");
        assert!(shard.pressing, "the next turn comes at once");
        assert!(begin(shard), "all have");
        // Somebody who always has something to say.
        shard.socket_timers.insert(now(), Token::Lingering(1));
        let fired = (0..LOOKS_BEFORE_TIMERS_MAX).position(|_| {
            shard.full_looks += 1;
            shard.fire_timers()
        });
        assert_eq!(fired, Some(LOOKS_BEFORE_TIMERS_MAX as usize - 1));
    }
}
