//! The control thread: who may attach, with what memory, and under which names.
//!
//! Everything slow or rare happens here, so that no shard ever waits for it: creating regions, building schemas,
//! telling an application why it must go. It talks to shards by [`Command`], and they to it by [`Notice`].

use crate::bound_sets::BoundSets;
use crate::clients::{AttachedSession, Client, Clients, PROCESS};
use crate::closer::Closer;
use crate::command::{Bind as BindCommand, Command, ControlMessage, Notice, ShardSender};
use crate::config::Config;
use crate::control_received::ControlReceived;
use crate::denials::Denials;
use crate::heap_accounts::CountedHeap;
use crate::heaps::HeapOffer;
use crate::keys::{KeySource, LOOK_EVERY};
use crate::memory::{BEHIND_SLEEP, FreedMemory};
use crate::placement::SessionPlacement;
use crate::processes::Processes;
use crate::rights::{Refused, Rights};
use crate::schemas::{build, is_memfd, read_memfd};
use crate::shard_places::UNKNOWN;
use crate::shard_threads::ShardThreads;
use crate::waker::Waker;
use rustix::fd::{AsFd, OwnedFd};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};
use trunkline_call::printable;
use trunkline_control::{
    ABI_VERSION, Attach, Attached, Bind, Bound, BoundMethod, Moved, decode_request, reply, request,
};
use trunkline_engine::{AccessRecord, Binding, BoundSchema, SessionKey};
use trunkline_net::{Interest, Poller, Ready, Token, accept_descriptors};
use trunkline_shm::{ControlListener, PeerCredentials, SessionConfig, create_session, monotonic_ns};

/// Time the control socket rests when the process cannot take another connection.
const REST: Duration = Duration::from_millis(100);
/// Connections accepted, and packets taken, before messages of shards and the clock are looked at again. More packets
/// than connections: what comes in is looked at faster than it comes.
const CONNECTIONS_PER_TURN: usize = 16;
const PACKETS_PER_TURN: usize = 32;
/// Time after which a turn takes no further packet: building the schema of one may take longer than many others.
const TURN_MAX: Duration = Duration::from_millis(2);

/// What the poller names, beside connections.
const WAKER: Token = Token(0);
const LISTENER: Token = Token(1);

/// What the control thread begins with.
pub(crate) struct ControlParts {
    pub listener: Option<ControlListener>,
    pub shards: Vec<ShardSender>,
    /// Their threads.
    pub threads: ShardThreads,
    pub messages: Receiver<ControlMessage>,
    pub waker: Arc<Waker>,
    pub config: Arc<Config>,
    /// Sessions there have been.
    pub sessions: u64,
    pub keys: KeySource,
    /// Lines of the access log that are on their way here.
    pub unwritten: Arc<AtomicUsize>,
    /// What sessions and connections leave.
    pub memory: FreedMemory,
    /// Whether a policy at work reads `caller.program`.
    pub programs_are_read: Arc<AtomicBool>,
}

/// The control thread's state.
pub(crate) struct Control {
    pub listener: Option<ControlListener>,
    pub shards: Vec<ShardSender>,
    pub threads: ShardThreads,
    pub placement: SessionPlacement,
    messages: Receiver<ControlMessage>,
    waker: Arc<Waker>,
    pub config: Arc<Config>,
    pub clients: Clients,
    pub sets: BoundSets,
    pub sessions: u64,
    keys: KeySource,
    keys_looked: Instant,
    unwritten: Arc<AtomicUsize>,
    pub memory: FreedMemory,
    pub closer: Arc<Closer>,
    denials: Denials,
    pub processes: Processes,
    pub poller: Poller,
    ready: Vec<Ready>,
    /// Somebody may wait at the listener.
    connects: bool,
    /// Until when nobody is let in, because the process has no descriptor for another connection.
    rests_until: Option<Instant>,
    /// The last packet.
    packet: Vec<u8>,
}

impl Control {
    /// Not begun.
    ///
    /// # Errors
    /// The kernel has no poller left.
    pub fn new(parts: ControlParts) -> io::Result<Self> {
        let ControlParts { listener, shards, threads, messages, waker, config, sessions, .. } = parts;
        let poller = Poller::new()?;
        poller.add(&*waker, WAKER, Interest::Read)?;
        if let Some(listener) = &listener {
            poller.add(listener, LISTENER, Interest::Read)?;
        }
        let processes = Processes::new(Arc::clone(&config), parts.programs_are_read);
        Ok(Self {
            listener,
            shards,
            threads,
            placement: SessionPlacement::default(),
            messages,
            waker,
            clients: Clients::new(config.sessions.clone()),
            sets: BoundSets::new(&config.sessions),
            config,
            sessions,
            keys: parts.keys,
            keys_looked: Instant::now(),
            unwritten: parts.unwritten,
            memory: parts.memory,
            closer: Arc::default(),
            denials: Denials::default(),
            processes,
            poller,
            ready: Vec::new(),
            connects: true,
            rests_until: None,
            packet: Vec::new(),
        })
    }

    /// Says whether those who have not attached may send descriptors. A kernel that cannot refuse them has them come
    /// all the same.
    pub fn take_descriptors_of_all(&self, of_all: bool) {
        self.listener.iter().for_each(|listener| _ = accept_descriptors(listener, of_all));
    }

    /// Serves until told to stop.
    pub fn run(mut self) {
        self.take_descriptors_of_all(false);
        loop {
            self.wait();
            while let Ok(message) = self.messages.try_recv() {
                match message {
                    ControlMessage::Notice(shard, notice) => self.handle_notice(shard, notice),
                    ControlMessage::Adopt(socket) => drop(self.take_in(Client::new(socket))),
                    ControlMessage::Move { session, to, reply } => {
                        let _ = reply.send(self.move_when_asked(session, to));
                    }
                    ControlMessage::TakeDenials(reply) => drop(reply.send(self.denials.take())),
                    ControlMessage::Leave(leave) => leave.with_connections_of(&mut self),
                    ControlMessage::Stop(given) => {
                        self.give_connections_away();
                        let _ = given.send(());
                        return;
                    }
                }
            }
            self.accept();
            self.serve();
            self.end_late();
            self.clients.heaps.look_if_due();
            self.look_at_keys();
            self.look_after_shards();
            self.memory.look();
        }
    }

    /// Sleeps until something is to be done.
    fn wait(&mut self) {
        let timeout_ns = self.sleep_max().map(|sleep| u64::try_from(sleep.as_nanos()).unwrap_or(u64::MAX));
        let mut ready = std::mem::take(&mut self.ready);
        if let Err(error) = self.poller.wait(timeout_ns, &mut ready) {
            tracing::error!(%error, "control thread cannot poll");
        }
        for event in ready.drain(..) {
            match event.token {
                WAKER => self.waker.quiet(),
                LISTENER => self.connects = true,
                Token(number) if number & PROCESS != 0 => self.end(number & !PROCESS),
                Token(number) => self.clients.wait(&self.poller, number),
            }
        }
        self.ready = ready;
    }

    /// How long it may sleep, if not until something comes.
    fn sleep_max(&self) -> Option<Duration> {
        if self.clients.any_waits() || self.connects && self.rests_until.is_none() {
            return Some(Duration::ZERO);
        }
        let until = |at: Instant| at.saturating_duration_since(Instant::now());
        let rest = self.rests_until.map(until);
        let late = self.clients.next_due().map(until);
        let unused = self.memory.next_due().map(until);
        let memory = self.memory.is_due().then_some(BEHIND_SLEEP);
        let keys = (!self.keys.is_empty()).then_some(LOOK_EVERY);
        let shards = self.threads.next_look(monotonic_ns());
        let heaps = self.clients.heaps.next_look().map(until);
        [rest, late, memory, unused, keys, shards, heaps].into_iter().flatten().min()
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
        if self.rests_until.is_some_and(|until| Instant::now() < until) {
            return;
        }
        let Some(listener) = self.listener.as_ref().filter(|_| self.connects) else {
            self.connects = false;
            return;
        };
        if self.rests_until.take().is_some() {
            let _ = self.poller.set_interest(listener, LISTENER, Interest::Read);
        }
        let mut accepted = Vec::new();
        while accepted.len() < CONNECTIONS_PER_TURN {
            match listener.accept() {
                Ok(socket) => accepted.push(socket),
                Err(error) if error.would_block() => {
                    self.connects = false;
                    break;
                }
                Err(error) => {
                    tracing::error!(%error, "cannot accept applications; the control socket rests");
                    self.rests_until = Some(Instant::now() + REST);
                    let _ = self.poller.set_interest(listener, LISTENER, Interest::Nothing);
                    break;
                }
            }
        }
        for socket in accepted {
            let _ = self.take_in(Client::new(socket));
        }
    }

    /// Takes packets: of each user as much time as of every other, and of each of its connections one after the other.
    fn serve(&mut self) {
        let began = Instant::now();
        for _ in 0..PACKETS_PER_TURN {
            let Some((user, number)) = self.clients.next_in_turn() else { return };
            let before = Instant::now();
            let mut packet = std::mem::take(&mut self.packet);
            let received = self.clients.receive(number, &mut packet, &self.closer);
            let may_have_more = match received {
                ControlReceived::Refused(why) => {
                    self.dismiss(number, 0, why);
                    false
                }
                ControlReceived::Packet(fds) => {
                    self.handle_packet(number, &packet, fds);
                    true
                }
                ControlReceived::Nothing => {
                    self.have_one_give_way(number);
                    false
                }
                ControlReceived::End(unwanted) => {
                    self.close_descriptors(number, unwanted);
                    self.end(number);
                    false
                }
            };
            self.packet = packet;
            self.clients.turn_over(&self.poller, (user, number), may_have_more, before.elapsed());
            self.end_closed(number);
            if began.elapsed() >= TURN_MAX {
                return;
            }
        }
    }

    /// Where connections that have not attached are too many, the oldest gives way to this one.
    pub fn have_one_give_way(&mut self, number: u64) {
        if let Some((oldest, why)) = self.clients.one_to_give_way(number) {
            self.dismiss(oldest, 0, why);
        }
    }

    /// Ends connections that should have attached by now.
    fn end_late(&mut self) {
        for _ in 0..CONNECTIONS_PER_TURN {
            let Some((number, why)) = self.clients.one_too_late() else { return };
            self.dismiss(number, 0, why);
        }
    }

    fn handle_packet(&mut self, number: u64, packet: &[u8], fds: Vec<OwnedFd>) {
        let (tag, outcome) = match decode_request(packet) {
            Err(error) => (0, Err(error.to_string())),
            Ok((tag, request::Kind::Attach(attach))) => (tag, self.handle_attach(number, tag, &attach)),
            Ok((tag, request::Kind::Bind(bind))) => (tag, self.handle_bind(number, tag, bind, &fds)),
        };
        self.close_descriptors(number, fds);
        if let Err(reason) = outcome {
            self.dismiss(number, tag, reason);
        }
    }

    /// Closes what a connection sent.
    fn close_descriptors(&self, number: u64, fds: Vec<OwnedFd>) {
        self.closer.close(self.clients.find(number).and_then(Client::sender), fds);
    }

    fn handle_attach(&mut self, number: u64, tag: u64, attach: &Attach) -> Result<(), String> {
        let geometry = self.config.session_geometry(attach);
        let heap_bytes = u64::from(geometry.receive_heap_bytes);
        let identity = (!attach.identity.is_empty()).then_some(&*attach.identity);
        if let Some(identity) = identity {
            self.config.relay.permit(self.peer_of(number)?, identity)?;
        }
        self.clients.may_attach(number, identity, heap_bytes)?;
        if attach.abi_version != ABI_VERSION {
            return Err(format!(
                "application speaks ABI version {}, this daemon {ABI_VERSION}; rebuild the older of the two",
                attach.abi_version
            ));
        }
        let peer = self.peer_of(number)?;
        let name: String = printable(&attach.name).chars().take(64).collect();
        let label = match identity {
            Some(identity) => format!("{name}[{identity}]"),
            None => format!("{name}[{}]", peer.pid),
        };
        let (end, session_fds) =
            create_session(&geometry).map_err(|e| format!("cannot create session: {e}"))?;
        let is_own = identity.is_none() && self.clients.find(number).is_some_and(Client::is_own_process);
        let process = identity.map_or(peer.pid, |_| UNKNOWN);
        let shard = self.shard_for(&name, attach.stands_by, (process, is_own));
        // Of one that a relay has attached, nobody here knows them.
        let program = identity.map_or_else(|| self.processes.program_of(peer.pid), |_| String::new());
        let cgroup = identity.map_or_else(|| self.processes.cgroup_of(peer.pid), |_| String::new());
        let (application, stands_by, tells_callers) = (label.clone(), attach.stands_by, attach.tells_callers);
        let attached = self.shards[shard].ask(|reply| Command::Attach {
            end: Box::new(end),
            label: application,
            identity: identity.map_or_else(|| format!("uid:{}", peer.uid), str::to_owned),
            program,
            cgroup,
            stands_by,
            tells_callers,
            reply,
        });
        let session = AttachedSession { shard, key: attached.ok_or("daemon is stopping")? };
        let names = (name.into_boxed_str(), identity.map(Into::into));
        let heap = match is_own {
            true => CountedHeap::of_bytes(heap_bytes),
            false => CountedHeap::given(heap_bytes, session_fds.receive_heap()),
        };
        self.clients.attached(&self.poller, number, session, heap, names, attach.may_move);
        self.sessions += 1;
        tracing::info!(session = self.sessions, application = %label, uid = peer.uid, shard, "attached");
        let identity = attach.identity.clone();
        let reply = Attached { tells_callers, identity, ..self.attached(&geometry) };
        if let Some(client) = self.clients.find_mut(number) {
            client.reply(tag, reply::Kind::Attached(reply), &session_fds.as_fds());
        }
        Ok(())
    }

    fn peer_of(&self, number: u64) -> Result<PeerCredentials, String> {
        let peer = self.clients.find(number).and_then(Client::peer);
        peer.ok_or_else(|| "the kernel does not say whose the connection is".into())
    }

    /// The shard of a new session. The daemon's own are where its successor's will be.
    fn shard_for(&self, name: &str, stands_by: bool, (process, is_own): (u32, bool)) -> usize {
        if self.threads.open() < 2 || stands_by || self.listener.is_some() && is_own {
            return 0;
        }
        self.clients.shard_for(name, process, self.threads.open())
    }

    /// Has every shard that matters hear what the others have said so far.
    fn have_shards_meet(&self) {
        // One without sessions that takes in nothing new has nobody who might call.
        let matters = |shard: &usize| *shard < self.threads.open() || self.clients.has_sessions(*shard);
        let matter: Vec<usize> = (0..self.shards.len()).filter(matters).collect();
        if matter.len() > 1 {
            // All say it, and then all have heard it.
            for _ in 0..2 {
                matter.iter().for_each(|shard| _ = self.shards[*shard].ask(|reply| Command::Meet { reply }));
            }
        }
    }

    fn attached(&self, geometry: &SessionConfig) -> Attached {
        Attached {
            abi_version: ABI_VERSION,
            session: self.sessions,
            submission_entries: geometry.submission_entries,
            completion_entries: geometry.completion_entries,
            send_heap_bytes: geometry.send_heap_bytes.into(),
            receive_heap_bytes: geometry.receive_heap_bytes.into(),
            calls_max: u32::try_from(self.config.limits().calls_made_per_session).unwrap_or(u32::MAX),
            stream_window_bytes: self.config.limits().stream_window_bytes,
            node: self.config.node().to_owned(),
            tells_callers: false,
            identity: String::new(),
        }
    }

    fn handle_bind(&mut self, number: u64, tag: u64, bind: Bind, fds: &[OwnedFd]) -> Result<(), String> {
        let session = self.clients.find(number).and_then(Client::session).ok_or("bind before attach")?;
        let peer = self.peer_of(number)?;
        let bound = match self.bind(number, session, peer, bind, fds)? {
            Ok(binding) => bound_reply(binding),
            Err(Refused { code, why }) => {
                Bound { error: why, code: code.number().into(), ..Bound::default() }
            }
        };
        if let Some(client) = self.clients.find_mut(number) {
            client.reply(tag, reply::Kind::Bound(bound), &[]);
        }
        Ok(())
    }

    /// Inner error: told to the application, which may go on. Outer error: the application is dismissed.
    fn bind(
        &mut self,
        number: u64,
        session: AttachedSession,
        peer: PeerCredentials,
        bind: Bind,
        fds: &[OwnedFd],
    ) -> Result<Result<Binding, Refused>, String> {
        let schema = match (fds.first(), bind.descriptor_set_bytes) {
            (None, 0) => None,
            // Whose close may wait, as that of no memfd does: one is enough of somebody who sends such.
            (Some(other), _) if !is_memfd(other) => return Err("descriptor set must come in a memfd".into()),
            (Some(memfd), bytes) => match self.schema_in(number, memfd, bytes) {
                Ok(schema) => Some(schema),
                Err(refused) => return Ok(Err(refused)),
            },
            (None, _) => return Err("bind must come with one memfd that holds the descriptor set".into()),
        };
        let identity = self.clients.find(number).and_then(Client::identity);
        let rights = Rights { config: &self.config, peer, identity };
        let permitted = match rights.serves(&bind.serves) {
            Ok(permitted) => permitted,
            Err(refused) => return Ok(Err(refused)),
        };
        rights.denied(&bind.calls).into_iter().for_each(|denied| self.denials.note(denied));
        let calls = match rights.calls(bind.calls) {
            Ok(calls) => calls,
            Err(refused) => return Ok(Err(refused)),
        };
        if let Some(schema) = &schema
            && let Err(refused) =
                schema.compute_fingerprints(&bind.serves, calls.iter().map(|(path, _)| &**path))
        {
            // It is the set's own: the same set is refused each time.
            return Ok(Err(format!("descriptor set: {refused}").into()));
        }
        let serves = !bind.serves.is_empty();
        let held = schema.clone();
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
        let bound = answer.ok_or("daemon is stopping")?.map_err(Refused::from);
        if let (Ok(_), Some(schema)) = (&bound, held) {
            self.sets.enter(self.clients.user(number).0, number, &schema);
        }
        Ok(bound)
    }

    /// The schema of a descriptor set that an application sent by this connection: built if its user may have it.
    fn schema_in(&mut self, number: u64, memfd: &OwnedFd, bytes: u64) -> Result<Arc<BoundSchema>, Refused> {
        let set = read_memfd(memfd, bytes)?;
        let (user, name) = self.clients.user(number);
        if let Some(known) = self.sets.known(&set) {
            self.sets.may_have((user, &name), Some(&known), 0)?;
            return Ok(known);
        }
        build(set.into(), |bytes| self.sets.may_have((user, &name), None, bytes))
    }

    fn handle_notice(&mut self, shard: usize, notice: Notice) {
        let (session, reason) = match notice {
            Notice::Detached { session, reason } => (session, reason),
            Notice::Renewed { session, heap, bytes, number } => {
                return self.tell_renewed(shard, session, heap, (bytes, number));
            }
            Notice::Access(record) => return self.write_access(&record),
            Notice::Denied(denied) => {
                self.unwritten.fetch_sub(1, Ordering::Relaxed);
                return self.denials.note(*denied);
            }
            Notice::Busy(load) => return self.relieve(shard, &load),
            Notice::Ejected(ejected) => return tracing::error!(%ejected, "policy module ejected"),
            Notice::Misfit(misfit) => {
                return tracing::error!(%misfit, "policy does not fit what is bound; calls it cannot judge are refused");
            }
        };
        if let Some(number) = self.clients.of_session(AttachedSession { shard, key: session }) {
            tracing::warn!(%reason, "application detached");
            // The shard has let go of it already; it hears so once more, which finds nothing.
            self.end_told(number, Some((0, reason)));
        }
    }

    /// Tells an application of the heap that is to take its receive heap's place, or that it has.
    fn tell_renewed(
        &mut self,
        shard: usize,
        session: SessionKey,
        heap: Option<OwnedFd>,
        (bytes, heap_number): (u32, u32),
    ) {
        let number = self.clients.of_session(AttachedSession { shard, key: session });
        let offer = match number.filter(|number| self.clients.find(*number).is_some_and(Client::may_move)) {
            None => HeapOffer::Unable,
            Some(number) => match &heap {
                Some(heap) if !self.clients.renew_heap(number, bytes.into(), heap) => HeapOffer::NoRoom,
                _ => HeapOffer::Told,
            },
        };
        let client = number.and_then(|number| self.clients.find_mut(number));
        if let Some(client) = client.filter(|_| offer == HeapOffer::Told) {
            let moved = Moved { receive_heap_bytes: bytes.into(), heap_number };
            let fds: Vec<_> = heap.iter().map(AsFd::as_fd).collect();
            client.reply(0, reply::Kind::Moved(moved), &fds);
        }
        number.into_iter().for_each(|number| self.end_closed(number));
        if heap.is_some() {
            self.shards[shard].send(Command::Renewing { session, offer });
        }
    }

    /// The other daemon is the daemon: of all that waits here, what was done under this one is to be written down.
    pub fn write_last_lines(&mut self) {
        while let Ok(message) = self.messages.try_recv() {
            match message {
                ControlMessage::Notice(_, Notice::Access(record)) => self.write_access(&record),
                ControlMessage::Notice(_, Notice::Denied(denied)) => self.denials.note(*denied),
                _ => {}
            }
        }
        // Whoever writes denied changes down ends with the last of them.
        self.denials = Denials::default();
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
