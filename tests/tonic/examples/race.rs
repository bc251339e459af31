//! Measures one tonic program over tonic's own transport, over Trunkline on one host, and through a daemon's gateway,
//! in interleaved rounds, so that all of them meet the same seconds of the machine. Prints; asserts nothing.
//!
//! ```text
//! cargo run --release -p trunkline-tonic-tests --example race [ROUNDS [MILLIS [BYTES]]]
//! ```
//!
//! This process is the client of all lanes. Servers and the daemon are processes of their own (this program again, in a
//! role), each on a current-thread runtime, as the client is. CPU is that of client, server and daemon together, read
//! from outside, to 10 ms per process and round.

use futures_util::stream::{FuturesUnordered, StreamExt};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use trunkline_measure::{Failure, Spread, Talker, cpu_ns};
use trunkline_tonic_tests::examiner::{Transport, question};
use trunkline_tonic_tests::stage::{Host, service, stock_channel, stock_server};
use trunkline_tonic_tests::stubs::Question;
use trunkline_tonic_tests::stubs::exam_client::ExamClient;

/// Calls under way in the second half of a round.
const OUTSTANDING: usize = 128;
/// A process has so long to say that it is there.
const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match words.as_slice() {
            ["role", role @ ..] => play(role).await,
            numbers => race(numbers).await,
        }
    })
}

/// A server or the daemon: says where it is, and stays until its standard input closes.
async fn play(role: &[&str]) -> Result<(), Failure> {
    let (host, handle);
    match *role {
        ["direct"] => println!("{}", stock_server().await),
        ["daemon"] => {
            host = Host::start();
            println!("{} {}", host.socket.display(), host.address());
        }
        ["gateway", endpoint] => {
            host = Host::start_gateway(endpoint.parse()?, "");
            println!("{}", host.socket.display());
        }
        ["moved", socket, place] => {
            let server = trunkline_tonic::Server::builder().socket(socket).add_service(service());
            let server = if place == "in-place" { server.in_place() } else { server };
            handle = server.spawn()?;
            handle.ready().await?;
            println!("ready");
        }
        _ => return Err(format!("no such role: {role:?}").into()),
    }
    tokio::task::spawn_blocking(|| std::io::stdin().lines().count()).await?;
    Ok(())
}

async fn race(numbers: &[&str]) -> Result<(), Failure> {
    let number = |at: usize, usual: u64| numbers.get(at).map_or(Ok(usual), |number| number.parse());
    let (rounds, time) = (number(0, 9)?, Duration::from_millis(number(1, 500)?));
    let asked = Question { blob: vec![7; usize::try_from(number(2, 64)?)?], ..question("echo", 1) };

    let (direct, address) = start(&["direct"])?;
    let channel = stock_channel(address.parse::<SocketAddr>()?).await;
    let mut lanes = vec![Lane::new("tonic over TCP", vec![direct])];
    let mut moved = Vec::new();
    for place in ["tasks", "in-place"] {
        let (daemon, said) = start(&["daemon"])?;
        let (socket, _) = said.split_once(' ').ok_or("a socket and an address")?;
        let (server, _) = start(&["moved", socket, place])?;
        let channel = trunkline::Channel::builder().socket(Path::new(socket)).connect_lazy();
        lanes.push(Lane::new(&format!("one daemon, handlers {place}"), vec![daemon, server]));
        moved.push(trunkline_tonic::Channel::from(channel));
    }
    let (mut gated, channels) = through_gateways().await?;
    for round in 0..=rounds {
        let [first, others @ ..] = lanes.as_mut_slice() else { continue };
        first.round(channel.clone(), &asked, time, round).await?;
        for (lane, channel) in others.iter_mut().zip(&moved) {
            lane.round(channel.clone(), &asked, time, round).await?;
        }
        for (lane, channel) in gated.iter_mut().zip(&channels) {
            lane.round(channel.clone(), &asked, time, round).await?;
        }
    }
    lanes.append(&mut gated);
    println!("{rounds} rounds of {time:?}, {} bytes each way; medians (least–most)", asked.blob.len());
    lanes.iter().for_each(|lane| lane.print(&lanes[0]));
    Ok(())
}

/// tonic's own client at a gateway's Unix socket; behind the gateway tonic's own server, or a daemon and its handlers.
async fn through_gateways() -> Result<(Vec<Lane>, Vec<tonic::transport::Channel>), Failure> {
    let (direct, address) = start(&["direct"])?;
    let (gateway, to_direct) = start(&["gateway", &address])?;
    let first = Lane::new("gateway to tonic's server", vec![direct, gateway]);
    let (daemon, said) = start(&["daemon"])?;
    let (socket, address) = said.split_once(' ').ok_or("a socket and an address")?;
    let (server, _) = start(&["moved", socket, "tasks"])?;
    let (gateway, to_daemon) = start(&["gateway", address])?;
    let second = Lane::new("gateway to a daemon, handlers tasks", vec![daemon, server, gateway]);
    let mut channels = Vec::new();
    for socket in [to_direct, to_daemon] {
        let path = Path::new(&socket).with_file_name("grpc.sock");
        let endpoint = tonic::transport::Endpoint::from_shared(format!("unix://{}", path.display()))?;
        channels.push(endpoint.connect().await?);
    }
    Ok((vec![first, second], channels))
}

/// One transport, and what its rounds came to.
struct Lane {
    name: String,
    processes: Vec<Talker>,
    /// Of each round, in the order of [`FIGURES`].
    rounds: Vec<[f64; 5]>,
}

const FIGURES: [&str; 5] = [
    "p50 µs, one at a time",
    "p99 µs, one at a time",
    "CPU µs per call, one at a time",
    "calls/s, 128 outstanding",
    "CPU µs per call, 128 outstanding",
];

impl Lane {
    fn new(name: &str, processes: Vec<Talker>) -> Self {
        Self { name: name.to_owned(), processes, rounds: Vec::new() }
    }

    /// The round numbered 0 warms up.
    async fn round(
        &mut self,
        transport: impl Transport,
        asked: &Question,
        time: Duration,
        number: u64,
    ) -> Result<(), Failure> {
        let client = ExamClient::new(transport);
        let before = self.cpu()?;
        let (mut took, _) = calls(&client, asked, time, 1).await?;
        let between = self.cpu()?;
        let (many, elapsed) = calls(&client, asked, time, OUTSTANDING).await?;
        let after = self.cpu()?;
        took.sort_unstable();
        let at = |part: usize| took[took.len() * part / 100].as_secs_f64() * 1e6;
        let (one, many) = (took.len() as f64, many.len() as f64);
        if number > 0 {
            self.rounds.push([
                at(50),
                at(99),
                (between - before) * 1e6 / one,
                many / elapsed.as_secs_f64(),
                (after - between) * 1e6 / many,
            ]);
        }
        Ok(())
    }

    /// Seconds of all its processes, this one included.
    fn cpu(&self) -> Result<f64, Failure> {
        let pids = self.processes.iter().map(Talker::pid).chain([std::process::id()]);
        Ok(cpu_ns(&pids.collect::<Vec<_>>())? as f64 / 1e9)
    }

    fn print(&self, first: &Self) {
        println!("{}", self.name);
        for (at, figure) in FIGURES.iter().enumerate() {
            let [ours, theirs] =
                [self, first].map(|lane| lane.rounds.iter().map(|round| round[at]).collect::<Vec<_>>());
            let values =
                Spread::of(ours.iter().copied()).map(|values| values.to_string()).unwrap_or_default();
            let ratios =
                Spread::of_ratio(&ours, &theirs).map(|ratios| ratios.to_string()).unwrap_or_default();
            println!("    {figure:34} {values:32}  ÷ tonic over TCP {ratios}");
        }
    }
}

/// Calls until the time is up, so many at once: how long each took, and all of them.
async fn calls(
    client: &ExamClient<impl Transport>,
    asked: &Question,
    time: Duration,
    outstanding: usize,
) -> Result<(Vec<Duration>, Duration), Failure> {
    let began = Instant::now();
    let mut took = Vec::new();
    let mut under_way = FuturesUnordered::new();
    let call = || {
        let (mut client, asked) = (client.clone(), asked.clone());
        async move {
            let began = Instant::now();
            client.ask(asked).await.map(|_| began.elapsed())
        }
    };
    under_way.extend((0..outstanding).map(|_| call()));
    while let Some(answer) = under_way.next().await {
        took.push(answer?);
        if began.elapsed() < time {
            under_way.push(call());
        }
    }
    Ok((took, began.elapsed()))
}

/// This program in a role, and the line it says.
fn start(role: &[&str]) -> Result<(Talker, String), Failure> {
    let mut process = Talker::start(Command::new(std::env::current_exe()?).arg("role").args(role))?;
    let said = process.hear(PATIENCE)?;
    Ok((process, said))
}
