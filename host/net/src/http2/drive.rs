//! The inside of a turn: timers, one read, as many looks as have a cause, and writes.

use super::connection::{Ended, Fault, Http2, State};
use super::keepalive::{Due, Ending};
use super::link::Polled;
use super::meter::{Flood, SeenGoAway, UNKNOWN_KIND, go_away};
use super::stream::{GivenRoom, LIST_MAX_KEY, OpenStream, Rest, list_bytes};
use super::suspects::Suspicion;
use super::wire::Buffers;
use crate::Transfer;
use crate::kernel_stamps::monotonic_ns;
use bytes::Bytes;
use std::io::{ErrorKind, IoSlice};
use std::task::Context;
use trunkline_call::Instant;
use trunkline_grpc::{Event, Reason, ResetBy};

/// Looks at connection and streams in one turn before the others get theirs. Each look is caused by the one before (a
/// window opened, a stream ended); two or three are usual.
const LOOKS_MAX: usize = 16;
/// Bytes written to one connection before the others get their turn: as many as are read of it.
const WRITE_BYTES_PER_TURN: usize = 256 << 10;
/// A write of so many bytes holds data: answers to as many pings as are tolerated are a twentieth of it.
const MESSAGE_BYTES_MIN: usize = 1024;
/// Bytes given to h2 before it is asked to write some: enough for many writes of the outbox. What its streams have
/// beyond waits in their queues, where small pieces are put together and the end of a call drops them.
const GIVEN_BYTES_MAX: usize = 1 << 20;
/// What a GOAWAY for pings says, so that a client asks less often (gRFC A8).
const TOO_MANY_PINGS: &str = "too_many_pings";

impl Http2 {
    /// Deals with what is due by the clock. `is_silent`: the socket was just asked and had nothing.
    pub(super) fn fire_timers(&mut self, now: Instant, is_silent: bool) {
        let has_calls = self.streams.len() > 0;
        match self.meter.handle_timeout(now) {
            Ok(()) => {}
            Err(flood) if is_silent => self.fail(flood),
            // More has come of the frame, or what was read waits for room in the outbox.
            Err(_) => {
                if let Err(flood) = self.meter.put_off(now) {
                    self.fail(flood);
                }
            }
        }
        match self.keepalive.handle_timeout(now, has_calls) {
            Due::Nothing => {}
            Due::Ask => self.link.ping(),
            Due::Dead => self.set_fault(Reason::NO_ERROR, "keepalive_timeout"),
        }
        match self.life.handle_timeout(now) {
            Ending::Nothing => {}
            Ending::Leave => self.leave(),
            Ending::Close => self.set_fault(Reason::NO_ERROR, "max_age"),
        }
        if self.is_left_alone_by(now) {
            // A request that was on its way may have come just now, or lain there while this thread was away: it is
            // looked at first. Once, for a client that says something now and then would stay for ever.
            match is_silent || self.is_left_longer {
                true => self.set_fault(Reason::NO_ERROR, ""),
                false => (self.left_alone, self.is_left_longer) = (Some(now), true),
            }
        }
    }

    /// Says GOAWAY; streams in flight go on.
    pub(super) fn leave(&mut self) {
        if !self.is_leaving {
            self.is_leaving = true;
            self.link.leave();
            self.marks.mark();
        }
    }

    /// Reads once into the turn's memory. `is_readable` then says whether there is likely more. Whether the socket had
    /// nothing.
    pub(super) fn read(&mut self, now: Instant, buffers: &mut Buffers) -> bool {
        if !self.is_readable || !self.wire.boxes().is_read() || !self.meter.may_read() {
            return false;
        }
        self.is_readable = false;
        let ended = match self.stream.read(&mut buffers.input) {
            Ok(Transfer::NotReady) => match self.broken {
                None => return true,
                Some(kind) => Err(kind),
            },
            Ok(Transfer::Bytes(bytes)) => {
                let is_more_likely = bytes == buffers.input.len() || self.stream.has_buffered();
                self.is_readable = is_more_likely || self.broken.is_some();
                self.take_input(now, &mut buffers.input[..bytes]);
                self.wire.boxes().fill(buffers, bytes);
                self.marks.mark();
                return false;
            }
            Ok(Transfer::Ended) => Ok(()),
            Err(error) => Err(error.kind()),
        };
        self.wire.boxes().end(ended);
        self.marks.mark();
        false
    }

    /// Reads along with what the peer sent, before h2 does.
    pub(super) fn take_input(&mut self, now: Instant, bytes: &mut [u8]) {
        self.keepalive.handle_heard(now);
        self.opening.hear(bytes);
        if let Err(flood) = self.meter.handle_input(now, bytes) {
            self.fail(flood);
        }
        // h2 bears a hundred empty ones in a connection's life, and says so by its end. Our limit is the meter's.
        for at in &self.meter.blanks {
            if let Some(kind) = bytes.len().checked_sub(*at) {
                bytes[kind] = UNKNOWN_KIND;
            }
        }
        self.portions.handle_read(bytes.len(), self.meter.block_bytes);
        if let Some(unix_authority) = &mut self.unix_authority {
            unix_authority.handle_input(bytes);
        }
    }

    /// Lets the connection and its streams work, and writes what comes of it.
    pub(super) fn drive(&mut self, now: Instant, events: &mut Vec<Event>) -> State {
        let mut budget = WRITE_BYTES_PER_TURN;
        loop {
            if let Some(fault) = self.fault {
                return self.end_for(now, fault);
            }
            let seen = self.meter.take_seen();
            self.tell_go_away(seen.go_away, events);
            self.suspects.note(&seen.suspects);
            if seen.resets {
                events.extend(self.retire());
            }
            let before = events.len();
            let ended = self.look(now, events);
            let joined = std::mem::take(&mut self.joined_frames);
            self.meter.handle_taken(frames_taken(&events[before..]) + joined);
            self.tell_settings(seen.settings, events);
            self.count_calls(now);
            self.count_resets(now, events);
            self.count_pings(now, seen.pings);
            let written = self.write(&mut budget, events);
            self.tell_left(now, events);
            if let Some(ended) = ended {
                self.tell_hang_up(&ended, events);
                return State::Over(ended);
            }
            match written {
                Err(kind) => {
                    self.broken = Some(kind);
                    self.is_readable = true;
                    return State::More;
                }
                // The outbox has room again for what did not fit.
                Ok(true) if budget > 0 => {}
                Ok(true) => return State::More,
                Ok(false) if self.fault.is_some() => {}
                Ok(false) if self.marks.is_marked() => return State::More,
                Ok(false) => return State::Open,
            }
        }
    }

    /// Looks at whatever is marked until nothing is. How the connection ended, if it did.
    fn look(&mut self, now: Instant, events: &mut Vec<Event>) -> Option<Ended> {
        for _ in 0..LOOKS_MAX {
            let is_marked = self.marks.take_connection();
            let Some(portion) = self.portions.next() else {
                // The rest of what was read waits for the next turn.
                self.marks.mark();
                break;
            };
            if is_marked {
                self.wire.boxes().serve(portion);
                let before = events.len();
                if let Some(ended) = self.poll_link(now, events) {
                    return Some(ended);
                }
                self.digest(&events[before..]);
                self.feed(events);
            }
            self.marks.take_streams(&mut self.marked);
            for index in 0..self.marked.len() {
                self.pump(self.marked[index], events);
            }
            self.marked.clear();
            if !self.marks.is_marked() {
                break;
            }
        }
        None
    }

    /// Counts what a portion has become.
    fn digest(&mut self, events: &[Event]) {
        let boxes = self.wire.boxes();
        self.portions.handle_decoded(boxes.portion_left(), events.iter().map(header_bytes).sum());
        if boxes.is_hungry {
            self.marks.mark();
        }
    }

    /// Lets h2 read and write, and takes in the streams it brings.
    fn poll_link(&mut self, now: Instant, events: &mut Vec<Event>) -> Option<Ended> {
        let waker = self.waker.clone();
        let mut cx = Context::from_waker(&waker);
        loop {
            match self.link.poll(&mut cx) {
                Polled::Pending => return None,
                Polled::Incoming(request, respond) => {
                    let (head, body) = request.into_parts();
                    let end = body.is_end_stream();
                    let (slot, stream) = self
                        .streams
                        .insert_peers(&self.marks, |tag| OpenStream::accepted(tag, body, respond));
                    events.push(Event::Request { stream, head: Box::new(head), end });
                    self.pump(slot, events);
                }
                Polled::Over(how) => {
                    // Streams that ended with it, or before it, are told first.
                    self.marks.take_streams(&mut self.marked);
                    let marked = std::mem::take(&mut self.marked);
                    marked.into_iter().for_each(|slot| self.pump(slot, events));
                    self.link.forget();
                    return Some(self.how_ended(now, how));
                }
            }
        }
    }

    /// Notes whether h2 has written all it can, and lets streams go on that waited for that, in turn.
    fn feed(&mut self, events: &mut Vec<Event>) {
        self.is_full = self.wire.boxes().is_blocked;
        if !self.is_full {
            self.given_bytes = 0;
        }
        while self.room().bytes > 0
            && let Some(slot) = self.streams.poll_starved()
        {
            self.pump(slot, events);
        }
    }

    fn room(&self) -> GivenRoom {
        let bytes = if self.is_full { 0 } else { GIVEN_BYTES_MAX.saturating_sub(self.given_bytes) };
        GivenRoom { bytes, stream_bytes: self.settings.send_ahead_bytes }
    }

    /// Tells whose bytes were written. A stream that has said all is over when the last of them was.
    fn tell_left(&mut self, now: Instant, events: &mut Vec<Event>) {
        let mut next = self.streams.poll_left();
        if next.is_none() {
            return;
        }
        let before = self.streams.len();
        let was_marked = self.marks.is_marked();
        let mut has_ended = !self.is_leaving && self.leaving.last_stream.is_none();
        while let Some(slot) = next {
            if let Some((open, _)) = self.streams.at(slot) {
                let rest = open.tell_left(events);
                has_ended &= open.has_ended();
                self.settle(slot, rest);
            }
            next = self.streams.poll_left();
        }
        if self.streams.len() == before {
            return;
        }
        self.count_calls(now);
        if has_ended && !was_marked {
            // h2 wants to be asked whether a connection that leaves has lost its last stream. This one does not leave.
            self.marks.take_connection();
        }
    }

    fn pump(&mut self, slot: u32, events: &mut Vec<Event>) {
        let room = self.room();
        let Some((open, waker)) = self.streams.at(slot) else { return };
        let mut cx = Context::from_waker(waker);
        let id = open.id;
        let (before, ahead_bytes) = (events.len(), open.ahead_bytes);
        let rest = open.pump(&mut cx, room, self.leaving, events);
        let given_bytes = open.ahead_bytes.saturating_sub(ahead_bytes);
        self.given_bytes += given_bytes;
        if let Some(of) = self.suspects.of(id)
            && refuse_trailers(&mut events[before..], of)
        {
            self.suspects.clear(id);
        }
        self.resets_sent += u32::from(open.take_reset());
        self.joined_frames += open.take_joined();
        let left = GivenRoom { bytes: room.bytes.saturating_sub(given_bytes), ..room };
        if rest == Rest::Open && open.is_starved(left) {
            self.streams.starve(slot);
        }
        self.settle(slot, rest);
    }

    /// Takes a stream out that is over.
    fn settle(&mut self, slot: u32, rest: Rest) {
        match rest {
            Rest::Open => return,
            Rest::Over if self.link.is_server() => self.meter.handle_useful_stream(),
            Rest::Broken if self.link.is_server() => self.mistakes += 1,
            Rest::Over | Rest::Reset | Rest::Broken | Rest::Lost => {}
        }
        self.remove(slot);
    }

    /// The peer leaves. Told before the streams that it will not answer.
    fn tell_go_away(&mut self, seen: Option<SeenGoAway>, events: &mut Vec<Event>) {
        let Some(SeenGoAway { last_stream, reason, debug }) = seen else { return };
        self.leaving.last_stream = Some(last_stream);
        self.too_many_pings |= reason == Reason::ENHANCE_YOUR_CALM && &*debug == TOO_MANY_PINGS.as_bytes();
        events.push(Event::GoAway { reason, debug });
    }

    /// The peer has hung up in good order: it leaves, whether it said so or not.
    fn tell_hang_up(&mut self, ended: &Ended, events: &mut Vec<Event>) {
        if ended.reason == Reason::NO_ERROR && self.leaving.last_stream.is_none() && !self.link.is_server() {
            events.push(Event::GoAway { reason: Reason::NO_ERROR, debug: Bytes::new() });
        }
    }

    /// The peer's settings came (client role): it is up, or takes another number of streams.
    fn tell_settings(&mut self, came: bool, events: &mut Vec<Event>) {
        let (Some(now), true) = (self.link.streams_max(), came || self.streams_max.is_some()) else { return };
        match self.streams_max.replace(now) {
            None => events.push(Event::Ready { streams_max: now }),
            Some(before) if before != now => events.push(Event::StreamsMax { streams_max: now }),
            Some(_) => {}
        }
    }

    fn count_calls(&mut self, now: Instant) {
        let has_calls = self.streams.len() > 0;
        if has_calls && !self.had_calls {
            self.keepalive.handle_awake(now);
        }
        self.had_calls = has_calls;
        self.life.handle_calls(now, has_calls);
        if self.is_leaving {
            self.life.handle_leaving(now);
            self.left_alone = if has_calls { None } else { self.left_alone.or(Some(now)) };
            self.is_left_longer &= !has_calls;
        }
    }

    /// Counts streams reset here. A server counts them, too, and ends a connection with too many (`too_many_resets`, or
    /// what others call it): well before that a client opens no more streams on it, and calls take another.
    fn count_resets(&mut self, now: Instant, events: &mut Vec<Event>) {
        for _ in 0..std::mem::take(&mut self.mistakes) {
            if let Err(flood) = self.meter.handle_mistake(now) {
                self.fail(flood);
            }
        }
        for _ in 0..std::mem::take(&mut self.resets_sent) {
            if !self.link.is_server() && !self.own_resets.draw(now) {
                events.extend(self.retire());
            }
        }
    }

    /// Takes no new streams, or opens none, which is to be told; those there are go on.
    pub(super) fn retire(&mut self) -> Option<Event> {
        if self.link.is_server() {
            self.leave();
            return None;
        }
        let is_new = !std::mem::replace(&mut self.is_retired, true);
        is_new.then(|| Event::GoAway { reason: Reason::NO_ERROR, debug: Bytes::new() })
    }

    fn count_pings(&mut self, now: Instant, pings: u32) {
        if !self.link.is_server() {
            return;
        }
        for _ in 0..pings {
            if !self.ping_strikes.handle_ping(now, self.had_calls) {
                self.set_fault(Reason::ENHANCE_YOUR_CALM, TOO_MANY_PINGS);
            }
        }
    }

    /// Writes what is in the outbox, as far as the socket takes it. Whether h2 waited for room and now has it.
    fn write(&mut self, budget: &mut usize, events: &mut Vec<Event>) -> Result<bool, ErrorKind> {
        let mut boxes = self.wire.boxes();
        if self.broken.is_some() {
            boxes.outbox.clear();
        } else if self.stream.wants_write() {
            self.stream.flush().map_err(|error| error.kind())?;
        }
        let mut sent = 0;
        while sent < boxes.outbox.len() {
            let at = if self.unwritten.is_empty() { Instant(0) } else { Instant(monotonic_ns()) };
            let left = &boxes.outbox[sent..];
            match self.stream.write_vectored(&[IoSlice::new(left)]) {
                Ok(Transfer::Bytes(bytes)) => {
                    let streams = &mut self.streams;
                    let mut note_left = |id, bytes| streams.note_left(id, bytes);
                    self.meter.handle_sent(&left[..bytes], &mut self.unwritten, &mut note_left);
                    sent += bytes;
                    while let Some(stream) = self.unwritten.poll_written() {
                        events.push(Event::Written { stream, at });
                    }
                }
                Ok(Transfer::NotReady | Transfer::Ended) => break,
                Err(error) => return Err(error.kind()),
            }
        }
        boxes.sent(sent);
        if sent >= MESSAGE_BYTES_MIN {
            // A large message leaves in many writes, and grpc-go measures the bandwidth by a ping for each it reads.
            self.ping_strikes.handle_sent();
        }
        *budget = budget.saturating_sub(sent);
        if boxes.outbox.is_empty() {
            self.meter.handle_all_sent();
        }
        if !boxes.is_blocked || !boxes.outbox.is_empty() {
            return Ok(false);
        }
        boxes.is_blocked = false;
        self.marks.mark();
        Ok(true)
    }

    fn fail(&mut self, flood: Flood) {
        self.set_fault(flood.reason(), flood.name());
    }

    /// Ends the connection in this turn. The first reason is the one that is told.
    pub(super) fn set_fault(&mut self, reason: Reason, debug: &'static str) {
        self.fault.get_or_insert(Fault { reason, debug });
    }

    /// Says GOAWAY behind what h2 has written. h2 would say it, too, but only as a server and without debug data.
    fn end_for(&mut self, now: Instant, Fault { reason, debug }: Fault) -> State {
        let last_stream = if self.link.is_server() { self.meter.last_stream } else { 0 };
        self.wire.boxes().outbox.extend_from_slice(&go_away(last_stream, reason, debug));
        self.link.forget();
        let why = match debug {
            "" => "closed here".to_owned(),
            debug => self.foreign(now).unwrap_or_else(|| format!("closed here: {debug}")),
        };
        State::Over(self.ended(reason, why))
    }

    fn how_ended(&self, now: Instant, how: Result<(), h2::Error>) -> Ended {
        match how {
            Ok(()) => self.ended(Reason::NO_ERROR, "closed".into()),
            Err(error) => {
                let reason = error.reason().map_or(Reason::INTERNAL_ERROR, |reason| Reason(reason.into()));
                let foreign = if error.is_io() { None } else { self.foreign(now) };
                self.ended(reason, foreign.unwrap_or_else(|| error.to_string()))
            }
        }
    }

    /// What a server that does not speak HTTP/2 does instead.
    fn foreign(&self, now: Instant) -> Option<String> {
        if self.link.is_server() { None } else { self.opening.why(now) }
    }

    fn ended(&self, reason: Reason, why: String) -> Ended {
        Ended { why, reason, too_many_pings: self.too_many_pings }
    }
}

/// What the headers of an event take.
fn header_bytes(event: &Event) -> usize {
    match event {
        Event::Request { head, .. } => list_bytes(&head.headers),
        Event::Response { head, .. } => list_bytes(&head.headers),
        Event::Trailers { trailers, .. } => list_bytes(trailers),
        _ => 0,
    }
}

/// Frames of the peer that became these events.
fn frames_taken(events: &[Event]) -> u32 {
    let is_frame = |event: &&Event| {
        matches!(
            event,
            Event::Request { .. } | Event::Response { .. } | Event::Data { .. } | Event::Trailers { .. }
        )
    };
    events.iter().filter(is_frame).count() as u32
}

/// Tells trailers as what is wrong with them. Whether the stream's end was among the events.
fn refuse_trailers(events: &mut [Event], of: Suspicion) -> bool {
    let (reason, by) = match of {
        Suspicion::Malformed => (Reason::PROTOCOL_ERROR, ResetBy::Us),
        Suspicion::Large => (Reason::ENHANCE_YOUR_CALM, ResetBy::Limit(LIST_MAX_KEY)),
    };
    for event in events {
        match event {
            Event::Trailers { stream, .. } => {
                *event = Event::Reset { stream: *stream, reason, by };
                return true;
            }
            Event::Reset { by: made_by, .. } => {
                if matches!(by, ResetBy::Limit(_)) {
                    *made_by = by;
                }
                return true;
            }
            Event::Response { end: true, .. } | Event::Data { end: true, .. } => return true,
            _ => {}
        }
    }
    false
}
