//! The frames of a relayed session: what an application's rings, heaps and control socket hold, carried over a byte
//! stream between it and a relay on the daemon's host (docs/remote.md).
//!
//! A frame is a header of eight bytes and a body: `kind: u8 | flags: u8 | zero: u16 | body bytes: u32`, little-endian.
//! Everything here comes over the network: [`LinkFrame::parse`] accepts any bytes and refuses what no version says.

use crate::PACKET_BYTES_MAX;

/// Bytes of a frame's header.
pub const FRAME_HEADER_BYTES: usize = 8;
/// Bytes of a heap that one frame carries at most: an entry behind it waits for no more.
pub const FRAME_PART_BYTES_MAX: usize = 64 * 1024;
/// Longest body: a control packet, or a part of a heap with its place.
pub const FRAME_BODY_BYTES_MAX: usize = FRAME_PART_BYTES_MAX + 4;
/// Longest reason in a [`LinkFrame::Close`].
pub const CLOSE_BYTES_MAX: usize = 1024;
/// Version of these frames.
pub const RELAY_VERSION: u16 = 1;

/// What HELLO begins with: "TRKA".
const MAGIC: u32 = u32::from_le_bytes(*b"TRKA");
/// Bytes of a HELLO of this version. Later ones may be longer.
const HELLO_BYTES: usize = 16;
const HELLO_BYTES_MAX: usize = 1024;
/// Bytes of a ring entry.
const ENTRY_BYTES: usize = 64;

const _: () = assert!(PACKET_BYTES_MAX <= FRAME_BODY_BYTES_MAX, "a control packet fits in a frame");

/// One frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkFrame<'a> {
    /// The first of both sides.
    Hello(RelayHello),
    /// A control packet. `heap`: a descriptor of a receive heap came with it.
    Packet {
        /// The packet, as it was.
        packet: &'a [u8],
        /// Whether it announces a receive heap.
        heap: bool,
    },
    /// A part of the descriptor set of the next packet.
    Blob(&'a [u8]),
    /// Bytes of the heap that the sender's side writes.
    Bytes {
        /// Their place, as entries name it.
        offset: u32,
        /// One at least.
        bytes: &'a [u8],
    },
    /// A ring entry, whose bytes have all come before.
    Entry([u64; 8]),
    /// The application's clock, to be answered at once.
    Ping {
        /// Nanoseconds on the application's clock.
        sent_ns: u64,
    },
    /// The answer.
    Pong {
        /// As asked.
        sent_ns: u64,
        /// Nanoseconds on the daemon's host's clock.
        clock_ns: u64,
    },
    /// The last: why the sender ends.
    Close(&'a str),
}

/// What both sides say first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayHello {
    /// Newest version spoken.
    pub newest: u16,
    /// Oldest version spoken.
    pub oldest: u16,
    /// Equal on both sides: they read the same clock.
    pub clock_id: u64,
}

/// Why bytes are no frame. The connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkFrameError {
    /// A kind, or flags, of no version known here.
    #[error("frame of kind {kind} with flags {flags:#x} is not one of version {RELAY_VERSION}")]
    Unknown {
        /// Kind.
        kind: u8,
        /// Flags.
        flags: u8,
    },
    /// A body that is too long or too short for its kind.
    #[error("frame of kind {kind} with {bytes} bytes")]
    Length {
        /// Kind.
        kind: u8,
        /// Bytes of its body.
        bytes: usize,
    },
    /// The first bytes are no HELLO of this protocol.
    #[error("the other side does not speak the protocol of relayed sessions")]
    Magic,
    /// A reason that is not UTF-8.
    #[error("a reason is not UTF-8")]
    Text,
}

mod kind {
    pub const HELLO: u8 = 1;
    pub const PACKET: u8 = 2;
    pub const BLOB: u8 = 3;
    pub const BYTES: u8 = 4;
    pub const ENTRY: u8 = 5;
    pub const PING: u8 = 6;
    pub const PONG: u8 = 7;
    pub const CLOSE: u8 = 8;
}

/// Of [`LinkFrame::Packet`].
const HEAP_FLAG: u8 = 1;

impl RelayHello {
    /// What this version says.
    pub fn new(clock_id: u64) -> Self {
        Self { newest: RELAY_VERSION, oldest: RELAY_VERSION, clock_id }
    }

    /// Whether both sides speak one version.
    pub fn agrees_with(&self, other: &Self) -> bool {
        self.newest.min(other.newest) >= self.oldest.max(other.oldest)
    }
}

impl<'a> LinkFrame<'a> {
    /// The first frame of `bytes` and its length; `None` while it is not whole.
    ///
    /// # Errors
    /// [`LinkFrameError`], as soon as the header shows it.
    pub fn parse(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, LinkFrameError> {
        let Some((header, rest)) = bytes.split_first_chunk::<FRAME_HEADER_BYTES>() else { return Ok(None) };
        let (kind, flags) = (header[0], header[1]);
        let body_bytes = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
        let is_known = (kind::HELLO..=kind::CLOSE).contains(&kind)
            && flags & !(if kind == kind::PACKET { HEAP_FLAG } else { 0 }) == 0
            && header[2..4] == [0, 0];
        if !is_known {
            return Err(LinkFrameError::Unknown { kind, flags });
        }
        let length = LinkFrameError::Length { kind, bytes: body_bytes };
        if !lengths(kind).contains(&body_bytes) {
            return Err(length);
        }
        let Some(body) = rest.get(..body_bytes) else { return Ok(None) };
        let frame = match kind {
            kind::HELLO => Self::Hello(hello(body)?),
            kind::PACKET => Self::Packet { packet: body, heap: flags & HEAP_FLAG != 0 },
            kind::BLOB => Self::Blob(body),
            kind::BYTES => {
                let (offset, bytes) = body.split_first_chunk().ok_or(length)?;
                Self::Bytes { offset: u32::from_le_bytes(*offset), bytes }
            }
            kind::ENTRY => {
                let mut entry = [0; 8];
                for (word, bytes) in entry.iter_mut().zip(body.as_chunks::<8>().0) {
                    *word = u64::from_le_bytes(*bytes);
                }
                Self::Entry(entry)
            }
            kind::PING => Self::Ping { sent_ns: word(body, 0) },
            kind::PONG => Self::Pong { sent_ns: word(body, 0), clock_ns: word(body, 8) },
            _ => Self::Close(std::str::from_utf8(body).map_err(|_| LinkFrameError::Text)?),
        };
        Ok(Some((frame, FRAME_HEADER_BYTES + body_bytes)))
    }

    /// Writes the frame behind what is in `out`. Bodies are within their limits: their makers cut them.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Hello(hello) => {
                header(out, kind::HELLO, 0, HELLO_BYTES);
                out.extend(MAGIC.to_le_bytes());
                out.extend(hello.newest.to_le_bytes());
                out.extend(hello.oldest.to_le_bytes());
                out.extend(hello.clock_id.to_le_bytes());
            }
            Self::Packet { packet, heap } => {
                header(out, kind::PACKET, if heap { HEAP_FLAG } else { 0 }, packet.len());
                out.extend(packet);
            }
            Self::Blob(part) => {
                header(out, kind::BLOB, 0, part.len());
                out.extend(part);
            }
            Self::Bytes { offset, bytes } => {
                header(out, kind::BYTES, 0, 4 + bytes.len());
                out.extend(offset.to_le_bytes());
                out.extend(bytes);
            }
            Self::Entry(entry) => {
                header(out, kind::ENTRY, 0, ENTRY_BYTES);
                entry.iter().for_each(|word| out.extend(word.to_le_bytes()));
            }
            Self::Ping { sent_ns } => {
                header(out, kind::PING, 0, 8);
                out.extend(sent_ns.to_le_bytes());
            }
            Self::Pong { sent_ns, clock_ns } => {
                header(out, kind::PONG, 0, 16);
                out.extend(sent_ns.to_le_bytes());
                out.extend(clock_ns.to_le_bytes());
            }
            Self::Close(reason) => {
                let reason = &reason[..reason.floor_char_boundary(CLOSE_BYTES_MAX)];
                header(out, kind::CLOSE, 0, reason.len());
                out.extend(reason.as_bytes());
            }
        }
    }
}

/// The lengths a body of this kind may have.
fn lengths(kind: u8) -> std::ops::RangeInclusive<usize> {
    match kind {
        kind::HELLO => HELLO_BYTES..=HELLO_BYTES_MAX,
        kind::PACKET => 1..=PACKET_BYTES_MAX,
        kind::BLOB => 1..=FRAME_PART_BYTES_MAX,
        kind::BYTES => 5..=FRAME_BODY_BYTES_MAX,
        kind::ENTRY => ENTRY_BYTES..=ENTRY_BYTES,
        kind::PING => 8..=8,
        kind::PONG => 16..=16,
        _ => 0..=CLOSE_BYTES_MAX,
    }
}

fn hello(body: &[u8]) -> Result<RelayHello, LinkFrameError> {
    let first = word(body, 0);
    if first as u32 != MAGIC {
        return Err(LinkFrameError::Magic);
    }
    Ok(RelayHello { newest: (first >> 32) as u16, oldest: (first >> 48) as u16, clock_id: word(body, 8) })
}

/// Eight bytes of a body, whose length was looked at.
fn word(body: &[u8], at: usize) -> u64 {
    let bytes = body.get(at..).and_then(|rest| rest.first_chunk());
    u64::from_le_bytes(bytes.copied().unwrap_or_default())
}

fn header(out: &mut Vec<u8>, kind: u8, flags: u8, body_bytes: usize) {
    out.extend([kind, flags, 0, 0]);
    out.extend((body_bytes as u32).to_le_bytes());
}

#[cfg(test)]
mod tests {
    //! Shows that frames survive their bytes, in whatever parts those come, and that any bytes are frames or refused.
    use super::*;
    use proptest::prelude::*;

    fn all() -> Vec<LinkFrame<'static>> {
        vec![
            LinkFrame::Hello(RelayHello { newest: 3, oldest: 1, clock_id: 7 << 40 }),
            LinkFrame::Packet { packet: b"packet", heap: true },
            LinkFrame::Blob(b"blob"),
            LinkFrame::Bytes { offset: 64, bytes: b"x" },
            LinkFrame::Entry([1, 2, 3, 4, 5, 6, 7, u64::MAX]),
            LinkFrame::Ping { sent_ns: 5 },
            LinkFrame::Pong { sent_ns: 5, clock_ns: u64::MAX },
            LinkFrame::Close("done"),
        ]
    }

    #[test]
    fn frames_survive_their_bytes() {
        for frame in all() {
            let mut bytes = Vec::new();
            frame.encode(&mut bytes);
            for short in 0..bytes.len() {
                assert_eq!(LinkFrame::parse(&bytes[..short]), Ok(None), "{frame:?}");
            }
            let length = bytes.len();
            bytes.push(0xff);
            assert_eq!(LinkFrame::parse(&bytes), Ok(Some((frame, length))));
        }
    }

    #[test]
    fn what_no_version_says_is_refused_by_its_header() {
        let refused = |header: [u8; 8]| LinkFrame::parse(&header).unwrap_err();
        assert_eq!(refused([9, 0, 0, 0, 0, 0, 0, 0]), LinkFrameError::Unknown { kind: 9, flags: 0 });
        assert_eq!(refused([5, 1, 0, 0, 64, 0, 0, 0]), LinkFrameError::Unknown { kind: 5, flags: 1 });
        assert_eq!(refused([5, 0, 0, 0, 65, 0, 0, 0]), LinkFrameError::Length { kind: 5, bytes: 65 });
        let longest = (FRAME_BODY_BYTES_MAX as u32 + 1).to_le_bytes();
        let header = [4, 0, 0, 0, longest[0], longest[1], longest[2], longest[3]];
        assert!(matches!(refused(header), LinkFrameError::Length { kind: 4, .. }));
        let mut other = Vec::new();
        LinkFrame::Hello(RelayHello::new(1)).encode(&mut other);
        other[8] = b'X';
        assert_eq!(LinkFrame::parse(&other), Err(LinkFrameError::Magic));
    }

    #[test]
    fn versions_agree_where_they_overlap() {
        let of = |newest, oldest| RelayHello { newest, oldest, clock_id: 0 };
        assert!(of(1, 1).agrees_with(&of(3, 1)) && of(3, 1).agrees_with(&of(2, 2)));
        assert!(!of(1, 1).agrees_with(&of(3, 2)));
    }

    #[test]
    fn long_reasons_are_cut_between_characters() {
        let mut bytes = Vec::new();
        LinkFrame::Close(&"ü".repeat(CLOSE_BYTES_MAX)).encode(&mut bytes);
        let parsed = LinkFrame::parse(&bytes).unwrap().unwrap().0;
        assert_eq!(parsed, LinkFrame::Close(&"ü".repeat(CLOSE_BYTES_MAX / 2)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_frames_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300), kind in 0u8..10) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() {
                *first = kind;
            }
            if let Ok(Some((frame, length))) = LinkFrame::parse(&bytes) {
                prop_assert!(length <= bytes.len());
                let mut again = Vec::new();
                frame.encode(&mut again);
                prop_assert_eq!(LinkFrame::parse(&again).unwrap().unwrap().0, frame);
            }
        }
    }
}
