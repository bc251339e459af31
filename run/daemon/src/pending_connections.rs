//! The table of pending connections, accepted and dialled, and of streams in their lingering close.

use crate::config::ServiceRule;
use crate::giving_way::UnidentifiedConnections;
use crate::purpose::RestrictedClient;
use crate::refusal::REFUSALS;
use crate::token::Token;
use crate::unidentified::UnidentifiedKey;
use rustix::fd::OwnedFd;
use std::collections::{HashMap, VecDeque};
use trunkline_call::{Instant, TimerKey};
use trunkline_engine::Dial;
use trunkline_net::{
    ConnectionBudget, ConnectionLimits, Full, Interest, LingeringClose, Listener, Poller, Stream,
};

/// Connections accepted from a listener before the others get their turn.
pub(crate) const ACCEPTS_PER_TURN: usize = 64;

/// Time for handshakes of TLS that others ask for, from one look at the sockets to the next, and the last of them above
/// it. Each takes a tenth of a millisecond, with RSA a few of them.
const HANDSHAKES_NS_PER_LOOK: u64 = 1_000_000;
/// Time more for one that could not be looked at before its time was over. As many handshakes are made meanwhile as
/// connections may wait for them, or nearly.
const PUT_OFF_NS: u64 = 1_000_000_000;

/// What accepted connections of all shards share. Clones are of the same.
#[derive(Clone)]
pub(crate) struct ConnectionPlaces {
    /// Places of accepted connections, whatever has become of them.
    pub accepted: ConnectionBudget,
    /// Places of those that are told that there is none.
    pub refusals: ConnectionBudget,
    /// The accepted connections that have not said what they want, pending or not.
    pub unidentified: UnidentifiedConnections,
}

/// A shard's pending connections, and its streams in their lingering close.
pub(crate) struct PendingConnections {
    pub open: HashMap<u64, PendingConnection>,
    pub lingering: HashMap<u64, Lingering>,
    next: u64,
    pub places: ConnectionPlaces,
    /// Which users of this host may call what (`[[call]]`).
    pub call_rules: Vec<ServiceRule>,
    /// A descriptor to close when the process has no other, so that connections in the backlog can be refused.
    reserve: Option<OwnedFd>,
    /// Those that wait for time for handshakes, in the order they came. Some have ended meanwhile.
    waiting: VecDeque<u64>,
    /// Time spent on handshakes with those that were accepted, since sockets were last looked at.
    handshakes_ns: u64,
}

/// A connection that is not a peer yet.
pub(crate) struct PendingConnection {
    pub stream: Stream,
    pub phase: PendingPhase,
    pub alarm: TimerKey,
    /// Its time was over before there was time to look at it.
    pub was_put_off: bool,
    /// Who connected, if the listener is for operators or for clients of the gateway.
    pub client: Option<RestrictedClient>,
    /// Its key among the unidentified, if it was accepted.
    pub unidentified: Option<UnidentifiedKey>,
}

/// A stream in its lingering close, and when that ends.
pub(crate) struct Lingering {
    pub closing: LingeringClose,
    pub alarm: TimerKey,
}

/// How far a pending connection is.
pub(crate) enum PendingPhase {
    /// Accepted: what it speaks is not clear from what came so far.
    Detecting(Vec<u8>),
    /// Accepted: TLS handshake.
    ServerTls,
    /// Accepted, though there is no place for it: told so as soon as it is clear what it speaks.
    Refusing(Vec<u8>, Full),
    /// Dialled: decided when it becomes writable.
    Connecting(Dial, Option<String>),
    /// Dialled: TLS handshake.
    ClientTls(Dial),
    /// Dialled, and asked what it speaks; what it has answered.
    Probing(Dial, Vec<u8>),
}

impl ConnectionPlaces {
    /// Places for so many, and for a few that are only told that there is none.
    pub fn new(limits: ConnectionLimits) -> Self {
        Self {
            accepted: ConnectionBudget::new(limits),
            refusals: ConnectionBudget::new(REFUSALS),
            unidentified: UnidentifiedConnections::default(),
        }
    }
}

impl PendingConnections {
    /// None yet, with the places that all shards share and the rules for gRPC clients among them.
    pub fn new(places: ConnectionPlaces, call_rules: Vec<ServiceRule>) -> Self {
        Self {
            open: HashMap::new(),
            lingering: HashMap::new(),
            next: 0,
            places,
            call_rules,
            reserve: reserve(),
            waiting: VecDeque::new(),
            handshakes_ns: 0,
        }
    }

    /// Sockets are looked at: there is time for handshakes again.
    pub fn begin_look(&mut self) {
        self.handshakes_ns = 0;
    }

    /// Whether what may be another handshake waits for the next look.
    pub fn have_had_their_time(&self) -> bool {
        self.handshakes_ns >= HANDSHAKES_NS_PER_LOOK
    }

    /// Whether this one waits for the next look.
    pub fn waits_its_turn(&self, id: u64) -> bool {
        self.have_had_their_time() && self.open.get(&id).is_some_and(PendingConnection::is_accepted)
    }

    /// This one waits behind the others, and the poller does not tell it meanwhile: as many as may wait would leave
    /// everybody else few places in a look.
    pub fn have_wait(&mut self, id: u64, poller: &Poller) {
        let Some(pending) = self.open.get(&id) else { return };
        if poller.set_interest(&pending.stream, Token::Pending(id).to_poller(), Interest::Nothing).is_ok() {
            self.waiting.push_back(id);
        }
    }

    /// The next of those that wait, while there is time.
    pub fn poll_waiting(&mut self) -> Option<u64> {
        if self.have_had_their_time() { None } else { self.waiting.pop_front() }
    }

    /// Whether the next look is to come at once.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// A handshake has had so much time.
    pub fn note_handshake(&mut self, began: Instant, now: Instant) {
        self.handshakes_ns = self.handshakes_ns.saturating_add(now.since_ns(began));
    }

    /// Whether one whose time is over is given more, once, because it waited for others: until when.
    pub fn put_off(&mut self, id: u64, now: Instant) -> Option<Instant> {
        if !self.waits_its_turn(id) {
            return None;
        }
        let pending = self.open.get_mut(&id)?;
        (!std::mem::replace(&mut pending.was_put_off, true)).then(|| now.plus_ns(PUT_OFF_NS))
    }

    /// A connection that another daemon had accepted has its place here.
    pub fn hold_place(&self, stream: &mut Stream) {
        if let Ok(source) = stream.source() {
            stream.hold(self.places.accepted.hold(source));
        }
    }

    /// Closes connections in a listener's backlog, though there is no descriptor for them: better than to let them wait
    /// for an answer.
    pub fn refuse_backlog(&mut self, listener: &Listener) {
        for _ in 0..ACCEPTS_PER_TURN {
            if self.reserve.take().is_none() || !matches!(listener.accept(), Ok(Some(_))) {
                break;
            }
            self.reserve = reserve();
        }
        self.reserve = self.reserve.take().or_else(reserve);
    }

    /// Connections that can move to another daemon, with the bytes read from them.
    pub fn transferable(&self) -> impl Iterator<Item = (&Stream, &[u8])> {
        let transferable = self.open.values().filter(|pending| pending.is_transferable());
        transferable.filter_map(|pending| match &pending.phase {
            PendingPhase::Detecting(first) => Some((&pending.stream, &first[..])),
            _ => None,
        })
    }

    /// How many to wait for before this process ends: those that may turn out to be clients of gRPC and cannot move,
    /// and lingering closes.
    pub fn unsettled(&self) -> usize {
        let may_be_clients = |pending: &&PendingConnection| match pending.phase {
            PendingPhase::Detecting(_) => !pending.is_transferable(),
            PendingPhase::ServerTls => true,
            PendingPhase::Refusing(..)
            | PendingPhase::Connecting(..)
            | PendingPhase::ClientTls(_)
            | PendingPhase::Probing(..) => false,
        };
        self.open.values().filter(may_be_clients).count() + self.lingering.len()
    }

    /// Takes the lingering closes, to be finished elsewhere.
    pub fn take_lingering(&mut self) -> impl Iterator<Item = LingeringClose> + use<> {
        std::mem::take(&mut self.lingering).into_values().map(|lingering| lingering.closing)
    }

    pub fn next_id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

impl PendingConnection {
    /// Whether somebody else made it.
    pub fn is_accepted(&self) -> bool {
        matches!(
            self.phase,
            PendingPhase::Detecting(_) | PendingPhase::ServerTls | PendingPhase::Refusing(..)
        )
    }

    /// Whether it can move to another daemon: accepted without TLS, protocol unknown. Operators and clients of the
    /// gateway cannot: they connect again.
    pub fn is_transferable(&self) -> bool {
        self.client.is_none() && matches!(self.phase, PendingPhase::Detecting(_)) && !self.stream.is_secure()
    }
}

impl PendingPhase {
    pub fn interest(&self, stream: &Stream) -> Interest {
        match self {
            Self::Connecting(..) => Interest::ReadWrite,
            _ if stream.wants_write() => Interest::ReadWrite,
            _ => Interest::Read,
        }
    }
}

/// A descriptor held only to be closed when another one is needed.
fn reserve() -> Option<OwnedFd> {
    std::fs::File::open("/dev/null").ok().map(OwnedFd::from)
}
