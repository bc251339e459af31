//! Shows that a chain of calls, each made by the handler of the one before it, ends however it is ended and however
//! deep it is: three sessions call each other in turn until each has made all the calls it may, on one shard and on
//! three.

mod world;

use std::sync::Arc;
use trunkline_call::entry::{Completion, Submission};
use trunkline_call::{CallId, Code, Deadline};
use trunkline_engine::{BindRequest, BoundSchema, Limits, SessionKey};
use trunkline_schema::Schema;
use world::*;

/// Calls each session makes: its limit, but for a few.
const CALLS_EACH: usize = 4_090;
const SESSIONS: usize = 3;
/// When the deadline of all of them passes.
const DEADLINE_NS: u64 = 1_000_000_000;
const LINKS: usize = CALLS_EACH * SESSIONS;

/// Each session serves one, and calls the next.
const PROTO_OF_THREE: &str = r#"
syntax = "proto3";
package world;
message Blob { bytes data = 1; }
service Zero { rpc Chat(stream Blob) returns (stream Blob); }
service One { rpc Chat(stream Blob) returns (stream Blob); }
service Two { rpc Chat(stream Blob) returns (stream Blob); }
"#;
const SERVICES: [&str; SESSIONS] = ["world.Zero", "world.One", "world.Two"];

/// How a chain is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    /// Whoever made the first call gives it up.
    Cancelled,
    /// Whoever made the first call dies.
    ClientDies,
    /// One of the sessions that serve dies.
    ServerDies(usize),
    /// The deadline of all of them passes.
    Deadline,
}

struct Chain {
    world: World,
    client: App,
    servers: Vec<App>,
    /// The first call, as its caller knows it and as its handler does.
    head: [CallId; 2],
}

impl Chain {
    /// `shards` of them, on which the sessions sit in turn.
    fn on(shards: usize) -> Self {
        let mut world = World::with_shards(Limits::default(), shards);
        let host = |index: usize| 2 * (index % shards);
        let schema = Schema::from_proto_source("three.proto", PROTO_OF_THREE).unwrap();
        let schema = Arc::new(BoundSchema::new(schema));
        let mut attach = |index: usize, serves: &[String], calls: usize| {
            world.placed = Some(host(index));
            let mut app = world.attach(0, PROTO, None, false);
            let calls = [(format!("/{}/Chat", SERVICES[calls]), None)];
            let request = BindRequest { schema: Some(&schema), serves, calls: &calls, permitted: &[] };
            app.routes = world.hosts[app.host].engine.bind(app.key, &request).unwrap().calls;
            app.schema = Arc::clone(&schema);
            while world.cross_shards(usize::MAX) {}
            app
        };
        let servers = (0..SESSIONS)
            .map(|index| attach(index, &[SERVICES[index].to_owned()], (index + 1) % SESSIONS))
            .collect();
        let client = attach(0, &[], 0);
        let mut chain = Self { world, client, servers, head: [CallId(0); 2] };
        chain.grow();
        chain
    }

    fn grow(&mut self) {
        let deadline = Deadline::at(self.world.now.plus_ns(DEADLINE_NS));
        let mut parent = CallId(0);
        for link in 0..=LINKS {
            let maker = match link {
                0 => &mut self.client,
                link => &mut self.servers[(link - 1) % SESSIONS],
            };
            let mut call = maker.call(0, None, true);
            (call.parent, call.deadline) = (parent, deadline);
            self.world.submit(maker, Submission::Call(call)).unwrap();
            let made = call.call;
            self.settle();
            parent = self.servers[link % SESSIONS].take_call().call;
            if link == 0 {
                self.head = [made, parent];
            }
        }
    }

    fn settle(&mut self) {
        let [a, b, c] = self.servers.as_mut_slice() else { unreachable!("three sessions") };
        self.world.settle(&mut [&mut self.client, a, b, c]);
    }

    /// Ends it. The codes the calls of those who are there ended with.
    fn end(mut self, ends: Ends) -> Vec<Code> {
        let mut gone = None;
        match ends {
            Ends::Cancelled => {
                self.world.submit(&self.client, Submission::Cancel { call: self.head[0] }).unwrap();
            }
            Ends::ClientDies => {
                self.world.detach(&self.client);
                gone = Some((self.client.host, self.client.key));
            }
            Ends::ServerDies(index) => {
                self.world.detach(&self.servers[index]);
                gone = Some((self.servers[index].host, self.servers[index].key));
            }
            Ends::Deadline => {
                self.world.now = self.world.now.plus_ns(DEADLINE_NS);
                self.world.fire();
            }
        }
        let mut codes = self.rest(gone);
        if ends == Ends::ServerDies(1) {
            // The first handler's own call has failed, and it says so.
            let failed = finish(self.head[1], Code::Aborted, None);
            self.world.submit(&self.servers[0], Submission::Finish(failed)).unwrap();
            codes.extend(self.rest(gone));
        }
        assert_eq!(self.world.leftovers(), (0, 0), "{ends:?}");
        self.goes_on();
        codes
    }

    /// Goes on until nothing happens any more.
    fn rest(&mut self, gone: Option<(usize, SessionKey)>) -> Vec<Code> {
        let mut codes = Vec::new();
        loop {
            self.settle();
            let mut any = false;
            for app in std::iter::once(&mut self.client).chain(&mut self.servers) {
                for completion in app.take() {
                    any = true;
                    let Completion::Finish(finish) = completion else { continue };
                    if gone != Some((app.host, app.key)) {
                        codes.push(finish.code);
                        self.world.submit(app, release(finish.call, None, finish.metadata, 9)).unwrap();
                    }
                }
            }
            if !self.world.fire() && !any {
                return codes;
            }
        }
    }

    /// Calls of others are served as ever.
    fn goes_on(&mut self) {
        let mut server = self.world.attach(0, PROTO, None, true);
        let mut client = self.world.attach(0, PROTO, None, false);
        let payload = self.world.blob(&mut client, b"after");
        let call = client.call(0, Some(payload), true);
        self.world.submit(&client, Submission::Call(call)).unwrap();
        self.world.settle(&mut [&mut client, &mut server]);
        let delivered = server.take_call();
        assert_eq!(self.world.data(&server, delivered.payload.unwrap()), b"after");
    }
}

fn every_call_ends(shards: usize) {
    for ends in [Ends::Cancelled, Ends::ClientDies, Ends::ServerDies(0), Ends::ServerDies(1), Ends::Deadline]
    {
        let codes = Chain::on(shards).end(ends);
        let (made, known) = match ends {
            // Whoever gives a call up hears no more of it.
            Ends::Cancelled | Ends::ClientDies => (LINKS, vec![Code::Cancelled]),
            Ends::ServerDies(_) => {
                (LINKS + 1 - CALLS_EACH, vec![Code::Unavailable, Code::Cancelled, Code::Aborted])
            }
            Ends::Deadline => (LINKS + 1, vec![Code::DeadlineExceeded]),
        };
        assert_eq!(codes.len(), made, "{ends:?}");
        assert!(codes.iter().all(|code| known.contains(code)), "{ends:?}");
    }
}

#[test]
fn every_call_of_a_chain_ends() {
    every_call_ends(1);
}

#[test]
fn every_call_of_a_chain_over_shards_ends() {
    every_call_ends(SESSIONS);
}
