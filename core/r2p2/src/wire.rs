//! The bytes of a datagram: header, extension, payload. Strict on the way in, exact on the way out.

use thiserror::Error;

/// First byte of every datagram.
pub const MAGIC: u8 = 0xcc;
/// Bytes of the header, and what its second byte says.
pub const HEADER_BYTES: usize = 8;
/// Most bytes behind the header, extension included: 1500 less the headers of IPv4, UDP and R2P2.
pub const PAYLOAD_BYTES_MAX: usize = 1464;
/// Payload of the first packet of a request that has several: with it the Ethernet frame has its least length, so that
/// all a router forwards is small.
pub const FIRST_BYTES: usize = 14;
/// Most packets of a message among the authors' endpoints, which count them in a byte with two values kept.
pub const PACKETS_MAX_COMPATIBLE: usize = 254;
/// Most packets of a message in the extended mode: the order field has 16 bits, and `u16::MAX` is kept.
pub const PACKETS_MAX_EXTENDED: usize = u16::MAX as usize - 1;
/// Payload of an ACK and of a DROP.
pub(crate) const ACK: &[u8] = b"ACK";
pub(crate) const DROP: &[u8] = b"DROP";
pub(crate) const POLICIES: &str = "0 (unrestricted), 1 (sticky) or, with the client it is for, 2 (on behalf)";

/// What a datagram is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PacketType {
    /// A request, or its beginning.
    Request = 0,
    /// A reply, or a part of it.
    Reply = 1,
    /// A server to its router: one request is done.
    Feedback = 2,
    /// Send the rest of the request here (REQRDY in the paper). Extended: what has arrived of a message.
    Ack = 3,
    /// Refused.
    Drop = 4,
}

/// How a router may treat a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[repr(u8)]
pub enum Policy {
    /// Any server will do.
    Unrestricted = 0,
    /// Always the same server for the same client address; what is not a request carries this.
    Sticky = 1,
    /// Routed: a router sends it in its own name, and the extension says whose it is. Never from a client.
    OnBehalf = 2,
}

/// The flags byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u8);

/// The eight bytes every datagram begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What it is.
    pub kind: PacketType,
    /// How to route it.
    pub policy: Policy,
    /// First, last, and the two bits of the extended mode.
    pub flags: Flags,
    /// Names the request among those of its client's address and port.
    pub id: u16,
    /// In the first packet of a message their number, else the packet's index.
    pub order: u16,
}

/// The request a FEEDBACK is about, as its server saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FeedbackFor {
    /// Request id.
    pub id: u16,
    /// The client's port and address. All zero: about no request.
    pub port: u16,
    /// IPv4 address, as a number.
    pub ip: u32,
}

/// Why a datagram is none of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Malformed {
    /// Shorter than its fixed part.
    #[error("datagram has {found} bytes, needs {needed}")]
    Short {
        /// Bytes there.
        found: usize,
        /// Bytes needed.
        needed: usize,
    },
    /// Longer than fits an Ethernet frame.
    #[error("datagram has {found} bytes, limit {limit}")]
    Long {
        /// Bytes there.
        found: usize,
        /// Most.
        limit: usize,
    },
    /// A field with a value that cannot be.
    #[error("{field} is {value}, must be {rule}")]
    Field {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u32,
        /// What it had to be.
        rule: &'static str,
    },
}

impl Flags {
    /// First packet of its message.
    pub const FIRST: u8 = 0x80;
    /// Last packet of its message.
    pub const LAST: u8 = 0x40;
    /// The sender understands the extended mode. Among the reserved bits, which the authors' endpoints ignore.
    pub const OFFER: u8 = 0x20;
    /// An extension follows the header. Only to who has shown OFFER.
    pub const EXTENDED: u8 = 0x10;

    /// Whether all of `bits` are set.
    pub fn has(self, bits: u8) -> bool {
        self.0 & bits == bits
    }
}

impl Header {
    /// Where type and policy lie in a datagram.
    pub(crate) const POLICY_AT: usize = 2;
    /// Where the flags lie in a datagram.
    pub(crate) const FLAGS_AT: usize = 3;

    /// Reads the header of any type but FEEDBACK.
    ///
    /// # Errors
    /// [`Malformed`] naming the field.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let kind = kind_of(bytes)?;
        if usize::from(bytes[1]) != HEADER_BYTES {
            return Err(field("header size", bytes[1].into(), "8"));
        }
        let policy = match bytes[2] & 0x0f {
            0 => Policy::Unrestricted,
            1 => Policy::Sticky,
            2 => Policy::OnBehalf,
            other => return Err(field("policy", other.into(), POLICIES)),
        };
        let (id, order) = (u16_at(bytes, 4), u16_at(bytes, 6));
        let header = Self { kind, policy, flags: Flags(bytes[3]), id, order };
        header.check_order()?;
        Ok(header)
    }

    /// The eight bytes.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let [id0, id1] = self.id.to_be_bytes();
        let [order0, order1] = self.order.to_be_bytes();
        let kind = (self.kind as u8) << 4 | self.policy as u8;
        [MAGIC, HEADER_BYTES as u8, kind, self.flags.0, id0, id1, order0, order1]
    }

    /// Index of this packet in its message.
    pub fn index(&self) -> u16 {
        if self.flags.has(Flags::FIRST) { 0 } else { self.order }
    }

    /// Number of packets of the message, where this one tells: the first and the last do.
    pub fn count(&self) -> Option<u16> {
        match (self.flags.has(Flags::FIRST), self.flags.has(Flags::LAST)) {
            (true, _) => Some(self.order),
            (false, true) => Some(self.order + 1),
            (false, false) => None,
        }
    }

    fn check_order(&self) -> Result<(), Malformed> {
        let (first, last) = (self.flags.has(Flags::FIRST), self.flags.has(Flags::LAST));
        let value = self.order.into();
        match (first, last) {
            (true, true) if self.order != 1 => {
                Err(field("packet count", value, "1 in a message's only packet"))
            }
            (true, false) if self.order < 2 => Err(field("packet count", value, "2 or more")),
            (false, _) if self.order == 0 => Err(field("packet index", value, "1 or more behind the first")),
            _ if self.order == u16::MAX => Err(field("packet order", value, "below 65535")),
            _ => Ok(()),
        }
    }
}

impl Header {
    /// The header of a FEEDBACK as written here: the authors leave it unset but for magic and type.
    pub(crate) fn of_feedback() -> Self {
        Self {
            kind: PacketType::Feedback,
            policy: Policy::Unrestricted,
            flags: Flags(Flags::FIRST | Flags::LAST),
            id: 0,
            order: 1,
        }
    }
}

impl FeedbackFor {
    /// Bytes of a FEEDBACK's payload.
    pub const BYTES: usize = 8;

    /// The eight bytes.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        out[..2].copy_from_slice(&self.id.to_be_bytes());
        out[2..4].copy_from_slice(&self.port.to_be_bytes());
        out[4..].copy_from_slice(&self.ip.to_be_bytes());
        out
    }
}

pub(crate) fn kind_of(bytes: &[u8]) -> Result<PacketType, Malformed> {
    if bytes.len() < HEADER_BYTES {
        return Err(Malformed::Short { found: bytes.len(), needed: HEADER_BYTES });
    }
    if bytes[0] != MAGIC {
        return Err(field("magic", bytes[0].into(), "0xcc"));
    }
    Ok(match bytes[2] >> 4 {
        0 => PacketType::Request,
        1 => PacketType::Reply,
        2 => PacketType::Feedback,
        3 => PacketType::Ack,
        4 => PacketType::Drop,
        other => return Err(field("type", other.into(), "0 to 4")),
    })
}

pub(crate) fn field(field: &'static str, value: u32, rule: &'static str) -> Malformed {
    Malformed::Field { field, value, rule }
}

/// Big-endian, at an offset the caller has checked.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) << 16 | u32::from(u16_at(bytes, at + 2))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) << 32 | u64::from(u32_at(bytes, at + 4))
}
