//! Who visits: accepted and dialled connections that are not yet what they will be, and streams that say farewell.

use crate::guests::Guest;
use crate::newcomers::{Entry, Newcomers};
use crate::refusal::REFUSALS;
use rustix::fd::OwnedFd;
use std::collections::HashMap;
use trunkline_call::TimerKey;
use trunkline_engine::Dial;
use trunkline_net::{ConnectionBudget, ConnectionLimits, Farewell, Full, Interest, Listener, Source, Stream};

/// Connections taken from a listener before the others get their turn.
pub(crate) const ACCEPTS_PER_TURN: usize = 64;

/// The visitors of a shard, and those who leave.
pub(crate) struct Visitors {
    pub here: HashMap<u64, Visitor>,
    pub leaving: HashMap<u64, Leaving>,
    next: u64,
    /// Those of the accepted connections that have not shown what they want, visitors or not.
    pub newcomers: Newcomers,
    /// Places of accepted connections, whatever has become of them.
    pub places: ConnectionBudget,
    /// Places of those that are told that there is none.
    pub refusals: ConnectionBudget,
    /// A descriptor to close when there is no other, so that whoever waits at a listener can be turned away.
    reserve: Option<OwnedFd>,
}

/// A connection on its way.
pub(crate) struct Visitor {
    pub stream: Stream,
    pub doing: Doing,
    pub alarm: TimerKey,
    /// It came to a listener that is not for anybody.
    pub guest: Option<Guest>,
    /// It was accepted.
    pub newcomer: Option<Entry>,
}

/// A stream saying farewell.
pub(crate) struct Leaving {
    pub farewell: Farewell,
    pub alarm: TimerKey,
}

/// How far it is.
pub(crate) enum Doing {
    /// Accepted: what it speaks is not clear from what came so far.
    Naming(Vec<u8>),
    /// Accepted: TLS handshake.
    Securing,
    /// Accepted, though there is no place for it: told so as soon as it is clear what it speaks.
    Refusing(Vec<u8>, Full),
    /// Dialled: decided when it becomes writable.
    Connecting(Dial, Option<String>),
    /// Dialled: TLS handshake.
    Greeting(Dial),
    /// Dialled, and asked what it speaks; what it has answered.
    Asking(Dial, Vec<u8>),
}

impl Visitors {
    /// Nobody, and places for so many.
    pub fn new(limits: ConnectionLimits) -> Self {
        Self {
            here: HashMap::new(),
            leaving: HashMap::new(),
            next: 0,
            newcomers: Newcomers::default(),
            places: ConnectionBudget::new(limits),
            refusals: ConnectionBudget::new(REFUSALS),
            reserve: reserve(),
        }
    }

    /// A connection that another daemon had accepted has its place here.
    pub fn hold_place(&self, stream: &mut Stream) {
        if let Ok(source) = Source::of(stream) {
            stream.hold(self.places.hold(source));
        }
    }

    /// Closes connections that wait at a listener, though there is no descriptor for them: better than to leave them
    /// without a word.
    pub fn turn_away(&mut self, listener: &Listener) {
        for _ in 0..ACCEPTS_PER_TURN {
            if self.reserve.take().is_none() || !matches!(listener.accept(), Ok(Some(_))) {
                break;
            }
            self.reserve = reserve();
        }
        self.reserve = self.reserve.take().or_else(reserve);
    }

    /// Those who have connected, without TLS, and not said what they speak; with what they have said.
    pub fn strangers(&self) -> impl Iterator<Item = (&Stream, &[u8])> {
        let strangers = self.here.values().filter(|visitor| visitor.is_stranger());
        strangers.filter_map(|visitor| match &visitor.doing {
            Doing::Naming(first) => Some((&visitor.stream, &first[..])),
            _ => None,
        })
    }

    /// Those to wait for before this process ends: they may yet turn out to be clients of gRPC, and cannot go on
    /// elsewhere; or they have not heard all that was said to them.
    pub fn unsettled(&self) -> usize {
        let may_be_clients = |visitor: &&Visitor| match visitor.doing {
            Doing::Naming(_) => !visitor.is_stranger(),
            Doing::Securing => true,
            Doing::Refusing(..) | Doing::Connecting(..) | Doing::Greeting(_) | Doing::Asking(..) => false,
        };
        self.here.values().filter(may_be_clients).count() + self.leaving.len()
    }

    /// Those who were leaving, to be seen off elsewhere.
    pub fn part(&mut self) -> impl Iterator<Item = Farewell> + use<> {
        std::mem::take(&mut self.leaving).into_values().map(|leaving| leaving.farewell)
    }

    pub fn next_id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

impl Visitor {
    /// It has connected, without TLS, and not said what it speaks. An operator, or a client of the gateway, comes
    /// again.
    pub fn is_stranger(&self) -> bool {
        self.guest.is_none() && matches!(self.doing, Doing::Naming(_)) && !self.stream.is_secure()
    }
}

impl Doing {
    pub fn interest(&self, stream: &Stream) -> Interest {
        match self {
            Self::Connecting(..) => Interest::ReadWrite,
            _ if stream.wants_write() => Interest::ReadWrite,
            _ => Interest::Read,
        }
    }
}

/// A descriptor that is of no use but to be closed.
fn reserve() -> Option<OwnedFd> {
    std::fs::File::open("/dev/null").ok().map(OwnedFd::from)
}
