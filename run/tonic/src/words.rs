//! Metadata and status, between their three spellings: HTTP's, tonic's and Trunkline's.

use std::borrow::Cow;
use trunkline::opaque::Outcome;
use trunkline::{Code, Metadata};
use trunkline_grpc::Outcome as Words;

/// An error of a body of HTTP, whatever it is.
pub(crate) type StdError = Box<dyn std::error::Error + Send + Sync>;

/// Metadata as the daemon's side of the library takes it. What a head was read into is well formed.
pub(crate) fn metadata(encoded: &[u8]) -> Metadata {
    Metadata::decode(encoded).unwrap_or_default()
}

/// Metadata as heads and trailers are written from it.
pub(crate) fn encoded(metadata: &Metadata) -> Vec<u8> {
    let mut out = Vec::with_capacity(metadata.encoded_len());
    metadata.encode(&mut out);
    out
}

/// An outcome read from trailers, to be told to the caller.
pub(crate) fn outcome(words: &Words<'_>) -> Outcome {
    Outcome { code: words.code, trailers: metadata(&words.metadata), execution: words.execution }
}

/// An outcome the caller is told, to be written into trailers.
pub(crate) fn words(outcome: &Outcome) -> Words<'static> {
    let metadata = Cow::Owned(encoded(&outcome.trailers));
    Words { code: outcome.code, execution: outcome.execution, metadata }
}

/// An outcome made of a status of tonic's.
fn of_tonic(status: &tonic::Status) -> Outcome {
    let code = Code::from_number(u16::try_from(i32::from(status.code())).unwrap_or(u16::MAX));
    let status = trunkline::Status::new(code, status.message()).with_details(status.details());
    Outcome::from(&status)
}

/// An outcome made of what a service or a body failed with: the status in it, if there is one.
pub(crate) fn of_error(error: impl Into<StdError>) -> Outcome {
    of_tonic(&tonic::Status::from_error(error.into()))
}

/// A status of the library's as tonic's.
pub(crate) fn to_tonic(status: &trunkline::Status) -> tonic::Status {
    let code = tonic::Code::from(i32::from(status.code().number()));
    tonic::Status::with_details(code, status.message(), bytes::Bytes::copy_from_slice(status.details()))
}

#[cfg(test)]
mod tests {
    //! Shows that a status survives the way from tonic's to ours and back.
    use super::*;

    #[test]
    fn every_code_survives() {
        for number in 0..17 {
            let details = bytes::Bytes::from_static(&[1, 2]);
            let status = tonic::Status::with_details(tonic::Code::from(number), "größer", details);
            let mut outcome = of_tonic(&status);
            let ours = trunkline::Status::take_from(&mut outcome.trailers, outcome.code);
            let back = to_tonic(&ours);
            assert_eq!(
                (back.code(), back.message(), back.details()),
                (status.code(), status.message(), status.details())
            );
        }
    }
}
