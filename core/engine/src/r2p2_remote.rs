//! Endpoints reached over R2P2: whether anybody is there, what they speak, and which types they read.
//!
//! There is no connection to make, but a request nobody takes must not count as one that may have been executed. So an
//! endpoint is greeted before its first call: an envelope without a path, which every server answers and none
//! executes. The answer shows whether the extended mode is understood there. Calls wait in line meanwhile; when nobody
//! answers they fail as *not executed*, and the endpoint rests for a while. An endpoint that falls silent in the middle
//! of calls is greeted again.

use crate::call::{Direction, Item};
use crate::engine::{Engine, Turn};
use crate::limits::WAITING;
use crate::pass::{Blocker, Refusal};
use crate::r2p2::R2p2;
use crate::registry::MethodKey;
use crate::remote::{Remote, Speaks};
use crate::{CallKey, RemoteKey};
use core::net::{Ipv4Addr, SocketAddrV4};
use serde::{Deserialize, Serialize};
use trunkline_call::{Deadline, Fault, Instant, KeyedMap};
use trunkline_r2p2::{CallFailure, Mode, NewCall, RequestEnvelope};

/// What is known of an endpoint reached over R2P2.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct R2p2Remote {
    pub target: SocketAddrV4,
    greeting: Greeting,
    agreed: KeyedMap<MethodKey, Agreed>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Greeting {
    /// To be sent before the next call.
    Wanted,
    /// Sent so many times before.
    Sent(u32),
    /// Answered, by somebody who speaks the extended mode or not.
    Answered { extended: bool },
}

/// The request type the servers of a method have there.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Agreed {
    fingerprint: u64,
    /// Some server there has another: linear requests are not tried before this instant.
    not_before: Instant,
}

/// The scheme of endpoints.
const SCHEME: &str = "r2p2://";
/// Time for the first answer to a greeting; doubles. Longer than a router's queue or a busy host's turn.
const GREETING_NS: u64 = 250_000_000;
/// Greetings nobody answers before the endpoint counts as unreachable: two seconds in all.
const GREETINGS_MAX: u32 = 3;
/// After one server behind an endpoint could not read a linear request, protobuf is sent there for this long: a
/// service is being replaced, and every refusal costs a round trip.
const DISAGREED_NS: u64 = 60_000_000_000;

/// Tells the tags of greetings from those of calls, whose keys have 63 bits.
pub(crate) const GREETING_TAG: u64 = 1 << 63;

impl R2p2Remote {
    /// If the endpoint is one: `r2p2://10.0.0.7:8000`, or `localhost` for the address.
    pub fn of(endpoint: &str) -> Option<Self> {
        let address = endpoint.strip_prefix(SCHEME)?;
        let target = match address.strip_prefix("localhost:") {
            Some(port) => SocketAddrV4::new(Ipv4Addr::LOCALHOST, port.parse().ok()?),
            None => address.parse().ok()?,
        };
        Some(Self { target, greeting: Greeting::Wanted, agreed: KeyedMap::default() })
    }

    /// Whether another process's knowledge is of this endpoint, and holds together.
    pub fn is_of(&self, endpoint: &str) -> bool {
        let counted = !matches!(self.greeting, Greeting::Sent(before) if before >= GREETINGS_MAX);
        counted && Self::of(endpoint).is_some_and(|of| of.target == self.target)
    }

    pub fn is_greeting(&self) -> bool {
        matches!(self.greeting, Greeting::Sent(_))
    }

    pub fn is_there(&self) -> bool {
        matches!(self.greeting, Greeting::Answered { .. })
    }

    /// Whether requests of this type are read there as they are.
    pub fn reads(&self, now: Instant, method: MethodKey, fingerprint: u64) -> bool {
        let agreed = self.agreed.get(&method);
        agreed.is_some_and(|agreed| agreed.fingerprint == fingerprint && agreed.not_before <= now)
    }

    /// A server there says which request type it has.
    pub fn has(&mut self, method: MethodKey, fingerprint: u64) {
        self.agreed.entry(method).or_default().fingerprint = fingerprint;
    }

    /// A server there could not read a linear request.
    pub fn disagrees(&mut self, now: Instant, method: MethodKey) {
        self.agreed.entry(method).or_default().not_before = now.plus_ns(DISAGREED_NS);
    }

    /// Nobody answers any more.
    pub fn fell_silent(&mut self) {
        if self.is_there() {
            self.greeting = Greeting::Wanted;
        }
    }

    /// Whether calls may go there without another greeting.
    fn is_ready(&self, r2p2: &mut R2p2, message_bytes_max: u32) -> bool {
        let speaks = r2p2.client(message_bytes_max).speaks_extended(self.target);
        r2p2.mode() == Mode::Compatible || self.greeting == (Greeting::Answered { extended: speaks })
    }
}

impl Engine {
    // LIFE: 9 R2P2
    /// A call for an endpoint reached over R2P2: at once, or in line until it has answered a greeting.
    pub(crate) fn hand_to_r2p2_remote<'a>(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        remote_key: RemoteKey,
        item: Item<'a>,
    ) -> Result<(), Refusal<'a>> {
        let waiting_max = self.pending_max(key);
        if self.streams_from_here(key) {
            let endpoint = self.endpoint_of(remote_key);
            self.drop_item(item);
            return Err(Refusal::Fault(Fault::Streams { endpoint }));
        }
        let Some(remote) = self.remotes.find_mut(remote_key) else {
            self.drop_item(item);
            return Err(Refusal::Fault(Fault::NoRoute { what: "endpoint".into() }));
        };
        let Some(r2p2) = &remote.r2p2 else { return Err(self.unreachable(key, remote_key, item)) };
        if r2p2.is_ready(&mut self.r2p2, self.limits.message_bytes) {
            return self.open_at_r2p2(turn, key, remote_key, item);
        }
        if !r2p2.is_greeting() {
            if remote.not_before > turn.now {
                return Err(self.unreachable(key, remote_key, item));
            }
            self.greet(turn.now, remote_key, 0);
        } else if remote.waiting.len() >= waiting_max {
            self.drop_item(item);
            let limit = waiting_max as u64;
            return Err(Refusal::Fault(Fault::Limit { name: WAITING, limit }));
        }
        Err(Refusal::Blocked(item, Blocker::Remote(remote_key)))
    }

    /// A greeting was answered.
    pub(crate) fn greeted(&mut self, turn: &mut Turn<'_>, remote_key: RemoteKey) {
        let Some(remote) = self.remotes.find_mut(remote_key) else { return };
        remote.connected(Speaks::R2p2);
        if let Some(r2p2) = &mut remote.r2p2 {
            let client = self.r2p2.client(self.limits.message_bytes);
            r2p2.greeting = Greeting::Answered { extended: client.speaks_extended(r2p2.target) };
        }
        self.serve_line(turn, remote_key);
    }

    /// A greeting was not answered, or refused.
    pub(crate) fn not_greeted(&mut self, turn: &mut Turn<'_>, remote_key: RemoteKey, failure: CallFailure) {
        let Some(r2p2) = self.remotes.find_mut(remote_key).and_then(|remote| remote.r2p2.as_mut()) else {
            return;
        };
        let Greeting::Sent(before) = r2p2.greeting else { return };
        let silent = matches!(failure, CallFailure::Deadline | CallFailure::Silent);
        if silent && before + 1 < GREETINGS_MAX {
            return self.greet(turn.now, remote_key, before + 1);
        }
        r2p2.greeting = Greeting::Wanted;
        self.dial_failed(turn.now, remote_key, &failure.to_string());
        self.serve_line(turn, remote_key);
    }

    fn greet(&mut self, now: Instant, remote_key: RemoteKey, before: u32) {
        let Some(r2p2) = self.remotes.find_mut(remote_key).and_then(|remote| remote.r2p2.as_mut()) else {
            return;
        };
        r2p2.greeting = Greeting::Sent(before);
        let new = NewCall {
            tag: GREETING_TAG | remote_key.to_bits(),
            target: r2p2.target,
            sticky: false,
            class: 0,
            deadline: Deadline::at(now.plus_ns(GREETING_NS << before)),
            body: RequestEnvelope::default().encode().unwrap_or_default().into(),
        };
        if self.r2p2.client(self.limits.message_bytes).call(now, new).is_err() {
            // Every id is in use: the next call in line tries again.
            r2p2.greeting = Greeting::Wanted;
            self.dial_failed(now, remote_key, "too many calls are in flight over R2P2");
        }
    }

    /// Whether the caller knows that the method streams. Who does not know its types is held to one message.
    fn streams_from_here(&self, key: CallKey) -> bool {
        let Some(types) = self.calls.find(key).and_then(|call| call.sender_types(Direction::Request)) else {
            return false;
        };
        let pattern = types.pattern;
        !types.input.is_opaque() && (pattern.client_streams() || pattern.server_streams())
    }

    pub(crate) fn endpoint_of(&self, remote: RemoteKey) -> String {
        self.remotes.find(remote).map_or_else(String::new, |remote: &Remote| remote.endpoint.to_string())
    }
}

#[cfg(test)]
mod tests {
    //! Lists what is an endpoint of R2P2.
    use super::*;

    #[test]
    fn endpoints() {
        let target = |text: &str| R2p2Remote::of(text).map(|remote| remote.target.to_string());
        assert_eq!(target("r2p2://10.0.0.7:8000").as_deref(), Some("10.0.0.7:8000"));
        assert_eq!(target("r2p2://localhost:1").as_deref(), Some("127.0.0.1:1"));
        for text in ["tcp://10.0.0.7:8000", "r2p2://[::1]:80", "r2p2://10.0.0.7", "r2p2://name:80", "r2p2://"]
        {
            assert_eq!(target(text), None, "{text}");
        }
    }
}
