//! Trunkline's own processes: daemons, a server, a calling driver, idle applications.

use crate::children::{Child, Failure, START_LOOKS, START_PAUSE, text, wait_for_file, write_file};
use crate::orders::{Answer, Caller, Order, SMALL_BYTES_MAX, Times, one_at_a_time};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};
use trunkline::{Channel, Incoming, Response, Server, Status, Unary, Wait, block_on};
use trunkline_daemon::{Config, Daemon};

trunkline::include_proto!("bench.v1");

use bench_client::BenchClient;
use bench_server::{Bench, BenchServer};

/// Heaps of the measured sessions: 32 requests of 8 MB, or 128 of 2 MB, under way and as much again.
pub const HEAP: &str = "512 MiB";
/// Bytes of a small request besides its data in protobuf: tag and length. The data is as long as gRPC's.
const SMALL_OVERHEAD: usize = 2;

/// What stands between the two applications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hosts {
    /// One daemon, both applications attached to it.
    One,
    /// Two daemons joined by TCP.
    Two,
    /// Two daemons that speak gRPC with each other.
    TwoByGrpc,
}

/// Where the client attaches and whom it calls.
#[derive(Clone, Debug)]
pub struct Road {
    pub socket: PathBuf,
    pub target: String,
}

/// Starts daemons and a server in `dir`.
pub fn start(dir: &Path, hosts: Hosts) -> Result<(Vec<Child>, Road), Failure> {
    let far = dir.join("far.sock");
    let (daemon, listens_at) = start_daemon(&far, HEAP)?;
    let mut processes = vec![daemon];
    let near = dir.join("near.sock");
    let road = match hosts {
        Hosts::One => Road { socket: far.clone(), target: String::new() },
        Hosts::Two | Hosts::TwoByGrpc => {
            let speaks = if hosts == Hosts::Two { "native" } else { "grpc" };
            processes.push(start_daemon_speaking(&near, HEAP, speaks)?.0);
            Road { socket: near, target: listens_at }
        }
    };
    processes.push(Child::role(&["serve", text(&far)])?);
    Ok((processes, road))
}

/// Starts a daemon and a server in `dir`, for gRPC clients; returns the address they call.
pub fn start_server(dir: &Path) -> Result<(Vec<Child>, String), Failure> {
    let (processes, _) = start(dir, Hosts::One)?;
    let listens_at = wait_for_file(&dir.join("far.port"))?;
    let address = listens_at.strip_prefix("tcp://").ok_or("the daemon does not listen at TCP")?;
    wait_until_served(&dir.join("far.sock"))?;
    Ok((processes, address.to_owned()))
}

/// Starts a daemon in `dir` whose applications call the gRPC server at `address`.
pub fn start_client(dir: &Path, address: &str) -> Result<(Child, Road), Failure> {
    let near = dir.join("near.sock");
    let (daemon, _) = start_daemon(&near, HEAP)?;
    Ok((daemon, Road { socket: near, target: format!("tcp://{address}") }))
}

/// Starts a daemon at `socket`; returns where other daemons reach it.
pub fn start_daemon(socket: &Path, heap: &str) -> Result<(Child, String), Failure> {
    start_daemon_speaking(socket, heap, "native")
}

/// Starts a daemon that speaks `native` or `grpc` to others.
pub fn start_daemon_speaking(socket: &Path, heap: &str, speaks: &str) -> Result<(Child, String), Failure> {
    let port_file = socket.with_extension("port");
    let daemon = Child::role(&["daemon", text(socket), text(&port_file), heap, speaks])?;
    Ok((daemon, wait_for_file(&port_file)?))
}

/// The daemon process; writes where it listens to a file. `speaks` is what it speaks to others: `native`, `grpc`.
pub fn daemon(socket: &Path, port_file: &Path, heap: &str, speaks: &str) -> Result<(), Failure> {
    let text = format!(
        "[daemon]\nsocket = {:?}\nlisten = [\"tcp://127.0.0.1:0\"]\n[sessions]\nheap_bytes = {heap:?}\n\
         [grpc]\nalways = {}",
        text(socket),
        speaks == "grpc"
    );
    let daemon = Daemon::start(Config::from_toml(&text, "bench")?)?;
    write_file(port_file, daemon.endpoints().first().ok_or("the daemon listens nowhere")?)?;
    loop {
        std::thread::park();
    }
}

/// A call from this very process: gRPC's libraries take the first UNIMPLEMENTED for an answer.
fn wait_until_served(socket: &Path) -> Result<(), Failure> {
    OurClient::connect(socket, "").map(drop)
}

/// The server process.
pub fn serve(socket: &Path) -> Result<(), Failure> {
    Ok(Server::builder().socket(socket).add_service(BenchServer::new(Counter)).run()?)
}

struct Counter;

impl Counter {
    fn count(request: &Incoming<Bytes>) -> Result<Response<Number>, Status> {
        let value = request.view().data().len().try_into().map_err(|_| Status::internal("beyond 63 bits"))?;
        Ok(Response::new(Number { value }))
    }
}

impl Bench for Counter {
    async fn small(&self, request: Incoming<Bytes>) -> Result<Response<Number>, Status> {
        Self::count(&request)
    }

    async fn sink(&self, request: Incoming<Bytes>) -> Result<Response<Number>, Status> {
        Self::count(&request)
    }
}

/// A channel through the daemon at `socket`, once that is there.
pub fn channel(socket: &Path, target: &str) -> Result<Channel, Failure> {
    let mut tried = 0;
    loop {
        match Channel::builder().socket(socket).target(target).connect().wait() {
            Ok(channel) => return Ok(channel),
            Err(error) if tried == START_LOOKS => return Err(error.into()),
            Err(_) => std::thread::sleep(START_PAUSE),
        }
        tried += 1;
    }
}

/// The calling driver: one thread.
#[derive(Debug)]
pub struct OurClient {
    channel: Channel,
    client: BenchClient,
}

impl OurClient {
    /// Attaches, and waits until the server answers.
    pub fn connect(socket: &Path, target: &str) -> Result<Self, Failure> {
        let channel = channel(socket, target)?;
        let client = BenchClient::new(channel.clone());
        for _ in 0..START_LOOKS {
            if client.small(Bytes::default()).wait().is_ok() {
                return Ok(Self { channel, client });
            }
            std::thread::sleep(START_PAUSE);
        }
        Err("the server does not answer".into())
    }

    /// A call with its request built in place.
    fn call(&self, payload: &[u8]) -> Result<Unary<Bytes, Number>, Failure> {
        let request = self.channel.build::<Bytes>(|request| {
            request.set_data(payload);
        })?;
        let small = payload.len() < SMALL_BYTES_MAX;
        Ok(if small { self.client.small(request) } else { self.client.sink(request) })
    }
}

impl Caller for OurClient {
    fn carry_out(&mut self, order: Order) -> Result<Answer, Failure> {
        let payload = payload(order.request_bytes);
        if order.outstanding == 1 {
            return one_at_a_time(order, || {
                self.call(&payload)?.wait()?;
                Ok(())
            });
        }
        let mut window = Window { client: self, payload: &payload, order, calls: VecDeque::new() };
        let mut times = Times::start(order)?;
        block_on(poll_fn(|cx| window.poll(&mut times, cx)))?;
        Ok(times.answer())
    }
}

/// Calls under way, the oldest first. Answers are taken in the order of the calls, so one wake costs one look at the
/// oldest, not one at each.
struct Window<'a> {
    client: &'a OurClient,
    payload: &'a [u8],
    order: Order,
    calls: VecDeque<Unary<Bytes, Number>>,
}

impl Window<'_> {
    fn poll(&mut self, times: &mut Times, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        loop {
            while times.go_on() && self.calls.len() < self.order.outstanding {
                times.sent();
                let mut call = self.client.call(self.payload)?;
                // Submits it. What is answered before it can be waited for is an error.
                if let Poll::Ready(answer) = Pin::new(&mut call).poll(cx) {
                    return Poll::Ready(answer.map(drop).map_err(Into::into));
                }
                self.calls.push_back(call);
            }
            let Some(oldest) = self.calls.front_mut() else { return Poll::Ready(Ok(())) };
            std::task::ready!(Pin::new(oldest).poll(cx))?;
            times.answered()?;
            self.calls.pop_front();
        }
    }
}

/// The data of a request: a small one is as large on the wire as asked for, a large one carries as much.
fn payload(request_bytes: usize) -> Vec<u8> {
    let small = request_bytes <= SMALL_BYTES_MAX;
    vec![7; if small { request_bytes - SMALL_OVERHEAD } else { request_bytes }]
}

/// An application that has made a call and then does nothing; says so on standard output.
pub fn idle(socket: &Path) -> Result<(), Failure> {
    let _client = OurClient::connect(socket, "")?;
    println!("idle");
    loop {
        std::thread::park();
    }
}
