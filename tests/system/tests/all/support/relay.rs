//! A relay of datagrams between a caller and a server that loses some of them, says some of them twice, and keeps
//! requests to say them again when a test wants it: what a retransmission looks like that comes late.

use std::collections::VecDeque;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The relay. It ends with this.
pub struct Relay {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    /// Where callers send to.
    near: UdpSocket,
    /// What the server sees as the caller.
    far: UdpSocket,
    caller: Mutex<Option<SocketAddr>>,
    kept: Mutex<VecDeque<(Instant, Vec<u8>)>>,
    count: AtomicU64,
    stop: AtomicBool,
}

/// Requests kept to be said again.
const KEPT_MAX: usize = 2000;
/// Only those younger than this: a server remembers a request for ten seconds, and datagrams of that age are in no
/// network.
const AGE_MAX: Duration = Duration::from_secs(3);
/// One datagram in so many is lost, one is doubled.
const LOST_EVERY: u64 = 23;
const DOUBLED_EVERY: u64 = 5;
/// How often threads look whether it is over.
const LOOK: Duration = Duration::from_millis(50);

impl Relay {
    /// A relay in front of a server at `endpoint` (`r2p2://…`).
    pub fn to(endpoint: &str) -> Self {
        let server: SocketAddr = endpoint.strip_prefix("r2p2://").unwrap().parse().unwrap();
        let bind = || {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.set_read_timeout(Some(LOOK)).unwrap();
            socket
        };
        let (near, far) = (bind(), bind());
        far.connect(server).unwrap();
        let shared = Arc::new(Shared {
            near,
            far,
            caller: Mutex::default(),
            kept: Mutex::default(),
            count: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        });
        let thread = |run: fn(&Shared)| {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || run(&shared))
        };
        let threads = vec![thread(Shared::requests), thread(Shared::replies)];
        Self { shared, threads }
    }

    /// Where callers reach the server through it.
    pub fn endpoint(&self) -> String {
        format!("r2p2://{}", self.shared.near.local_addr().unwrap())
    }

    /// Says everything again that was said to the server a moment ago. How much that was.
    pub fn repeat(&self) -> usize {
        let kept = self.shared.kept.lock().unwrap();
        let mut count = 0;
        for (_, datagram) in kept.iter().filter(|(at, _)| at.elapsed() < AGE_MAX) {
            count += usize::from(self.shared.far.send(datagram).is_ok());
        }
        count
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

impl Shared {
    fn requests(&self) {
        let mut buffer = [0; 2048];
        while !self.stop.load(Ordering::Relaxed) {
            // Nothing yet, or nobody there for a moment.
            let Ok((len, from)) = self.near.recv_from(&mut buffer) else { continue };
            *self.caller.lock().unwrap() = Some(from);
            let mut kept = self.kept.lock().unwrap();
            kept.push_back((Instant::now(), buffer[..len].to_vec()));
            if kept.len() > KEPT_MAX {
                kept.pop_front();
            }
            drop(kept);
            for _ in 0..self.copies() {
                let _ = self.far.send(&buffer[..len]);
            }
        }
    }

    fn replies(&self) {
        let mut buffer = [0; 2048];
        while !self.stop.load(Ordering::Relaxed) {
            let Ok(len) = self.far.recv(&mut buffer) else { continue };
            let Some(caller) = *self.caller.lock().unwrap() else { continue };
            for _ in 0..self.copies() {
                let _ = self.near.send_to(&buffer[..len], caller);
            }
        }
    }

    fn copies(&self) -> usize {
        match self.count.fetch_add(1, Ordering::Relaxed) {
            count if count % LOST_EVERY == 0 => 0,
            count if count % DOUBLED_EVERY == 0 => 2,
            _ => 1,
        }
    }
}
