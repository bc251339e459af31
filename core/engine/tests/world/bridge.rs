//! An HTTP/2 connection between the two hosts: what one engine tells it to do, the other hears of, in order and later.

use super::{Host, World};
use std::collections::VecDeque;
use trunkline_engine::{GrpcKey, PeerIdentity, Turn};
use trunkline_grpc::{Command, Event, ResetBy, StreamTag};

/// One connection, dialled by a shard of the near host.
pub struct Bridge {
    /// The shards it connects.
    pub hosts: [usize; 2],
    pub ends: [GrpcKey; 2],
    pipes: [VecDeque<Under>; 2],
    pub up: bool,
}

/// What is under way: the event the other end hears, and how much of the sender's queue leaves with it.
struct Under {
    event: Event,
    sent: Option<(StreamTag, usize)>,
}

impl World {
    /// A shard of the near host has dialled: the other host speaks gRPC.
    pub(super) fn build_bridge(&mut self, host: usize, near: GrpcKey) {
        let label = format!("tcp://10.0.1.{}:4711", self.bridges.len() + 1);
        let far = self.hosts[1].engine.http().accept(label, PeerIdentity::default());
        let hosts = [host, 1];
        self.bridges.push(Bridge { hosts, ends: [near, far], pipes: Default::default(), up: true });
        self.happen(host, near, Event::Ready { streams_max: 100 });
    }

    /// Takes a command for a connection between the hosts; gives back one for another.
    pub(super) fn cross(&mut self, host: usize, key: GrpcKey, command: Command) -> Option<Command> {
        let side_of =
            |bridge: &Bridge| (0..2).find(|side| (bridge.hosts[*side], bridge.ends[*side]) == (host, key));
        let found =
            self.bridges.iter().enumerate().find_map(|(index, bridge)| Some((index, side_of(bridge)?)));
        let Some((index, side)) = found else { return Some(command) };
        if !self.bridges[index].up {
            return None;
        }
        if matches!(command, Command::Close { .. }) {
            self.cut_bridge(index);
            return None;
        }
        if let Command::CutOff { stream, .. } = &command {
            // Its head and what it ends with are all that is left of it.
            let stream = other(*stream);
            self.bridges[index].pipes[side].retain(|under| match under.event {
                Event::Data { stream: of, .. } | Event::Trailers { stream: of, .. } => of != stream,
                _ => true,
            });
        }
        if let Some(under) = under(command) {
            self.bridges[index].pipes[side].push_back(under);
        }
        None
    }

    /// Delivers so many things in each direction of every connection. Whether there was any.
    pub(super) fn carry_bridges(&mut self, count: usize) -> bool {
        let mut moved = false;
        for index in 0..self.bridges.len() {
            for side in 0..2 {
                for _ in 0..count {
                    let bridge = &mut self.bridges[index];
                    let (key, other) = (bridge.ends[side], bridge.ends[1 - side]);
                    let (host, far) = (bridge.hosts[side], bridge.hosts[1 - side]);
                    let Some(Under { event, sent }) =
                        bridge.pipes[side].pop_front().filter(|_| self.bridges[index].up)
                    else {
                        break;
                    };
                    moved = true;
                    self.happen(far, other, event);
                    if let Some((stream, bytes)) = sent {
                        self.happen(host, key, Event::Sent { stream, bytes });
                    }
                }
            }
        }
        moved
    }

    /// Cuts a connection; what is under way is lost.
    pub fn cut_bridge(&mut self, index: usize) {
        if !std::mem::replace(&mut self.bridges[index].up, false) {
            return;
        }
        self.bridges[index].pipes.iter_mut().for_each(VecDeque::clear);
        let bridge = &self.bridges[index];
        for (host, key) in bridge.hosts.into_iter().zip(bridge.ends) {
            let now = self.now.plus_ns(self.ahead_ns[host % 2]);
            let Host { engine, heaps } = &mut self.hosts[host];
            engine.grpc_lost(&mut Turn { now, heaps }, key, "cut");
        }
    }

    fn happen(&mut self, host: usize, key: GrpcKey, event: Event) {
        let now = self.clock(host);
        let Host { engine, heaps } = &mut self.hosts[host];
        engine.handle_http(&mut Turn { now, heaps }, key, now, event).unwrap();
    }
}

/// The name the other end has for a stream.
fn other(stream: StreamTag) -> StreamTag {
    StreamTag(stream.0 ^ StreamTag::OWN)
}

fn under(command: Command) -> Option<Under> {
    let mut sent = None;
    let event = match command {
        Command::Request { stream, head, end } => Event::Request { stream: other(stream), head, end },
        Command::Response { stream, head, end } => Event::Response { stream: other(stream), head, end },
        Command::Data { stream, bytes, end } => {
            sent = Some((stream, bytes.len()));
            Event::Data { stream: other(stream), bytes, end }
        }
        Command::Trailers { stream, trailers } | Command::CutOff { stream, trailers } => {
            Event::Trailers { stream: other(stream), trailers }
        }
        Command::Reset { stream, reason } => {
            Event::Reset { stream: other(stream), reason, by: ResetBy::Peer }
        }
        Command::GoAway => {
            Event::GoAway { reason: trunkline_grpc::Reason::NO_ERROR, debug: bytes::Bytes::new() }
        }
        Command::Release { .. } | Command::Close { .. } => return None,
    };
    Some(Under { event, sent })
}
