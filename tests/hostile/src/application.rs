//! An application made of control packets, rings and heaps. What a hostile one can do, it can do.

use prost::Message;
use rustix::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};
use trunkline_call::entry::{Call, Completion, Payload, Span, Submission};
use trunkline_call::{CallId, Deadline, Encoding, Instant as Stamp, Metadata, RouteIndex};
use trunkline_control::{
    ABI_VERSION, Attach, Attached, Bind, Bound, CallMethod, Request, decode_reply, reply, request,
};
use trunkline_shm::{
    AppEnd, ControlSocket, SESSION_FDS, SessionConfig, SessionFds, create_blob, open_session, sleep_on,
};

/// A daemon that has not taken one more entry for so long takes none: what it has not read by then it does not hold.
const FULL_FOR: Duration = Duration::from_secs(5);

/// An attached session.
pub struct Application {
    control: ControlSocket,
    end: AppEnd,
    next_call: u64,
    /// Calls up to this one were cancelled.
    given_up: u64,
    /// Calls whose end was heard.
    ended: usize,
}

impl Application {
    /// Attaches.
    ///
    /// # Errors
    /// Why the daemon turned it away, or the kernel.
    pub fn attach(socket: &Path) -> Result<Self, String> {
        Self::attach_as(socket, Attach::default())
    }

    /// Attaches, and asks for heaps and rings of these sizes.
    ///
    /// # Errors
    /// As [`Application::attach`].
    pub fn attach_as(socket: &Path, wants: Attach) -> Result<Self, String> {
        let control = ControlSocket::connect(socket).map_err(|error| error.to_string())?;
        let attach = Attach { abi_version: ABI_VERSION, name: "hostile".into(), may_move: true, ..wants };
        send(&control, request::Kind::Attach(attach))?;
        match answer(&control)? {
            (reply::Kind::Attached(attached), fds) => {
                let fds = SessionFds::from_fds(fds).map_err(|error| error.to_string())?;
                let end = open_session(fds, &sizes(&attached)).map_err(|error| error.to_string())?;
                Ok(Self { control, end, next_call: 1, given_up: 1, ended: 0 })
            }
            (other, _) => Err(said(other)),
        }
    }

    /// Closes the session, and keeps what it has mapped.
    pub fn close_and_keep(self) -> AppEnd {
        self.end
    }

    /// Binds without descriptors: services to serve, and paths to call, each at a target.
    ///
    /// # Errors
    /// Why nothing was bound.
    pub fn bind(&self, serves: Vec<String>, calls: Vec<(String, String)>) -> Result<Bound, String> {
        self.ask_to_bind(serves, calls)?;
        match answer(&self.control)? {
            (reply::Kind::Bound(bound), _) if bound.error.is_empty() => Ok(bound),
            (reply::Kind::Bound(bound), _) => Err(bound.error),
            (other, _) => Err(said(other)),
        }
    }

    /// Binds a path to call, with the descriptor set that defines it.
    ///
    /// # Errors
    /// Why it was not bound.
    pub fn bind_set(&self, set: &[u8], path: String) -> Result<(), String> {
        let memfd = create_blob(set).map_err(|error| error.to_string())?;
        let calls = vec![CallMethod { path, target: String::new() }];
        let bind = Bind { descriptor_set_bytes: set.len() as u64, serves: Vec::new(), calls };
        let packet = Request { tag: 1, kind: Some(request::Kind::Bind(bind)) }.encode_to_vec();
        self.control.send(&packet, &[memfd.as_fd()]).map_err(|error| error.to_string())?;
        match answer(&self.control)? {
            (reply::Kind::Bound(bound), _) if bound.error.is_empty() => Ok(()),
            (reply::Kind::Bound(bound), _) => Err(bound.error),
            (other, _) => Err(said(other)),
        }
    }

    /// Sends a descriptor as if it held a descriptor set, without reading the answer.
    ///
    /// # Errors
    /// The daemon takes no more, or has ended the session.
    pub fn send_descriptor(&self, descriptor: impl AsFd) -> Result<(), String> {
        let bind = Bind { descriptor_set_bytes: 1, serves: Vec::new(), calls: Vec::new() };
        let packet = Request { tag: 1, kind: Some(request::Kind::Bind(bind)) }.encode_to_vec();
        self.control.send(&packet, &[descriptor.as_fd()]).map_err(|error| error.to_string())
    }

    /// Reads answers until the daemon ends the session, or says nothing more. Why it did.
    ///
    /// # Errors
    /// It goes on.
    pub fn until_dismissed(&self) -> Result<String, String> {
        loop {
            match answer(&self.control) {
                Ok((reply::Kind::Detached(detached), _)) => return Ok(detached.reason),
                Ok((reply::Kind::Bound(bound), _)) if bound.error.is_empty() => {
                    return Err("it is bound".into());
                }
                Ok(_) => {}
                Err(why) => return Ok(why),
            }
        }
    }

    /// Asks to bind services and paths, without reading the answer.
    ///
    /// # Errors
    /// The daemon takes no more, or has ended the session.
    pub fn ask_to_bind(&self, serves: Vec<String>, calls: Vec<(String, String)>) -> Result<(), String> {
        let calls = calls.into_iter().map(|(path, target)| CallMethod { path, target }).collect();
        send(&self.control, request::Kind::Bind(Bind { descriptor_set_bytes: 0, serves, calls }))
    }

    /// Puts an entry into the ring. `false`: the daemon takes no more.
    pub fn submit(&mut self, submission: &Submission) -> bool {
        let began = Instant::now();
        loop {
            match self.end.submissions.push(&submission.encode()) {
                Ok(rings) => {
                    if rings {
                        let _ = self.end.peer_doorbell.ring();
                    }
                    return true;
                }
                Err(_) if began.elapsed() < FULL_FOR => std::thread::yield_now(),
                Err(_) => return false,
            }
        }
    }

    /// Puts a message of protobuf into the send heap, for good: it may be sent as often as anybody likes.
    ///
    /// # Errors
    /// There is no room for it.
    pub fn put(&mut self, message: &[u8]) -> Result<Payload, String> {
        let mut block =
            self.end.send_heap.allocate(message.len() as u32).map_err(|error| error.to_string())?;
        block.bytes_mut()[..message.len()].copy_from_slice(message);
        let lent = block.lend(message.len() as u32);
        let span = Span { offset: lent.offset, len: lent.len };
        Ok(Payload::new(span, Encoding::Protobuf))
    }

    /// A call without a message.
    pub fn call(&mut self, route: RouteIndex) -> Submission {
        self.next_call += 1;
        Submission::Call(Call {
            route,
            call: CallId(self.next_call),
            payload: None,
            metadata: Span::default(),
            end: true,
            wait_for_ready: false,
            deadline: Deadline::NONE,
            entered: Stamp(1),
            published: Stamp(1),
            parent: CallId(0),
        })
    }
}

impl Application {
    /// Writes metadata of about so many bytes into the send heap. Any number of calls may have it.
    ///
    /// # Errors
    /// There is no room for it.
    pub fn put_metadata(&mut self, bytes: usize) -> Result<Span, String> {
        let mut metadata = Metadata::new();
        metadata.insert("x", "y".repeat(bytes)).map_err(|error| error.to_string())?;
        let mut encoded = Vec::new();
        metadata.encode(&mut encoded);
        let mut block =
            self.end.send_heap.allocate(encoded.len() as u32).map_err(|error| error.to_string())?;
        block.bytes_mut()[..encoded.len()].copy_from_slice(&encoded);
        let lent = block.lend(encoded.len() as u32);
        Ok(Span { offset: lent.offset, len: lent.len })
    }

    /// A call without a message that waits until its endpoint is there.
    pub fn waiting_call(&mut self, route: RouteIndex, metadata: Span) -> Submission {
        match self.call(route) {
            Submission::Call(call) => Submission::Call(Call { metadata, wait_for_ready: true, ..call }),
            other => other,
        }
    }

    /// What the daemon has said next.
    ///
    /// # Errors
    /// It said what no daemon says.
    pub fn hear(&mut self) -> Result<Option<Completion>, String> {
        let entry = self.end.completions.pop().map_err(|error| error.to_string())?;
        entry.map(|entry| Completion::decode(&entry).map_err(|error| format!("{error:?}"))).transpose()
    }

    /// Cancels the oldest call that was not, and takes what there is to be heard. `false`: there is none.
    pub fn give_up_next(&mut self) -> bool {
        if self.given_up == self.next_call {
            return false;
        }
        self.given_up += 1;
        let call = CallId(self.given_up);
        let gone = self.submit(&Submission::Cancel { call });
        while let Ok(Some(completion)) = self.hear() {
            self.release(&completion);
        }
        gone
    }

    /// Calls whose end was heard so far.
    pub const fn ended(&self) -> usize {
        self.ended
    }

    /// Makes a call as one who sleeps, so that its end is rung for, and waits until it is.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn have_it_rung(&mut self, route: RouteIndex) -> Result<(), String> {
        self.call_asleep(route);
        let bell = [self.end.own_doorbell.as_fd()];
        while sleep_on(&bell, None).map_err(|error| error.to_string())? == 0 {}
        Ok(())
    }

    /// Makes a call as one who sleeps.
    pub fn call_asleep(&mut self, route: RouteIndex) -> bool {
        while let Ok(Some(completion)) = self.hear() {
            self.release(&completion);
        }
        let call = self.call(route);
        matches!(self.end.completions.arm(), Ok(true)) && self.submit(&call)
    }

    /// Its doorbell, for whatever it likes.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn bell(&self) -> Result<OwnedFd, String> {
        self.end.own_doorbell.as_fd().try_clone_to_owned().map_err(|error| error.to_string())
    }

    /// Gives back what came with the end of a call, if it is one.
    pub fn release(&mut self, completion: &Completion) {
        let Completion::Finish(finish) = completion else { return };
        self.ended += 1;
        let block = finish.payload.map_or(Span::default(), |payload| payload.block());
        let (call, metadata, a18) = (finish.call, finish.metadata, Stamp(1));
        self.submit(&Submission::Release { call, block, metadata, a18 });
    }

    /// Asks to bind so many times, and then reads the answers.
    ///
    /// # Errors
    /// The daemon has ended the session.
    pub fn ask_in_a_row(&self, path: &str, times: usize) -> Result<(), String> {
        let call = || vec![(path.to_owned(), String::new())];
        (0..times).try_for_each(|_| self.ask_to_bind(Vec::new(), call()))?;
        (0..times).try_for_each(|_| answer(&self.control).map(drop))
    }
}

/// A connection to the control socket that says nothing.
///
/// # Errors
/// The kernel's.
pub fn bare(socket: &Path) -> Result<ControlSocket, String> {
    ControlSocket::connect(socket).map_err(|error| error.to_string())
}

fn sizes(attached: &Attached) -> SessionConfig {
    SessionConfig {
        submission_entries: attached.submission_entries,
        completion_entries: attached.completion_entries,
        send_heap_bytes: attached.send_heap_bytes as u32,
        receive_heap_bytes: attached.receive_heap_bytes as u32,
    }
}

fn send(control: &ControlSocket, kind: request::Kind) -> Result<(), String> {
    let packet = Request { tag: 1, kind: Some(kind) }.encode_to_vec();
    control.send(&packet, &[]).map_err(|error| error.to_string())
}

/// The next answer. That the daemon was replaced is none: this application reads nothing of its receive heap.
fn answer(control: &ControlSocket) -> Result<(reply::Kind, Vec<OwnedFd>), String> {
    let mut packet = Vec::new();
    loop {
        let fds = control.recv(&mut packet, SESSION_FDS).map_err(|error| error.to_string())?;
        let fds = fds.ok_or("closed without a word")?;
        match decode_reply(&packet).map_err(|error| error.to_string())?.1 {
            reply::Kind::Moved(_) => {}
            other => return Ok((other, fds)),
        }
    }
}

fn said(reply: reply::Kind) -> String {
    match reply {
        reply::Kind::Detached(detached) => detached.reason,
        other => format!("an answer to something else: {other:?}"),
    }
}

/// Whether anything lies on the control socket, or it has ended.
pub fn has_word(control: &ControlSocket) -> bool {
    let mut fds = [rustix::event::PollFd::from_borrowed_fd(control.as_fd(), rustix::event::PollFlags::IN)];
    let at_once = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut fds, Some(&at_once)).is_ok_and(|ready| ready > 0)
}
