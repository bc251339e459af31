//! Shows that a copy of a request that lay in the socket while the daemon had no processor is as old as it is: what an
//! earlier daemon has executed, or this one long ago, is not executed again. The datagrams are written here, byte by
//! byte, for no daemon would say that it sent them when this wants it.

use crate::support::{Host, until};
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
}

impl Client {
    fn of(host: &Host) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        socket.connect(host.datagrams().unwrap()).unwrap();
        Self { socket }
    }

    /// Sends the request of this id, which writes it into the server's log; and again, if it was sent so long before.
    fn send(&self, id: u8, again: Option<Duration>) {
        let (bits, age_us) = again.map_or((0, 0), |age| (1, age.as_micros() as u32));
        let mut datagram = vec![0xcc, 8, 0, 0xf0, 0, id, 0, 1, 6, bits, 0, 0, 0x11, 0x22, 0x33, 0x44];
        datagram.extend([0; 8]);
        datagram.extend(age_us.to_be_bytes());
        datagram.extend([0xff; 4]);
        let path = "/probe.v1.Probe/Do";
        datagram.extend([1, 0, 0, path.len() as u8]);
        datagram.extend([0; 20]);
        datagram.extend(path.as_bytes());
        // Order.log.
        datagram.extend([0x40, id]);
        // While there is no daemon its host says so.
        let _ = self.socket.send(&datagram);
    }

    /// Sends a request until it is answered, as clients do: the first copy may come too soon after the daemon's start.
    /// When it was sent first.
    fn calls(&self, id: u8) -> Instant {
        let (sent, mut copies) = (Instant::now(), 0);
        until("a reply", || {
            self.send(id, (copies > 0).then(|| sent.elapsed()));
            copies += 1;
            self.hear(id).filter(|(kind, _)| *kind == REPLY)
        });
        while self.hear(id).is_some() {}
        sent
    }

    /// What comes about the request of this id: the type, and why it was dropped.
    fn hear(&self, id: u8) -> Option<(u8, u8)> {
        let mut answer = [0; 2000];
        let bytes = self.socket.recv(&mut answer).ok()?;
        let is_of_it = bytes > REASON_AT && answer[4..6] == [0, id];
        is_of_it.then(|| (answer[2] & 0xf0, answer[REASON_AT]))
    }
}

fn times_executed(host: &Host, id: u8) -> usize {
    let log = std::fs::read_to_string(host.log()).unwrap_or_default();
    log.lines().filter(|line| *line == id.to_string()).count()
}

/// The host stops just after its daemon was started again, and a copy of what the daemon before has executed comes.
#[test]
fn a_copy_that_waited_for_a_new_daemon_is_not_executed_again() {
    let mut far = Host::over_r2p2(None, "127.0.0.1:0", &[]);
    let _server = far.server("server");
    let client = Client::of(&far);
    let sent = client.calls(1);
    assert_eq!(times_executed(&far, 1), 1);

    far.kill_daemon();
    far.start();
    let mut id = 2;
    until("it is served again", || {
        client.send(id, None);
        id += 1;
        while client.hear(id - 1).is_some() {}
        (times_executed(&far, id - 1) > 0).then_some(())
    });
    far.daemon().stop_for(|| {
        let age = sent.elapsed();
        client.send(1, Some(age));
        std::thread::sleep(age + PAUSE);
    });
    until("an answer", || client.hear(1));
    assert_eq!(times_executed(&far, 1), 1, "and not by this daemon, too");
    client.send(1, Some(sent.elapsed()));
    until("it is forgotten", || client.hear(1).filter(|answer| *answer == (DROP, FORGOTTEN)));
}

/// The host stops for longer than a server remembers what is over.
#[test]
fn a_copy_that_waited_for_longer_than_anything_is_remembered_is_not_executed_again() {
    let mut far = Host::over_r2p2(None, "127.0.0.1:0", &[]);
    let _server = far.server("server");
    let client = Client::of(&far);
    let sent = client.calls(1);
    far.daemon().stop_for(|| {
        client.send(1, Some(sent.elapsed()));
        std::thread::sleep(REMEMBERED + PAUSE);
    });
    let (kind, _) = until("an answer", || client.hear(1));
    assert_eq!(times_executed(&far, 1), 1);
    assert_eq!(kind, REPLY, "it came while the request was remembered");
}
