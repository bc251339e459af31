//! What the control thread and the admin API ask of a shard, and what a shard tells the control thread.

use crate::clients::AttachedSession;
use crate::ending_connection::EndingConnection;
use crate::handover::{Leave, Stand};
use crate::heaps::HeapOffer;
use crate::keys::TlsKeys;
use crate::listening::Listening;
use crate::placement::ShardLoad;
use crate::reports::Reported;
use crate::samples::SampleTotals;
use crate::session_rings::MovingSession;
use crate::unidentified::{Unidentified, UnidentifiedKey};
use crate::waker::Waker;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use trunkline_engine::{
    AccessRecord, BindError, Binding, BoundSchema, ChainFit, DeniedChange, GrpcLeft, PeerKey, ServiceState,
    SessionKey, Snapshot, Stays,
};
use trunkline_grpc::service_config::ServiceConfig;
use trunkline_policy::{Chain, ExportedModule, Module, Modules, PolicyError, PolicyRow};
use trunkline_shm::{ControlSocket, DaemonEnd};
use trunkline_telemetry::{Ask, CallsAnswer, CallsAsk, Snapshot as Measured};

/// A request to a shard. Answered through the sender it carries, if it carries one.
pub(crate) enum Command {
    /// Take a session in.
    Attach {
        end: Box<DaemonEnd>,
        label: String,
        identity: String,
        program: String,
        cgroup: String,
        stands_by: bool,
        tells_callers: bool,
        reply: Sender<SessionKey>,
    },
    /// Give a session routes.
    Bind { session: SessionKey, bind: Box<Bind>, reply: Sender<Result<Binding, BindError>> },
    /// Take in what other shards have said, and tell them all there is for them.
    Meet { reply: Sender<()> },
    /// Whether a session's application has been told of the heap that is to take its receive heap's place.
    Renewing { session: SessionKey, offer: HeapOffer },
    /// A session ends. Its connection does when nothing is read of its ring any more: an application takes what lies
    /// there at that moment for *not executed*.
    Detach { session: SessionKey, connection: Box<EndingConnection> },
    /// The daemon ends, and a session with it: its connection is closed when nothing is read of its ring any more.
    EndWithDaemon(Box<EndingConnection>),
    /// Let a session go to another shard, with all that it has.
    Release { session: SessionKey, to: usize, reply: Sender<Result<Box<MovingSession>, Stays>> },
    /// Take in a session that another shard has let go.
    Adopt { moving: Box<MovingSession>, reply: Sender<SessionKey> },
    /// Have whoever made a connection open its calls on another.
    AskToRedial { peer: PeerKey },
    /// Close a connection that has not said what it wants: another shard has one for its place.
    GiveWay { key: UnidentifiedKey, unidentified: Unidentified },
    /// Where calls go that nobody here serves.
    ConfigureService { service: String, endpoints: Vec<String> },
    /// What is said about calls of a service that are made here.
    ConfigureCalls { service: String, config: ServiceConfig },
    /// What a name stands for by now.
    LookedUp { name: Arc<str>, found: LookedUp },
    /// Put this chain to work, or only say what of it fits.
    ApplyPolicies { chain: Box<Chain>, modules: Modules, how: Applying, reply: Sender<Exchanged> },
    /// Tell the states of modules, for another daemon.
    ExportModules { reply: Sender<(Vec<ExportedModule>, Vec<PolicyError>)> },
    /// Have modules go on with these states; tell which did not.
    ImportModules { exported: Arc<Vec<ExportedModule>>, reply: Sender<Vec<PolicyError>> },
    /// Tell which policies are at work, and what they have done.
    ListPolicies { reply: Sender<Vec<PolicyRow>> },
    /// Tell about yourself.
    Observe { ask: Ask, reply: Sender<Reported> },
    /// Tell calls one by one.
    Calls { ask: CallsAsk, reply: Sender<CallsAnswer> },
    /// Tell what is served.
    Services { reply: Sender<Services> },
    /// Keys and certificates for connections made from now on.
    Secure(TlsKeys),
    /// Tell from what the schemas in use were built.
    Sources { reply: Sender<Vec<Arc<[u8]>>> },
    /// Ask gRPC clients to leave, and tell how many gRPC calls are under way.
    LeaveGrpc { hold: bool, reply: Sender<GrpcLeft> },
    /// Have calls of the daemon's own services wait for the next process, and tell how many of those under way have no
    /// answer.
    HoldOwnServices { reply: Sender<usize> },
    /// Not to hand over after all: gRPC is served as before.
    StayWithGrpc,
    /// Stand still, and hand everything over to another daemon when all do.
    Stand(Stand),
    /// Look at the orders for this shard's thread (`group.rs`).
    OrderThread,
    /// Give descriptors of the ports this shard listens at, for another.
    ShareListeners { reply: Sender<Vec<Listening>> },
    /// Give the listeners away.
    GiveListeners { reply: Sender<Vec<Listening>> },
    /// Listen where another shard did, too.
    TakeListeners(Vec<Listening>),
    /// Take no new calls.
    Drain,
    /// End the thread.
    Stop,
}

/// Endpoints a name stands for, or why that is not known.
pub(crate) type LookedUp = Result<Vec<String>, String>;

/// How a chain is put to work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Applying {
    /// Not at all: it is tried.
    Try,
    /// If it fits what is bound here.
    IfFits,
    /// In any case: it was tried on every shard.
    Tried,
}

/// What came of a new chain.
pub(crate) struct Exchanged {
    /// Which modules were upgraded, in words, and what of a chain that was tried fits.
    pub result: Result<(Vec<String>, ChainFit), PolicyError>,
    /// Those nobody needs any more: whoever asked takes them apart, and not the shard.
    pub retired: Vec<Box<dyn Module>>,
}

/// What a session binds, owned so that it can cross threads.
pub(crate) struct Bind {
    /// `None`: the application keeps its types to itself.
    pub schema: Option<Arc<BoundSchema>>,
    pub serves: Vec<String>,
    pub calls: Vec<(String, Option<String>)>,
    /// Services a rule lets it serve, whoever else does.
    pub permitted: Vec<String>,
}

/// What other threads tell the control thread.
pub(crate) enum ControlMessage {
    /// From the shard with this index.
    Notice(usize, Notice),
    /// An application of this very process attaches (embedded mode).
    Adopt(ControlSocket),
    /// Have a session of a shard go to another; the key it has there, or why it stays.
    Move { session: AttachedSession, to: usize, reply: Sender<Result<SessionKey, String>> },
    /// Tell of denied changes from now on; `None` if somebody is told already.
    TakeDenials(Sender<Option<Receiver<DeniedChange>>>),
    /// Hand everything over to another daemon.
    Leave(Box<Leave>),
    /// End the thread, when the shards have every session's connection; who waits is told of that.
    Stop(Sender<()>),
}

/// What a shard tells the control thread unasked.
pub(crate) enum Notice {
    /// A session broke the ABI; its control socket is to be told and closed.
    Detached { session: SessionKey, reason: String },
    /// A receive heap is to be replaced by this one, of so many bytes and with this number, once its application has
    /// heard of it; without a descriptor: it was.
    Renewed { session: SessionKey, heap: Option<OwnedFd>, bytes: u32, number: u32 },
    /// What a shard was busy with, if with much.
    Busy(ShardLoad),
    /// A line for the access log.
    Access(Box<AccessRecord>),
    /// A change of the daemon by somebody who may not.
    Denied(Box<DeniedChange>),
    /// A policy does not fit a method that was bound.
    Misfit(Box<PolicyError>),
    /// A module is faulty and was ejected.
    Ejected(Box<PolicyError>),
}

/// What is served on this host.
#[derive(Clone, Debug, Default)]
pub struct Services {
    /// Every service somebody serves or has served, by name; the host's own are not among them.
    pub states: Vec<ServiceState>,
    /// The daemon takes no new calls.
    pub draining: bool,
}

impl Services {
    /// Those of a daemon that has ended.
    pub fn gone() -> Self {
        Self { states: Vec::new(), draining: true }
    }
}

/// What a shard knows about itself.
pub struct Observation {
    /// Sessions, services, peers, queues.
    pub snapshot: Snapshot,
    /// What it measured.
    pub telemetry: Measured,
    /// What became of samples of all shards, in the first one's observation.
    pub samples: SampleTotals,
    /// Whether it has a thread of its own. One without is beside another, and takes in nothing new.
    pub has_thread: bool,
    /// How busy its thread is: parts of a thousand of the last interval.
    pub busy_permille: u64,
}

/// How other threads reach a shard.
#[derive(Clone)]
pub(crate) struct ShardSender {
    commands: Sender<Command>,
    waker: Arc<Waker>,
}

/// The shard's end.
pub(crate) struct ShardReceiver {
    commands: Receiver<Command>,
    pub waker: Arc<Waker>,
}

/// A channel into a shard that wakes it.
pub(crate) fn shard_channel(waker: Arc<Waker>) -> (ShardSender, ShardReceiver) {
    let (sender, receiver) = channel();
    (ShardSender { commands: sender, waker: Arc::clone(&waker) }, ShardReceiver { commands: receiver, waker })
}

impl ShardSender {
    /// Sends a command. `false` if the shard has ended.
    pub fn send(&self, command: Command) -> bool {
        let sent = self.commands.send(command).is_ok();
        self.waker.wake();
        sent
    }

    /// Sends a command that is answered, and waits for the answer. `None` if the shard has ended.
    pub fn ask<T>(&self, command: impl FnOnce(Sender<T>) -> Command) -> Option<T> {
        let (reply, answer) = channel();
        self.send(command(reply)).then(|| answer.recv().ok()).flatten()
    }
}

impl ShardReceiver {
    pub fn next(&self) -> Option<Command> {
        self.commands.try_recv().ok()
    }
}
