//! Sessions that move between shards, by the order of the control thread: whatever it says to a session before or
//! afterwards reaches the shard that has it. And shards that begin and stop (`shard_threads.rs`): nobody has a session
//! on one that has stopped.

use crate::clients::AttachedSession;
use crate::command::Command;
use crate::control::Control;
use crate::placement::{Move, Relief, ShardLoad};
use crate::session_rings::MovingSession;
use trunkline_engine::{SessionKey, Stays};
use trunkline_shm::monotonic_ns;

/// Sessions that leave a shard at one look: each costs the control thread the time of two turns.
const MOVES_PER_LOOK: usize = 32;
/// How often one is asked for that is to leave a busy shard, while its memory is lent: a small message is written
/// within a few turns.
const ASKS_MAX: u32 = 16;
/// And one that may as well leave at the next look.
const ASKED_ONCE: u32 = 1;

impl Control {
    /// A shard is busy, or calls cross from it: a session may have to move.
    pub fn relieve(&mut self, shard: usize, load: &ShardLoad) {
        let (now_ns, busy_ns) = (monotonic_ns(), self.threads.busy_ns());
        let Move { session, to } = match self.placement.decide(now_ns, shard, load, &busy_ns) {
            Relief::Move(chosen) => chosen,
            Relief::Redial(peer) => {
                self.shards[shard].send(Command::AskToRedial { peer });
                return;
            }
            Relief::AnotherShard if self.threads.may_open(now_ns) => return self.open_shard(now_ns),
            Relief::AnotherShard | Relief::Nothing => return,
        };
        match self.move_session(session, to, ASKS_MAX) {
            Ok(now) => self.placement.moved(session, now),
            Err(stays) => {
                tracing::debug!(shard, to, ?stays, "session stays where it is");
                self.placement.stayed(now_ns, session);
            }
        }
    }

    /// Has another shard begin.
    fn open_shard(&mut self, now_ns: u64) {
        match self.threads.open_another(now_ns) {
            Ok(()) => tracing::info!(shards = self.threads.open(), "another shard has begun"),
            Err(error) => tracing::warn!(%error, "no thread for another shard"),
        }
    }

    /// Has the last shard stop, if the others have had time for its work for a while; and those that are to stop lose
    /// their sessions, then their threads.
    pub fn look_after_shards(&mut self) {
        let now_ns = monotonic_ns();
        if self.threads.next_look(now_ns).is_none_or(|due| !due.is_zero()) {
            return;
        }
        if self.threads.look(now_ns) {
            self.threads.close_last(now_ns);
        }
        let closing: Vec<usize> = self.threads.closing().collect();
        for shard in closing {
            let left = self.clients.sessions_of(shard, MOVES_PER_LOOK);
            if left.is_empty() {
                self.threads.park(shard);
                tracing::info!(shard, shards = self.threads.open(), "a shard has stopped");
            }
            for session in left {
                let to = self.threads.least_busy(now_ns);
                if let Err(stays) = self.move_session(session, to, ASKED_ONCE) {
                    tracing::debug!(shard, to, ?stays, "session keeps its shard from stopping");
                }
            }
        }
    }

    /// Takes a session from its shard and gives it to another, with its calls in flight.
    fn move_session(
        &mut self,
        session: AttachedSession,
        to: usize,
        asks_max: u32,
    ) -> Result<AttachedSession, Option<Stays>> {
        let number = self.clients.of_session(session).ok_or(None)?;
        let moving = self.release(session, to, asks_max)?;
        let application = moving.moved.label().to_owned();
        let key = self.shards[to].ask(|reply| Command::Adopt { moving, reply }).ok_or(None)?;
        let now = AttachedSession { shard: to, key };
        self.clients.moved(number, now);
        tracing::info!(application, from = session.shard, to, "session moved to another shard");
        Ok(now)
    }

    /// The session, as it leaves its shard. Small calls one after another have something lent at most moments, and
    /// nothing at some; what is lent for longer keeps the session where it is.
    fn release(
        &self,
        session: AttachedSession,
        to: usize,
        asks_max: u32,
    ) -> Result<Box<MovingSession>, Option<Stays>> {
        let mut asked = 1;
        loop {
            let released =
                self.shards[session.shard].ask(|reply| Command::Release { session: session.key, to, reply });
            match released.ok_or(None)? {
                Err(Stays::Lent) if asked < asks_max => asked += 1,
                released => return released.map_err(Some),
            }
        }
    }

    /// The same when somebody asks for it, and it stays there for a while. The key the session has there, or why it
    /// stays where it is.
    pub fn move_when_asked(&mut self, session: AttachedSession, to: usize) -> Result<SessionKey, String> {
        let moved = self.move_session(session, to, ASKS_MAX).map(|now| {
            self.placement.was_moved(monotonic_ns(), now);
            now.key
        });
        moved.map_err(|stays| stays.map_or("it is gone".into(), |stays| stays.to_string()))
    }
}
