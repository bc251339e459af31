//! A gRPC client or server as an engine sees it: events in, commands out. It holds the engine to the rules of the
//! surface (one head per stream, nothing behind an end) and counts windows as an HTTP/2 connection would.

use super::{Host, World};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use std::collections::{BTreeMap, VecDeque};
use trunkline_engine::{CallRights, CallRule, Engine, GrpcKey, PeerIdentity, Turn};
use trunkline_grpc::{Command, Event, Reason, ResetBy, StreamTag};

/// How an engine takes in a client whose user is known.
pub type Accept = fn(&mut Engine, String, PeerIdentity, CallRights) -> GrpcKey;

/// One connection.
pub struct Web {
    pub host: usize,
    pub key: GrpcKey,
    /// What was dialled.
    pub endpoint: String,
    pub up: bool,
    /// What the engine said and the test has not looked at.
    pub said: VecDeque<Command>,
    /// Queued bytes leave as soon as the world settles; otherwise when the test says so.
    pub reads: bool,
    pub streams: BTreeMap<u64, Stream>,
}

/// One stream, from this side.
#[derive(Debug, Default)]
pub struct Stream {
    /// Body bytes sent to the engine and not given back.
    pub unreleased: usize,
    /// Body bytes of the engine that have not left.
    pub unsent: usize,
    headed: bool,
    ended: bool,
    /// This side has ended it with trailers.
    answered: bool,
    /// The stream is over for this side: it was reset.
    pub reset: bool,
    /// The answer to the engine's request has ended: what of the request has not left was dropped.
    heard: bool,
}

/// An answer, or a request, taken apart.
#[derive(Debug, Default)]
pub struct Said {
    pub head: HeaderMap,
    pub status: u16,
    pub path: String,
    /// Whom a request says it is for.
    pub authority: String,
    /// Messages: (compressed, bytes).
    pub messages: Vec<(bool, Vec<u8>)>,
    /// The body of what is not gRPC.
    pub text: Vec<u8>,
    /// Trailers, or the head if that was all.
    pub trailers: Option<HeaderMap>,
    /// The body has ended.
    pub ended: bool,
    pub reset: Option<Reason>,
}

impl Web {
    pub fn new(host: usize, key: GrpcKey) -> Self {
        let endpoint = String::new();
        Self { host, key, endpoint, up: true, said: VecDeque::new(), reads: true, streams: BTreeMap::new() }
    }

    /// The newest stream the engine opened.
    #[track_caller]
    pub fn newest(&self) -> StreamTag {
        StreamTag(*self.streams.keys().next_back().expect("a stream was opened"))
    }

    /// Forgets streams nothing more can be said about, so that long tests stay short.
    pub fn forget_done(&mut self) {
        let done = |stream: &Stream| stream.reset || stream.answered && stream.ended && stream.unsent == 0;
        self.streams.retain(|_, stream| !done(stream) || stream.unreleased > 0);
    }

    /// Streams that wait for an answer.
    pub fn open(&self) -> impl Iterator<Item = StreamTag> {
        let open = self.streams.iter().filter(|(_, stream)| !stream.reset && !stream.answered);
        open.map(|(tag, _)| StreamTag(*tag))
    }

    /// Streams the engine has not ended.
    pub fn unanswered(&self) -> Vec<StreamTag> {
        let open = self.streams.iter().filter(|(_, stream)| !stream.reset && !stream.ended);
        open.map(|(tag, _)| StreamTag(*tag)).collect()
    }

    /// What the engine said on a stream since the last look.
    pub fn take(&mut self, tag: StreamTag) -> Said {
        let mut said = Said::default();
        let (mut body, mut rest) = (Vec::new(), VecDeque::new());
        for command in self.said.drain(..) {
            match command {
                Command::Request { stream, head, end } if stream == tag => {
                    (said.path, said.ended) = (head.uri.path().to_owned(), end);
                    said.authority = head.uri.authority().map(ToString::to_string).unwrap_or_default();
                    said.head = head.headers;
                }
                Command::Response { stream, head, end } if stream == tag => {
                    (said.status, said.ended) = (head.status.as_u16(), end);
                    said.trailers = end.then(|| head.headers.clone());
                    said.head = head.headers;
                }
                Command::Data { stream, bytes, end } if stream == tag => {
                    body.extend_from_slice(&bytes);
                    said.ended |= end;
                }
                Command::Trailers { stream, trailers } if stream == tag => {
                    (said.trailers, said.ended) = (Some(trailers), true);
                }
                Command::CutOff { stream, trailers } if stream == tag => {
                    body.clear();
                    (said.trailers, said.ended) = (Some(trailers), true);
                }
                Command::Reset { stream, reason } if stream == tag => said.reset = Some(reason),
                Command::Release { stream, .. } if stream == tag => {}
                other => rest.push_back(other),
            }
        }
        self.said = rest;
        // Only gRPC's own answers are messages; others are words for a person.
        match said.status {
            0 | 200 => said.messages = messages(&body),
            _ => said.text = body,
        }
        said
    }

    /// Whether the engine said to close, and with which code.
    pub fn closed(&self) -> Option<Reason> {
        self.said.iter().find_map(|command| match command {
            Command::Close { reason } => Some(*reason),
            _ => None,
        })
    }

    /// The engine's commands, held to the rules of the surface.
    fn note(&mut self, command: Command) {
        let (tag, bytes) = match &command {
            Command::GoAway | Command::Close { .. } => return self.said.push_back(command),
            Command::Release { stream, bytes } => {
                let stream = self.streams.get_mut(&stream.0).expect("only what came is released");
                stream.unreleased =
                    stream.unreleased.checked_sub(*bytes).expect("no more than came is released");
                return self.said.push_back(command);
            }
            Command::Request { stream, .. } => {
                let fresh = self.streams.insert(stream.0, Stream { headed: true, ..Stream::default() });
                assert!(fresh.is_none(), "{stream:?} is opened twice");
                (*stream, 0)
            }
            Command::Data { stream, bytes, .. } => (*stream, bytes.len()),
            Command::Response { stream, .. }
            | Command::Trailers { stream, .. }
            | Command::CutOff { stream, .. }
            | Command::Reset { stream, .. } => (*stream, 0),
        };
        let stream = self.streams.get_mut(&tag.0).expect("commands name streams that are known");
        if matches!(command, Command::Reset { .. }) {
            (stream.ended, stream.reset, stream.unsent) = (true, true, 0);
            return self.said.push_back(command);
        }
        if matches!(command, Command::CutOff { .. }) {
            // It may have ended, as long as not all of it has left.
            assert!(stream.headed && (!stream.ended || stream.unsent > 0), "{command:?} cuts nothing off");
            (stream.ended, stream.unsent) = (true, 0);
            return self.said.push_back(command);
        }
        assert!(!stream.ended, "nothing follows an end: {command:?}");
        assert!(!stream.heard, "nobody asks on after the answer: {command:?}");
        match &command {
            Command::Response { end, .. } => {
                assert!(!std::mem::replace(&mut stream.headed, true), "a response has one head");
                stream.ended = *end;
            }
            Command::Request { end, .. } => stream.ended = *end,
            Command::Data { end, .. } => {
                assert!(stream.headed, "a body follows its head");
                stream.ended = *end;
                stream.unsent += bytes;
            }
            Command::Trailers { .. } => {
                assert!(stream.headed, "trailers follow a head");
                stream.ended = true;
            }
            _ => {}
        }
        self.said.push_back(command);
    }
}

impl Stream {
    /// As a connection does with what of a request has not left when its answer has ended.
    fn hear_end(&mut self, tag: StreamTag, end: bool) {
        if end && tag.0 & StreamTag::OWN != 0 {
            (self.heard, self.unsent) = (true, 0);
        }
    }
}

impl World {
    /// A gRPC client connects to a host.
    pub fn web(&mut self, host: usize) -> usize {
        let label = format!("tcp://10.0.0.{}:4711", self.webs.len() + 1);
        self.web_from(host, label)
    }

    /// One that comes from this address.
    pub fn web_from(&mut self, host: usize, label: String) -> usize {
        let key = self.hosts[host].engine.http().accept(label, PeerIdentity::default());
        self.webs.push(Web::new(host, key));
        self.webs.len() - 1
    }

    /// A gRPC client connects to a host's gateway, as somebody who may call what these rules say.
    pub fn web_at_gateway(&mut self, host: usize, rules: &[(&str, bool)]) -> usize {
        self.web_of_user(host, rules, |engine, label, who, rights| {
            engine.http().accept_at_gateway(label, who, rights)
        })
    }

    /// A client whose user is known, taken in one way or another.
    pub fn web_of_user(&mut self, host: usize, rules: &[(&str, bool)], accept: Accept) -> usize {
        let label = format!("tcp://10.0.0.{}:4711", self.webs.len() + 1);
        let rules =
            rules.iter().map(|(service, permits)| CallRule { service: (*service).into(), permits: *permits });
        let client = CallRights { who: "uid 7, gid 7".into(), rules: rules.collect() };
        let identity = PeerIdentity { names: vec!["uid:7".into()], ..PeerIdentity::default() };
        let key = accept(&mut self.hosts[host].engine, label, identity, client);
        self.webs.push(Web::new(host, key));
        self.webs.len() - 1
    }

    /// Something happens on a connection.
    pub fn http(&mut self, web: usize, event: Event) {
        if !self.webs[web].up {
            return;
        }
        // What the engine said before this is on its way already.
        self.hear();
        let (host, key) = (self.webs[web].host, self.webs[web].key);
        match &event {
            Event::Request { stream, .. } => {
                self.webs[web].streams.insert(stream.0, Stream::default());
            }
            Event::Data { stream, bytes, end } => {
                let found = self.webs[web].streams.entry(stream.0).or_default();
                found.unreleased += bytes.len();
                found.hear_end(*stream, *end);
            }
            Event::Trailers { stream, .. } | Event::Response { stream, end: true, .. } => {
                let found = self.webs[web].streams.entry(stream.0).or_default();
                found.answered = true;
                found.hear_end(*stream, true);
            }
            Event::Reset { stream, .. } => {
                let stream = self.webs[web].streams.entry(stream.0).or_default();
                (stream.ended, stream.reset, stream.unsent) = (true, true, 0);
            }
            _ => {}
        }
        let now = self.clock(host);
        let Host { engine, heaps } = &mut self.hosts[host];
        engine.handle_http(&mut Turn { now, heaps }, key, now, event).unwrap();
    }

    /// A client opens a stream.
    pub fn request(
        &mut self,
        web: usize,
        stream: StreamTag,
        path: &str,
        headers: &[(&str, &str)],
        end: bool,
    ) {
        let uri = format!("http://host{path}");
        let (mut head, ()) = Request::post(uri).body(()).unwrap().into_parts();
        head.headers = header_map(&[("content-type", "application/grpc"), ("te", "trailers")]);
        head.headers.extend(header_map(headers));
        self.http(web, Event::Request { stream, head: Box::new(head), end });
    }

    /// A server answers.
    pub fn answer(
        &mut self,
        web: usize,
        stream: StreamTag,
        status: u16,
        headers: &[(&str, &str)],
        end: bool,
    ) {
        let (mut head, ()) = Response::builder().status(status).body(()).unwrap().into_parts();
        head.headers = header_map(&[("content-type", "application/grpc")]);
        head.headers.extend(header_map(headers));
        self.http(web, Event::Response { stream, head: Box::new(head), end });
    }

    pub fn body(&mut self, web: usize, stream: StreamTag, bytes: &[u8], end: bool) {
        self.http(web, Event::Data { stream, bytes: Bytes::copy_from_slice(bytes), end });
    }

    pub fn trailers(&mut self, web: usize, stream: StreamTag, trailers: &[(&str, &str)]) {
        self.http(web, Event::Trailers { stream, trailers: header_map(trailers) });
    }

    /// A whole unary answer.
    pub fn respond(&mut self, web: usize, tag: StreamTag, data: &[u8]) {
        self.answer(web, tag, 200, &[], false);
        self.body(web, tag, &blob(data), false);
        self.trailers(web, tag, &[("grpc-status", "0")]);
    }

    /// Once everything has settled: no call has left anything behind, neither here nor in a window of a peer.
    #[track_caller]
    pub fn nothing_left(&mut self) {
        self.advance(1);
        assert_eq!(self.leftovers(), (0, 0), "calls and receive blocks left");
        assert_eq!(self.unreleased(), 0, "body bytes not given back to their sender's window");
        let rows = self.hosts[0].engine.snapshot().peers;
        assert!(rows.iter().all(|row| (row.streams, row.queued_bytes) == (0, 0)), "{rows:?}");
    }

    pub fn reset(&mut self, web: usize, stream: StreamTag, reason: Reason) {
        self.http(web, Event::Reset { stream, reason, by: ResetBy::Peer });
    }

    /// Lets so many queued bytes of a stream leave.
    pub fn leave(&mut self, web: usize, tag: StreamTag, bytes: usize) {
        // What the engine has cut off by now does not leave.
        self.hear();
        let Some(stream) = self.webs[web].streams.get_mut(&tag.0) else { return };
        let bytes = bytes.min(stream.unsent);
        stream.unsent -= bytes;
        self.http(web, Event::Sent { stream: tag, bytes });
    }

    /// Cuts a connection.
    pub fn hang_up(&mut self, web: usize) {
        let (host, key) = (self.webs[web].host, self.webs[web].key);
        if std::mem::replace(&mut self.webs[web].up, false) {
            let now = self.clock(host);
            let Host { engine, heaps } = &mut self.hosts[host];
            engine.grpc_lost(&mut Turn { now, heaps }, key, "hung up");
        }
    }

    /// Body bytes of all connections that are up and that the engine has not released.
    pub fn unreleased(&self) -> usize {
        let up = self.webs.iter().filter(|web| web.up);
        up.flat_map(|web| web.streams.values()).map(|stream| stream.unreleased).sum()
    }

    /// Hears what engines say to their HTTP/2 connections. Whether there was anything.
    pub(super) fn hear(&mut self) -> bool {
        let mut moved = false;
        for host in 0..self.hosts.len() {
            while let Some((key, command)) = self.hosts[host].engine.http().poll() {
                moved = true;
                let Some(command) = self.cross(host, key, command) else { continue };
                let found = self.webs.iter_mut().find(|web| web.host == host && web.key == key && web.up);
                if let Some(web) = found {
                    web.note(command);
                }
            }
        }
        moved
    }

    /// Lets queued bytes leave on every connection that reads. Whether there were any.
    pub(super) fn flush_webs(&mut self) -> bool {
        let mut moved = false;
        for web in 0..self.webs.len() {
            moved |= self.webs[web].reads && self.flush(web);
        }
        moved
    }

    fn flush(&mut self, web: usize) -> bool {
        let waiting = self.webs[web].streams.iter().filter(|(_, stream)| stream.unsent > 0);
        let waiting: Vec<_> = waiting.map(|(tag, stream)| (StreamTag(*tag), stream.unsent)).collect();
        for (tag, bytes) in &waiting {
            self.leave(web, *tag, *bytes);
        }
        !waiting.is_empty()
    }
}

impl Said {
    /// The status it ended with.
    #[track_caller]
    pub fn code(&self) -> u32 {
        let trailers = self.trailers.as_ref().unwrap_or_else(|| panic!("it has ended: {self:?}"));
        trailers["grpc-status"].to_str().unwrap().parse().unwrap()
    }

    /// What it says to a person.
    pub fn message(&self) -> &str {
        let message = self.trailers.as_ref().and_then(|trailers| trailers.get("grpc-message"));
        message.map_or("", |message| message.to_str().unwrap())
    }
}

/// Headers of text.
pub fn header_map(pairs: &[(&str, &str)]) -> HeaderMap {
    let pair = |(name, value): &(&str, &str)| {
        (HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap())
    };
    pairs.iter().map(pair).collect()
}

/// A message behind its prefix.
pub fn framed(message: &[u8]) -> Vec<u8> {
    let mut out = vec![0];
    out.extend((message.len() as u32).to_be_bytes());
    out.extend(message);
    out
}

/// `Blob { data }` as a gRPC message.
pub fn blob(data: &[u8]) -> Vec<u8> {
    framed(&super::wire_of(data))
}

fn messages(mut body: &[u8]) -> Vec<(bool, Vec<u8>)> {
    let mut out = Vec::new();
    while let Some((prefix, rest)) = body.split_at_checked(5) {
        let len = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize;
        let (message, rest) = rest.split_at(len);
        out.push((prefix[0] == 1, message.to_vec()));
        body = rest;
    }
    out
}
