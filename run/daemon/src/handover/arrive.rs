//! The new daemon's side: reads what comes, holds it together, and waits for the word to go.

use super::kept_counts::KeptCounts;
use super::oom_offer::OomOffer;
use super::wire::{Channel, ChannelError, Memory, VERSION, Word};
use crate::config::Debug;
use crate::keys::{KeySource, TlsKeys};
use crate::schemas::SchemaCache;
use rustix::fd::OwnedFd;
use serde_bytes::ByteBuf;
use std::collections::HashMap;
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use trunkline_engine::{BoundSchema, PeerKey, SessionKey};
use trunkline_net::Portable;
use trunkline_shm::{ControlListener, ControlSocket, inherited_socket};
use trunkline_telemetry::{CallsAnswer, Entry};

/// Longest the old daemon may take for a step of its own: it waits for gRPC calls to end in between.
const STEP_MAX: Duration = Duration::from_secs(120);

/// Shards of a daemon.
const SHARDS_MAX: usize = 32;

/// Why this process does not become the daemon.
#[derive(Debug, thiserror::Error)]
pub enum TakeOverError {
    /// The old daemon is gone.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// There is no channel at the descriptor.
    #[error("no hand-over waits at that descriptor: {0}")]
    Descriptor(io::Error),
    /// The old daemon hands over in another way.
    #[error(
        "the running daemon ({build}) hands over in version {theirs}, this one takes over in version {VERSION}"
    )]
    Version {
        /// Its version.
        theirs: u32,
        /// What its program is called.
        build: String,
    },
    /// A word that does not belong there.
    #[error("the old daemon said something out of place: {0}")]
    OutOfPlace(String),
    /// Something that came does not hold together.
    #[error("{0}")]
    Broken(String),
}

/// A hand-over under way, seen from the new daemon.
#[derive(Debug)]
pub struct Arrival {
    channel: Channel,
    /// The old daemon's process.
    pub from: u32,
    /// Its shards.
    pub shards: usize,
    /// Where it listens, if it says.
    pub(crate) listening: Option<Vec<String>>,
    offer: OomOffer,
}

/// The descriptor of a new receive heap, its bytes and its number.
pub(crate) type NewHeap = (OwnedFd, u32, u32);

/// The schema of a set that came: one that defines nothing, and why, if this program does not take it.
pub(crate) type SentSchema = (Arc<BoundSchema>, Option<Arc<str>>);

/// Everything that was handed over.
pub(crate) struct Inherited {
    /// The process that hands it over.
    pub from: u32,
    /// Loaded before it stood still.
    pub keys: Option<(KeySource, TlsKeys)>,
    pub listener: Option<ControlListener>,
    pub sessions: u64,
    pub clients: Vec<InheritedClient>,
    pub shards: Vec<InheritedShard>,
    pub schemas: SchemaCache,
    /// The schemas of the sets that came, by number.
    prepared: Vec<SentSchema>,
    pub stopped_ns: u64,
    /// What shards have counted, by their numbers.
    pub counted: Vec<(usize, Vec<Entry>)>,
    /// What they have recorded, by their numbers, in the order in which it was.
    pub recorded: Vec<(usize, CallsAnswer)>,
    /// What is known of what was counted.
    pub counts: KeptCounts,
}

/// An application's connection.
pub(crate) struct InheritedClient {
    pub socket: ControlSocket,
    pub shard: usize,
    pub session: Option<SessionKey>,
    pub may_move: bool,
    pub identity: Option<Box<str>>,
}

/// What one shard had.
#[derive(Default)]
pub(crate) struct InheritedShard {
    /// As configured, as it is, and the socket.
    pub listeners: Vec<(String, String, OwnedFd)>,
    /// Where replies arrive, and requests.
    pub datagrams: [Option<OwnedFd>; 2],
    pub pending: Vec<(Vec<u8>, OwnedFd)>,
    pub state: Vec<u8>,
    pub schemas: Vec<Arc<BoundSchema>>,
    /// Why one of them defines nothing, if it does not.
    pub refused: Vec<Option<Arc<str>>>,
    /// What the modules of its chain have exported.
    pub modules: Vec<u8>,
    pub memory: Vec<(SessionKey, Memory, Vec<OwnedFd>)>,
    pub peers: HashMap<PeerKey, (bool, OwnedFd, Option<Portable>)>,
    /// Made here: the new receive heaps.
    pub heaps: Vec<(SessionKey, NewHeap)>,
    /// Sessions that do not go on here, and what their applications are told.
    pub left_out: HashMap<SessionKey, String>,
}

impl Arrival {
    /// Meets the old daemon at a descriptor this process was started with.
    ///
    /// # Errors
    /// [`TakeOverError`].
    pub fn at(descriptor: i32) -> Result<Self, TakeOverError> {
        take_own_name();
        let socket = inherited_socket(descriptor).map_err(TakeOverError::Descriptor)?;
        let channel = Channel::new(socket, STEP_MAX).map_err(TakeOverError::Descriptor)?;
        match channel.next()?.0 {
            Word::Hello { version, process, shards, listening, .. }
                if version == VERSION && (1..=SHARDS_MAX).contains(&shards) =>
            {
                Ok(Self { channel, from: process, shards, listening, offer: OomOffer::make() })
            }
            Word::Hello { version, shards, .. } if version == VERSION => {
                let error = TakeOverError::Broken(format!("it has {shards} shards"));
                channel.send(&Word::Unable { why: error.to_string() }, &[])?;
                Err(error)
            }
            Word::Hello { version, build, .. } => {
                let error = TakeOverError::Version { theirs: version, build };
                channel.send(&Word::Unable { why: error.to_string() }, &[])?;
                Err(error)
            }
            other => Err(out_of_place(&other)),
        }
    }

    /// Says that this process cannot take over, and why.
    pub fn refuse(&self, why: &str) {
        // The old one goes on either way.
        let _ = self.channel.send(&Word::Unable { why: why.to_owned() }, &[]);
    }

    /// Says that it can, and receives everything.
    ///
    /// # Errors
    /// [`TakeOverError`].
    pub(crate) fn receive(&self, build: &str, debug: &Debug) -> Result<Inherited, TakeOverError> {
        let records = !debug.earlier_hand_over;
        let (prepares, counts, tells_apart) = (true, true, records);
        let able = Word::Able { build: build.to_owned(), prepares, counts, records, tells_apart };
        self.channel.send(&able, &[])?;
        let mut inherited = Inherited { from: self.from, ..Inherited::of_shards(self.shards) };
        loop {
            let (word, fds) = self.channel.next()?;
            match word {
                Word::End { stopped_ns } => {
                    inherited.stopped_ns = stopped_ns;
                    return Ok(inherited);
                }
                Word::Past(_) | Word::Recorded { .. } | Word::ToldApart(_) if !records => {
                    return Err(out_of_place(&word));
                }
                word => inherited.take(&self.channel, word, fds)?,
            }
        }
    }

    /// Says that what came does not hold together.
    pub(crate) fn fail(&self, why: &str) {
        let _ = self.channel.send(&Word::Failed { why: why.to_owned() }, &[]);
    }

    /// Says that everything is there, and waits for the word to go.
    ///
    /// # Errors
    /// [`TakeOverError`]: the old daemon goes on, or died with this one not yet begun.
    pub(crate) fn ready(&self) -> Result<(), TakeOverError> {
        self.channel.send(&Word::Ready, &[])?;
        match self.channel.next()?.0 {
            Word::Go => {
                self.offer.take_back();
                Ok(())
            }
            other => Err(out_of_place(&other)),
        }
    }
}

impl Inherited {
    /// Nothing yet, of so many shards.
    pub fn of_shards(count: usize) -> Self {
        Self {
            from: std::process::id(),
            keys: None,
            listener: None,
            sessions: 0,
            clients: Vec::new(),
            shards: (0..count).map(|_| InheritedShard::default()).collect(),
            schemas: SchemaCache::default(),
            prepared: Vec::new(),
            stopped_ns: 0,
            counted: Vec::new(),
            recorded: Vec::new(),
            counts: KeptCounts::default(),
        }
    }

    /// Takes in what a word says.
    ///
    /// # Errors
    /// It belongs to nobody, and does not hold together.
    pub fn take(&mut self, channel: &Channel, word: Word, fds: Vec<OwnedFd>) -> Result<(), TakeOverError> {
        match word {
            Word::Schema(set) => {
                let schema = self.schema_of(set)?;
                self.prepared.push(schema);
            }
            Word::Prepare => channel.send(&Word::Prepared, &[])?,
            Word::Socket { path, sessions } => {
                let [socket, lock] = exactly(fds)?;
                let mut listener = ControlListener::inherit(&PathBuf::from(path), socket, lock);
                // Until the word to go comes it is the old daemon's.
                listener.clear_path_at_end(false);
                self.listener = Some(listener);
                self.sessions = sessions;
            }
            Word::Client { shard, session, may_move, identity } => {
                let [socket] = exactly(fds)?;
                let session = session.map(SessionKey::from_bits);
                self.shard(shard)?;
                let socket = socket.into();
                self.clients.push(InheritedClient { socket, shard, session, may_move, identity });
            }
            Word::Listener { shard, configured, endpoint } => {
                let [socket] = exactly(fds)?;
                self.shard(shard)?.listeners.push((configured, endpoint, socket));
            }
            Word::Datagrams { shard, is_client } => {
                let [socket] = exactly(fds)?;
                let [client, server] = &mut self.shard(shard)?.datagrams;
                *if is_client { client } else { server } = Some(socket);
            }
            Word::Pending { shard, first } => {
                let [socket] = exactly(fds)?;
                self.shard(shard)?.pending.push((first, socket));
            }
            Word::State { shard, state, sets, numbers } => {
                let schemas = self.schemas_named(sets, &numbers)?;
                let shard = self.shard(shard)?;
                shard.state = state.into_vec();
                (shard.schemas, shard.refused) = schemas.into_iter().unzip();
            }
            Word::Counted { shard, series } => {
                self.shard(shard)?;
                self.counted.push((shard, series));
            }
            Word::Recorded { shard, part } => {
                self.shard(shard)?;
                // What cannot be read is left out, and the recorder begins behind it.
                self.recorded.extend(part.calls().map(|calls| (shard, calls)));
            }
            Word::Past(past) => self.counts.history = past.taken_up(),
            Word::ToldApart(told_apart) => self.counts.told_apart = told_apart.taken_up(),
            Word::Modules { shard, states } => self.shard(shard)?.modules = states.into_vec(),
            Word::Memory { shard, session, memory } => {
                self.shard(shard)?.memory.push((SessionKey::from_bits(session), memory, fds));
            }
            Word::Peer { shard, peer, endpoint_is_tcp, secure } => {
                let [socket] = exactly(fds)?;
                let keys = secure.is_some().then(|| channel.next_keys()).transpose()?;
                let session = secure.zip(keys).map(|(secure, keys)| secure.with(keys));
                let peers = &mut self.shard(shard)?.peers;
                peers.insert(PeerKey::from_bits(peer), (endpoint_is_tcp, socket, session));
            }
            other => return Err(out_of_place(&other)),
        }
        Ok(())
    }

    fn shard(&mut self, index: usize) -> Result<&mut InheritedShard, TakeOverError> {
        self.shards.get_mut(index).ok_or_else(|| TakeOverError::Broken(format!("there is no shard {index}")))
    }

    /// A set that this program is too strict for concerns those who have bound it, and nobody else.
    fn schema_of(&mut self, set: Vec<u8>) -> Result<SentSchema, TakeOverError> {
        match self.schemas.of_bytes(set) {
            Ok(schema) => Ok((schema, None)),
            Err(why) => {
                let nothing = self.schemas.of_bytes(Vec::new()).map_err(TakeOverError::Broken)?;
                Ok((nothing, Some(why.into())))
            }
        }
    }

    /// Those a state names: by number, or by the sets themselves.
    fn schemas_named(
        &mut self,
        sets: Vec<ByteBuf>,
        numbers: &[usize],
    ) -> Result<Vec<SentSchema>, TakeOverError> {
        let by_number = |number: &usize| {
            let schema = self.prepared.get(*number).cloned();
            schema.ok_or_else(|| TakeOverError::Broken(format!("there is no descriptor set {number}")))
        };
        let mut schemas = numbers.iter().map(by_number).collect::<Result<Vec<_>, _>>()?;
        for set in sets {
            schemas.push(self.schema_of(set.into_vec())?);
        }
        Ok(schemas)
    }
}

fn exactly<const N: usize>(fds: Vec<OwnedFd>) -> Result<[OwnedFd; N], TakeOverError> {
    let count = fds.len();
    fds.try_into()
        .map_err(|_| TakeOverError::Broken(format!("{count} descriptors came with a word that has {N}")))
}

fn out_of_place(word: &Word) -> TakeOverError {
    let mut said = format!("{word:?}");
    said.truncate(said.floor_char_boundary(100));
    TakeOverError::OutOfPlace(said)
}

/// The old daemon starts this program by a descriptor, whose number the kernel then takes for the name of the process:
/// lists of processes show its file's again.
fn take_own_name() {
    let program = std::env::args_os().next().map(PathBuf::from);
    let name =
        program.as_deref().and_then(Path::file_name).and_then(|name| CString::new(name.as_bytes()).ok());
    if let Some(name) = name {
        let _ = rustix::thread::set_name(&name);
    }
}
