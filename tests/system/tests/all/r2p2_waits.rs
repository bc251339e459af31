//! Shows that a copy of a request that lay in the socket while the daemon had no processor is as old as it is: what an
//! earlier daemon has executed, or this one long ago, is not executed again. The datagrams are written here, byte by
//! byte, for no daemon would say that it sent them when this wants it.

use crate::support::{Host, until};
use std::cell::Cell;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

/// Types of datagrams, without their policy.
const REPLY: u8 = 0x10;
const DROP: u8 = 0x40;
/// Why something is dropped: it may have been executed, and nothing is known about it any more.
const FORGOTTEN: u8 = 8;
/// Where in a DROP its reason is.
const REASON_AT: usize = 16;
/// How long the daemon stands still beside what the request's age makes it.
const PAUSE: Duration = Duration::from_millis(300);
/// How long a server remembers a request after its end.
const REMEMBERED: Duration = Duration::from_secs(10);

/// A client that sends what it wants when it wants.
struct Client {
    socket: UdpSocket,
    /// The next request's id: as a number of the log it has two bytes.
    next: Cell<u16>,
}

impl Client {
    fn of(host: &Host) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        socket.connect(host.datagrams().unwrap()).unwrap();
        Self { socket, next: Cell::new(128) }
    }

    /// Sends the request of this id, which writes it into the server's log; and again, if it was sent so long before.
    fn send(&self, id: u16, again: Option<Duration>) {
        let (bits, age_us) = again.map_or((0, 0), |age| (1, age.as_micros() as u32));
        let [high, low] = id.to_be_bytes();
        let mut datagram = vec![0xcc, 8, 0, 0xf0, high, low, 0, 1, 6, bits, 0, 0, 0x11, 0x22, 0x33, 0x44];
        datagram.extend([0; 8]);
        datagram.extend(age_us.to_be_bytes());
        datagram.extend([0xff; 4]);
        let path = "/probe.v1.Probe/Do";
        datagram.extend([1, 0, 0, path.len() as u8]);
        datagram.extend([0; 20]);
        datagram.extend(path.as_bytes());
        // Order.log.
        datagram.extend([0x40, id as u8 | 0x80, (id >> 7) as u8]);
        // While there is no daemon its host says so.
        let _ = self.socket.send(&datagram);
    }

    /// Sends requests, each a new one, until one is executed: what comes just after a daemon's start, or before its
    /// server is there, is not. Its id, and when it was sent.
    fn until_served(&self, host: &Host) -> (u16, Instant) {
        until("a request that is executed", || {
            let (id, sent) = (self.next.get(), Instant::now());
            self.next.set(id + 1);
            self.send(id, None);
            while self.hear(id).is_some() {}
            (times_executed(host, id) > 0).then_some((id, sent))
        })
    }

    /// What comes about the request of this id: the type, and why it was dropped.
    fn hear(&self, id: u16) -> Option<(u8, u8)> {
        let mut answer = [0; 2000];
        let bytes = self.socket.recv(&mut answer).ok()?;
        let is_of_it = bytes > REASON_AT && answer[4..6] == id.to_be_bytes();
        is_of_it.then(|| (answer[2] & 0xf0, answer[REASON_AT]))
    }
}

fn times_executed(host: &Host, id: u16) -> usize {
    let log = std::fs::read_to_string(host.log()).unwrap_or_default();
    log.lines().filter(|line| *line == id.to_string()).count()
}

/// The host stops just after its daemon was started again, and a copy of what the daemon before has executed comes.
#[test]
fn a_copy_that_waited_for_a_new_daemon_is_not_executed_again() {
    let mut far = Host::over_r2p2(None, "127.0.0.1:0", &[]);
    let _server = far.server("server");
    let client = Client::of(&far);
    let (id, sent) = client.until_served(&far);
    far.kill_daemon();
    far.start();
    client.until_served(&far);
    far.daemon().stop_for(|| {
        let age = sent.elapsed();
        client.send(id, Some(age));
        std::thread::sleep(age + PAUSE);
    });
    until("an answer", || client.hear(id));
    assert_eq!(times_executed(&far, id), 1, "and not by this daemon, too");
    client.send(id, Some(sent.elapsed()));
    until("it is forgotten", || client.hear(id).filter(|answer| *answer == (DROP, FORGOTTEN)));
}

/// The host stops for longer than a server remembers what is over.
#[test]
fn a_copy_that_waited_for_longer_than_anything_is_remembered_is_not_executed_again() {
    let mut far = Host::over_r2p2(None, "127.0.0.1:0", &[]);
    let _server = far.server("server");
    let client = Client::of(&far);
    let (id, sent) = client.until_served(&far);
    far.daemon().stop_for(|| {
        client.send(id, Some(sent.elapsed()));
        std::thread::sleep(REMEMBERED + PAUSE);
    });
    let (kind, _) = until("an answer", || client.hear(id));
    assert_eq!(times_executed(&far, id), 1);
    assert_eq!(kind, REPLY, "it came while the request was remembered");
}
