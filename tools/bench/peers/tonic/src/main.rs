//! The tonic peer of trunkline-bench: a server, and a driver that takes orders on standard input.
//!
//! ```text
//! tonic-peer serve PORT_FILE
//! tonic-peer drive ADDRESS
//! ```
//! An order is `MILLIS REQUEST_BYTES OUTSTANDING`, an answer `CALLS ELAPSED_NS P50_NS P99_NS`. Both ends run on
//! current-thread runtimes, tonic's frugal form.
#![forbid(unsafe_code)]

use bench::bench_client::BenchClient;
use bench::bench_server::{Bench, BenchServer};
use bench::{Bytes, Count, HelloReply, HelloRequest, Mean, Named, Number, Numbers};
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::error::Error;
use std::time::{Duration, Instant};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic::{Request, Response, Status};

mod bench {
    tonic::include_proto!("bench.v1");
}

type Failure = Box<dyn Error>;

/// Requests up to this size are the small call; its data is shorter by tag and length.
const SMALL_BYTES_MAX: usize = 64;
const SMALL_OVERHEAD: usize = 2;

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match words.as_slice() {
        ["serve", port_file] => runtime.block_on(serve(port_file)),
        ["drive", address] => runtime.block_on(drive(address)),
        ["version"] => {
            println!("tonic 0.14");
            Ok(())
        }
        _ => Err("usage: tonic-peer serve PORT_FILE | drive ADDRESS".into()),
    }
}

struct Counter;

impl Counter {
    fn count(request: &Request<Bytes>) -> Result<Response<Number>, Status> {
        Ok(Response::new(Number { value: request.get_ref().data.len() as i64 }))
    }
}

#[tonic::async_trait]
impl Bench for Counter {
    async fn small(&self, request: Request<Bytes>) -> Result<Response<Number>, Status> {
        Self::count(&request)
    }

    async fn sink(&self, request: Request<Bytes>) -> Result<Response<Number>, Status> {
        Self::count(&request)
    }

    // What tonic is not measured by.

    async fn guarded(&self, _: Request<Named>) -> Result<Response<Number>, Status> {
        Err(Status::unimplemented("not measured"))
    }

    async fn say_hello(&self, _: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        Err(Status::unimplemented("not measured"))
    }

    async fn average(&self, _: Request<Numbers>) -> Result<Response<Mean>, Status> {
        Err(Status::unimplemented("not measured"))
    }

    async fn get_rand_nums(&self, _: Request<Count>) -> Result<Response<Numbers>, Status> {
        Err(Status::unimplemented("not measured"))
    }
}

async fn serve(port_file: &str) -> Result<(), Failure> {
    let listener = listen(port_file).await?;
    let service = BenchServer::new(Counter).max_decoding_message_size(usize::MAX);
    // What is set at the server holds only for sockets it accepts itself.
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    Ok(Server::builder().add_service(service).serve_with_incoming(incoming).await?)
}

/// Listens somewhere and says where in a file: written aside and renamed, so that a reader sees all of it or nothing.
async fn listen(port_file: &str) -> Result<tokio::net::TcpListener, Failure> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let aside = format!("{port_file}.new");
    std::fs::write(&aside, listener.local_addr()?.to_string())?;
    std::fs::rename(aside, port_file)?;
    Ok(listener)
}

/// The three numbers of an order.
fn order(line: &str) -> Result<[u64; 3], Failure> {
    let numbers: Result<Vec<u64>, _> = line.split_whitespace().map(str::parse).collect();
    numbers?.try_into().map_err(|_| "three numbers expected".into())
}

/// In nanoseconds, of what is sorted.
fn quantile(took: &[Duration], percent: usize) -> u128 {
    took.get(took.len() * percent / 100).copied().unwrap_or_default().as_nanos()
}

async fn drive(address: &str) -> Result<(), Failure> {
    let client = BenchClient::connect(format!("http://{address}")).await?;
    // Reading blocks the runtime; between orders there is nothing to run.
    for line in std::io::stdin().lines() {
        let [millis, bytes, outstanding] = order(&line?)?;
        let began = Instant::now();
        let mut took = carry_out(&client, millis, bytes as usize, outstanding as usize).await?;
        let elapsed_ns = began.elapsed().as_nanos();
        took.sort_unstable();
        println!("{} {elapsed_ns} {} {}", took.len(), quantile(&took, 50), quantile(&took, 99));
    }
    Ok(())
}

async fn carry_out(
    client: &BenchClient<Channel>,
    millis: u64,
    bytes: usize,
    outstanding: usize,
) -> Result<Vec<Duration>, Failure> {
    let small = bytes <= SMALL_BYTES_MAX;
    let payload = vec![7; if small { bytes - SMALL_OVERHEAD } else { bytes }];
    let end = Instant::now() + Duration::from_millis(millis);
    let mut took = Vec::new();
    let mut calls = FuturesUnordered::new();
    let call = || async {
        let (mut client, data) = (client.clone(), payload.clone());
        let began = Instant::now();
        let request = Bytes { data };
        let answer = if small { client.small(request).await } else { client.sink(request).await };
        answer.map(|_| began.elapsed())
    };
    calls.extend((0..outstanding).map(|_| call()));
    while let Some(answer) = calls.next().await {
        took.push(answer?);
        if Instant::now() < end {
            calls.push(call());
        }
    }
    Ok(took)
}
