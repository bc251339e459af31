//! `trunkline relay`: applications of other hosts and containers attach through it, until SIGINT or SIGTERM.

use crate::daemon::{Loaded, notify, raise_descriptor_limit, settle_log, start_log};
use clap::Args;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use trunkline_daemon::{Config, ServerKeys};
use trunkline_relay::{Relay, RelaySettings};
use trunkline_shm::Places;

/// `trunkline relay`
#[derive(Debug, Args)]
#[command(after_help = "\
It runs beside the daemon and reads the same file: [relay] says where it listens, [tls] with which certificate.
Applications name it in TRUNKLINE_SOCKET=tcp+tls://HOST:PORT.")]
pub struct RelayArgs {
    /// Configuration file of the daemon [default: $TRUNKLINE_CONFIG, else /etc/trunkline/daemon.toml if it exists]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// How often is looked for other keys, as the daemon does.
const KEYS_EVERY: Duration = Duration::from_secs(2);

/// Runs the relay.
///
/// # Errors
/// What keeps it from starting.
pub fn relay(args: &RelayArgs, socket: Option<PathBuf>) -> Result<(), String> {
    let loaded = Loaded::find(args.config.as_deref()).map_err(|error| error.to_string())?;
    loaded.check_relay().map_err(|error| error.to_string())?;
    if loaded.config.relay.listen.is_empty() {
        let origin = loaded.origin();
        return Err(format!("{origin}: relay.listen names no port; write tcp://ADDRESS:PORT there"));
    }
    start_log(&loaded.config.log).map_err(|error| error.to_string())?;
    let ended = run(&loaded.config, socket);
    settle_log();
    ended
}

fn run(config: &Config, socket: Option<PathBuf>) -> Result<(), String> {
    raise_descriptor_limit();
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        let registered = signal_hook::flag::register(signal, Arc::clone(&stop));
        registered.map_err(|error| format!("cannot handle signals: {error}"))?;
    }
    let (mut keys, tls) = ServerKeys::load(&config.tls).map_err(|error| error.to_string())?;
    let relay = Relay::bind(settings(config, socket), tls, stop).map_err(|error| error.to_string())?;
    for endpoint in relay.endpoints() {
        println!("relay at {endpoint}");
        tracing::info!(%endpoint, "relay is ready");
    }
    notify::ready();
    let mut looked = Instant::now();
    let renewed = || {
        if looked.elapsed() < KEYS_EVERY {
            return None;
        }
        looked = Instant::now();
        keys.renewed()
    };
    relay.run(renewed).map_err(|error| error.to_string())?;
    tracing::info!("relay ends");
    Ok(())
}

fn settings(config: &Config, socket: Option<PathBuf>) -> RelaySettings {
    let named = socket.or_else(|| config.socket().map(PathBuf::from));
    let keys = &config.relay;
    RelaySettings {
        listen: keys.listen.iter().map(|address| address.0.clone()).collect(),
        daemon: named.map_or_else(Places::of_this_process, Places::Named),
        connections_max: keys.connections_max,
        connections_per_identity_max: keys.connections_per_identity_max,
        handshakes_max: keys.handshakes_max,
        held_bytes_per_identity_max: keys.held_bytes_per_identity_max.0,
        held_bytes_max: keys.held_bytes_max.0,
        heap_bytes_max: keys.heap_bytes.0,
    }
}
