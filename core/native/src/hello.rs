//! The first frame of both sides. Each sends its HELLO without waiting for the other's.
//!
//! [`AwaitHello`] is consumed by the peer's frame and leaves a [`Peer`]: nothing else makes one, so a command that
//! needs the peer's limits cannot run before they are known.

use crate::frame_type::FrameType;
use crate::wire::{HEADER_BYTES, Header};
use crate::{Config, Features, Limits, ProtocolError};
use trunkline_call::{Instant, printable};

/// The version spoken here, highest and lowest.
pub(crate) const VERSION: u16 = 1;
pub(crate) const VERSION_MIN: u16 = 1;

/// Fixed part of the HELLO body; the node name follows. What follows the name belongs to later versions and is skipped.
const FIXED_BYTES: usize = 50;

/// Longest HELLO body that is read: room for later versions, none for a flood.
const BODY_BYTES_MAX: u32 = 4096;

/// What the two sides agreed on, and who the peer is.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Peer {
    /// Version both speak.
    pub version: u16,
    /// Features in use.
    pub features: Features,
    /// The peer's clock; equal to our own on the same boot of the same host.
    pub clock_id: u64,
    /// What the peer accepts.
    pub limits: Limits,
    /// What the peer calls itself. A claim: nothing is decided by it.
    pub node_name: String,
}

/// The handshake state before the peer's HELLO.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct AwaitHello {
    offered: Features,
    /// When to give up.
    pub give_up_at: Instant,
}

impl AwaitHello {
    /// Writes our HELLO and waits for the other.
    pub fn start(config: &Config, limits: &Limits, now: Instant, out: &mut Vec<u8>) -> Self {
        encode(config, limits, out);
        Self { offered: config.features, give_up_at: now.plus_ns(config.hello_timeout_ns) }
    }

    /// It can be heard from now on.
    pub fn begin(&mut self, config: &Config, now: Instant) {
        self.give_up_at = now.plus_ns(config.hello_timeout_ns);
    }

    /// The length of a HELLO body, checked before any of it has arrived.
    ///
    /// # Errors
    /// [`ProtocolError`] if the frame is not a HELLO or its length cannot be.
    pub fn body_bytes(header: &Header) -> Result<usize, ProtocolError> {
        if header.frame != FrameType::Hello {
            let why = "the first frame must be HELLO";
            return Err(ProtocolError::OutOfPlace { frame: header.frame, stream: header.stream, why });
        }
        if header.length < FIXED_BYTES as u32 || header.length > BODY_BYTES_MAX {
            return Err(field("length", header.length.into(), "50 to 4096"));
        }
        Ok(header.length as usize)
    }

    /// Reads the peer's HELLO.
    ///
    /// # Errors
    /// [`ProtocolError`] naming the field that cannot be.
    pub fn handle(self, body: &[u8]) -> Result<Peer, ProtocolError> {
        let fixed =
            body.first_chunk::<FIXED_BYTES>().ok_or(field("length", body.len() as u64, "50 to 4096"))?;
        let version = agree_on_version(u16_at(fixed, 0), u16_at(fixed, 2))?;
        let name_bytes = usize::from(u16_at(fixed, 48));
        let name = body[FIXED_BYTES..].get(..name_bytes).filter(|name| name.len() <= 255).ok_or(field(
            "name length",
            name_bytes as u64,
            "at most 255 and within the frame",
        ))?;
        Ok(Peer {
            version,
            features: self.offered.both(Features(u64_at(fixed, 4))),
            clock_id: u64_at(fixed, 12),
            limits: limits(fixed)?,
            node_name: printable(&String::from_utf8_lossy(name)),
        })
    }
}

fn encode(config: &Config, limits: &Limits, out: &mut Vec<u8>) {
    let name = config.node_name.as_bytes();
    let name = &name[..config.node_name.floor_char_boundary(Config::NODE_NAME_BYTES_MAX)];
    let length = (FIXED_BYTES + name.len()) as u32;
    out.reserve(HEADER_BYTES + length as usize);
    out.extend(Header { frame: FrameType::Hello, flags: 0, code: 0, stream: 0, length }.encode());
    out.extend(VERSION.to_le_bytes());
    out.extend(VERSION_MIN.to_le_bytes());
    out.extend(config.features.0.to_le_bytes());
    out.extend(config.clock_id.to_le_bytes());
    for value in [
        limits.stream_window_bytes,
        limits.connection_window_bytes,
        limits.segment_bytes_max,
        limits.message_bytes_max,
        limits.metadata_bytes_max,
        limits.streams_max,
        limits.methods_max,
    ] {
        out.extend(value.to_le_bytes());
    }
    out.extend((name.len() as u16).to_le_bytes());
    out.extend(name);
}

fn agree_on_version(peer_max: u16, peer_min: u16) -> Result<u16, ProtocolError> {
    let common = peer_max.min(VERSION);
    if peer_min > peer_max || common < peer_min.max(VERSION_MIN) {
        return Err(ProtocolError::Version { peer_min, peer_max, own_min: VERSION_MIN, own_max: VERSION });
    }
    Ok(common)
}

/// Reads and checks what the peer accepts. Limits that would stop everything (no window, no segment) are refused here,
/// so that no sender has to think about them later; generous ones are cut to what this side can count.
fn limits(fixed: &[u8; FIXED_BYTES]) -> Result<Limits, ProtocolError> {
    let window = |at, name| at_least(u32_at(fixed, at), Limits::WINDOW_BYTES_MIN, name, "65536 or more");
    let (segment_min, segment_max) = (*Limits::SEGMENT_BYTES.start(), *Limits::SEGMENT_BYTES.end());
    Ok(Limits {
        stream_window_bytes: window(20, "stream window")?.min(Limits::WINDOW_BYTES_MAX),
        connection_window_bytes: window(24, "connection window")?.min(Limits::WINDOW_BYTES_MAX),
        segment_bytes_max: at_least(u32_at(fixed, 28), segment_min, "segment limit", "1024 or more")?
            .min(segment_max),
        message_bytes_max: u32_at(fixed, 32).min(Limits::MESSAGE_BYTES_MAX),
        metadata_bytes_max: u32_at(fixed, 36),
        streams_max: u32_at(fixed, 40).min(Limits::STREAMS_MAX),
        methods_max: u32_at(fixed, 44).min(Limits::METHODS_MAX),
    })
}

fn at_least(value: u32, min: u32, name: &'static str, rule: &'static str) -> Result<u32, ProtocolError> {
    if value < min { Err(field(name, value.into(), rule)) } else { Ok(value) }
}

fn field(field: &'static str, value: u64, rule: &'static str) -> ProtocolError {
    ProtocolError::Field { frame: FrameType::Hello, stream: 0, field, value, rule }
}

fn u16_at(fixed: &[u8; FIXED_BYTES], at: usize) -> u16 {
    u16::from_le_bytes(std::array::from_fn(|i| fixed[at + i]))
}

fn u32_at(fixed: &[u8; FIXED_BYTES], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| fixed[at + i]))
}

fn u64_at(fixed: &[u8; FIXED_BYTES], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| fixed[at + i]))
}

#[cfg(test)]
mod tests {
    //! Shows what a HELLO carries, that later versions may append to it, and what is refused.
    use super::*;

    fn config() -> Config {
        Config { node_name: "north".into(), clock_id: 77, features: Features(3), ..Config::default() }
    }

    fn body() -> Vec<u8> {
        let mut out = Vec::new();
        encode(&config(), &Limits::default(), &mut out);
        out.split_off(HEADER_BYTES)
    }

    fn read(body: &[u8]) -> Result<Peer, ProtocolError> {
        let own = Config { features: Features(2), ..Config::default() };
        AwaitHello::start(&own, &own.limits, Instant(0), &mut Vec::new()).handle(body)
    }

    #[test]
    fn hello_round_trip_and_features_in_common() {
        let peer = read(&body()).unwrap();
        assert_eq!((peer.node_name.as_str(), peer.clock_id, peer.features), ("north", 77, Features(2)));
        assert_eq!((peer.limits, peer.version), (Limits::default(), 1));
    }

    #[test]
    fn a_later_version_may_append() {
        let mut body = body();
        body[0] = 9;
        body.extend([1, 2, 3]);
        assert_eq!(read(&body).unwrap().version, 1);
    }

    #[test]
    fn impossible_values_are_named() {
        let cases: [(usize, &[u8], &str); 5] = [
            (2, &[2, 0], "peer speaks versions 2 to 1"),
            (20, &[0, 1, 0, 0], "stream window is 256"),
            (24, &[0; 4], "connection window is 0"),
            (28, &[255, 3, 0, 0], "segment limit is 1023"),
            (48, &[6, 0], "name length is 6"),
        ];
        for (at, bytes, expected) in cases {
            let mut body = body();
            body[at..at + bytes.len()].copy_from_slice(bytes);
            let error = read(&body).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    /// It is shown to operators.
    #[test]
    fn a_name_that_would_act_on_a_terminal_does_not() {
        let hostile = Config { node_name: "a\u{1b}[2Jb".into(), ..Config::default() };
        let mut out = Vec::new();
        encode(&hostile, &Limits::default(), &mut out);
        assert_eq!(read(&out[HEADER_BYTES..]).unwrap().node_name, "a\u{fffd}[2Jb");
    }

    #[test]
    fn a_long_name_is_cut_between_characters() {
        let long = Config { node_name: "é".repeat(200), ..Config::default() };
        let mut out = Vec::new();
        encode(&long, &Limits::default(), &mut out);
        assert_eq!(read(&out[HEADER_BYTES..]).unwrap().node_name, "é".repeat(127));
    }
}
