//! What a server knows of one request, from its first packet until nobody can ask about it any more.

use crate::config::Config;
use crate::cut::Cut;
use crate::extension::Identity;
use crate::headway::Headway;
use crate::incoming::Incoming;
use crate::outgoing::Outgoing;
use bytes::Bytes;
use core::hash::{Hash, Hasher};
use core::net::SocketAddrV4;
use serde::{Deserialize, Serialize};
use trunkline_call::{Deadline, Instant, SERVER_TRAILER_BYTES, TimerKey};

/// Names a request at its server: an RPC is (client address, client port, id), and in the extended mode that use of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestKey {
    pub(crate) client: SocketAddrV4,
    pub(crate) id: u16,
    pub(crate) identity: Option<Identity>,
}

/// ```text
///  Receiving ──▶ Executing ──▶ Replying ──▶ Served      the end is remembered, so that
///      │             └────────▶ Kept ──────▶┘           a repetition is never executed
///      └──▶ Abandoned
/// ```
///
/// Nearly all that are known are over: what only the others have is apart from them.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Stage {
    /// Some of it is here.
    Receiving { incoming: Box<Incoming>, last: Instant },
    /// The owner has it.
    Executing { cancelled: bool },
    /// A reply of several packets is on its way (extended).
    Replying { outgoing: Box<Outgoing> },
    /// The reply is out, one packet, and kept for whoever asks again (extended).
    Kept,
    /// It is over.
    Served,
    /// It was never executed: the rest did not come.
    Abandoned,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Served {
    pub stage: Stage,
    /// Shows the bit: answers may, too.
    pub offers: bool,
    /// The router it came through.
    pub router: Option<SocketAddrV4>,
    pub class: u8,
    pub deadline: Deadline,
    /// Of the message of several packets that is coming or going.
    #[serde(default)]
    pub headway: Headway,
    #[serde(skip)]
    pub timer: Option<(TimerKey, Instant)>,
    /// The reply, while it may have to be sent again.
    #[serde(skip)]
    pub reply: Bytes,
    #[serde(with = "trunkline_call::octets::trailer")]
    pub trailer: Option<[u8; SERVER_TRAILER_BYTES]>,
    /// What FEEDBACK said of it.
    pub timing: Timing,
}

/// How long a request took at its server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timing {
    /// Waiting to be begun.
    pub queue_ns: u64,
    /// Being worked on.
    pub service_ns: u64,
}

/// Two words instead of seven short pieces: every datagram is looked up by its key, and the keyed hash of the standard
/// library, which clients cannot aim at, takes most of its time for pieces.
impl Hash for RequestKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let (ip, port) = (u64::from(u32::from(*self.client.ip())), u64::from(self.client.port()));
        state.write_u64(ip << 32 | port << 16 | u64::from(self.id));
        let identity = self.identity.map(|one| 1 << 48 | u64::from(one.epoch) << 16 | u64::from(one.round));
        state.write_u64(identity.unwrap_or(0));
    }
}

impl Stage {
    /// Whether it is over, and only remembered.
    pub fn is_end(&self) -> bool {
        matches!(self, Self::Kept | Self::Served | Self::Abandoned)
    }
}

impl RequestKey {
    /// The client's address and port.
    pub fn client(&self) -> SocketAddrV4 {
        self.client
    }

    /// Whether the client speaks the extended mode.
    pub fn is_extended(&self) -> bool {
        self.identity.is_some()
    }
}

impl Served {
    pub fn new(stage: Stage, offers: bool, router: Option<SocketAddrV4>) -> Self {
        let (reply, trailer, timing) = (Bytes::new(), None, Timing::default());
        Self {
            stage,
            offers,
            router,
            class: 0,
            deadline: Deadline::NONE,
            headway: Headway::default(),
            timer: None,
            reply,
            trailer,
            timing,
        }
    }

    /// Goes on with a request that is not over and was another process's. `false` if it contradicts itself.
    pub fn take_up(&mut self, extended: bool) -> bool {
        match &mut self.stage {
            Stage::Receiving { incoming, .. } => incoming.take_up(),
            Stage::Executing { .. } => true,
            Stage::Replying { outgoing } => {
                self.reply = outgoing.body.clone();
                extended && outgoing.take_up(Cut::reply(extended))
            }
            Stage::Kept | Stage::Served | Stage::Abandoned => false,
        }
    }

    /// When to look at it again.
    pub fn next_timeout(&self, config: &Config) -> Option<Instant> {
        let of_stage = match &self.stage {
            Stage::Receiving { last, .. } => Some(last.plus_ns(config.partial_ns_max)),
            Stage::Replying { outgoing } => outgoing.next_timeout(),
            Stage::Executing { .. } | Stage::Kept | Stage::Served | Stage::Abandoned => return None,
        };
        let look = self.headway.next_look(config.stall_ns);
        [of_stage, self.deadline.instant(), look].into_iter().flatten().min()
    }
}
