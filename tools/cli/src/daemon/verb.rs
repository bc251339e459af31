//! The verb itself.

use super::descriptors::raise_descriptor_limit;
use super::file::{FileError, Loaded};
use super::host::{DaemonHost, Order};
use super::own_services::OwnServices;
use super::{logging, notify, program, upgrade};
use crate::admin::{Chronicle, UpgradeState};
use crate::args::DaemonArgs;
use crate::metrics::Reserved;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use trunkline::Status;
use trunkline_daemon::{Arrival, Config, Daemon, GrpcServices, KeptCounts, Otlp, StartError};
use trunkline_net::ClientFiles;
#[cfg(feature = "otlp")]
use trunkline_otlp::Exporter;
use trunkline_pages::PageServer;
use trunkline_shm::Places;

/// How often a draining daemon asks its shards whether they are done.
const DRAIN_LOOK: Duration = Duration::from_millis(20);

/// Why the daemon did not run, or not to a good end.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The configuration.
    #[error(transparent)]
    File(#[from] FileError),
    /// The log.
    #[error(transparent)]
    Log(#[from] logging::LogError),
    /// No place for the control socket.
    #[error("control socket: {0}")]
    Place(#[from] trunkline_shm::ControlError),
    /// Shards, sockets.
    #[error(transparent)]
    Start(#[from] StartError),
    /// What sends figures and spans.
    #[error("otlp.endpoint: {0}")]
    Otlp(io::Error),
    /// The admin API, or a service of gRPC's own.
    #[error("the daemon's own services: {0}")]
    Own(#[from] Status),
    /// Signals.
    #[error("signals: {0}")]
    Signals(io::Error),
}

/// Runs a daemon until it is told to stop, or does what else the arguments ask for.
///
/// # Errors
/// [`DaemonError`].
pub fn daemon(args: &DaemonArgs, socket: Option<PathBuf>) -> Result<(), DaemonError> {
    let arrival = args.take_over.map(Arrival::at).transpose().map_err(StartError::from)?;
    let begun = begin(args, socket, arrival.as_ref());
    if let (Some(arrival), Err(error)) = (&arrival, &begun) {
        // Whoever asked for the replacement hears it, and not only the log.
        arrival.refuse(&error.to_string());
    }
    // Its end of the channel closes: there is nothing more to be said.
    drop(arrival);
    let ended = begun.and_then(|running| running.map_or(Ok(()), |running| run(running, args.drain)));
    logging::settle();
    ended
}

/// A daemon that answers, and who orders it about.
struct Running {
    host: Arc<DaemonHost>,
    orders: Receiver<Order>,
    grpc_services: GrpcServices,
    metrics: Reserved,
    otlp: Otlp,
    collector: Option<ClientFiles>,
    loaded: Loaded,
}

/// Starts a daemon, or takes another's place; or does what else the arguments ask for, and then there is none.
fn begin(
    args: &DaemonArgs,
    socket: Option<PathBuf>,
    arrival: Option<&Arrival>,
) -> Result<Option<Running>, DaemonError> {
    let mut loaded = Loaded::find(args.config.as_deref())?;
    override_with(&mut loaded.config, args, socket);
    if args.print_config {
        print!("{}", loaded.config.to_toml());
        return Ok(None);
    }
    loaded.check_host()?;
    offers_otlp(&loaded.config.otlp)?;
    if args.check_config {
        logging::filter(&loaded.config.log.level)?;
        println!("{}: good", loaded.origin());
        let warn = |of: String| eprintln!("{}: {of}", loaded.origin());
        crate::doctor::out_of_time(&loaded.config).into_iter().for_each(warn);
        return Ok(None);
    }
    let config = loaded.config.clone();
    program::own_binary();
    logging::start(&config.log)?;
    raise_descriptor_limit();
    // Before the daemon is there, so that no signal meets it unprepared.
    let (sender, orders) = orders(args.until_stdin_closes)?;
    let (grpc_services, otlp) = (config.grpc_services, config.otlp.clone());
    let collector = otlp.files(&config.tls);
    // Before anything is taken over, so that the daemon before this one serves on if it cannot be.
    let metrics = crate::metrics::reserve(config.metrics.addresses(), arrival.is_some());
    let metrics = metrics.map_err(|(address, error)| no_metrics(&loaded, address, &error))?;
    let host = start(config, arrival, sender).map_err(|error| with_place(error, &loaded))?;
    Ok(Some(Running { host: Arc::new(host), orders, grpc_services, metrics, otlp, collector, loaded }))
}

/// Serves until there is an order to end, and ends in peace.
fn run(running: Running, drain: Duration) -> Result<(), DaemonError> {
    let own = OwnServices::start(&running.host, &running.grpc_services)?;
    match own.until_ready(&running.host.orders, &running.orders)? {
        Some(Order::End(why)) => {
            end(&running.host, &own, why, (drain, &running.orders));
            drop(running);
        }
        early => serve(running, &own, early, drain)?,
    }
    own.settle();
    tracing::info!("daemon ends");
    Ok(())
}

/// Carries orders out, beginning with one that came `early`, until there is one to end.
fn serve(
    running: Running,
    own: &OwnServices,
    mut early: Option<Order>,
    drain: Duration,
) -> Result<(), DaemonError> {
    let Running { host, orders, metrics, otlp, collector, loaded, .. } = running;
    let metrics = crate::metrics::serve(&Arc::downgrade(&host), metrics, &loaded.config.metrics.hosts);
    let metrics = metrics.map_err(|(address, error)| no_metrics(&loaded, address, &error))?;
    let succeeds = host.upgrading().taken.is_some();
    let exporter = export(&host, succeeds, &otlp, collector).map_err(DaemonError::Otlp)?;
    // Ready is who answers whatever a tool asks first.
    tracing::info!(
        node = %host.node, socket = %host.socket.display(), listening = ?host.daemon.endpoints(),
        metrics = ?metrics.iter().map(PageServer::address).collect::<Vec<_>>(),
        config = loaded.path.map(|path| path.display().to_string()), "daemon is ready"
    );
    notify::ready();
    let order = loop {
        match early.take().map_or_else(|| orders.recv(), Ok) {
            Ok(Order::Upgrade(wish)) => {
                flush(exporter.as_ref());
                if let Some(why) = upgrade::hand_over(&host, wish, (&orders, own)) {
                    break why;
                }
            }
            Ok(Order::End(why)) => break why,
            // What was waited for is there.
            Ok(Order::Look) => {}
            Err(_) => break "every source of orders is gone",
        }
    };
    end(&host, own, order, (drain, &orders));
    // What was measured until now is still to be sent, and asked of shards that are still there.
    drop(exporter);
    drop(metrics);
    // The last handle: threads are joined and sockets removed before the process ends.
    drop(host);
    Ok(())
}

/// Ends what goes on here. Calls in flight have `drain`, or until a second order.
fn end(host: &DaemonHost, own: &OwnServices, order: &str, (drain, orders): (Duration, &Receiver<Order>)) {
    tracing::info!(order, "draining");
    host.daemon.drain();
    // Before the others' calls, with which they would be waited for.
    own.end_grpc();
    let_end(&host.daemon, drain, orders);
    own.end_admin();
}

fn no_metrics(loaded: &Loaded, address: SocketAddr, error: &io::Error) -> FileError {
    let index = loaded.config.metrics.addresses().position(|other| other == address).unwrap_or_default();
    loaded.cannot_listen(&format!("metrics.listen[{index}]"), &format!("tcp://{address}"), error)
}

/// An address that cannot be had is a key's of the configuration, in whose words it is told.
fn with_place(error: DaemonError, loaded: &Loaded) -> DaemonError {
    match error {
        DaemonError::Start(StartError::Listen { key, endpoint, error }) => {
            loaded.cannot_listen(&key, &endpoint, &error).into()
        }
        error => error,
    }
}

/// Whether this program can do what `[otlp]` says.
fn offers_otlp(otlp: &Otlp) -> Result<(), DaemonError> {
    if otlp.is_on() && !cfg!(feature = "otlp") {
        let why =
            "this program was built without OTLP (feature \"otlp\" of trunkline-cli); leave the key out";
        return Err(DaemonError::Otlp(io::Error::other(why)));
    }
    Ok(())
}

#[cfg(feature = "otlp")]
fn export(
    host: &Arc<DaemonHost>,
    succeeds: bool,
    otlp: &Otlp,
    tls: Option<ClientFiles>,
) -> io::Result<Option<Exporter>> {
    crate::metrics::export(&Arc::downgrade(host), (&host.node, succeeds), otlp, tls)
}

/// What waits for a collector is not handed over.
#[cfg(feature = "otlp")]
fn flush(exporter: Option<&Exporter>) {
    exporter.into_iter().for_each(Exporter::flush);
}

/// Of the type of something else that is dropped with the daemon; there is none.
#[cfg(not(feature = "otlp"))]
fn export(_: &Arc<DaemonHost>, _: bool, _: &Otlp, _: Option<ClientFiles>) -> io::Result<Option<PageServer>> {
    Ok(None)
}

#[cfg(not(feature = "otlp"))]
fn flush(_: Option<&PageServer>) {}

/// What the command line says counts more than the file.
fn override_with(config: &mut Config, args: &DaemonArgs, socket: Option<PathBuf>) {
    if let Some(socket) = socket {
        config.daemon.socket = socket;
    }
    config.daemon.listen.extend(args.listen.iter().cloned().map(trunkline_daemon::Address));
}

fn start(
    mut config: Config,
    arrival: Option<&Arrival>,
    orders: Sender<Order>,
) -> Result<DaemonHost, DaemonError> {
    let (node, audit_log) = (config.node().to_owned(), config.admin.audit_log.clone());
    let services = config.services.keys().cloned().collect();
    let started = Instant::now();
    let (daemon, taken, KeptCounts { history, told_apart }) = match arrival {
        Some(arrival) => {
            let (daemon, taken, kept) = Daemon::take_over(config, arrival, &upgrade::build())?;
            (daemon, Some(taken), kept)
        }
        None => {
            find_place(&mut config)?;
            (Daemon::start(config)?, None, KeptCounts::default())
        }
    };
    let (history, told_apart) = (Chronicle::of(history), Mutex::new(told_apart));
    let socket = daemon.control_path().map_or_else(PathBuf::new, PathBuf::from);
    let upgrade = Mutex::new(UpgradeState { taken, ..UpgradeState::default() });
    let daemon = Arc::new(daemon);
    Ok(DaemonHost {
        daemon,
        node,
        socket,
        services,
        audit_log,
        history,
        told_apart,
        started,
        upgrade,
        orders,
    })
}

/// The socket's path, if nobody has named one.
fn find_place(config: &mut Config) -> Result<(), DaemonError> {
    if config.socket().is_none() {
        // The first usual place that can be had; taken again at once by the daemon itself.
        let listener = Places::of_this_process().bind(config.daemon.socket_mode.0)?;
        config.daemon.socket = listener.path().to_owned();
    }
    Ok(())
}

/// Lets calls in flight end, for a time, or until a second order.
fn let_end(daemon: &Daemon, time: Duration, orders: &Receiver<Order>) {
    let until = Instant::now() + time;
    while !daemon.is_idle() && Instant::now() < until {
        if !matches!(orders.recv_timeout(DRAIN_LOOK), Err(RecvTimeoutError::Timeout) | Ok(Order::Look)) {
            tracing::warn!("told twice; not waiting for calls in flight");
            return;
        }
    }
}

/// Orders to end: signals, and the end of standard input if that was asked for.
fn orders(until_stdin_closes: bool) -> Result<(Sender<Order>, Receiver<Order>), DaemonError> {
    let (sender, orders) = channel();
    let hang_up = (!ignores_hang_up()).then_some(SIGHUP);
    let mut signals =
        Signals::new([SIGINT, SIGTERM].into_iter().chain(hang_up)).map_err(DaemonError::Signals)?;
    let from_signals = sender.clone();
    spawn("signals", move || {
        for signal in signals.forever() {
            let _ = from_signals.send(Order::End(match signal {
                SIGINT => "SIGINT",
                SIGHUP => "SIGHUP (what reads the configuration anew is trunkline upgrade)",
                _ => "SIGTERM",
            }));
        }
    })?;
    if until_stdin_closes {
        let from_stdin = sender.clone();
        spawn("stdin", move || watch_stdin(&from_stdin))?;
    }
    Ok((sender, orders))
}

/// Whether whoever started this process wants it to outlive a terminal (nohup(1)); from proc(5).
fn ignores_hang_up() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 << (SIGHUP - 1) != 0)
}

fn watch_stdin(orders: &Sender<Order>) {
    // What comes is not asked for; only its end matters.
    let _ = io::copy(&mut io::stdin().lock().take(u64::MAX), &mut io::sink());
    let _ = orders.send(Order::End("standard input closed"));
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), DaemonError> {
    std::thread::Builder::new().name(name.into()).spawn(run).map(drop).map_err(DaemonError::Signals)
}
