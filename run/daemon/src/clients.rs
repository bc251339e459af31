//! Who is connected to the control socket: how many of whose, which of them have attached, and whose packet is next.
//!
//! Everything is found by a key: what one connection costs does not grow with their number.
//!
//! # Limits
//! Sessions of one user and of all (`sessions.per_user_max`, `sessions.count_max`). Connections that have not attached:
//! so many of one user (`sessions.unattached_per_user_max`), beyond which the oldest gives way, and each for so long
//! (`sessions.attach_ms_max`). Bytes of receive heaps of one user and of all
//! (`heap_accounts.rs`). The daemon's own process is not counted.

use crate::closer::{Closer, Sender};
use crate::config::Sessions;
use crate::control_received::ControlReceived;
use crate::fair_queue::FairQueue;
use crate::heap_accounts::{CountedHeap, HeapAccounts, UserKey};
use crate::shard_places::{ShardPlaces, UNKNOWN};
use prost::Message;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use trunkline_control::{Detached, Moved, Reply, reply};
use trunkline_engine::SessionKey;
use trunkline_net::{Interest, Poller, Token, accept_descriptors};
use trunkline_shm::{ControlSocket, PeerCredentials};

/// Numbers of connections begin here: smaller ones name other descriptors of the control thread's poller.
pub(crate) const FIRST_NUMBER: u64 = 16;
/// In the poller, beside its number: the process of a connection.
pub(crate) const PROCESS: u64 = 1 << 63;

/// One connection to the control socket.
pub(crate) struct Client {
    socket: ControlSocket,
    /// Readable when the process that attached is gone, whoever it has left its sockets to; `None` without a session,
    /// and where the kernel does not say.
    process: Option<OwnedFd>,
    /// Whose it is, by the kernel's word; `None` if it does not say.
    peer: Option<PeerCredentials>,
    /// Whom its certificate names, if a relay has attached it.
    identity: Option<Box<str>>,
    session: Option<AttachedSession>,
    /// Where that was before it moved last: something may still be said of it under that name.
    was_at: Option<AttachedSession>,
    /// What its application calls itself.
    name: Box<str>,
    /// Its session's receive heap.
    heap: CountedHeap,
    /// Its library follows when the daemon is replaced.
    may_move: bool,
    /// It has a packet, as far as is known, and waits for its turn.
    waits: bool,
    closed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AttachedSession {
    pub shard: usize,
    pub key: SessionKey,
}

/// All of them.
pub(crate) struct Clients {
    limits: Sessions,
    all: BTreeMap<u64, Client>,
    last: u64,
    users: HashMap<UserKey, UserConnections>,
    /// Identities are users, too: their numbers are made with this, so that nobody can have another's.
    identity_hash: RandomState,
    pub heaps: HeapAccounts,
    of_session: HashMap<AttachedSession, u64>,
    /// How many of those are of the daemon's own process.
    own: usize,
    /// The same of where sessions were that have moved.
    were_at: HashMap<AttachedSession, u64>,
    /// Until when those that have not attached may; the oldest first.
    unattached: BTreeMap<u64, Instant>,
    packets: FairQueue<UserKey, u64>,
    places: ShardPlaces,
}

/// Those of one user. Kept while there is one.
#[derive(Default)]
struct UserConnections {
    attached: usize,
    /// Those of the daemon's own process, which no limit counts.
    own: usize,
    unattached: BTreeSet<u64>,
}

/// Set in the [`UserKey`] of an identity.
const IDENTITY_BIT: u64 = 1 << 63;
/// Connections that are looked at for one that gives way: the poller tells of the others soon.
const LOOKS_MAX: usize = 64;

/// Sessions that the daemon's own process may have whatever the limits say: its services take three. Where applications
/// are in that process, `sessions.count_max` of them, if those are more.
const OWN_SESSIONS: usize = 16;

/// The user of connections of which the kernel does not say whose they are.
const NOBODY: UserKey = u32::MAX as UserKey;

impl Clients {
    pub fn new(limits: Sessions) -> Self {
        Self {
            heaps: HeapAccounts::new(&limits),
            limits,
            all: BTreeMap::new(),
            last: FIRST_NUMBER,
            users: HashMap::new(),
            identity_hash: RandomState::new(),
            of_session: HashMap::new(),
            own: 0,
            were_at: HashMap::new(),
            unattached: BTreeMap::new(),
            packets: FairQueue::new(),
            places: ShardPlaces::default(),
        }
    }

    /// Takes a connection in, which may have a packet already.
    ///
    /// # Errors
    /// What the kernel says, and the connection.
    pub fn insert(&mut self, poller: &Poller, mut client: Client) -> Result<u64, (io::Error, Box<Client>)> {
        self.last += 1;
        let number = self.last;
        let watched = client.socket.set_nonblocking(true).map_err(io::Error::other);
        if let Err(error) = watched.and_then(|()| poller.add(&client.socket, Token(number), Interest::Read)) {
            return Err((error, Box::new(client)));
        }
        let key = self.user_of(&client);
        let user = self.users.entry(key).or_default();
        match client.session {
            Some(session) => {
                client.watch_process(poller, number);
                user.attached += 1;
                user.own += usize::from(client.is_own_process());
                self.own += usize::from(client.is_own_process());
                if !client.is_own_process() {
                    self.heaps.enter(key, &client.heap);
                }
                self.of_session.insert(session, number);
                self.places.enter(session.shard, &client.name, client.process());
            }
            None => {
                user.unattached.insert(number);
                self.unattached.insert(number, Instant::now() + self.limits.attach_max());
            }
        }
        self.all.insert(number, client);
        self.wait(poller, number);
        Ok(number)
    }

    /// Takes a connection out.
    pub fn remove(&mut self, poller: &Poller, number: u64) -> Option<Client> {
        let mut client = self.all.remove(&number)?;
        // Whoever has it besides, a daemon that did not take over, say, would keep it in the poller.
        let _ = poller.remove(&client.socket);
        self.forget_session(&client);
        self.unattached.remove(&number);
        let user = self.user_of(&client);
        if let Some(connections) = self.users.get_mut(&user) {
            connections.unattached.remove(&number);
            if client.session.is_some() {
                connections.attached -= 1;
                connections.own -= usize::from(client.is_own_process());
                self.own -= usize::from(client.is_own_process());
                if !client.is_own_process() {
                    self.heaps.leave(user, std::mem::take(&mut client.heap));
                }
            }
        }
        self.forget_user(user);
        Some(client)
    }

    /// Takes all out, for good: nobody asks for any of them again.
    pub fn take_all(&mut self) -> impl Iterator<Item = Client> {
        std::mem::take(&mut self.all).into_values()
    }

    /// A user without connections is not kept.
    fn forget_user(&mut self, user: UserKey) {
        let is_over = |user: &UserConnections| user.attached == 0 && user.unattached.is_empty();
        if self.users.get(&user).is_some_and(is_over) {
            self.users.remove(&user);
            self.packets.leave(user);
        }
    }

    /// With whose connections one is counted.
    fn user_of(&self, client: &Client) -> UserKey {
        match &client.identity {
            Some(identity) => self.user_of_identity(identity),
            None => client.peer.map_or(NOBODY, |peer| peer.uid.into()),
        }
    }

    fn user_of_identity(&self, identity: &str) -> UserKey {
        self.identity_hash.hash_one(identity) | IDENTITY_BIT
    }

    /// With whose descriptor sets those of a connection are counted, and how that one is called.
    pub fn user(&self, number: u64) -> (UserKey, String) {
        let Some(client) = self.all.get(&number) else { return (NOBODY, "nobody".into()) };
        let name = match (&client.identity, client.peer) {
            (Some(identity), _) => identity.to_string(),
            (None, peer) => format!("user {}", peer.map_or(u32::MAX, |peer| peer.uid)),
        };
        (self.user_of(client), name)
    }

    /// It has something to be read: it waits for its turn, and the poller does not tell of it again.
    pub fn wait(&mut self, poller: &Poller, number: u64) {
        let Some(user) = self.all.get(&number).map(|client| self.user_of(client)) else { return };
        let Some(client) = self.all.get_mut(&number) else { return };
        if !std::mem::replace(&mut client.waits, true) {
            let _ = poller.set_interest(&client.socket, Token(number), Interest::Nothing);
            self.packets.push(user, number);
        }
    }

    /// Whether any waits for its turn.
    pub fn any_waits(&self) -> bool {
        !self.packets.is_empty()
    }

    /// Whose turn it is: the user, and which of its connections.
    pub fn next_in_turn(&mut self) -> Option<(UserKey, u64)> {
        loop {
            let (user, number) = self.packets.pop()?;
            // It may have ended while it waited.
            if let Some(client) = self.all.get_mut(&number) {
                client.waits = false;
                return Some((user, number));
            }
        }
    }

    /// What a connection has, read into `packet`. Of a user who has sent much that waits to be closed nothing is read.
    pub fn receive(&mut self, number: u64, packet: &mut Vec<u8>, closer: &Closer) -> ControlReceived {
        let Some(client) = self.all.get(&number) else { return ControlReceived::End(Vec::new()) };
        if !client.is_own_process()
            && let Err(why) = closer.may_send(client.sender())
            && client.socket.has_packet()
        {
            return ControlReceived::Refused(why);
        }
        ControlReceived::from(&client.socket, packet)
    }

    /// The turn of a connection is over and took so long, which its user had then has taken, also where the connection
    /// has ended with it. It may have more, or else the poller tells when it has.
    pub fn turn_over(
        &mut self,
        poller: &Poller,
        (user, number): (UserKey, u64),
        may_have_more: bool,
        took: Duration,
    ) {
        self.packets.charge(user, u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        let Some(client) = self.all.get(&number) else { return };
        if may_have_more {
            self.wait(poller, number);
        } else {
            let _ = poller.set_interest(&client.socket, Token(number), Interest::Read);
        }
    }

    /// The oldest connection that has not attached and gives way to this one: its user has too many of them, or all
    /// have. One that waits for its turn may be about to, and so may one whose packet the poller has not told of yet.
    pub fn one_to_give_way(&self, number: u64) -> Option<(u64, String)> {
        let client = self.all.get(&number).filter(|client| !client.is_own_process())?;
        let own = &self.users.get(&self.user_of(client))?.unattached;
        let Sessions { unattached_per_user_max, count_max, .. } = self.limits;
        if own.len() > unattached_per_user_max {
            let why = format!(
                "closed for another of its user: {unattached_per_user_max} connections of a user may be there \
                 without having attached (sessions.unattached_per_user_max)"
            );
            return self.first_idle(own.iter()).map(|oldest| (oldest, why));
        }
        if self.unattached.len() > count_max {
            let why =
                format!("closed for another: {count_max} connections have not attached (sessions.count_max)");
            return self.first_idle(self.unattached.keys()).map(|oldest| (oldest, why));
        }
        None
    }

    fn first_idle<'a>(&self, numbers: impl Iterator<Item = &'a u64>) -> Option<u64> {
        let clients = numbers.filter_map(|number| Some((*number, self.all.get(number)?)));
        let mut looked_at = clients.filter(|(_, client)| !client.waits).take(LOOKS_MAX);
        looked_at.find(|(_, client)| client.is_idle()).map(|(number, _)| number)
    }

    /// The oldest connection that should have attached by now. One that has a packet, and keeps having one, hides none
    /// of those behind it.
    pub fn one_too_late(&self) -> Option<(u64, String)> {
        let now = Instant::now();
        let late = self.unattached.iter().take_while(|(_, until)| **until <= now);
        let number = self.first_idle(late.map(|(number, _)| number))?;
        let ms = self.limits.attach_ms_max;
        Some((number, format!("has not attached within {ms} ms (sessions.attach_ms_max)")))
    }

    /// When the next connection should have attached.
    pub fn next_due(&self) -> Option<Instant> {
        self.unattached.first_key_value().map(|(_, until)| *until)
    }

    /// Whether a connection may attach, with a receive heap of so many bytes, in the name of an identity if a relay
    /// says so.
    ///
    /// # Errors
    /// The limit, in a sentence for the application.
    pub fn may_attach(&mut self, number: u64, identity: Option<&str>, heap_bytes: u64) -> Result<(), String> {
        let (user, is_own) = self.may_have_session(number, identity).or_else(|_| {
            // Some of those that count may have been let go.
            self.heaps.look();
            self.may_have_session(number, identity)
        })?;
        if is_own { Ok(()) } else { self.heaps.may_have(user, heap_bytes) }
    }

    /// Whether there may be another session, of whom, and whether it is the daemon's own. A heap whose session is over
    /// and that somebody still has counts like a session: it takes a descriptor.
    fn may_have_session(&self, number: u64, identity: Option<&str>) -> Result<(UserKey, bool), String> {
        let Some(client) = self.all.get(&number) else { return Err("the connection has ended".into()) };
        let (count_max, user_max) = (self.limits.count_max, self.limits.of_user_max());
        if client.session.is_some() {
            return Err("attached already; one session per control connection".into());
        }
        let is_own = client.is_own_process() && identity.is_none();
        let user = identity.map_or_else(|| self.user_of(client), |identity| self.user_of_identity(identity));
        let (of_user, of_all) = self.heaps.gone(user);
        let (others, most) = match is_own {
            true => (self.own, count_max.max(OWN_SESSIONS)),
            false => (self.of_session.len() - self.own + of_all, count_max),
        };
        if others >= most {
            return Err(format!("daemon serves at most {count_max} sessions (sessions.count_max)"));
        }
        let attached = self.users.get(&user).map_or(0, |user| user.attached - user.own);
        if !is_own && attached + of_user >= user_max {
            let gone = match of_user {
                0 => String::new(),
                gone => format!("; {gone} are over, and processes still map their receive heaps"),
            };
            return Err(format!(
                "daemon serves at most {user_max} sessions of one user (sessions.per_user_max){gone}"
            ));
        }
        Ok((user, is_own))
    }

    /// Another receive heap of so many bytes, with the descriptor that its application gets, is to take the place of a
    /// connection's. `false`: not now, its user or all have as much as they may.
    pub fn renew_heap(&mut self, number: u64, bytes: u64, given: &OwnedFd) -> bool {
        let Some(client) = self.all.get(&number) else { return false };
        if client.is_own_process() {
            return true;
        }
        let user = self.user_of(client);
        let may = self.heaps.may_replace(user, bytes);
        if let Some(client) = self.all.get_mut(&number).filter(|_| may) {
            self.heaps.replace(user, &mut client.heap, CountedHeap::given(bytes, given));
        }
        may
    }

    /// The shard of the session a connection asks for, of the first `open`.
    pub fn shard_for(&self, name: &str, process: u32, open: usize) -> usize {
        self.places.for_another(name, process, open)
    }

    /// Sessions a shard has, so many at most.
    pub fn sessions_of(&self, shard: usize, most: usize) -> Vec<AttachedSession> {
        let all = self.of_session.keys().filter(|session| session.shard == shard);
        all.take(most).copied().collect()
    }

    /// Whether a shard has any.
    pub fn has_sessions(&self, shard: usize) -> bool {
        self.places.has_sessions(shard)
    }

    /// A connection has attached, and has this receive heap.
    pub fn attached(
        &mut self,
        poller: &Poller,
        number: u64,
        session: AttachedSession,
        heap: CountedHeap,
        (name, identity): (Box<str>, Option<Box<str>>),
        may_move: bool,
    ) {
        let Some(before) = self.all.get(&number).map(|client| self.user_of(client)) else { return };
        let Some(client) = self.all.get_mut(&number) else { return };
        (client.heap, client.identity) = (heap, identity);
        self.places.enter(session.shard, &name, client.process());
        (client.session, client.name, client.may_move) = (Some(session), name, may_move);
        client.watch_process(poller, number);
        // It binds with them. A kernel that cannot refuse them has let them come before.
        let _ = accept_descriptors(&client.socket, true);
        let own = usize::from(client.is_own_process());
        self.own += own;
        self.of_session.insert(session, number);
        self.unattached.remove(&number);
        if let Some(user) = self.users.get_mut(&before) {
            user.unattached.remove(&number);
        }
        let Some(user) = self.all.get(&number).map(|client| self.user_of(client)) else { return };
        let connections = self.users.entry(user).or_default();
        connections.attached += 1;
        connections.own += own;
        if let Some(client) = self.all.get(&number).filter(|client| !client.is_own_process()) {
            self.heaps.enter(user, &client.heap);
        }
        self.forget_user(before);
    }

    /// The session of a connection is on another shard now.
    pub fn moved(&mut self, number: u64, to: AttachedSession) {
        let Some(client) = self.all.get_mut(&number) else { return };
        let Some(from) = client.session.replace(to) else { return };
        if let Some(before) = client.was_at.replace(from) {
            self.were_at.remove(&before);
        }
        self.of_session.remove(&from);
        self.were_at.insert(from, number);
        self.of_session.insert(to, number);
        self.places.leave(from.shard, &client.name, client.process());
        self.places.enter(to.shard, &client.name, client.process());
    }

    /// The connection of a session.
    pub fn of_session(&self, session: AttachedSession) -> Option<u64> {
        self.of_session.get(&session).or_else(|| self.were_at.get(&session)).copied()
    }

    /// Every one there is, with its number; the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Client)> {
        self.all.iter().map(|(number, client)| (*number, client))
    }

    pub fn find(&self, number: u64) -> Option<&Client> {
        self.all.get(&number)
    }

    pub fn find_mut(&mut self, number: u64) -> Option<&mut Client> {
        self.all.get_mut(&number)
    }

    fn forget_session(&mut self, client: &Client) {
        if let Some(session) = client.session {
            client.was_at.into_iter().for_each(|before| _ = self.were_at.remove(&before));
            self.of_session.remove(&session);
            self.places.leave(session.shard, &client.name, client.process());
        }
    }
}

impl Client {
    pub fn new(socket: ControlSocket) -> Self {
        let peer = socket.peer_credentials().ok();
        let name = Box::default();
        Self {
            socket,
            process: None,
            peer,
            identity: None,
            session: None,
            was_at: None,
            name,
            heap: CountedHeap::default(),
            may_move: false,
            waits: false,
            closed: false,
        }
    }

    /// A connection another daemon had, with the session it has there, by shard.
    pub fn of_another(
        socket: ControlSocket,
        session: Option<(usize, SessionKey)>,
        may_move: bool,
        identity: Option<Box<str>>,
    ) -> Self {
        let session = session.map(|(shard, key)| AttachedSession { shard, key });
        Self { session, may_move, identity, ..Self::new(socket) }
    }

    /// Whom its certificate names, if a relay has attached it.
    pub fn identity(&self) -> Option<&str> {
        self.identity.as_deref()
    }

    /// Tells one that another daemon had of its new receive heap: of the descriptor, its bytes and its number, before
    /// anything points into it. One that cannot follow ends, and hears why if there is more to say.
    pub fn follow(&mut self, heap: Option<(OwnedFd, u32, u32)>, why: Option<String>) {
        match heap {
            Some((fd, bytes, heap_number)) if self.may_move && self.session.is_some() => {
                self.heap = CountedHeap::given(bytes.into(), &fd);
                let moved = Moved { receive_heap_bytes: bytes.into(), heap_number };
                self.reply(0, reply::Kind::Moved(moved), &[fd.as_fd()]);
            }
            _ if self.session.is_some() => {
                let usual = || "the daemon was replaced, and this session cannot follow; attach again".into();
                self.session = None;
                self.dismiss(0, why.unwrap_or_else(usual));
            }
            _ => {}
        }
    }

    pub fn peer(&self) -> Option<PeerCredentials> {
        self.peer
    }

    pub fn session(&self) -> Option<AttachedSession> {
        self.session
    }

    /// Whether it neither waits for its turn nor has a packet that was not received.
    fn is_idle(&self) -> bool {
        !self.waits && !self.socket.has_packet()
    }

    /// Whether nobody is there any more.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether its library follows when the daemon is replaced.
    pub fn may_move(&self) -> bool {
        self.may_move
    }

    pub fn socket(&self) -> &ControlSocket {
        &self.socket
    }

    /// Who sends what comes from it.
    pub fn sender(&self) -> Sender {
        self.peer.map(|peer| peer.uid)
    }

    /// Closes it, for good.
    pub fn close(self, closer: &Arc<Closer>) {
        let sender = self.sender();
        closer.close(sender, self.socket.close());
    }

    /// Has the poller tell when its process is gone: those it forked may outlive it with its sockets, and would never
    /// take what is delivered to it. Where nobody says so, the session ends with the last of them.
    fn watch_process(&mut self, poller: &Poller, number: u64) {
        if self.is_own_process() {
            return;
        }
        match self.socket.peer_process() {
            Ok(Some(process)) if poller.add(&process, Token(number | PROCESS), Interest::Read).is_ok() => {
                self.process = Some(process);
            }
            Ok(None) => self.closed = true,
            Ok(Some(_)) | Err(_) => {}
        }
    }

    /// Whether the daemon's own services come by it.
    pub fn is_own_process(&self) -> bool {
        let own = rustix::process::geteuid().as_raw();
        self.identity.is_none()
            && self.peer.is_some_and(|peer| (peer.pid, peer.uid) == (std::process::id(), own))
    }

    /// Says something. An application that does not read its control socket loses it: nobody waits for it.
    pub fn reply(&mut self, tag: u64, kind: reply::Kind, fds: &[BorrowedFd<'_>]) {
        let packet = Reply { tag, kind: Some(kind) }.encode_to_vec();
        self.closed |= self.socket.send(&packet, fds).is_err();
    }

    /// Says why it must go.
    pub fn dismiss(&mut self, tag: u64, reason: String) {
        self.reply(tag, reply::Kind::Detached(Detached { reason }), &[]);
        self.closed = true;
    }

    /// As if it were another process's of the same user.
    #[cfg(test)]
    pub fn of_other_process(mut self) -> Self {
        self.peer = self.peer.map(|peer| PeerCredentials { pid: u32::MAX, ..peer });
        self
    }

    /// Whom its sessions stay together with: a relay's are of many.
    fn process(&self) -> u32 {
        self.peer.filter(|_| self.identity.is_none()).map_or(UNKNOWN, |peer| peer.pid)
    }
}

#[cfg(test)]
mod tests {
    //! Shows that connections which do not attach give way, the oldest first, and that nothing is kept of those that
    //! have gone.
    use super::*;
    use crate::config::Bytes;

    fn clients(unattached_max: usize) -> (Clients, Poller) {
        let limits = Sessions { unattached_per_user_max: unattached_max, ..Sessions::default() };
        (Clients::new(limits), Poller::new().unwrap())
    }

    /// One of another process of this user's: one whose number nobody has.
    fn connect(clients: &mut Clients, poller: &Poller) -> (u64, ControlSocket) {
        let (ours, theirs) = ControlSocket::pair().unwrap();
        let client = Client::new(ours).of_other_process();
        (clients.insert(poller, client).map_err(|(error, _)| error).unwrap(), theirs)
    }

    /// It is looked at, and has nothing.
    fn look(clients: &mut Clients, poller: &Poller) {
        while let Some(turn) = clients.next_in_turn() {
            assert!(matches!(
                clients.receive(turn.1, &mut Vec::new(), &Closer::default()),
                ControlReceived::Nothing
            ));
            clients.turn_over(poller, turn, false, Duration::ZERO);
        }
    }

    #[test]
    fn the_oldest_that_has_not_attached_gives_way() {
        let (mut clients, poller) = clients(2);
        let connected: Vec<_> = (0..3).map(|_| connect(&mut clients, &poller)).collect();
        let numbers: Vec<u64> = connected.iter().map(|(number, _)| *number).collect();
        assert_eq!(clients.one_to_give_way(numbers[2]), None, "each may have a packet");
        look(&mut clients, &poller);
        connected[0].1.send(b"attach", &[]).unwrap();
        let (next, _) = clients.one_to_give_way(numbers[2]).unwrap();
        assert_eq!(next, numbers[1], "what the oldest says has not been read");
        assert!(matches!(
            clients.receive(numbers[0], &mut Vec::new(), &Closer::default()),
            ControlReceived::Packet(_)
        ));
        let (oldest, why) = clients.one_to_give_way(numbers[2]).unwrap();
        assert_eq!(oldest, numbers[0]);
        assert!(why.contains("sessions.unattached_per_user_max"), "{why}");
        let session = AttachedSession { shard: 1, key: SessionKey::from_bits(7) };
        clients.attached(&poller, numbers[0], session, CountedHeap::of_bytes(0), ("a".into(), None), true);
        assert_eq!(clients.one_to_give_way(numbers[2]), None, "one has attached");
        assert_eq!(clients.of_session(session), Some(numbers[0]));
        for number in numbers {
            assert!(clients.remove(&poller, number).is_some());
        }
        assert!(clients.users.is_empty() && clients.unattached.is_empty() && clients.of_session.is_empty());
        assert!(!clients.any_waits());
    }

    #[test]
    fn receive_heaps_are_counted_by_user_and_given_back() {
        let limits = Sessions {
            receive_heap_bytes_max: Bytes(1000),
            receive_heap_bytes_per_user_max: Bytes(600),
            ..Sessions::default()
        };
        let (mut clients, poller) = (Clients::new(limits), Poller::new().unwrap());
        let connected: Vec<_> = (0..4).map(|_| connect(&mut clients, &poller)).collect();
        let numbers: Vec<u64> = connected.iter().map(|(number, _)| *number).collect();
        let session = |number: u64| AttachedSession { shard: 0, key: SessionKey::from_bits(number) };
        clients.attached(
            &poller,
            numbers[0],
            session(1),
            CountedHeap::of_bytes(400),
            ("a".into(), None),
            true,
        );
        assert_eq!(clients.may_attach(numbers[1], None, 200), Ok(()));
        let refused = clients.may_attach(numbers[1], None, 201).unwrap_err();
        assert!(refused.contains("sessions.receive_heap_bytes_per_user_max is 600"), "{refused}");
        // Another user's, which another daemon had.
        let (ours, _theirs) = ControlSocket::pair().unwrap();
        let mut moved = Client::of_another(ours, Some((0, SessionKey::from_bits(2))), true, None);
        moved.peer = moved.peer.map(|peer| PeerCredentials { uid: peer.uid + 1, ..peer });
        moved.heap = CountedHeap::of_bytes(500);
        let other = clients.insert(&poller, moved).map_err(|(error, _)| error).unwrap();
        let refused = clients.may_attach(numbers[1], None, 200).unwrap_err();
        assert!(refused.contains("sessions.receive_heap_bytes_max is 1000"), "{refused}");
        clients.remove(&poller, other);
        assert_eq!(clients.may_attach(numbers[1], None, 200), Ok(()));
        numbers.iter().for_each(|number| drop(clients.remove(&poller, *number)));
        assert!(clients.heaps.is_empty() && clients.users.is_empty());
    }

    /// They serve health checks and the admin API, without which nobody gets a daemon that is full to be less.
    #[test]
    fn the_daemons_own_sessions_have_places_when_all_others_are_taken() {
        let limits = Sessions { count_max: 2, per_user_max: 1, ..Sessions::default() };
        let (mut clients, poller) = (Clients::new(limits), Poller::new().unwrap());
        let session = |number: u64| AttachedSession { shard: 0, key: SessionKey::from_bits(number) };
        let names = || ("a".into(), None);
        let others: Vec<_> = (0..3).map(|_| connect(&mut clients, &poller)).collect();
        clients.attached(&poller, others[0].0, session(1), CountedHeap::of_bytes(0), names(), true);
        clients.attached(
            &poller,
            others[1].0,
            session(2),
            CountedHeap::of_bytes(0),
            ("a".into(), Some("spiffe://corp/a".into())),
            true,
        );
        let own: Vec<_> = (0..3)
            .map(|own| {
                let (ours, theirs) = ControlSocket::pair().unwrap();
                let number = clients.insert(&poller, Client::new(ours)).map_err(|(error, _)| error).unwrap();
                assert_eq!(clients.may_attach(number, None, 10), Ok(()), "{own} of its own");
                clients.attached(
                    &poller,
                    number,
                    session(10 + own),
                    CountedHeap::of_bytes(10),
                    names(),
                    false,
                );
                (number, theirs)
            })
            .collect();
        assert!(clients.may_attach(others[2].0, Some("spiffe://corp/b"), 0).is_err());
        clients.remove(&poller, others[0].0);
        assert_eq!(clients.may_attach(others[2].0, None, 0), Ok(()), "the daemon's own take nobody's place");
        let numbers = others.iter().chain(&own).map(|(number, _)| *number);
        numbers.for_each(|number| drop(clients.remove(&poller, number)));
        assert_eq!((clients.own, clients.users.len()), (0, 0));
    }

    #[test]
    fn an_identity_is_counted_for_itself_and_not_for_its_relay() {
        let limits = Sessions { per_user_max: 1, ..Sessions::default() };
        let (mut clients, poller) = (Clients::new(limits), Poller::new().unwrap());
        let connected: Vec<_> = (0..3).map(|_| connect(&mut clients, &poller)).collect();
        let numbers: Vec<u64> = connected.iter().map(|(number, _)| *number).collect();
        let session = |number: u64| AttachedSession { shard: 0, key: SessionKey::from_bits(number) };
        let attach = |clients: &mut Clients, number: u64, identity: &str| {
            clients.attached(
                &poller,
                number,
                session(number),
                CountedHeap::of_bytes(10),
                ("a".into(), Some(identity.into())),
                true,
            );
        };
        attach(&mut clients, numbers[0], "spiffe://corp/a");
        assert!(clients.may_attach(numbers[1], Some("spiffe://corp/a"), 10).is_err());
        assert_eq!(clients.may_attach(numbers[1], Some("spiffe://corp/b"), 10), Ok(()));
        attach(&mut clients, numbers[1], "spiffe://corp/b");
        assert_eq!(clients.may_attach(numbers[2], None, 10), Ok(()), "the relay has none of its own");
        assert_eq!(clients.user(numbers[0]).1, "spiffe://corp/a");
        numbers.iter().for_each(|number| drop(clients.remove(&poller, *number)));
        assert!(clients.heaps.is_empty() && clients.users.is_empty());
    }

    /// A connection that ends within its turn, because what it asked for was refused, say, has taken that time all the
    /// same: its user's next connection comes behind those of others.
    #[test]
    fn a_turn_with_which_a_connection_ends_is_its_users_too() {
        let (mut clients, poller) = clients(64);
        let (dear, _theirs) = connect(&mut clients, &poller);
        let turn = clients.next_in_turn().unwrap();
        assert_eq!(turn.1, dear);
        drop(clients.remove(&poller, dear));
        clients.turn_over(&poller, turn, true, Duration::from_secs(1));
        let (again, _theirs) = connect(&mut clients, &poller);
        let (ours, _others) = ControlSocket::pair().unwrap();
        let mut other = Client::new(ours);
        other.peer = other.peer.map(|peer| PeerCredentials { uid: peer.uid + 1, ..peer });
        let other = clients.insert(&poller, other).map_err(|(error, _)| error).unwrap();
        assert_eq!(clients.next_in_turn().map(|(_, number)| number), Some(other));
        assert_eq!(clients.next_in_turn().map(|(_, number)| number), Some(again));
    }

    #[test]
    fn who_takes_too_long_to_attach_is_too_late() {
        let limits = Sessions { attach_ms_max: 0, ..Sessions::default() };
        let (mut clients, poller) = (Clients::new(limits), Poller::new().unwrap());
        let (number, _theirs) = connect(&mut clients, &poller);
        assert_eq!(clients.one_too_late(), None, "it may have a packet");
        look(&mut clients, &poller);
        let (late, why) = clients.one_too_late().unwrap();
        assert_eq!(late, number);
        assert!(why.contains("sessions.attach_ms_max"), "{why}");
    }

    #[test]
    fn who_always_has_a_packet_hides_nobody_who_is_too_late() {
        let limits = Sessions { attach_ms_max: 0, ..Sessions::default() };
        let (mut clients, poller) = (Clients::new(limits), Poller::new().unwrap());
        let [(_, flooding), (silent, _theirs)] = [(); 2].map(|()| connect(&mut clients, &poller));
        look(&mut clients, &poller);
        flooding.send(b"attach", &[]).unwrap();
        assert_eq!(clients.one_too_late().map(|(late, _)| late), Some(silent));
    }
}
