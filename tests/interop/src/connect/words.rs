//! Metadata, statuses and messages of any type, in the runner's words.

use crate::codec::{Codec, CodecError};
use crate::proto::connectrpc::conformance::v1::{Code as Number, Error, FILE_DESCRIPTOR_SET, Header};
use base64::Engine as _;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use trunkline::codegen::Message;
use trunkline::rpc;
use trunkline::wkt::Any;
use trunkline::{Code, Metadata, MetadataError, Status};
use trunkline_schema::SchemaError;

/// What type names in an `Any` begin with.
const TYPE_URL: &str = "type.googleapis.com/";

/// Binary metadata: unpadded when written, either when read.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Translates between the library's types and the runner's.
#[derive(Debug)]
pub struct Words {
    codec: Codec,
    status: Codec,
}

impl Words {
    /// For the runner's messages.
    ///
    /// # Errors
    /// If the descriptors compiled into the program are not in order.
    pub fn new() -> Result<Self, SchemaError> {
        Ok(Self { codec: Codec::new(FILE_DESCRIPTOR_SET)?, status: Codec::new(rpc::FILE_DESCRIPTOR_SET)? })
    }

    /// Messages as bytes.
    pub fn codec(&self) -> &Codec {
        &self.codec
    }

    /// A message of any type.
    ///
    /// # Errors
    /// [`CodecError`]
    pub fn any<M: Message>(&self, message: &M) -> Result<Any, CodecError> {
        let type_url = format!("{TYPE_URL}{}", M::FULL_NAME);
        Ok(Any { type_url, value: self.codec.encode(message)? })
    }

    /// The message in it, whatever its name says.
    ///
    /// # Errors
    /// [`CodecError`]
    pub fn unpacked<M: Message>(&self, any: &Any) -> Result<M, CodecError> {
        self.codec.decode(&any.value)
    }

    /// The status a handler is to end with.
    ///
    /// # Errors
    /// [`CodecError`]
    pub fn status(&self, error: &Error) -> Result<Status, CodecError> {
        let number = error.code.number();
        let code = Code::from_number(u16::try_from(number).unwrap_or(u16::MAX));
        let message = error.message.clone().unwrap_or_default();
        if error.details.is_empty() {
            return Ok(Status::new(code, message));
        }
        let details = error.details.clone();
        let status = rpc::Status { code: number, message: message.clone(), details };
        Ok(Status::new(code, message).with_details(self.status.encode(&status)?))
    }

    /// How a call ended.
    ///
    /// # Errors
    /// [`CodecError`] if the details are not a `google.rpc.Status`.
    pub fn error(&self, status: &Status) -> Result<Error, CodecError> {
        let details: rpc::Status = self.status.decode(status.details())?;
        let code = Number::new(status.code().number().into());
        Ok(Error { code, message: Some(status.message().to_owned()), details: details.details })
    }
}

/// Metadata as the runner shows it: a name once, with all its values; binary ones in base64.
pub(super) fn headers(metadata: &Metadata) -> Vec<Header> {
    let mut headers: Vec<Header> = Vec::new();
    for (key, value) in metadata.iter() {
        let value = match key.ends_with("-bin") {
            true => BASE64.encode(value),
            false => String::from_utf8_lossy(value).into_owned(),
        };
        match headers.iter_mut().find(|header| header.name == key) {
            Some(header) => header.value.push(value),
            None => headers.push(Header { name: key.to_owned(), value: vec![value] }),
        }
    }
    headers
}

/// The reverse. A binary value that is not base64 is taken as it is.
pub(super) fn metadata(headers: &[Header]) -> Result<Metadata, MetadataError> {
    let mut metadata = Metadata::new();
    for Header { name, value } in headers {
        let key = name.to_ascii_lowercase();
        for value in value {
            match BASE64.decode(value) {
                Ok(bytes) if key.ends_with("-bin") => metadata.insert(&key, bytes)?,
                _ => metadata.insert(&key, value)?,
            }
        }
    }
    Ok(metadata)
}

#[cfg(test)]
mod tests {
    //! Metadata and statuses survive the runner's words.
    use super::*;

    #[test]
    fn metadata_survives() {
        let said = [
            Header { name: "X-Plain".into(), value: vec!["a".into(), "b, c".into()] },
            Header { name: "x-raw-bin".into(), value: vec!["AAH/".into(), "AA==".into()] },
        ];
        let meant = metadata(&said).unwrap();
        let pairs: Vec<_> = meant.iter().collect();
        let raw = [("x-raw-bin", &[0, 1, 255][..]), ("x-raw-bin", &[0][..])];
        assert_eq!(pairs, [&[("x-plain", &b"a"[..]), ("x-plain", &b"b, c"[..])][..], &raw].concat());
        let again = headers(&meant);
        assert_eq!((again.len(), &again[1].value[1]), (2, &"AA".to_owned()));
    }

    #[test]
    fn a_status_survives_with_its_details() {
        let words = Words::new().unwrap();
        let detail = words.any(&Header { name: "n".into(), value: vec![] }).unwrap();
        assert_eq!(detail.type_url, "type.googleapis.com/connectrpc.conformance.v1.Header");
        let message = Some("why".to_owned());
        let error = Error { code: Number::new(9), message, details: vec![detail.clone(), detail] };
        let status = words.status(&error).unwrap();
        assert_eq!((status.code(), status.message()), (Code::FailedPrecondition, "why"));
        assert_eq!(words.error(&status).unwrap(), error);
        let header: Header = words.unpacked(&error.details[0]).unwrap();
        assert_eq!(header.name, "n");
    }
}
