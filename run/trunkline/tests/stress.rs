//! Many threads and tasks at once, calls given up midway, streams and small windows: everything is answered, nothing
//! hangs, and every block comes back.

mod support;

use std::sync::{Arc, Barrier};
use std::thread;
use support::text::{EchoServer, Parrot};
use support::{EchoClient, Place, Text, WATCHDOG, channel, foreign, poll_once, watched};
use trunkline::{Channel, Code, Receiver, Sender, Server, ServerBuilder, Wait};
use trunkline_daemon::{Config, Daemon};
use trunkline_engine::SessionRow;
use trunkline_telemetry::Ask;

const ROUNDS: usize = 60;

/// How a caller waits.
#[derive(Clone, Copy)]
enum Way {
    Thread,
    Task,
}

fn caller(client: &EchoClient, way: Way, name: &str) {
    for round in 0..ROUNDS {
        match round % 6 {
            0..3 => unary(client, way, &format!("{name}/{round}")),
            3 => given_up(client, name),
            4 => listen(client, way, name),
            _ => chat(client, way, name),
        }
    }
}

fn unary(client: &EchoClient, way: Way, text: &str) {
    let call = client.say(Text::new(text));
    let reply = match way {
        Way::Thread => call.wait(),
        Way::Task => foreign(call),
    };
    assert_eq!(reply.unwrap().view().text(), text);
}

/// Submitted or not, answered or not, taken or not: dropped.
fn given_up(client: &EchoClient, name: &str) {
    let mut calls: Vec<_> = (0..5).map(|_| client.say(Text::new(name))).collect();
    for call in &mut calls {
        let _ = poll_once(call);
    }
    let mut waits = client.say(Text::new("pend"));
    let _ = poll_once(&mut waits);
}

fn listen(client: &EchoClient, way: Way, name: &str) {
    let words = [name; 8].join(" ");
    let mut heard = match way {
        Way::Thread => client.repeat(Text::new(words)).wait(),
        Way::Task => foreign(client.repeat(Text::new(words))),
    }
    .unwrap();
    let next = |heard: &mut Receiver<Text>| match way {
        Way::Thread => heard.recv().wait().unwrap(),
        Way::Task => foreign(heard.recv()).unwrap(),
    };
    for _ in 0..8 {
        assert_eq!(next(&mut heard).unwrap().view().text(), name);
    }
    assert!(next(&mut heard).is_none());
}

fn chat(client: &EchoClient, way: Way, name: &str) {
    let (mut tx, mut rx) = client.chat().split();
    let sender = thread::spawn({
        let name = name.to_owned();
        move || {
            for _ in 0..10 {
                match way {
                    Way::Thread => tx.send(Text::new(name.as_str())).wait().unwrap(),
                    Way::Task => foreign(tx.send(Text::new(name.as_str()))).unwrap(),
                }
            }
        }
    });
    for _ in 0..10 {
        let heard = match way {
            Way::Thread => rx.recv().wait(),
            Way::Task => foreign(rx.recv()),
        };
        assert_eq!(heard.unwrap().unwrap().view().text(), name);
    }
    sender.join().unwrap();
    assert!(rx.recv().wait().unwrap().is_none());
}

/// Six callers at once, then quiet: a last call in every lane books and returns what came for the dropped ones.
fn crowd(channel: Channel, server: ServerBuilder) {
    let server = server.add_service(EchoServer::new(Parrot)).workers(2).spawn().unwrap();
    server.ready().wait().unwrap();
    let client = EchoClient::new(channel);
    let callers: Vec<_> = (0..6)
        .map(|index| {
            let client = client.clone();
            let way = if index % 2 == 0 { Way::Thread } else { Way::Task };
            thread::spawn(move || caller(&client, way, &format!("caller-{index}")))
        })
        .collect();
    callers.into_iter().for_each(|caller| caller.join().unwrap());
    // Behind the calls given up in the lane of tasks, so that none of them is delivered to a server that has gone.
    unary(&client, Way::Task, "last");
    server.shutdown(WATCHDOG).wait().unwrap();
    assert_eq!(foreign(client.say(Text::new("x"))).unwrap_err().code(), Code::Unavailable);
    let lanes = thread::available_parallelism().map_or(1, usize::from);
    let all_leased = Arc::new(Barrier::new(lanes));
    let threads: Vec<_> = (0..lanes)
        .map(|_| {
            let (client, all_leased) = (client.clone(), Arc::clone(&all_leased));
            thread::spawn(move || {
                assert_eq!(client.say(Text::new("x")).wait().unwrap_err().code(), Code::Unavailable);
                all_leased.wait();
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn nothing_hangs_and_nothing_leaks() {
    watched(|| {
        let relay = Place::new().relay();
        crowd(channel(&relay.path()), Server::builder().socket(relay.path()));
        assert_eq!(relay.stop_and_count(), 0, "bytes of receive heaps were not returned");
    });
}

/// Streams given up at every point of their start, by either half, polled once or not at all; and calls beside them
/// that must be answered.
fn dropper(client: &EchoClient, mut seed: u64, kept: &mut Vec<(Sender<Text>, Receiver<Text>)>) {
    for _ in 0..ROUNDS {
        // Knuth's linear congruential generator; the low bits are the poor ones.
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (mut tx, mut rx) = client.chat().split();
        match seed >> 60 {
            0 => drop((rx, foreign(tx.send(Text::new("x"))))),
            1 => drop(poll_once(&mut Box::pin(tx.send(Text::new("x"))))),
            2 => drop(poll_once(&mut Box::pin(rx.recv()))),
            3 => {
                drop(poll_once(&mut Box::pin(rx.recv())));
                foreign(tx.send(Text::new("x"))).unwrap();
            }
            4 => {
                drop(poll_once(&mut Box::pin(tx.send(Text::new("x")))));
                drop(tx);
                while foreign(rx.recv()).unwrap().is_some() {}
            }
            5 => {
                tx.send(Text::new("x")).wait().unwrap();
                drop(rx);
                while tx.send(Text::new("x")).wait().is_ok() {}
            }
            6 if kept.len() < 3 => {
                drop(poll_once(&mut Box::pin(tx.send(Text::new("x")))));
                kept.push((tx, rx));
            }
            _ => unary(client, if seed & 1 == 0 { Way::Thread } else { Way::Task }, "answered"),
        }
    }
}

#[test]
fn a_mixed_load_of_drops_stalls_nobody() {
    watched(|| {
        let relay = Place::new().relay();
        let server = Server::builder().socket(relay.path()).add_service(EchoServer::new(Parrot)).workers(2);
        let server = server.spawn().unwrap();
        server.ready().wait().unwrap();
        let client = EchoClient::new(channel(&relay.path()));
        let droppers: Vec<_> = (1..=4)
            .map(|seed| {
                let client = client.clone();
                thread::spawn(move || {
                    let mut kept = Vec::new();
                    dropper(&client, seed, &mut kept);
                    unary(&client, Way::Thread, "last");
                })
            })
            .collect();
        droppers.into_iter().for_each(|dropper| dropper.join().unwrap());
        server.shutdown(WATCHDOG).wait().unwrap();
    });
}

#[test]
fn the_real_engine_forgets_every_call() {
    watched(|| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("daemon.sock");
        let config = format!("[daemon]\nsocket = {path:?}\n");
        let daemon = Daemon::start(Config::from_toml(&config, "test").unwrap()).unwrap();
        crowd(channel(&path), Server::builder().socket(&path));
        loop {
            let sessions: Vec<_> =
                daemon.observe(&Ask::default()).into_iter().flat_map(|o| o.snapshot.sessions).collect();
            let open =
                |row: &SessionRow| row.calls_made + row.calls_delivered + row.receive_heap_bytes as usize;
            if sessions.iter().map(open).sum::<usize>() == 0 {
                return;
            }
            thread::yield_now(); // the watchdog ends this with what is left on the stack
        }
    });
}
