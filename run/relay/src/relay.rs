//! The relay beside a daemon: accepts applications, asks their certificates who they are, and has them attached.

use crate::accounts::{Account, AccountLimits, Accounts};
use crate::door::Door;
use crate::host::HostSide;
use crate::pump::LinkPump;
use crate::refusals::{Refusals, refuse_alone};
use rustix::process::{Resource, getrlimit};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use trunkline_net::{
    Alpn, BindError, ConnectionBudget, ConnectionLimits, Endpoint, Full, Identity, Interest, Listener,
    Poller, Stream, TlsServer, Token,
};
use trunkline_shm::{Places, monotonic_ns};

/// What a relay is told.
#[derive(Clone, Debug)]
pub struct RelaySettings {
    /// Where applications connect.
    pub listen: Vec<Endpoint>,
    /// The daemon.
    pub daemon: Places,
    /// Connections at once, each of which is a session and a thread.
    pub connections_max: usize,
    /// The same of one identity.
    pub connections_per_identity_max: usize,
    /// Connections at once that have not shown a certificate yet.
    pub handshakes_max: usize,
    /// Bytes that the connections of one identity may hold: pages of send heaps, parts of descriptor sets.
    pub held_bytes_per_identity_max: u64,
    /// The same of all.
    pub held_bytes_max: u64,
    /// Bytes of either heap of a session at most: what lies in the send heap is this process's memory.
    pub heap_bytes_max: u64,
}

/// A relay that listens.
pub struct Relay {
    listeners: Vec<Listener>,
    tls: TlsServer,
    shared: Arc<Shared>,
}

struct Shared {
    settings: RelaySettings,
    budget: ConnectionBudget,
    accounts: Accounts,
    stop: Arc<AtomicBool>,
}

/// How often is looked whether the relay is to stop, or whether there are new keys.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Time the listeners rest when the process cannot take another connection.
const REST_NS: u64 = 100_000_000;
/// Connections accepted of one listener before handshakes go on.
const ACCEPTED_PER_TURN: usize = 64;
/// Descriptors of one application's connection: its own, the control socket, the poller, the session's, and some that
/// come and go with heaps and descriptor sets.
const DESCRIPTORS_OF_CONNECTION: u64 = 12;
/// Descriptors of the relay itself: listeners, log, files of keys while they are read.
const DESCRIPTORS_OF_RELAY: u64 = 32;
/// A thread that carries needs little.
const STACK_BYTES: usize = 512 * 1024;
/// Longest identity: that of a SPIFFE id.
const IDENTITY_BYTES_MAX: usize = 2048;

impl Relay {
    /// Listens; accepts nobody yet. Where the process may not have a descriptor for everybody, there are fewer places,
    /// and the log says so.
    ///
    /// # Errors
    /// Who is in the way.
    pub fn bind(settings: RelaySettings, tls: TlsServer, stop: Arc<AtomicBool>) -> Result<Self, BindError> {
        let settings = within_descriptors(settings);
        let listeners = settings.listen.iter().map(|endpoint| Listener::bind(endpoint, false));
        let listeners = listeners.collect::<Result<_, _>>()?;
        let in_all = settings.connections_max;
        // Connections of one address: behind one may be a host with many containers, each with its certificate.
        let budget = ConnectionBudget::new(ConnectionLimits { of_source: in_all.div_ceil(2), in_all });
        let accounts = Accounts::new(AccountLimits {
            connections_of_identity: settings.connections_per_identity_max,
            bytes_of_identity: settings.held_bytes_per_identity_max,
            bytes_in_all: settings.held_bytes_max,
        });
        Ok(Self { listeners, tls, shared: Arc::new(Shared { settings, budget, accounts, stop }) })
    }

    /// Where it listens, with the real ports.
    pub fn endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        self.listeners.iter().map(Listener::endpoint)
    }

    /// Accepts until told to stop. `renew` is asked now and then for other keys.
    ///
    /// # Errors
    /// The kernel has no poller left.
    pub fn run(self, mut renew: impl FnMut() -> Option<TlsServer>) -> io::Result<()> {
        let Self { listeners, tls, shared } = self;
        let mut tls = tls.for_relay();
        let poller = Poller::new()?;
        for (index, listener) in listeners.iter().enumerate() {
            poller.add(listener, Token(index as u64), Interest::Read)?;
        }
        let mut door = Door::new(shared.settings.handshakes_max, listeners.len() as u64);
        let look_ns = u64::try_from(LOOK_EVERY.as_nanos()).unwrap_or(u64::MAX);
        let (mut refusals, mut ready, mut rests_until_ns) = (Refusals::new(), Vec::new(), None);
        while !shared.stop.load(Ordering::Relaxed) {
            ready.clear();
            poller.wait(Some(rests_until_ns.map_or(look_ns, |_| REST_NS)), &mut ready)?;
            if let Some(renewed) = renew() {
                tls = renewed.for_relay();
            }
            let now_ns = monotonic_ns();
            while let Some(stream) = door.overdue(now_ns) {
                refused(&stream, "TLS was not agreed upon in time");
            }
            refusals.sweep();
            if rests_until_ns.take_if(|until_ns| *until_ns <= now_ns).is_some() {
                set_interest(&poller, &listeners, Interest::Read)?;
            }
            for event in &ready {
                let Some(listener) = listeners.get(event.token.0 as usize) else {
                    refusals.go_on(&poller, event.token);
                    if let Some((stream, agreed)) = door.go_on(&poller, event.token)
                        && let Err((stream, why)) = begin(&shared, stream, agreed)
                    {
                        refused(&stream, &why);
                        refusals.refuse(&poller, stream, &why);
                    }
                    continue;
                };
                let accepted = (0..ACCEPTED_PER_TURN).map(|_| accept(listener, &poller, &mut door, &tls));
                if accepted
                    .take_while(|accepted| *accepted != Accepted::Nobody)
                    .any(|a| a == Accepted::Failed)
                {
                    set_interest(&poller, &listeners, Interest::Nothing)?;
                    rests_until_ns = Some(now_ns + REST_NS);
                }
            }
        }
        Ok(())
    }
}

/// What came of an accept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Accepted {
    Somebody,
    /// Nobody waits.
    Nobody,
    /// The process may have no more, and nobody could give way.
    Failed,
}

fn accept(listener: &Listener, poller: &Poller, door: &mut Door, tls: &TlsServer) -> Accepted {
    match listener.accept() {
        Ok(Some(accepted)) => {
            match door.admit(poller, accepted.stream, tls) {
                Ok(false) => {}
                Ok(true) => tracing::warn!(
                    "a connection without a certificate gave way to a newer one (relay.handshakes_max)"
                ),
                Err(error) => tracing::info!(%error, "a connection ended before TLS began"),
            }
            Accepted::Somebody
        }
        Ok(None) => Accepted::Nobody,
        Err(error) => {
            tracing::error!(%error, "the relay cannot accept; who has shown no certificate gives way");
            if door.give_way(None) { Accepted::Somebody } else { Accepted::Failed }
        }
    }
}

fn set_interest(poller: &Poller, listeners: &[Listener], interest: Interest) -> io::Result<()> {
    let mut all = listeners.iter().enumerate();
    all.try_for_each(|(index, listener)| poller.set_interest(listener, Token(index as u64), interest))
}

/// As many places as the process may have descriptors for: a connection that was taken must not end for want of one.
fn within_descriptors(settings: RelaySettings) -> RelaySettings {
    let Some(most) = getrlimit(Resource::Nofile).current else { return settings };
    let RelaySettings { connections_max, handshakes_max, .. } = settings;
    let wanted = DESCRIPTORS_OF_RELAY
        + DESCRIPTORS_OF_CONNECTION * connections_max as u64
        + u64::try_from(handshakes_max).unwrap_or(u64::MAX);
    if wanted <= most {
        return settings;
    }
    let left = most.saturating_sub(DESCRIPTORS_OF_RELAY);
    let places = |count: u64, wanted: usize| usize::try_from(count).unwrap_or(usize::MAX).clamp(1, wanted);
    let handshakes_max = places(left / 4, handshakes_max);
    let connections_max =
        places(left.saturating_sub(handshakes_max as u64) / DESCRIPTORS_OF_CONNECTION, connections_max);
    tracing::warn!(
        descriptors = most,
        wanted,
        connections_max,
        handshakes_max,
        "fewer descriptors than relay.connections_max needs; the relay has fewer places"
    );
    RelaySettings { connections_max, handshakes_max, ..settings }
}

/// A thread for a connection that has shown who it is, if there is a place for it.
///
/// # Errors
/// The connection, and why it has none.
fn begin(shared: &Arc<Shared>, mut stream: Stream, agreed: io::Result<()>) -> Result<(), (Stream, String)> {
    let opened = agreed.map_err(|error| format!("TLS: {error}")).and_then(|()| open(shared, &mut stream));
    let (account, said) = match opened {
        Ok(account) => (account, label(&stream)),
        Err(why) => return Err((stream, why)),
    };
    let shared = Arc::clone(shared);
    let serve = move || serve(&shared, stream, account);
    let thread = std::thread::Builder::new().name("relayed".into()).stack_size(STACK_BYTES);
    if let Err(error) = thread.spawn(serve) {
        tracing::error!(peer = %said, %error, "no thread for an application of another host");
    }
    Ok(())
}

/// Its place, and its part of what its identity may hold.
///
/// # Errors
/// Why it has none.
fn open(shared: &Shared, stream: &mut Stream) -> Result<Account, String> {
    if stream.alpn() != Some(Alpn::Attach) {
        return Err("it speaks another protocol".into());
    }
    let account = shared.accounts.open(&identity(stream.identity())?)?;
    let source = stream.source().map_err(|error| error.to_string())?;
    let place = shared.budget.admit(source).map_err(|full| {
        let limit = if full == Full::All { "in all" } else { "of one address" };
        let connections_max = shared.settings.connections_max;
        tracing::warn!(
            peer = %label(stream), limit, connections_max, "connection refused (relay.connections_max)"
        );
        format!("the relay has as many connections {limit} as it may (relay.connections_max)")
    })?;
    stream.hold(place);
    Ok(account)
}

/// Serves one application to its end.
fn serve(shared: &Shared, stream: Stream, account: Account) {
    let (peer, identity) = (label(&stream), account.identity().to_owned());
    let control = match shared.settings.daemon.connect() {
        Ok(control) => control,
        Err(error) => {
            let why = format!("no daemon: {error}");
            refused(&stream, &why);
            // Without a poller it is closed at once, and hears nothing.
            return drop(refuse_alone(stream, &why));
        }
    };
    let end = HostSide::new(account, shared.settings.heap_bytes_max);
    match LinkPump::new(end, stream, control, false, Arc::clone(&shared.stop)) {
        Ok(pump) => {
            tracing::info!(%peer, %identity, "application of another host connected");
            let (why, _) = pump.run();
            tracing::info!(%peer, %identity, %why, "application of another host gone");
        }
        Err(why) => tracing::info!(%peer, %identity, %why, "application of another host refused"),
    }
}

fn refused(stream: &Stream, why: &str) {
    tracing::info!(peer = %label(stream), why, "application of another host refused");
}

/// In whose name a certificate attaches: its SPIFFE id, or else its first name.
fn identity(proven: Option<Identity>) -> Result<String, String> {
    let proven = proven.ok_or("it has shown no certificate")?;
    let name = proven.spiffe_id().or_else(|| proven.dns.first().map(String::as_str));
    let name = name.ok_or("its certificate has no name")?;
    let is_one = name.len() <= IDENTITY_BYTES_MAX && !name.contains(char::is_control);
    if !is_one {
        return Err("its certificate's name is none for an application".into());
    }
    Ok(name.to_owned())
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay").field("settings", &self.shared.settings).finish_non_exhaustive()
    }
}

fn label(stream: &Stream) -> String {
    match stream.peer_address() {
        Ok(Some(address)) => address.to_string(),
        _ => "unknown".into(),
    }
}
