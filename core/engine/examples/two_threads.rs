//! What two shards of one daemon lose by being one daemon: calls per second of two engines that know of each other, on
//! two threads, beside two in processes of their own that do not. Nobody else is there: no rings, no sockets.
//!
//! `cargo run --release -p trunkline-engine --example two_threads [ROUNDS] [MILLIS]`

#[path = "../tests/steady/mod.rs"]
mod steady;

use rtrb::RingBuffer;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};
use steady::{Hosts, Neighbour, Steady, chain};
use trunkline_engine::ShardIndex;
use trunkline_share::HostLimits;

const OUTSTANDING: u32 = 128;
const WARM_UP: Duration = Duration::from_millis(200);
/// As many batches as a daemon's queue takes.
const QUEUE_BATCHES: usize = 32;
const ROUNDS: usize = 7;
const MILLIS: u64 = 1000;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [word, millis] = words.as_slice()
        && word == "apart"
    {
        return apart(Duration::from_millis(millis.parse().unwrap()));
    }
    let rounds = words.first().map_or(ROUNDS, |rounds| rounds.parse().expect("a number of rounds"));
    let millis = words.get(1).map_or(MILLIS, |millis| millis.parse().expect("milliseconds"));
    let mut ratios = Vec::new();
    println!("round | two threads, calls/s | two processes, calls/s | ratio");
    for round in 1..=rounds {
        let (together, processes) = (two_threads(Duration::from_millis(millis)), two_processes(millis));
        ratios.push(together / processes);
        println!("{round} | {together:.0} | {processes:.0} | {:.3}", together / processes);
    }
    ratios.sort_by(f64::total_cmp);
    let (least, most) = (ratios[0], ratios[rounds - 1]);
    println!("median {:.3} ({least:.3} to {most:.3}) of {rounds} rounds", ratios[rounds / 2]);
}

/// Calls per second of an engine, for so long.
fn rate(steady: &mut Steady, time: Duration) -> f64 {
    let (began, mut calls) = (Instant::now(), 0_u64);
    while began.elapsed() < time {
        steady.calls(OUTSTANDING);
        calls += u64::from(OUTSTANDING);
    }
    calls as f64 / began.elapsed().as_secs_f64()
}

/// Of two shards together.
fn two_threads(time: Duration) -> f64 {
    let shared = Arc::new(HostLimits::new(2));
    let (to_second, from_first) = RingBuffer::new(QUEUE_BATCHES);
    let (to_first, from_second) = RingBuffer::new(QUEUE_BATCHES);
    let ends = [(1, to_second, from_second), (0, to_first, from_first)];
    let barrier = Arc::new(Barrier::new(2));
    let threads = ends.map(|(other, outgoing, incoming)| {
        let (shared, barrier) = (Arc::clone(&shared), Arc::clone(&barrier));
        std::thread::spawn(move || {
            let neighbour = Neighbour { index: ShardIndex(other), outgoing, incoming };
            let mut steady = Steady::on_shard(ShardIndex(1 - other), &shared, neighbour);
            rate(&mut steady, WARM_UP);
            barrier.wait();
            rate(&mut steady, time)
        })
    });
    threads.map(|thread| thread.join().expect("calls go on")).iter().sum()
}

/// Of two processes together, told to begin at the same time.
fn two_processes(millis: u64) -> f64 {
    let mut children = [start(millis), start(millis)];
    children.iter_mut().for_each(|child| hear(child, &mut String::new()));
    children.iter_mut().for_each(|child| child.stdin.take().unwrap().write_all(b"go").unwrap());
    let rates = children.each_mut().map(|child| {
        let mut said = String::new();
        child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        child.wait().unwrap();
        said.trim().parse::<f64>().expect("calls per second")
    });
    rates.iter().sum()
}

fn start(millis: u64) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["apart", &millis.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().unwrap()
}

fn hear(child: &mut Child, line: &mut String) {
    // Byte by byte, so that what follows stays for whoever reads on.
    BufReader::with_capacity(1, child.stdout.as_mut().unwrap()).read_line(line).unwrap();
}

/// One engine, which knows of no other.
fn apart(time: Duration) {
    let mut steady = Steady::new(Hosts::One, &chain("none"));
    rate(&mut steady, WARM_UP);
    println!("warm");
    std::io::stdin().read_to_string(&mut String::new()).unwrap();
    println!("{}", rate(&mut steady, time));
}
