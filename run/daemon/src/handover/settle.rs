//! What was handed over becomes a shard's, and the shard goes on.

use super::arrive::{Inherited, InheritedClient, InheritedShard, NewHeap, TakeOverError};
use super::wire::Memory;
use crate::clock::now;
use crate::purpose::give_rights;
use crate::session_rings::Rings;
use crate::shard::Shard;
use crate::sockets::NativeSockets;
use crate::token::Token;
use rustix::fd::OwnedFd;
use std::collections::{HashMap, HashSet};
use std::io;
use trunkline_call::Instant;
use trunkline_engine::{Brought, SessionKey, Turn, go_on_elsewhere, shards_needed};
use trunkline_net::{Endpoint, Interest, Listener, Stream};
use trunkline_policy::{Chain, Definition, ModuleLoader, decode_modules};
use trunkline_shm::{Bells, SessionError, SessionRegions, inherit_heaps, inherit_rings};

impl Inherited {
    /// Leaves out the memory of sessions that cannot follow: nobody of them came along, or their library does not know
    /// how. Sessions that are over, and are only read from, have nobody.
    pub fn leave_out_unmoved(&mut self, index: usize) {
        let clients = &self.clients;
        let follows = |key: SessionKey| {
            clients
                .iter()
                .any(|client| client.may_move && client.session == Some(key) && client.shard == index)
        };
        if let Some(shard) = self.shards.get_mut(index) {
            shard.memory.retain(|(key, memory, _)| memory.indices.is_none() || follows(*key));
        }
    }

    /// How many shards there are now where `own` are wanted: as many, and those that are left over, up to the last that
    /// has anything.
    fn shards_needed(&self, own: usize) -> usize {
        let lives = |index: &usize| !self.is_vacant(*index);
        let Some(first_vacant) = (own..self.shards.len()).find(|index| !lives(index)) else {
            return own.max(self.shards.len());
        };
        let last = (first_vacant..self.shards.len()).rev().find(lives);
        // A call that has ended there may not be known to be over.
        let needed = self.shards.iter().map(|shard| shards_needed(&shard.state));
        let needed = needed.map(|needed| needed.map_or(self.shards.len(), usize::from)).max().unwrap_or(0);
        last.map_or(first_vacant, |last| last + 1).max(needed).min(self.shards.len()).max(own)
    }

    fn is_vacant(&self, index: usize) -> bool {
        let follows = |client: &InheritedClient| client.shard == index && client.session.is_some();
        let has_nothing = |shard: &InheritedShard| {
            shard.memory.is_empty() && shard.peers.is_empty() && shard.pending.is_empty()
        };
        self.shards.get(index).is_some_and(has_nothing) && !self.clients.iter().any(follows)
    }

    /// Up to the last shard that has sessions, and one at least.
    pub fn in_use(&self) -> usize {
        let with_sessions = self.clients.iter().filter(|client| client.session.is_some() && client.may_move);
        with_sessions.map(|client| client.shard + 1).max().unwrap_or(1)
    }

    /// The first `own` shards take in what is new: they have the listeners. How many there are with those that may
    /// begin later, up to `most`, and those left over.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn settle_shards(&mut self, own: usize, most: usize) -> io::Result<usize> {
        let all = self.shards_needed(own).max(most);
        let left_over = self.shards.iter_mut().skip(own);
        let mut orphans: Vec<_> = left_over.flat_map(|shard| std::mem::take(&mut shard.listeners)).collect();
        self.shards.resize_with(all, InheritedShard::default);
        for (index, listener) in orphans.drain(..).enumerate() {
            self.shards[index % own].listeners.push(listener);
        }
        self.share_listeners(own)?;
        Ok(all)
    }

    /// Each shard goes on with what the one of its number had; those that are new have the policies of the others.
    ///
    /// # Errors
    /// What does not hold together.
    pub fn settle_into(
        &mut self,
        shards: &mut [Shard],
        loader: &dyn ModuleLoader,
    ) -> Result<(), TakeOverError> {
        let mut at_work = Vec::new();
        for (index, shard) in shards.iter_mut().enumerate() {
            if self.shards[index].state.is_empty() {
                begin_with(shard, &at_work, loader)?;
                continue;
            }
            shard.resumes = Some(Instant(self.stopped_ns));
            self.leave_out_unmoved(index);
            inherit(shard, &mut self.shards[index], loader)?;
            at_work = shard.engine.policy_rows().into_iter().map(|row| row.definition).collect();
        }
        // Of a shard that had nothing else and is left over, the last one goes on counting.
        for (index, counted) in self.counted.drain(..) {
            let last = shards.len().saturating_sub(1);
            if let Some(shard) = shards.get_mut(index.min(last)) {
                shard.engine.telemetry().take_up(counted);
            }
        }
        // Of one that is left over they would be in the order of two clocks of numbers.
        for (index, calls) in self.recorded.drain(..) {
            if let Some(shard) = shards.get_mut(index) {
                shard.engine.telemetry().take_up_calls(calls);
            }
        }
        Ok(())
    }

    /// A shard that is new looks at the first one's listeners, too. Socket files are the first one's alone.
    fn share_listeners(&mut self, own: usize) -> io::Result<()> {
        let Some((first, others)) = self.shards.split_first_mut() else { return Ok(()) };
        for (configured, endpoint, socket) in &first.listeners {
            let is_port = !matches!(endpoint.parse(), Ok(Endpoint::Unix(_)));
            let lacks =
                |shard: &&mut InheritedShard| !shard.listeners.iter().any(|(known, ..)| known == configured);
            for shard in others.iter_mut().take(own - 1).filter(|_| is_port).filter(lacks) {
                shard.listeners.push((configured.clone(), endpoint.clone(), socket.try_clone()?));
            }
        }
        Ok(())
    }

    /// The new receive heaps, for their applications.
    pub fn take_heaps(&mut self) -> HashMap<(usize, SessionKey), NewHeap> {
        let shards = self.shards.iter_mut().enumerate();
        shards
            .flat_map(|(index, shard)| {
                std::mem::take(&mut shard.heaps).into_iter().map(move |(key, heap)| ((index, key), heap))
            })
            .collect()
    }
}

impl InheritedShard {
    /// The listener that was configured under this address.
    pub fn listener(&mut self, configured: &str) -> Option<Listener> {
        let at = self.listeners.iter().position(|(known, ..)| known == configured)?;
        let (_, endpoint, socket) = self.listeners.swap_remove(at);
        let endpoint: Endpoint = endpoint.parse().ok()?;
        Some(Listener::inherit(socket, endpoint))
    }
}

/// Maps sessions and takes sockets in. Nothing is read, written or rung.
///
/// # Errors
/// What does not hold together.
fn inherit(
    shard: &mut Shard,
    from: &mut InheritedShard,
    loader: &dyn ModuleLoader,
) -> Result<(), TakeOverError> {
    inherit_modules(shard, &from.modules, loader).map_err(TakeOverError::Broken)?;
    from.leave_out(shard);
    for (key, memory, fds) in std::mem::take(&mut from.memory) {
        match inherit_memory(shard, key, memory, fds) {
            Ok(heap) => from.heaps.push((key, heap)),
            Err(Uninherited::Unsound(why)) => {
                from.leave_out_session(shard.index, key, &shard.engine.label_of(key), why);
            }
            // That is nobody's fault here, and the daemon before this one has all it needs to go on.
            Err(Uninherited::System(why)) => {
                let application = shard.engine.label_of(key);
                let why = format!("the memory of {application} cannot be mapped: {why}");
                return Err(TakeOverError::Broken(why));
            }
        }
    }
    for (key, (is_tcp, socket, session)) in from.peers.drain() {
        let inherited = match session {
            None => Stream::inherit(socket, is_tcp),
            Some(session) => Stream::inherit_secure(socket, is_tcp, session),
        };
        // One whose peer has gone meanwhile is lost when it is read.
        let Ok(mut stream) = inherited else { continue };
        if !shard.engine.native().was_dialled(key) {
            shard.pending.hold_place(&mut stream);
        }
        give_rights(&mut shard.engine, key, &stream, &shard.pending.call_rules);
        let watched = shard.poller.add(&stream, Token::Peer(key).to_poller(), Interest::Read);
        watched.map_err(|error| TakeOverError::Broken(format!("a connection cannot be watched: {error}")))?;
        shard.sockets.insert(key, stream, None);
    }
    for (first, socket) in from.pending.drain(..) {
        let is_tcp = rustix::net::getsockname(&socket)
            .is_ok_and(|address| address.address_family() != rustix::net::AddressFamily::UNIX);
        if let Ok(stream) = Stream::inherit(socket, is_tcp) {
            shard.adopt_pending(stream, first);
        }
    }
    Ok(())
}

/// Has a shard that the other daemon had not the policies of the others.
///
/// # Errors
/// They cannot be put to work here.
fn begin_with(
    shard: &mut Shard,
    definitions: &[Definition],
    loader: &dyn ModuleLoader,
) -> Result<(), TakeOverError> {
    let mut chain = Chain::build(definitions).map_err(|e| TakeOverError::Broken(e.to_string()))?;
    let modules = chain.load_modules(loader).map_err(|e| TakeOverError::Broken(e.to_string()))?;
    let begun = shard.engine.exchange_checked_policies(chain, modules);
    begun.map(drop).map_err(|e| TakeOverError::Broken(e.to_string()))
}

/// Loads the modules of the chain that came with the engine; they take over what the others exported. What has been
/// bound since the chain was put to work and does not fit it keeps nobody from going on: its calls were refused before.
fn inherit_modules(shard: &mut Shard, states: &[u8], loader: &dyn ModuleLoader) -> Result<(), String> {
    let rows = shard.engine.policy_rows().into_iter();
    let definitions: Vec<Definition> = rows.map(|row| row.definition).collect();
    let mut chain = Chain::build(&definitions).map_err(|e| e.to_string())?;
    let modules = chain.load_modules(loader).map_err(|e| e.to_string())?;
    shard.engine.exchange_checked_policies(chain, modules).map_err(|e| e.to_string())?;
    let exported = decode_modules(states).map_err(|e| e.to_string())?;
    match shard.engine.import_modules(&exported).first() {
        Some(refused) => Err(refused.to_string()),
        None => Ok(()),
    }
}

/// Goes on where another daemon's shard stopped, if this one does.
pub(crate) fn resume(shard: &mut Shard) {
    let Some(stopped) = shard.resumes.take() else { return };
    // What the configuration says of services counts before the first call. Whoever asks how this shard stands has
    // it look at every ring: that is for afterwards, when it is settled who of those is here.
    let later = shard.take_configuration();
    let (sockets, sessions) = (&shard.sockets, &shard.sessions);
    let memory: HashSet<SessionKey> = sessions.keys().into_iter().chain(shard.heaps.keys()).collect();
    let brought = Brought { socket: &|key| sockets.contains(key), memory: &|key| memory.contains(&key) };
    go_on_elsewhere(&mut shard.engine, &mut Turn { now: now(), heaps: &mut shard.heaps }, &brought);
    shard.sockets.read_buffered_soon();
    shard.with_natives(NativeSockets::read_on);
    shard.let_out();
    later.into_iter().for_each(|command| shard.obey(command));
    // What came of that waits to be let out, and nobody may ring for a long time.
    shard.pressing = true;
    tracing::info!(
        shard = shard.index,
        sessions = memory.len(),
        connections = shard.sockets.len(),
        paused_us = now().since_ns(stopped) / 1000,
        "goes on where the daemon before it stopped"
    );
}

/// Why a session's memory is not taken over.
enum Uninherited {
    /// What came does not hold together: the session stays behind.
    Unsound(String),
    /// This process cannot have it: no session goes on here.
    System(SessionError),
}

impl From<SessionError> for Uninherited {
    fn from(error: SessionError) -> Self {
        match error {
            SessionError::System { .. } => Self::System(error),
            unsound => Self::Unsound(unsound.to_string()),
        }
    }
}

fn inherit_memory(
    shard: &mut Shard,
    key: SessionKey,
    memory: Memory,
    fds: Vec<OwnedFd>,
) -> Result<NewHeap, Uninherited> {
    let (config, number) = (memory.config(), memory.heap_number);
    let mut fds = fds.into_iter();
    let missing = || Uninherited::Unsound("a session came without its descriptors".to_owned());
    let mut next = || fds.next().ok_or_else(missing);
    let (rings, send_heap) = (next()?, next()?);
    let (send, receive, heap) = inherit_heaps(&send_heap, &memory.books(), &config)?;
    let mut at_work = None;
    if let Some(indices) = memory.ring_indices() {
        let bells = Bells { own: next()?, ringer: next()? };
        at_work = Some(inherit_rings(&rings, bells, indices, &config)?);
    }
    let regions = SessionRegions { rings, send_heap, config };
    if !shard.heaps.inherit(key, (send, receive, number), regions, &memory.open) {
        let why = "blocks under way and the books of a receive heap disagree";
        return Err(Uninherited::Unsound(why.into()));
    }
    // Nothing of the session is here unless all of it is.
    if let Some((submissions, completions, ringer, doorbell)) = at_work {
        shard.share_with(key);
        shard.take_in(key, Rings::new(submissions, completions, ringer, doorbell));
    }
    Ok((heap, config.receive_heap_bytes, number))
}
