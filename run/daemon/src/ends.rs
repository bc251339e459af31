//! How sessions end, and what becomes of their connections.
//!
//! The shard that has a session's ring closes its control socket, and says why before, when it has let go of the ring.
//! An application that hears of the end takes what lies in its ring for *not executed*, and may say it again elsewhere:
//! nothing of it may be taken afterwards.

use crate::clients::{AttachedSession, Client};
use crate::command::Command;
use crate::control::Control;
use crate::ending_connection::EndingConnection;
use crate::rights::{Refused, Rights};
use std::sync::Arc;
use trunkline_engine::{Bound, BoundSchema, Engine};

impl Control {
    /// Takes a connection in, by the number it has then; one that is not wanted is told why. The session of one that
    /// cannot be taken in ends.
    pub fn take_in(&mut self, client: Client) -> Option<u64> {
        if client.is_closed() {
            self.let_go(client, None);
            return None;
        }
        match self.clients.insert(&self.poller, client) {
            Ok(number) => {
                self.have_one_give_way(number);
                Some(number)
            }
            Err((error, client)) => {
                tracing::error!(%error, "cannot watch an application's control socket");
                self.let_go(*client, None);
                None
            }
        }
    }

    /// Sessions that came from another daemon have bound what that one's configuration let them: those that may not by
    /// this one's end before anything is taken of their rings, and hear why when they bind again. `bound` says what
    /// one has bound.
    pub fn hold_to_rules(&mut self, bound: impl Fn(AttachedSession) -> (Bound, Vec<Arc<BoundSchema>>)) {
        let bound_there: Vec<_> = self
            .clients
            .iter()
            .filter_map(|(number, client)| Some((number, client.session()?, client.peer()?)))
            .collect();
        for (number, session, peer) in bound_there {
            let (bound, schemas) = bound(session);
            let (user, _) = self.clients.user(number);
            schemas.iter().for_each(|schema| self.sets.enter(user, number, schema));
            let identity = self.clients.find(number).and_then(Client::identity);
            let permitted = identity.map_or(Ok(()), |identity| self.config.relay.permit(peer, identity));
            let rights = Rights { config: &self.config, peer, identity };
            let kept = permitted.and_then(|()| rights.keeps(&bound).map_err(|Refused { why, .. }| why));
            if let Err(why) = kept {
                self.dismiss(number, 0, format!("the daemon's configuration has changed: {why}"));
            }
        }
    }

    /// Has a shard that came from another daemon go on with programs of this host only: an older one took down whatever
    /// path a process had in its own mount namespace. One that is known to run what it said keeps it.
    pub fn check_programs(&mut self, shard: usize, engine: &mut Engine) {
        for (key, said) in engine.unchecked_programs() {
            let client = self.clients.of_session(AttachedSession { shard, key });
            let peer = client.and_then(|number| self.clients.find(number)).and_then(Client::peer);
            let runs = peer.map(|peer| self.processes.program_of(peer.pid));
            engine.note_program(key, runs.filter(|runs| *runs == said).as_deref().unwrap_or_default());
        }
    }

    /// The application closed its socket, or died: its session ends.
    pub fn end(&mut self, number: u64) {
        self.end_told(number, None);
    }

    /// One that could not be told something is not there any more.
    pub fn end_closed(&mut self, number: u64) {
        if self.clients.find(number).is_some_and(Client::is_closed) {
            self.end(number);
        }
    }

    pub fn dismiss(&mut self, number: u64, tag: u64, reason: String) {
        tracing::warn!(%reason, "application dismissed");
        self.end_told(number, Some((tag, reason)));
    }

    /// A session ends, and its application is told why, if at all.
    pub fn end_told(&mut self, number: u64, told: Option<(u64, String)>) {
        let client = self.clients.remove(&self.poller, number);
        self.sets.leave(number);
        client.into_iter().for_each(|client| self.let_go(client, told.clone()));
    }

    /// The daemon ends: shards close the connections of their sessions when they have let go of the rings.
    pub fn give_connections_away(&mut self) {
        for client in self.clients.take_all() {
            let session = client.session();
            let connection = EndingConnection::new(client, None, Arc::clone(&self.closer));
            match session {
                Some(AttachedSession { shard, .. }) => {
                    self.shards[shard].send(Command::EndWithDaemon(Box::new(connection)));
                }
                None => connection.end(),
            }
        }
    }

    fn let_go(&self, client: Client, told: Option<(u64, String)>) {
        let session = client.session();
        let connection = EndingConnection::new(client, told, Arc::clone(&self.closer));
        let Some(AttachedSession { shard, key }) = session else { return connection.end() };
        self.shards[shard].send(Command::Detach { session: key, connection: Box::new(connection) });
        self.memory.something_ended();
    }
}

#[cfg(test)]
mod tests {
    //! Shows that no application hears of its session's end before the shard has let go of its ring.
    use super::*;
    use crate::handle::Daemon;
    use crate::handle::tests::{all_at_rest, attach};
    use crate::shard::Shard;
    use trunkline_engine::SessionKey;
    use trunkline_shm::ControlSocket;

    const RULES: &str = "[daemon]\nshards = 1\n[[serve]]\nservice = \"x.Y\"\nwho = []\n";

    struct Scene {
        // Goes before the daemon.
        control: Control,
        shard: Shard,
        key: SessionKey,
        _daemon: Daemon,
    }

    /// A shard that has a session, and whose thread has not begun.
    fn scene() -> Scene {
        let (control, daemon, mut shards) = all_at_rest(RULES);
        let mut shard = shards.remove(0);
        let (key, _app) = attach(&mut shard, "app");
        Scene { control, shard, key, _daemon: daemon }
    }

    impl Scene {
        /// The session's connection, as it comes from another daemon, and its other end.
        fn client(&self) -> (Client, ControlSocket) {
            let (ours, theirs) = ControlSocket::pair().unwrap();
            theirs.set_nonblocking(true).unwrap();
            (Client::of_another(ours, Some((0, self.key)), true, None).of_other_process(), theirs)
        }

        fn has_ring(&self) -> bool {
            self.shard.sessions.look(self.key).is_some()
        }

        /// Nothing is heard until the shard has let go of the ring; then the end, and this before it.
        fn ends_after_ring(&mut self, theirs: &ControlSocket, says: Option<&str>) {
            let heard = theirs.recv(&mut Vec::new(), 1);
            assert!(heard.is_err_and(|error| error.would_block()), "the shard still has the ring");
            assert!(self.has_ring());
            self.shard.take_commands();
            assert!(!self.has_ring());
            let mut packet = Vec::new();
            if let Some(says) = says {
                assert!(theirs.recv(&mut packet, 1).unwrap().is_some());
                assert!(String::from_utf8_lossy(&packet).contains(says));
            }
            assert!(theirs.recv(&mut packet, 1).unwrap().is_none(), "then it is closed");
        }
    }

    #[test]
    fn who_is_dismissed_hears_it_when_nothing_of_its_ring_is_taken_any_more() {
        let mut scene = scene();
        let (client, theirs) = scene.client();
        let number = scene.control.take_in(client).unwrap();
        scene.control.dismiss(number, 0, "because".into());
        scene.ends_after_ring(&theirs, Some("because"));
    }

    #[test]
    fn who_may_not_stay_by_new_rules_is_let_go_of_first() {
        let mut scene = scene();
        let (client, theirs) = scene.client();
        scene.control.take_in(client).unwrap();
        scene
            .control
            .hold_to_rules(|_| (Bound { serves: vec!["x.Y".into()], ..Bound::default() }, Vec::new()));
        scene.ends_after_ring(&theirs, Some("the daemon's configuration has changed"));
    }

    /// It died while one daemon took the other's place, or does not read.
    #[test]
    fn the_session_of_an_application_that_cannot_be_told_of_its_heap_ends() {
        let mut scene = scene();
        let (mut client, theirs) = scene.client();
        drop(theirs);
        client.follow(Some((trunkline_shm::create_receive_heap(1 << 20).unwrap().1, 1 << 20, 1)), None);
        assert_eq!(scene.control.take_in(client), None);
        scene.shard.take_commands();
        assert!(!scene.has_ring());
    }

    #[test]
    fn connections_close_when_a_daemon_ends_after_its_shards_have() {
        let mut scene = scene();
        let (client, theirs) = scene.client();
        scene.control.take_in(client).unwrap();
        scene.control.give_connections_away();
        scene.shard.take_commands();
        assert!(theirs.recv(&mut Vec::new(), 1).is_err_and(|error| error.would_block()), "it still turns");
        crate::shutdown::close(scene.shard);
        assert!(theirs.recv(&mut Vec::new(), 1).unwrap().is_none());
    }
}
