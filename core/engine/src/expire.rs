//! What time brings.

use crate::call::Direction;
use crate::engine::{Engine, Turn};
use crate::{CallKey, PeerKey, RemoteKey};
use trunkline_call::Instant;

/// What a timer of the engine is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Due {
    /// A call must have ended.
    Deadline(CallKey),
    /// A call may have another attempt.
    Attempt(CallKey),
    /// A call has waited for its turn as long as it may.
    Queued(CallKey),
    /// A held item may go on.
    Held(CallKey, Direction),
    /// A paced item may have its turn, or be in nobody's way any more.
    Paced(CallKey, Direction),
    /// A connection wants to look at the clock.
    Peer(PeerKey),
    /// An endpoint may be dialled again.
    Remote(RemoteKey),
}

impl Engine {
    /// Does everything that is due at `turn.now`.
    pub fn handle_timeout(&mut self, turn: &mut Turn<'_>) {
        self.discard_abandoned(turn);
        while let Some(due) = self.timers.due(turn.now) {
            match due {
                Due::Deadline(call) => self.expire(turn, call),
                Due::Queued(call) => self.queued_due(turn, call),
                Due::Attempt(call) => self.attempt_due(turn, call),
                Due::Held(call, direction) => self.unblock(turn, call, direction),
                Due::Paced(call, direction) => self.paced_due(turn, call, direction),
                Due::Peer(peer) => self.peer_timeout(turn, peer),
                Due::Remote(remote) => self.wake_remote(turn, remote),
            }
        }
        self.r2p2_timeout(turn);
        self.go_on(turn);
    }

    /// When [`Engine::handle_timeout`] is wanted next.
    pub fn next_timeout(&mut self) -> Option<Instant> {
        let r2p2 = self.next_r2p2_timeout();
        self.timers.next_due().into_iter().chain(r2p2).min()
    }
}
