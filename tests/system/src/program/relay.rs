//! The probe as a relay.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use trunkline_daemon::{Config, ServerKeys};
use trunkline_relay::{Relay, RelaySettings};
use trunkline_shm::Places;

/// Attaches applications to the daemon of this configuration, at the port it says or at another.
pub(super) fn relay(path: &str, listen: Option<&str>) -> Result<(), String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let config = Config::from_toml(&text, path).map_err(|error| error.to_string())?;
    let configured = || config.relay.listen.iter().map(|address| address.0.clone()).collect();
    let listen = match listen {
        Some(listen) => vec![listen.parse().map_err(|error| format!("{listen}: {error}"))?],
        None => configured(),
    };
    let settings = RelaySettings {
        listen,
        daemon: Places::Named(config.socket().ok_or("a daemon without a socket")?.to_owned()),
        connections_max: config.relay.connections_max,
        connections_per_identity_max: config.relay.connections_per_identity_max,
        handshakes_max: config.relay.handshakes_max,
        held_bytes_per_identity_max: config.relay.held_bytes_per_identity_max.0,
        held_bytes_max: config.relay.held_bytes_max.0,
        heap_bytes_max: config.relay.heap_bytes.0,
    };
    let stop = Arc::new(AtomicBool::new(false));
    let (mut keys, tls) = ServerKeys::load(&config.tls).map_err(|error| error.to_string())?;
    let relay = Relay::bind(settings, tls, Arc::clone(&stop)).map_err(|error| error.to_string())?;
    let endpoints: Vec<String> = relay.endpoints().map(ToString::to_string).collect();
    let running = std::thread::spawn(move || relay.run(|| keys.renewed()));
    let conversed =
        super::converse(&format!("ready {}", endpoints.join(" ")), |order| format!("no such order: {order}"));
    stop.store(true, Ordering::Relaxed);
    running.join().map_err(|_| "the relay panicked".to_owned())?.map_err(|error| error.to_string())?;
    conversed
}
