//! Length-prefixed messages: one flag byte, four bytes of length, the message (PROTOCOL-HTTP2,
//! "Length-Prefixed-Message").

use crate::buffers::{LONG_BYTES, LongBuffer, LongBuffers};
use bytes::{Buf, Bytes, BytesMut};
use std::collections::VecDeque;
use trunkline_call::Code;

/// Bytes before every message.
pub const PREFIX_BYTES: usize = 5;

/// Pieces up to this size are copied together while they wait, so that a body sent byte by byte costs its bytes, and
/// not a handle of 32 bytes and a pinned read buffer each.
const SMALL_PIECE_BYTES: usize = 1024;

/// By how much the room of a message that comes in pieces grows at a time.
const GROWTH: usize = 8;

/// A message as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Framed {
    /// Whether it is compressed, in the encoding the head named.
    pub compressed: bool,
    /// The message. A slice of the piece it came in, if it came in one.
    pub bytes: Bytes,
    /// How many of its bytes [`Deframer::take_early`] has told before.
    pub early: usize,
}

/// Cuts a body into messages. Holds no more than was pushed, and copies only what came in several pieces.
#[derive(Debug)]
pub struct Deframer {
    limit: usize,
    /// Being read.
    front: Bytes,
    /// Behind it, in order: whole pieces, then small ones copied together.
    queue: VecDeque<Bytes>,
    tail: BytesMut,
    /// Pushed and not yet read.
    pending: usize,
    /// The prefix being read.
    prefix: [u8; PREFIX_BYTES],
    prefix_len: usize,
    /// The message being put together out of pieces.
    partial: LongBuffer,
    early: usize,
}

/// What is wrong with a body.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FramingFault {
    /// The prefix announces more than is taken.
    #[error("message of {len} bytes exceeds the limit of {limit} bytes (limits.grpc_message_bytes)")]
    TooLarge {
        /// What it announces.
        len: usize,
        /// What is taken.
        limit: usize,
    },
    /// Decompressed, it is more than is taken.
    #[error("message exceeds the limit of {limit} bytes (limits.grpc_message_bytes) once decompressed")]
    Inflated {
        /// What is taken.
        limit: usize,
    },
    /// The flag byte is neither 0 nor 1.
    #[error("message prefix has flags {0:#04x}: 0x00 or 0x01 are defined")]
    Flags(u8),
    /// The body ends in the middle of a message.
    #[error("body ends {missing} bytes before the end of a message")]
    Truncated {
        /// What is not there.
        missing: usize,
    },
    /// A message is flagged as compressed in a call whose head named no encoding.
    #[error("message is flagged as compressed, but the head names no grpc-encoding")]
    NoEncoding,
    /// The bytes are not what the encoding makes.
    #[error("message is not valid {encoding}: {why}")]
    Decompress {
        /// Its name.
        encoding: &'static str,
        /// As the decompressor says.
        why: String,
    },
    /// A message of our own could not be compressed.
    #[error("message could not be compressed with {encoding}: {why}")]
    Compress {
        /// Its name.
        encoding: &'static str,
        /// As the compressor says.
        why: String,
    },
}

/// The prefix of a message of so many bytes. A message past 4 GiB cannot be framed and is cut off long before.
pub fn prefix(len: u32, compressed: bool) -> [u8; PREFIX_BYTES] {
    let [a, b, c, d] = len.to_be_bytes();
    [u8::from(compressed), a, b, c, d]
}

impl Deframer {
    /// Takes messages of up to `limit` bytes as they are on the wire.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            front: Bytes::new(),
            queue: VecDeque::new(),
            tail: BytesMut::new(),
            pending: 0,
            prefix: [0; PREFIX_BYTES],
            prefix_len: 0,
            partial: LongBuffer::default(),
            early: 0,
        }
    }

    /// Takes the next piece of the body.
    pub fn push(&mut self, bytes: Bytes) {
        if bytes.is_empty() {
            return;
        }
        self.pending += bytes.len();
        if self.pending == bytes.len() {
            self.front = bytes;
        } else if bytes.len() <= SMALL_PIECE_BYTES {
            self.tail.extend_from_slice(&bytes);
        } else {
            self.close_tail();
            self.queue.push_back(bytes);
        }
    }

    /// The next whole message, or nothing until more is pushed.
    ///
    /// # Errors
    /// [`FramingFault::Flags`] or [`FramingFault::TooLarge`], as soon as the prefix is there. The body is of no use
    /// any more then.
    #[allow(clippy::should_implement_trait, reason = "an iterator would end with `None`; this goes on")]
    pub fn next(&mut self) -> Result<Option<Framed>, FramingFault> {
        self.next_by(None)
    }

    /// The same; a long message that came in pieces is put together in a buffer of these.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub fn next_in(&mut self, buffers: &LongBuffers) -> Result<Option<Framed>, FramingFault> {
        self.next_by(Some(buffers))
    }

    fn next_by(&mut self, buffers: Option<&LongBuffers>) -> Result<Option<Framed>, FramingFault> {
        if !self.read_prefix() {
            return Ok(None);
        }
        let (compressed, len) = self.checked_prefix()?;
        let Some(bytes) = self.read_message(len, buffers) else { return Ok(None) };
        self.prefix_len = 0;
        Ok(Some(Framed { compressed, bytes, early: std::mem::take(&mut self.early) }))
    }

    /// The body is over.
    ///
    /// # Errors
    /// [`FramingFault::Truncated`] if it ends within a message.
    pub fn finish(&self) -> Result<(), FramingFault> {
        let within = self.prefix_len > 0 || self.pending > 0;
        let missing = match self.checked_prefix() {
            Ok((_, len)) if self.prefix_len == PREFIX_BYTES => len - self.partial.bytes.len(),
            _ => PREFIX_BYTES - self.prefix_len,
        };
        if within { Err(FramingFault::Truncated { missing }) } else { Ok(()) }
    }

    /// Bytes held of a message that is not whole yet, and not told before. To be given back to the sender's window at
    /// once, or a message larger than the window never arrives whole; `limit` bounds what one stream can get that way.
    /// To be asked when [`Self::next`] has nothing.
    pub fn take_early(&mut self) -> usize {
        let held = self.prefix_len + self.partial.bytes.len();
        std::mem::replace(&mut self.early, held).abs_diff(held)
    }

    /// Bytes pushed that are not part of a message told yet.
    pub fn held(&self) -> usize {
        self.pending + self.prefix_len + self.partial.bytes.len()
    }

    fn checked_prefix(&self) -> Result<(bool, usize), FramingFault> {
        let [flags, a, b, c, d] = self.prefix;
        let len = u32::from_be_bytes([a, b, c, d]) as usize;
        match flags {
            0 | 1 if len <= self.limit => Ok((flags == 1, len)),
            0 | 1 => Err(FramingFault::TooLarge { len, limit: self.limit }),
            _ => Err(FramingFault::Flags(flags)),
        }
    }

    fn read_prefix(&mut self) -> bool {
        while self.prefix_len < PREFIX_BYTES {
            let read = self.front.len().min(PREFIX_BYTES - self.prefix_len);
            self.prefix[self.prefix_len..self.prefix_len + read].copy_from_slice(&self.front[..read]);
            self.prefix_len += read;
            self.advance(read);
            if read == 0 && !self.refill() {
                return false;
            }
        }
        true
    }

    fn read_message(&mut self, len: usize, buffers: Option<&LongBuffers>) -> Option<Bytes> {
        let buffers = buffers.filter(|_| len >= LONG_BYTES);
        if self.front.is_empty() {
            self.refill();
        }
        if self.partial.bytes.is_empty() && self.front.len() >= len {
            self.pending -= len;
            return Some(self.front.split_to(len));
        }
        if let Some(buffers) = buffers
            && self.partial.bytes.capacity() == 0
            && !self.front.is_empty()
        {
            self.partial = buffers.take(len);
            self.partial.bytes.clear();
        }
        while self.partial.bytes.len() < len {
            let read = self.front.len().min(len - self.partial.bytes.len());
            self.grow_partial(read, len);
            self.partial.bytes.extend_from_slice(&self.front[..read]);
            self.advance(read);
            if read == 0 && !self.refill() {
                return None;
            }
        }
        let mut whole = std::mem::take(&mut self.partial);
        Some(match buffers {
            Some(buffers) => buffers.share(whole, 0),
            None => std::mem::take(&mut whole.bytes).into(),
        })
    }

    /// Room grows with what is there, never with what the prefix announces: by steps of several times, since each
    /// copies what is there, and room that nothing was written to costs addresses and no memory. What is used again has
    /// a bound of its own.
    fn grow_partial(&mut self, read: usize, len: usize) {
        let there = self.partial.bytes.len() + read;
        if there > self.partial.bytes.capacity() {
            let room = there.saturating_mul(GROWTH).min(len);
            self.partial.bytes.reserve_exact(room - self.partial.bytes.len());
        }
    }

    fn advance(&mut self, bytes: usize) {
        self.front.advance(bytes);
        self.pending -= bytes;
    }

    fn refill(&mut self) -> bool {
        if self.queue.is_empty() {
            self.close_tail();
        }
        self.front = self.queue.pop_front().unwrap_or_default();
        !self.front.is_empty()
    }

    fn close_tail(&mut self) {
        if !self.tail.is_empty() {
            self.queue.push_back(std::mem::take(&mut self.tail).freeze());
        }
    }
}

impl Framed {
    /// What the message took of the windows and has not given back early.
    pub fn window_bytes(&self) -> usize {
        PREFIX_BYTES + self.bytes.len() - self.early
    }
}

impl FramingFault {
    /// The status of a call that meets it (gRPC, statuscodes.md and compression.md).
    pub fn code(&self) -> Code {
        match self {
            Self::TooLarge { .. } | Self::Inflated { .. } => Code::ResourceExhausted,
            Self::Flags(_)
            | Self::Truncated { .. }
            | Self::NoEncoding
            | Self::Decompress { .. }
            | Self::Compress { .. } => Code::Internal,
        }
    }
}

#[cfg(test)]
mod tests {
    //! Shows that messages come out as they went in however the body is cut, and what a body costs while it waits.
    use super::*;
    use proptest::prelude::*;

    fn body(messages: &[(bool, Vec<u8>)]) -> Vec<u8> {
        let framed = |(compressed, bytes): &(bool, Vec<u8>)| {
            [&prefix(bytes.len() as u32, *compressed)[..], bytes].concat()
        };
        messages.iter().flat_map(framed).collect()
    }

    #[test]
    fn a_message_in_one_piece_is_not_copied() {
        let piece =
            Bytes::from(body(&[(false, b"one".to_vec()), (true, b"".to_vec()), (false, b"three".to_vec())]));
        let mut deframer = Deframer::new(10);
        deframer.push(piece.clone());
        for (compressed, from, to) in [(false, 5, 8), (true, 13, 13), (false, 18, 23)] {
            let framed = deframer.next().unwrap().unwrap();
            assert_eq!((framed.compressed, &framed.bytes[..]), (compressed, &piece[from..to]));
            assert!(framed.bytes.is_empty() || std::ptr::eq(framed.bytes.as_ptr(), &raw const piece[from]));
        }
        assert_eq!((deframer.next(), deframer.finish()), (Ok(None), Ok(())));
    }

    #[test]
    fn what_is_wrong_is_told_with_the_prefix() {
        let next = |bytes: &'static [u8]| {
            let mut deframer = Deframer::new(100);
            deframer.push(Bytes::from_static(bytes));
            deframer.next()
        };
        assert_eq!(next(b"\x00\x00\x00\x00\x65"), Err(FramingFault::TooLarge { len: 101, limit: 100 }));
        let largest = FramingFault::TooLarge { len: u32::MAX as usize, limit: 100 };
        assert_eq!(next(b"\x01\xff\xff\xff\xff"), Err(largest));
        assert_eq!(next(b"\x02\x00\x00\x00\x00"), Err(FramingFault::Flags(2)));
        assert_eq!(next(b"\x80\xff\xff\xff\xff"), Err(FramingFault::Flags(0x80)));
        assert_eq!(next(b"\x00\x00\x00\x00"), Ok(None));
    }

    #[test]
    fn a_body_that_ends_early_is_told() {
        for (bytes, missing) in
            [(&b"\x00"[..], 4), (b"\x00\x00\x00\x00\x03", 3), (b"\x00\x00\x00\x00\x03ab", 1)]
        {
            let mut deframer = Deframer::new(100);
            deframer.push(Bytes::copy_from_slice(bytes));
            assert_eq!(deframer.next(), Ok(None));
            assert_eq!(deframer.finish(), Err(FramingFault::Truncated { missing }));
        }
        assert_eq!(Deframer::new(100).finish(), Ok(()));
    }

    #[test]
    fn an_announced_length_takes_no_memory() {
        let mut deframer = Deframer::new(u32::MAX as usize);
        deframer.push(Bytes::from_static(b"\x00\xff\xff\xff\xffabc"));
        assert_eq!(deframer.next(), Ok(None));
        assert!(deframer.partial.bytes.capacity() < 100);
        assert_eq!(deframer.held(), 8);
    }

    #[test]
    fn long_messages_have_buffers_that_were_used_before() {
        let (buffers, mut deframer) = (LongBuffers::default(), Deframer::new(1 << 20));
        for len in [200_000, 199_999, LONG_BYTES, 300_000, 200_000] {
            let message: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
            let whole = body(&[(false, message.clone())]);
            let mut told = Vec::new();
            for piece in whole.chunks(16_000) {
                deframer.push(Bytes::copy_from_slice(piece));
                told.extend(deframer.next_in(&buffers).unwrap());
            }
            assert_eq!(told.len(), 1);
            assert!(told[0].bytes == message && deframer.held() == 0, "a message of {len} bytes");
        }
    }

    #[test]
    fn a_body_sent_byte_by_byte_costs_its_bytes() {
        let mut deframer = Deframer::new(1 << 20);
        for byte in body(&[(false, vec![7; 100_000])]) {
            deframer.push(Bytes::copy_from_slice(&[byte]));
        }
        assert!(deframer.queue.len() <= 1 && deframer.tail.capacity() <= 400_000);
        assert_eq!(deframer.next().unwrap().unwrap().bytes.len(), 100_000);
    }

    #[test]
    fn windows_are_given_back_once() {
        let message = vec![1; 10_000];
        let mut deframer = Deframer::new(1 << 20);
        let mut given = 0;
        for piece in body(&[(false, message.clone()), (false, message)]).chunks(3000) {
            deframer.push(Bytes::copy_from_slice(piece));
            while let Some(framed) = deframer.next().unwrap() {
                given += framed.window_bytes();
            }
            given += deframer.take_early();
            assert_eq!(deframer.take_early(), 0);
        }
        assert_eq!(given, 20_010);
    }

    proptest! {
        #[test]
        fn however_it_is_cut(
            messages in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..3000)), 0..6),
            cuts in prop::collection::vec(1usize..2500, 1..50),
            eager in any::<bool>(),
        ) {
            let (bytes, mut deframer) = (body(&messages), Deframer::new(3000));
            let (mut out, mut rest, mut given) = (Vec::new(), &bytes[..], 0);
            for cut in cuts.iter().cycle() {
                let (piece, after) = rest.split_at((*cut).min(rest.len()));
                deframer.push(Bytes::copy_from_slice(piece));
                while eager && let Some(framed) = deframer.next().unwrap() {
                    given += framed.window_bytes();
                    out.push((framed.compressed, framed.bytes.to_vec()));
                }
                given += if eager { deframer.take_early() } else { 0 };
                rest = after;
                if rest.is_empty() {
                    break;
                }
            }
            while let Some(framed) = deframer.next().unwrap() {
                given += framed.window_bytes();
                out.push((framed.compressed, framed.bytes.to_vec()));
            }
            prop_assert_eq!(out, messages);
            prop_assert_eq!(given, bytes.len());
            prop_assert_eq!(deframer.finish(), Ok(()));
            prop_assert_eq!(deframer.held(), 0);
        }

        #[test]
        fn any_bytes(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 0..20)) {
            let mut deframer = Deframer::new(1000);
            for piece in pieces {
                deframer.push(Bytes::from(piece));
                while let Ok(Some(framed)) = deframer.next() {
                    prop_assert!(framed.bytes.len() <= 1000);
                }
            }
            let _ = deframer.finish();
        }
    }
}
