//! What a shard lends the owners of its sockets while one of them is at work, and what they leave for it to do.

use crate::heaps::SessionHeaps;
use crate::token::Token;
use crate::unidentified::UnidentifiedKey;
use trunkline_call::TimerTable;
use trunkline_engine::{Engine, PeerKey};
use trunkline_net::{Buffers, LingeringClose, Poller};

/// What a shard lends for one visit.
pub(crate) struct SocketWork<'a> {
    pub engine: &'a mut Engine,
    pub heaps: &'a mut SessionHeaps,
    pub poller: &'a Poller,
    pub timers: &'a mut TimerTable<Token>,
    pub buffers: &'a mut Buffers,
    /// Bytes moved for one connection before the others get their turn.
    pub turn_bytes: usize,
    pub left: WorkLeft,
}

/// What is left for the shard to do behind the visit.
#[derive(Default)]
pub(crate) struct WorkLeft {
    /// More is to be done, or to be let out: the shard does not wait.
    pub is_pressing: bool,
    /// Connections have ended, and their memory is to go back to the kernel.
    pub has_ended: bool,
    /// Connections that close once the peer has read what was said.
    pub closings: Vec<LingeringClose>,
    /// Accepted connections that are over.
    pub unidentified: Vec<UnidentifiedKey>,
    /// Accepted connections that have greeted.
    pub greeted: Vec<(PeerKey, UnidentifiedKey)>,
}
