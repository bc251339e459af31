//! Frames out: which number a method has on a connection, whether linear messages may pass, and how a body leaves.

use super::ends::PeerEnds;
use crate::call::{Body, Call, Direction};
use crate::convert::{Scratch, WireBody, for_wire};
use crate::convert_error::{ConvertError, conversion_fault, untyped};
use crate::ends::{Blocker, Refusal};
use crate::limits::METHODS_UNPROVEN;
use crate::peer::{Announced, Lent};
use crate::registry::MethodKey;
use crate::table::Key;
use crate::unproven::Whose;
use crate::{CallKey, Heaps, PeerKey};
use trunkline_call::{Fault, Instant};
use trunkline_native::{Body as FrameBody, Connection, MethodIndex, Payload, Refused, SharedRange, StreamId};

/// A connection that has few numbers of methods left is replaced no more often than this.
const RENEW_NS: u64 = 30_000_000_000;

/// Why a frame was not queued.
pub(crate) enum Unsent {
    /// The connection is not there any more.
    Gone,
    Refused(Refused),
    Convert(ConvertError),
    Fault(Fault),
}

/// What became of the body of a frame that is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodySent {
    /// The connection reads it where it is.
    Lent,
    Copied,
}

/// A body on its way out.
pub(crate) struct Outbound<'a, 'b> {
    pub key: CallKey,
    pub call: &'a Call,
    pub direction: Direction,
    /// Whether it may go out linear.
    pub agreed: bool,
    /// Longer ones are lent, unless the connection has checksums.
    pub inline_max: u32,
    pub body: &'a Body<'b>,
}

impl PeerEnds {
    /// Converts a body, lends or copies it to the connection, and runs the command that queues the frame.
    pub fn send<T>(
        &mut self,
        key: PeerKey,
        now: Instant,
        heaps: &mut dyn Heaps,
        scratch: &mut Scratch,
        out: &Outbound<'_, '_>,
        command: impl FnOnce(&mut Connection, Instant, Option<Payload<'_>>) -> Result<T, Refused>,
    ) -> Result<(T, BodySent), Unsent> {
        let &Outbound { key: call, direction, agreed, inline_max, body, .. } = out;
        let peer = self.table.find_mut(key).ok_or(Unsent::Gone)?;
        let types = out.call.types_sent(direction).ok_or_else(|| Unsent::Fault(untyped()))?;
        // What has a checksum must not change any more: it is copied.
        let inline_max = if peer.connection.has_checksums() { u32::MAX } else { inline_max };
        let (wire, encoding) = for_wire(heaps, scratch, types.of(direction), agreed, inline_max, body)
            .map_err(Unsent::Convert)?;
        let (frame, token) = match wire {
            WireBody::Inline(bytes) => (FrameBody::Inline(bytes), None),
            WireBody::Shared { session, payload, span } => {
                let (block, window_bytes) = (payload.span, payload.window_bytes());
                let token = self.lent.insert(Lent { session, span, block, window_bytes, call, direction });
                let range = SharedRange { token: token.to_bits(), offset: 0, len: span.len };
                (FrameBody::Shared(range), Some(token))
            }
        };
        match (command(&mut peer.connection, now, Some(Payload { encoding, body: frame })), token) {
            (Ok(done), Some(_)) => Ok((done, BodySent::Lent)),
            (Ok(done), None) => Ok((done, BodySent::Copied)),
            (Err(refused), token) => {
                if let Some(token) = token {
                    self.lent.remove(token);
                }
                Err(Unsent::Refused(refused))
            }
        }
    }

    /// A connection no longer reads a send-heap range.
    pub fn body_done(&mut self, token: u64) -> Option<Lent> {
        self.lent.remove(Key::from_bits(token))
    }

    /// Numbers of methods are never given back: where a quarter is left another connection is to be dialled, which
    /// takes this one's place and begins anew. Whether that is so now.
    pub fn wants_renewal(&mut self, now: Instant, key: PeerKey) -> bool {
        let Some(peer) = self.table.find_mut(key) else { return false };
        let (announced, max) = peer.connection.methods_announced();
        let is_due = announced >= max - max / 4 && now >= peer.renews_at;
        if is_due {
            peer.is_asked_to_redial = false;
        }
        is_due
    }

    /// Another is dialled, if it came about; if not, it is tried again.
    pub fn renewed(&mut self, now: Instant, key: PeerKey) {
        if let Some(peer) = self.table.find_mut(key).filter(|peer| peer.is_asked_to_redial) {
            peer.renews_at = now.plus_ns(RENEW_NS);
        }
    }

    /// Announces a method that is new on a connection. Who makes calls of what is not there has half of the numbers.
    pub fn announce(
        &mut self,
        key: PeerKey,
        whose: Whose,
        method: (MethodKey, [u64; 2]),
        path: &str,
    ) -> Result<MethodIndex, Unsent> {
        let peer = self.table.find_mut(key).ok_or(Unsent::Gone)?;
        let (_, max) = peer.connection.methods_announced();
        // An answer takes a while: who has many methods and calls them all at once is to be told apart from others.
        if !peer.unproven.has_room(&whose, 2 * max) {
            return Err(Unsent::Fault(Fault::Limit { name: METHODS_UNPROVEN, limit: max as u64 / 2 }));
        }
        let [request, response] = method.1;
        let index = peer.connection.announce_schema(path, request, response).map_err(Unsent::Refused)?;
        peer.announced.insert(method, index);
        peer.unproven.bring(method.0, whose);
        Ok(index)
    }

    /// The number a method has on a connection; `None` if it is new there.
    pub fn announced(
        &self,
        key: PeerKey,
        method: (MethodKey, [u64; 2]),
    ) -> Result<Option<Announced>, Unsent> {
        let peer = self.table.find(key).ok_or(Unsent::Gone)?;
        let index = peer.announced.get(&method).copied();
        Ok(index.map(|index| Announced { index, agreed: peer.takes_linear(index, method.1[0]) }))
    }

    /// Something of an answer has come: the peer has the method.
    #[inline]
    pub fn answered(&mut self, key: PeerKey, method: MethodKey) {
        if let Some(peer) = self.table.find_mut(key) {
            peer.unproven.answered(method);
        }
    }

    /// Whether linear messages may pass in this direction of a call.
    pub fn agreed(&self, call: &Call, direction: Direction, key: PeerKey, stream: StreamId) -> bool {
        let (Some(peer), types) = (self.table.find(key), call.types_sent(direction)) else { return false };
        match direction {
            Direction::Request => {
                let Some(types) = types else { return false };
                let fingerprints = [types.input.fingerprint(), types.output.fingerprint()];
                let index = peer.announced.get(&(call.method, fingerprints));
                index.is_some_and(|index| peer.takes_linear(*index, fingerprints[0]))
            }
            Direction::Response => {
                let output = types.map(|types| types.output.fingerprint());
                // The peer was told when it announced the method; a server that came later has not been spoken of.
                let same = output.is_some() && call.offered.map(|[_, response]| response) == output;
                same && peer.connection.agreed_on(stream)
            }
        }
    }

    /// What it means for an item that its frame was not queued; `gone`: because there is no connection.
    pub fn refusal(
        &self,
        unsent: Unsent,
        key: PeerKey,
        direction: Direction,
        gone: impl FnOnce() -> Fault,
    ) -> Refusal {
        let limit = |name, limit: u32| Refusal::Fault(Fault::Limit { name, limit: limit.into() });
        let refused = match unsent {
            Unsent::Gone => return Refusal::Fault(gone()),
            Unsent::Refused(refused) => refused,
            Unsent::Fault(fault) => return Refusal::Fault(fault),
            Unsent::Convert(error) => return Refusal::Fault(conversion_fault(error, direction)),
        };
        match refused {
            Refused::QueueFull { .. } | Refused::Streams { .. } => Refusal::Blocked(Blocker::Peer(key)),
            Refused::StreamQueueFull { .. } => Refusal::Blocked(Blocker::Stream),
            Refused::MessageTooLarge { limit: most } => {
                limit("bytes of a message (limits.message_bytes of the daemon at the other end)", most)
            }
            Refused::MetadataTooLarge { limit: most } => {
                limit("bytes of metadata (fixed, by the daemon at the other end)", most)
            }
            Refused::Methods { limit: most } => limit("methods of one connection (fixed)", most),
            other => {
                let endpoint = self.table.find(key).map_or_else(String::new, |peer| peer.label.clone());
                Refusal::Fault(Fault::Unreachable { endpoint, why: other.to_string() })
            }
        }
    }
}
