//! Why a relayed session ends.

use std::io;
use trunkline_control::LinkFrameError;
use trunkline_shm::{ControlError, RingError, SessionError, SpanError};

/// Why a relayed session ends, for the log and for the side that is told.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Io(#[from] io::Error),
    /// The other side has ended without a word.
    #[error("the connection was closed")]
    Ended,
    /// The other side has said why it ends.
    #[error("{0}")]
    Closed(String),
    /// Nothing came for too long.
    #[error("nothing was heard for {seconds} s")]
    Silent {
        /// How long.
        seconds: u64,
    },
    /// The other side does not keep to the protocol.
    #[error("the other side broke the protocol: {0}")]
    Protocol(String),
    /// The other side asks, and does not take the answers.
    #[error("it asks and does not read: {bytes} bytes wait for it")]
    Unread {
        /// How much waits.
        bytes: usize,
    },
    /// It would hold more than it may.
    #[error("{0}")]
    Full(String),
    /// This side's rings cannot be what they say.
    #[error("this session's rings: {0}")]
    Ring(#[from] RingError),
    /// The session cannot be made here.
    #[error("the session cannot be made: {0}")]
    Session(#[from] SessionError),
    /// The control socket of this side.
    #[error("control socket: {0}")]
    Control(#[from] ControlError),
    /// The application has left, or the daemon has.
    #[error("{0}")]
    Left(&'static str),
}

impl From<LinkFrameError> for LinkError {
    fn from(error: LinkFrameError) -> Self {
        Self::Protocol(error.to_string())
    }
}

impl From<SpanError> for LinkError {
    fn from(error: SpanError) -> Self {
        Self::Protocol(error.to_string())
    }
}
