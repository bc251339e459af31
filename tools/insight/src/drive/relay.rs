//! Wires that are longer than this machine's: what comes out of one of these relays has been on its way for a while.
//!
//! A relay accepts connections for one address, and carries bytes both ways, in each for a fixed time. Whoever calls
//! chooses the relay whose time fits. One thread reads, another writes: each chunk when its time has come.

use super::timer::wake_on_time;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use trunkline_net::{Interest, Poller, Token};

/// Bytes read at once.
const CHUNK_BYTES: usize = 64 << 10;
/// Bytes under way in all relays, beyond which no more are read: they wait where they come from.
const BYTES_MAX: usize = 512 << 20;
/// Connections at once; further ones are closed.
const CONNECTIONS_MAX: usize = 4096;
/// Time to connect to the other end, which is of this host.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// A socket that takes nothing is tried again after this time, and a reader looks so often whether it is wanted.
const AGAIN: Duration = Duration::from_micros(200);
const LOOK_NS: u64 = 100_000_000;

/// How long each direction takes: there, back.
pub(super) type WireTimes = [Duration; 2];

/// Relays to one address. Their threads end when this is dropped.
#[derive(Debug)]
pub(super) struct Relays {
    addresses: Vec<SocketAddr>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    carried: Mutex<Carried>,
    changed: Condvar,
    /// Until then everything comes out at once: connections are made meanwhile.
    is_long: AtomicBool,
    is_over: AtomicBool,
}

/// What is under way: of each direction of a connection its chunks, and when the first is due.
#[derive(Debug, Default)]
struct Carried {
    pipes: BTreeMap<u64, Pipe>,
    due: BinaryHeap<Reverse<(Instant, u64)>>,
    bytes: usize,
}

#[derive(Debug)]
struct Pipe {
    to: TcpStream,
    /// An empty chunk is the end.
    chunks: VecDeque<(Instant, Vec<u8>)>,
    /// What was written of the first.
    written: usize,
}

impl Relays {
    /// One for each of these times; no thread without any.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn start(to: SocketAddr, times: &[WireTimes]) -> io::Result<Self> {
        let (shared, poller) = (Arc::new(Shared::default()), Poller::new()?);
        let mut listeners = Vec::with_capacity(times.len());
        for (number, times) in times.iter().enumerate() {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            listener.set_nonblocking(true)?;
            poller.add(&listener, Token(number as u64), Interest::Read)?;
            listeners.push((listener, *times));
        }
        let addresses: io::Result<Vec<_>> =
            listeners.iter().map(|(listener, _)| listener.local_addr()).collect();
        let addresses = addresses?;
        if addresses.is_empty() {
            return Ok(Self { addresses, shared });
        }
        let own = Arc::clone(&shared);
        std::thread::spawn(move || {
            wake_on_time();
            own.write();
        });
        let next = listeners.len() as u64;
        let mut reader =
            Reader { poller, listeners, to, ends: BTreeMap::new(), next, shared: Arc::clone(&shared) };
        std::thread::spawn(move || reader.run());
        Ok(Self { addresses, shared })
    }

    /// Where they listen, in the order of their times.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// From now on what is carried takes its time.
    pub fn lengthen(&self) {
        self.shared.is_long.store(true, Ordering::Relaxed);
    }
}

impl Drop for Relays {
    fn drop(&mut self) {
        // Between its look at this and its sleep the writer has the lock: it misses nothing.
        let _looks = self.shared.carried();
        self.shared.is_over.store(true, Ordering::Relaxed);
        self.shared.changed.notify_one();
    }
}

impl Shared {
    fn carried(&self) -> MutexGuard<'_, Carried> {
        self.carried.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what is due, until it is over.
    fn write(&self) {
        let mut carried = self.carried();
        while !self.is_over.load(Ordering::Relaxed) {
            let now = Instant::now();
            let next = carried.due.peek().map(|Reverse((at, _))| *at);
            carried = match next {
                None => self.changed.wait(carried).unwrap_or_else(PoisonError::into_inner),
                Some(at) if at > now => {
                    let waited = self.changed.wait_timeout(carried, at - now);
                    waited.map_or_else(|poisoned| poisoned.into_inner().0, |(carried, _)| carried)
                }
                Some(_) => {
                    if let Some(Reverse((_, pipe))) = carried.due.pop() {
                        carried.write_due(pipe, now);
                    }
                    carried
                }
            };
        }
    }

    fn push(&self, pipe: u64, at: Instant, chunk: Vec<u8>) {
        let mut carried = self.carried();
        let bytes = chunk.len();
        let Some(found) = carried.pipes.get_mut(&pipe) else { return };
        found.chunks.push_back((at, chunk));
        let is_first = found.chunks.len() == 1;
        carried.bytes += bytes;
        if is_first {
            carried.due.push(Reverse((at, pipe)));
            drop(carried);
            self.changed.notify_one();
        }
    }
}

impl Carried {
    /// Writes the chunks of a direction whose time has come, as far as its socket takes them.
    fn write_due(&mut self, number: u64, now: Instant) {
        let Some(pipe) = self.pipes.get_mut(&number) else { return };
        while let Some((at, chunk)) = pipe.chunks.front() {
            if *at > now {
                return self.due.push(Reverse((*at, number)));
            }
            if chunk.is_empty() {
                let _is_gone = pipe.to.shutdown(Shutdown::Write);
                return self.forget(number);
            }
            match pipe.to.write(&chunk[pipe.written..]) {
                Ok(count) => {
                    pipe.written += count;
                    self.bytes -= count;
                    if pipe.written == chunk.len() {
                        pipe.written = 0;
                        pipe.chunks.pop_front();
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return self.due.push(Reverse((now + AGAIN, number)));
                }
                Err(_) => {
                    let _is_gone = pipe.to.shutdown(Shutdown::Both);
                    return self.forget(number);
                }
            }
        }
    }

    fn forget(&mut self, number: u64) {
        let Some(pipe) = self.pipes.remove(&number) else { return };
        self.bytes -= pipe.chunks.iter().map(|(_, chunk)| chunk.len()).sum::<usize>() - pipe.written;
    }
}

/// The thread that reads: what comes from each end of a connection goes to the pipe of the same number.
struct Reader {
    poller: Poller,
    listeners: Vec<(TcpListener, WireTimes)>,
    to: SocketAddr,
    ends: BTreeMap<u64, (TcpStream, Duration)>,
    next: u64,
    shared: Arc<Shared>,
}

impl Reader {
    fn run(&mut self) {
        let mut ready = Vec::new();
        while !self.shared.is_over.load(Ordering::Relaxed) {
            if self.shared.carried().bytes >= BYTES_MAX {
                std::thread::sleep(AGAIN);
                continue;
            }
            ready.clear();
            if self.poller.wait(Some(LOOK_NS), &mut ready).is_err() {
                return;
            }
            for one in &ready {
                match usize::try_from(one.token.0).ok().filter(|number| *number < self.listeners.len()) {
                    Some(listener) => self.accept(listener),
                    None => self.read(one.token.0),
                }
            }
        }
    }

    fn accept(&mut self, number: usize) {
        let (listener, times) = &self.listeners[number];
        let times = *times;
        let Ok((near, _)) = listener.accept() else {
            // No descriptor may be left: it is still in line, and would be tried again at once.
            return std::thread::sleep(AGAIN);
        };
        let first = self.next;
        if self.ends.len() < 2 * CONNECTIONS_MAX
            && let Ok(far) = TcpStream::connect_timeout(&self.to, CONNECT_MAX)
            && self.join(near, far, times).is_err()
        {
            // Whoever has connected sees that it is closed: nothing of it stays open.
            for number in first..self.next {
                self.ends.remove(&number);
                self.shared.carried().pipes.remove(&number);
            }
        }
    }

    fn join(&mut self, near: TcpStream, far: TcpStream, times: WireTimes) -> io::Result<()> {
        for (from, to, time) in [(&near, &far, times[0]), (&far, &near, times[1])] {
            let (number, from) = (self.next, from.try_clone()?);
            self.next += 1;
            from.set_nodelay(true)?;
            from.set_nonblocking(true)?;
            self.poller.add(&from, Token(number), Interest::Read)?;
            self.ends.insert(number, (from, time));
            let pipe = Pipe { to: to.try_clone()?, chunks: VecDeque::new(), written: 0 };
            self.shared.carried().pipes.insert(number, pipe);
        }
        Ok(())
    }

    /// A chunk; what is behind it makes the end ready again.
    fn read(&mut self, number: u64) {
        let Some((from, time)) = self.ends.get_mut(&number) else { return };
        let mut chunk = vec![0; CHUNK_BYTES];
        let count = match from.read(&mut chunk) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return,
            read => read.unwrap_or(0),
        };
        chunk.truncate(count);
        chunk.shrink_to_fit();
        let time = if self.shared.is_long.load(Ordering::Relaxed) { *time } else { Duration::ZERO };
        if count == 0 {
            // Whoever writes there finds out by itself.
            let _was_there = self.poller.remove(&*from);
            self.ends.remove(&number);
        }
        self.shared.push(number, Instant::now() + time, chunk);
    }
}

#[cfg(test)]
mod tests {
    //! Shows that bytes come out whole, in their order, and when their time is over; and that an end is carried, too.
    use super::*;

    /// Sends back what comes, until its end.
    fn echo() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut back = stream.try_clone().unwrap();
                std::thread::spawn(move || io::copy(&mut stream, &mut back).unwrap());
            }
        });
        address
    }

    #[test]
    fn bytes_take_their_time_and_come_out_whole() {
        let times = [3, 40].map(|ms| [Duration::from_millis(ms), Duration::from_millis(2 * ms)]);
        let relays = Relays::start(echo(), &times).unwrap();
        let sent: Vec<u8> = (0..5_000_000_u32).map(|n| (n % 251) as u8).collect();
        relays.lengthen();
        for (address, times) in relays.addresses().iter().zip(times) {
            let began = Instant::now();
            let stream = TcpStream::connect(address).unwrap();
            let (mut to, sent) = (stream.try_clone().unwrap(), sent.clone());
            let sender = std::thread::spawn(move || {
                to.write_all(&sent).unwrap();
                to.shutdown(Shutdown::Write).unwrap();
                sent
            });
            let mut got = Vec::new();
            (&stream).read_to_end(&mut got).unwrap();
            assert!(began.elapsed() >= times[0] + times[1], "{:?}", began.elapsed());
            assert!(got == sender.join().unwrap(), "{} bytes came back", got.len());
        }
        assert_eq!(relays.shared.carried().bytes, 0, "nothing is under way");
    }
}
