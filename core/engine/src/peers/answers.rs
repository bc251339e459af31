//! What peers are told of the methods they have announced, when it has changed who serves them.

use super::PeerEnds;
use crate::routing::Routing;

/// Methods whose announcers are told at once when it has changed who serves them.
const ANSWERED_AT_ONCE: usize = 8;

/// The connections, and those who know who serves what.
pub(crate) struct PeerAnswers<'e> {
    pub peers: &'e mut PeerEnds,
    pub routing: Routing<'e>,
}

impl PeerAnswers<'_> {
    /// It has changed who serves these: peers that announced a method of one are told what holds now. A method
    /// announced before its server came would otherwise stay on protobuf as long as the connection lives.
    ///
    /// Some at once, and the rest one after the other: peers may have announced many, and who serves what may change
    /// often.
    pub fn changed(&mut self, services: &[impl AsRef<str>]) {
        services.iter().for_each(|service| self.peers.announcers.changed(service.as_ref()));
        (0..ANSWERED_AT_ONCE).for_each(|_| self.answer_next());
    }

    /// All peers are told what holds now of all they have announced.
    pub fn all_changed(&mut self) {
        self.peers.announcers.all_changed();
        self.changed(&[""; 0]);
    }

    /// Those who have announced the next method are told what holds now.
    pub fn answer_next(&mut self) {
        let Some((path, announcers)) = self.peers.announcers.next() else { return };
        let method = self.routing.registry.key_of(&path);
        let types = method.and_then(|method| self.routing.types_agreed(method));
        for (peer, index) in announcers {
            self.peers.answer(peer, index, (method, types.clone()));
            self.peers.transmit(peer);
        }
    }
}
