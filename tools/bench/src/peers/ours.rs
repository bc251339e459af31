//! Trunkline's own applications: a server, a calling driver, one that pours streams, idle ones.

use super::large::{self, LargeClient, LargeData, LargeServer};
use crate::harness::children::{Failure, once_there, stay};
use crate::harness::orders::{Answer, Caller, Order, SMALL_BYTES_MAX, Times, one_at_a_time};
use crate::harness::work::{FORBIDDEN, Work, is_forbidden, name_of};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Context, Poll};
use trunkline::codegen::Message;
use trunkline::{Channel, Code, Incoming, Receiver, Response, Server, Status, Unary, Wait, block_on};
use trunkline_shm::monotonic_ns;

trunkline::include_proto!("bench.v1");

use bench_client::BenchClient;
use bench_server::{Bench, BenchServer};
use bulk_client::BulkClient;
use bulk_server::{Bulk, BulkServer};

/// Bytes of a small request besides its data in protobuf: tag and length. The data is as long as gRPC's.
const SMALL_OVERHEAD: usize = 2;

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
    once_there(|| Channel::builder().socket(socket).target(target).connect().wait())
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
        once_there(|| client.small(Bytes::default()).wait())?;
        Ok(Self { channel, client, work, named: 0 })
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
        let call = |call: u64| {
            let request = self.channel.build::<Named>(|request| {
                request.set_name(name_of(first + call)).set_data(&payload);
            })?;
            Ok(self.client.guarded(request))
        };
        let guarded = self.work == Work::Guarded;
        let answer = many(order, call, |call, answer| sound(guarded, first + call, answer))?;
        self.named += answer.calls;
        Ok(answer)
    }

    fn hello(&self, order: Order) -> Result<Answer, Failure> {
        let call = |_: u64| {
            let request = self.channel.build::<HelloRequest>(|request| {
                request.set_name("world");
            })?;
            Ok(self.client.say_hello(request))
        };
        let greeted =
            |_, answer: Result<Response<HelloReply>, Status>| same(answer?.view().message(), "Hello world");
        many(order, call, greeted)
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
        let counted = |_, answer: Result<Response<Numbers>, Status>| {
            same(answer?.view().values().len(), order.request_bytes)
        };
        many(order, |_| Ok(self.client.get_rand_nums(Count { value })), counted)
    }

    fn large(&self, order: Order) -> Result<Answer, Failure> {
        let none = || Err(format!("there is no message of {} members", order.request_bytes).into());
        large::sized!(order.request_bytes, N => self.large_of::<N>(order), none())
    }

    /// Sets every member of every request, and reads every member of the answer.
    fn large_of<const N: usize>(&self, order: Order) -> Result<Answer, Failure> {
        let client = LargeClient::new(self.channel.clone());
        let wanted: i64 = (0..N).map(|member| i64::from(large::value(member))).sum();
        let call = |_: u64| {
            let request = self.channel.build::<LargeData<N>>(|request| {
                (0..N).for_each(|member| request.set_i32(LargeData::<N>::at(member), large::value(member)));
            })?;
            Ok(client.send_rcv(request))
        };
        let check = |_, answer: Result<Response<LargeData<N>>, Status>| -> Result<(), Failure> {
            let answer = answer?;
            let answer = answer.view();
            same((0..N).map(|member| i64::from(answer.i32(LargeData::<N>::at(member)))).sum(), wanted)
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

/// Whether what came is what must.
fn same<T: PartialEq + std::fmt::Debug>(came: T, wanted: T) -> Result<(), Failure> {
    if came == wanted { Ok(()) } else { Err(format!("{came:?} came instead of {wanted:?}").into()) }
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
    stay()
}
