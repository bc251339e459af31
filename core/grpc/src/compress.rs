//! Message compression: names, and bytes both ways. What is decompressed is bounded while it grows, so that a bomb
//! costs no more than the largest honest message. How many of those come at once is their reader's to bound.

use crate::framing::FramingFault;
use flate2::{Compression, Decompress, FlushDecompress, Status};
use http::{HeaderMap, HeaderValue};
use std::io::{Error, Read, Write};

/// How messages of one direction of a call are compressed (PROTOCOL-HTTP2, "Content-Coding").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize)]
pub enum Encoding {
    /// Not at all.
    #[default]
    Identity,
    /// RFC 1952.
    Gzip,
    /// RFC 1950: what HTTP calls deflate is zlib's format.
    Deflate,
    /// RFC 8878.
    Zstd,
}

/// A set of encodings: what a peer says it can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct Accepts(u8);

/// RFC 9659: a zstd decoder for HTTP need not offer a window above 8 MiB. The window is the decoder's memory, chosen by
/// the sender, so it is refused above that, or above the message limit where that is larger.
const ZSTD_WINDOW_LOG_MIN: u32 = 23;
/// zstd's own limit for what a decoder takes unasked.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;
/// Fast levels: a call waits for this. gzip at 1 costs a third of its default 6 for a tenth more bytes.
const LEVEL: u32 = 1;
/// First room for what is decompressed: a claim of the sender's is not believed.
const ROOM_BYTES: usize = 4096;

impl Encoding {
    /// Every encoding, in the order in which we name them to peers.
    pub const ALL: [Self; 4] = [Self::Identity, Self::Gzip, Self::Deflate, Self::Zstd];

    /// The encoding of this name.
    pub fn named(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|encoding| encoding.name().as_bytes() == name)
    }

    /// How the application that wrote this metadata wants the messages behind it compressed, if it says so. To the wire
    /// goes what comes of it; the pair itself does not.
    pub fn asked(metadata: &[u8]) -> Option<Self> {
        crate::metadata::first(metadata, crate::names::GRPC_ENCODING.as_str()).and_then(Self::named)
    }

    /// Its name in headers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
            Self::Zstd => "zstd",
        }
    }

    pub(crate) const fn header(self) -> HeaderValue {
        HeaderValue::from_static(self.name())
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl Accepts {
    /// All of [`Encoding::ALL`].
    pub const ALL: Self = Self(0b1111);

    /// What every peer can read.
    pub const IDENTITY: Self = Self(Encoding::Identity.bit());

    /// Reads `grpc-accept-encoding`, if it is there.
    pub fn said(headers: &HeaderMap) -> Option<Self> {
        headers.contains_key(crate::names::GRPC_ACCEPT_ENCODING).then(|| Self::of(headers))
    }

    /// Reads `grpc-accept-encoding`. Unknown names are none of our business; identity is always among them.
    pub fn of(headers: &HeaderMap) -> Self {
        let values = headers.get_all(crate::names::GRPC_ACCEPT_ENCODING);
        let names = values.into_iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
        let known = names.filter_map(|name| Encoding::named(name.trim_ascii()));
        Self(known.fold(Self::IDENTITY.0, |bits, encoding| bits | encoding.bit()))
    }

    /// Whether the peer can read this encoding.
    pub fn contains(self, encoding: Encoding) -> bool {
        self.0 & encoding.bit() != 0
    }

    /// `wanted` if the peer can read it, else none.
    pub fn or_identity(self, wanted: Encoding) -> Encoding {
        if self.contains(wanted) { wanted } else { Encoding::Identity }
    }

    /// As `grpc-accept-encoding` says it.
    pub(crate) const fn header(self) -> HeaderValue {
        // Identity is bit 0 and always among them.
        HeaderValue::from_static(match self.0 >> 1 & 0b111 {
            0b000 => "identity",
            0b001 => "identity,gzip",
            0b010 => "identity,deflate",
            0b011 => "identity,gzip,deflate",
            0b100 => "identity,zstd",
            0b101 => "identity,gzip,zstd",
            0b110 => "identity,deflate,zstd",
            _ => "identity,gzip,deflate,zstd",
        })
    }

    /// What we say of ourselves.
    pub(crate) const fn ours() -> HeaderValue {
        Self::ALL.header()
    }
}

/// Appends `message`, compressed.
///
/// # Errors
/// [`FramingFault::Compress`] if the compressor finds no memory.
pub fn compress(encoding: Encoding, message: &[u8], out: &mut Vec<u8>) -> Result<(), FramingFault> {
    let done = match encoding {
        Encoding::Identity => {
            out.extend_from_slice(message);
            Ok(())
        }
        Encoding::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(out, Compression::new(LEVEL));
            encoder.write_all(message).and_then(|()| encoder.finish().map(drop))
        }
        Encoding::Deflate => {
            let mut encoder = flate2::write::ZlibEncoder::new(out, Compression::new(LEVEL));
            encoder.write_all(message).and_then(|()| encoder.finish().map(drop))
        }
        Encoding::Zstd => zstd_compress(message, out),
    };
    done.map_err(|error| FramingFault::Compress { encoding: encoding.name(), why: error.to_string() })
}

/// Appends what `message` is when decompressed: at most `limit` bytes.
///
/// # Errors
/// [`FramingFault::Inflated`] at the limit, [`FramingFault::Decompress`] if the bytes are not what they should be;
/// nothing is appended then.
pub fn decompress(
    encoding: Encoding,
    message: &[u8],
    limit: usize,
    out: &mut Vec<u8>,
) -> Result<(), FramingFault> {
    let start = out.len();
    let read = match encoding {
        // Some peers flag a message without bytes as compressed; there is nothing in it either way.
        _ if message.is_empty() => Ok(()),
        Encoding::Identity => out.write_all(&message[..message.len().min(limit.saturating_add(1))]),
        Encoding::Gzip => read_bounded(flate2::bufread::MultiGzDecoder::new(message), limit, out),
        Encoding::Deflate => inflate(message, limit, out),
        Encoding::Zstd => zstd_decompress(message, limit, out),
    };
    let fault = match read {
        Ok(()) if out.len() - start <= limit => return Ok(()),
        Ok(()) => FramingFault::Inflated { limit },
        Err(error) => FramingFault::Decompress { encoding: encoding.name(), why: error.to_string() },
    };
    out.truncate(start);
    Err(fault)
}

/// Reads to the end, or to one byte above the limit.
fn read_bounded(source: impl Read, limit: usize, out: &mut Vec<u8>) -> Result<(), Error> {
    source.take((limit as u64).saturating_add(1)).read_to_end(out).map(drop)
}

/// zlib's format by hand, for flate2's reader takes a stream that ends too early for one that ends.
fn inflate(message: &[u8], limit: usize, out: &mut Vec<u8>) -> Result<(), Error> {
    let (start, mut state) = (out.len(), Decompress::new(true));
    while out.len() - start <= limit {
        out.reserve(ROOM_BYTES);
        let (read, written) = (state.total_in(), state.total_out());
        let status = state.decompress_vec(&message[read as usize..], out, FlushDecompress::None)?;
        match status {
            Status::StreamEnd => return Ok(()),
            _ if (read, written) == (state.total_in(), state.total_out()) => {
                return Err(Error::new(std::io::ErrorKind::UnexpectedEof, "it ends too early"));
            }
            _ => {}
        }
    }
    Ok(())
}

fn zstd_compress(message: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
    let mut encoder = zstd::stream::write::Encoder::new(out, LEVEL as i32)?;
    encoder.set_pledged_src_size(Some(message.len() as u64))?;
    encoder.write_all(message)?;
    encoder.finish().map(drop)
}

fn zstd_decompress(message: &[u8], limit: usize, out: &mut Vec<u8>) -> Result<(), Error> {
    let window_log = limit.max(1).next_power_of_two().trailing_zeros();
    let mut decoder = zstd::stream::read::Decoder::with_buffer(message)?;
    decoder.window_log_max(window_log.clamp(ZSTD_WINDOW_LOG_MIN, ZSTD_WINDOW_LOG_MAX))?;
    read_bounded(decoder, limit, out)
}

#[cfg(test)]
mod tests {
    //! Shows that every encoding returns what it was given, that a bomb stops at the limit, and that damage is told.
    use super::*;
    use proptest::prelude::*;

    fn squeezed(encoding: Encoding, message: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        compress(encoding, message, &mut out).unwrap();
        out
    }

    #[test]
    fn a_bomb_stops_at_the_limit() {
        let limit = 64 << 10;
        for encoding in Encoding::ALL {
            for (excess, sound) in [(0, true), (1, false), (16 << 20, false)] {
                let bomb = squeezed(encoding, &vec![0; limit + excess]);
                let mut out = b"before".to_vec();
                let done = decompress(encoding, &bomb, limit, &mut out);
                if sound {
                    assert_eq!((done, out.len()), (Ok(()), 6 + limit), "{encoding:?}");
                } else {
                    assert_eq!(done, Err(FramingFault::Inflated { limit }), "{encoding:?}");
                    assert_eq!(out, b"before");
                    assert!(out.capacity() <= 4 * limit, "{encoding:?} took {}", out.capacity());
                }
            }
        }
    }

    #[test]
    fn a_bomb_in_many_members_stops_too() {
        let one = squeezed(Encoding::Gzip, &[0; 1000]);
        let members = one.repeat(100);
        assert_eq!(decompress(Encoding::Gzip, &members, 100_000, &mut Vec::new()), Ok(()));
        let limited = decompress(Encoding::Gzip, &members, 99_999, &mut Vec::new());
        assert_eq!(limited, Err(FramingFault::Inflated { limit: 99_999 }));
    }

    #[test]
    fn a_window_larger_than_allowed_is_refused() {
        // A frame with a window of 128 MiB (descriptor 0x88: exponent 17, 1 << (10 + 17)), one raw empty last block.
        let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x88, 0x01, 0x00, 0x00];
        let done = decompress(Encoding::Zstd, &frame, 4 << 20, &mut Vec::new());
        assert!(matches!(done, Err(FramingFault::Decompress { encoding: "zstd", .. })), "{done:?}");
        assert_eq!(decompress(Encoding::Zstd, &frame, 128 << 20, &mut Vec::new()), Ok(()));
    }

    #[test]
    fn damage_is_told() {
        let message: Vec<u8> = (0..400u32).flat_map(|n| (n * n).to_le_bytes()).collect();
        for encoding in [Encoding::Gzip, Encoding::Deflate, Encoding::Zstd] {
            let sound = squeezed(encoding, &message);
            for len in 1..sound.len() {
                let cut = decompress(encoding, &sound[..len], 1 << 20, &mut Vec::new());
                assert!(
                    matches!(cut, Err(FramingFault::Decompress { .. })),
                    "{encoding:?} cut at {len}: {cut:?}"
                );
            }
            assert_eq!(decompress(encoding, b"", 1 << 20, &mut Vec::new()), Ok(()));
        }
    }

    #[test]
    fn names() {
        let mut headers = HeaderMap::new();
        assert_eq!((Accepts::of(&headers), Accepts::said(&headers)), (Accepts::IDENTITY, None));
        headers.append("grpc-accept-encoding", HeaderValue::from_static("snappy, gzip"));
        headers.append("grpc-accept-encoding", HeaderValue::from_static("zstd"));
        let accepts = Accepts::of(&headers);
        assert_eq!(accepts.or_identity(Encoding::Zstd), Encoding::Zstd);
        assert_eq!(accepts.or_identity(Encoding::Deflate), Encoding::Identity);
        headers.insert("grpc-accept-encoding", Accepts::ours());
        assert_eq!(Accepts::of(&headers), Accepts::ALL);
        for bits in (1..16u8).step_by(2) {
            headers.insert("grpc-accept-encoding", Accepts(bits).header());
            assert_eq!(Accepts::said(&headers), Some(Accepts(bits)), "what is said of a set is that set");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn round_trip(message in prop::collection::vec(any::<u8>(), 0..5000)) {
            for encoding in Encoding::ALL {
                let mut out = Vec::new();
                decompress(encoding, &squeezed(encoding, &message), message.len(), &mut out).unwrap();
                prop_assert_eq!(&out, &message);
            }
        }

        #[test]
        fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            for encoding in Encoding::ALL {
                let mut out = Vec::new();
                let _ = decompress(encoding, &bytes, 1000, &mut out);
                prop_assert!(out.len() <= 1000);
            }
        }
    }
}
