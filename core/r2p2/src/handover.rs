//! Endpoints that go on in another process: their state as data, and what is held against such data.
//!
//! The owner serialises a [`Client`] or a [`Server`] whole, hands the socket over, and the other process reads it into
//! a fresh one ([`Client::take_up`], [`Server::take_up`]). Nothing is told to anybody, and nobody can notice: requests
//! half here, in work, or answered a moment ago are what they were, and a repetition of one is still a repetition.
//!
//! Timers are not written: they follow from the rest. Requests that have ended are most of what is written, and packed
//! (`ended.rs`). What is read back may be anything: whatever could make a later step panic or count wrong is refused
//! here, or counted again instead of believed.

use crate::client::Client;
use crate::client_call::Call;
use crate::ended;
use crate::extension::Head;
use crate::feedback::RouterAccounts;
use crate::served::{RequestKey, Served, Stage};
use crate::server::Server;
use crate::transmit::Transmit;
use core::net::SocketAddrV4;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_bytes::{ByteBuf, Bytes};
use std::collections::VecDeque;
use trunkline_call::{Instant, KeyedSet};

/// The state that was handed over contradicts itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the state of R2P2 is unsound: {0}")]
pub struct Unsound(pub &'static str);

/// A client as it was read, for [`Client::take_up`].
#[derive(Debug, Deserialize)]
pub struct ClientState {
    epoch: u32,
    next: u32,
    calls: Vec<Call>,
    extended: KeyedSet<SocketAddrV4>,
    out: VecDeque<Transmit>,
}

/// A server as it was read, for [`Server::take_up`].
#[derive(Debug, Deserialize)]
pub struct ServerState {
    live: Vec<(RequestKey, Served)>,
    ended: ByteBuf,
    horizon: Instant,
    books: RouterAccounts,
    out: VecDeque<Transmit>,
}

#[derive(Serialize)]
struct ClientLeaving<'a> {
    epoch: u32,
    next: u32,
    calls: Vec<&'a Call>,
    extended: &'a KeyedSet<SocketAddrV4>,
    out: &'a VecDeque<Transmit>,
}

#[derive(Serialize)]
struct ServerLeaving<'a> {
    live: Vec<(&'a RequestKey, &'a Served)>,
    ended: &'a Bytes,
    horizon: Instant,
    books: &'a RouterAccounts,
    out: &'a VecDeque<Transmit>,
}

/// Bytes of replies that travel, so that the state stays within what one message of a hand-over may have, and its pause
/// short. The youngest go: whoever misses an older one has asked for it long ago. The requests of the others are known
/// as served.
const KEPT_BYTES_MAX: usize = 16 << 20;

impl Client {
    /// Goes on with the calls of another; to be called on a fresh one. Requests it makes have ids that follow the
    /// other's, so none is taken for an earlier one.
    ///
    /// # Errors
    /// [`Unsound`]. Whatever the state is, nothing panics later.
    pub fn take_up(&mut self, state: ClientState) -> Result<(), Unsound> {
        (self.epoch, self.next) = (state.epoch, state.next);
        (self.extended, self.out) = (state.extended, state.out);
        for mut call in state.calls {
            let id = call.id;
            if !call.take_up() {
                return Err(Unsound("call"));
            }
            self.held.change(call.peer(), 0, call.incoming.held_bytes());
            if self.calls.insert(id, call).is_some() {
                return Err(Unsound("two calls of one id"));
            }
            self.arm(id);
        }
        Ok(())
    }
}

impl Server {
    /// Goes on with the requests of another; to be called on a fresh one.
    ///
    /// # Errors
    /// [`Unsound`]. Whatever the state is, nothing panics later.
    pub fn take_up(&mut self, state: ServerState) -> Result<(), Unsound> {
        for (key, mut served) in state.live {
            if !served.take_up(key.is_extended()) {
                return Err(Unsound("request"));
            }
            self.live += 1;
            let held_bytes = match &served.stage {
                Stage::Receiving { incoming, .. } => incoming.held_bytes(),
                Stage::Replying { .. } => served.reply.len(),
                _ => 0,
            };
            self.held.change(*key.client.ip(), 0, held_bytes);
            self.take_in(key, served)?;
            self.arm(key);
        }
        let mut packed = state.ended.as_slice();
        while !packed.is_empty() {
            let (at, key, served) = ended::unpack(&mut packed).ok_or(Unsound("requests that have ended"))?;
            self.memory.remember(at, key, served.reply.len());
            self.take_in(key, served)?;
        }
        self.memory.know_since(state.horizon);
        self.accounts.take_up(state.books);
        self.out = state.out;
        Ok(())
    }

    fn take_in(&mut self, key: RequestKey, served: Served) -> Result<(), Unsound> {
        match self.requests.insert(key, served) {
            None => Ok(()),
            Some(_) => Err(Unsound("two requests of one name")),
        }
    }

    /// What has ended, packed, in the order in which it is forgotten.
    fn pack_ended(&self) -> Vec<u8> {
        let mut unkept = self.memory.unkept_within(KEPT_BYTES_MAX);
        let mut packed = Vec::new();
        for (at, key) in self.memory.ended() {
            let Some(served) = self.requests.get(&key) else { continue };
            let kept = matches!(served.stage, Stage::Kept) && (unkept == 0 || served.reply.is_empty());
            unkept = unkept.saturating_sub(usize::from(!served.reply.is_empty()));
            ended::pack(&mut packed, at, &key, served, kept);
        }
        packed
    }
}

impl Serialize for Client {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { epoch, next, calls, extended, out, .. } = self;
        let (epoch, next) = (*epoch, *next);
        ClientLeaving { epoch, next, calls: calls.values().collect(), extended, out }.serialize(serializer)
    }
}

impl Serialize for Server {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let packed = self.pack_ended();
        let live = self.requests.iter().filter(|(_, served)| !served.stage.is_end());
        let leaving = ServerLeaving {
            live: live.collect(),
            ended: Bytes::new(&packed),
            horizon: self.memory.horizon(),
            books: &self.accounts,
            out: &self.out,
        };
        leaving.serialize(serializer)
    }
}

/// Where to, and the datagram in one piece.
impl Serialize for Transmit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.to, Bytes::new(&self.to_vec())).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Transmit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (to, bytes) = <(SocketAddrV4, ByteBuf)>::deserialize(deserializer)?;
        Ok(Self { to, head: Head::new(&[]), body: bytes.into_vec().into() })
    }
}
