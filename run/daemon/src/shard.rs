//! One shard: an engine, and the rings, heaps and sockets it works with.

use crate::changes::Changes;
use crate::clock::now;
use crate::command::{Applying, Bind, Command, ControlMessage, Exchanged, Notice, Services, ShardReceiver};
use crate::config::TenantCandidate;
use crate::crossings::Crossings;
use crate::datagrams::UdpPorts;
use crate::ending_connection::EndingConnection;
use crate::handover::Stand;
use crate::heaps::{HeapOffer, Rest, SessionHeaps};
use crate::http::HttpSockets;
use crate::keys::TlsKeys;
use crate::listening::{self, Listening};
use crate::load::LoadMeter;
use crate::names::Names;
use crate::pending_connections::PendingConnections;
use crate::placement::{ShardLoad, permille};
use crate::reports::{AskedReport, Reports};
use crate::session_rings::{MovingSession, Rings, Sessions};
use crate::socket_work::{SocketWork, WorkLeft};
use crate::sockets::NativeSockets;
use crate::tenants::Tenants;
use crate::token::Token;
use crate::unmapper::Unmapper;
use crate::waker::Waker;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use trunkline_call::{Instant, TimerTable};
use trunkline_engine::{
    BindError, BindRequest, Binding, Bound, BoundSchema, ChainFit, Engine, GrpcLeft, PeerKey, SessionKey,
    ShardIndex, Stays, Turn, adopt_session, ask_to_redial, hold_own_services, leave_grpc, release_session,
    schemas_in_use, stay_with_grpc, take_crossing_peer, take_partner,
};
use trunkline_net::{Buffers, Interest, Poller, Ready};
use trunkline_policy::{Chain, Modules};
use trunkline_shm::{DaemonEnd, Waiter, create_receive_heap};
use trunkline_telemetry::TaxSetup;

/// How long a receive heap has had no large message when its memory is given back: long enough that one that gets them
/// all the time keeps its pages.
const HEAP_REST_NS: u64 = 1_000_000_000;

/// Looks at the queues while one of them is full, when other threads are to know what is said there.
const MEETINGS_MAX: usize = 10_000;

/// A shard. Lives on its own thread; see `turn.rs` for what it does all day.
pub(crate) struct Shard {
    pub index: usize,
    pub engine: Engine,
    pub heaps: SessionHeaps,
    /// Where the memory of sessions that are over goes.
    pub unmapper: Arc<Unmapper>,
    pub sessions: Sessions,
    /// The users of those sessions, and whose turn it is.
    pub tenants: Tenants,
    pub sockets: NativeSockets,
    /// Whoever connects waits at the listeners, for the daemon that takes over.
    pub accepts_are_held: bool,
    pub https: HttpSockets,
    pub udp: UdpPorts,
    pub pending: PendingConnections,
    /// What is due for sockets, apart from what the engine waits for.
    pub socket_timers: TimerTable<Token>,
    pub tls: TlsKeys,
    pub listening: Vec<Listening>,
    pub poller: Poller,
    pub ready: Vec<Ready>,
    pub waiter: Waiter,
    pub commands: ShardReceiver,
    pub control: ControlSender,
    /// Who is to be told when what is served changes, and what they were told last.
    pub changes: Arc<Changes>,
    pub told: u64,
    pub names: Arc<Names>,
    /// What operators ask for.
    pub reports: Reports,
    /// Where calls go that are kept with their messages.
    pub samples: Option<crate::samples::SampleSink>,
    /// What its thread is busy with, and how it measures what that goes into.
    pub load: LoadMeter,
    pub tax: TaxSetup,
    /// Planted (`debug.wall_clock_set_by_us`): the wall clock of its thread is set by so much every second.
    pub wall_clock_set_by_ns: u64,
    /// The poller of a shard beside this one, on its thread, has something.
    pub beside_rang: bool,
    /// There is an order for its thread.
    pub thread_is_ordered: bool,
    /// The queues from and to the other shards.
    pub crossings: Crossings,
    pub stopping: bool,
    /// It is to stand still, as soon as all shards of its thread are.
    pub ordered_to_stand: Option<Stand>,
    /// It goes on where another daemon's stopped, at this instant.
    pub resumes: Option<Instant>,
    /// Something was left for the next turn: do not wait.
    pub pressing: bool,
    /// Turns since the poller was asked, and when it last had something to tell.
    pub turns_unlooked: u32,
    /// Looks in a row that told of as many sockets as one can: others may not have been read.
    pub full_looks: u32,
    pub sockets_worked: Instant,
    /// Sessions whose completion ring was full.
    pub choked: Vec<SessionKey>,
    /// The buffers all connections of HTTP/2 share.
    pub buffers: Buffers,
}

/// Whoever has sockets, each with its own.
struct SocketOwners<'a> {
    sockets: &'a mut NativeSockets,
    https: &'a mut HttpSockets,
    udp: &'a mut UdpPorts,
}

/// How a shard reaches the control thread.
#[derive(Clone)]
pub(crate) struct ControlSender {
    pub messages: Sender<ControlMessage>,
    pub waker: Arc<Waker>,
    /// Lines of the access log the control thread has not written yet.
    pub unwritten: Arc<AtomicUsize>,
    /// Something has ended since memory was last given back.
    pub ended: Arc<AtomicBool>,
}

/// Lines of the access log, and denied changes, on their way to the control thread. More wait in the engine, whose own
/// limits drop them.
pub const UNWRITTEN_MAX: usize = 1024;

impl Shard {
    /// Does what the control thread and the admin API asked for.
    pub fn take_commands(&mut self) {
        self.commands.waker.quiet();
        while let Some(command) = self.commands.next() {
            self.obey(command);
        }
    }

    /// Does what the configuration says, and nothing else: what was asked besides is for afterwards. Services it does
    /// not name have no endpoints any more.
    pub fn take_configuration(&mut self) -> Vec<Command> {
        self.commands.waker.quiet();
        let (mut later, mut services) = (Vec::new(), HashSet::new());
        while let Some(command) = self.commands.next() {
            if let Command::ConfigureService { service, .. } = &command {
                services.insert(service.clone());
            }
            match command {
                Command::ConfigureService { .. } | Command::ConfigureCalls { .. } => self.obey(command),
                command => later.push(command),
            }
        }
        self.engine.keep_services(|service| services.contains(service));
        later
    }

    /// Does what was asked for.
    pub fn obey(&mut self, command: Command) {
        match command {
            Command::Attach { end, label, identity, program, cgroup, stands_by, tells_callers, reply } => {
                let key = self.attach(*end, label, (&identity, &program, &cgroup));
                self.introduce(key, stands_by, tells_callers);
                let _ = reply.send(key);
            }
            Command::Bind { session, bind, reply } => drop(reply.send(self.bind(session, &bind))),
            Command::Meet { reply } => {
                self.meet();
                let _ = reply.send(());
            }
            Command::Renewing { session, offer } => self.heap_offered(session, offer),
            Command::Detach { session, connection } => self.end_session(session, *connection),
            Command::EndWithDaemon(connection) => self.sessions.ending.push(*connection),
            Command::Release { session, to, reply } => drop(reply.send(self.release(session, to))),
            Command::Adopt { moving, reply } => drop(reply.send(self.adopt(*moving))),
            Command::AskToRedial { peer } => self.ask_to_redial(peer),
            Command::GiveWay { key, unidentified } => self.give_way(key, unidentified),
            Command::ConfigureService { service, endpoints } => {
                if let Err(error) = self.engine.configure_service(&service, &endpoints) {
                    tracing::error!(%service, %error, "service not configured");
                }
            }
            Command::ConfigureCalls { service, config } => self.engine.configure_calls(&service, config),
            Command::LookedUp { name, found } => {
                let mut turn = Turn { now: now(), heaps: &mut self.heaps };
                let found = found.as_ref().map_or_else(|why| Err(&why[..]), |endpoints| Ok(&endpoints[..]));
                self.engine.handle_looked_up(&mut turn, &name, found);
            }
            Command::ApplyPolicies { chain, modules, how, reply } => {
                let _ = reply.send(self.exchange_policies(*chain, modules, how));
            }
            Command::ExportModules { reply } => drop(reply.send(self.engine.export_modules())),
            Command::ImportModules { exported, reply } => {
                let _ = reply.send(self.engine.import_modules(&exported));
            }
            Command::ListPolicies { reply } => drop(reply.send(self.engine.policy_rows())),
            Command::Observe { ask, reply } => self.reports.ask(AskedReport::Whole(ask, reply)),
            Command::Calls { ask, reply } => self.reports.ask(AskedReport::Calls(ask, reply)),
            Command::Services { reply } => {
                let (states, draining) = (self.engine.services(), self.engine.is_draining());
                let _ = reply.send(Services { states, draining });
            }
            Command::Secure(keys) => self.tls = keys,
            Command::Sources { reply } => {
                let schemas = schemas_in_use(&self.engine);
                let _ = reply.send(schemas.iter().filter_map(|schema| schema.source.clone()).collect());
            }
            Command::LeaveGrpc { hold, reply } => drop(reply.send(self.leave_grpc(hold))),
            Command::HoldOwnServices { reply } => drop(reply.send(hold_own_services(&mut self.engine))),
            Command::StayWithGrpc => self.stay_with_grpc(),
            Command::Stand(stand) => {
                self.finish_reports();
                self.ordered_to_stand = Some(stand);
            }
            Command::OrderThread => self.thread_is_ordered = true,
            Command::ShareListeners { reply } => drop(reply.send(listening::share(&self.listening))),
            Command::GiveListeners { reply } => {
                self.listening.iter_mut().for_each(|one| one.unwatch(&self.poller));
                let _ = reply.send(std::mem::take(&mut self.listening));
            }
            Command::TakeListeners(given) => self.take_listeners(given),
            Command::Drain => self.engine.drain(now()),
            Command::Stop => {
                self.finish_reports();
                self.stopping = true;
            }
        }
    }

    /// What a session has bound, and the schemas of that.
    pub fn bound(&self, session: SessionKey) -> (Bound, Vec<Arc<BoundSchema>>) {
        (self.engine.bound(session), self.engine.schemas_of(session))
    }

    /// Takes in what other shards have said, and tells them all there is for them: a queue that is full is being
    /// emptied, for its shard waits for nobody.
    fn meet(&mut self) {
        for _ in 0..MEETINGS_MAX {
            let mut turn = Turn { now: now(), heaps: &mut self.heaps };
            self.crossings.take(&mut self.engine, &mut turn);
            self.crossings.send(&mut self.engine, &mut turn);
            if !self.crossings.has_more(&self.engine) {
                break;
            }
            rustix::thread::sched_yield();
        }
        // What came of it is let out with the next turn.
        self.pressing = true;
    }

    /// Puts a chain to work, and lets calls that wait go on by it.
    fn exchange_policies(&mut self, chain: Chain, modules: Modules, how: Applying) -> Exchanged {
        let made = |upgraded| (upgraded, ChainFit::default());
        let result = match how {
            Applying::Try => self.engine.try_policies(chain, modules),
            Applying::IfFits => self.engine.exchange_policies(chain, modules).map(made),
            Applying::Tried => self.engine.exchange_checked_policies(chain, modules).map(made),
        };
        self.engine.serve_waiting(&mut Turn { now: now(), heaps: &mut self.heaps });
        Exchanged { result, retired: self.engine.take_retired_modules() }
    }

    fn bind(&mut self, session: SessionKey, bind: &Bind) -> Result<Binding, BindError> {
        self.meet();
        let request = BindRequest {
            schema: bind.schema.as_ref(),
            serves: &bind.serves,
            calls: &bind.calls,
            permitted: &bind.permitted,
        };
        let bound = self.engine.bind(session, &request);
        if self.tenants.go_by_services() && !bind.serves.is_empty() {
            self.share_with(session);
        }
        // Before the application knows: who asks after that must see it.
        self.tell_changes();
        self.meet();
        bound
    }

    /// A step of emptying gRPC connections before a hand-over; how far that is.
    fn leave_grpc(&mut self, hold: bool) -> GrpcLeft {
        if hold {
            self.hold_accepts();
        }
        let mut left = leave_grpc(&mut self.engine, hold);
        if hold {
            left.unfinished += self.pending.unsettled();
        }
        left
    }

    /// The hand-over was in vain.
    fn stay_with_grpc(&mut self) {
        self.resume_accepts();
        stay_with_grpc(&mut self.engine, &mut Turn { now: now(), heaps: &mut self.heaps });
        self.pressing = true;
    }

    fn attach(
        &mut self,
        end: DaemonEnd,
        label: String,
        (identity, program, cgroup): (&str, &str, &str),
    ) -> SessionKey {
        let DaemonEnd {
            submissions,
            completions,
            send_heap,
            receive_heap,
            peer_doorbell,
            own_doorbell,
            regions,
        } = end;
        let key = self.engine.attach(label, send_heap.capacity_bytes() as u64);
        self.engine.identify(key, identity, program);
        self.engine.note_cgroup(key, cgroup);
        self.share_with(key);
        self.heaps.insert(key, send_heap, receive_heap, regions);
        self.take_in(key, Rings::new(submissions, completions, peer_doorbell, own_doorbell));
        key
    }

    /// A session has part of a tenant's share, as it is known by now.
    pub fn share_with(&mut self, key: SessionKey) {
        let (identity, cgroup, services) = self.engine.standing_of(key);
        let (tenant, weight, of) = self.tenants.enter(key, &TenantCandidate { identity, cgroup, services });
        self.engine.share_memory(key, &tenant, weight, of);
    }

    /// What an application asks of its session.
    fn introduce(&mut self, key: SessionKey, stands_by: bool, tells_callers: bool) {
        if stands_by {
            self.engine.stand_by(key);
        }
        if tells_callers {
            self.engine.tell_callers(key);
        }
    }

    /// Looks at a session's rings from now on.
    pub fn take_in(&mut self, key: SessionKey, rings: Rings) {
        let own_doorbell = &rings.own_doorbell;
        if let Err(error) = self.poller.add(own_doorbell, Token::Session(key).to_poller(), Interest::Read) {
            tracing::error!(%error, "cannot watch a session's doorbell");
        }
        self.sessions.insert(key, rings);
        self.sessions.activate(key);
    }

    /// Lets a session go to another shard, with all that it has.
    ///
    /// # Errors
    /// What keeps it for now; nothing has changed then.
    fn release(&mut self, key: SessionKey, to: usize) -> Result<Box<MovingSession>, Stays> {
        if self.sessions.look(key).is_none() {
            return Err(Stays::Leaving);
        }
        if !self.heaps.may_leave(key) {
            return Err(Stays::Lent);
        }
        let mut turn = Turn { now: now(), heaps: &mut self.heaps };
        let moved = release_session(&mut self.engine, &mut turn, key, ShardIndex(to as u16))?;
        self.tenants.leave(key);
        self.choked.retain(|choked| *choked != key);
        // What came of its calls is let out with the next turn.
        self.pressing = true;
        let (rings, heaps) = (self.sessions.remove(key), self.heaps.take_out(key));
        let (mut rings, heaps) = rings.zip(heaps).ok_or(Stays::Leaving)?;
        if let Err(error) = self.poller.remove(&rings.own_doorbell) {
            tracing::error!(%error, "cannot stop watching a session's doorbell");
        }
        rings.active = false;
        Ok(Box::new(MovingSession { moved, rings, heaps }))
    }

    /// Takes in a session that another shard has let go. Whatever its application has published meanwhile is found.
    fn adopt(&mut self, moving: MovingSession) -> SessionKey {
        let MovingSession { moved, rings, heaps } = moving;
        let key = adopt_session(&mut self.engine, moved);
        self.heaps.take_in(key, heaps);
        self.share_with(key);
        self.take_in(key, rings);
        self.engine.serve_waiting(&mut Turn { now: now(), heaps: &mut self.heaps });
        self.pressing = true;
        key
    }

    /// A session ends, and then its connection.
    fn end_session(&mut self, key: SessionKey, connection: EndingConnection) {
        self.detach(key);
        connection.end();
    }

    /// The application is gone: its calls end, its memory follows once no connection reads it.
    pub fn detach(&mut self, key: SessionKey) {
        self.sessions.remove(key);
        self.tenants.leave(key);
        self.engine.detach(&mut Turn { now: now(), heaps: &mut self.heaps }, key);
    }

    /// Listens where another shard did. Two descriptors of one socket are one listener.
    fn take_listeners(&mut self, given: Vec<Listening>) {
        for mut one in given {
            if self.listening.iter().any(|known| known.is_same_socket(&one)) {
                continue;
            }
            let watched =
                if self.accepts_are_held { Ok(()) } else { one.watch(&self.poller, self.listening.len()) };
            if let Err(error) = watched {
                tracing::error!(endpoint = %one.endpoint, %error, "cannot watch a listener");
            }
            self.listening.push(one);
        }
    }

    /// Has whoever made a connection open its calls on another.
    fn ask_to_redial(&mut self, peer: PeerKey) {
        if ask_to_redial(&mut self.engine, peer) {
            tracing::debug!(?peer, shard = self.index, "calls cross from a busy shard: asked to redial");
            self.pressing = true;
        }
    }

    /// An interval of its thread is over: what the shard was busy with, if that is worth telling.
    pub fn tell_load(&mut self, (interval_ns, busy_ns): (u64, u64)) {
        let work = self.sessions.take_work();
        let mut load = ShardLoad::shared_out(interval_ns, busy_ns, &work);
        for session in &mut load.sessions {
            let partner = take_partner(&mut self.engine, session.key);
            session.partner = partner.map(|(shard, calls)| (usize::from(shard.0), calls));
        }
        load.crossing_peer = take_crossing_peer(&mut self.engine);
        self.load.measure_sessions(self.crossings.are_several(), permille(busy_ns, interval_ns));
        if load.is_worth_telling() {
            self.notify(Notice::Busy(load));
        }
    }

    /// The application broke the ABI: it is detached and told why.
    pub fn dismiss(&mut self, key: SessionKey, reason: String) {
        self.detach(key);
        self.notify(Notice::Detached { session: key, reason });
    }

    /// Receive heaps that had a large message are looked at when they may be at rest.
    pub fn attend_heaps(&mut self) {
        while let Some(key) = self.heaps.take_grown() {
            self.look_later(key);
        }
    }

    /// Gives the memory of a receive heap back, if it is at rest.
    pub fn look_at_heap(&mut self, key: SessionKey) {
        // Blocks are returned without a ring when nothing is urgent.
        if self.sessions.find(key).is_some() {
            self.sessions.activate(key);
            self.drain_session(key);
        }
        match self.heaps.rest(key) {
            Rest::Nothing => {}
            Rest::Later => self.look_later(key),
            Rest::Renew { bytes, number } => match create_receive_heap(bytes) {
                Ok((heap, fd)) => {
                    self.heaps.offer(key, heap);
                    self.notify(Notice::Renewed { session: key, heap: Some(fd), bytes, number });
                }
                Err(error) => {
                    tracing::debug!(%error, "no new receive heap");
                    self.look_later(key);
                }
            },
            Rest::Renewed { bytes, number, old } => {
                self.unmapper.unmap_heap(old);
                self.notify(Notice::Renewed { session: key, heap: None, bytes, number });
            }
        }
    }

    fn heap_offered(&mut self, key: SessionKey, offer: HeapOffer) {
        self.heaps.offered(key, offer);
        match offer {
            HeapOffer::Told => self.look_at_heap(key),
            HeapOffer::NoRoom => self.look_later(key),
            HeapOffer::Unable => {}
        }
    }

    fn look_later(&mut self, key: SessionKey) {
        self.socket_timers.insert(now().plus_ns(HEAP_REST_NS), Token::Session(key));
    }

    /// Lends the native connections what they work with, and does what they leave.
    pub fn with_natives<T>(&mut self, work: impl FnOnce(&mut NativeSockets, &mut SocketWork<'_>) -> T) -> T {
        let (owners, mut lent) = self.lend();
        let result = work(owners.sockets, &mut lent);
        let left = lent.left;
        self.settle_left(left);
        result
    }

    /// The same for connections of HTTP/2.
    pub fn with_https(&mut self, work: impl FnOnce(&mut HttpSockets, &mut SocketWork<'_>)) {
        let (owners, mut lent) = self.lend();
        work(owners.https, &mut lent);
        let left = lent.left;
        self.settle_left(left);
    }

    /// The same for datagrams.
    pub fn with_udp(&mut self, work: impl FnOnce(&mut UdpPorts, &mut SocketWork<'_>)) {
        let (owners, mut lent) = self.lend();
        work(owners.udp, &mut lent);
        let left = lent.left;
        self.settle_left(left);
    }

    fn lend(&mut self) -> (SocketOwners<'_>, SocketWork<'_>) {
        let turn_bytes = self.turn_bytes();
        let Self { engine, heaps, poller, socket_timers: timers, buffers, sockets, https, udp, .. } = self;
        let lent =
            SocketWork { engine, heaps, poller, timers, buffers, turn_bytes, left: WorkLeft::default() };
        (SocketOwners { sockets, https, udp }, lent)
    }

    fn settle_left(&mut self, left: WorkLeft) {
        self.pressing |= left.is_pressing;
        for key in left.unidentified {
            self.pending.places.unidentified.remove(key);
        }
        for (peer, key) in left.greeted {
            self.peer_greeted(peer, key);
        }
        left.closings.into_iter().for_each(|closing| self.linger(closing));
        if left.has_ended {
            self.leave_memory();
        }
    }

    /// Hands what policies have to say to the control thread, which has time to write. A rule of the engine that is
    /// broken goes to the log.
    pub fn report_policies(&mut self, unwritten_max: usize) {
        while let Some(misfit) = self.engine.poll_policy_misfit() {
            self.notify(Notice::Misfit(Box::new(misfit)));
        }
        while let Some(ejected) = self.engine.poll_ejected_module() {
            self.notify(Notice::Ejected(Box::new(ejected)));
        }
        while let Some(what) = self.engine.poll_broken_invariant() {
            tracing::error!(
                what,
                "the daemon has broken a rule of its own; what it concerned was ended or set right"
            );
        }
        while self.control.unwritten.load(Ordering::Relaxed) < unwritten_max {
            let denied = self.engine.poll_denied_change().map(|denied| Notice::Denied(Box::new(denied)));
            let access = || self.engine.poll_access_record().map(|record| Notice::Access(Box::new(record)));
            let Some(line) = denied.or_else(access) else { return };
            self.control.unwritten.fetch_add(1, Ordering::Relaxed);
            self.notify(line);
        }
    }

    /// A connection has ended: what it held goes back to the kernel, sooner or later.
    fn leave_memory(&self) {
        if !self.control.ended.swap(true, Ordering::Relaxed) {
            self.control.waker.wake();
        }
    }

    fn notify(&self, notice: Notice) {
        let _ = self.control.messages.send(ControlMessage::Notice(self.index, notice));
        self.control.waker.wake();
    }

    /// Wakes those who wait for a change of what is served, if there was one.
    pub fn tell_changes(&mut self) {
        let version = self.engine.services_version();
        if version != self.told {
            self.told = version;
            self.changes.announce();
        }
    }
}

impl ControlSender {
    pub fn new(messages: Sender<ControlMessage>) -> std::io::Result<Self> {
        let waker = Arc::new(Waker::new()?);
        Ok(Self { messages, waker, unwritten: Arc::default(), ended: Arc::default() })
    }
}
