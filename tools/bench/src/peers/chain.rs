//! The bare chain: the processes and hops of a call, with nothing of a call in them.
//!
//! Four processes, client – relay – TCP – relay – server, hand one 64-byte ring entry along and 8 bytes back. Two
//! relays or one stand where the daemons stand; they wait exactly as a shard waits: look and yield for as long
//! as the last waits make it worthwhile, then block on doorbell and socket together. What a call costs above this is
//! ours to answer for; this itself is the machine's.

use crate::harness::children::{Child, Failure, once_there, role, text, wait_for_file, write_file};
use crate::harness::orders::{Answer, Caller, Order, one_at_a_time};
use rustix::fd::AsFd;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use trunkline_shm::{
    AppEnd, Consumer, ControlListener, ControlSocket, DaemonEnd, Decision, Entry, SessionConfig, SessionFds,
    WaitLimits, Waiter, create_session, monotonic_ns, open_session, sleep_on, wait_for_entries,
};

/// Bytes of the request and reply on the TCP hop (the seeds' small call).
const REQUEST_BYTES: usize = 64;
const REPLY_BYTES: usize = 8;

/// Starts the chain's relays and server in `dir`: one relay, the same-host call, or two joined by TCP. Returns them and
/// the socket its client attaches to.
pub fn start(dir: &Path, tcp: bool) -> Result<(Vec<Child>, PathBuf), Failure> {
    let (near, far) = (dir.join("near.sock"), dir.join("far.sock"));
    let mut processes = Vec::new();
    if tcp {
        let port_file = dir.join("port");
        processes.push(role(&["relay-listen", text(&far), text(&port_file)])?);
        let port = wait_for_file(&port_file)?;
        processes.push(role(&["relay-connect", text(&near), &port])?);
    } else {
        processes.push(role(&["relay-rings", text(&near), text(&far)])?);
    }
    processes.push(role(&["echo", text(&far)])?);
    Ok((processes, near))
}

/// The client's end of a chain.
#[derive(Debug)]
pub struct ChainClient {
    end: AppEnd,
    waiter: Waiter,
    sent: u64,
}

impl ChainClient {
    /// Attaches to the chain's first relay.
    pub fn join(near: &Path) -> Result<Self, Failure> {
        Ok(Self { end: join(near)?, waiter: Waiter::new(WaitLimits::of_this_process()), sent: 0 })
    }

    fn round_trip(&mut self) -> Result<(), Failure> {
        self.sent += 1;
        if self.end.submissions.push(&[self.sent, 1, 2, 3, 4, 5, 6, 7])? {
            self.end.peer_doorbell.ring()?;
        }
        match wait(&mut self.end, &mut self.waiter)? {
            [first, ..] if first == self.sent => Ok(()),
            [first, ..] => Err(format!("the chain answered {first} to {}", self.sent).into()),
        }
    }
}

impl Caller for ChainClient {
    fn carry_out(&mut self, order: Order) -> Result<Answer, Failure> {
        one_at_a_time(order, || self.round_trip())
    }
}

/// The server process: sends every entry's first word back.
pub fn echo(socket: &Path) -> Result<(), Failure> {
    let mut end = join(socket)?;
    let mut waiter = Waiter::new(WaitLimits::of_this_process());
    loop {
        let entry = wait(&mut end, &mut waiter)?;
        if end.submissions.push(&[entry[0], 0, 0, 0, 0, 0, 0, 0])? {
            end.peer_doorbell.ring()?;
        }
    }
}

/// The one relay of a same-host chain.
pub fn relay_rings(near: &Path, far: &Path) -> Result<(), Failure> {
    let (near, far) = (ControlListener::bind(near, 0o600)?, ControlListener::bind(far, 0o600)?);
    let (mut server, mut client) = (offer(&far)?, offer(&near)?);
    let mut waiter = Waiter::new(WaitLimits::of_this_process());
    relay(&mut waiter, move |arm| {
        let mut moved = move_entries(&mut client.submissions, &mut server)?;
        moved |= move_entries(&mut server.submissions, &mut client)?;
        if arm {
            moved |= !client.submissions.arm()? | !server.submissions.arm()?;
            if !moved {
                sleep_on(&[client.own_doorbell.as_fd(), server.own_doorbell.as_fd()], None)?;
            }
            for end in [&mut client, &mut server] {
                end.submissions.disarm();
                end.own_doorbell.quiet()?;
            }
        }
        Ok(moved)
    })
}

/// The relay at the client's side of the TCP hop.
pub fn relay_connect(near: &Path, port: &str) -> Result<(), Failure> {
    let near = ControlListener::bind(near, 0o600)?;
    let stream = TcpStream::connect(("127.0.0.1", port.parse::<u16>()?))?;
    let session = offer(&near)?;
    relay_tcp(session, stream, [REQUEST_BYTES, REPLY_BYTES])
}

/// The relay at the server's side of the TCP hop.
pub fn relay_listen(far: &Path, port_file: &Path) -> Result<(), Failure> {
    let far = ControlListener::bind(far, 0o600)?;
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    write_file(port_file, &listener.local_addr()?.port().to_string())?;
    let (stream, _) = listener.accept()?;
    let session = offer(&far)?;
    relay_tcp(session, stream, [REPLY_BYTES, REQUEST_BYTES])
}

/// Ring entries out as so many bytes on the stream, so many bytes from the stream in as ring entries.
fn relay_tcp(mut session: DaemonEnd, mut stream: TcpStream, bytes: [usize; 2]) -> Result<(), Failure> {
    let [out_bytes, in_bytes] = bytes;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    let mut waiter = Waiter::new(WaitLimits::of_this_process());
    let mut buffer = Vec::new();
    relay(&mut waiter, move |arm| {
        let mut moved = false;
        while let Some(entry) = session.submissions.pop()? {
            let bytes: Vec<u8> = entry.iter().flat_map(|word| word.to_le_bytes()).collect();
            stream.write_all(&bytes[..out_bytes])?;
            moved = true;
        }
        moved |= read_entries(&mut stream, &mut buffer, in_bytes, &mut session)?;
        if arm && !moved && session.submissions.arm()? {
            sleep_on(&[session.own_doorbell.as_fd(), stream.as_fd()], None)?;
            session.submissions.disarm();
            session.own_doorbell.quiet()?;
        }
        Ok(moved)
    })
}

/// Calls `step` for ever. `step(true)` is asked to block if it finds nothing.
fn relay(waiter: &mut Waiter, mut step: impl FnMut(bool) -> Result<bool, Failure>) -> Result<(), Failure> {
    loop {
        waiter.begin(monotonic_ns());
        while !step(false)? {
            match waiter.decide(monotonic_ns()) {
                Decision::Spin => std::hint::spin_loop(),
                Decision::Yield => rustix::thread::sched_yield(),
                Decision::Block => {
                    step(true)?;
                    break;
                }
            }
        }
        waiter.arrived(monotonic_ns());
    }
}

fn move_entries(from: &mut Consumer, to: &mut DaemonEnd) -> Result<bool, Failure> {
    let mut moved = false;
    while let Some(entry) = from.pop()? {
        if to.completions.push(&entry)? {
            to.peer_doorbell.ring()?;
        }
        moved = true;
    }
    Ok(moved)
}

fn read_entries(
    stream: &mut TcpStream,
    buffer: &mut Vec<u8>,
    entry_bytes: usize,
    to: &mut DaemonEnd,
) -> Result<bool, Failure> {
    let mut chunk = [0; 4096];
    match stream.read(&mut chunk) {
        Ok(0) => return Err("the other relay has gone".into()),
        Ok(n) => buffer.extend_from_slice(&chunk[..n]),
        Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
        Err(error) => return Err(error.into()),
    }
    let whole = buffer.len() / entry_bytes * entry_bytes;
    for bytes in buffer[..whole].chunks_exact(entry_bytes) {
        let mut entry = Entry::default();
        for (word, bytes) in entry.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into()?);
        }
        if to.completions.push(&entry)? {
            to.peer_doorbell.ring()?;
        }
    }
    buffer.drain(..whole);
    Ok(true)
}

fn wait(end: &mut AppEnd, waiter: &mut Waiter) -> Result<Entry, Failure> {
    loop {
        if let Some(entry) = end.completions.pop()? {
            return Ok(entry);
        }
        wait_for_entries(&mut end.completions, &end.own_doorbell, &[], waiter, None)?;
    }
}

/// Creates a session and hands it to whoever connects first.
fn offer(listener: &ControlListener) -> Result<DaemonEnd, Failure> {
    let (end, fds) = create_session(&SessionConfig::default())?;
    listener.accept()?.send(b"session", &fds.as_fds())?;
    Ok(end)
}

fn join(socket: &Path) -> Result<AppEnd, Failure> {
    let control = once_there(|| ControlSocket::connect(socket))?;
    let fds = control.recv(&mut Vec::new(), trunkline_shm::SESSION_FDS)?.ok_or("relay closed")?;
    Ok(open_session(SessionFds::from_fds(fds)?, &SessionConfig::default())?)
}
