//! What the control thread and a shard hand over, each from its own thread, and how they go on if it was in vain.

use super::wire::{Channel, ChannelError, Memory, Secure, Word};
use crate::control::Control;
use crate::shard::Shard;
use rustix::fd::{AsFd, BorrowedFd};
use serde_bytes::ByteBuf;
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use trunkline_engine::{HandoverError, R2p2Port};
use trunkline_policy::{PolicyError, encode_modules};
use trunkline_shm::{ControlError, RingIndices};

/// An order to stop and hand over.
pub(crate) struct Leave {
    pub channel: Arc<Channel>,
    pub sets: Arc<SentSets>,
    /// Told when everything was sent, or why not.
    pub done: Sender<Result<Moved, LeaveError>>,
    /// Ends when it was in vain, and only then: what the other daemon has is not to be touched again, not even for the
    /// rest of a turn, so a thread that has handed over stands here until the process ends.
    pub in_vain: Receiver<Infallible>,
}

/// The descriptor sets the other daemon has, by the numbers they have there. The lock is held by one thread at a time:
/// whoever leads the hand-over, then each that hands over.
pub(crate) struct SentSets {
    /// Whether the other daemon knows numbers, and says when it has built what came.
    prepares: bool,
    numbers: Mutex<HashMap<Arc<[u8]>, usize>>,
}

/// A descriptor set the other daemon has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentSet {
    pub number: usize,
    pub is_new: bool,
}

/// An order to stop, until every shard has: what one says to another must not come when that has handed over.
pub(crate) struct Stand {
    /// Told when this one stands.
    pub stands: Sender<()>,
    /// The order to hand over; ends when it was in vain.
    pub leave: Receiver<Box<Leave>>,
}

/// How much was handed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    pub sessions: usize,
    pub connections: usize,
    pub calls: usize,
}

/// Why a part could not be handed over.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LeaveError {
    #[error(transparent)]
    Channel(#[from] ChannelError),
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error("the engine's state: {0}")]
    State(#[from] HandoverError),
    #[error("a module does not hand its state over: {0}")]
    Module(PolicyError),
    #[error("a schema came without its descriptor set")]
    Source,
}

/// A shard that stands still.
pub(crate) struct Standing(Receiver<Box<Leave>>);

/// One that has handed over.
pub(crate) struct PartsSent(Box<Leave>);

impl SentSets {
    pub fn new(prepares: bool) -> Self {
        Self { prepares, numbers: Mutex::default() }
    }

    /// Whether the other daemon says when it has built what came.
    pub fn are_prepared(&self) -> bool {
        self.prepares
    }

    /// Sends a set, unless the other daemon has it.
    pub fn send(&self, channel: &Channel, set: &Arc<[u8]>) -> Result<SentSet, ChannelError> {
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(number) = numbers.get(set) {
            return Ok(SentSet { number: *number, is_new: false });
        }
        channel.send(&Word::Schema(set.to_vec()), &[])?;
        let number = numbers.len();
        numbers.insert(Arc::clone(set), number);
        Ok(SentSet { number, is_new: true })
    }
}

impl Standing {
    /// Waits for the order to hand over. `None`: it was in vain.
    pub fn wait(&self) -> Option<Box<Leave>> {
        self.0.recv().ok()
    }
}

impl PartsSent {
    /// Comes back only if it was in vain.
    pub fn wait(&self) {
        let _ = self.0.in_vain.recv();
    }
}

impl Control {
    /// Hands the control socket and its connections over. Comes back only if that was in vain.
    pub fn hand_over(&self, leave: &Leave) {
        let _ = leave.done.send(self.send_parts(&leave.channel));
        let _ = leave.in_vain.recv();
    }

    fn send_parts(&self, channel: &Channel) -> Result<Moved, LeaveError> {
        if let Some(listener) = &self.listener {
            let path = listener.path().display().to_string();
            channel.send(&Word::Socket { path, sessions: self.sessions }, &listener.descriptors())?;
        }
        let mut moved = Moved::default();
        for (_, client) in self.clients.iter().filter(|(_, client)| !client.is_closed()) {
            // Applications of this very process end with it.
            if client.socket().peer_credentials()?.pid == std::process::id() {
                continue;
            }
            let (shard, session) = client.session().map_or((0, None), |at| (at.shard, Some(at.key)));
            let may_move = client.may_move();
            moved.sessions += usize::from(session.is_some() && may_move);
            let word = Word::Client { shard, session: session.map(|key| key.to_bits()), may_move };
            channel.send(&word, &[client.socket().as_fd()])?;
        }
        Ok(moved)
    }
}

impl Shard {
    /// Stands still, until it is told to hand over or to go on.
    pub fn stand(&mut self, order: Stand) -> Standing {
        // What can go, goes: it need not be carried.
        self.let_out();
        let _ = order.stands.send(());
        Standing(order.leave)
    }

    /// Hands everything over.
    pub fn hand_over(&mut self, leave: Box<Leave>) -> PartsSent {
        self.crossings.park(&mut self.engine);
        self.sockets.make_portable();
        let _ = leave.done.send(self.send_parts(&leave.channel, &leave.sets));
        PartsSent(leave)
    }

    /// It was in vain.
    pub fn go_on(&mut self) {
        // What the TLS library had read of the sockets is read from here on.
        self.read_buffered_soon();
        self.pressing = true;
    }

    fn send_parts(&self, channel: &Channel, known: &SentSets) -> Result<Moved, LeaveError> {
        let shard = self.index;
        for listening in &self.listening {
            let (configured, endpoint) = (listening.configured.clone(), listening.endpoint.clone());
            channel.send(&Word::Listener { shard, configured, endpoint }, &[listening.listener.as_fd()])?;
        }
        for (port, socket) in self.udp.sockets() {
            let word = Word::Datagrams { shard, is_client: port == R2p2Port::Client };
            channel.send(&word, &[socket.as_fd()])?;
        }
        for (stream, first) in self.pending.transferable() {
            channel.send(&Word::Pending { shard, first: first.to_vec() }, &[stream.as_fd()])?;
        }
        let exported = self.engine.export()?;
        let (mut sets, mut numbers) = (Vec::new(), Vec::new());
        for schema in &exported.schemas {
            let source = schema.source.as_ref().ok_or(LeaveError::Source)?;
            match known.are_prepared() {
                true => numbers.push(known.send(channel, source)?.number),
                false => sets.push(ByteBuf::from(source.to_vec())),
            }
        }
        let state = ByteBuf::from(exported.state);
        channel.send(&Word::State { shard, state, sets, numbers }, &[])?;
        let (modules, refused) = self.engine.export_modules();
        if let Some(refused) = refused.into_iter().next() {
            return Err(LeaveError::Module(refused));
        }
        let states = ByteBuf::from(encode_modules(&modules));
        channel.send(&Word::Modules { shard, states }, &[])?;
        self.send_memory(channel)?;
        let mut moved = Moved { calls: self.engine.snapshot().calls, ..Moved::default() };
        for (peer, socket) in self.sockets.iter() {
            let Some(session) = socket.can_move() else { continue };
            let (peer, endpoint_is_tcp) = (peer.to_bits(), socket.stream().is_tcp());
            let (secure, keys) = session.map(Secure::of).unzip();
            channel.send(&Word::Peer { shard, peer, endpoint_is_tcp, secure }, &[socket.stream().as_fd()])?;
            keys.map_or(Ok(()), |keys| channel.send_keys(&keys))?;
            moved.connections += 1;
        }
        Ok(moved)
    }

    fn send_memory(&self, channel: &Channel) -> Result<(), LeaveError> {
        for lodged in self.heaps.lodged() {
            let regions = lodged.regions;
            let rings = self.sessions.look(lodged.key);
            let bells = rings.and_then(|rings| {
                let [ringer, reader] = rings.peer_doorbell.ends()?;
                Some([rings.own_doorbell.as_fd(), ringer, reader])
            });
            let indices = rings.filter(|_| bells.is_some()).map(|rings| {
                let at = RingIndices::of(&rings.submissions, &rings.completions);
                [at.submission_head, at.completion_tail, at.completion_head]
            });
            let blocks = lodged.blocks.iter().map(|block| (block.offset, block.len, block.lent)).collect();
            let open = lodged.open.into_iter().map(|(offset, bytes)| (offset, ByteBuf::from(bytes)));
            let memory = Memory {
                sizes: Memory::sizes_of(&regions.config),
                indices,
                heap_number: lodged.number,
                blocks,
                open: open.collect(),
            };
            let word = Word::Memory { shard: self.index, session: lodged.key.to_bits(), memory };
            let memory = [regions.rings.as_fd(), regions.send_heap.as_fd()];
            let fds: Vec<BorrowedFd<'_>> = memory.into_iter().chain(bells.into_iter().flatten()).collect();
            channel.send(&word, &fds)?;
        }
        Ok(())
    }
}
