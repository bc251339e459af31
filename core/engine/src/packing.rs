//! Messages that pass compressed from one gRPC peer to another.
//!
//! A stream whose head names an encoding has messages with a flag each: compressed or not. Of a call that is forwarded
//! (`gateway.rs`) they go on as they came, flag and all, if nobody here has to read them and the other end gets its
//! messages in the same encoding. Everybody else gets them unpacked: policies that look at messages, ends that speak
//! something else, and a server that has said that it cannot read the encoding.
//!
//! What is compressed counts as it is, in every limit and every window; how large it becomes, whoever unpacks it
//! bounds.

use bytes::Bytes;
use trunkline_grpc::compress::{Encoding, decompress};
use trunkline_grpc::framing::FramingFault;
use trunkline_telemetry::{TaxStage, tax_stage};

/// How a gRPC peer has packed a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Packing {
    /// What the stream's head names.
    pub encoding: Encoding,
    /// The message's own flag.
    pub compressed: bool,
}

/// A message that has come: as it is, or packed.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub bytes: Bytes,
    /// It came compressed, and is not any more unless it is packed.
    pub compressed: bool,
    pub packing: Option<Packing>,
}

impl Packing {
    /// The message itself, of at most so many bytes.
    pub fn unpack(self, bytes: &[u8], bytes_max: usize) -> Result<Vec<u8>, FramingFault> {
        if !self.compressed {
            return Ok(bytes.to_vec());
        }
        if self.encoding == Encoding::Identity {
            return Err(FramingFault::NoEncoding);
        }
        let _compression = tax_stage(TaxStage::Compression);
        let mut out = Vec::new();
        decompress(self.encoding, bytes, bytes_max, &mut out)?;
        Ok(out)
    }
}
