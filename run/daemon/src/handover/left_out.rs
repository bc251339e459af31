//! Sessions and connections that this daemon does not go on with: a stricter version refuses what they have bound, or
//! what came of them does not hold together. They end, with a word to the log and to the application; everybody else
//! goes on.

use super::arrive::{Inherited, InheritedShard};
use crate::shard::Shard;
use std::collections::HashMap;
use trunkline_engine::{LeftOutReason, LeftOutSession, SessionKey, left_out_connections, left_out_sessions};

impl InheritedShard {
    /// Whatever the engine does not go on with stays behind.
    pub fn leave_out(&mut self, shard: &Shard) {
        for LeftOutSession { session, label, reason } in left_out_sessions(&shard.engine) {
            let set = match &reason {
                LeftOutReason::Schema { schema, .. } => self.refused.get(*schema).and_then(Option::as_deref),
                LeftOutReason::Unsound => None,
            };
            let why = match set {
                Some(set) => format!("{reason} ({set})"),
                None => reason.to_string(),
            };
            self.leave_out_session(shard.index, session, &label, why);
        }
        for (connection, reason) in left_out_connections(&shard.engine) {
            tracing::warn!(
                shard = shard.index,
                connection,
                reason,
                "a connection does not go on after the replacement; it is closed"
            );
        }
    }

    /// A session stays behind.
    pub fn leave_out_session(&mut self, shard: usize, session: SessionKey, application: &str, why: String) {
        let reason = &why;
        tracing::warn!(
            shard,
            application,
            reason,
            "an application's session does not go on after the replacement; it is detached"
        );
        self.memory.retain(|(key, ..)| *key != session);
        self.left_out
            .insert(session, format!("the daemon was replaced, and this session cannot follow: {why}"));
    }
}

impl Inherited {
    /// What applications are told whose sessions stay behind.
    pub fn take_left_out(&mut self) -> HashMap<(usize, SessionKey), String> {
        let shards = self.shards.iter_mut().enumerate();
        shards
            .flat_map(|(index, shard)| {
                std::mem::take(&mut shard.left_out).into_iter().map(move |(key, why)| ((index, key), why))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    //! Shows that a descriptor set which a stricter program refuses concerns the one application that has bound it, and
    //! so does a doorbell that is a pipe.
    use super::super::arrive::InheritedClient;
    use super::super::order::{Leave, SentSets};
    use super::super::parts::hand_over;
    use super::super::take_over::Begun;
    use super::super::wire::{Channel, Word};
    use super::*;
    use crate::config::Config;
    use crate::endpoints::Endpoints;
    use crate::handle::Daemon;
    use crate::handle::tests::{attach, shards_at_rest};
    use crate::schemas::SchemaCache;
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::time::Duration;
    use trunkline_engine::BindRequest;
    use trunkline_schema::Schema;
    use trunkline_shm::ControlSocket;
    use trunkline_telemetry::Ask;

    const CONFIG: &str = "[daemon]\nshards = 1\n";

    /// Serves a service of this package.
    fn serve(shard: &mut Shard, key: SessionKey, package: &str) {
        let text = format!(
            "syntax = \"proto3\"; package {package}; message M {{}} service S {{ rpc C(M) returns (M); }}"
        );
        let set = Schema::from_proto_source("a.proto", &text).unwrap().descriptor_set().to_vec();
        let schema = SchemaCache::default().of_bytes(set).unwrap();
        let serves = [format!("{package}.S")];
        let wish = BindRequest { schema: Some(&schema), serves: &serves, calls: &[], permitted: &[] };
        shard.engine.bind(key, &wish).unwrap();
    }

    /// What a shard hands over, with sets that this program refuses in the place of those of a package.
    fn handed_over(shard: &mut Shard, refused: &str) -> Inherited {
        let (one, other) = ControlSocket::pair().unwrap();
        let ends = [one, other].map(|end| Channel::new(end, Duration::from_secs(60)).unwrap());
        let [to, from] = ends;
        let (to, (done, _sent), (_holds, in_vain)) = (Arc::new(to), channel(), channel());
        let sets = Arc::new(SentSets::new(true));
        let (recorded, counts) = (Arc::from([]), false);
        let leave = Leave { channel: Arc::clone(&to), sets, counts, recorded, done, in_vain };
        std::thread::scope(|scope| {
            let arriving = scope.spawn(|| {
                let mut inherited = Inherited::of_shards(1);
                loop {
                    match from.next().unwrap() {
                        (Word::End { .. }, _) => return inherited,
                        (Word::Schema(set), fds) => {
                            let is_refused = set.windows(refused.len()).any(|at| at == refused.as_bytes());
                            let set = if is_refused { b"no set".to_vec() } else { set };
                            inherited.take(&from, Word::Schema(set), fds).unwrap();
                        }
                        (word, fds) => inherited.take(&from, word, fds).unwrap(),
                    }
                }
            });
            drop(hand_over(shard, Box::new(leave)));
            to.send(&Word::End { stopped_ns: 1 }, &[]).unwrap();
            arriving.join().unwrap()
        })
    }

    fn heard(socket: &ControlSocket) -> String {
        let mut packet = Vec::new();
        let _ = socket.recv(&mut packet, 1).unwrap();
        String::from_utf8_lossy(&packet).into_owned()
    }

    /// What the daemon tells the applications of these sessions that goes on with this, and whose sessions it has then.
    fn go_on(mut inherited: Inherited, keys: [SessionKey; 2]) -> ([String; 2], Vec<String>) {
        let sockets = keys.map(|key| {
            let (ours, theirs) = ControlSocket::pair().unwrap();
            inherited.clients.push(InheritedClient {
                socket: ours,
                shard: 0,
                session: Some(key),
                may_move: true,
                identity: None,
            });
            theirs
        });
        let config = Config::from_toml(CONFIG, "test").unwrap();
        let endpoints = Endpoints::default();
        let prepared = Daemon::prepare(config, (None, None), endpoints, Some(&mut inherited));
        let Ok(begun) = prepared.and_then(Begun::of) else { panic!("the state is taken over") };
        let daemon = begun.go(inherited);
        let told = sockets.each_ref().map(heard);
        let sessions = daemon.observe(&Ask::default()).remove(0).snapshot.sessions;
        (told, sessions.iter().map(|row| row.label.to_string()).collect())
    }

    /// All sessions of a daemon have pipes that is older than its doorbells' sockets.
    #[test]
    fn a_session_whose_doorbell_is_a_pipe_ends_and_no_other() {
        let (_before, mut shards) = shards_at_rest(CONFIG);
        let keys = ["piped", "plain"].map(|name| attach(&mut shards[0], name).0);
        let mut inherited = handed_over(&mut shards[0], "no package's");
        let mut memory = inherited.shards[0].memory.iter_mut();
        let (.., fds) = memory.find(|(key, ..)| *key == keys[0]).unwrap();
        let (_reader, writer) = rustix::pipe::pipe().unwrap();
        // Rings, send heap, the daemon's doorbell.
        fds[3] = writer;
        let (told, sessions) = go_on(inherited, keys);
        assert!(told[0].contains("this session cannot follow: "), "{}", told[0]);
        assert!(!told[1].contains("cannot follow"), "it is told of its new heap");
        assert_eq!(sessions, ["plain"]);
    }

    #[test]
    fn a_refused_descriptor_set_ends_the_sessions_that_bound_it_and_no_other() {
        let (_before, mut shards) = shards_at_rest(CONFIG);
        let keys = ["strict", "plain"].map(|name| {
            let (key, _app) = attach(&mut shards[0], name);
            serve(&mut shards[0], key, name);
            key
        });
        let inherited = handed_over(&mut shards[0], "strict");
        let ([why, other], sessions) = go_on(inherited, keys);
        assert!(why.contains("this session cannot follow: strict.M, which it has bound"), "{why}");
        assert!(why.contains("(descriptor set: "), "{why}");
        assert!(!other.contains("cannot follow"), "it is told of its new heap");
        assert_eq!(sessions, ["plain"]);
    }
}
