//! Counts calls that stay where others cross to other shards (`end.rs`), by whom they come from: a session, or a
//! connection.

use super::links::ShardLinks;
use crate::call::ClientEnd;
use crate::sessions::SessionEnds;

/// A call is served on its own shard.
pub(crate) fn note_stays(sessions: &mut SessionEnds, links: &mut ShardLinks, client: &ClientEnd) {
    match client {
        ClientEnd::Session { session, .. } => {
            let maker = sessions.find_mut(*session);
            maker.into_iter().for_each(|session| session.crossings.stayed += 1);
        }
        ClientEnd::Peer { peer, .. } => links.crossing_peers.note_against(*peer),
        _ => {}
    }
}
