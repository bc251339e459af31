//! What peers send: heads, bodies, ends; and the window they take.

use super::ends::GrpcEnds;
use super::stream::{Ending, GrpcStream, WebStream};
use crate::call::{Call, ClientEnd, ServerEnd};
use crate::due::Due;
use crate::held::{HeldBudget, HeldFull};
use crate::item::{Body, Direction};
use crate::limits::ARRIVING;
use crate::packing::{Arrived, Packing};
use crate::peer::PeerFault;
use crate::{CallKey, GrpcKey};
use bytes::Bytes;
use std::borrow::Cow;
use trunkline_call::{Code, Encoding, Execution, Fault, Instant, Pattern, TimerTable};
use trunkline_grpc::buffers::LongBuffers;
use trunkline_grpc::compress::{Accepts, Encoding as Compression};
use trunkline_grpc::framing::{Framed, FramingFault};
use trunkline_grpc::request::{self, RequestHead};
use trunkline_grpc::response::{self, ResponseHead};
use trunkline_grpc::{Command, Outcome, StreamTag};

/// A connection's streams are not looked at more often than this.
const SWEEP_NS_MIN: u64 = 50_000_000;

/// What comes next of a stream.
#[derive(Debug)]
pub(crate) enum NextMessage {
    /// A message, which takes so much of the window; `end`: the last, of a body that has ended with it.
    Whole { message: Arrived, charged: u32, end: bool },
    /// The only message of its direction, which waits for the end.
    Kept,
    /// Another of a direction that has one.
    TooMany,
    /// Nothing more that is complete.
    Nothing,
}

/// A direction that has ended, or what was wrong with its end.
#[derive(Debug)]
pub(crate) struct EndedBody {
    pub outcome: Result<Outcome<'static>, Outcome<'static>>,
    /// Whether messages of it were passed on before.
    pub streams: bool,
    /// Its only message, if it does not stream.
    pub message: Option<Arrived>,
    /// The metadata a request that does not stream came with.
    pub opening: Option<Vec<u8>>,
}

/// The head of an answer.
#[derive(Debug)]
pub(crate) struct AnswerHead {
    pub call: CallKey,
    pub head: ResponseHead,
    /// What its server reads, if the request was in none of these encodings.
    pub refused: Option<Accepts>,
}

/// What was found among the streams of a connection.
#[derive(Debug, Default)]
pub(crate) struct SweptStreams {
    /// Calls with a message that does not go on.
    pub stalled: Vec<CallKey>,
    /// Streams with an answer that is not wanted any more.
    pub late: Vec<WebStream>,
}

impl GrpcEnds {
    /// A client opens a stream. The head of its call; `None` if it is none, which has been answered.
    ///
    /// # Errors
    /// The stream cannot be.
    pub fn handle_request<'h>(
        &mut self,
        at: WebStream,
        head: &'h http::request::Parts,
    ) -> Result<Option<RequestHead<'h>>, PeerFault> {
        let Some(found) = self.peers.find(at.peer) else { return Ok(None) };
        if found.remote.is_some() || found.streams.contains_key(&at.tag) {
            return Err(PeerFault(format!("stream {:?} cannot be opened by the peer", at.tag)));
        }
        let is_head = head.method == http::Method::HEAD;
        match request::parse(head, &self.settings.heads) {
            Ok(head) => Ok(Some(head)),
            Err(refusal) => {
                self.refuse_head(at, refusal, is_head);
                Ok(None)
            }
        }
    }

    /// A head that is no call's is answered, with a body for a person if it was not even gRPC's.
    fn refuse_head(&mut self, at: WebStream, refusal: request::Refusal, is_head: bool) {
        let end = is_head || !refusal.has_body();
        self.command(at.peer, Command::Response { stream: at.tag, head: refusal.into_head(), end });
        if !end {
            let bytes = Bytes::from_static(request::Refusal::TEXT.as_bytes());
            self.command(at.peer, Command::Data { stream: at.tag, bytes, end: true });
        }
    }

    /// A client's stream has a call, whose messages come in one encoding and are read in these.
    pub fn take_call(
        &mut self,
        at: WebStream,
        call: CallKey,
        pattern: Pattern,
        encoding: Compression,
        accepts: Accepts,
        is_repeated: bool,
    ) {
        let mut stream = GrpcStream::taken(call, pattern, encoding, self.limits.grpc_bytes_max());
        stream.is_repeated = is_repeated;
        stream.outgoing.accepts = accepts;
        stream.outgoing.encoding = self.settings.answer_encoding(accepts);
        if let Some(found) = self.peers.find_mut(at.peer) {
            found.streams.insert(at.tag, Box::new(stream));
        }
    }

    /// A request that does not stream waits for its message, with its metadata.
    pub fn keep_opening(&mut self, held: &mut HeldBudget, at: WebStream, metadata: Vec<u8>) {
        let Some(found) = self.peers.find_mut(at.peer) else { return };
        let bytes = metadata.len() as isize;
        if let Some(stream) = found.streams.get_mut(&at.tag) {
            stream.incoming.opening = Some(metadata);
        }
        found.note_held(held, bytes);
    }

    /// A server answers.
    pub fn handle_response(
        &mut self,
        at: WebStream,
        head: &http::response::Parts,
        end: bool,
    ) -> Option<AnswerHead> {
        self.commit(at);
        let refused = self.note_accepts(at, head);
        let head = response::parse(head, end, &self.settings.heads);
        let stream = self.stream_mut(at)?;
        stream.incoming.answered = true;
        let call = stream.call?;
        match &head {
            ResponseHead::Headers { encoding, .. } => stream.incoming.encoding = *encoding,
            ResponseHead::Ended(_) => stream.incoming.goes_on_unheard = !end,
        }
        Some(AnswerHead { call, head, refused })
    }

    /// The encodings a server says it reads, if the request was in another.
    fn note_accepts(&mut self, at: WebStream, head: &http::response::Parts) -> Option<Accepts> {
        let peer = self.peers.find_mut(at.peer)?;
        let sent = peer.streams.get(&at.tag)?.outgoing.encoding;
        if sent == Compression::Identity {
            return None;
        }
        let accepts = Accepts::said(&head.headers).filter(|accepts| !accepts.contains(sent))?;
        peer.accepts = accepts;
        Some(accepts)
    }

    /// The outcome of an answer, in its trailers.
    pub fn read_trailers(&self, trailers: &http::HeaderMap) -> Outcome<'static> {
        response::parse_trailers(trailers, &self.settings.heads)
    }

    // LIFE: 13 gRPC
    /// Body bytes arrived. Whether anybody wants them: else they are released.
    pub fn handle_data(&mut self, held: &mut HeldBudget, at: WebStream, bytes: Bytes, end: bool) -> bool {
        let count = bytes.len();
        if let Some(found) = self.peers.find_mut(at.peer)
            && let Some(stream) = found.streams.get_mut(&at.tag)
            && stream.call.is_some()
            && !stream.incoming.over
        {
            stream.incoming.push(bytes);
            if end {
                stream.incoming.end(Ending::Body);
            }
            found.note_held(held, count as isize);
            if found.window.take(count, self.settings.connection_window_bytes) {
                self.keep_less(at.peer);
            }
            return true;
        }
        self.release_bytes(at, count);
        false
    }

    /// A connection's window has become short: what its streams keep of it for messages that are not complete is given
    /// back. That is once for each quarter of the window that has come.
    #[cold]
    fn keep_less(&mut self, peer: GrpcKey) {
        let tags = self.peers.find(peer).map(|found| found.streams.iter());
        let unfinished = tags.into_iter().flatten().filter(|(_, stream)| stream.incoming.is_unfinished());
        let unfinished: Vec<StreamTag> = unfinished.map(|(tag, _)| *tag).collect();
        unfinished.into_iter().for_each(|tag| self.release_ahead(WebStream { peer, tag }));
    }

    /// The sender gets back what cannot wait for its message to be complete.
    fn release_ahead(&mut self, at: WebStream) {
        let window = self.stream_window();
        let Some(found) = self.peers.find_mut(at.peer) else { return };
        let Some(stream) = found.streams.get_mut(&at.tag) else { return };
        let bytes = stream.incoming.release_ahead(window, found.window.is_short());
        self.give_back(at, bytes);
    }

    /// What a sender can have under way on a stream, and is to have.
    fn stream_window(&self) -> usize {
        self.limits.stream_window_bytes.min(self.settings.stream_window_bytes) as usize
    }

    /// The window gets back what a stream has taken of it.
    fn give_back(&mut self, at: WebStream, bytes: usize) {
        if let Some(found) = self.peers.find_mut(at.peer).filter(|_| bytes > 0) {
            found.window.give_back(bytes, self.settings.connection_window_bytes);
            self.release_bytes(at, bytes);
        }
    }

    /// A direction ended: what of it waits goes first. Whether it is a call's.
    pub fn handle_ending(&mut self, at: WebStream, ending: Ending) -> bool {
        self.commit(at);
        let Some(stream) = self.stream_mut(at) else { return false };
        if stream.call.is_none() || stream.incoming.over {
            return false;
        }
        stream.incoming.end(ending);
        true
    }

    /// What comes next of a stream of this call.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn next_message(
        &mut self,
        held: &mut HeldBudget,
        buffers: &LongBuffers,
        at: WebStream,
        call: &Call,
        direction: Direction,
    ) -> Result<NextMessage, FramingFault> {
        let Some(found) = self.peers.find_mut(at.peer) else { return Ok(NextMessage::Nothing) };
        let Some(stream) = found.streams.get_mut(&at.tag) else { return Ok(NextMessage::Nothing) };
        let before = stream.incoming.held();
        let Some((framed, charged)) = stream.incoming.next(buffers)? else { return Ok(NextMessage::Nothing) };
        let (encoding, left) = (stream.incoming.encoding, stream.incoming.held());
        found.note_held(held, left as isize - before as isize);
        let message = self.unpack_unless_it_passes(call, direction, framed, encoding)?;
        let Some(stream) = self.stream_mut(at) else { return Ok(NextMessage::Nothing) };
        if stream.incoming.streams {
            // An answer ends with its status.
            let end = direction == Direction::Request && stream.incoming.take_end();
            return Ok(NextMessage::Whole { message, charged, end });
        }
        if stream.incoming.message.is_some() {
            return Ok(NextMessage::TooMany);
        }
        let bytes = message.bytes.len() as isize;
        stream.incoming.message = Some(message);
        if let Some(found) = self.peers.find_mut(at.peer) {
            found.note_held(held, bytes);
        }
        Ok(NextMessage::Kept)
    }

    /// A message of a stream in this encoding: as it came if it goes on so, else unpacked.
    fn unpack_unless_it_passes(
        &self,
        call: &Call,
        direction: Direction,
        framed: Framed,
        encoding: Compression,
    ) -> Result<Arrived, FramingFault> {
        let Framed { compressed, bytes, .. } = framed;
        let packing = Packing { encoding, compressed };
        if encoding != Compression::Identity && self.passes_packed(call, direction, encoding) {
            return Ok(Arrived { bytes, compressed, packing: Some(packing) });
        }
        if !compressed {
            return Ok(Arrived { bytes, compressed, packing: None });
        }
        let plain = self.unpack_counted(packing, &bytes)?;
        Ok(Arrived { bytes: plain.into(), compressed, packing: None })
    }

    fn passes_packed(&self, call: &Call, direction: Direction, encoding: Compression) -> bool {
        let ClientEnd::Grpc { peer, stream: tag, types: Some(_) } = call.client else { return false };
        match direction {
            // Where it goes may not be known yet.
            Direction::Request => {
                let is_read = call.policies.as_ref().is_some_and(|policies| policies.reads_messages());
                let speaks_grpc = !matches!(call.server, ServerEnd::Peer { .. } | ServerEnd::R2p2 { .. });
                speaks_grpc && call.request_encoding == Some(encoding) && !is_read
            }
            Direction::Response => self
                .stream(WebStream { peer, tag })
                .is_some_and(|stream| stream.outgoing.encoding == encoding),
        }
    }

    /// A packed message itself; what it becomes is counted.
    pub(super) fn unpack_counted(&self, packing: Packing, bytes: &[u8]) -> Result<Vec<u8>, FramingFault> {
        let bytes_max = self.limits.grpc_bytes_max() as usize;
        let plain = packing.unpack(bytes, bytes_max);
        self.unpacking.charge(bytes.len(), plain.as_ref().map_or(bytes_max, Vec::len));
        plain
    }

    /// Whether a stream has to wait with its next message, which then goes on in the next turn.
    pub fn unpacks_later(&mut self, at: WebStream) -> bool {
        if !self.unpacking.is_spent() {
            return false;
        }
        let Some(found) = self.peers.find_mut(at.peer) else { return false };
        let Some(stream) = found.streams.get_mut(&at.tag) else { return false };
        if stream.incoming.encoding == Compression::Identity || !stream.incoming.has_bytes() {
            return false;
        }
        if !std::mem::replace(&mut stream.incoming.unpacks_later, true) {
            if found.unpacks.is_empty() {
                self.unpacking.wait(at.peer);
            }
            found.unpacks.push_back(at.tag);
        }
        true
    }

    /// Nothing complete is left: the sender gets back what cannot wait. Whether the direction has ended.
    ///
    /// # Errors
    /// What has come of a message that is not complete may not be held until it is: the call that ends for it.
    pub fn drain(
        &mut self,
        held: &mut HeldBudget,
        timers: &mut TimerTable<Due>,
        now: Instant,
        at: WebStream,
    ) -> Result<bool, (CallKey, Fault)> {
        let Some(stream) = self.stream_mut(at) else { return Ok(false) };
        let ended = stream.incoming.ended.is_some();
        self.release_ahead(at);
        if !ended {
            self.may_hold_unfinished(held, timers, now, at)?;
        }
        Ok(ended)
    }

    /// Whether what waits as bytes, behind messages that wait as items or to be unpacked, may do so.
    ///
    /// # Errors
    /// The call that ends for it.
    pub fn may_hold_waiting(&mut self, held: &mut HeldBudget, at: WebStream) -> Result<(), (CallKey, Fault)> {
        let Some(found) = self.peers.find_mut(at.peer) else { return Ok(()) };
        let booked = found.book(held).map_err(HeldFull::fault);
        booked.or_else(|fault| found.payer(at.tag).map_or(Ok(()), |call| Err((call, fault))))
    }

    /// Whether what has come of a message that is not complete, or before it, may be held until it is. It is looked at
    /// again in a while, whether more has come.
    ///
    /// # Errors
    /// The call that ends for it.
    pub fn may_hold_unfinished(
        &mut self,
        held: &mut HeldBudget,
        timers: &mut TimerTable<Due>,
        now: Instant,
        at: WebStream,
    ) -> Result<(), (CallKey, Fault)> {
        let Some(stream) = self.stream_mut(at) else { return Ok(()) };
        let is_unfinished = stream.incoming.note_unfinished(now);
        if let Some(stall_ns) = self.limits.message_stall_ns().filter(|_| is_unfinished) {
            self.sweep_by(timers, at.peer, now.plus_ns(stall_ns));
        }
        let bytes_max = self.limits.assembling_bytes_per_peer;
        let Some(found) = self.peers.find_mut(at.peer) else { return Ok(()) };
        let within = if found.arriving_bytes > bytes_max {
            Err(Fault::Limit { name: ARRIVING, limit: bytes_max as u64 })
        } else {
            found.book(held).map_err(HeldFull::fault)
        };
        within.or_else(|fault| found.payer(at.tag).map_or(Ok(()), |call| Err((call, fault))))
    }

    /// What a direction that has ended was.
    pub fn end_body(
        &mut self,
        held: &mut HeldBudget,
        at: WebStream,
        direction: Direction,
    ) -> Option<EndedBody> {
        let found = self.peers.find_mut(at.peer)?;
        let stream = found.streams.get_mut(&at.tag)?;
        let outcome = end_of(stream, direction);
        let before = stream.incoming.held();
        let streams = stream.incoming.streams;
        let (message, opening) = (stream.incoming.message.take(), stream.incoming.opening.take());
        let left = stream.incoming.held();
        found.note_held(held, left as isize - before as isize);
        Some(EndedBody { outcome, streams, message, opening })
    }

    /// The application is through with a message that took so much of the window.
    pub fn grant(&mut self, at: WebStream, bytes: u32) {
        let window = self.stream_window();
        let Some(found) = self.peers.find_mut(at.peer) else { return };
        let Some(stream) = found.streams.get_mut(&at.tag) else { return };
        let mut bytes = stream.incoming.grant(bytes as usize);
        if found.window.is_short() && stream.incoming.is_unfinished() {
            // It may be that which the rest has waited for.
            bytes += stream.incoming.release_ahead(window, true);
        }
        self.give_back(at, bytes);
    }

    /// The sender may send so many bytes more.
    pub(super) fn release_bytes(&mut self, at: WebStream, bytes: usize) {
        if bytes > 0 {
            self.command(at.peer, Command::Release { stream: at.tag, bytes });
        }
    }

    /// Holds bytes of a call for the connection they came from, if those are few enough.
    ///
    /// # Errors
    /// The limit.
    pub fn hold(&mut self, key: GrpcKey, bytes: usize) -> Result<(), Fault> {
        let limit = self.limits.assembling_bytes_per_peer;
        let Some(peer) = self.peers.find_mut(key).filter(|_| bytes > 0) else { return Ok(()) };
        if peer.arriving_bytes + bytes > limit {
            return Err(Fault::Limit { name: ARRIVING, limit: limit as u64 });
        }
        peer.arriving_bytes += bytes;
        Ok(())
    }

    /// Bytes of a call are not held for the connection they came from any more.
    pub fn hold_less(&mut self, key: GrpcKey, bytes: usize) {
        if let Some(peer) = self.peers.find_mut(key) {
            peer.arriving_bytes = peer.arriving_bytes.saturating_sub(bytes);
        }
    }

    /// The answer to a call that was forwarded is compressed as its server has compressed it, if its client reads that.
    pub fn pass_encoding_on(&mut self, call: &Call, encoding: Compression) {
        if encoding != Compression::Identity
            && let Some(stream) = self.forwarded_stream(call)
        {
            stream.outgoing.encoding = stream.outgoing.accepts.or_identity(encoding);
        }
    }

    /// A server has said which encodings it reads, and the one of its client's request is not among them: its client
    /// hears that as it was said.
    pub fn pass_refusal_on(&mut self, call: &Call, accepts: Accepts) {
        if let Some(stream) = self.forwarded_stream(call) {
            stream.outgoing.reads = accepts;
        }
    }

    fn forwarded_stream(&mut self, call: &Call) -> Option<&mut GrpcStream> {
        let ClientEnd::Grpc { peer, stream: tag, types: Some(_) } = call.client else { return None };
        self.stream_mut(WebStream { peer, tag })
    }

    /// A call that was forwarded goes on as its attempt: its client's stream is that one's.
    pub fn rename_call(&mut self, call: &Call, attempt: CallKey) {
        if let ClientEnd::Grpc { peer, stream: tag, .. } = call.client
            && let Some(stream) = self.stream_mut(WebStream { peer, tag })
        {
            stream.call = Some(attempt);
        }
    }

    /// Calls whose messages do not go on, and answers whose deadlines have passed before they left.
    pub fn sweep(&mut self, timers: &mut TimerTable<Due>, now: Instant, key: GrpcKey) -> SweptStreams {
        let mut swept = SweptStreams::default();
        let window = self.stream_window();
        let Some(peer) = self.peers.find_mut(key) else { return swept };
        peer.sweep = None;
        let takes_more = peer.window.takes_more(self.settings.connection_window_bytes);
        let stall_ns = self.limits.message_stall_ns();
        let mut next = None::<Instant>;
        for (tag, stream) in &mut peer.streams {
            let mut again = |at: Instant| next = Some(next.map_or(at, |next| next.min(at)));
            if let Some(call) = stream.call {
                match stall_ns.filter(|_| stream.incoming.is_unfinished()) {
                    Some(stall_ns) if stream.incoming.has_stalled(now, stall_ns, window, takes_more) => {
                        swept.stalled.push(call);
                    }
                    // Not often for each of many streams: it may be noticed a quarter of that time late.
                    Some(stall_ns) => {
                        again(stream.incoming.stalls_at(now, stall_ns).max(now.plus_ns(stall_ns / 4)));
                    }
                    None => {}
                }
            } else if stream.deadline.has_passed(now) {
                swept.late.push(WebStream { peer: key, tag: *tag });
            } else if let Some(at) = stream.deadline.instant() {
                again(at.max(now.plus_ns(SWEEP_NS_MIN)));
            }
        }
        if let Some(at) = next {
            self.sweep_by(timers, key, at);
        }
        swept
    }
}

/// A message, to go along its call.
pub(crate) fn body_of(message: &Arrived, charged: u32) -> Body<'_> {
    let bytes = Cow::Borrowed(&*message.bytes);
    match message.packing {
        Some(packing) => Body::Packed { bytes, packing, charged },
        None => Body::Wire { bytes, encoding: Encoding::Protobuf, charged, compressed: message.compressed },
    }
}

/// What the end of a direction means: its outcome (OK for a request), or what was wrong with it.
fn end_of(stream: &mut GrpcStream, direction: Direction) -> Result<Outcome<'static>, Outcome<'static>> {
    let outcome = match (stream.incoming.ended.take(), direction) {
        (_, Direction::Request) | (None, _) => {
            Outcome { code: Code::Ok, execution: Execution::Executed, metadata: Cow::Borrowed(&[]) }
        }
        (Some(Ending::Outcome(outcome)), Direction::Response) => outcome,
        (Some(Ending::Body), Direction::Response) => response::of_missing_trailers(),
    };
    if outcome.code != Code::Ok {
        return Ok(outcome);
    }
    stream.incoming.finish().map_err(|fault| of_framing(&fault, direction))?;
    if !stream.incoming.streams && stream.incoming.message.is_none() {
        return Err(of_cardinality(0, direction));
    }
    Ok(outcome)
}

/// How a call ends whose body does not come in frames.
pub(crate) fn of_framing(fault: &FramingFault, direction: Direction) -> Outcome<'static> {
    match direction {
        Direction::Request => request::of_framing(fault),
        Direction::Response => response::of_framing(fault),
    }
}

/// How a call ends that has so many messages in a direction that has one.
pub(crate) fn of_cardinality(messages: usize, direction: Direction) -> Outcome<'static> {
    match direction {
        Direction::Request => request::of_cardinality(messages),
        Direction::Response => response::of_cardinality(messages),
    }
}
