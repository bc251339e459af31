//! A client and a worker over real sockets on this host.
#![allow(dead_code, reason = "every user takes a part")]

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant as Clock};
use trunkline_call::Instant;
use trunkline_net::{DatagramBatch, Datagrams, Interest, Outgoing, Poller, Token};
use trunkline_r2p2::*;

pub const ANY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);

/// Time since a start that lies a minute back: servers are sure of what is new from the first datagram on.
pub struct Time(Clock);

impl Time {
    pub fn begin() -> Self {
        Self(Clock::now())
    }

    pub fn now(&self) -> Instant {
        Instant(60_000_000_000 + self.0.elapsed().as_nanos() as u64)
    }
}

pub fn send(socket: &Datagrams, poll: impl FnMut() -> Option<Transmit>) {
    let transmits: Vec<Transmit> = std::iter::from_fn(poll).collect();
    let batch: Vec<_> = transmits.iter().map(outgoing).collect();
    socket.send(&batch);
}

fn outgoing(one: &Transmit) -> Outgoing<'_> {
    Outgoing { to: one.to, pieces: [one.head.as_slice(), &one.body] }
}

/// Waits until a socket has something, at most until `at`.
pub fn wait(poller: &Poller, time: &Time, at: Option<Instant>) {
    let most_ns = 20_000_000;
    let ns = at.map_or(most_ns, |at| at.since_ns(time.now()).min(most_ns));
    poller.wait(Some(ns), &mut Vec::new()).unwrap();
}

pub fn poller_of(socket: &Datagrams) -> Poller {
    let poller = Poller::new().unwrap();
    poller.add(socket, Token(0), Interest::Read).unwrap();
    poller
}

/// A worker that answers with what it is asked, until told to stop. Requests it has executed.
pub fn work(socket: &Datagrams, config: Config, stop: &AtomicBool) -> u64 {
    let (time, poller) = (Time::begin(), poller_of(socket));
    let mut server = Server::new(Arc::new(config), Instant(0));
    let (mut batch, mut executed) = (DatagramBatch::new(), 0);
    while !stop.load(Ordering::Relaxed) {
        let next = server.next_timeout();
        wait(&poller, &time, next);
        socket.receive_batch(&mut batch).unwrap();
        for (from, datagram) in batch.iter() {
            server.handle_datagram(time.now(), time.now(), from, datagram);
            while let Some(event) = server.poll_event() {
                if let ServerEvent::Request(request) = event {
                    executed += 1;
                    server.reply(time.now(), request.key, request.body.into(), None, Timing::default());
                }
            }
        }
        server.handle_timeout(time.now());
        send(socket, || server.poll_transmit());
    }
    executed
}

/// Makes calls with the given bodies, so many at once; how each ended, by its place.
pub fn call_all(
    target: SocketAddrV4,
    config: Config,
    bodies: &[Vec<u8>],
    at_once: usize,
) -> Vec<ClientEvent> {
    call_all_from(ANY, target, config, bodies, at_once)
}

/// The same, from an address of the caller's choice.
pub fn call_all_from(
    from: SocketAddrV4,
    target: SocketAddrV4,
    config: Config,
    bodies: &[Vec<u8>],
    at_once: usize,
) -> Vec<ClientEvent> {
    let (socket, time) = (Datagrams::bind(from).unwrap(), Time::begin());
    let poller = poller_of(&socket);
    let mut client = Client::new(Arc::new(config), std::process::id().into());
    let (mut batch, mut ended, mut made) = (DatagramBatch::new(), Vec::new(), 0);
    let patience = Clock::now() + Duration::from_secs(120);
    while ended.len() < bodies.len() {
        assert!(Clock::now() < patience, "{} of {} calls have ended", ended.len(), bodies.len());
        while client.len() < at_once && made < bodies.len() {
            let body = bodies[made].clone().into();
            let deadline = trunkline_call::Deadline::after(time.now(), Duration::from_secs(60));
            let tag = made as u64;
            client
                .call(time.now(), NewCall { tag, target, sticky: false, class: 0, deadline, body })
                .unwrap();
            made += 1;
        }
        send(&socket, || client.poll_transmit());
        let next = client.next_timeout();
        wait(&poller, &time, next);
        socket.receive_batch(&mut batch).unwrap();
        for (from, datagram) in batch.iter() {
            client.handle_datagram(time.now(), from, datagram);
        }
        client.handle_timeout(time.now());
        ended.extend(std::iter::from_fn(|| client.poll_event()));
    }
    ended
}
