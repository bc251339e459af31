//! An HTTP/2 connection over a stream, turned by hand.

use super::keepalive::{Keepalive, Lifetime, PingStrikes};
use super::link::Link;
use super::marks::Marks;
use super::meter::{Bucket, Meter};
use super::opening::FirstHeard;
use super::portions::Portions;
use super::settings::{Http2Settings, Rate, SECOND_NS};
use super::stream::{Leaving, OpenStream, Rest};
use super::suspects::Suspects;
use super::table::Streams;
use super::unix_authority::UnixAuthority;
use super::unwritten::Unwritten;
use super::wire::{Buffers, Wire};
use crate::{Interest, LingeringClose, Stream};
use bytes::Bytes;
use http::{HeaderMap, Request, request};
use std::io::ErrorKind;
use std::sync::Arc;
use std::task::Waker;
use trunkline_call::Instant;
use trunkline_grpc::{Command, Event, Reason, ResetBy, StreamTag};

/// Time for the peer to acknowledge GOAWAY once no stream is open: all that was said on them is at the socket.
const LEAVING_NS_MAX: u64 = 20 * SECOND_NS;

/// Ids are not used again (RFC 9113, section 5.1.1): a connection with no more than these left is to get no new
/// streams. There are 32,768 for requests that are on their way to it until that is heard.
const STREAM_IDS_SPARE: u32 = 64 << 10;

/// An HTTP/2 connection: [`Event`]s up, [`Command`]s down.
pub struct Http2 {
    pub(super) stream: Stream,
    pub(super) settings: Arc<Http2Settings>,
    pub(super) link: Link,
    pub(super) wire: Wire,
    pub(super) marks: Arc<Marks>,
    pub(super) waker: Waker,
    pub(super) streams: Streams,
    /// Bytes given to h2 since it last had nothing more to write, and whether it has more than the outbox takes.
    pub(super) given_bytes: usize,
    pub(super) is_full: bool,
    pub(super) unwritten: Unwritten,
    /// Slots that are being looked at; kept for its memory.
    pub(super) marked: Vec<u32>,
    /// What commands led to, for the next turn to tell.
    pub(super) untold: Vec<Event>,
    pub(super) meter: Meter,
    /// At a Unix socket that clients come to.
    pub(super) unix_authority: Option<Box<UnixAuthority>>,
    /// What the server began with (client role).
    pub(super) opening: FirstHeard,
    pub(super) portions: Portions,
    pub(super) keepalive: Keepalive,
    pub(super) ping_strikes: PingStrikes,
    pub(super) life: Lifetime,
    /// GOAWAY is said, and since when no stream is open then.
    pub(super) is_leaving: bool,
    pub(super) left_alone: Option<Instant>,
    /// That time was given once more.
    pub(super) is_left_longer: bool,
    pub(super) had_calls: bool,
    /// What the peer's GOAWAY said.
    pub(super) leaving: Leaving,
    pub(super) too_many_pings: bool,
    /// Streams reset here and not counted yet, and how many more may be (client role).
    pub(super) resets_sent: u32,
    pub(super) own_resets: Bucket,
    /// It is to open no more (client role): so many were reset, or ids run out.
    pub(super) is_retired: bool,
    /// Highest id of a stream opened here (client role).
    own_stream: u32,
    /// Streams whose rules the peer broke, not counted yet.
    pub(super) mistakes: u32,
    /// Frames of the peer that were told with others, not counted yet.
    pub(super) joined_frames: u32,
    pub(super) suspects: Suspects,
    /// Streams the peer takes, as last told; `None` until its settings have come.
    pub(super) streams_max: Option<u32>,
    pub(super) is_readable: bool,
    /// The socket takes nothing any more. What the peer said before is still read: answers, and which requests it has
    /// not seen.
    pub(super) broken: Option<ErrorKind>,
    pub(super) fault: Option<Fault>,
}

/// How a connection stands after a turn.
#[derive(Debug, PartialEq, Eq)]
pub enum State {
    /// It waits for the poller, a command or a timer.
    Open,
    /// It has more to do, after the others had their turn.
    More,
    /// It is over. [`Http2::into_lingering_close`] is what is still to be said.
    Over(Ended),
}

/// Why a connection is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// For people.
    pub why: String,
    /// NO_ERROR when both sides had said all.
    pub reason: Reason,
    /// The peer minds our pings: ask half as often next time (gRFC A8).
    pub too_many_pings: bool,
}

/// What ends the connection from our side.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    pub reason: Reason,
    /// The GOAWAY's debug data.
    pub debug: &'static str,
}

impl Http2 {
    /// A server's end. `first` is what was read to find out that it is HTTP/2; `random` spreads its age.
    pub fn server(
        stream: Stream,
        settings: Arc<Http2Settings>,
        now: Instant,
        first: &[u8],
        random: u64,
    ) -> Self {
        let wire = Wire::new();
        let link = Link::server(wire.clone(), &settings);
        let mut this = Self::new(stream, settings, link, wire, now, random);
        this.unix_authority = (!this.stream.is_tcp()).then(Box::default);
        let mut first = first.to_vec();
        this.take_input(now, &mut first);
        this.wire.boxes().begin_with(first);
        this
    }

    /// A client's end over a connected stream.
    pub fn client(stream: Stream, settings: Arc<Http2Settings>, now: Instant) -> Self {
        let wire = Wire::new();
        let link = Link::client(wire.clone(), &settings);
        Self::new(stream, settings, link, wire, now, 0)
    }

    /// The poller says that the stream can be read; the next turn does.
    pub fn handle_readable(&mut self) {
        self.is_readable = true;
    }

    /// Reads, thinks and writes. Events are appended in the order they came.
    pub fn turn(&mut self, now: Instant, buffers: &mut Buffers, events: &mut Vec<Event>) -> State {
        events.append(&mut self.untold);
        self.wire.boxes().borrow(buffers);
        self.portions.begin_turn();
        // Time that is up says nothing about what lies in the socket: this thread may have been away for longer.
        self.is_readable |= self.meter.handle_timeout(now).is_err() || self.is_left_alone_by(now);
        let is_silent = self.read(now, buffers);
        self.fire_timers(now, is_silent);
        let state = self.drive(now, events);
        let mut boxes = self.wire.boxes();
        boxes.give_back(buffers);
        // What TLS holds, the poller does not tell. What was read and waits for room in the outbox comes first: the
        // socket's being writable brings the turn that goes on.
        let can_read_on = self.is_readable && boxes.is_read() && self.meter.may_read();
        if can_read_on && state == State::Open { State::More } else { state }
    }

    /// Does as told. What follows from it, events and bytes, comes with the next turn.
    pub fn command(&mut self, command: Command) {
        match command {
            Command::Request { stream, head, end } => self.request(stream, *head, end),
            Command::Response { stream, head, end } => {
                self.ping_strikes.handle_sent();
                self.with(stream, |open| open.respond(*head, end));
            }
            Command::Data { stream, bytes, end } => {
                self.ping_strikes.handle_sent();
                self.queue(stream, bytes, end);
            }
            Command::Trailers { stream, trailers } => self.with(stream, |open| open.queue_trailers(trailers)),
            Command::CutOff { stream, trailers } => self.cut_off(stream, trailers),
            Command::Reset { stream, reason } => self.reset(stream, reason),
            Command::Release { stream, bytes } => self.release(stream, bytes),
            Command::GoAway => self.leave(),
            Command::Close { reason } => self.fault = Some(Fault { reason, debug: "" }),
        }
        self.marks.mark();
    }

    /// What to wait for at the poller.
    pub fn interest(&self) -> Interest {
        let boxes = self.wire.boxes();
        match (
            boxes.is_read() && self.meter.may_read(),
            boxes.outbox.is_empty() && !self.stream.wants_write(),
        ) {
            (true, true) => Interest::Read,
            (true, false) => Interest::ReadWrite,
            // What was read waits for room in the outbox: to read more would only pile it up.
            (false, _) => Interest::Write,
        }
    }

    /// Whether no stream has been open for so long after GOAWAY that the other end waits for nothing any more.
    pub(super) fn is_left_alone_by(&self, now: Instant) -> bool {
        self.left_alone.is_some_and(|since| since.plus_ns(LEAVING_NS_MAX) <= now)
    }

    /// When the next turn is due, whatever the poller says.
    pub fn next_timeout(&self) -> Option<Instant> {
        let has_calls = self.streams.len() > 0;
        let left_alone = self.left_alone.map(|since| since.plus_ns(LEAVING_NS_MAX));
        let times =
            [self.meter.next_timeout(), self.keepalive.next_timeout(has_calls), self.life.next_timeout()];
        times.into_iter().chain([left_alone]).flatten().min()
    }

    /// The stream it runs over.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Streams open at the moment.
    pub fn streams_open(&self) -> usize {
        self.streams.len()
    }

    /// What is still to be said after [`State::Over`].
    pub fn into_lingering_close(self, now: Instant) -> LingeringClose {
        let unsent = std::mem::take(&mut self.wire.boxes().outbox);
        LingeringClose::new(self.stream, unsent, now)
    }

    fn new(
        stream: Stream,
        settings: Arc<Http2Settings>,
        link: Link,
        wire: Wire,
        now: Instant,
        random: u64,
    ) -> Self {
        let marks = Arc::new(Marks::default());
        marks.mark();
        Self {
            stream,
            waker: marks.connection_waker(),
            marks,
            streams: Streams::default(),
            given_bytes: 0,
            is_full: false,
            unwritten: Unwritten::default(),
            marked: Vec::new(),
            untold: Vec::new(),
            meter: Meter::new(&settings, link.is_server(), now),
            unix_authority: None,
            opening: FirstHeard::new(now),
            portions: Portions::new(),
            keepalive: Keepalive::new(settings.keepalive, now),
            ping_strikes: PingStrikes::new(settings.pings),
            life: Lifetime::new(settings.age, now, random),
            is_leaving: false,
            left_alone: None,
            is_left_longer: false,
            had_calls: false,
            leaving: Leaving::default(),
            too_many_pings: false,
            resets_sent: 0,
            own_resets: Bucket::new(own_resets(settings.resets), now),
            is_retired: false,
            own_stream: 0,
            mistakes: 0,
            joined_frames: 0,
            suspects: Suspects::default(),
            streams_max: None,
            is_readable: false,
            broken: None,
            fault: None,
            settings,
            link,
            wire,
        }
    }

    fn request(&mut self, tag: StreamTag, head: request::Parts, end: bool) {
        let own_stream_max = self.settings.own_stream_max;
        let has_ids = self.own_stream < own_stream_max;
        let opened = has_ids.then(|| self.link.request(Request::from_parts(head, ()), end)).flatten();
        let reason = match opened {
            Some(Ok((answer, send))) => {
                self.meter.handle_useful_stream();
                let list_bytes_max = self.settings.header_list_bytes_max;
                let stream = OpenStream::requested(tag, answer, send, end, list_bytes_max);
                self.unwritten.open(stream.id, tag);
                self.own_stream = stream.id;
                let slot = self.streams.insert_own(&self.marks, stream);
                // The first look asks for the answer.
                self.marks.mark_stream(slot);
                if self.own_stream > own_stream_max.saturating_sub(STREAM_IDS_SPARE) {
                    let told = self.retire();
                    self.untold.extend(told);
                }
                return;
            }
            // The connection is leaving or over, or has no ids left: nothing was sent.
            None => Reason::REFUSED_STREAM,
            Some(Err(error)) if error.is_go_away() || error.is_io() => Reason::REFUSED_STREAM,
            Some(Err(error)) => {
                tracing::warn!(%error, "request not sent");
                Reason::INTERNAL_ERROR
            }
        };
        let by = if reason == Reason::REFUSED_STREAM { ResetBy::Peer } else { ResetBy::Us };
        self.untold.push(Event::Reset { stream: tag, reason, by });
    }

    fn reset(&mut self, tag: StreamTag, reason: Reason) {
        let Some(slot) = self.streams.slot_of(tag) else { return };
        if let Some((open, _)) = self.streams.at(slot) {
            open.reset(reason);
            self.resets_sent += u32::from(open.take_reset());
        }
        self.remove(slot);
    }

    /// What h2 has of a body it drops with the stream only, so that one of which something has not left is reset.
    fn cut_off(&mut self, tag: StreamTag, trailers: HeaderMap) {
        let Some(slot) = self.streams.slot_of(tag) else { return };
        match self.streams.at(slot) {
            Some((open, _)) if open.ahead_bytes > 0 => self.reset(tag, Reason::CANCEL),
            _ => self.with(tag, |open| open.cut_off(trailers)),
        }
    }

    fn release(&mut self, tag: StreamTag, bytes: usize) {
        let Some(slot) = self.streams.slot_of(tag) else { return };
        if self.streams.at(slot).is_some_and(|(open, _)| open.release(bytes) == Rest::Over) {
            self.remove(slot);
        }
    }

    /// Takes a stream out of all books.
    pub(super) fn remove(&mut self, slot: u32) {
        if let Some(id) = self.streams.remove(slot) {
            self.unwritten.close(id);
        }
    }

    fn queue(&mut self, tag: StreamTag, bytes: Bytes, end: bool) {
        let Some(slot) = self.streams.slot_of(tag) else { return };
        let Some((open, _)) = self.streams.at(slot) else { return };
        if !bytes.is_empty() {
            self.unwritten.queue(open.id, bytes.len());
        }
        open.queue(bytes, end);
        self.marks.mark_stream(slot);
    }

    /// Gives a stream something to do; it is looked at in the next turn.
    fn with(&mut self, tag: StreamTag, act: impl FnOnce(&mut OpenStream)) {
        let Some(slot) = self.streams.slot_of(tag) else { return };
        if let Some((open, _)) = self.streams.at(slot) {
            act(open);
            self.marks.mark_stream(slot);
        }
    }
}

/// What of the resets a server bears by these figures, which are those of most, a client uses: half, so that the calls
/// that are left on a connection can be cancelled, too.
fn own_resets(rate: Rate) -> Rate {
    Rate { burst: rate.burst / 2, per_second: rate.per_second / 2 }
}
