//! `trunkline router`: the R2P2 router of this host, until SIGINT or SIGTERM.

use crate::daemon::{raise_descriptor_limit, settle_log, start_log};
use crate::router_args::RouterArgs;
use std::fmt::Display;
use std::hash::{BuildHasher, RandomState};
use std::io::IsTerminal;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use trunkline_daemon::Log;
use trunkline_dispatch::{Class, Reservation};
use trunkline_net::read_key_file;
use trunkline_pages::HostNames;
use trunkline_r2p2::{RouterConfig, SEAL_KEYS_MAX, SealKeys};
use trunkline_router::{Forwarding, RouterProcess, Settings, Shared, serve_metrics};

/// How often `--live` shows the router.
const LIVE_EVERY: Duration = Duration::from_secs(1);

/// Runs the router.
///
/// # Errors
/// What keeps it from starting.
pub fn router(args: &RouterArgs) -> Result<(), String> {
    // A table that is shown again and again leaves room for what is wrong, and nothing else.
    let level = if args.live { "warn" } else { "info" };
    start_log(&Log { level: level.into(), ..Log::default() }).map_err(|error| error.to_string())?;
    let ended = run(args);
    settle_log();
    ended
}

fn run(args: &RouterArgs) -> Result<(), String> {
    if args.worker.is_empty() && args.join_from.is_empty() {
        let why = "there is no worker, and none can join: name workers by --worker ADDRESS:PORT, or networks whose \
                   hosts may join by --join-from ADDRESS/BITS";
        return Err(why.into());
    }
    let twice = |(index, worker): &(usize, &(SocketAddrV4, u16))| {
        args.worker[..*index].iter().any(|(other, _)| *other == worker.0)
    };
    if let Some((_, (address, _))) = args.worker.iter().enumerate().find(twice) {
        return Err(format!(
            "--worker {address}: it is named twice; write {address}*SLOTS for what it works on at once"
        ));
    }
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(of("cannot handle signals"))?;
    }
    // As a proxy it has a socket for each client.
    raise_descriptor_limit();
    let process = RouterProcess::start(settings(args, keys(args)?)).map_err(|error| error.to_string())?;
    let [listen, control] = process.addresses().map_err(of("cannot tell addresses"))?;
    let way = match process.forwarding() {
        Forwarding::OnBehalf => "on behalf of clients of the extended mode, refusing others",
        Forwarding::Proxy => "as a proxy",
        Forwarding::Preserve | Forwarding::Auto => "preserving clients' addresses",
    };
    let shared = process.shared();
    let metrics = args.metrics.map(|address| {
        let hosts = HostNames::new(&args.metrics_host, "--metrics-host");
        serve_metrics(address, hosts, Arc::clone(&shared)).map_err(of(format!("--metrics {address}")))
    });
    // It is there as long as the router is.
    let metrics = metrics.transpose()?;
    println!("routing udp {listen}, {way}; FEEDBACK at {control}");
    // Ready is who serves whatever was asked for.
    tracing::info!(%listen, %control, way, "router is ready");
    if let Some(metrics) = &metrics {
        println!("metrics at http://{}/metrics", metrics.address());
    }
    if args.live {
        std::thread::spawn(move || show(&shared));
    }
    process.run(&stop);
    tracing::info!("router ends");
    Ok(())
}

/// The keys of the cluster. Where hosts join by themselves, somebody has to say that none are wanted.
fn keys(args: &RouterArgs) -> Result<Option<SealKeys>, String> {
    let Some(path) = &args.key_file else {
        if args.join_from.is_empty() || args.without_authentication {
            return Ok(None);
        }
        return Err("--join-from: every host of those networks could join as a worker, and whoever writes such an \
                    address as source; name the cluster's keys with --key-file FILE (and in r2p2.key_file of its \
                    daemons), or say --without-authentication"
            .into());
    };
    let keys = read_key_file(path, SealKeys::BYTES_MIN, SEAL_KEYS_MAX).map_err(of("--key-file"))?;
    Ok(SealKeys::new(&keys.iter().map(Vec::as_slice).collect::<Vec<_>>()))
}

fn settings(args: &RouterArgs, keys: Option<SealKeys>) -> Settings {
    let reservation =
        |(class, workers): &(u8, usize)| Reservation { class: Class::new(*class), workers: *workers };
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let router = RouterConfig {
        policy: args.policy,
        reservations: args.reserve.iter().map(reservation).collect(),
        workers: args.worker.clone(),
        join_from: args.join_from.clone(),
        extended: !args.compatible,
        queue_max: args.queue,
        delay_ns_max: ns(args.delay),
        lease_ns: ns(args.lease),
        seed: RandomState::new().hash_one(args.listen),
        ..RouterConfig::default()
    };
    Settings {
        listen: args.listen,
        control: args.control,
        forwarding: args.forwarding,
        flows_max: Settings::FLOWS_MAX,
        keys,
        router,
    }
}

fn show(shared: &Shared) {
    // Home, and everything below is cleared; a file or a pipe has one table after the other.
    let clear = if std::io::stdout().is_terminal() { "\x1b[H\x1b[J" } else { "" };
    loop {
        std::thread::sleep(LIVE_EVERY);
        print!("{clear}{}", shared.report.lock().table());
    }
}

fn of<E: Display>(what: impl Display) -> impl FnOnce(E) -> String {
    move |error| format!("{what}: {error}")
}
