//! The end of a shard: its connections end by a lingering close.
//!
//! A socket that is closed while bytes wait to be read answers with a reset, and a reset takes along what the peer has
//! not read: the last answers of a daemon that has drained. So every connection is closed by a
//! [`LingeringClose`], which takes a second at most.

use crate::clock::now;
use crate::ending_connection::EndingConnection;
use crate::shard::Shard;
use std::collections::HashMap;
use trunkline_net::{LingeringClose, Poller, Token};

/// Closes every connection. Calls in flight end as their connections do.
pub(crate) fn close(mut shard: Shard) {
    shard.let_out();
    // No ring is read any more: applications may hear of the end.
    std::mem::take(&mut shard.sessions.ending).into_iter().for_each(EndingConnection::end);
    let natives = shard.sockets.take_streams().map(|stream| LingeringClose::new(stream, Vec::new(), now()));
    let https = shard.https.close_all(now());
    let lingering = shard.pending.take_lingering();
    let Ok(poller) = Poller::new() else { return };
    // The shard's own poller tells of much that is no longer of interest, and knows these by other names.
    let mut closings = HashMap::new();
    for (id, mut closing) in (0..).map(Token).zip(natives.chain(https).chain(lingering)) {
        let _ = shard.poller.remove(closing.stream());
        if !closing.turn(now(), &mut shard.buffers)
            && poller.add(closing.stream(), id, closing.interest()).is_ok()
        {
            closings.insert(id, closing);
        }
    }
    while let Some(until) = closings.values().map(LingeringClose::next_timeout).min() {
        shard.ready.clear();
        if poller.wait(Some(until.since_ns(now())), &mut shard.ready).is_err() {
            return;
        }
        for ready in &shard.ready {
            let Some(closing) = closings.get_mut(&ready.token) else { continue };
            if closing.turn(now(), &mut shard.buffers) {
                closings.remove(&ready.token);
            } else {
                let _ = poller.set_interest(closing.stream(), ready.token, closing.interest());
            }
        }
        closings
            .retain(|_, closing| closing.next_timeout() > now() || !closing.turn(now(), &mut shard.buffers));
    }
}
