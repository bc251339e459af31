//! Trunkline's own processes: daemons, a server, a calling driver, idle applications.

use crate::children::{Child, Failure, START_LOOKS, START_PAUSE, text, wait_for_file, write_file};
use crate::foreign::Serving;
use crate::large::{self, LargeClient, LargeData, LargeServer};
use crate::orders::{Answer, Caller, Order, SMALL_BYTES_MAX, Times, one_at_a_time};
use crate::proxies::{free_port, wait_until_it_listens};
use crate::work::{FORBIDDEN, Work, is_forbidden, name_of};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Context, Poll};
use trunkline::codegen::Message;
use trunkline::{Channel, Code, Incoming, Receiver, Response, Server, Status, Unary, Wait, block_on};
use trunkline_daemon::{Config, Daemon};
use trunkline_shm::monotonic_ns;

trunkline::include_proto!("bench.v1");

use bench_client::BenchClient;
use bench_server::{Bench, BenchServer};
use bulk_client::BulkClient;
use bulk_server::{Bulk, BulkServer};

/// Heaps of the measured sessions: 32 requests of 8 MB, or 128 of 2 MB, under way and as much again.
pub const HEAP: &str = "512 MiB";
/// Methods of an application when it is asked how a call's cost grows with them.
const ROUTES_MAX: usize = 16 << 10;
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

/// What the daemons' policies are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policing {
    /// None.
    Bare,
    /// On every host one that lets everything pass: what a policy costs that does nothing.
    Null,
    /// On the client's host one that reads a field of every request.
    Content,
    /// Small calls are urgent, bulk streams are not.
    Classes,
    /// None, and finished calls are not recorded.
    Unrecorded,
}

/// Where the client attaches and whom it calls.
#[derive(Clone, Debug)]
pub struct Road {
    pub socket: PathBuf,
    pub target: String,
}

/// Starts daemons and a server in `dir`.
pub fn start(dir: &Path, hosts: Hosts) -> Result<(Vec<Child>, Road), Failure> {
    start_policed(dir, hosts, Policing::Bare)
}

/// The same with policies.
pub fn start_policed(dir: &Path, hosts: Hosts, policing: Policing) -> Result<(Vec<Child>, Road), Failure> {
    start_working(dir, hosts, policing, Work::Bytes)
}

/// The same with a server that has what `work` calls.
pub fn start_working(
    dir: &Path,
    hosts: Hosts,
    policing: Policing,
    work: Work,
) -> Result<(Vec<Child>, Road), Failure> {
    let far = dir.join("far.sock");
    let at_server = if policing == Policing::Content { Policing::Bare } else { policing };
    let (daemon, listens_at) = start_daemon_speaking(&far, HEAP, "native", at_server)?;
    let mut processes = vec![daemon];
    let near = dir.join("near.sock");
    let road = match hosts {
        Hosts::One => Road { socket: far.clone(), target: String::new() },
        Hosts::Two | Hosts::TwoByGrpc => {
            let speaks = if hosts == Hosts::Two { "native" } else { "grpc" };
            processes.push(start_daemon_speaking(&near, HEAP, speaks, policing)?.0);
            Road { socket: near, target: listens_at }
        }
    };
    processes.push(Child::role(&["serve", text(&far), work.name()])?);
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
    start_daemon_speaking(socket, heap, "native", Policing::Bare)
}

/// Starts a daemon that speaks `native` or `grpc` to others.
pub fn start_daemon_speaking(
    socket: &Path,
    heap: &str,
    speaks: &str,
    policing: Policing,
) -> Result<(Child, String), Failure> {
    let port_file = socket.with_extension("port");
    let policing = policing.name();
    let daemon = Child::role(&["daemon", text(socket), text(&port_file), heap, speaks, policing])?;
    Ok((daemon, wait_for_file(&port_file)?))
}

/// The daemon process; writes where it listens to a file. `speaks` is what it speaks to others: `native`, `grpc`.
pub fn daemon(
    socket: &Path,
    port_file: &Path,
    heap: &str,
    speaks: &str,
    policing: &str,
) -> Result<(), Failure> {
    let text = format!(
        "[daemon]\nsocket = {:?}\nlisten = [\"tcp://127.0.0.1:0\"]\n[sessions]\nheap_bytes = {heap:?}\n\
         [limits]\nroutes_per_session = {ROUTES_MAX}\n[grpc]\nalways = {}\n{}",
        text(socket),
        speaks == "grpc",
        Policing::parse(policing)?.toml()
    );
    let daemon = Daemon::start(Config::from_toml(&text, "bench")?)?;
    write_file(port_file, daemon.endpoints().first().ok_or("the daemon listens nowhere")?)?;
    loop {
        std::thread::park();
    }
}

/// Starts a daemon in `dir` whose gateway leads to the server at `address`; returns where clients reach it.
pub fn start_gateway(dir: &Path, name: &str, address: &str) -> Result<Serving, Failure> {
    let socket = dir.join(format!("gateway-{name}.sock"));
    let listens_at = free_port()?;
    let words = ["gateway", text(&socket), &listens_at.to_string(), address];
    wait_until_it_listens(Child::role(&words)?, listens_at)
}

/// The daemon process of a gateway.
pub fn gateway(socket: &Path, listens_at: &str, address: &str) -> Result<(), Failure> {
    let text = format!(
        "[daemon]\nsocket = {:?}\n[gateway]\nlisten = [\"tcp://{listens_at}\"]\n\
         [services.\"bench.v1.Bench\"]\nendpoints = [\"tcp://{address}\"]\n",
        text(socket),
    );
    let _daemon = Daemon::start(Config::from_toml(&text, "bench")?)?;
    loop {
        std::thread::park();
    }
}

/// A daemon that listens at so many addresses of the loopback, so that each is a peer of its own; they are the lines of
/// a file.
pub fn far_daemon(socket: &Path, port_file: &Path, addresses: usize) -> Result<(), Failure> {
    let address = |n: usize| format!("\"tcp://127.0.{}.{}:0\"", n / 250, n % 250 + 1);
    let listen: Vec<String> = (0..addresses).map(address).collect();
    let text = format!("[daemon]\nsocket = {:?}\nlisten = [{}]\n", text(socket), listen.join(", "));
    let daemon = Daemon::start(Config::from_toml(&text, "bench")?)?;
    write_file(port_file, &daemon.endpoints().join("\n"))?;
    loop {
        std::thread::park();
    }
}

/// A call from this very process: gRPC's libraries take the first UNIMPLEMENTED for an answer.
fn wait_until_served(socket: &Path) -> Result<(), Failure> {
    OurClient::connect(socket, "", Work::Bytes).map(drop)
}

impl Policing {
    fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Null => "null",
            Self::Content => "content",
            Self::Classes => "classes",
            Self::Unrecorded => "unrecorded",
        }
    }

    fn parse(name: &str) -> Result<Self, Failure> {
        let all = [Self::Bare, Self::Null, Self::Content, Self::Classes, Self::Unrecorded];
        let found = all.into_iter().find(|policing| policing.name() == name);
        found.ok_or_else(|| format!("no such policies: {name}").into())
    }

    /// The chain in the daemon's configuration.
    fn toml(self) -> String {
        match self {
            Self::Bare => String::new(),
            Self::Unrecorded => "[debug]\nunrecorded = true\n".to_owned(),
            Self::Null => ["client", "server"]
                .map(|side| {
                    format!(
                        "[[policy]]\nname = \"null-{side}\"\nkind = \"access\"\nside = \"{side}\"\n\
                         allow = 'true'\n"
                    )
                })
                .concat(),
            Self::Content => format!(
                "[[policy]]\nname = \"names\"\nkind = \"access\"\nside = \"client\"\nservice = \"bench.v1.Bench\"\n\
                 method = \"Guarded\"\ndeny = 'request.name == \"{FORBIDDEN}\"'\n"
            ),
            Self::Classes => [("Bench", "latency"), ("Bulk", "batch")]
                .map(|(service, class)| {
                    format!(
                        "[[policy]]\nname = \"{class}\"\nkind = \"priority\"\nside = \"client\"\n\
                         service = \"bench.v1.{service}\"\nclass = \"{class}\"\n"
                    )
                })
                .concat(),
        }
    }
}

/// The server process. Large messages are served only where they are called: their schema is large, too.
pub fn serve(socket: &Path, work: Work) -> Result<(), Failure> {
    let server = Server::builder().socket(socket);
    // First, because a client looks for the other one.
    let server = if work == Work::Large { server.add_service(LargeServer) } else { server };
    Ok(server.add_service(BenchServer::new(Counter::default())).run()?)
}

#[derive(Default)]
struct Counter {
    /// Requests of a name that must not pass.
    forbidden: AtomicI64,
}

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

    async fn guarded(&self, request: Incoming<Named>) -> Result<Response<Number>, Status> {
        let forbidden = i64::from(request.view().name() == FORBIDDEN);
        let value = self.forbidden.fetch_add(forbidden, Ordering::Relaxed) + forbidden;
        Ok(Response::new(Number { value }))
    }

    async fn say_hello(&self, request: Incoming<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        Ok(Response::new(HelloReply { message: format!("Hello {}", request.view().name()) }))
    }

    async fn average(&self, request: Incoming<Numbers>) -> Result<Response<Mean>, Status> {
        let request = request.view();
        let values = request.values();
        let sum: i64 = values.iter().copied().map(i64::from).sum();
        Ok(Response::new(Mean { value: sum as f64 / values.len().max(1) as f64 }))
    }

    async fn get_rand_nums(&self, request: Incoming<Count>) -> Result<Response<Numbers>, Status> {
        let values: Vec<i32> = random_numbers(request.view().value()).collect();
        Ok(request
            .build::<Numbers>(|reply| {
                reply.set_values(&values);
            })?
            .into())
    }
}

/// The bulk server process.
pub fn serve_bulk(socket: &Path) -> Result<(), Failure> {
    Ok(Server::builder().socket(socket).add_service(BulkServer::new(Drain)).run()?)
}

struct Drain;

impl Bulk for Drain {
    async fn pour(&self, mut requests: Receiver<Bytes>) -> Result<Response<Number>, Status> {
        let mut value = 0;
        while requests.recv().await?.is_some() {
            value += 1;
        }
        Ok(Response::new(Number { value }))
    }
}

/// So many numbers that look random: the generator of Numerical Recipes, the same for every peer.
fn random_numbers(count: i32) -> impl Iterator<Item = i32> {
    let next = |last: &u32| Some(last.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
    std::iter::successors(Some(1), next).map(|number| (number >> 1) as i32).take(count.max(0) as usize)
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
    work: Work,
    /// Named requests made so far.
    named: u64,
}

impl OurClient {
    /// Attaches, and waits until the server answers.
    pub fn connect(socket: &Path, target: &str, work: Work) -> Result<Self, Failure> {
        let channel = channel(socket, target)?;
        let client = BenchClient::new(channel.clone());
        for _ in 0..START_LOOKS {
            if client.small(Bytes::default()).wait().is_ok() {
                return Ok(Self { channel, client, work, named: 0 });
            }
            std::thread::sleep(START_PAUSE);
        }
        Err("the server does not answer".into())
    }

    fn bytes(&self, order: Order) -> Result<Answer, Failure> {
        let payload = payload(order.request_bytes);
        let call = |_: u64| {
            let request = self.channel.build::<Bytes>(|request| {
                request.set_data(&payload);
            })?;
            let small = payload.len() < SMALL_BYTES_MAX;
            Ok(if small { self.client.small(request) } else { self.client.sink(request) })
        };
        many(order, call, |_, answer| Ok(answer.map(drop)?))
    }

    fn named(&mut self, order: Order) -> Result<Answer, Failure> {
        let first = self.named;
        let payload = vec![7; order.request_bytes];
        let mut made = 0;
        let call = |call: u64| {
            made = call + 1;
            let request = self.channel.build::<Named>(|request| {
                request.set_name(name_of(first + call)).set_data(&payload);
            })?;
            Ok(self.client.guarded(request))
        };
        let guarded = self.work == Work::Guarded;
        let answer = many(order, call, |call, answer| sound(guarded, first + call, answer));
        self.named += made;
        answer
    }

    fn hello(&self, order: Order) -> Result<Answer, Failure> {
        let call = |_: u64| {
            let request = self.channel.build::<HelloRequest>(|request| {
                request.set_name("world");
            })?;
            Ok(self.client.say_hello(request))
        };
        let check = |_, answer: Result<Response<HelloReply>, Status>| -> Result<(), Failure> {
            match answer?.view().message() {
                "Hello world" => Ok(()),
                other => Err(format!("greeted with {other:?}").into()),
            }
        };
        many(order, call, check)
    }

    fn average(&self, order: Order) -> Result<Answer, Failure> {
        let values: Vec<i32> = random_numbers(order.request_bytes.try_into()?).collect();
        let call = |_: u64| {
            let request = self.channel.build::<Numbers>(|request| {
                request.set_values(&values);
            })?;
            Ok(self.client.average(request))
        };
        many(order, call, |_, answer| Ok(answer.map(drop)?))
    }

    fn numbers(&self, order: Order) -> Result<Answer, Failure> {
        let value = order.request_bytes.try_into()?;
        let check = |_, answer: Result<Response<Numbers>, Status>| -> Result<(), Failure> {
            match answer?.view().values().len() {
                count if count == order.request_bytes => Ok(()),
                count => Err(format!("{count} numbers came").into()),
            }
        };
        many(order, |_| Ok(self.client.get_rand_nums(Count { value })), check)
    }

    fn large(&self, order: Order) -> Result<Answer, Failure> {
        match order.request_bytes {
            128 => self.large_of::<128>(order),
            256 => self.large_of::<256>(order),
            512 => self.large_of::<512>(order),
            1024 => self.large_of::<1024>(order),
            2048 => self.large_of::<2048>(order),
            4096 => self.large_of::<4096>(order),
            8192 => self.large_of::<8192>(order),
            members => Err(format!("there is no message of {members} members").into()),
        }
    }

    /// Sets every member of every request, and reads every member of the answer.
    fn large_of<const N: usize>(&self, order: Order) -> Result<Answer, Failure> {
        let client = LargeClient::new(self.channel.clone());
        let wanted: i64 = (0..N).map(|member| i64::from(large::value(member))).sum();
        let call = |_: u64| {
            let request = self.channel.build::<LargeData<N>>(|request| {
                (0..N).for_each(|member| request.set(member, large::value(member)));
            })?;
            Ok(client.send_rcv(request))
        };
        let check = |_, answer: Result<Response<LargeData<N>>, Status>| -> Result<(), Failure> {
            let answer = answer?;
            let answer = answer.view();
            match (0..N).map(|member| i64::from(answer.member(member))).sum::<i64>() {
                sum if sum == wanted => Ok(()),
                sum => Err(format!("members of the sum {sum} came").into()),
            }
        };
        many(order, call, check)
    }
}

impl Caller for OurClient {
    fn carry_out(&mut self, order: Order) -> Result<Answer, Failure> {
        match self.work {
            Work::Bytes => self.bytes(order),
            Work::Open | Work::Guarded => self.named(order),
            Work::Hello => self.hello(order),
            Work::Average => self.average(order),
            Work::Numbers => self.numbers(order),
            Work::Large => self.large(order),
        }
    }
}

/// Whether a named call ended as it must: who is forbidden is refused and never reaches the server, if that is guarded.
fn sound(guarded: bool, call: u64, answer: Result<Response<Number>, Status>) -> Result<(), Failure> {
    match answer {
        Ok(reply) if guarded && reply.view().value() != 0 => {
            Err("a forbidden call reached the server".into())
        }
        Ok(_) if guarded && is_forbidden(call) => Err("a forbidden call was answered".into()),
        Ok(_) => Ok(()),
        Err(status) if guarded && is_forbidden(call) && status.code() == Code::PermissionDenied => Ok(()),
        Err(status) => Err(status.into()),
    }
}

/// Calls for an order's time: one after the other, or so many at once.
fn many<Q: Message, R: Message>(
    order: Order,
    mut call: impl FnMut(u64) -> Result<Unary<Q, R>, Failure>,
    mut check: impl FnMut(u64, Result<Response<R>, Status>) -> Result<(), Failure>,
) -> Result<Answer, Failure> {
    if order.outstanding == 1 {
        let mut calls = 0..;
        return one_at_a_time(order, || {
            let number = calls.next().unwrap_or_default();
            check(number, call(number)?.wait())
        });
    }
    let mut times = Times::start(order)?;
    let mut window = Window { call, check, order, calls: VecDeque::new(), made: 0, checked: 0 };
    block_on(poll_fn(|cx| window.poll(&mut times, cx)))?;
    Ok(times.answer())
}

/// Calls under way, the oldest first. Answers are taken in the order of the calls, so one wake costs one look at the
/// oldest, not one at each.
struct Window<C, K, Q, R> {
    call: C,
    check: K,
    order: Order,
    calls: VecDeque<Unary<Q, R>>,
    made: u64,
    checked: u64,
}

impl<C, K, Q: Message, R: Message> Window<C, K, Q, R>
where
    C: FnMut(u64) -> Result<Unary<Q, R>, Failure>,
    K: FnMut(u64, Result<Response<R>, Status>) -> Result<(), Failure>,
{
    fn poll(&mut self, times: &mut Times, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        loop {
            while times.go_on() && self.calls.len() < self.order.outstanding {
                times.sent();
                let mut call = (self.call)(self.made)?;
                self.made += 1;
                // Submits it. What is answered before it can be waited for is an error.
                if let Poll::Ready(answer) = Pin::new(&mut call).poll(cx) {
                    return Poll::Ready(answer.map(drop).map_err(Into::into));
                }
                self.calls.push_back(call);
            }
            let Some(oldest) = self.calls.front_mut() else { return Poll::Ready(Ok(())) };
            let answer = std::task::ready!(Pin::new(oldest).poll(cx));
            times.answered()?;
            (self.check)(self.checked, answer)?;
            self.checked += 1;
            self.calls.pop_front();
        }
    }
}

/// The data of a request: a small one is as large on the wire as asked for, a large one carries as much.
fn payload(request_bytes: usize) -> Vec<u8> {
    let small = request_bytes <= SMALL_BYTES_MAX;
    vec![7; if small { request_bytes - SMALL_OVERHEAD } else { request_bytes }]
}

/// The pouring driver: an order is so many streams at once, each of messages of that size; calls are messages.
#[derive(Debug)]
pub struct Pourer {
    client: BulkClient,
}

impl Pourer {
    /// Attaches, and waits until the server answers.
    pub fn connect(socket: &Path, target: &str) -> Result<Self, Failure> {
        let own = OurClient::connect(socket, target, Work::Bytes)?;
        Ok(Self { client: BulkClient::new(own.channel) })
    }

    /// One stream until the time is up; its messages.
    fn pour(&self, order: Order, until_ns: u64) -> Result<u64, Status> {
        let payload = vec![7; order.request_bytes];
        let mut stream = self.client.pour();
        let mut messages = 0;
        while messages == 0 || monotonic_ns() < until_ns {
            stream.send(Bytes { data: payload.clone() }).wait()?;
            messages += 1;
        }
        stream.finish().wait().map(|_| messages)
    }
}

impl Caller for Pourer {
    fn carry_out(&mut self, order: Order) -> Result<Answer, Failure> {
        let began_ns = monotonic_ns();
        let until_ns = began_ns + order.millis * 1_000_000;
        let pour = || self.pour(order, until_ns);
        let poured: Result<u64, Status> = std::thread::scope(|scope| {
            let streams: Vec<_> = (0..order.outstanding).map(|_| scope.spawn(pour)).collect();
            let ends = streams.into_iter().map(|stream| {
                stream.join().unwrap_or_else(|_| Err(Status::internal("a stream's thread panicked")))
            });
            ends.sum()
        });
        Ok(Answer { calls: poured?, elapsed_ns: monotonic_ns() - began_ns, p50_ns: 0, p99_ns: 0 })
    }
}

/// An application that has made a call and then does nothing; says so on standard output.
pub fn idle(socket: &Path) -> Result<(), Failure> {
    let _client = OurClient::connect(socket, "", Work::Bytes)?;
    println!("idle");
    loop {
        std::thread::park();
    }
}
