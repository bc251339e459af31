//! Messages as protobuf bytes, by the transcoder.

use std::sync::Arc;
use trunkline_message::transcode::{DecodeError, DecodeLimits, EncodeError};
use trunkline_message::{AlignedBuf, BuildError, Extent, Message, Transcoder};
use trunkline_schema::{MessageIndex, Schema, SchemaError};

/// Turns messages of one descriptor set into protobuf and back.
#[derive(Debug)]
pub struct Codec {
    transcoder: Transcoder,
}

/// Why a message could not be turned.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// The type is not in the descriptor set.
    #[error("{0} is not in the descriptor set")]
    Unknown(&'static str),
    /// The bytes are not such a message.
    #[error("{message}: {}", error.kind)]
    Decode {
        /// The type.
        message: &'static str,
        /// What is wrong.
        error: DecodeError,
    },
    /// The message does not fit the linear form.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The message does not fit protobuf's.
    #[error(transparent)]
    Encode(#[from] EncodeError),
}

impl Codec {
    /// For the messages of an encoded `FileDescriptorSet`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(descriptor_set: &[u8]) -> Result<Self, SchemaError> {
        let schema = Schema::from_descriptor_set(descriptor_set)?;
        Ok(Self { transcoder: Transcoder::new(Arc::new(schema)) })
    }

    /// A message as protobuf.
    ///
    /// # Errors
    /// [`CodecError`]
    pub fn encode<M: Message>(&self, message: &M) -> Result<Vec<u8>, CodecError> {
        let (root, linear) = (self.root::<M>()?, message.to_linear()?);
        let mut out = Vec::new();
        self.transcoder.encode(root, linear.bytes(), &mut out)?;
        Ok(out)
    }

    /// A message from protobuf.
    ///
    /// # Errors
    /// [`CodecError`]
    pub fn decode<M: Message>(&self, wire: &[u8]) -> Result<M, CodecError> {
        let (root, mut linear) = (self.root::<M>()?, AlignedBuf::new());
        let decoded = self.transcoder.decode(root, wire, &mut linear, &DecodeLimits::default());
        decoded.map_err(|error| CodecError::Decode { message: M::FULL_NAME, error })?;
        Ok(M::read(M::view(linear.bytes())))
    }

    fn root<M: Message>(&self) -> Result<MessageIndex, CodecError> {
        self.transcoder.schema().message_named(M::FULL_NAME).ok_or(CodecError::Unknown(M::FULL_NAME))
    }
}
