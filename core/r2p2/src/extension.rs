//! What the extended mode puts between header and payload.

use crate::wire::{FeedbackFor, Flags, Header, Malformed, PacketType, Policy, field, u16_at, u32_at, u64_at};
use core::net::{Ipv4Addr, SocketAddrV4};
use trunkline_call::SERVER_TRAILER_BYTES;

/// Names a request for good: the id in the header repeats after 65,536 requests, this does not.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub struct Identity {
    /// Drawn anew by every client that starts.
    pub epoch: u32,
    /// How often the client's ids have come round.
    pub round: u16,
}

/// The extension of one datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extension {
    /// Which request.
    pub identity: Identity,
    /// What its type adds.
    pub part: Part,
}

/// What each type adds to the identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A packet behind the first.
    Later,
    /// The first packet of a request.
    Request(RequestPart),
    /// The first packet of a reply: the server's stamps, if it has them.
    Reply(Option<[u8; SERVER_TRAILER_BYTES]>),
    /// What has arrived.
    Ack(AckPart),
    /// Why it is refused.
    Drop {
        /// Why.
        reason: Reason,
        /// How long the request waited before. Zero from a client.
        delay_us: u32,
        /// Whose it is, where a router sends it on behalf.
        client: Option<SocketAddrV4>,
    },
    /// What a worker tells its router.
    Feedback(FeedbackPart),
}

/// Of the first packet of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestPart {
    /// Sent before: the first copy, or its answer, may have been lost.
    pub again: bool,
    /// The router's business: workers may be reserved for a class.
    pub class: u8,
    /// The control port of the router it came through, written by that router; FEEDBACK goes there.
    pub router: Option<SocketAddrV4>,
    /// Whose it is, where a router sends it on behalf: in the place of its own address, for it is the sender.
    pub client: Option<SocketAddrV4>,
    /// Time since the client first sent it.
    pub age_us: u32,
    /// Time left until the deadline; `u32::MAX` for none.
    pub budget_us: u32,
}

/// Of an ACK: which packets have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckPart {
    /// Of the reply, from the client; else of the request, from the server.
    pub of_reply: bool,
    /// The message is complete, or nobody wants more of it.
    pub done: bool,
    /// Every packet below this index is there.
    pub next: u16,
    /// Bit i: the packet `next + 1 + i` is there.
    pub beyond: u128,
}

/// Of a FEEDBACK: the worker as it stands. Each repeats all that went before, so that one may be lost or come twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedbackPart {
    /// Requests it works on at once; zero when it leaves.
    pub slots: u16,
    /// It leaves: no more requests.
    pub leaving: bool,
    /// It takes from this router what is sent on behalf of clients.
    pub on_behalf: bool,
    /// How long the request waited at the worker.
    pub queue_ns: u32,
    /// How long it was worked on.
    pub service_ns: u32,
    /// Differs from one start of the worker to the next.
    pub epoch: u32,
    /// Requests this router's worker has taken since it started.
    pub taken: u64,
    /// Of those, finished.
    pub served: u64,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Reason {
    /// By a peer that gives none (the authors' endpoints).
    Unsaid = 0,
    /// The server is full.
    Busy = 1,
    /// The router's queue is full.
    QueueFull = 2,
    /// It waited in the router's queue for as long as it may.
    QueueDelay = 3,
    /// No worker for its class.
    NoWorker = 4,
    /// The message is too long.
    TooLong = 5,
    /// The rest of it did not come.
    Partial = 6,
    /// The deadline had passed before it was begun.
    Deadline = 7,
    /// A repetition of something the receiver cannot know whether it has seen: it may have been executed.
    Forgotten = 8,
    /// It was executed; the reply is no longer kept.
    Served = 9,
    /// From the client: nobody waits any more.
    Cancelled = 10,
}

/// Header and extension of a datagram on its way out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Head {
    bytes: [u8; Head::BYTES_MAX],
    len: u8,
}

/// Bytes every extension begins with.
pub(crate) const LATER_BYTES: usize = 8;
/// Of a request's first packet.
pub(crate) const REQUEST_BYTES: usize = LATER_BYTES + 16;
/// Of a reply's first packet, with stamps.
pub(crate) const REPLY_BYTES: usize = LATER_BYTES + SERVER_TRAILER_BYTES;
const ACK_BYTES: usize = LATER_BYTES + 20;
const DROP_BYTES: usize = LATER_BYTES + 8;
const FEEDBACK_BYTES: usize = LATER_BYTES + 32;

/// Where in what REQUEST and DROP add a router writes an address: port, then IPv4 address.
const ADDRESS_AT: usize = 2;
/// Where in what REQUEST adds its age is, and what is left of its time.
const AGE_AT: usize = 8;
const BUDGET_AT: usize = 12;

/// Bits of the extension's second byte.
const AGAIN: u8 = 0x01;
const OF_REPLY: u8 = 0x02;
const DONE: u8 = 0x04;
const LEAVING: u8 = 0x08;
const ON_BEHALF: u8 = 0x10;

impl Reason {
    /// How many there are.
    pub const COUNT: usize = 11;

    /// Every reason, by its number.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Unsaid,
        Self::Busy,
        Self::QueueFull,
        Self::QueueDelay,
        Self::NoWorker,
        Self::TooLong,
        Self::Partial,
        Self::Deadline,
        Self::Forgotten,
        Self::Served,
        Self::Cancelled,
    ];

    /// In words, for logs and labels of metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unsaid => "unsaid",
            Self::Busy => "busy",
            Self::QueueFull => "queue_full",
            Self::QueueDelay => "queue_delay",
            Self::NoWorker => "no_worker",
            Self::TooLong => "too_long",
            Self::Partial => "partial",
            Self::Deadline => "deadline",
            Self::Forgotten => "forgotten",
            Self::Served => "served",
            Self::Cancelled => "cancelled",
        }
    }
}

impl Extension {
    /// Reads the extension behind a header; gives the payload behind it, too.
    ///
    /// # Errors
    /// [`Malformed`] naming the field.
    pub(crate) fn decode<'a>(header: &Header, rest: &'a [u8]) -> Result<(Self, &'a [u8]), Malformed> {
        let len = usize::from(*rest.first().ok_or(short(rest, LATER_BYTES))?) * 4;
        if len < LATER_BYTES || rest.len() < len {
            return Err(short(rest, len.max(LATER_BYTES)));
        }
        let (block, payload) = rest.split_at(len);
        let identity = Identity { round: u16_at(block, 2), epoch: u32_at(block, 4) };
        let part = Part::decode(header, block)?;
        Ok((Self { identity, part }, payload))
    }

    pub(crate) fn on_behalf_of(&self) -> Option<SocketAddrV4> {
        match &self.part {
            Part::Request(part) => part.client,
            Part::Drop { client, .. } => *client,
            _ => None,
        }
    }

    /// Appends the block.
    pub(crate) fn encode(&self, head: &mut Head) {
        head.put(&[(self.part.bytes() / 4) as u8, self.part.bits()]);
        head.put(&self.identity.round.to_be_bytes());
        head.put(&self.identity.epoch.to_be_bytes());
        match &self.part {
            Part::Later | Part::Reply(None) => {}
            Part::Reply(Some(trailer)) => head.put(trailer),
            Part::Request(part) => part.encode(head),
            Part::Ack(part) => part.encode(head),
            Part::Drop { reason, client: Some(client), .. } => {
                head.put(&[*reason as u8, 0]);
                put_address(head, Some(*client));
            }
            Part::Drop { reason, delay_us, client: None } => {
                head.put(&[*reason as u8, 0, 0, 0]);
                head.put(&delay_us.to_be_bytes());
            }
            Part::Feedback(part) => part.encode(head),
        }
    }
}

impl Part {
    fn decode(header: &Header, block: &[u8]) -> Result<Self, Malformed> {
        let first = header.flags.has(Flags::FIRST);
        let wanted = match (header.kind, first) {
            (PacketType::Request, true) => REQUEST_BYTES,
            (PacketType::Reply, true) if block.len() > LATER_BYTES => REPLY_BYTES,
            (PacketType::Request | PacketType::Reply, _) => LATER_BYTES,
            (PacketType::Ack, _) => ACK_BYTES,
            (PacketType::Drop, _) => DROP_BYTES,
            (PacketType::Feedback, _) => FEEDBACK_BYTES,
        };
        if block.len() != wanted {
            return Err(field("bytes of the extension", block.len() as u32, "what its type has"));
        }
        let (bits, body) = (block[1], &block[LATER_BYTES..]);
        let on_behalf = header.policy == Policy::OnBehalf;
        Ok(match (header.kind, first) {
            (PacketType::Request, true) => Self::Request(RequestPart::decode(bits, on_behalf, body)),
            (PacketType::Reply, true) => Self::Reply(body.first_chunk().copied()),
            (PacketType::Request | PacketType::Reply, false) => Self::Later,
            (PacketType::Ack, _) => Self::Ack(AckPart::decode(bits, body)),
            (PacketType::Drop, _) => {
                let known = Reason::ALL.get(usize::from(body[0])).copied();
                let reason = known.ok_or(field("reason", body[0].into(), "0 to 10"))?;
                let client = address_at(body).filter(|_| on_behalf);
                let delay_us = if on_behalf { 0 } else { u32_at(body, 4) };
                Self::Drop { reason, delay_us, client }
            }
            (PacketType::Feedback, _) => Self::Feedback(FeedbackPart::decode(bits, body)),
        })
    }

    /// Length of the whole block.
    fn bytes(&self) -> usize {
        match self {
            Self::Later | Self::Reply(None) => LATER_BYTES,
            Self::Request(_) => REQUEST_BYTES,
            Self::Reply(Some(_)) => REPLY_BYTES,
            Self::Ack(_) => ACK_BYTES,
            Self::Drop { .. } => DROP_BYTES,
            Self::Feedback(_) => FEEDBACK_BYTES,
        }
    }

    fn bits(&self) -> u8 {
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        match self {
            Self::Later | Self::Reply(_) | Self::Drop { .. } => 0,
            Self::Request(part) => bit(part.again, AGAIN),
            Self::Ack(part) => bit(part.of_reply, OF_REPLY) | bit(part.done, DONE),
            Self::Feedback(part) => bit(part.leaving, LEAVING) | bit(part.on_behalf, ON_BEHALF),
        }
    }
}

impl RequestPart {
    fn decode(bits: u8, on_behalf: bool, body: &[u8]) -> Self {
        let address = address_at(body);
        Self {
            again: bits & AGAIN != 0,
            class: body[0],
            router: address.filter(|_| !on_behalf),
            client: address.filter(|_| on_behalf),
            age_us: u32_at(body, AGE_AT),
            budget_us: u32_at(body, BUDGET_AT),
        }
    }

    fn encode(&self, head: &mut Head) {
        head.put(&[self.class, 0]);
        put_address(head, self.client.or(self.router));
        head.put(&self.age_us.to_be_bytes());
        head.put(&self.budget_us.to_be_bytes());
    }
}

impl AckPart {
    /// Packets behind `next` an ACK can name.
    pub const BEYOND: u16 = 128;

    fn decode(bits: u8, body: &[u8]) -> Self {
        let beyond = u128::from(u64_at(body, 4)) << 64 | u128::from(u64_at(body, 12));
        Self { of_reply: bits & OF_REPLY != 0, done: bits & DONE != 0, next: u16_at(body, 0), beyond }
    }

    fn encode(&self, head: &mut Head) {
        head.put(&self.next.to_be_bytes());
        head.put(&[0, 0]);
        head.put(&self.beyond.to_be_bytes());
    }
}

impl FeedbackPart {
    fn decode(bits: u8, body: &[u8]) -> Self {
        Self {
            slots: u16_at(body, 0),
            leaving: bits & LEAVING != 0,
            on_behalf: bits & ON_BEHALF != 0,
            queue_ns: u32_at(body, 4),
            service_ns: u32_at(body, 8),
            epoch: u32_at(body, 12),
            taken: u64_at(body, 16),
            served: u64_at(body, 24),
        }
    }

    fn encode(&self, head: &mut Head) {
        head.put(&self.slots.to_be_bytes());
        head.put(&[0, 0]);
        head.put(&self.queue_ns.to_be_bytes());
        head.put(&self.service_ns.to_be_bytes());
        head.put(&self.epoch.to_be_bytes());
        head.put(&self.taken.to_be_bytes());
        head.put(&self.served.to_be_bytes());
    }
}

impl Head {
    /// The longest: a reply's first packet with stamps.
    pub const BYTES_MAX: usize = crate::HEADER_BYTES + REPLY_BYTES;

    pub(crate) fn new(bytes: &[u8]) -> Self {
        let mut head = Self { bytes: [0; Self::BYTES_MAX], len: 0 };
        head.put(bytes);
        head
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    fn put(&mut self, bytes: &[u8]) {
        let start = usize::from(self.len);
        self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len() as u8;
    }
}

impl std::fmt::Debug for Head {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Head").field(&self.as_slice()).finish()
    }
}

/// What a router writes into a datagram it sends on, in place: the extension says where FEEDBACK goes.
pub(crate) fn write_router(datagram: &mut [u8], control: SocketAddrV4) {
    write_address(datagram, control);
}

/// What a router writes into a REQUEST or DROP it sends in its own name, in place: the extension says whose it is.
pub(crate) fn write_client(datagram: &mut [u8], client: SocketAddrV4) {
    let kind = datagram[Header::POLICY_AT] & 0xf0;
    datagram[Header::POLICY_AT] = kind | Policy::OnBehalf as u8;
    write_address(datagram, client);
}

/// What a router writes into a REQUEST it sends on, in place: that lay in its socket for so long, so its client sent it
/// first so much earlier, and gives up so much sooner.
pub(crate) fn write_lay(datagram: &mut [u8], lay_ns: u64) {
    let at = crate::HEADER_BYTES + LATER_BYTES;
    let Some(part) = datagram.get_mut(at..) else { return };
    let lay_us = u32::try_from(lay_ns.div_ceil(1000)).unwrap_or(u32::MAX);
    let (age_us, budget_us) = (u32_at(part, AGE_AT), u32_at(part, BUDGET_AT));
    let left_us = if budget_us == u32::MAX { budget_us } else { budget_us.saturating_sub(lay_us) };
    part[AGE_AT..AGE_AT + 4].copy_from_slice(&age_us.saturating_add(lay_us).to_be_bytes());
    part[BUDGET_AT..BUDGET_AT + 4].copy_from_slice(&left_us.to_be_bytes());
}

fn write_address(datagram: &mut [u8], address: SocketAddrV4) {
    let at = crate::HEADER_BYTES + LATER_BYTES + ADDRESS_AT;
    datagram[at..at + 2].copy_from_slice(&address.port().to_be_bytes());
    datagram[at + 2..at + 6].copy_from_slice(&address.ip().octets());
}

fn put_address(head: &mut Head, address: Option<SocketAddrV4>) {
    let address = address.unwrap_or(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));
    head.put(&address.port().to_be_bytes());
    head.put(&address.ip().octets());
}

/// The address in what REQUEST and DROP add; none has port 0.
fn address_at(body: &[u8]) -> Option<SocketAddrV4> {
    let (port, ip) = (u16_at(body, ADDRESS_AT), u32_at(body, ADDRESS_AT + 2));
    (port != 0).then(|| SocketAddrV4::new(Ipv4Addr::from(ip), port))
}

/// A FEEDBACK that is about no request: a worker says that it is there, or that it leaves.
pub const NO_REQUEST: FeedbackFor = FeedbackFor { id: 0, port: 0, ip: 0 };

fn short(rest: &[u8], needed: usize) -> Malformed {
    Malformed::Short { found: rest.len() + crate::HEADER_BYTES, needed: needed + crate::HEADER_BYTES }
}
