//! A datagram taken apart and put together: header, extension, payload.

use crate::extension::{Extension, Head};
use crate::wire::{
    FeedbackFor, Flags, HEADER_BYTES, Header, Malformed, PAYLOAD_BYTES_MAX, POLICIES, PacketType, Policy,
    field, kind_of, u16_at, u32_at,
};
use core::net::SocketAddrV4;

/// A datagram, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The header.
    pub header: Header,
    /// What the extended mode adds.
    pub extension: Option<Extension>,
    /// The rest.
    pub payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Takes a datagram apart.
    ///
    /// # Errors
    /// [`Malformed`] naming what is wrong. The authors' FEEDBACK is recognised by its length, because they leave all
    /// but magic and type unset. Without `extended` the reserved flag bits mean nothing, as with them.
    pub fn parse(datagram: &'a [u8], extended: bool) -> Result<Self, Malformed> {
        let limit = HEADER_BYTES + PAYLOAD_BYTES_MAX;
        if datagram.len() > limit {
            return Err(Malformed::Long { found: datagram.len(), limit });
        }
        if kind_of(datagram)? == PacketType::Feedback && datagram.len() == HEADER_BYTES + FeedbackFor::BYTES {
            let header = Header { kind: PacketType::Feedback, ..Header::of_feedback() };
            return Ok(Self { header, extension: None, payload: &datagram[HEADER_BYTES..] });
        }
        let header = Header::decode(datagram)?;
        let rest = &datagram[HEADER_BYTES..];
        if !extended || !header.flags.has(Flags::EXTENDED) {
            check_policy(&header, None)?;
            return Ok(Self { header, extension: None, payload: rest });
        }
        let (extension, payload) = Extension::decode(&header, rest)?;
        check_policy(&header, Some(&extension))?;
        Ok(Self { header, extension: Some(extension), payload })
    }

    /// Whose it is, where a router has sent it in its own name.
    pub fn on_behalf_of(&self) -> Option<SocketAddrV4> {
        self.extension.as_ref()?.on_behalf_of()
    }

    /// Header and extension as bytes; the payload follows them.
    pub fn head(header: &Header, extension: Option<&Extension>) -> Head {
        let mut head = Head::new(&header.encode());
        if let Some(extension) = extension {
            extension.encode(&mut head);
        }
        head
    }

    /// By which a router shows its workers that it understands the extended mode: a later packet of no request.
    pub(crate) fn greeting() -> Head {
        let (kind, policy, flags) = (PacketType::Request, Policy::Unrestricted, Flags(Flags::OFFER));
        Self::head(&Header { kind, policy, flags, id: 0, order: 1 }, None)
    }

    /// Whether it is one.
    pub(crate) fn is_greeting(&self) -> bool {
        let Header { kind, flags, id, order, .. } = self.header;
        kind == PacketType::Request
            && flags.0 == Flags::OFFER
            && (id, order) == (0, 1)
            && self.payload.is_empty()
    }

    /// What a FEEDBACK is about.
    ///
    /// # Errors
    /// [`Malformed`] if the payload does not have exactly eight bytes.
    pub fn feedback_for(&self) -> Result<FeedbackFor, Malformed> {
        match self.payload {
            bytes if bytes.len() == FeedbackFor::BYTES => {
                Ok(FeedbackFor { id: u16_at(bytes, 0), port: u16_at(bytes, 2), ip: u32_at(bytes, 4) })
            }
            bytes => Err(field("bytes of a FEEDBACK's payload", bytes.len() as u32, "8")),
        }
    }
}

/// Who speaks for others says for whom.
fn check_policy(header: &Header, extension: Option<&Extension>) -> Result<(), Malformed> {
    let says_for_whom = || extension.and_then(Extension::on_behalf_of).is_some();
    match header.policy {
        Policy::OnBehalf if !says_for_whom() => Err(field("policy", header.policy as u32, POLICIES)),
        _ => Ok(()),
    }
}
