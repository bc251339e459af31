//! A router with one worker behind it, each on a thread of its own.

use crate::support::{ANY, work};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::thread;
use trunkline_net::Datagrams;
use trunkline_r2p2::{Config, Mode, RouterConfig};
use trunkline_router::{Forwarding, RouterProcess, Settings, Shared, StartError};

/// A way to a worker.
pub struct Route {
    pub name: String,
    pub mode: Mode,
    pub listen: SocketAddrV4,
    pub worker: SocketAddrV4,
    thread: Thread,
}

/// A router's thread.
pub struct Thread {
    id: i32,
    pub shared: Arc<Shared>,
}

/// Requests the worker says it works on at once: so many that none waits at the router.
const SLOTS: u16 = 1024;

impl Route {
    pub fn open(forwarding: Forwarding, mode: Mode, stop: &Arc<AtomicBool>) -> Result<Self, StartError> {
        let socket = Datagrams::bind(ANY).expect("a port");
        let worker = socket.address().expect("it has one");
        let (thread, [listen, control]) = start(forwarding, mode, &[worker], None, stop)?;
        let config = Config { mode, slots: SLOTS, routers: vec![control], ..Config::default() };
        let stop = Arc::clone(stop);
        thread::spawn(move || work(&socket, config, &stop));
        Ok(Self { name: format!("{forwarding:?} {mode:?}").to_lowercase(), mode, listen, worker, thread })
    }

    /// CPU time of the router.
    pub fn cpu_ns(&self) -> u64 {
        self.thread.cpu_ns()
    }
}

impl Thread {
    /// CPU time it has had, as its kernel counts it.
    pub fn cpu_ns(&self) -> u64 {
        let path = format!("/proc/self/task/{}/schedstat", self.id);
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
    }
}

/// A router for workers at some addresses, on a core of its own if one is given; where clients and workers reach it.
pub fn start(
    forwarding: Forwarding,
    mode: Mode,
    workers: &[SocketAddrV4],
    core: Option<usize>,
    stop: &Arc<AtomicBool>,
) -> Result<(Thread, [SocketAddrV4; 2]), StartError> {
    let joins = mode == Mode::Extended;
    let known = workers.iter().map(|worker| (*worker, SLOTS));
    let config = RouterConfig {
        workers: if joins { Vec::new() } else { known.collect() },
        join_from: vec![(Ipv4Addr::LOCALHOST, 8)],
        ..RouterConfig::default()
    };
    let settings = Settings {
        listen: ANY,
        control: ANY,
        forwarding,
        flows_max: Settings::FLOWS_MAX,
        keys: None,
        router: config,
    };
    let router = RouterProcess::start(settings)?;
    let addresses = router.addresses().expect("it has two");
    let (shared, stop, (tell, told)) = (router.shared(), Arc::clone(stop), channel());
    let thread = thread::Builder::new().name("router".into());
    let run = move || {
        core.into_iter().for_each(pin);
        tell.send(rustix::thread::gettid().as_raw_nonzero().get()).expect("somebody waits for it");
        router.run(&stop);
    };
    thread.spawn(run).expect("a thread");
    Ok((Thread { id: told.recv().expect("it has one"), shared }, addresses))
}

/// Keeps the calling thread on one core.
pub fn pin(core: usize) {
    let mut cores = rustix::thread::CpuSet::new();
    cores.set(core);
    rustix::thread::sched_setaffinity(None, &cores).expect("the core is there");
}
