//! Messages in an [`Any`]: encoded as protobuf, with the name of their type.

use crate::wkt::Any;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use trunkline_message::transcode::DecodeLimits;
use trunkline_message::{AlignedBuf, Extent, Message, Transcoder};
use trunkline_schema::{MessageIndex, Schema};

/// What protobuf's own libraries write in front of a type's name.
const PREFIX: &str = "type.googleapis.com/";

/// Why a message cannot be put into an [`Any`], or taken out of one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AnyError {
    /// It holds a message of another type.
    #[error("it holds a {holds:?}, not a {wanted}")]
    OtherType {
        /// Name of the type it holds.
        holds: String,
        /// Name of the type asked for.
        wanted: &'static str,
    },
    /// The descriptors are not those of the type.
    #[error("the descriptor set does not have {wanted}: {why}")]
    Descriptors {
        /// Name of the type.
        wanted: &'static str,
        /// What is wrong.
        why: String,
    },
    /// The message cannot be encoded, or the bytes are not one.
    #[error("{wanted}: {why}")]
    Message {
        /// Name of the type.
        wanted: &'static str,
        /// What is wrong with it, and where.
        why: String,
    },
}

impl Any {
    /// Puts a message into an `Any`. `descriptors` is the `FILE_DESCRIPTOR_SET` of the package of `M`.
    ///
    /// # Errors
    /// [`AnyError`] if these are not its descriptors, or the message is too large or too deep to be one.
    pub fn pack<M: Message>(message: &M, descriptors: &'static [u8]) -> Result<Self, AnyError> {
        let value = encode(message, descriptors)?;
        Ok(Self { type_url: format!("{PREFIX}{}", M::FULL_NAME), value })
    }

    /// The message in it, which need not be trusted. `descriptors` is the `FILE_DESCRIPTOR_SET` of the package of `M`.
    /// It takes no more memory than a daemon would give it as a field with its type: 64 bytes for each of its bytes
    /// beyond a mebibyte, and 257 MiB.
    ///
    /// # Errors
    /// [`AnyError`] if it is of another type, these are not the type's descriptors, or the bytes are not a message.
    pub fn unpack<M: Message>(&self, descriptors: &'static [u8]) -> Result<M, AnyError> {
        if !self.is::<M>() {
            return Err(AnyError::OtherType { holds: self.type_name().to_owned(), wanted: M::FULL_NAME });
        }
        decode(&self.value, descriptors)
    }

    /// Whether it holds a message of this type.
    pub fn is<M: Message>(&self) -> bool {
        self.type_name() == M::FULL_NAME
    }

    /// The full name of the type of the message in it.
    pub fn type_name(&self) -> &str {
        self.type_url.rsplit('/').next().unwrap_or_default()
    }
}

/// A daemon's own, where nobody has written others (`limits.linear_growth`, `limits.message_bytes`).
const LIMITS: DecodeLimits =
    DecodeLimits { growth_max: 64, linear_bytes_max: 257 << 20, ..DecodeLimits::UNBOUNDED };

/// A message in protobuf's encoding.
pub(super) fn encode<M: Message>(message: &M, descriptors: &'static [u8]) -> Result<Vec<u8>, AnyError> {
    let codec = Codec::of::<M>(descriptors)?;
    let linear = message.to_linear().map_err(|error| no_message::<M>(&error))?;
    let mut wire = Vec::new();
    let encoded = codec.transcoder.encode(codec.root, linear.bytes(), &mut wire);
    encoded.map(|()| wire).map_err(|error| no_message::<M>(&error))
}

/// A message from protobuf's encoding, which need not be trusted.
pub(super) fn decode<M: Message>(wire: &[u8], descriptors: &'static [u8]) -> Result<M, AnyError> {
    let codec = Codec::of::<M>(descriptors)?;
    let mut linear = AlignedBuf::new();
    let decoded = codec.transcoder.decode(codec.root, wire, &mut linear, &LIMITS);
    let len = decoded.map_err(|error| no_message::<M>(&error.describe(codec.transcoder.schema())))?;
    Ok(M::read(M::view(linear.bytes().get(..len).unwrap_or_default())))
}

/// What turns messages of one type into protobuf and back.
struct Codec {
    transcoder: Arc<Transcoder>,
    root: MessageIndex,
}

/// By where a package's descriptors lie, which is for good, so there are as many as packages.
type Transcoders = HashMap<(usize, usize), Arc<Transcoder>>;

/// Made once per package.
static TRANSCODERS: LazyLock<Mutex<Transcoders>> = LazyLock::new(Mutex::default);

impl Codec {
    fn of<M: Message>(descriptors: &'static [u8]) -> Result<Self, AnyError> {
        let wanted = M::FULL_NAME;
        let refused = |why: String| AnyError::Descriptors { wanted, why };
        let mut known = TRANSCODERS.lock();
        let place = (descriptors.as_ptr().addr(), descriptors.len());
        let transcoder = match known.get(&place) {
            Some(transcoder) => Arc::clone(transcoder),
            None => {
                let schema =
                    Schema::from_descriptor_set(descriptors).map_err(|error| refused(error.to_string()))?;
                let transcoder = Arc::new(Transcoder::new(Arc::new(schema)));
                known.insert(place, Arc::clone(&transcoder));
                transcoder
            }
        };
        let schema = transcoder.schema();
        let root =
            schema.message_named(wanted).ok_or_else(|| refused("there is no such message".to_owned()))?;
        if schema.fingerprint(root) != M::FINGERPRINT {
            return Err(refused("its message has other fields".to_owned()));
        }
        Ok(Self { transcoder, root })
    }
}

fn no_message<M: Message>(why: &dyn std::fmt::Display) -> AnyError {
    AnyError::Message { wanted: M::FULL_NAME, why: why.to_string() }
}

#[cfg(test)]
mod tests {
    //! Shows that messages go in and come out, and what is refused.
    use super::*;
    use crate::rpc::{self, ErrorInfo, RetryInfo};
    use crate::wkt::{self, Duration};

    #[test]
    fn a_message_goes_in_and_comes_out() {
        let retry = RetryInfo { retry_delay: Some(Duration { seconds: 2, nanos: 0 }) };
        let any = Any::pack(&retry, rpc::FILE_DESCRIPTOR_SET).unwrap();
        assert_eq!(any.type_url, "type.googleapis.com/google.rpc.RetryInfo");
        assert_eq!(any.value, [0x0a, 2, 0x08, 2], "protobuf's encoding");
        assert_eq!(any.unpack::<RetryInfo>(rpc::FILE_DESCRIPTOR_SET), Ok(retry));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let any = Any::pack(&ErrorInfo::default(), rpc::FILE_DESCRIPTOR_SET).unwrap();
        let other = any.unpack::<RetryInfo>(rpc::FILE_DESCRIPTOR_SET).unwrap_err();
        assert_eq!(other.to_string(), "it holds a \"google.rpc.ErrorInfo\", not a google.rpc.RetryInfo");
        let elsewhere = any.unpack::<ErrorInfo>(wkt::FILE_DESCRIPTOR_SET).unwrap_err();
        assert!(
            matches!(elsewhere, AnyError::Descriptors { wanted: "google.rpc.ErrorInfo", .. }),
            "{elsewhere}"
        );
        let broken = Any { value: vec![0x0a, 9], ..any };
        let error = broken.unpack::<ErrorInfo>(rpc::FILE_DESCRIPTOR_SET).unwrap_err();
        assert!(error.to_string().contains("google.rpc.ErrorInfo.reason"), "{error}");
        assert!(Any::default().unpack::<ErrorInfo>(rpc::FILE_DESCRIPTOR_SET).is_err());
    }
}
