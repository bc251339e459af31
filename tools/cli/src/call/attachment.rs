//! A session of our own with a daemon: attach, bind, submit, complete.
//!
//! The library binds services that are known when a program is built; this verb meets them at run time and hands
//! protobuf to the daemon, which transcodes. It is also the smallest complete client of docs/shared-memory.md.

use super::heaps::ReadHeaps;
use prost::Message;
use rustix::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;
use trunkline_call::entry::{Completion, Entry, Payload, Span, Submission};
use trunkline_call::{Encoding, RouteIndex};
use trunkline_control::{
    ABI_VERSION, Attach, Attached, Bind, CallMethod, Request, decode_reply, reply, request,
};
use trunkline_relay::RemotePlace;
use trunkline_shm::{
    Consumer, ControlSocket, Doorbell, Heap, Places, Producer, RingError, Ringer, SESSION_FDS, SessionConfig,
    SessionFds, WaitLimits, Waiter, Woken, create_blob, monotonic_ns, open_session, sleep_on,
    wait_for_entries,
};

/// An attached session, used by one thread.
pub struct Attachment {
    control: ControlSocket,
    submissions: Producer,
    completions: Consumer,
    send_heap: Heap,
    heaps: ReadHeaps,
    peer_doorbell: Ringer,
    own_doorbell: Doorbell,
    waiter: Waiter,
    stream_window_bytes: u32,
    patience: Duration,
}

/// Time a daemon has to answer what is asked on the control socket, if nobody says otherwise: it answers within a
/// millisecond unless it hangs.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// What a wait brought.
#[derive(Debug)]
pub enum Event {
    /// The daemon said something.
    Completion(Completion),
    /// The descriptor given to [`Attachment::wait`] is readable.
    Bell,
    /// The time is up.
    Late,
}

/// Why there is no session (any more).
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// Nobody listens where a daemon would.
    #[error("no daemon at {0}; start one with `trunkline daemon`, or name its socket with --socket")]
    NoDaemon(String),
    /// A daemon may be there, and this process cannot reach it.
    #[error("cannot attach to a daemon: {0}")]
    Unreachable(String),
    /// The daemon refuses, or ended the session.
    #[error("the daemon ended the session: {0}")]
    Detached(String),
    /// The daemon is there and says nothing.
    #[error(
        "the daemon did not answer within {0:?}: it is stopped, or hangs; its log and `trunkline doctor` say more"
    )]
    Silent(Duration),
    /// The daemon does not take the method.
    #[error("the daemon does not take this method: {0}")]
    Refused(String),
    /// The daemon or the kernel did something unexpected.
    #[error("{0}")]
    Broken(String),
}

impl Attachment {
    /// Attaches at `socket`, or where applications look for a daemon. Each answer may take as long as `patience`.
    ///
    /// # Errors
    /// [`AttachError`].
    pub fn open(socket: Option<&Path>, name: &str, patience: Duration) -> Result<Self, AttachError> {
        let places = socket.map_or_else(Places::of_this_process, |path| Places::Named(path.to_owned()));
        let control = match &places {
            Places::Named(path) if is_remote(path) => beyond_relay(path)?,
            places => places.connect().map_err(|error| match error.is_unreachable() {
                true => AttachError::Unreachable(error.to_string()),
                false => AttachError::NoDaemon(format!("{}: {error}", listed(places))),
            })?,
        };
        Self::over(control, name, patience)
    }

    /// Attaches through a connected control socket.
    ///
    /// # Errors
    /// [`AttachError`].
    pub fn over(control: ControlSocket, name: &str, patience: Duration) -> Result<Self, AttachError> {
        let attach =
            Attach { abi_version: ABI_VERSION, name: name.to_owned(), may_move: true, ..Attach::default() };
        send(&control, request::Kind::Attach(attach), None, patience)?;
        let (attached, fds) = match receive(&control, SESSION_FDS, patience)? {
            (reply::Kind::Attached(attached), fds) => (attached, fds),
            _ => return Err(AttachError::Broken("attach was answered with something else".into())),
        };
        let fds = SessionFds::from_fds(fds).map_err(broken)?;
        let end = open_session(fds, &geometry(&attached)).map_err(broken)?;
        Ok(Self {
            control,
            submissions: end.submissions,
            completions: end.completions,
            send_heap: end.send_heap,
            heaps: ReadHeaps::new(end.receive_heap),
            peer_doorbell: end.peer_doorbell,
            own_doorbell: end.own_doorbell,
            waiter: Waiter::new(WaitLimits::of_this_process()),
            stream_window_bytes: attached.stream_window_bytes,
            patience,
        })
    }

    /// Gets a route for one method; an empty target means whoever serves it.
    ///
    /// # Errors
    /// [`AttachError`].
    pub fn bind(
        &mut self,
        path: &str,
        target: &str,
        descriptor_set: &[u8],
    ) -> Result<RouteIndex, AttachError> {
        let memfd = create_blob(descriptor_set).map_err(broken)?;
        let bind = Bind {
            descriptor_set_bytes: descriptor_set.len() as u64,
            serves: Vec::new(),
            calls: vec![CallMethod { path: path.to_owned(), target: target.to_owned() }],
        };
        send(&self.control, request::Kind::Bind(bind), Some(memfd.as_fd()), self.patience)?;
        loop {
            match receive(&self.control, 1, self.patience)? {
                (reply::Kind::Bound(bound), _) if !bound.error.is_empty() => {
                    return Err(AttachError::Refused(bound.error));
                }
                (reply::Kind::Bound(bound), _) => {
                    let route = bound.calls.first().copied();
                    return route.map(RouteIndex).ok_or_else(|| broken("bound to no route"));
                }
                // The daemon was replaced meanwhile; its successor answers.
                (reply::Kind::Moved(moved), fds) => self.heaps.moved(&moved, fds).map_err(broken)?,
                _ => return Err(broken("bind was answered with something else")),
            }
        }
    }

    /// Copies bytes into the send heap (no bytes need no room). `None`: no room now; [`Completion::Freed`] makes some.
    ///
    /// # Errors
    /// [`AttachError::Refused`] for what can never fit.
    pub fn write(&mut self, bytes: &[u8]) -> Result<Option<Span>, AttachError> {
        let heap_bytes = self.send_heap.capacity_bytes();
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        if len > heap_bytes / 2 {
            return Err(AttachError::Refused(format!(
                "a message of {len} bytes; the send heap of {heap_bytes} bytes takes half of that at once"
            )));
        }
        if bytes.is_empty() {
            return Ok(Some(Span::default()));
        }
        let Ok(mut block) = self.send_heap.allocate(len) else { return Ok(None) };
        block.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
        let lent = block.lend(len);
        Ok(Some(Span { offset: lent.offset, len: lent.len }))
    }

    /// Submits an entry, waiting for room in the ring if there is none.
    ///
    /// # Errors
    /// [`AttachError`].
    pub fn submit(&mut self, submission: &Submission) -> Result<(), AttachError> {
        let entry: Entry = submission.encode();
        loop {
            match self.submissions.stage(&entry) {
                Ok(()) => break,
                Err(RingError::Full { .. }) => self.breathe()?,
                Err(error) => return Err(broken(error)),
            }
        }
        self.peer_doorbell.publish(&mut self.submissions).map_err(broken)
    }

    /// Waits for the next completion, for `bell` to be readable, or until `until_ns` (monotonic).
    ///
    /// # Errors
    /// [`AttachError::Detached`] when the daemon ends the session.
    pub fn wait(&mut self, bell: BorrowedFd<'_>, until_ns: Option<u64>) -> Result<Event, AttachError> {
        loop {
            if let Some(completion) = self.next()? {
                return Ok(Event::Completion(completion));
            }
            let others = [self.control.as_fd(), bell];
            let (ring, doorbell) = (&mut self.completions, &self.own_doorbell);
            match wait_for_entries(ring, doorbell, &others, &mut self.waiter, until_ns).map_err(broken)? {
                Woken::Entries => {}
                Woken::TimedOut => return Ok(Event::Late),
                Woken::Other(which) if which & 1 != 0 => self.told()?,
                Woken::Other(_) => return Ok(Event::Bell),
            }
        }
    }

    /// The next completion, if there is one.
    ///
    /// # Errors
    /// [`AttachError::Broken`] if it is none.
    pub fn next(&mut self) -> Result<Option<Completion>, AttachError> {
        let Some(entry) = self.completions.pop().map_err(broken)? else { return Ok(None) };
        let completion = Completion::decode(&entry).map_err(|error| broken(format!("{error:?}")))?;
        self.heaps.follow(&completion);
        Ok(Some(completion))
    }

    /// Waits until there is a completion or `until_ns` (monotonic) has passed.
    ///
    /// # Errors
    /// [`AttachError::Detached`] when the daemon ends the session.
    pub fn wait_until(&mut self, until_ns: Option<u64>) -> Result<(), AttachError> {
        let others = [self.control.as_fd()];
        let (ring, doorbell) = (&mut self.completions, &self.own_doorbell);
        match wait_for_entries(ring, doorbell, &others, &mut self.waiter, until_ns).map_err(broken)? {
            Woken::Entries | Woken::TimedOut => Ok(()),
            Woken::Other(_) => self.told(),
        }
    }

    /// A copy of what the daemon wrote.
    ///
    /// # Errors
    /// [`AttachError::Broken`] if it does not lie in a receive heap; why the session ended.
    pub fn read(&mut self, span: Span) -> Result<Vec<u8>, AttachError> {
        if span.len == 0 {
            return Ok(Vec::new());
        }
        let heap = loop {
            match self.heaps.of(span) {
                Some(heap) => break heap,
                // The daemon sends a heap before it names it.
                None => self.told()?,
            }
        };
        let block = heap.block(trunkline_shm::Span { offset: span.offset, len: span.len });
        let block = block.map_err(broken)?;
        let bytes = block.to_vec();
        // Returned by the Release that names the call, not by the list of dropped blocks.
        let _ = block.into_span();
        Ok(bytes)
    }

    /// Takes back what was written and not submitted.
    ///
    /// # Errors
    /// [`AttachError::Broken`] if it was not written here.
    pub fn take_back(&mut self, span: Span) -> Result<(), AttachError> {
        if span.len == 0 { Ok(()) } else { self.free(&[span.offset]) }
    }

    /// Takes back send blocks the daemon is through with.
    ///
    /// # Errors
    /// [`AttachError::Broken`] if they were not lent.
    pub fn free(&mut self, offsets: &[u32]) -> Result<(), AttachError> {
        // Offset zero is padding: no block begins there (entry.rs).
        for offset in offsets.iter().filter(|offset| **offset != 0) {
            self.send_heap.free(*offset).map_err(broken)?;
        }
        Ok(())
    }

    /// Bytes one stream may send before it needs credit.
    pub fn stream_window_bytes(&self) -> u32 {
        self.stream_window_bytes
    }

    /// Takes what the daemon says unasked: that the session goes on in another heap, or why it ends.
    fn told(&mut self) -> Result<(), AttachError> {
        match receive(&self.control, 1, self.patience)? {
            (reply::Kind::Moved(moved), fds) => self.heaps.moved(&moved, fds).map_err(broken),
            _ => Err(broken("the daemon said something nobody asked for")),
        }
    }

    /// Gives the daemon a moment to take entries; a command line can afford to look again every millisecond.
    fn breathe(&mut self) -> Result<(), AttachError> {
        self.peer_doorbell.publish(&mut self.submissions).map_err(broken)?;
        match sleep_on(&[self.control.as_fd()], Some(1_000_000)).map_err(broken)? {
            0 => Ok(()),
            _ => self.told(),
        }
    }
}

/// A payload in protobuf.
pub fn protobuf(span: Span) -> Payload {
    Payload::new(span, Encoding::Protobuf)
}

fn send(
    control: &ControlSocket,
    kind: request::Kind,
    fd: Option<BorrowedFd<'_>>,
    patience: Duration,
) -> Result<(), AttachError> {
    let packet = Request { tag: 0, kind: Some(kind) }.encode_to_vec();
    control.send(&packet, fd.as_slice()).map_err(|error| match receive(control, 0, patience) {
        // A daemon that has closed the socket said why before it did.
        Err(detached @ AttachError::Detached(_)) => detached,
        _ => broken(error),
    })
}

fn receive(
    control: &ControlSocket,
    fds_max: usize,
    patience: Duration,
) -> Result<(reply::Kind, Vec<rustix::fd::OwnedFd>), AttachError> {
    let until_ns = monotonic_ns().saturating_add(ns(patience));
    // A signal ends a sleep early.
    while sleep_on(&[control.as_fd()], Some(until_ns.saturating_sub(monotonic_ns()))).map_err(broken)? == 0 {
        if monotonic_ns() >= until_ns {
            return Err(AttachError::Silent(patience));
        }
    }
    let mut packet = Vec::new();
    let fds = control.recv(&mut packet, fds_max).map_err(broken)?;
    let fds = fds.ok_or_else(|| AttachError::Detached("it closed the connection".into()))?;
    match decode_reply(&packet).map_err(broken)? {
        (_, reply::Kind::Detached(detached)) => Err(AttachError::Detached(detached.reason)),
        (_, kind) => Ok((kind, fds)),
    }
}

/// Whether this names a relay, as `TRUNKLINE_SOCKET` may.
pub fn is_remote(socket: &Path) -> bool {
    socket.to_str().is_some_and(|text| text.starts_with("tcp+tls://"))
}

fn beyond_relay(socket: &Path) -> Result<ControlSocket, AttachError> {
    let place: RemotePlace = socket.to_string_lossy().parse().map_err(broken)?;
    trunkline_relay::attach(&place).map_err(|error| AttachError::Unreachable(format!("{place}: {error}")))
}

fn listed(places: &Places) -> String {
    match places {
        Places::Named(path) => path.display().to_string(),
        Places::Default(paths) => {
            let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
            format!("any of {}", paths.join(", "))
        }
    }
}

/// Nanoseconds of a time; what is longer than anybody waits is a century.
pub fn ns(time: Duration) -> u64 {
    const CENTURY_NS: u64 = 100 * 365 * 86_400 * 1_000_000_000;
    u64::try_from(time.as_nanos()).unwrap_or(CENTURY_NS).min(CENTURY_NS)
}

fn geometry(attached: &Attached) -> SessionConfig {
    let heap_bytes = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
    SessionConfig {
        submission_entries: attached.submission_entries,
        completion_entries: attached.completion_entries,
        send_heap_bytes: heap_bytes(attached.send_heap_bytes),
        receive_heap_bytes: heap_bytes(attached.receive_heap_bytes),
    }
}

fn broken(error: impl std::fmt::Display) -> AttachError {
    AttachError::Broken(error.to_string())
}
