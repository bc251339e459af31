//! A call joins the line of what blocks it; whoever unblocks serves the line, in order or by source and in turn.
//!
//! Those in it that have ended meanwhile leave it when it has doubled (`call_line.rs`).

use crate::call::{Calls, Direction};
use crate::ends::Blocker;
use crate::engine::Engine;
use crate::item::ItemWay;
use crate::owners::Owners;
use crate::sessions::LinesOf;
use crate::{CallKey, SessionKey};

/// So many sources whose first has to go on waiting are looked at when room is made, and others when it is made again:
/// as long as there is none, somebody holds it and gives it back.
pub(crate) const SOURCES_LOOKED_MAX: usize = 64;

/// A call waits for what blocks it.
pub(crate) fn line_up(engine: &mut Engine, way: ItemWay, blocker: Blocker) {
    let entry = (way.key, way.direction);
    match blocker {
        Blocker::Session(session) => park(engine, entry, session, |session| &mut session.parked.room),
        Blocker::Opening(session) => park(engine, entry, session, |session| &mut session.parked.openings),
        Blocker::Streams(session) => park(engine, entry, session, |session| &mut session.parked_streams),
        Blocker::Peer(peer) => {
            let Engine { calls, owners: Owners { peers, .. } } = engine;
            if let Some(peer) = peers.find_mut(peer) {
                peer.blocked.push(entry, |entry| is_waiting(calls, entry));
            }
        }
        Blocker::Grpc(peer) => {
            let Engine { calls, owners: Owners { grpc, .. } } = engine;
            grpc.line_up(peer, entry, |entry| is_waiting(calls, entry));
        }
        Blocker::R2p2(remote) => {
            let source = engine.source_of(way.key);
            let Engine { calls, owners: Owners { r2p2, .. } } = engine;
            let waits = |call| is_waiting(calls, (call, Direction::Request));
            r2p2.made.line_up(&source, remote, way.key, waits);
        }
        Blocker::Share | Blocker::Stream => {}
        Blocker::Remote(remote) => {
            let source = engine.source_of(way.key);
            let Engine { calls, owners: Owners { remotes, .. } } = engine;
            let waits = |call| is_waiting(calls, (call, Direction::Request));
            remotes.line_up(remote, way.key, source, waits);
        }
        Blocker::Shard(line) => {
            let Engine { calls, owners: Owners { shards, .. } } = engine;
            let way_of = |back| if back { Direction::Response } else { Direction::Request };
            let waits = |(call, back)| is_waiting(calls, (call, way_of(back)));
            shards.line_up(line, (way.key, way.direction == Direction::Response), waits);
        }
    }
}

/// A call waits for a session's receive heap, in the line of its source.
fn park(engine: &mut Engine, entry: (CallKey, Direction), session: SessionKey, lines: LinesOf) {
    let source = engine.source_of(entry.0);
    let Engine { calls, owners: Owners { sessions, .. } } = engine;
    if let Some(found) = sessions.find_mut(session) {
        lines(found).leave_if_over(|entry| is_waiting(calls, entry));
    }
    sessions.park(session, lines, source, entry);
}

/// Whether something waits in a direction of a call: who stands in a line has that.
fn is_waiting(calls: &Calls, (key, direction): (CallKey, Direction)) -> bool {
    calls.find(key).is_some_and(|call| !call.half_of(direction).backlog.is_empty())
}
