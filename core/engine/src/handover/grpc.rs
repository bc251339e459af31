//! Emptying gRPC connections before a hand-over: they cannot move.
//!
//! Two steps, both while this engine serves. First, the clients that are there are told to go elsewhere, and their
//! calls end in their own time; a client that comes back is served, so that nobody waits for somebody else's long call.
//! Then, for a moment, gRPC is *held*: everybody is told, nobody new is let in (the host sees to that), and calls to
//! gRPC servers wait in line for the engine that takes over. When nothing is left, no call is in the way.

use crate::RemoteKey;
use crate::engine::{Engine, Turn};
use trunkline_grpc::Command;

/// How far that is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GrpcLeft {
    /// What the step waits for: calls of clients that were told first; then connections of clients, and calls made.
    pub unfinished: usize,
    /// Calls under way.
    pub calls: usize,
}

/// Which step it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Leaving {
    #[default]
    No,
    /// Those who were there have been told.
    Told,
    /// Nothing new is begun.
    Held,
}

impl Engine {
    /// Begins a step, or goes on with it.
    pub fn leave_grpc(&mut self, hold: bool) -> GrpcLeft {
        let begins = std::mem::replace(&mut self.grpc_leaving, Leaving::Told) == Leaving::No;
        if hold {
            self.grpc_leaving = Leaving::Held;
        }
        if begins || hold {
            let untold =
                self.grpc_peers.iter_mut().filter(|(_, peer)| peer.remote.is_none() && !peer.leaving);
            self.commands.extend(untold.map(|(key, peer)| {
                peer.leaving = true;
                (key, Command::GoAway)
            }));
        }
        let (mut left, mut told, mut clients, mut made) = (GrpcLeft::default(), 0, 0, 0);
        for (_, peer) in self.grpc_peers.iter() {
            let streams = peer.streams.len();
            left.calls += streams;
            match peer.remote {
                Some(_) => made += streams,
                None => {
                    clients += 1;
                    told += if peer.leaving { streams } else { 0 };
                }
            }
        }
        left.unfinished = if hold { clients + made } else { told };
        left
    }

    /// The hand-over was in vain: calls in line go on.
    pub fn stay_with_grpc(&mut self, turn: &mut Turn<'_>) {
        if std::mem::take(&mut self.grpc_leaving) == Leaving::Held {
            let keys: Vec<RemoteKey> = self.remotes.keys();
            keys.into_iter().for_each(|key| self.serve_line(turn, key));
            self.go_on(turn);
        }
    }

    pub(crate) fn grpc_is_held(&self) -> bool {
        self.grpc_leaving == Leaving::Held
    }
}
