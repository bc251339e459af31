//! The control thread: who may attach, with what memory, and under which names.
//!
//! Everything slow or rare happens here, so that no shard ever waits for it: creating regions, building schemas,
//! telling an application why it must go. It talks to shards by [`Command`], and they to it by [`Notice`].

use crate::command::{Bind as BindCommand, Command, Notice, ShardSender};
use crate::config::{Config, Sessions};
use crate::handover::{InheritedClient, Leave};
use crate::keys::{KeySource, LOOK_EVERY};
use crate::memory::{BEHIND_SLEEP, FreedMemory};
use crate::rights::{Refused, Rights};
use crate::schemas::SchemaCache;
use crate::waker::Waker;
use prost::Message;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};
use trunkline_control::{
    ABI_VERSION, Attach, Attached, Bind, Bound, BoundMethod, Detached, Moved, Reply, decode_request, reply,
    request,
};
use trunkline_engine::{AccessRecord, Binding, SessionKey};
use trunkline_shm::{ControlListener, ControlSocket, PeerCredentials, SessionConfig, create_session};

/// The longest sleep while there are files to look at.
const LOOK: Timespec = Timespec { tv_sec: LOOK_EVERY.as_secs() as i64, tv_nsec: 0 };
/// Time the control socket rests when the process cannot take another connection, and the longest sleep meanwhile.
const REST: Duration = Duration::from_millis(100);
const REST_SLEEP: Timespec = Timespec { tv_sec: 0, tv_nsec: REST.as_nanos() as i64 };

/// What other threads tell the control thread.
pub(crate) enum ControlMessage {
    /// From the shard with this index.
    Notice(usize, Notice),
    /// An application of this very process attaches (embedded mode).
    Adopt(ControlSocket),
    /// Hand everything over to another daemon.
    Leave(Box<Leave>),
    /// End the thread.
    Stop,
}

/// The control thread's state.
pub(crate) struct Control {
    pub listener: Option<ControlListener>,
    pub shards: Vec<ShardSender>,
    /// How many of them, the first, take new sessions in.
    pub open_shards: usize,
    pub messages: Receiver<ControlMessage>,
    pub waker: Arc<Waker>,
    pub config: Arc<Config>,
    pub clients: Vec<Client>,
    pub schemas: SchemaCache,
    pub next_session: u64,
    pub keys: KeySource,
    pub keys_looked: Instant,
    /// Lines of the access log that are on their way here.
    pub unwritten: Arc<AtomicUsize>,
    /// What sessions and connections leave.
    pub memory: FreedMemory,
    /// Until when nobody is let in, because the process has no descriptor for another connection.
    pub rests_until: Option<Instant>,
}

/// One connection to the control socket.
pub(crate) struct Client {
    socket: ControlSocket,
    /// Whose it is, as far as the kernel says.
    uid: Option<u32>,
    session: Option<AttachedSession>,
    /// What its application calls itself, and its process.
    name: Box<str>,
    pid: u32,
    /// Its library follows when the daemon is replaced.
    may_move: bool,
    closed: bool,
}

#[derive(Clone, Copy)]
struct AttachedSession {
    shard: usize,
    key: SessionKey,
}

impl Control {
    /// Serves until told to stop.
    pub fn run(mut self) {
        self.hold_to_rules();
        loop {
            self.wait();
            self.waker.quiet();
            while let Ok(message) = self.messages.try_recv() {
                match message {
                    ControlMessage::Notice(shard, notice) => self.handle_notice(shard, notice),
                    ControlMessage::Adopt(socket) => self.welcome(socket),
                    ControlMessage::Leave(leave) => self.hand_over(&leave),
                    ControlMessage::Stop => return,
                }
            }
            self.accept();
            self.serve();
            self.look_at_keys();
            self.memory.look();
            self.clients.retain(|client| !client.closed);
        }
    }

    /// Sessions that came from another daemon have bound what that one's configuration let them: those that may not by
    /// this one's end, and hear why when they bind again.
    fn hold_to_rules(&mut self) {
        for index in 0..self.clients.len() {
            let Some(AttachedSession { shard, key }) = self.clients[index].session else { continue };
            let bound = self.shards[shard].ask(|reply| Command::Bound { session: key, reply });
            let Ok(peer) = self.clients[index].socket.peer_credentials() else { continue };
            let rights = Rights { config: &self.config, peer };
            if let Some(Err(Refused { why, .. })) = bound.map(|bound| rights.keeps(&bound)) {
                let reason = format!("the daemon's configuration has changed: {why}");
                tracing::warn!(%reason, "application dismissed");
                self.part(index);
                self.clients[index].dismiss(0, reason);
            }
        }
        self.clients.retain(|client| !client.closed);
    }

    /// Sleeps until something is to be done. Ready descriptors are found by trying: there are few, and none is hot.
    fn wait(&self) {
        let mut fds = vec![PollFd::from_borrowed_fd(self.waker.as_fd(), PollFlags::IN)];
        if let Some(listener) = self.listener.as_ref().filter(|_| self.rests_until.is_none()) {
            fds.push(PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN));
        }
        fds.extend(
            self.clients.iter().map(|client| PollFd::from_borrowed_fd(client.socket.as_fd(), PollFlags::IN)),
        );
        let timeout = match self.rests_until {
            Some(_) => Some(REST_SLEEP),
            None if self.memory.is_due() => Some(BEHIND_SLEEP),
            None => (!self.keys.is_empty()).then_some(LOOK),
        };
        if let Err(error) = poll(&mut fds, timeout.as_ref())
            && error != rustix::io::Errno::INTR
        {
            tracing::error!(%error, "control thread cannot poll");
        }
    }

    /// Gives shards new keys and certificates when there are any.
    fn look_at_keys(&mut self) {
        if self.keys.is_empty() || self.keys_looked.elapsed() < LOOK_EVERY {
            return;
        }
        self.keys_looked = Instant::now();
        if let Some(keys) = self.keys.reload() {
            self.shards.iter().for_each(|shard| _ = shard.send(Command::Secure(keys.clone())));
        }
    }

    fn accept(&mut self) {
        self.rests_until = self.rests_until.filter(|until| Instant::now() < *until);
        let Some(listener) = self.listener.as_ref().filter(|_| self.rests_until.is_none()) else { return };
        let mut accepted = Vec::new();
        loop {
            match listener.accept() {
                Ok(socket) => accepted.push(socket),
                Err(error) if error.would_block() => break,
                Err(error) => {
                    tracing::error!(%error, "cannot accept applications; the control socket rests");
                    self.rests_until = Some(Instant::now() + REST);
                    break;
                }
            }
        }
        for socket in accepted {
            self.welcome(socket);
        }
    }

    fn welcome(&mut self, socket: ControlSocket) {
        let mut client = Client::new(socket);
        if let Err(reason) = self.has_place(&client) {
            client.dismiss(0, reason);
            return;
        }
        if client.socket.set_nonblocking(true).is_ok() {
            self.clients.push(client);
        }
    }

    /// Whether a user may have another connection. Those that have not attached count too: each holds a descriptor.
    fn has_place(&self, client: &Client) -> Result<(), String> {
        let Sessions { count_max, per_user_max, .. } = self.config.sessions;
        let user_max = if per_user_max == 0 { count_max - count_max / 4 } else { per_user_max };
        if self.clients.len() >= count_max {
            return Err(format!("daemon serves at most {count_max} sessions (sessions.count_max)"));
        }
        let of_user = self.clients.iter().filter(|other| other.uid == client.uid).count();
        if of_user >= user_max && !client.is_own_process() {
            return Err(format!(
                "daemon serves at most {user_max} sessions of one user (sessions.per_user_max)"
            ));
        }
        Ok(())
    }

    fn serve(&mut self) {
        for index in 0..self.clients.len() {
            while !self.clients[index].closed {
                let mut packet = Vec::new();
                match self.clients[index].socket.recv(&mut packet, 1) {
                    Ok(Some(fds)) => self.handle_packet(index, &packet, fds),
                    Err(error) if error.would_block() => break,
                    Ok(None) | Err(_) => self.clients[index].closed = true,
                }
            }
            if self.clients[index].closed {
                self.part(index);
            }
        }
    }

    /// The application closed its socket, died, or was dismissed: its session ends.
    fn part(&mut self, index: usize) {
        if let Some(AttachedSession { shard, key }) = self.clients[index].session.take() {
            self.shards[shard].send(Command::Detach { session: key });
            self.memory.something_ended();
        }
    }

    fn handle_packet(&mut self, index: usize, packet: &[u8], fds: Vec<OwnedFd>) {
        let (tag, outcome) = match decode_request(packet) {
            Err(error) => (0, Err(error.to_string())),
            Ok((tag, request::Kind::Attach(attach))) => (tag, self.handle_attach(index, tag, &attach)),
            Ok((tag, request::Kind::Bind(bind))) => (tag, self.handle_bind(index, tag, bind, fds)),
        };
        if let Err(reason) = outcome {
            tracing::warn!(%reason, "application dismissed");
            self.clients[index].dismiss(tag, reason);
        }
    }

    fn handle_attach(&mut self, index: usize, tag: u64, attach: &Attach) -> Result<(), String> {
        if self.clients[index].session.is_some() {
            return Err("attached already; one session per control connection".into());
        }
        if attach.abi_version != ABI_VERSION {
            return Err(format!(
                "application speaks ABI version {}, this daemon {ABI_VERSION}; rebuild the older of the two",
                attach.abi_version
            ));
        }
        let peer = self.clients[index].socket.peer_credentials().map_err(|e| e.to_string())?;
        let name: String = attach.name.chars().filter(|c| !c.is_control()).take(64).collect();
        let label = format!("{name}[{}]", peer.pid);
        let geometry = self.config.session_geometry(attach);
        let (end, session_fds) =
            create_session(&geometry).map_err(|e| format!("cannot create session: {e}"))?;
        let shard = self.shard_for(&name, attach.stands_by, peer.pid);
        let end = Box::new(end);
        let attached_as = name.into_boxed_str();
        let (name, stands_by, tells_callers) = (label.clone(), attach.stands_by, attach.tells_callers);
        let identity = format!("uid:{}", peer.uid);
        let attached = self.shards[shard].ask(|reply| Command::Attach {
            end,
            label: name,
            identity,
            program: program_of(peer.pid),
            stands_by,
            tells_callers,
            reply,
        });
        let key = attached.ok_or("daemon is stopping")?;
        self.clients[index].session = Some(AttachedSession { shard, key });
        self.clients[index].may_move = attach.may_move;
        self.clients[index].name = attached_as;
        self.next_session += 1;
        tracing::info!(session = self.next_session, application = %label, uid = peer.uid, shard, "attached");
        let reply = Attached { tells_callers, ..self.attached(&geometry) };
        self.clients[index].reply(tag, reply::Kind::Attached(reply), Some(&session_fds.as_fds()));
        Ok(())
    }

    /// The shard of a new session. Those of one process stay together: calls find whichever of its workers is free.
    /// Else it is the one with the fewest sessions of that name, of these the one with the fewest sessions. The
    /// daemon's own are where its successor's will be.
    fn shard_for(&self, name: &str, stands_by: bool, pid: u32) -> usize {
        if self.open_shards < 2 || stands_by || self.listener.is_some() && pid == std::process::id() {
            return 0;
        }
        let mut taken = vec![(0_usize, 0_usize); self.shards.len()];
        for client in &self.clients {
            let Some(attached) = client.session else { continue };
            if client.pid == pid {
                return attached.shard;
            }
            taken[attached.shard].0 += usize::from(*client.name == *name);
            taken[attached.shard].1 += 1;
        }
        (0..self.open_shards).min_by_key(|shard| taken[*shard]).unwrap_or(0)
    }

    /// Has every shard hear what the others have said so far.
    fn have_shards_meet(&self) {
        if self.shards.len() > 1 {
            // All say it, and then all have heard it.
            for _ in 0..2 {
                self.shards.iter().for_each(|shard| _ = shard.ask(|reply| Command::Meet { reply }));
            }
        }
    }

    fn attached(&self, geometry: &SessionConfig) -> Attached {
        Attached {
            abi_version: ABI_VERSION,
            session: self.next_session,
            submission_entries: geometry.submission_entries,
            completion_entries: geometry.completion_entries,
            send_heap_bytes: geometry.send_heap_bytes.into(),
            receive_heap_bytes: geometry.receive_heap_bytes.into(),
            calls_max: u32::try_from(self.config.limits().calls_made_per_session).unwrap_or(u32::MAX),
            stream_window_bytes: self.config.limits().stream_window_bytes,
            node: self.config.node().to_owned(),
            tells_callers: false,
        }
    }

    fn handle_bind(&mut self, index: usize, tag: u64, bind: Bind, fds: Vec<OwnedFd>) -> Result<(), String> {
        let session = self.clients[index].session.ok_or("bind before attach")?;
        let peer = self.clients[index].socket.peer_credentials().map_err(|e| e.to_string())?;
        let bound = match self.bind(session, peer, bind, fds)? {
            Ok(binding) => bound_reply(binding),
            Err(Refused { code, why }) => {
                Bound { error: why, code: code.number().into(), ..Bound::default() }
            }
        };
        self.clients[index].reply(tag, reply::Kind::Bound(bound), None);
        Ok(())
    }

    /// Inner error: told to the application, which may go on. Outer error: the application is dismissed.
    fn bind(
        &mut self,
        session: AttachedSession,
        peer: PeerCredentials,
        bind: Bind,
        fds: Vec<OwnedFd>,
    ) -> Result<Result<Binding, Refused>, String> {
        let schema = match (fds.first(), bind.descriptor_set_bytes) {
            (None, 0) => None,
            (Some(memfd), bytes) => match self.schemas.schema_in(memfd, bytes) {
                Ok(schema) => Some(schema),
                Err(error) => return Ok(Err(error.into())),
            },
            (None, _) => return Err("bind must come with one memfd that holds the descriptor set".into()),
        };
        let rights = Rights { config: &self.config, peer };
        let permitted = match rights.serves(&bind.serves) {
            Ok(permitted) => permitted,
            Err(refused) => return Ok(Err(refused)),
        };
        let calls = match rights.calls(bind.calls) {
            Ok(calls) => calls,
            Err(refused) => return Ok(Err(refused)),
        };
        let serves = !bind.serves.is_empty();
        let bind = Box::new(BindCommand { schema, serves: bind.serves, calls, permitted });
        if serves {
            // Whoever has gone serves nothing any more, on every shard.
            self.have_shards_meet();
        }
        let answer =
            self.shards[session.shard].ask(|reply| Command::Bind { session: session.key, bind, reply });
        if serves {
            // Whoever calls from here on finds it, from every shard.
            self.have_shards_meet();
        }
        Ok(answer.ok_or("daemon is stopping")?.map_err(Refused::from))
    }

    fn handle_notice(&mut self, shard: usize, notice: Notice) {
        let (session, reason) = match notice {
            Notice::Detached { session, reason } => (session, reason),
            Notice::Renewed { session, heap, bytes, number } => {
                return self.tell_renewed(shard, session, heap, (bytes, number));
            }
            Notice::Access(record) => return self.write_access(&record),
            Notice::Ejected(ejected) => return tracing::error!(%ejected, "policy module ejected"),
            Notice::Misfit(misfit) => {
                return tracing::error!(%misfit, "policy does not fit what is bound; calls it cannot judge are refused");
            }
        };
        if let Some(client) = self.client_of(shard, session) {
            tracing::warn!(%reason, "application detached");
            client.session = None;
            client.dismiss(0, reason);
        }
    }
}

impl Control {
    fn client_of(&mut self, shard: usize, session: SessionKey) -> Option<&mut Client> {
        self.clients.iter_mut().find(|client| {
            client.session.is_some_and(|attached| attached.shard == shard && attached.key == session)
        })
    }

    /// Tells an application of the heap that is to take its receive heap's place, or that it has.
    fn tell_renewed(
        &mut self,
        shard: usize,
        session: SessionKey,
        heap: Option<OwnedFd>,
        (bytes, heap_number): (u32, u32),
    ) {
        let offered = heap.is_some();
        let client = self.client_of(shard, session).filter(|client| client.may_move);
        let told = client.is_some();
        if let Some(client) = client {
            let moved = Moved { receive_heap_bytes: bytes.into(), heap_number };
            let fds: Vec<_> = heap.iter().map(AsFd::as_fd).collect();
            client.reply(0, reply::Kind::Moved(moved), Some(&fds));
        }
        if offered {
            self.shards[shard].send(Command::Renewing { session, told });
        }
    }

    fn write_access(&self, record: &AccessRecord) {
        self.unwritten.fetch_sub(1, Ordering::Relaxed);
        tracing::info!(
            target: "access",
            path = %record.path, caller = %record.caller, code = %record.code,
            duration_us = record.duration_ns / 1000,
            request_bytes = record.request_bytes, response_bytes = record.response_bytes,
        );
    }
}

/// The program a process runs now, as far as this daemon may look; empty if not.
fn program_of(pid: u32) -> String {
    let path = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    path.into_os_string().into_string().unwrap_or_default()
}

impl Client {
    fn new(socket: ControlSocket) -> Self {
        let peer = socket.peer_credentials().ok();
        let (uid, pid) = (peer.map(|peer| peer.uid), peer.map_or(0, |peer| peer.pid));
        Self { socket, uid, session: None, name: Box::default(), pid, may_move: false, closed: false }
    }

    /// Whether the daemon's own services come by it.
    fn is_own_process(&self) -> bool {
        let own = rustix::process::geteuid().as_raw();
        self.socket.peer_credentials().is_ok_and(|peer| (peer.pid, peer.uid) == (std::process::id(), own))
    }

    /// A connection another daemon had. `heap` is the new receive heap, with its bytes and its number: the application
    /// hears of it before anything points into it.
    pub fn inherited(from: InheritedClient, heap: Option<(OwnedFd, u32, u32)>) -> Self {
        let InheritedClient { socket, shard, session, may_move } = from;
        let session = session.map(|key| AttachedSession { shard, key });
        let mut client = Self { session, may_move, ..Self::new(socket) };
        match (heap, session) {
            (Some((fd, bytes, heap_number)), Some(_)) if may_move => {
                let moved = Moved { receive_heap_bytes: bytes.into(), heap_number };
                client.reply(0, reply::Kind::Moved(moved), Some(&[fd.as_fd()]));
            }
            (_, Some(_)) => {
                client.session = None;
                client.dismiss(
                    0,
                    "the daemon was replaced, and this session cannot follow; attach again".into(),
                );
            }
            (_, None) => {}
        }
        client
    }

    /// Whether nobody is there any more.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether its library follows when the daemon is replaced.
    pub fn may_move(&self) -> bool {
        self.may_move
    }

    /// Its shard and session, if it has attached.
    pub fn place(&self) -> (usize, Option<SessionKey>) {
        self.session.map_or((0, None), |session| (session.shard, Some(session.key)))
    }

    pub fn socket(&self) -> &ControlSocket {
        &self.socket
    }

    fn reply(&mut self, tag: u64, kind: reply::Kind, fds: Option<&[rustix::fd::BorrowedFd<'_>]>) {
        let packet = Reply { tag, kind: Some(kind) }.encode_to_vec();
        // An application that does not read its control socket loses it: nobody waits for it.
        if self.socket.send(&packet, fds.unwrap_or_default()).is_err() {
            self.closed = true;
        }
    }

    fn dismiss(&mut self, tag: u64, reason: String) {
        self.reply(tag, reply::Kind::Detached(Detached { reason }), None);
        self.closed = true;
    }
}

fn bound_reply(binding: Binding) -> Bound {
    Bound {
        calls: binding.calls.into_iter().map(|route| route.0).collect(),
        serves: binding
            .serves
            .into_iter()
            .map(|(path, route)| BoundMethod { path, route: route.0 })
            .collect(),
        ..Bound::default()
    }
}
