//! The end of a shard: what was said is heard.
//!
//! A socket that is closed while bytes wait to be read answers with a reset, and a reset takes along what the peer has
//! not read: the last answers of a daemon that has drained. So no connection is closed before it has said farewell
//! ([`Farewell`]), for a second at most.

use crate::shard::{Shard, now};
use std::collections::HashMap;
use trunkline_net::{Farewell, Poller, Token};

impl Shard {
    /// Takes leave of everybody. Calls in flight end as their connections do.
    pub fn part(mut self) {
        self.let_out();
        let natives = self.sockets.part().map(|stream| Farewell::new(stream, Vec::new(), now()));
        let https = self.https.part(now());
        let leaving = self.visitors.part();
        let Ok(poller) = Poller::new() else { return };
        // The shard's own poller tells of much that is no longer of interest, and knows these by other names.
        let mut farewells = HashMap::new();
        for (id, mut farewell) in (0..).map(Token).zip(natives.chain(https).chain(leaving)) {
            let _ = self.poller.remove(farewell.stream());
            if !farewell.turn(now(), &mut self.buffers)
                && poller.add(farewell.stream(), id, farewell.interest()).is_ok()
            {
                farewells.insert(id, farewell);
            }
        }
        while let Some(until) = farewells.values().map(Farewell::next_timeout).min() {
            self.ready.clear();
            if poller.wait(Some(until.since_ns(now())), &mut self.ready).is_err() {
                return;
            }
            for ready in &self.ready {
                let Some(farewell) = farewells.get_mut(&ready.token) else { continue };
                if farewell.turn(now(), &mut self.buffers) {
                    farewells.remove(&ready.token);
                } else {
                    let _ = poller.set_interest(farewell.stream(), ready.token, farewell.interest());
                }
            }
            farewells.retain(|_, farewell| farewell.next_timeout() > now());
        }
    }
}
