//! One open stream: what the peer sends goes up as events, what is queued goes down as the windows allow.

use bytes::{Buf, Bytes, BytesMut};
use h2::{FlowControl, RecvStream, SendStream, client, server};
use http::{HeaderMap, Response, StatusCode, response};
use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};
use trunkline_grpc::{Event, Reason, ResetBy, StreamTag};

/// Queued pieces smaller than this are gathered into one DATA frame with what follows them.
const GATHER_BYTES: usize = 1024;
/// Largest frame gathered that way: the smallest largest frame a peer may ask for.
const GATHERED_BYTES_MAX: usize = 16 << 10;

/// Bytes of a refused request that are read and thrown away before its sender is told to stop. Who sends no more than
/// that hears nothing but the answer, and mistakes of its own.
const REFUSED_BYTES_MAX: usize = 64 << 10;

/// The key that sets how large a header list may be.
pub(super) const LIST_MAX_KEY: &str = "http2.header_list_bytes_max";

/// An open stream.
pub(super) struct OpenStream {
    pub tag: StreamTag,
    /// Its number on the wire.
    pub id: u32,
    receiving: Receiving,
    sending: Sending,
    queue: Queue,
    finish: Finish,
    /// Bytes given to h2 that have not left.
    pub ahead_bytes: usize,
    /// Bytes that have left since that was last told.
    left_bytes: usize,
    /// We have reset it, and nobody has asked about that.
    has_reset: bool,
    /// Frames that were told with the one before them, since this was last asked.
    joined_frames: u32,
    /// Gives credit for received bytes. Kept beyond the body's end, until all of it is released.
    flow: Option<FlowControl>,
    unreleased_bytes: usize,
    /// Client: the largest header list of an answer, and whether one was larger.
    list_bytes_max: usize,
    has_large_list: bool,
    /// Server: the request was answered as no call, whether or not all of it has come. What still comes is read here,
    /// up to so many bytes: a stream ended while its request is under way would have h2 pass over everything that
    /// follows, right or wrong.
    refused: Option<usize>,
}

/// The peer's half.
enum Receiving {
    /// Client: the answer's head has not come.
    Head(client::ResponseFuture),
    Body(RecvStream),
    Ended,
}

/// Our half.
enum Sending {
    /// Server: the answer's head has not been sent.
    Head(server::SendResponse<Bytes>),
    Body(SendStream<Bytes>),
    Ended,
}

/// How the queue ends.
enum Finish {
    Open,
    End,
    Trailers(HeaderMap),
    /// Nothing more is sent.
    Done,
}

/// What is left of a stream after it was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// It goes on.
    Open,
    /// It is over.
    Over,
    /// It is over before its time.
    Reset,
    /// The peer broke its rules, and it was reset for that.
    Broken,
    /// It is over, and so is the connection, which tells why.
    Lost,
}

/// What a stream may give to h2 ahead of the socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct GivenRoom {
    /// Now, for its connection's sake.
    pub bytes: usize,
    /// Of it, at any time.
    pub stream_bytes: usize,
}

/// What the peer said about ending the connection, as streams need it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Leaving {
    /// The last stream the peer will answer, once it said so.
    pub last_stream: Option<u32>,
}

impl OpenStream {
    /// A stream the peer opened.
    pub fn accepted(tag: StreamTag, body: RecvStream, respond: server::SendResponse<Bytes>) -> Self {
        let id = body.stream_id().as_u32();
        let receiving = if body.is_end_stream() { Receiving::Ended } else { Receiving::Body(body) };
        Self::new(tag, id, receiving, Sending::Head(respond), Finish::Open)
    }

    /// A stream we opened.
    pub fn requested(
        tag: StreamTag,
        answer: client::ResponseFuture,
        send: SendStream<Bytes>,
        end: bool,
        list_bytes_max: u32,
    ) -> Self {
        let id = send.stream_id().as_u32();
        let finish = if end { Finish::Done } else { Finish::Open };
        let receiving = Receiving::Head(answer);
        let list_bytes_max = list_bytes_max as usize;
        Self { list_bytes_max, ..Self::new(tag, id, receiving, Sending::Body(send), finish) }
    }

    fn new(tag: StreamTag, id: u32, receiving: Receiving, sending: Sending, finish: Finish) -> Self {
        Self {
            tag,
            id,
            receiving,
            sending,
            queue: Queue::default(),
            finish,
            ahead_bytes: 0,
            left_bytes: 0,
            has_reset: false,
            joined_frames: 0,
            flow: None,
            unreleased_bytes: 0,
            list_bytes_max: usize::MAX,
            has_large_list: false,
            refused: None,
        }
    }

    /// Sends the answer's head. The body ended with the head when `end`.
    pub fn respond(&mut self, head: response::Parts, end: bool) {
        let Sending::Head(respond) = &mut self.sending else { return };
        if head.status != StatusCode::OK {
            self.refused = Some(REFUSED_BYTES_MAX);
        }
        match respond.send_response(Response::from_parts(head, ()), end) {
            Ok(send) => self.sending = Sending::Body(send),
            // The peer has reset the stream, which is told by the next look at it.
            Err(error) => tracing::debug!(%error, "answer not sent"),
        }
        if end {
            self.finish = Finish::Done;
        }
    }

    /// Queues body bytes.
    pub fn queue(&mut self, bytes: Bytes, end: bool) {
        if !matches!(self.finish, Finish::Open) {
            return;
        }
        self.queue.push(bytes);
        if end {
            self.finish = Finish::End;
        }
    }

    /// Ends the body behind what is queued.
    pub fn queue_trailers(&mut self, trailers: HeaderMap) {
        if matches!(self.finish, Finish::Open) {
            self.finish = Finish::Trailers(trailers);
        }
    }

    /// Drops what is queued, and ends the body with these trailers instead of whatever was to end it.
    pub fn cut_off(&mut self, trailers: HeaderMap) {
        if !matches!(self.finish, Finish::Done) {
            self.queue = Queue::default();
            self.finish = Finish::Trailers(trailers);
        }
    }

    /// Whether a reset has left since this was last asked.
    pub fn take_reset(&mut self) -> bool {
        std::mem::take(&mut self.has_reset)
    }

    /// Frames of the peer, since this was last asked, that have no event of their own.
    pub fn take_joined(&mut self) -> u32 {
        std::mem::take(&mut self.joined_frames)
    }

    /// Ends the stream at once.
    pub fn reset(&mut self, reason: Reason) {
        self.has_reset |= !matches!(self.sending, Sending::Ended);
        match &mut self.sending {
            Sending::Head(respond) => respond.send_reset(reason.0.into()),
            Sending::Body(send) => send.send_reset(reason.0.into()),
            Sending::Ended => {}
        }
    }

    /// Received bytes are dealt with.
    pub fn release(&mut self, bytes: usize) -> Rest {
        let bytes = bytes.min(self.unreleased_bytes);
        self.unreleased_bytes -= bytes;
        if let Some(flow) = &mut self.flow {
            // Fails only for more than was received, and that was ruled out above.
            let _ = flow.release_capacity(bytes);
        }
        self.rest()
    }

    /// So many bytes of its body have left. Whether that is the first to be told.
    pub fn note_left(&mut self, bytes: usize) -> bool {
        // What h2 has of a stream that was begun anew in its place is none of it.
        let bytes = bytes.min(self.ahead_bytes);
        self.ahead_bytes -= bytes;
        let is_first = self.left_bytes == 0;
        self.left_bytes += bytes;
        is_first && bytes > 0
    }

    /// Tells what has left.
    pub fn tell_left(&mut self, events: &mut Vec<Event>) -> Rest {
        if self.left_bytes > 0 {
            events.push(Event::Sent { stream: self.tag, bytes: std::mem::take(&mut self.left_bytes) });
        }
        self.rest()
    }

    /// Whether it waits to give more to h2 than it may now.
    pub fn is_starved(&self, room: GivenRoom) -> bool {
        room.bytes == 0 && self.queue.bytes > 0 && matches!(self.sending, Sending::Body(_))
    }

    /// Whether both sides have said all.
    pub fn has_ended(&self) -> bool {
        matches!((&self.receiving, &self.finish), (Receiving::Ended, Finish::Done))
    }

    /// Looks at both halves.
    pub fn pump(
        &mut self,
        cx: &mut Context<'_>,
        room: GivenRoom,
        leaving: Leaving,
        events: &mut Vec<Event>,
    ) -> Rest {
        let looked = match self.refused {
            Some(left) => self.pass_over(cx, left),
            None => self.receive(cx, events),
        };
        if self.has_large_list {
            let reason = Reason::ENHANCE_YOUR_CALM;
            self.reset(reason);
            events.push(Event::Reset { stream: self.tag, reason, by: ResetBy::Limit(LIST_MAX_KEY) });
            return Rest::Reset;
        }
        let looked = looked.and_then(|()| self.send(cx, room)).and_then(|()| self.look_for_reset(cx));
        match looked {
            Ok(()) => self.rest(),
            Err(error) => match self.reason_of(&error, leaving) {
                Some(reason) => {
                    let by = if error.is_library() { ResetBy::Us } else { ResetBy::Peer };
                    events.push(Event::Reset { stream: self.tag, reason, by });
                    if error.is_library() { Rest::Broken } else { Rest::Reset }
                }
                None => Rest::Lost,
            },
        }
    }

    /// Whether a server has said all and it has left, or a client heard all and dealt with it.
    fn rest(&mut self) -> Rest {
        let is_server = !self.is_own();
        let over = match (is_server, &self.receiving, &self.finish) {
            (true, _, Finish::Done) if self.ahead_bytes > 0 => false,
            (true, Receiving::Body(_), Finish::Done) => self.refused.is_none_or(|left| left == 0),
            (true, _, Finish::Done) => true,
            (false, Receiving::Ended, _) => {
                self.stop_sending();
                self.unreleased_bytes == 0
            }
            _ => false,
        };
        if over { Rest::Over } else { Rest::Open }
    }

    /// The answer is complete: what we still have to say, nobody wants to hear.
    fn stop_sending(&mut self) {
        let is_all_left = matches!(self.finish, Finish::Done) && self.ahead_bytes == 0;
        if let (Sending::Body(send), false) = (&mut self.sending, is_all_left) {
            send.send_reset(h2::Reason::CANCEL);
            self.has_reset = true;
        }
        self.sending = Sending::Ended;
        self.finish = Finish::Done;
        self.queue = Queue::default();
        self.ahead_bytes = 0;
    }

    fn receive(&mut self, cx: &mut Context<'_>, events: &mut Vec<Event>) -> Result<(), h2::Error> {
        if let Receiving::Head(answer) = &mut self.receiving {
            let Poll::Ready(answered) = Pin::new(answer).poll(cx) else { return Ok(()) };
            let (head, body) = answered?.into_parts();
            let end = body.is_end_stream();
            if self.refuses(&head.headers) {
                return Ok(());
            }
            events.push(Event::Response { stream: self.tag, head: Box::new(head), end });
            self.receiving = if end { Receiving::Ended } else { Receiving::Body(body) };
        }
        while let Receiving::Body(body) = &mut self.receiving {
            match body.poll_data(cx) {
                Poll::Pending => break,
                Poll::Ready(Some(bytes)) => {
                    let bytes = bytes?;
                    if self.flow.is_none() {
                        self.flow = Some(body.flow_control().clone());
                    }
                    self.unreleased_bytes += bytes.len();
                    let end = body.is_end_stream();
                    self.tell_data(bytes, end, events);
                    if end {
                        self.receiving = Receiving::Ended;
                    }
                }
                Poll::Ready(None) => match body.poll_trailers(cx) {
                    Poll::Pending => break,
                    Poll::Ready(trailers) => {
                        match trailers? {
                            Some(trailers) if self.refuses(&trailers) => return Ok(()),
                            Some(trailers) => events.push(Event::Trailers { stream: self.tag, trailers }),
                            None => self.tell_data(Bytes::new(), true, events),
                        }
                        self.receiving = Receiving::Ended;
                    }
                },
            }
        }
        Ok(())
    }

    /// Whether a list of the answer is larger than may be: the stream is reset.
    fn refuses(&mut self, headers: &HeaderMap) -> bool {
        self.has_large_list = list_bytes(headers) > self.list_bytes_max;
        self.has_large_list
    }

    /// Tells what came of the body. Most peers end a request by an empty frame behind its message: one event for both
    /// says in time that the message is the last.
    fn tell_data(&mut self, bytes: Bytes, end: bool, events: &mut Vec<Event>) {
        if bytes.is_empty()
            && let Some(Event::Data { stream, end: ended, .. }) = events.last_mut()
            && *stream == self.tag
        {
            *ended |= end;
            self.joined_frames += 1;
            return;
        }
        events.push(Event::Data { stream: self.tag, bytes, end });
    }

    /// Reads what still comes of a refused request. Nobody hears of it.
    fn pass_over(&mut self, cx: &mut Context<'_>, mut left: usize) -> Result<(), h2::Error> {
        while let Receiving::Body(body) = &mut self.receiving
            && left > 0
        {
            match body.poll_data(cx) {
                Poll::Pending => break,
                Poll::Ready(Some(bytes)) => {
                    let bytes = bytes?;
                    body.flow_control().release_capacity(bytes.len())?;
                    left = left.saturating_sub(bytes.len());
                }
                Poll::Ready(None) => match body.poll_trailers(cx) {
                    Poll::Pending => break,
                    Poll::Ready(trailers) => {
                        trailers?;
                        self.receiving = Receiving::Ended;
                    }
                },
            }
        }
        self.refused = Some(left);
        Ok(())
    }

    fn send(&mut self, cx: &mut Context<'_>, room: GivenRoom) -> Result<(), h2::Error> {
        let before = self.queue.bytes;
        let sent = self.send_queue(cx, room);
        self.ahead_bytes += before - self.queue.bytes;
        sent
    }

    fn send_queue(&mut self, cx: &mut Context<'_>, mut room: GivenRoom) -> Result<(), h2::Error> {
        let Sending::Body(send) = &mut self.sending else { return Ok(()) };
        while self.queue.bytes > 0 {
            if room.bytes == 0 {
                return Ok(());
            }
            send.reserve_capacity(self.queue.bytes.min(room.stream_bytes));
            let capacity = send.capacity().min(room.bytes);
            if capacity == 0 {
                match send.poll_capacity(cx) {
                    Poll::Pending | Poll::Ready(None) => return Ok(()),
                    Poll::Ready(Some(grown)) => _ = grown?,
                }
                continue;
            }
            let bytes = self.queue.take(capacity);
            room.bytes -= bytes.len();
            let end = self.queue.bytes == 0 && matches!(self.finish, Finish::End);
            if end {
                self.finish = Finish::Done;
            }
            send.send_data(bytes, end)?;
        }
        match std::mem::replace(&mut self.finish, Finish::Done) {
            Finish::Open => self.finish = Finish::Open,
            Finish::End => send.send_data(Bytes::new(), true)?,
            Finish::Trailers(trailers) => send.send_trailers(trailers)?,
            Finish::Done => {}
        }
        Ok(())
    }

    /// Whether the peer has reset the stream. A client hears it where it waits for the answer.
    fn look_for_reset(&mut self, cx: &mut Context<'_>) -> Result<(), h2::Error> {
        if self.is_own() || (matches!(self.finish, Finish::Done) && self.ahead_bytes == 0) {
            return Ok(());
        }
        let told = match &mut self.sending {
            Sending::Head(respond) => respond.poll_reset(cx),
            Sending::Body(send) => send.poll_reset(cx),
            Sending::Ended => return Ok(()),
        };
        match told {
            Poll::Pending => Ok(()),
            Poll::Ready(reason) => Err(reason?.into()),
        }
    }

    /// Why the stream ended, or `None` if that is the connection's to tell.
    fn reason_of(&self, error: &h2::Error, leaving: Leaving) -> Option<Reason> {
        if error.is_io() {
            return None;
        }
        if error.is_go_away() {
            let is_refused = leaving.last_stream.is_some_and(|last| self.id > last);
            return is_refused.then_some(Reason::REFUSED_STREAM);
        }
        Some(error.reason().map_or(Reason::INTERNAL_ERROR, |reason| Reason(reason.into())))
    }

    fn is_own(&self) -> bool {
        self.tag.0 & StreamTag::OWN != 0
    }
}

/// What headers take, as RFC 9113 counts a list: 32 bytes for each beside its text.
pub(super) fn list_bytes(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 32).sum()
}

/// Body bytes that have not left. Small pieces are copied together as they come, so that a message of five bytes takes
/// five bytes here.
#[derive(Default)]
struct Queue {
    pieces: VecDeque<Bytes>,
    /// Behind them.
    small: BytesMut,
    bytes: usize,
}

impl Queue {
    fn push(&mut self, bytes: Bytes) {
        if bytes.is_empty() {
            return;
        }
        let is_alone = self.bytes == 0;
        self.bytes += bytes.len();
        if is_alone || bytes.len() >= GATHER_BYTES {
            self.close_small();
            self.pieces.push_back(bytes);
            return;
        }
        self.small.extend_from_slice(&bytes);
        if self.small.len() >= GATHERED_BYTES_MAX {
            self.close_small();
        }
    }

    fn close_small(&mut self) {
        if !self.small.is_empty() {
            self.pieces.push_back(std::mem::take(&mut self.small).freeze());
        }
    }

    /// Takes up to `bytes_max` from the front: the first piece or part of it, or several small ones in one.
    fn take(&mut self, bytes_max: usize) -> Bytes {
        let taken = self.take_piece(bytes_max);
        self.bytes -= taken.len();
        taken
    }

    fn take_piece(&mut self, bytes_max: usize) -> Bytes {
        if self.pieces.len() < 2 {
            self.close_small();
        }
        let is_last = self.pieces.len() == 1;
        let Some(front) = self.pieces.front_mut() else { return Bytes::new() };
        if front.len() > bytes_max {
            return front.split_to(bytes_max);
        }
        if is_last || front.len() >= GATHER_BYTES {
            return self.pieces.pop_front().unwrap_or_default();
        }
        let mut gathered = BytesMut::new();
        let room = bytes_max.min(GATHERED_BYTES_MAX);
        while let Some(front) = self.pieces.front_mut().filter(|_| gathered.len() < room) {
            let count = front.len().min(room - gathered.len());
            gathered.extend_from_slice(&front[..count]);
            front.advance(count);
            if front.is_empty() {
                self.pieces.pop_front();
            }
        }
        gathered.freeze()
    }
}

#[cfg(test)]
mod tests {
    //! Shows that bytes leave the queue in order, whatever the window, small ones together, and wait so.
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn order_is_kept(
            pieces in prop::collection::vec((1usize..3000, any::<bool>()), 1..40),
            room in 1usize..20_000,
        ) {
            let bytes: Vec<u8> = (0..pieces.iter().map(|(len, _)| len).sum()).map(|n: usize| n as u8).collect();
            let mut rest = Bytes::from(bytes.clone());
            let (mut queue, mut sent) = (Queue::default(), Vec::new());
            let mut take = |queue: &mut Queue| {
                let before = queue.bytes;
                let taken = queue.take(room);
                prop_assert!(!taken.is_empty() && taken.len() <= room);
                prop_assert_eq!(queue.bytes, before - taken.len());
                sent.extend_from_slice(&taken);
                Ok(())
            };
            for (len, takes) in pieces {
                queue.push(rest.split_to(len));
                if takes {
                    take(&mut queue)?;
                }
            }
            while queue.bytes > 0 {
                take(&mut queue)?;
            }
            prop_assert!(queue.take(room).is_empty());
            prop_assert_eq!(sent, bytes);
        }
    }

    #[test]
    fn small_ones_leave_together() {
        let mut queue = Queue::default();
        (0..20).for_each(|_| queue.push(Bytes::from_static(b"small")));
        assert_eq!(queue.take(1 << 20).len(), 100);
        assert_eq!(queue.bytes, 0);
    }

    /// Empty messages of gRPC have five bytes each.
    #[test]
    fn small_ones_wait_together() {
        let mut queue = Queue::default();
        (0..100_000).for_each(|_| queue.push(Bytes::from_static(b"small")));
        assert_eq!(queue.bytes, 500_000);
        assert!(queue.pieces.len() <= 2 + 500_000 / GATHERED_BYTES_MAX, "{}", queue.pieces.len());
    }
}
