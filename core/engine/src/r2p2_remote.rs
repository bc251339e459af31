//! Endpoints reached over R2P2: whether anybody is there, what they speak, and which types they read.
//!
//! There is no connection to make, but a request nobody takes must not count as one that may have been executed. So an
//! endpoint is greeted before its first call: an envelope without a path, which every server answers and none
//! executes. The answer shows whether the extended mode is understood there. Calls wait in line meanwhile; when nobody
//! answers they fail as *not executed*, and the endpoint rests for a while. An endpoint that falls silent in the middle
//! of calls is greeted again.

use crate::registry::MethodKey;
use crate::shared_room::SharedRoom;
use core::net::{Ipv4Addr, SocketAddrV4};
use serde::{Deserialize, Serialize};
use trunkline_call::{Deadline, Instant, KeyedMap};
use trunkline_r2p2::{CallFailure, Client, Mode, NewCall, RequestEnvelope};

/// What is known of an endpoint reached over R2P2.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct R2p2Remote {
    pub target: SocketAddrV4,
    greeting: Greeting,
    agreed: KeyedMap<MethodKey, Agreed>,
    /// Bytes of requests there that are not answered.
    #[serde(default)]
    pub made: SharedRoom,
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
        Some(Self {
            target,
            greeting: Greeting::Wanted,
            agreed: KeyedMap::default(),
            made: SharedRoom::default(),
        })
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

    /// What was agreed about methods that are forgotten is forgotten, too.
    pub fn forget(&mut self, knows: impl Fn(MethodKey) -> bool) {
        self.agreed.retain(|method, _| knows(*method));
    }

    /// Nobody answers any more.
    pub fn fell_silent(&mut self) {
        if self.is_there() {
            self.greeting = Greeting::Wanted;
        }
    }

    /// Whether calls may go there without another greeting.
    pub fn is_ready(&self, mode: Mode, client: &Client) -> bool {
        let speaks = client.speaks_extended(self.target);
        mode == Mode::Compatible || self.greeting == (Greeting::Answered { extended: speaks })
    }

    /// A greeting was answered.
    pub fn greeted(&mut self, client: &Client) {
        self.greeting = Greeting::Answered { extended: client.speaks_extended(self.target) };
    }

    /// A greeting was not answered, or refused. How many were sent, if another is to be.
    pub fn not_greeted(&mut self, failure: CallFailure) -> Option<Ungreeted> {
        let Greeting::Sent(before) = self.greeting else { return None };
        let silent = matches!(failure, CallFailure::Deadline | CallFailure::Silent);
        if silent && before + 1 < GREETINGS_MAX {
            return Some(Ungreeted::GreetAgain(before + 1));
        }
        self.greeting = Greeting::Wanted;
        Some(Ungreeted::GiveUp)
    }

    /// The greeting that follows so many others, to be sent under this tag.
    pub fn greet(&mut self, now: Instant, tag: u64, before: u32) -> NewCall {
        self.greeting = Greeting::Sent(before);
        NewCall {
            tag: GREETING_TAG | tag,
            target: self.target,
            sticky: false,
            class: 0,
            deadline: Deadline::at(now.plus_ns(GREETING_NS << before)),
            body: RequestEnvelope::default().encode().unwrap_or_default().into(),
        }
    }

    /// The greeting could not be sent: the next call in line tries again.
    pub fn not_sent(&mut self) {
        self.greeting = Greeting::Wanted;
    }
}

/// What follows a greeting that was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ungreeted {
    /// Another, after so many.
    GreetAgain(u32),
    /// The endpoint rests for a while.
    GiveUp,
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
