//! A thread that carries calls between the sessions attached to it.

use super::peer::{Peer, finish};
use rustix::fd::AsFd;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use tempfile::TempDir;
use trunkline_call::entry::{Call, Completion, Finish, Payload, Span, Submission};
use trunkline_call::{CallId, Code, Encoding, Execution, Instant};
use trunkline_shm::{ControlListener, SessionConfig, sleep_on};

/// A running relay; stops, and closes every session, when dropped or [stopped](Relay::stop).
pub struct Relay {
    dir: Option<TempDir>,
    leave: Arc<AtomicBool>,
    counts: Arc<Counts>,
    thread: Option<JoinHandle<u32>>,
}

/// Sessions given, those of them that called, and attaches turned away.
#[derive(Default)]
struct Counts {
    sessions: AtomicUsize,
    callers: AtomicUsize,
    refused: AtomicUsize,
}

/// Which session, and which call there.
type End = (usize, CallId);

struct Carrier {
    listener: ControlListener,
    peers: Vec<Option<Peer>>,
    /// The other end of each call, from either end.
    other: HashMap<End, End>,
    /// Whose window a block of a receive heap counts against.
    credit: HashMap<(usize, u32), (End, u32)>,
    next_id: u64,
    turn: usize,
    sessions_max: usize,
    callers: HashSet<usize>,
    counts: Arc<Counts>,
}

impl Relay {
    pub fn start(dir: TempDir, listener: ControlListener, sessions_max: usize) -> Self {
        let leave = Arc::new(AtomicBool::new(false));
        let counts = Arc::new(Counts::default());
        let carrier = Carrier::new(listener, sessions_max, Arc::clone(&counts));
        let told = Arc::clone(&leave);
        let thread = std::thread::spawn(move || carrier.run(&told));
        Self { dir: Some(dir), leave, counts, thread: Some(thread) }
    }

    /// Sessions given so far.
    pub fn sessions(&self) -> usize {
        self.counts.sessions.load(Ordering::Acquire)
    }

    /// Sessions that have called.
    pub fn callers(&self) -> usize {
        self.counts.callers.load(Ordering::Acquire)
    }

    /// Attaches turned away.
    pub fn refused(&self) -> usize {
        self.counts.refused.load(Ordering::Acquire)
    }

    pub fn path(&self) -> PathBuf {
        self.dir.as_ref().unwrap().path().join("daemon.sock")
    }

    /// Stops; sessions end. The place can be listened at again.
    pub fn stop(mut self) -> TempDir {
        self.end();
        self.dir.take().unwrap()
    }

    /// Stops, and tells how many bytes of receive heaps were not returned by applications still attached.
    pub fn stop_and_count(mut self) -> u32 {
        self.end()
    }

    fn end(&mut self) -> u32 {
        self.leave.store(true, Ordering::Release);
        self.thread.take().map_or(0, |thread| thread.join().unwrap())
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.end();
    }
}

impl Carrier {
    fn new(listener: ControlListener, sessions_max: usize, counts: Arc<Counts>) -> Self {
        listener.set_nonblocking(true).unwrap();
        Self {
            listener,
            peers: Vec::new(),
            other: HashMap::new(),
            credit: HashMap::new(),
            next_id: 0,
            turn: 0,
            sessions_max,
            callers: HashSet::new(),
            counts,
        }
    }

    fn run(mut self, leave: &AtomicBool) -> u32 {
        let mut idle = 0u32;
        while !leave.load(Ordering::Acquire) {
            self.turn += 1;
            let mut busy = self.turn.is_multiple_of(64) && self.accept();
            for index in 0..self.peers.len() {
                busy |= self.serve(index);
            }
            idle = if busy { 0 } else { idle + 1 };
            match idle {
                0..200 => {}
                200..2000 => rustix::thread::sched_yield(),
                _ => self.sleep(),
            }
        }
        for index in 0..self.peers.len() {
            self.serve(index);
        }
        self.peers.iter().flatten().map(|peer| peer.end.receive_heap.bytes_in_use()).sum()
    }

    fn sleep(&mut self) {
        let mut armed = true;
        for peer in self.peers.iter_mut().flatten() {
            armed &= peer.end.submissions.arm().unwrap();
        }
        if armed {
            let mut fds = vec![self.listener.as_fd()];
            fds.extend(self.peers.iter().flatten().map(|peer| peer.end.own_doorbell.as_fd()));
            // More sessions than fit are looked at when the time is up.
            fds.truncate(trunkline_shm::SLEEP_FDS_MAX);
            sleep_on(&fds, Some(2_000_000)).unwrap();
        }
        for peer in self.peers.iter_mut().flatten() {
            peer.end.submissions.disarm();
            peer.end.own_doorbell.quiet().unwrap();
        }
    }

    fn accept(&mut self) -> bool {
        let Ok(socket) = self.listener.accept() else { return false };
        if self.peers.len() >= self.sessions_max {
            self.counts.refused.fetch_add(1, Ordering::Release);
            return true;
        }
        self.counts.sessions.fetch_add(1, Ordering::Release);
        self.peers.push(Some(Peer::attach(socket, SessionConfig::default(), 1000)));
        true
    }

    fn serve(&mut self, index: usize) -> bool {
        let Some(peer) = &mut self.peers[index] else { return false };
        let mut busy = false;
        // Control only now and then: it costs a system call.
        let alive = !self.turn.is_multiple_of(64) || peer.answer_control();
        while let Some(peer) = &mut self.peers[index] {
            let Some(entry) = peer.end.submissions.pop().unwrap() else { break };
            busy = true;
            self.carry(index, Submission::decode(&entry).unwrap());
        }
        if !alive {
            self.lose(index);
        }
        busy
    }

    fn lose(&mut self, index: usize) {
        self.peers[index] = None;
        let gone: Vec<(End, End)> =
            self.other.iter().filter(|(end, _)| end.0 == index).map(|(a, b)| (*a, *b)).collect();
        for (end, other) in gone {
            self.forget(end);
            let lost = Finish { execution: Execution::Unknown, ..finish(other.1, Code::Unavailable, None) };
            let told = match other.1.is_delivered() {
                true => Completion::Cancelled { call: other.1, code: Code::Cancelled },
                false => Completion::Finish(lost),
            };
            self.tell(other.0, &told);
        }
    }

    fn carry(&mut self, from: usize, submission: Submission) {
        match submission {
            Submission::Call(call) => self.call(from, call),
            Submission::Message { call, payload, end, .. } => {
                if let Some(&to) = self.other.get(&(from, call)) {
                    let payload = self.copy((from, call), to.0, payload);
                    self.tell(to.0, &Completion::Message { call: to.1, payload, end });
                }
                self.freed(from, payload.span);
            }
            Submission::HalfClose { call } => {
                if let Some(&to) = self.other.get(&(from, call)) {
                    self.tell(to.0, &Completion::HalfClose { call: to.1 });
                }
            }
            Submission::Cancel { call } => {
                if let Some(to) = self.forget((from, call)) {
                    self.tell(to.0, &Completion::Cancelled { call: to.1, code: Code::Cancelled });
                }
            }
            Submission::Headers { call, metadata } => {
                if let Some(&to) = self.other.get(&(from, call)) {
                    let metadata = self.copy_span(from, to.0, metadata);
                    self.tell(to.0, &Completion::Headers { call: to.1, metadata });
                }
                self.freed(from, metadata);
            }
            Submission::Finish(end) => self.finish(from, end),
            Submission::Release { block, metadata, .. } => self.release(from, block, metadata),
            Submission::Drain { .. } => {
                self.peers[from].as_mut().unwrap().serves.clear();
                // Said early if calls are in hand; the application waits for their ends by itself.
                self.tell(from, &Completion::Drained);
            }
        }
    }

    fn call(&mut self, from: usize, call: Call) {
        if self.callers.insert(from) {
            self.counts.callers.fetch_add(1, Ordering::Release);
        }
        let path = self.peers[from].as_ref().unwrap().paths[call.route.0 as usize].clone();
        let start = self.next_id as usize;
        let count = self.peers.len();
        let serves = |peer: &Option<Peer>| peer.as_ref().is_some_and(|peer| !peer.serves.is_empty());
        let server = (0..count).map(|i| (start + i) % count).find(|&i| serves(&self.peers[i]));
        let Some(to) = server else {
            let nobody =
                Finish { execution: Execution::NotExecuted, ..finish(call.call, Code::Unavailable, None) };
            return self.tell(from, &Completion::Finish(nobody));
        };
        self.next_id += 1;
        let id = CallId(CallId::DELIVERED | self.next_id);
        self.other.insert((from, call.call), (to, id));
        self.other.insert((to, id), (from, call.call));
        let route = self.peers[to].as_ref().unwrap().route_of(&path).unwrap();
        let payload = call
            .payload
            .map(|payload| Payload::new(self.copy_span(from, to, payload.span), Encoding::Linear));
        let metadata = self.copy_span(from, to, call.metadata);
        let delivered = Call { route, call: id, payload, metadata, parent: CallId(0), ..call };
        self.tell(to, &Completion::Call(delivered));
        let blocks = [call.payload.map_or(0, |payload| payload.span.offset), call.metadata.offset];
        let blocks: Vec<u32> = blocks.into_iter().filter(|offset| *offset != 0).collect();
        self.peers[from].as_mut().unwrap().free(&blocks);
    }

    fn finish(&mut self, from: usize, end: Finish) {
        if let Some(to) = self.forget((from, end.call)) {
            let payload = end
                .payload
                .map(|payload| Payload::new(self.copy_span(from, to.0, payload.span), Encoding::Linear));
            let metadata = self.copy_span(from, to.0, end.metadata);
            let zero = Instant(0);
            let told = Finish { call: to.1, payload, metadata, taken: zero, published: zero, ..end };
            self.tell(to.0, &Completion::Finish(told));
        }
        let blocks = [end.payload.map_or(0, |payload| payload.span.offset), end.metadata.offset];
        let blocks: Vec<u32> = blocks.into_iter().filter(|offset| *offset != 0).collect();
        self.peers[from].as_mut().unwrap().free(&blocks);
    }

    fn release(&mut self, from: usize, block: Span, metadata: Span) {
        self.peers[from].as_mut().unwrap().take_back(block, metadata);
        if let Some((sender, bytes)) = self.credit.remove(&(from, block.offset)) {
            self.tell(sender.0, &Completion::Credit { call: sender.1, bytes });
        }
    }

    fn copy(&mut self, sender: End, to: usize, payload: Payload) -> Payload {
        let span = self.copy_span(sender.0, to, payload.span);
        self.credit.insert((to, span.offset), (sender, span.len));
        Payload::new(span, Encoding::Linear)
    }

    fn copy_span(&mut self, from: usize, to: usize, span: Span) -> Span {
        if span.len == 0 || self.peers[to].is_none() {
            return Span::default();
        }
        let bytes = self.peers[from].as_ref().unwrap().copy(span);
        self.peers[to].as_mut().unwrap().put(&bytes).span
    }

    fn freed(&mut self, peer: usize, span: Span) {
        if span.len > 0 {
            self.peers[peer].as_mut().unwrap().free(&[span.offset]);
        }
    }

    fn tell(&mut self, peer: usize, completion: &Completion) {
        if let Some(peer) = &mut self.peers[peer] {
            peer.complete(completion);
        }
    }

    fn forget(&mut self, end: End) -> Option<End> {
        let other = self.other.remove(&end)?;
        self.other.remove(&other);
        Some(other)
    }
}
