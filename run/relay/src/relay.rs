//! The relay beside a daemon: accepts applications, asks their certificates who they are, and has them attached.

use crate::host::HostSide;
use crate::pump::LinkPump;
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
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
    /// Bytes of either heap of a session at most: what lies in the send heap is this process's memory.
    pub heap_bytes_max: u64,
}

/// A relay that listens.
pub struct Relay {
    listeners: Vec<Listener>,
    shared: Arc<Shared>,
}

struct Shared {
    settings: RelaySettings,
    tls: RwLock<TlsServer>,
    budget: ConnectionBudget,
    /// Connections by identity; kept while there is one.
    identities: Mutex<HashMap<String, usize>>,
    stop: Arc<AtomicBool>,
}

/// A connection counted for an identity until it is dropped.
struct Counted<'a> {
    shared: &'a Shared,
    identity: String,
}

/// Time for TLS.
const HANDSHAKE_NS_MAX: u64 = 10_000_000_000;
/// How often is looked whether the relay is to stop, or whether there are new keys.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Time the listeners rest when the process cannot take another connection.
const REST: Duration = Duration::from_millis(100);
/// A thread that carries needs little.
const STACK_BYTES: usize = 512 * 1024;
/// Longest identity: that of a SPIFFE id.
const IDENTITY_BYTES_MAX: usize = 2048;

impl Relay {
    /// Listens; accepts nobody yet.
    ///
    /// # Errors
    /// Who is in the way.
    pub fn bind(settings: RelaySettings, tls: TlsServer, stop: Arc<AtomicBool>) -> Result<Self, BindError> {
        let listeners = settings.listen.iter().map(|endpoint| Listener::bind(endpoint, false));
        let listeners = listeners.collect::<Result<_, _>>()?;
        let in_all = settings.connections_max;
        // Connections of one address: behind one may be a host with many containers, each with its certificate.
        let budget = ConnectionBudget::new(ConnectionLimits { of_source: in_all.div_ceil(2), in_all });
        let (tls, identities) = (RwLock::new(tls), Mutex::default());
        Ok(Self { listeners, shared: Arc::new(Shared { settings, tls, budget, identities, stop }) })
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
        let poller = Poller::new()?;
        for (index, listener) in self.listeners.iter().enumerate() {
            poller.add(listener, Token(index as u64), Interest::Read)?;
        }
        let look_ns = u64::try_from(LOOK_EVERY.as_nanos()).unwrap_or(u64::MAX);
        let mut ready = Vec::new();
        while !self.shared.stop.load(Ordering::Relaxed) {
            ready.clear();
            poller.wait(Some(look_ns), &mut ready)?;
            if let Some(tls) = renew() {
                *self.shared.tls.write() = tls;
            }
            for event in &ready {
                if let Some(listener) = self.listeners.get(event.token.0 as usize) {
                    self.accept(listener);
                }
            }
        }
        Ok(())
    }

    fn accept(&self, listener: &Listener) {
        match listener.accept() {
            Ok(Some(accepted)) => begin(&self.shared, accepted.stream),
            Ok(None) => {}
            Err(error) => {
                tracing::error!(%error, "the relay cannot accept; it rests");
                std::thread::sleep(REST);
            }
        }
    }
}

/// A thread for the connection, if there is a place for it.
fn begin(shared: &Arc<Shared>, mut stream: Stream) {
    let Ok(source) = stream.source() else { return };
    let place = match shared.budget.admit(source) {
        Ok(place) => place,
        Err(full) => {
            let limit = if full == Full::All { "in all" } else { "of one address" };
            let connections_max = shared.settings.connections_max;
            return tracing::warn!(
                peer = %label(&stream), limit, connections_max, "connection refused (relay.connections_max)"
            );
        }
    };
    stream.hold(place);
    let (peer, shared) = (label(&stream), Arc::clone(shared));
    let serve = move || {
        let peer = label(&stream);
        if let Err(why) = serve(&shared, stream, &peer) {
            tracing::info!(%peer, why, "application of another host refused");
        }
    };
    let thread = std::thread::Builder::new().name("relayed".into()).stack_size(STACK_BYTES);
    if let Err(error) = thread.spawn(serve) {
        tracing::error!(%peer, %error, "no thread for an application of another host");
    }
}

/// Serves one application to its end.
///
/// # Errors
/// Why it was not attached.
fn serve(shared: &Shared, mut stream: Stream, peer: &str) -> Result<(), String> {
    let tls = shared.tls.read().for_relay();
    secure(&mut stream, &tls).map_err(|error| format!("TLS: {error}"))?;
    if stream.alpn() != Some(Alpn::Attach) {
        return Err("it speaks another protocol".into());
    }
    let identity = identity(stream.identity())?;
    let counted = shared.count(&identity)?;
    let control = shared.settings.daemon.connect().map_err(|error| format!("no daemon: {error}"))?;
    let end = HostSide::new(identity.clone(), shared.settings.heap_bytes_max);
    let pump = LinkPump::new(end, stream, control, false, Arc::clone(&shared.stop));
    let pump = pump.map_err(|error| error.to_string())?;
    tracing::info!(%peer, %identity, "application of another host connected");
    let (why, _) = pump.run();
    drop(counted);
    tracing::info!(%peer, %identity, %why, "application of another host gone");
    Ok(())
}

fn secure(stream: &mut Stream, tls: &TlsServer) -> io::Result<()> {
    stream.begin_tls_server(tls, &[])?;
    let poller = Poller::new()?;
    poller.add(&*stream, Token(0), Interest::Read)?;
    let until_ns = monotonic_ns() + HANDSHAKE_NS_MAX;
    while !stream.handshake()? {
        let left_ns = until_ns.saturating_sub(monotonic_ns());
        if left_ns == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let interest = if stream.wants_write() { Interest::ReadWrite } else { Interest::Read };
        poller.set_interest(&*stream, Token(0), interest)?;
        poller.wait(Some(left_ns), &mut Vec::new())?;
    }
    Ok(())
}

/// In whose name a certificate attaches: its SPIFFE id, or else its first name.
fn identity(proven: Option<Identity>) -> Result<String, String> {
    let proven = proven.ok_or("it has shown no certificate")?;
    let name = proven.spiffe_id().or_else(|| proven.dns.first().map(String::as_str));
    let name = name.ok_or("its certificate has no name")?;
    let is_one = name.len() <= IDENTITY_BYTES_MAX && !name.contains(char::is_control);
    // Users of the daemon's host are called so.
    if !is_one || name.starts_with("uid:") {
        return Err("its certificate's name is none for an application".into());
    }
    Ok(name.to_owned())
}

impl Shared {
    fn count(&self, identity: &str) -> Result<Counted<'_>, String> {
        let most = self.settings.connections_per_identity_max;
        let mut identities = self.identities.lock();
        let count = identities.entry(identity.to_owned()).or_default();
        if *count >= most {
            return Err(format!(
                "{identity} has {most} connections already (relay.connections_per_identity_max)"
            ));
        }
        *count += 1;
        Ok(Counted { shared: self, identity: identity.to_owned() })
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        let mut identities = self.shared.identities.lock();
        if let Some(count) = identities.get_mut(&self.identity) {
            *count -= 1;
            if *count == 0 {
                identities.remove(&self.identity);
            }
        }
    }
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
