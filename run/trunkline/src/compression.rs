//! How messages are compressed on their way to and from gRPC peers, where an application wants a say.

use crate::message::{Request, Response};
use trunkline_call::{Metadata, MetadataError};
use trunkline_message::Message;

/// A way to compress messages towards a gRPC peer.
///
/// Without a word from the application the daemon's configuration decides (`grpc.request_encoding`,
/// `grpc.response_encoding`). A response is compressed only if the client says that it can read it; a request always,
/// and a server that cannot answers UNIMPLEMENTED. Short messages, and those that would grow, are sent as they are.
/// Between daemons, and on one host, nothing is compressed.
///
/// ```
/// # use trunkline::codegen::Message;
/// use trunkline::{Compression, Response};
///
/// # fn example<R: Message>(reply: R) -> Result<Response<R>, trunkline::Status> {
/// Ok(Response::new(reply).with_compression(Compression::Zstd)?)
/// # }
/// ```
///
/// A call that streams says `.with_metadata(Compression::KEY, "gzip")`, a handler that streams puts the same pair
/// among its headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compression {
    /// None, whatever the configuration says.
    Identity,
    /// RFC 1952: what every gRPC library reads.
    Gzip,
    /// RFC 1950: zlib's format.
    Deflate,
    /// RFC 8878.
    Zstd,
}

impl Compression {
    /// The metadata key that says it: read by the daemon, not sent as metadata.
    pub const KEY: &'static str = "grpc-encoding";

    /// Its name, as a value of [`Compression::KEY`].
    pub const fn name(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
            Self::Zstd => "zstd",
        }
    }

    /// Says it in metadata, in place of another.
    ///
    /// # Errors
    /// [`MetadataError::TooLarge`].
    pub fn put_into(self, metadata: &mut Metadata) -> Result<(), MetadataError> {
        metadata.remove(Self::KEY);
        metadata.insert(Self::KEY, self.name())
    }
}

impl<M: Message> Request<M> {
    /// Compresses the request, if a gRPC server is called.
    ///
    /// # Errors
    /// [`MetadataError::TooLarge`].
    pub fn with_compression(mut self, compression: Compression) -> Result<Self, MetadataError> {
        compression.put_into(&mut self.metadata)?;
        Ok(self)
    }
}

impl<M: Message> Response<M> {
    /// Compresses the response, if a gRPC client asked and can read it.
    ///
    /// # Errors
    /// [`MetadataError::TooLarge`].
    pub fn with_compression(mut self, compression: Compression) -> Result<Self, MetadataError> {
        compression.put_into(&mut self.headers)?;
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    //! Shows that the names are those the daemon reads, and that the last word counts.
    use super::*;

    #[test]
    fn the_last_word_counts() {
        let mut metadata = Metadata::new();
        for compression in [Compression::Identity, Compression::Gzip, Compression::Deflate, Compression::Zstd]
        {
            compression.put_into(&mut metadata).unwrap();
            assert_eq!((metadata.len(), metadata.text(Compression::KEY)), (1, Some(compression.name())));
        }
    }
}
