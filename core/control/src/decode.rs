//! Packets in, messages out: the only way hostile control bytes enter.

use crate::{METHODS_MAX, PACKET_BYTES_MAX, Reply, Request, reply, request};
use prost::Message;

/// Why a control packet was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// Longer than [`PACKET_BYTES_MAX`].
    #[error("control packet of {0} bytes exceeds {PACKET_BYTES_MAX}")]
    TooLarge(usize),
    /// Not protobuf, or not this message.
    #[error("control packet is malformed: {0}")]
    Malformed(String),
    /// No kind, or one this version does not know.
    #[error("control packet names no request known to ABI version {}", crate::ABI_VERSION)]
    UnknownKind,
    /// More methods or services in one `Bind` than [`METHODS_MAX`].
    #[error("bind names {0} methods and services, at most {METHODS_MAX} are allowed; split it")]
    TooManyMethods(usize),
}

/// Reads what an application sent.
///
/// # Errors
/// [`ControlError`]; the daemon answers `Detached` with its text and closes.
pub fn decode_request(packet: &[u8]) -> Result<(u64, request::Kind), ControlError> {
    within_limit(packet)?;
    let request = Request::decode(packet).map_err(|e| ControlError::Malformed(e.to_string()))?;
    let kind = request.kind.ok_or(ControlError::UnknownKind)?;
    if let request::Kind::Bind(bind) = &kind {
        let methods = bind.calls.len().max(bind.serves.len());
        if methods > METHODS_MAX {
            return Err(ControlError::TooManyMethods(methods));
        }
    }
    Ok((request.tag, kind))
}

/// Reads what the daemon sent.
///
/// # Errors
/// [`ControlError`]; the application treats the session as lost.
pub fn decode_reply(packet: &[u8]) -> Result<(u64, reply::Kind), ControlError> {
    within_limit(packet)?;
    let reply = Reply::decode(packet).map_err(|e| ControlError::Malformed(e.to_string()))?;
    Ok((reply.tag, reply.kind.ok_or(ControlError::UnknownKind)?))
}

fn within_limit(packet: &[u8]) -> Result<(), ControlError> {
    if packet.len() > PACKET_BYTES_MAX { Err(ControlError::TooLarge(packet.len())) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    //! Shows that requests survive a packet and that hostile packets are refused by name.
    use super::*;
    use crate::{Bind, CallMethod};
    use proptest::prelude::*;

    fn bind_of(methods: usize) -> Request {
        let call = CallMethod { path: "/a.B/C".into(), target: String::new() };
        let bind = Bind { descriptor_set_bytes: 1, serves: vec![], calls: vec![call; methods] };
        Request { tag: 7, kind: Some(request::Kind::Bind(bind)) }
    }

    #[test]
    fn round_trip_and_limits() {
        let request = bind_of(2);
        let (tag, kind) = decode_request(&request.encode_to_vec()).unwrap();
        assert_eq!((tag, Some(kind)), (7, request.kind));
        assert_eq!(decode_request(&bind_of(2000).encode_to_vec()), Err(ControlError::TooManyMethods(2000)));
        assert_eq!(decode_request(&[]), Err(ControlError::UnknownKind));
        assert_eq!(decode_reply(&vec![0; 70_000]), Err(ControlError::TooLarge(70_000)));
    }

    proptest! {
        #[test]
        fn any_packet_decodes_or_is_refused(packet in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode_request(&packet);
            let _ = decode_reply(&packet);
        }
    }
}
