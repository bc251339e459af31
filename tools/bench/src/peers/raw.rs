//! An application made of the bare ABI: as many of them in one process as wanted, and methods nobody generated code
//! for. It waits as the library does: dozens of them share two cores, and one that only looked would take them from the
//! others.

use crate::harness::children::{Failure, once_there};
use rustix::fd::AsFd;
use std::path::Path;
use trunkline_call::entry::{Call, Completion, Finish, Payload, Span, Submission};
use trunkline_call::{CallId, Code, Deadline, Encoding, Execution, Instant, RouteIndex};
use trunkline_control::{
    ABI_VERSION, Attach, Bind, Bound, CallMethod, Request, decode_reply, reply, request,
};
use trunkline_message::transcode::Transcoder;
use trunkline_message::{AlignedBuf, Extent};
use trunkline_schema::Schema;
use trunkline_shm::{
    AppEnd, ControlSocket, SESSION_FDS, SessionConfig, SessionFds, WaitLimits, Waiter, create_blob,
    monotonic_ns, open_session, wait_for_entries,
};

/// Methods of a service here, so that one `Bind` fits its packet.
pub const METHODS_PER_SERVICE: usize = 500;

/// An attached application.
pub struct RawApp {
    control: ControlSocket,
    end: AppEnd,
    waiter: Waiter,
    /// What it may call, as bound.
    pub routes: Vec<RouteIndex>,
    calls: u64,
    arrived: Vec<CallId>,
}

/// Services of so many methods, and a message of them.
pub struct Methods {
    set: Vec<u8>,
    /// The one message every call and every answer carries, in linear form.
    message: Vec<u8>,
    services: Vec<String>,
    /// The paths of all.
    pub paths: Vec<String>,
}

impl Methods {
    /// `count` methods in as many services as that takes.
    pub fn new(count: usize) -> Result<Self, Failure> {
        let mut proto = "syntax = \"proto3\"; package raw.v1;\nmessage Blob { bytes data = 1; }\n".to_owned();
        let (mut services, mut paths) = (Vec::new(), Vec::new());
        for first in (0..count).step_by(METHODS_PER_SERVICE) {
            let service = format!("S{first}");
            proto += &format!("service {service} {{\n");
            for method in first..count.min(first + METHODS_PER_SERVICE) {
                proto += &format!("rpc M{method}(Blob) returns (Blob);\n");
                paths.push(format!("/raw.v1.{service}/M{method}"));
            }
            proto += "}\n";
            services.push(format!("raw.v1.{service}"));
        }
        let schema = Schema::from_proto_source("raw.proto", &proto)?;
        let (set, message) = (schema.descriptor_set().to_vec(), small_message(schema)?);
        Ok(Self { set, message, services, paths })
    }
}

/// The 64 bytes of the small call.
fn small_message(schema: Schema) -> Result<Vec<u8>, Failure> {
    const DATA_BYTES: u8 = 62;
    let blob = schema.message_named("raw.v1.Blob").ok_or("a schema without its message")?;
    let mut wire = vec![0x0a, DATA_BYTES];
    wire.resize(2 + usize::from(DATA_BYTES), 7);
    let mut extent = AlignedBuf::new();
    let transcoder = Transcoder::new(std::sync::Arc::new(schema));
    let len = transcoder.decode(blob, &wire, &mut extent, &Default::default())?;
    Ok(extent.bytes()[..len].to_vec())
}

impl RawApp {
    /// Attaches, as soon as there is a daemon.
    pub fn attach(socket: &Path, heap_bytes: u64) -> Result<Self, Failure> {
        let control = once_there(|| ControlSocket::connect(socket))?;
        let attach = Attach {
            abi_version: ABI_VERSION,
            name: "raw".into(),
            send_heap_bytes: heap_bytes,
            receive_heap_bytes: heap_bytes,
            ..Attach::default()
        };
        let (kind, fds) = exchange(&control, request::Kind::Attach(attach), None)?;
        let reply::Kind::Attached(attached) = kind else { return Err("attaching was not answered".into()) };
        let config = SessionConfig {
            submission_entries: attached.submission_entries,
            completion_entries: attached.completion_entries,
            send_heap_bytes: attached.send_heap_bytes.try_into()?,
            receive_heap_bytes: attached.receive_heap_bytes.try_into()?,
        };
        let end = open_session(SessionFds::from_fds(fds)?, &config)?;
        let waiter = Waiter::new(WaitLimits::of_this_process());
        Ok(Self { control, end, waiter, routes: Vec::new(), calls: 0, arrived: Vec::new() })
    }

    /// Serves all of `methods`.
    pub fn serve(&mut self, methods: &Methods) -> Result<(), Failure> {
        for service in &methods.services {
            self.bind(&methods.set, vec![service.clone()], Vec::new())?;
        }
        Ok(())
    }

    /// May call these methods, each at its target; the routes follow in that order.
    pub fn call_at(&mut self, methods: &Methods, calls: &[(&str, &str)]) -> Result<(), Failure> {
        for part in calls.chunks(METHODS_PER_SERVICE) {
            let of = |(path, target): &(&str, &str)| CallMethod {
                path: (*path).to_owned(),
                target: (*target).to_owned(),
            };
            let bound = self.bind(&methods.set, Vec::new(), part.iter().map(of).collect())?;
            self.routes.extend(bound.calls.into_iter().map(RouteIndex));
        }
        Ok(())
    }

    /// One `Bind`.
    pub fn bind(
        &mut self,
        set: &[u8],
        serves: Vec<String>,
        calls: Vec<CallMethod>,
    ) -> Result<Bound, Failure> {
        let bind = Bind { descriptor_set_bytes: set.len() as u64, serves, calls };
        let blob = create_blob(set)?;
        match exchange(&self.control, request::Kind::Bind(bind), Some(&blob))?.0 {
            reply::Kind::Bound(bound) if bound.error.is_empty() => Ok(bound),
            reply::Kind::Bound(bound) => Err(bound.error.into()),
            other => Err(format!("a bind was answered with {other:?}").into()),
        }
    }

    /// Makes a call over one of its routes.
    pub fn call(&mut self, route: usize, methods: &Methods) -> Result<CallId, Failure> {
        self.calls += 1;
        let call = CallId(self.calls);
        let now = Instant(monotonic_ns());
        let call = Call {
            route: self.routes[route],
            call,
            payload: Some(self.write(&methods.message)?),
            metadata: Span::default(),
            end: true,
            wait_for_ready: true,
            deadline: Deadline::NONE,
            entered: now,
            published: now,
            parent: CallId(0),
        };
        self.submit(Submission::Call(call))?;
        Ok(call.call)
    }

    /// Waits until the call is answered, whatever comes before it.
    pub fn wait_for(&mut self, call: CallId) -> Result<(), Failure> {
        loop {
            if let Some(at) = self.arrived.iter().position(|arrived| *arrived == call) {
                self.arrived.swap_remove(at);
                return Ok(());
            }
            let Some(completion) = self.next()? else {
                self.wait()?;
                continue;
            };
            let Completion::Finish(finish) = completion else { return Err("not an answer".into()) };
            if finish.code != Code::Ok {
                return Err(format!("a call ended with {:?}", finish.code).into());
            }
            let block = finish.payload.map_or(Span::default(), |payload| payload.block());
            let a18 = Instant(monotonic_ns());
            let (call, metadata) = (finish.call, finish.metadata);
            self.submit(Submission::Release { call, block, metadata, a18 })?;
            self.arrived.push(finish.call);
        }
    }

    /// Answers whatever is called, for ever.
    pub fn answer_all(&mut self, methods: &Methods) -> Result<(), Failure> {
        loop {
            match self.next()? {
                None => self.wait()?,
                Some(Completion::Call(call)) => self.answer(&call, methods)?,
                Some(_) => {}
            }
        }
    }

    fn answer(&mut self, call: &Call, methods: &Methods) -> Result<(), Failure> {
        let taken = Instant(monotonic_ns());
        let block = call.payload.map_or(Span::default(), |payload| payload.block());
        let (call, metadata) = (call.call, call.metadata);
        self.submit(Submission::Release { call, block, metadata, a18: Instant(0) })?;
        let payload = Some(self.write(&methods.message)?);
        self.submit(Submission::Finish(Finish {
            call,
            code: Code::Ok,
            execution: Execution::Executed,
            payload,
            metadata: Span::default(),
            taken,
            published: Instant(monotonic_ns()),
            cpu_ns: 0,
            subtree: 0,
        }))
    }

    fn wait(&mut self) -> Result<(), Failure> {
        let AppEnd { completions, own_doorbell, .. } = &mut self.end;
        wait_for_entries(completions, own_doorbell, &[], &mut self.waiter, None)?;
        Ok(())
    }

    /// The next completion that is more than a return of blocks.
    fn next(&mut self) -> Result<Option<Completion>, Failure> {
        while let Some(entry) = self.end.completions.pop()? {
            match Completion::decode(&entry).map_err(|error| format!("{error:?}"))? {
                Completion::Freed { offsets } => {
                    for offset in offsets.into_iter().filter(|offset| *offset != 0) {
                        self.end.send_heap.free(offset)?;
                    }
                }
                completion => return Ok(Some(completion)),
            }
        }
        Ok(None)
    }

    fn write(&mut self, message: &[u8]) -> Result<Payload, Failure> {
        let mut block = self.end.send_heap.allocate(message.len() as u32)?;
        block.bytes_mut()[..message.len()].copy_from_slice(message);
        let span = block.lend(message.len() as u32);
        let span = Span { offset: span.offset, len: span.len };
        Ok(Payload::new(span, Encoding::Linear))
    }

    fn submit(&mut self, submission: Submission) -> Result<(), Failure> {
        if self.end.submissions.push(&submission.encode())? {
            self.end.peer_doorbell.ring()?;
        }
        Ok(())
    }
}

/// Asks the daemon and reads what it says.
fn exchange(
    control: &ControlSocket,
    kind: request::Kind,
    fd: Option<&rustix::fd::OwnedFd>,
) -> Result<(reply::Kind, Vec<rustix::fd::OwnedFd>), Failure> {
    let fds: Vec<_> = fd.iter().map(|fd| fd.as_fd()).collect();
    control.send(&prost::Message::encode_to_vec(&Request { tag: 1, kind: Some(kind) }), &fds)?;
    let mut packet = Vec::new();
    let fds = control.recv(&mut packet, SESSION_FDS)?.ok_or("the daemon hung up")?;
    Ok((decode_reply(&packet)?.1, fds))
}
