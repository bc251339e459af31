//! The order to stop and hand over, and what a part answers.

use super::wire::{Channel, ChannelError, Word};
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use trunkline_engine::HandoverError;
use trunkline_policy::PolicyError;
use trunkline_shm::ControlError;

/// An order to stop and hand over.
pub(crate) struct Leave {
    pub channel: Arc<Channel>,
    pub sets: Arc<SentSets>,
    /// The other daemon goes on counting.
    pub counts: bool,
    /// Its shards have the calls that were recorded, up to these numbers; none: it does not want them.
    pub recorded: Arc<[u64]>,
    /// Told when everything was sent, or why not.
    pub done: Sender<Result<Moved, LeaveError>>,
    /// Ends when it was in vain, and only then: what the other daemon has is not to be touched again, not even for the
    /// rest of a turn, so a thread that has handed over stands here until the process ends.
    /// To the control thread this channel says when there is no way back: it writes the last lines of the logs, and
    /// drops what came.
    pub in_vain: Receiver<LastLines>,
}

/// Dropped when the last lines are written.
pub(crate) type LastLines = Sender<Infallible>;

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
pub(crate) struct Standing(pub Receiver<Box<Leave>>);

/// One that has handed over.
pub(crate) struct PartsSent(pub Box<Leave>);

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
