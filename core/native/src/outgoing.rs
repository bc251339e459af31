//! What waits to be sent, and whose turn it is.
//!
//! Two lanes. The *prompt* lane holds control frames and small messages in the order they were given; a frame enters it
//! at once if nothing of its own stream waits and the windows have room. Everything else queues on its stream, and
//! streams take turns to put one frame (one segment of a large message, usually) into the *bulk* lane when the socket
//! asks for more. A write takes the rest of a cut bulk frame, then the whole prompt lane, then bulk frames: so a small
//! message waits for at most one segment, however much is queued.

use crate::body::{Body, Chunk, Store};
use crate::frame_type::FrameType;
use crate::head::Head;
use crate::lane::{Lane, Left};
use crate::stream::{CallEnd, Pending, State, Stream, Turn};
use crate::table::Streams;
use crate::wire::{Header, WINDOW_SUM_MAX};
use crate::{Notice, Refused, SharedRange, StreamId};
use std::collections::VecDeque;
use trunkline_call::Instant;

/// A call whose first message is at the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallSent {
    /// The owner's name for it.
    pub tag: u64,
    /// When the write began that took its last byte.
    pub at: Instant,
    /// Nothing was written behind it.
    pub is_last: bool,
}

/// The sending half of a connection.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Outgoing {
    prompt: Lane,
    bulk: Lane,
    /// Streams with something to send and a window to send it in, in turn.
    ready: VecDeque<StreamId>,
    /// Message bytes the peer still takes on the whole connection.
    window: u64,
    /// Longest part of a message in one frame.
    segment_bytes: u32,
    /// End of the prompt lane when it was last shown: what came later has not been written.
    shown_end: u64,
    /// Message bytes waiting in the queues of streams.
    pending_bytes: u64,
    /// Calls whose opening is not wholly at the socket: where it ends in its lane, and the owner's name. Both ascend.
    #[serde(default)]
    unsent_prompt: VecDeque<(u64, u64)>,
    #[serde(default)]
    unsent_bulk: VecDeque<(u64, u64)>,
    /// The last byte the socket took was of the bulk lane.
    #[serde(skip)]
    ended_in_bulk: bool,
    /// When what is being written was shown: just before it went to the kernel.
    #[serde(skip)]
    shown_at: Instant,
    /// What happened to what was sent, oldest first. Handed over beside the queues.
    #[serde(skip)]
    pub notices: VecDeque<Notice>,
    /// A command was refused for a full queue: say so when there is room. Handed over beside the queues.
    #[serde(skip)]
    pub refused: bool,
}

/// Messages up to this size leave whole, in order, in the prompt lane; longer ones are cut. At 10 Gbit/s one takes 13
/// µs.
pub(crate) const WHOLE_BYTES_MAX: u32 = 16 << 10;

/// A segment that is not the last of its message is at least this long: a trickle of grants must not become a trickle
/// of tiny frames. Far below a quarter of the smallest window, so a receiver that gives back what was taken always
/// unblocks the sender.
const SEGMENT_BYTES_MIN: u32 = 4 << 10;

/// Why a stream's next frame does not go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Short {
    Stream,
    Connection,
}

impl Outgoing {
    /// Sets what the peer's HELLO allows.
    pub fn establish(&mut self, window: u32, segment_bytes: u32, seals: bool) {
        self.window = window.into();
        self.segment_bytes = segment_bytes;
        if seals {
            self.prompt.seal_frames();
            self.bulk.seal_frames();
        }
    }

    /// Sends a frame of the connection, or one of a stream that must not wait.
    pub fn control(&mut self, frame: FrameType, code: u16, stream: u32, body: &[u8]) {
        let header = Header { frame, flags: 0, code, stream, length: body.len() as u32 };
        self.prompt.append(None, true, |out| {
            out.extend(header.encode());
            out.extend(body);
        });
    }

    /// Writes our HELLO.
    pub fn hello<T>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let mut result = None;
        self.prompt.append(None, true, |out| result = Some(write(out)));
        result.expect("append calls its writer")
    }

    /// Whether a call may be opened, or a message sent, by what waits already. If not, a notice will say when.
    pub fn check_room(&mut self, bytes_max: u64) -> Result<(), Refused> {
        if self.bytes() < bytes_max {
            return Ok(());
        }
        self.refused = true;
        Err(Refused::QueueFull { limit: bytes_max })
    }

    /// Sends a frame with a message, or without one, in the stream's order.
    pub fn dispatch(&mut self, now: Instant, stream: &mut Stream, head: Head<'_>, body: Option<Body<'_>>) {
        let is_call = head.frame == FrameType::Call;
        let Some(body) = body else { return self.dispatch_bare(now, stream, head) };
        let (cost, len) = (head.frame.cost_bytes(), body.len());
        let is_small = len <= WHOLE_BYTES_MAX.min(self.segment_bytes);
        if is_small && stream.is_clear() && self.charge(stream, cost + len).is_ok() {
            write_frame(&mut self.prompt, None, now, &head, body);
            if is_call {
                self.call_is_prompt(stream);
            }
        } else if is_small && !is_call {
            self.queue(
                stream,
                Pending::Frame { head: head.into_owned(), total: None, body: body.into_store() },
            );
        } else {
            self.dispatch_cut(now, stream, head, body);
        }
    }

    /// Sends a stream's last frame outside its order; what waits is given up.
    ///
    /// It may overtake the stream's frames in the bulk lane: the peer ignores those. Its CALL it cannot overtake,
    /// because that went through the prompt lane, too.
    pub fn dispatch_last(&mut self, now: Instant, stream: &mut Stream, head: &Head<'_>) {
        self.purge(stream);
        self.prompt.append_head(None, true, head, |out| head.encode(now, None, 0, out));
    }

    /// Gives up everything that waits on a stream.
    pub fn purge(&mut self, stream: &mut Stream) {
        for pending in stream.queue.drain(..) {
            self.pending_bytes -= pending.bytes();
            if let Some(token) = pending.body().token()
                && !self.bulk.finish_with(token)
            {
                self.notices.push_back(Notice::BodyDone { token });
            }
        }
        stream.queued_bytes = 0;
    }

    /// More may be sent: on the connection, or on a stream.
    pub fn grant_connection(&mut self, bytes: u32) -> u64 {
        self.window += u64::from(bytes);
        self.window
    }

    /// Puts a stream that waited for its window back into the ring.
    pub fn unblock(&mut self, stream: &mut Stream) {
        if stream.turn == Turn::Blocked {
            stream.turn = Turn::Ready;
            self.ready.push_back(stream.id);
        }
    }

    /// What happened to what was sent, oldest first.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// Something else the owner is to hear in this order.
    pub fn notify(&mut self, notice: Notice) {
        self.notices.push_back(notice);
    }

    /// Fills the bulk lane from the streams, in turn, until about `max_bytes` are there to be written (one frame at
    /// least). Streams that were refused more are told of room when half of `stream_bytes_max` is free.
    pub fn schedule(&mut self, now: Instant, streams: &mut Streams, max_bytes: u64, stream_bytes_max: u64) {
        let budget_bytes = max_bytes.saturating_sub(self.prompt.len()).max(1);
        while self.bulk.len() < budget_bytes {
            let Some(id) = self.ready.pop_front() else { return };
            let Some(stream) = streams.find_mut(id) else { continue };
            let committed = self.commit(now, stream);
            let is_through = committed.is_ok() && stream.queue.is_empty();
            match committed {
                Err(Short::Stream) => stream.turn = Turn::Blocked,
                Err(Short::Connection) => return self.ready.push_front(id),
                Ok(()) if is_through => stream.turn = Turn::Idle,
                Ok(()) => self.ready.push_back(id),
            }
            if stream.refused && stream.queued_bytes <= stream_bytes_max / 2 {
                stream.refused = false;
                self.notices.push_back(Notice::StreamWritable { stream: id, tag: stream.tag });
            }
            if is_through && stream.state == State::Finishing {
                streams.remove(id);
            }
        }
    }

    /// What to write next, in order.
    pub fn show(&mut self, now: Instant) -> impl Iterator<Item = Chunk<'_>> {
        self.shown_at = now;
        self.shown_end = self.prompt.end();
        self.prompt.stamp(now);
        self.bulk.stamp(now);
        let cut = usize::from(self.bulk.is_front_cut());
        let first = self.bulk.chunks(0, cut);
        first.chain(self.prompt.chunks(0, usize::MAX)).chain(self.bulk.chunks(cut, usize::MAX))
    }

    /// Takes off what the socket took of what was shown, in the same order. Who was refused is told of room when half
    /// of `bytes_max` is free.
    ///
    /// # Panics
    /// If the socket took more than it was shown.
    pub fn take(&mut self, mut count: usize, streams: &mut Streams, bytes_max: u64) {
        let notices = &mut self.notices;
        let mut left = |left: Left| {
            if let Some(token) = left.done {
                notices.push_back(Notice::BodyDone { token });
            }
            if let Some(stream) = left.stream.and_then(|id| streams.find_mut(id)) {
                stream.units = stream.units.saturating_sub(1);
            }
        };
        if self.bulk.is_front_cut() {
            count = self.bulk.take(count, self.bulk.front_end(), &mut left);
        }
        let behind_cut = count;
        count = self.prompt.take(count, self.shown_end, &mut left);
        self.ended_in_bulk = count > 0 || behind_cut == 0;
        count = self.bulk.take(count, u64::MAX, &mut left);
        assert_eq!(count, 0, "more bytes were written than were shown");
        if self.refused && self.bytes() <= bytes_max / 2 {
            self.refused = false;
            self.notices.push_back(Notice::Writable);
        }
    }

    /// A call whose opening has reached the socket, each once.
    pub fn poll_sent(&mut self) -> Option<CallSent> {
        let (prompt, bulk) = self.taken();
        let at = self.shown_at;
        let sent = |calls: &mut VecDeque<(u64, u64)>, taken: u64| {
            calls.front().is_some_and(|(end, _)| *end <= taken).then(|| calls.pop_front())?
        };
        if let Some((end, tag)) = sent(&mut self.unsent_prompt, prompt) {
            return Some(CallSent { tag, at, is_last: end == prompt && !self.ended_in_bulk });
        }
        let (end, tag) = sent(&mut self.unsent_bulk, bulk)?;
        Some(CallSent { tag, at, is_last: end == bulk && self.ended_in_bulk })
    }

    /// The socket is gone, and with it all that waits. What is known of every stream is told, and every body given
    /// back.
    pub fn lost(&mut self, streams: &mut Streams) {
        let (prompt, bulk) = self.taken();
        for mut stream in streams.take_all() {
            self.purge(&mut stream);
            self.notices.extend(stream.ended(prompt, bulk));
        }
        let tokens = self.prompt.tokens().chain(self.bulk.tokens());
        self.notices.extend(tokens.map(|token| Notice::BodyDone { token }));
        let notices = std::mem::take(&mut self.notices);
        *self = Self { notices, refused: self.refused, ..Self::default() };
    }

    /// Everything that has not reached the socket.
    pub fn bytes(&self) -> u64 {
        self.prompt.len() + self.bulk.len() + self.pending_bytes
    }

    /// Message bytes the peer still takes on the connection.
    pub fn window(&self) -> u64 {
        self.window
    }

    /// Bytes in the prompt lane that are this connection's memory.
    pub fn prompt_own_bytes(&self) -> u64 {
        self.prompt.own_bytes() as u64
    }

    /// Whether a write could be made now, given what the windows allow.
    pub fn has_work(&self) -> bool {
        !self.prompt.is_empty() || !self.bulk.is_empty() || !self.ready.is_empty()
    }

    /// The positions both lanes have reached at the socket: prompt, bulk.
    fn taken(&self) -> (u64, u64) {
        (self.prompt.taken(), self.bulk.taken())
    }

    /// Whether the books agree with each other and with the streams'.
    pub fn is_sound(&self, streams: &Streams) -> bool {
        let mut pending_bytes = 0u64;
        for stream in streams.iter() {
            let mut queued_bytes = 0u64;
            for pending in &stream.queue {
                let Some(bytes) = pending.checked_bytes() else { return false };
                queued_bytes = queued_bytes.saturating_add(bytes);
            }
            if queued_bytes != stream.queued_bytes {
                return false;
            }
            pending_bytes = pending_bytes.saturating_add(queued_bytes);
        }
        self.prompt.is_sound()
            && self.bulk.is_sound()
            && self.shown_end <= self.prompt.end()
            && self.pending_bytes == pending_bytes
            && self.window <= WINDOW_SUM_MAX
            && self.unsent_prompt.iter().is_sorted_by_key(|(end, _)| *end)
            && self.unsent_bulk.iter().is_sorted_by_key(|(end, _)| *end)
    }

    fn dispatch_bare(&mut self, now: Instant, stream: &mut Stream, head: Head<'_>) {
        if !stream.is_clear() {
            return self.queue(
                stream,
                Pending::Frame { head: head.into_owned(), total: None, body: Store::Nothing },
            );
        }
        self.prompt.append_head(None, true, &head, |out| head.encode(now, None, 0, out));
        if head.frame == FrameType::Call {
            self.call_is_prompt(stream);
        }
    }

    /// The opening of a call ends at the end of the prompt lane.
    fn call_is_prompt(&mut self, stream: &mut Stream) {
        stream.call_end = CallEnd::Prompt(self.prompt.end());
        self.unsent_prompt.push_back((self.prompt.end(), stream.tag));
    }

    /// Sends the head at once if it may go, and queues the body. A CALL's head always may: ids rise on the wire.
    fn dispatch_cut(&mut self, now: Instant, stream: &mut Stream, head: Head<'_>, body: Body<'_>) {
        let of_call = head.frame == FrameType::Call;
        let total = Some(body.len());
        if stream.is_clear() && self.charge(stream, head.frame.cost_bytes()).is_ok() {
            self.prompt.append_head(None, true, &head, |out| head.encode(now, total, 0, out));
        } else {
            self.queue(stream, Pending::Frame { head: head.into_owned(), total, body: Store::Nothing });
        }
        self.queue(stream, Pending::Segments { body: body.into_store(), offset: 0, of_call });
    }

    fn queue(&mut self, stream: &mut Stream, pending: Pending) {
        self.pending_bytes += pending.bytes();
        stream.queued_bytes += pending.bytes();
        stream.queue.push_back(pending);
        if stream.turn == Turn::Idle {
            stream.turn = Turn::Ready;
            self.ready.push_back(stream.id);
        }
    }

    /// Takes bytes off both windows, or says which is too small.
    fn charge(&mut self, stream: &mut Stream, bytes: u32) -> Result<(), Short> {
        let bytes = u64::from(bytes);
        if stream.send_window < bytes {
            return Err(Short::Stream);
        }
        if self.window < bytes {
            return Err(Short::Connection);
        }
        stream.send_window -= bytes;
        self.window -= bytes;
        Ok(())
    }

    /// Moves the stream's next frame into the bulk lane.
    fn commit(&mut self, now: Instant, stream: &mut Stream) -> Result<(), Short> {
        let bytes = match stream.queue.front() {
            None => return Ok(()),
            Some(Pending::Frame { head, body, .. }) => {
                let (cost, len) = (head.frame.cost_bytes(), body.len());
                self.charge(stream, cost + len)?;
                self.commit_frame(now, stream);
                len
            }
            Some(&Pending::Segments { ref body, offset, .. }) => {
                let part = self.segment(stream, body.len() - offset)?;
                self.charge(stream, part)?;
                self.commit_segment(stream, part);
                part
            }
        };
        stream.units += 1;
        stream.queued_bytes -= u64::from(bytes);
        self.pending_bytes -= u64::from(bytes);
        Ok(())
    }

    fn commit_frame(&mut self, now: Instant, stream: &mut Stream) {
        let Some(Pending::Frame { head, total, body }) = stream.queue.pop_front() else { return };
        match body {
            Store::Nothing => {
                self.bulk.append_head(Some(stream.id), false, &head, |out| head.encode(now, total, 0, out));
            }
            Store::Owned(bytes) => {
                write_frame(&mut self.bulk, Some(stream.id), now, &head, Body::Owned(bytes))
            }
            Store::Shared(range) => {
                write_frame(&mut self.bulk, Some(stream.id), now, &head, Body::Shared(range))
            }
        }
    }

    fn commit_segment(&mut self, stream: &mut Stream, part: u32) {
        let Some(Pending::Segments { body, offset, of_call }) = stream.queue.front_mut() else { return };
        let (from, to) = (*offset, *offset + part);
        let header =
            Header { frame: FrameType::Segment, flags: 0, code: 0, stream: stream.id.0, length: part };
        let is_last = to == body.len();
        self.bulk.append(Some(stream.id), false, |out| {
            out.extend(header.encode());
            if let Store::Owned(bytes) = body {
                out.extend(&bytes[from as usize..to as usize]);
            }
        });
        if let Store::Shared(range) = body {
            let part = SharedRange { offset: range.offset + from, len: part, ..*range };
            self.bulk.append_shared(part, is_last);
        }
        *offset = to;
        if is_last {
            if *of_call {
                stream.call_end = CallEnd::Bulk(self.bulk.end());
                self.unsent_bulk.push_back((self.bulk.end(), stream.tag));
            }
            stream.queue.pop_front();
        }
    }

    /// How much of `remaining` goes into the next segment.
    fn segment(&self, stream: &Stream, remaining: u32) -> Result<u32, Short> {
        let wish = remaining.min(self.segment_bytes);
        let (window, short) = if stream.send_window <= self.window {
            (stream.send_window, Short::Stream)
        } else {
            (self.window, Short::Connection)
        };
        let part = u64::from(wish).min(window) as u32;
        if part < wish.min(SEGMENT_BYTES_MIN) { Err(short) } else { Ok(part) }
    }
}

/// Appends a whole frame; `counted` names the stream that counts it as a unit of its own.
fn write_frame(lane: &mut Lane, counted: Option<StreamId>, now: Instant, head: &Head<'_>, body: Body<'_>) {
    let len = body.len();
    lane.append_head(counted, counted.is_none(), head, |out| {
        head.encode(now, None, len, out);
        match &body {
            Body::Inline(bytes) => out.extend_from_slice(bytes),
            Body::Owned(bytes) => out.extend_from_slice(bytes),
            Body::Shared(_) => {}
        }
    });
    if let Body::Shared(range) = body {
        lane.append_shared(range, true);
    }
}
