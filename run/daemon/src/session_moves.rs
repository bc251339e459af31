//! Sessions that move between shards, by the order of the control thread: whatever it says to a session before or
//! afterwards reaches the shard that has it.

use crate::clients::{AttachedSession, Client};
use crate::command::Command;
use crate::control::Control;
use crate::placement::{Move, ShardLoad};
use trunkline_engine::{SessionKey, Stays};
use trunkline_shm::monotonic_ns;

impl Control {
    /// A shard is busy, or calls cross from it: a session may have to move.
    pub fn relieve(&mut self, shard: usize, load: &ShardLoad) {
        let busy_ns: Vec<u64> = self.busy.iter().map(|busy| busy.ns()).collect();
        let Some(Move { session, to }) = self.placement.decide(monotonic_ns(), shard, load, &busy_ns) else {
            return;
        };
        match self.move_session(session, to) {
            Ok(now) => self.placement.moved(session, now),
            Err(stays) => {
                tracing::debug!(shard, to, ?stays, "session stays where it is");
                self.placement.stayed(session);
            }
        }
    }

    /// Takes a session from its shard and gives it to another, with its calls in flight.
    fn move_session(
        &mut self,
        session: AttachedSession,
        to: usize,
    ) -> Result<AttachedSession, Option<Stays>> {
        let number = self.clients.of_session(session).ok_or(None)?;
        let released =
            self.shards[session.shard].ask(|reply| Command::Release { session: session.key, to, reply });
        let moving = released.ok_or(None)?.map_err(Some)?;
        let key = self.shards[to].ask(|reply| Command::Adopt { moving, reply }).ok_or(None)?;
        let now = AttachedSession { shard: to, key };
        self.clients.moved(number, now);
        let application = self.clients.find(number).map(Client::name);
        tracing::info!(application, from = session.shard, to, "session moved to another shard");
        Ok(now)
    }

    /// The same when somebody asks for it. The key the session has there, or why it stays.
    pub fn move_when_asked(&mut self, session: AttachedSession, to: usize) -> Result<SessionKey, String> {
        let moved = self.move_session(session, to).map(|now| now.key);
        moved.map_err(|stays| stays.map_or("it is gone".into(), |stays| stays.to_string()))
    }
}
