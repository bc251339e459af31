//! Reads along with the bytes a peer sends and counts its frames.
//!
//! h2 answers many things by itself and tells nobody: pings, settings, resets of streams that were over. Whoever pays
//! for their handling must be able to say stop, so the frame heads are read here, too, nine bytes each, before h2 gets
//! them. What brings nothing forward draws on a bucket; what does fills it again.

use super::settings::{Http2Settings, Rate};
use super::suspects::Suspicion;
use super::trailers::{BEGINNING_BYTES, begins_with_pseudo_header};
use super::unwritten::Unwritten;
use bytes::Bytes;
use trunkline_call::Instant;
use trunkline_grpc::Reason;

/// Length of a frame's head (RFC 9113, section 4.1).
pub(super) const HEAD_BYTES: usize = 9;
/// The client's connection preface.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// What is kept of a GOAWAY: last stream, code, and debug data for a person.
const GOAWAY_BYTES_MAX: usize = 8 + 512;
/// What a useful frame earns: C core sends a WINDOW_UPDATE for stream and connection and a bandwidth ping for it.
const EARNED_BY_FRAME: u32 = 4;
/// Bytes we send that earn one: a receiver may give credit for every quarter of a smallest frame.
const BYTES_FOR_ONE: usize = 4096;

/// Where in a head the frame's kind is.
const KIND_AT: usize = 3;
/// A kind nobody knows, which h2 passes over (RFC 9113, section 5.5).
pub(super) const UNKNOWN_KIND: u8 = 0xff;

const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
pub(super) const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 0x1;
const ACK: u8 = 0x1;
const END_HEADERS: u8 = 0x4;

/// Frames read beyond those the peer has taken of ours. h2 may have an answer to each of them; a peer that does not
/// read is not read either beyond this. Two for every stream of a connection, sixteen times over.
///
/// Frames are held against frames because two peers that both do this must never both wait for the other. What one has
/// read the other has sent: while both have an excess, their sum grows only by frames that leave the sockets between
/// them. So with those full, not both are at the limit. (What one read brings beyond the limit, 256 KiB, is fewer.)
const UNANSWERED_FRAMES_MAX: u32 = 32 << 10;
/// Frames read that h2 may have an answer to, however many frames of data went out meanwhile: answers leave in turn
/// with the data of the streams, so frames of data sent say little about them. A record of some hundred bytes each.
const OWED_FRAMES_MAX: u32 = 8 * UNANSWERED_FRAMES_MAX;

/// A limit the peer ran into, or a rule it broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flood {
    Resets,
    IdleFrames,
    Unfinished,
    /// Trailers with pseudo-headers.
    PseudoTrailers,
}

/// What a peer's last GOAWAY said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SeenGoAway {
    pub last_stream: u32,
    pub reason: Reason,
    pub debug: Bytes,
}

/// What came since it was last asked.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// Pings that want an answer.
    pub pings: u32,
    /// Settings that are no acknowledgement.
    pub settings: bool,
    pub go_away: Option<SeenGoAway>,
    /// It has reset so many streams that it gets no new ones.
    pub resets: bool,
    /// Streams whose last header block is no good as trailers (client role).
    pub suspects: Vec<(u32, Suspicion)>,
}

/// Counts one connection's frames.
#[derive(Debug)]
pub(super) struct Meter {
    /// Bytes of the client's preface still to come.
    preface_left: usize,
    head: [u8; HEAD_BYTES],
    head_filled: usize,
    /// Payload still to come of the frame whose head is known.
    payload_left: usize,
    go_away: Vec<u8>,
    /// The peer opens the streams, so that HEADERS on one it has opened are trailers.
    is_server: bool,
    /// The beginning of trailers, while they arrive.
    trailers: Option<([u8; BEGINNING_BYTES], usize)>,
    /// HEADERS have begun and END_HEADERS has not come.
    in_block: bool,
    /// When the frame or block under way began; `None` between them.
    begun: Option<Instant>,
    /// It has got more time, once (`put_off`).
    is_put_off: bool,
    /// Highest stream the peer opened.
    pub last_stream: u32,
    resets: Bucket,
    /// It was told to go once the bucket was empty; the second time is the last.
    warned: bool,
    idle_frames: Bucket,
    /// Where in a frame of ours the socket stands.
    sending: Sending,
    /// Frames read beyond those sent, since the peer last took all that was written.
    unanswered: u32,
    /// Frames read that h2 may answer by a reset, less those it has taken for a stream and the resets that were sent.
    owed: u32,
    unfinished_ns_max: u64,
    bytes_sent: usize,
    /// Empty DATA frames in what was read last: where the frame's kind is, from the end.
    pub blanks: Vec<usize>,
    /// Bytes of header blocks in what was read last.
    pub block_bytes: usize,
    /// Bytes of the block under way, and of how many on h2 may have left a field of one out (client role).
    one_block_bytes: usize,
    left_out_bytes_min: usize,
    seen: Seen,
}

/// Follows the frames that leave.
#[derive(Debug)]
struct Sending {
    head: [u8; HEAD_BYTES],
    head_filled: usize,
    /// Bytes that are no head and come next: the preface, or the payload of the frame whose head was last.
    skip: usize,
}

/// So many, and so many more per second.
#[derive(Debug)]
pub(super) struct Bucket {
    rate: Rate,
    level: u32,
    filled: Instant,
}

impl Meter {
    /// A meter for what a server, or a client, hears.
    pub fn new(settings: &Http2Settings, is_server: bool, now: Instant) -> Self {
        Self {
            preface_left: if is_server { PREFACE.len() } else { 0 },
            head: [0; HEAD_BYTES],
            head_filled: 0,
            payload_left: 0,
            go_away: Vec::new(),
            is_server,
            trailers: None,
            in_block: false,
            // The first frame is awaited from the beginning.
            begun: Some(now),
            is_put_off: false,
            last_stream: 0,
            resets: Bucket::new(settings.resets, now),
            warned: false,
            idle_frames: Bucket::new(settings.idle_frames, now),
            sending: Sending {
                head: [0; HEAD_BYTES],
                head_filled: 0,
                skip: if is_server { 0 } else { PREFACE.len() },
            },
            unanswered: 0,
            owed: 0,
            unfinished_ns_max: settings.unfinished_ns_max,
            bytes_sent: 0,
            blanks: Vec::new(),
            block_bytes: 0,
            one_block_bytes: 0,
            left_out_bytes_min: settings.left_out_bytes_min(),
            seen: Seen::default(),
        }
    }

    /// Reads along.
    pub fn handle_input(&mut self, now: Instant, mut bytes: &[u8]) -> Result<(), Flood> {
        self.block_bytes = 0;
        self.blanks.clear();
        skip(&mut bytes, &mut self.preface_left);
        while !bytes.is_empty() {
            if self.head_filled < HEAD_BYTES {
                self.take_head(now, &mut bytes)?;
            } else {
                self.take_payload(&mut bytes);
            }
            if self.head_filled == HEAD_BYTES && self.payload_left == 0 {
                self.end_frame()?;
            }
        }
        Ok(())
    }

    /// Bytes of ours left: the peer will have to give credit for them. Some may be the last of a request.
    /// `left`: whose body bytes they are.
    pub fn handle_sent(
        &mut self,
        bytes: &[u8],
        unwritten: &mut Unwritten,
        left: &mut impl FnMut(u32, usize),
    ) {
        self.bytes_sent += bytes.len();
        self.idle_frames.earn((self.bytes_sent / BYTES_FOR_ONE) as u32);
        self.bytes_sent %= BYTES_FOR_ONE;
        let (frames, resets) = self.sending.follow(bytes, unwritten, left);
        self.unanswered = self.unanswered.saturating_sub(frames);
        self.owed = self.owed.saturating_sub(resets);
    }

    /// Streams took so many frames: nothing is owed for those.
    pub fn handle_taken(&mut self, frames: u32) {
        self.owed = self.owed.saturating_sub(frames);
    }

    /// The peer has taken all that was written.
    pub fn handle_all_sent(&mut self) {
        self.unanswered = 0;
        self.owed = 0;
    }

    /// Whether more is to be read of it.
    pub fn may_read(&self) -> bool {
        self.unanswered < UNANSWERED_FRAMES_MAX && self.owed < OWED_FRAMES_MAX
    }

    /// A stream of the peer was answered, or one of ours begun: a reset of it is no waste.
    pub fn handle_useful_stream(&mut self) {
        self.resets.earn(1);
    }

    /// The peer broke the rules of one stream, which makes us reset it: the same waste as if it had done so itself
    /// (CVE-2025-8671).
    pub fn handle_mistake(&mut self, now: Instant) -> Result<(), Flood> {
        self.count_reset(now)
    }

    /// Whether the frame under way has taken too long.
    pub fn handle_timeout(&self, now: Instant) -> Result<(), Flood> {
        if self.next_timeout().is_some_and(|at| at <= now) { Err(Flood::Unfinished) } else { Ok(()) }
    }

    /// It gets as much time again: its time was up, but the peer is not known to be silent.
    ///
    /// # Errors
    /// It has got it before: whoever says a byte now and then is not to have a frame for ever.
    pub fn put_off(&mut self, now: Instant) -> Result<(), Flood> {
        if std::mem::replace(&mut self.is_put_off, true) {
            return Err(Flood::Unfinished);
        }
        self.begun = self.begun.map(|_| now);
        Ok(())
    }

    /// What came since this was last asked.
    pub fn take_seen(&mut self) -> Seen {
        std::mem::take(&mut self.seen)
    }

    /// When the frame under way must be complete.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.begun.map(|begun| begun.plus_ns(self.unfinished_ns_max))
    }

    fn take_head(&mut self, now: Instant, bytes: &mut &[u8]) -> Result<(), Flood> {
        self.begun.get_or_insert(now);
        let count = bytes.len().min(HEAD_BYTES - self.head_filled);
        self.head[self.head_filled..][..count].copy_from_slice(&bytes[..count]);
        self.head_filled += count;
        *bytes = &bytes[count..];
        if self.head_filled < HEAD_BYTES {
            return Ok(());
        }
        self.payload_left = u32::from_be_bytes([0, self.head[0], self.head[1], self.head[2]]) as usize;
        if self.is_blank() {
            self.blanks.push(bytes.len() + HEAD_BYTES - KIND_AT);
        }
        self.count(now)
    }

    /// Whether the frame whose head is known is DATA that brings nothing, on a stream there is or was.
    fn is_blank(&self) -> bool {
        let is_empty = self.payload_left == 0 && self.head[4] & END_STREAM == 0;
        is_empty && self.kind() == DATA && (1..=self.last_stream).contains(&self.stream())
    }

    fn take_payload(&mut self, bytes: &mut &[u8]) {
        if self.kind() == GOAWAY {
            let room = GOAWAY_BYTES_MAX - self.go_away.len();
            let count = room.min(self.payload_left).min(bytes.len());
            self.go_away.extend_from_slice(&bytes[..count]);
        }
        if let Some((beginning, filled)) = &mut self.trailers {
            let count = (BEGINNING_BYTES - *filled).min(self.payload_left).min(bytes.len());
            beginning[*filled..][..count].copy_from_slice(&bytes[..count]);
            *filled += count;
        }
        if matches!(self.kind(), HEADERS | CONTINUATION | PUSH_PROMISE) {
            let count = self.payload_left.min(bytes.len());
            self.block_bytes += count;
            self.one_block_bytes += count;
        }
        skip(bytes, &mut self.payload_left);
    }

    fn end_frame(&mut self) -> Result<(), Flood> {
        self.head_filled = 0;
        if let Some((beginning, filled)) = self.trailers.take()
            && begins_with_pseudo_header(self.head[4], &beginning[..filled])
        {
            if self.is_server {
                return Err(Flood::PseudoTrailers);
            }
            self.seen.suspects.push((self.stream(), Suspicion::Malformed));
        }
        if !self.in_block {
            (self.begun, self.is_put_off) = (None, false);
            if std::mem::take(&mut self.one_block_bytes) >= self.left_out_bytes_min && !self.is_server {
                self.seen.suspects.push((self.stream(), Suspicion::Large));
            }
        }
        if let Some((&head, debug)) = std::mem::take(&mut self.go_away).split_first_chunk::<8>() {
            let [a, b, c, d, code @ ..] = head;
            self.seen.go_away = Some(SeenGoAway {
                last_stream: u32::from_be_bytes([a, b, c, d]) & !(1 << 31),
                reason: Reason(u32::from_be_bytes(code)),
                debug: Bytes::copy_from_slice(debug),
            });
        }
        Ok(())
    }

    /// Charges a frame by its head.
    fn count(&mut self, now: Instant) -> Result<(), Flood> {
        let flags = self.head[4];
        let is_empty = self.payload_left == 0;
        self.unanswered = self.unanswered.saturating_add(1);
        // Pings and settings are answered before the next frame is read, and nothing is said to what else there is.
        self.owed += u32::from(matches!(self.kind(), DATA | HEADERS | PRIORITY) && !self.is_blank());
        match self.kind() {
            HEADERS | PUSH_PROMISE => {
                self.in_block = flags & END_HEADERS == 0;
                let may_be_trailers = match self.is_server {
                    true => self.stream() <= self.last_stream,
                    false => flags & END_STREAM != 0,
                };
                if may_be_trailers {
                    self.trailers = Some(([0; BEGINNING_BYTES], 0));
                }
                self.last_stream = self.last_stream.max(self.stream());
                self.idle_frames.earn(EARNED_BY_FRAME);
                return Ok(());
            }
            CONTINUATION => {
                self.in_block &= flags & END_HEADERS == 0;
                if !is_empty {
                    return Ok(());
                }
            }
            DATA if !is_empty || flags & END_STREAM != 0 => {
                self.idle_frames.earn(EARNED_BY_FRAME);
                return Ok(());
            }
            RST_STREAM => return self.count_reset(now),
            SETTINGS => self.seen.settings |= flags & ACK == 0,
            PING => self.seen.pings += u32::from(flags & ACK == 0),
            _ => {}
        }
        self.idle_frames.draw(now).then_some(()).ok_or(Flood::IdleFrames)
    }

    /// A connection whose peer resets too many streams is left: its other calls go on, and as many resets again are
    /// borne meanwhile.
    fn count_reset(&mut self, now: Instant) -> Result<(), Flood> {
        if self.resets.draw(now) {
            return Ok(());
        }
        if std::mem::replace(&mut self.warned, true) {
            return Err(Flood::Resets);
        }
        self.seen.resets = true;
        self.resets.fill();
        Ok(())
    }

    fn kind(&self) -> u8 {
        self.head[KIND_AT]
    }

    fn stream(&self) -> u32 {
        u32::from_be_bytes([self.head[5] & 0x7f, self.head[6], self.head[7], self.head[8]])
    }
}

impl Sending {
    /// Frames whose heads end in these bytes, and how many of them are resets.
    fn follow(
        &mut self,
        mut bytes: &[u8],
        unwritten: &mut Unwritten,
        left: &mut impl FnMut(u32, usize),
    ) -> (u32, u32) {
        let (mut frames, mut resets) = (0, 0);
        loop {
            let before = self.skip;
            skip(&mut bytes, &mut self.skip);
            if before > self.skip {
                self.tell_left(before - self.skip, unwritten, left);
            }
            let count = bytes.len().min(HEAD_BYTES - self.head_filled);
            self.head[self.head_filled..][..count].copy_from_slice(&bytes[..count]);
            self.head_filled += count;
            if self.head_filled < HEAD_BYTES {
                return (frames, resets);
            }
            bytes = &bytes[count..];
            self.head_filled = 0;
            self.skip = u32::from_be_bytes([0, self.head[0], self.head[1], self.head[2]]) as usize;
            frames += 1;
            resets += u32::from(self.head[3] == RST_STREAM);
        }
    }

    /// So many bytes of the payload left of the frame whose head was last.
    fn tell_left(&self, bytes: usize, unwritten: &mut Unwritten, left: &mut impl FnMut(u32, usize)) {
        let [_, _, _, kind, flags, stream @ ..] = self.head;
        let stream = u32::from_be_bytes(stream) & !(1 << 31);
        match kind {
            DATA => {
                left(stream, bytes);
                unwritten.handle_body(stream, bytes);
            }
            HEADERS | CONTINUATION if flags & END_HEADERS != 0 && self.skip == 0 => {
                unwritten.handle_head(stream);
            }
            _ => {}
        }
    }
}

impl Bucket {
    pub fn new(rate: Rate, now: Instant) -> Self {
        Self { rate, level: rate.burst, filled: now }
    }

    /// Takes one. `false` if there is none.
    pub fn draw(&mut self, now: Instant) -> bool {
        if self.level == 0 {
            self.refill(now);
        }
        self.level.checked_sub(1).map(|level| self.level = level).is_some()
    }

    fn fill(&mut self) {
        self.level = self.rate.burst;
    }

    fn earn(&mut self, count: u32) {
        self.level = self.level.saturating_add(count).min(self.rate.burst);
    }

    /// The clock is looked at only when the bucket is empty: then all the time since it was last filled counts.
    fn refill(&mut self, now: Instant) {
        let ns_per_one = super::settings::SECOND_NS / u64::from(self.rate.per_second.max(1));
        let regained = now.since_ns(self.filled) / ns_per_one;
        if regained > 0 && self.rate.per_second > 0 {
            self.filled = now;
            self.earn(u32::try_from(regained).unwrap_or(u32::MAX));
        }
    }
}

impl Flood {
    /// The GOAWAY's code.
    pub fn reason(self) -> Reason {
        match self {
            Self::Resets | Self::IdleFrames => Reason::ENHANCE_YOUR_CALM,
            Self::Unfinished | Self::PseudoTrailers => Reason::PROTOCOL_ERROR,
        }
    }

    /// What the peer, and the log, are told.
    pub fn name(self) -> &'static str {
        match self {
            Self::Resets => "too_many_resets",
            Self::IdleFrames => "too_many_idle_frames",
            Self::Unfinished => "frame_not_finished_in_time",
            Self::PseudoTrailers => "pseudo_header_in_trailers",
        }
    }
}

/// A GOAWAY frame.
pub(super) fn go_away(last_stream: u32, reason: Reason, debug: &str) -> Vec<u8> {
    let length = 8 + debug.len() as u32;
    let mut frame = Vec::with_capacity(HEAD_BYTES + 8 + debug.len());
    frame.extend_from_slice(&length.to_be_bytes()[1..]);
    frame.extend_from_slice(&[GOAWAY, 0, 0, 0, 0, 0]);
    frame.extend_from_slice(&last_stream.to_be_bytes());
    frame.extend_from_slice(&reason.0.to_be_bytes());
    frame.extend_from_slice(debug.as_bytes());
    frame
}

/// Skips as much of `left` as there is.
fn skip(bytes: &mut &[u8], left: &mut usize) {
    let count = bytes.len().min(*left);
    *bytes = &bytes[count..];
    *left -= count;
}

#[cfg(test)]
mod tests {
    //! Shows what is counted, whatever way the bytes are cut, and that each flood ends at its limit and not before.
    use super::*;
    use proptest::prelude::*;

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let mut out = (payload.len() as u32).to_be_bytes()[1..].to_vec();
        out.extend([kind, flags]);
        out.extend(stream.to_be_bytes());
        out.extend(payload);
        out
    }

    fn meter(burst: u32) -> Meter {
        let rate = Rate { burst, per_second: 10 };
        let settings = Http2Settings { resets: rate, idle_frames: rate, ..Http2Settings::server() };
        Meter::new(&settings, true, Instant(0))
    }

    fn flood(of: &[u8], burst: u32) -> (usize, Flood) {
        let mut meter = meter(burst);
        meter.handle_input(Instant(0), PREFACE).unwrap();
        for count in 0.. {
            if let Err(flood) = meter.handle_input(Instant(1), of) {
                return (count, flood);
            }
            assert!(count < 100_000, "no limit");
        }
        unreachable!()
    }

    #[test]
    fn each_flood_ends_at_its_limit() {
        for (bytes, flood_found) in [
            (frame(PING, 0, 0, &[0; 8]), Flood::IdleFrames),
            (frame(SETTINGS, 0, 0, &[]), Flood::IdleFrames),
            (frame(2, 0, 1, &[0; 5]), Flood::IdleFrames),
            (frame(8, 0, 0, &[0, 0, 0, 1]), Flood::IdleFrames),
            (frame(DATA, 0, 1, &[]), Flood::IdleFrames),
            (frame(CONTINUATION, 0, 1, &[]), Flood::IdleFrames),
            (frame(0xbe, 0, 1, b"unknown"), Flood::IdleFrames),
        ] {
            assert_eq!(flood(&bytes, 50), (50, flood_found));
        }
        assert_eq!(flood(&frame(RST_STREAM, 0, 1, &[0; 4]), 50), (101, Flood::Resets));
    }

    #[test]
    fn who_resets_too_much_is_asked_to_leave_first() {
        let mut meter = meter(50);
        meter.handle_input(Instant(0), PREFACE).unwrap();
        let reset = frame(RST_STREAM, 0, 1, &[0; 4]);
        for count in 1..=51 {
            assert!(!meter.take_seen().resets, "before reset {count}");
            meter.handle_input(Instant(1), &reset).unwrap();
        }
        assert!(meter.take_seen().resets);
        for _ in 0..1000 {
            meter.handle_useful_stream();
            meter.handle_input(Instant(1), &reset).unwrap();
        }
        assert!(!meter.take_seen().resets, "streams that were answered cost nothing");
        assert!((0..50).any(|_| meter.handle_mistake(Instant(1)).is_err()));
    }

    #[test]
    fn who_does_not_read_is_not_read() {
        let mut meter = meter(100);
        meter.handle_input(Instant(0), PREFACE).unwrap();
        let data = frame(DATA, 0, 1, b"late");
        (0..UNANSWERED_FRAMES_MAX).for_each(|_| {
            assert!(meter.may_read());
            meter.handle_input(Instant(1), &data).unwrap();
        });
        assert!(!meter.may_read());
        meter.handle_all_sent();
        assert!(meter.may_read());
    }

    /// Two peers that stream small messages to each other, always more than the sockets take.
    #[test]
    fn two_that_do_this_never_both_stop() {
        const ROOM_FRAMES: u64 = 40_000;
        const READ_FRAMES: u64 = 20_000;
        let message = frame(DATA, 0, 1, b"m");
        let mut ends = [meter(100), meter(100)];
        ends.iter_mut().for_each(|end| end.handle_input(Instant(0), PREFACE).unwrap());
        let (mut under_way, mut heard) = ([0u64; 2], [0u64; 2]);
        let mut random = 0x9e37_79b9_7f4a_7c15u64;
        for step in 0..400 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let (me, other) = if random & 1 == 0 { (0, 1) } else { (1, 0) };
            let sent = (ROOM_FRAMES - under_way[other]).min((random >> 8) % ROOM_FRAMES);
            (0..sent).for_each(|_| ends[me].handle_sent(&message, &mut Unwritten::default(), &mut |_, _| ()));
            under_way[other] += sent;
            if ends[me].may_read() {
                let count = under_way[me].min((random >> 32) % READ_FRAMES);
                (0..count).for_each(|_| ends[me].handle_input(Instant(1), &message).unwrap());
                ends[me].handle_taken(count as u32);
                under_way[me] -= count;
                heard[me] += count;
            }
            let goes_on =
                ends.iter().any(Meter::may_read) || under_way.iter().any(|count| *count < ROOM_FRAMES);
            assert!(goes_on, "both wait after {step} steps, {heard:?}");
        }
        assert!(heard.iter().all(|frames| *frames > 10 * u64::from(UNANSWERED_FRAMES_MAX)), "{heard:?}");
    }

    /// Data that leaves is no answer: the resets a peer causes stay bounded while it takes data only.
    #[test]
    fn what_may_be_answered_is_bounded_whatever_data_leaves() {
        let (late, reset) = (frame(DATA, 0, 1, b"late"), frame(RST_STREAM, 0, 1, &[0; 4]));
        let data = frame(DATA, 0, 3, &[0; 500]);
        let mut meter = meter(100);
        meter.handle_input(Instant(0), PREFACE).unwrap();
        let mut count = 0;
        while meter.may_read() {
            meter.handle_input(Instant(1), &late).unwrap();
            data.chunks(100)
                .for_each(|piece| meter.handle_sent(piece, &mut Unwritten::default(), &mut |_, _| ()));
            count += 1;
        }
        assert_eq!((count, meter.unanswered), (OWED_FRAMES_MAX, 0));
        reset.chunks(5).for_each(|piece| meter.handle_sent(piece, &mut Unwritten::default(), &mut |_, _| ()));
        assert!(meter.may_read(), "one of them was answered");
        meter.handle_input(Instant(1), &late).unwrap();
        assert!(!meter.may_read());
        meter.handle_taken(1);
        assert!(meter.may_read(), "one of them was none");
    }

    #[test]
    fn time_and_useful_frames_earn_more() {
        let ping = frame(PING, 0, 0, &[0; 8]);
        let mut meter = meter(2);
        meter.handle_input(Instant(0), PREFACE).unwrap();
        let is_calm = |meter: &mut Meter, at| meter.handle_input(Instant(at), &ping).is_ok();
        assert!(is_calm(&mut meter, 0) && is_calm(&mut meter, 0) && !is_calm(&mut meter, 0));
        meter.head_filled = 0;
        meter.payload_left = 0;
        assert!(is_calm(&mut meter, 150_000_000), "ten a second");
        meter.handle_input(Instant(0), &frame(HEADERS, END_HEADERS, 7, b"h")).unwrap();
        assert!(is_calm(&mut meter, 0) && is_calm(&mut meter, 0));
        meter.handle_sent(&[0; BYTES_FOR_ONE], &mut Unwritten::default(), &mut |_, _| ());
        assert!(is_calm(&mut meter, 0));
        assert_eq!((meter.last_stream, meter.take_seen().pings), (7, 7));
    }

    #[test]
    fn what_stays_unfinished_is_timed() {
        let limit = Http2Settings::server().unfinished_ns_max;
        let mut meter = meter(100);
        assert_eq!(meter.next_timeout(), Some(Instant(limit)), "the preface");
        meter.handle_input(Instant(5), PREFACE).unwrap();
        meter.handle_input(Instant(5), &frame(SETTINGS, 0, 0, &[])).unwrap();
        assert_eq!(meter.next_timeout(), None);
        meter.handle_input(Instant(7), &frame(HEADERS, 0, 1, b"begun")).unwrap();
        meter.handle_input(Instant(9), &frame(CONTINUATION, 0, 1, b"more")).unwrap();
        assert_eq!(meter.next_timeout(), Some(Instant(limit + 7)), "a block is timed from its beginning");
        assert_eq!(meter.handle_timeout(Instant(limit + 7)), Err(Flood::Unfinished));
        meter.handle_input(Instant(9), &frame(CONTINUATION, END_HEADERS, 1, b"end")).unwrap();
        assert_eq!(meter.next_timeout(), None);
    }

    proptest! {
        #[test]
        fn cuts_do_not_matter(cuts in prop::collection::vec(1usize..40, 0..40)) {
            let mut said = PREFACE.to_vec();
            said.extend(frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100]));
            said.extend(frame(PING, 0, 0, &[0; 8]));
            said.extend(frame(PING, ACK, 0, &[0; 8]));
            said.extend(frame(HEADERS, END_HEADERS, 9, b"head"));
            said.extend(frame(GOAWAY, 0, 0, b"\x80\0\0\x05\0\0\0\x0btoo_many_pings"));
            let mut meter = meter(100);
            let mut rest = &said[..];
            for cut in cuts {
                let (now, later) = rest.split_at(cut.min(rest.len()));
                meter.handle_input(Instant(0), now).unwrap();
                rest = later;
            }
            meter.handle_input(Instant(0), rest).unwrap();
            let go_away = SeenGoAway {
                last_stream: 5,
                reason: Reason::ENHANCE_YOUR_CALM,
                debug: Bytes::from_static(b"too_many_pings"),
            };
            let seen = Seen { pings: 1, settings: true, go_away: Some(go_away), ..Seen::default() };
            prop_assert_eq!(meter.take_seen(), seen);
            prop_assert_eq!(meter.last_stream, 9);
        }

        #[test]
        fn any_bytes_are_counted_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
            let mut meter = meter(100);
            let _ = meter.handle_input(Instant(0), PREFACE);
            let _ = meter.handle_input(Instant(0), &bytes);
            prop_assert!(meter.go_away.len() <= GOAWAY_BYTES_MAX);
        }
    }
}
