//! The attach handshake: a connected socket, greeted, becomes a session.

use super::lane::Role;
use crate::refusals::unavailable;
use crate::session::Limits;
use prost::Message;
use rustix::fd::OwnedFd;
use trunkline_call::{Instant, Status};
use trunkline_control::{ABI_VERSION, Attach, Attached, Request, decode_reply, reply, request};
use trunkline_shm::{
    AppEnd, ControlSocket, SESSION_FDS, SessionConfig, SessionFds, open_session, usual_bytes,
};

/// How long a daemon may take to answer. It answers within a millisecond unless it hangs.
pub(super) const ATTACH_TIMEOUT_NS: u64 = 5_000_000_000;

/// A socket on which `Attach` was sent.
#[derive(Debug)]
pub(super) struct Greeted {
    socket: ControlSocket,
    /// When to stop waiting.
    pub(super) until: Instant,
}

/// An answered attachment.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) socket: ControlSocket,
    pub(super) end: AppEnd,
    pub(super) limits: Limits,
}

impl Greeted {
    /// Sends `Attach`.
    ///
    /// # Errors
    /// UNAVAILABLE when the system refuses; a daemon that is gone is found out by [`Greeted::answer`].
    pub(super) fn greet(socket: ControlSocket, name: &str, role: Role, now: Instant) -> Result<Self, Status> {
        let heap_bytes = crate::settings::heap_bytes();
        let attach = Attach {
            abi_version: ABI_VERSION,
            name: name.to_owned(),
            stands_by: role.stands_by,
            tells_callers: role.tells_callers,
            may_move: true,
            send_heap_bytes: heap_bytes,
            receive_heap_bytes: heap_bytes,
            ..Attach::default()
        };
        let packet = Request { tag: 0, kind: Some(request::Kind::Attach(attach)) }.encode_to_vec();
        socket.set_nonblocking(true).map_err(refused)?;
        match socket.send(&packet, &[]) {
            // It has closed already, and may have said why: `answer` reads that.
            Err(error) if !error.is_closed() => return Err(refused(error)),
            _ => {}
        }
        Ok(Self { socket, until: now.plus_ns(ATTACH_TIMEOUT_NS) })
    }

    pub(super) fn socket(&self) -> &ControlSocket {
        &self.socket
    }

    /// Reads the answer and opens the session. `Ok(Err(self))` while there is none.
    ///
    /// # Errors
    /// UNAVAILABLE with the daemon's reason, or with what is wrong with what it sent.
    pub(super) fn answer(self, packet: &mut Vec<u8>) -> Result<Result<Opened, Self>, Status> {
        let fds = match self.socket.recv(packet, SESSION_FDS) {
            Ok(Some(fds)) => fds,
            Ok(None) => return Err(unavailable("the daemon closed the connection during attach")),
            Err(error) if error.would_block() => return Ok(Err(self)),
            Err(error) => return Err(refused(error)),
        };
        match decode_reply(packet).map_err(refused)? {
            (_, reply::Kind::Attached(attached)) => {
                let (end, limits) = open(&attached, fds)?;
                Ok(Ok(Opened { socket: self.socket, end, limits }))
            }
            (_, reply::Kind::Detached(detached)) => {
                Err(unavailable(&format!("the daemon refused to attach: {}", detached.reason)))
            }
            (_, reply::Kind::Bound(_) | reply::Kind::Moved(_)) => {
                Err(unavailable("the daemon answered an attach with something else"))
            }
        }
    }
}

fn open(attached: &Attached, fds: Vec<OwnedFd>) -> Result<(AppEnd, Limits), Status> {
    if attached.abi_version != ABI_VERSION {
        return Err(unavailable(&format!(
            "the daemon speaks ABI version {}, this library {ABI_VERSION}",
            attached.abi_version
        )));
    }
    let heap_bytes = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
    let config = SessionConfig {
        submission_entries: attached.submission_entries,
        completion_entries: attached.completion_entries,
        send_heap_bytes: heap_bytes(attached.send_heap_bytes),
        receive_heap_bytes: heap_bytes(attached.receive_heap_bytes),
    };
    let fds = SessionFds::from_fds(fds).map_err(refused)?;
    let end = open_session(fds, &config).map_err(refused)?;
    let limits = Limits {
        calls_max: attached.calls_max.max(1),
        window_bytes: attached.stream_window_bytes,
        usual_bytes: usual_bytes(config.receive_heap_bytes).into(),
        tells_callers: attached.tells_callers,
    };
    Ok((end, limits))
}

fn refused(error: impl std::fmt::Display) -> Status {
    unavailable(&format!("attaching to the daemon: {error}"))
}
