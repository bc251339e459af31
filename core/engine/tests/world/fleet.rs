//! One caller and many gRPC servers that behave as a test says, under virtual time: thousands of calls in a blink.

use super::{App, PROTO, World, release, web::Web};
use std::collections::{BTreeMap, HashMap};
use trunkline_call::entry::{Completion, Submission};
use trunkline_call::{CallId, Code, Deadline, Execution, Instant};
use trunkline_engine::Limits;
use trunkline_grpc::service_config::ServiceConfig;
use trunkline_grpc::{Command, Event, Reason, StreamTag};
use trunkline_policy::Random;

pub const MS: u64 = 1_000_000;
const SERVICE: &str = "world.Echo";

/// What a server does with a call.
#[derive(Clone, Debug)]
pub struct Answer {
    pub after_ns: u64,
    pub code: Code,
    /// Says so before it ends.
    pub headers: bool,
    pub trailers: Vec<(String, String)>,
    /// Ends the stream as one it has not seen.
    pub refuse: bool,
}

/// How a server behaves: asked for every call with its number there and chance.
pub type Behaviour = Box<dyn FnMut(usize, &mut Random) -> Answer>;

/// A call that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    pub code: Code,
    pub execution: Execution,
    pub after_ns: u64,
}

pub struct Fleet {
    pub world: World,
    pub client: App,
    pub servers: Vec<Behaviour>,
    /// Calls each server has seen.
    pub seen: Vec<usize>,
    /// Streams of each the caller has given up.
    pub cancelled: Vec<usize>,
    /// What requests said about attempts before them.
    pub previous: Vec<String>,
    /// The parents requests named.
    pub parents: Vec<String>,
    /// How requests said they are compressed.
    pub encodings: Vec<String>,
    pub ended: Vec<Ended>,
    random: Random,
    begun: HashMap<CallId, Instant>,
    due: BTreeMap<(u64, usize), (usize, StreamTag, Answer)>,
    ready: Vec<bool>,
    sequence: usize,
}

/// Answers after so long.
pub fn after(ns: u64, code: Code) -> Answer {
    Answer { after_ns: ns, code, headers: false, trailers: Vec::new(), refuse: false }
}

/// Always the same.
pub fn always(answer: Answer) -> Behaviour {
    Box::new(move |_, _| answer.clone())
}

pub fn endpoint(index: usize) -> String {
    format!("tcp://10.0.0.{index}:80")
}

impl Fleet {
    pub fn new(servers: Vec<Behaviour>, service_config: &str) -> Self {
        Self::with_limits(servers, service_config, Limits::default())
    }

    pub fn with_limits(servers: Vec<Behaviour>, service_config: &str, limits: Limits) -> Self {
        let mut world = World::with_limits(limits);
        world.foreign = true;
        let client = world.attach(0, PROTO, None, false);
        let endpoints: Vec<String> = (0..servers.len()).map(endpoint).collect();
        world.hosts[0].engine.seed(11);
        world.hosts[0].engine.configure_service(SERVICE, &endpoints).unwrap();
        let count = servers.len();
        let mut fleet = Self {
            world,
            client,
            servers,
            seen: vec![0; count],
            cancelled: vec![0; count],
            previous: Vec::new(),
            parents: Vec::new(),
            encodings: Vec::new(),
            ended: Vec::new(),
            random: Random::new(5),
            begun: HashMap::new(),
            due: BTreeMap::new(),
            ready: Vec::new(),
            sequence: 0,
        };
        fleet.configure(service_config);
        fleet
    }

    pub fn configure(&mut self, service_config: &str) {
        let config = ServiceConfig::parse(service_config).unwrap();
        self.world.hosts[0].engine.configure_calls(SERVICE, config);
    }

    /// So many calls, one every `gap_ns`, and then rest.
    pub fn calls(&mut self, count: usize, gap_ns: u64) {
        for _ in 0..count {
            self.call(Deadline::NONE);
            self.run(gap_ns);
        }
        self.rest();
    }

    pub fn call(&mut self, deadline: Deadline) -> CallId {
        if self.client.next_offset > super::HEAP_BYTES / 2 {
            self.client.next_offset = 64;
        }
        let payload = self.world.blob(&mut self.client, b"hello");
        let call = self.client.call(0, Some(payload), true);
        let call = trunkline_call::entry::Call { deadline, ..call };
        self.begun.insert(call.call, self.world.now);
        self.world.submit(&self.client, Submission::Call(call)).unwrap();
        self.settle();
        call.call
    }

    /// The application does not want a call any more.
    pub fn cancel(&mut self, call: CallId) {
        if self.begun.remove(&call).is_some() {
            self.world.submit(&self.client, Submission::Cancel { call }).unwrap();
            self.settle();
        }
    }

    /// A connection breaks.
    pub fn hang_up(&mut self, web: usize) {
        self.due.retain(|_, (at, _, _)| *at != web);
        self.world.hang_up(web);
        self.settle();
    }

    /// Lets time pass, stopping wherever something is due.
    pub fn run(&mut self, ns: u64) {
        let until = self.world.now.plus_ns(ns);
        while let Some(at) = self.next().filter(|at| *at <= until) {
            self.step_to(at);
        }
        self.step_to(until);
    }

    /// Until nothing is due any more.
    pub fn rest(&mut self) {
        while !self.begun.is_empty() || !self.due.is_empty() {
            let Some(at) = self.next() else { break };
            self.step_to(at);
        }
        assert!(self.begun.is_empty(), "calls without an end: {:?}", self.begun);
        assert_eq!(self.world.leftovers(), (0, 0));
    }

    /// The latency so many percent of the calls do not exceed.
    pub fn quantile(&self, percent: f64) -> u64 {
        let mut all: Vec<u64> = self.ended.iter().map(|ended| ended.after_ns).collect();
        all.sort_unstable();
        all[((all.len() as f64 * percent / 100.0) as usize).min(all.len() - 1)]
    }

    pub fn count(&self, code: Code) -> usize {
        self.ended.iter().filter(|ended| ended.code == code).count()
    }

    pub fn attempts(&self) -> usize {
        self.seen.iter().sum()
    }

    fn next(&mut self) -> Option<Instant> {
        let answer = self.due.keys().next().map(|(at, _)| Instant(*at));
        let timer = self.world.hosts[0].engine.next_timeout();
        answer.into_iter().chain(timer).min()
    }

    fn step_to(&mut self, at: Instant) {
        let ns = at.since_ns(self.world.now);
        self.world.advance(ns);
        while let Some(key) = self.due.keys().next().copied().filter(|(due, _)| *due <= self.world.now.0) {
            let (web, tag, answer) = self.due.remove(&key).unwrap();
            self.answer(web, tag, &answer);
        }
        self.settle();
    }

    fn settle(&mut self) {
        loop {
            self.world.settle(&mut [&mut self.client]);
            if !self.greet() & !self.hear() {
                break;
            }
        }
        self.world.webs.iter_mut().for_each(Web::forget_done);
        for completion in self.client.take() {
            let Completion::Finish(finish) = completion else { continue };
            let begun = self.begun.remove(&finish.call).expect("a call ends once");
            let after_ns = self.world.now.since_ns(begun);
            self.ended.push(Ended { code: finish.code, execution: finish.execution, after_ns });
            let end = release(finish.call, finish.payload, finish.metadata, self.world.now.0);
            self.world.submit(&self.client, end).unwrap();
        }
    }

    /// Servers take connections.
    fn greet(&mut self) -> bool {
        let fresh = self.ready.len()..self.world.webs.len();
        for web in fresh.clone() {
            self.ready.push(true);
            self.world.http(web, Event::Ready { streams_max: 1 << 20 });
        }
        !fresh.is_empty()
    }

    /// Servers take requests.
    fn hear(&mut self) -> bool {
        let mut heard = false;
        for web in 0..self.world.webs.len() {
            let server = server_of(&self.world.webs[web]);
            for command in std::mem::take(&mut self.world.webs[web].said) {
                match command {
                    Command::Request { stream, head, .. } => {
                        heard = true;
                        let answer = (self.servers[server])(self.seen[server], &mut self.random);
                        self.seen[server] += 1;
                        let previous = head.headers.get("grpc-previous-rpc-attempts");
                        self.previous.extend(previous.map(|value| value.to_str().unwrap().to_owned()));
                        let parent = head.headers.get("traceparent");
                        self.parents.extend(parent.map(|value| value.to_str().unwrap().to_owned()));
                        let encoding = head.headers.get("grpc-encoding");
                        self.encodings.push(encoding.map_or("", |value| value.to_str().unwrap()).to_owned());
                        self.sequence += 1;
                        let at = self.world.now.plus_ns(answer.after_ns);
                        self.due.insert((at.0, self.sequence), (web, stream, answer));
                    }
                    Command::Reset { stream, .. } => {
                        let before = self.due.len();
                        self.due.retain(|_, (at, tag, _)| *at != web || *tag != stream);
                        self.cancelled[server] += before - self.due.len();
                    }
                    _ => {}
                }
            }
        }
        heard
    }

    fn answer(&mut self, web: usize, tag: StreamTag, answer: &Answer) {
        if answer.refuse {
            return self.world.reset(web, tag, Reason::REFUSED_STREAM);
        }
        let status = answer.code.number().to_string();
        let mut trailers = vec![("grpc-status", status.as_str())];
        trailers.extend(answer.trailers.iter().map(|(key, value)| (key.as_str(), value.as_str())));
        if answer.code != Code::Ok && !answer.headers {
            return self.world.answer(web, tag, 200, &trailers, true);
        }
        self.world.answer(web, tag, 200, &[], false);
        if answer.code == Code::Ok {
            self.world.body(web, tag, &super::web::blob(b"hello back"), false);
        }
        self.world.trailers(web, tag, &trailers);
    }
}

fn server_of(web: &Web) -> usize {
    let host = web.endpoint.rsplit_once(".").unwrap().1;
    host.trim_end_matches(":80").parse().unwrap()
}
