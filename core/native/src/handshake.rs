//! Whether the two sides have met, and what they agreed on.

use crate::hello::{AwaitHello, Peer};
use crate::input::Input;
use crate::wire::{HEADER_BYTES, Header};
use crate::{Config, Features, ProtocolError, Refused};
use trunkline_call::Instant;

/// How far the two have come.
///
/// ```text
/// Awaiting ──HELLO comes──▶ Met
///     └────one that cannot be spoken with──▶ Failed
/// ```
#[derive(Debug)]
pub(crate) enum Handshake {
    /// The peer's HELLO has not come.
    Awaiting(AwaitHello),
    /// It has; this is who the peer is.
    Met(Peer),
    /// It was none to go on with.
    Failed,
}

impl Handshake {
    /// The time of the peer's HELLO counts from here.
    pub fn connected(&mut self, config: &Config, now: Instant) {
        if let Self::Awaiting(hello) = self {
            hello.begin(config, now);
        }
    }

    /// Takes the peer's HELLO; `None` if more of it has to come first.
    pub fn handle_hello(
        &mut self,
        header: &Header,
        input: &mut Input<'_>,
    ) -> Result<Option<&Peer>, ProtocolError> {
        let body_bytes = AwaitHello::body_bytes(header)?;
        if input.len() < HEADER_BYTES + body_bytes {
            return Ok(None);
        }
        input.take(HEADER_BYTES);
        let body = input.take(body_bytes);
        *self = match std::mem::replace(self, Self::Failed) {
            Self::Awaiting(hello) => Self::Met(hello.handle(body)?),
            other => other,
        };
        Ok(self.peer())
    }

    /// Whether the peer's HELLO is still to come.
    pub fn is_awaited(&self) -> bool {
        matches!(self, Self::Awaiting(_))
    }

    /// When to give up waiting for it.
    pub fn give_up_at(&self) -> Option<Instant> {
        match self {
            Self::Awaiting(hello) => Some(hello.give_up_at),
            Self::Met(_) | Self::Failed => None,
        }
    }

    /// Who the peer is.
    pub fn peer(&self) -> Option<&Peer> {
        match self {
            Self::Met(peer) => Some(peer),
            Self::Awaiting(_) | Self::Failed => None,
        }
    }

    /// Who the peer is, for a command that needs to know.
    pub fn established(&self) -> Result<&Peer, Refused> {
        self.peer().ok_or(Refused::NotEstablished)
    }

    /// Whether both sides offered a feature.
    pub fn has(&self, feature: Features) -> bool {
        self.peer().is_some_and(|peer| peer.features.contains(feature))
    }
}
