//! The daemon's side: stands in for an application beside a daemon.

use crate::accounts::Account;
use crate::ends::{SessionEnd, TakenEntry};
use crate::error::LinkError;
use crate::lent::place_of;
use crate::output::LinkOutput;
use prost::Message;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::collections::BTreeSet;
use std::io;
use trunkline_call::entry::{Completion, Entry, Span, Submission};
use trunkline_control::{
    Attach, Attached, Bind, LinkFrame, Moved, Request, decode_reply, decode_request, reply, request,
};
use trunkline_shm::{
    AllegedHeap, ControlSocket, HEAP_BYTES_MIN, RelayedAppEnd, SESSION_FDS, SessionConfig, SessionFds,
    create_blob, open_relayed_heap, open_relayed_session,
};

/// Receive heaps kept, as at the other side.
const HEAPS_KEPT: usize = 4;
/// Bytes of the send heap's pages after which they go back, at a moment when nothing lies there.
const CLEAR_BYTES_MIN: u64 = 8 << 20;
/// Pages are counted in pieces of so many bytes.
const PIECE_BYTES: u32 = 64 << 10;

/// The side of the daemon.
#[derive(Debug)]
pub(crate) struct HostSide {
    /// Of whom the connection's certificate names.
    account: Account,
    /// Bytes of either heap at most.
    heap_bytes_max: u64,
    has_asked: bool,
    session: Option<FarSession>,
    packet: Vec<u8>,
}

/// The session the daemon has made.
#[derive(Debug)]
struct FarSession {
    end: RelayedAppEnd,
    /// The receive heaps there have been since, with their numbers; the newest last.
    heaps: Vec<(u32, AllegedHeap)>,
    /// Blocks the daemon has been handed and not given back: nothing else lies in the send heap.
    lent: BTreeSet<u32>,
    /// Bytes of an entry that has not come yet lie there, too.
    is_written: bool,
    /// Pieces of the send heap written since its pages went back: each is counted once.
    touched: BTreeSet<u32>,
}

impl HostSide {
    pub fn new(account: Account, heap_bytes_max: u64) -> Self {
        Self { account, heap_bytes_max, has_asked: false, session: None, packet: Vec::new() }
    }

    fn session(&mut self) -> Result<&mut FarSession, LinkError> {
        self.session.as_mut().ok_or_else(early)
    }

    /// An attach, in the name the certificate says, with heaps no larger than this relay gives.
    fn attach(&mut self, tag: u64, attach: Attach, control: &ControlSocket) -> Result<(), LinkError> {
        if std::mem::replace(&mut self.has_asked, true) {
            return Err(LinkError::Protocol("attach twice".into()));
        }
        let most = self.heap_bytes_max;
        let heap = |asked: u64| if asked == 0 { most } else { asked.clamp(HEAP_BYTES_MIN.into(), most) };
        let attach = Attach {
            identity: self.account.identity().to_owned(),
            send_heap_bytes: heap(attach.send_heap_bytes),
            receive_heap_bytes: heap(attach.receive_heap_bytes),
            // What stands in for a daemon's own services is no application's.
            stands_by: false,
            ..attach
        };
        let request = Request { tag, kind: Some(request::Kind::Attach(attach)) };
        Ok(control.send(&request.encode_to_vec(), &[])?)
    }

    /// Opens the session the daemon has made.
    fn open(&mut self, attached: &Attached, fds: Vec<OwnedFd>) -> Result<(), LinkError> {
        if self.session.is_some() {
            return Err(LinkError::Protocol("the daemon attached twice".into()));
        }
        if attached.identity != self.account.identity() {
            return Err(LinkError::Left("the daemon does not know of relays: it is older than this relay"));
        }
        let bytes = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        let config = SessionConfig {
            submission_entries: attached.submission_entries,
            completion_entries: attached.completion_entries,
            send_heap_bytes: bytes(attached.send_heap_bytes),
            receive_heap_bytes: bytes(attached.receive_heap_bytes),
        };
        let end = open_relayed_session(SessionFds::from_fds(fds)?, &config)?;
        self.session = Some(FarSession {
            end,
            heaps: Vec::new(),
            lent: BTreeSet::new(),
            is_written: false,
            touched: BTreeSet::new(),
        });
        Ok(())
    }

    /// Another receive heap, or the word that the one before is not used any more. Whether a heap came.
    fn moved(&mut self, moved: &Moved, fds: &[OwnedFd]) -> Result<bool, LinkError> {
        let session = self.session()?;
        let Moved { receive_heap_bytes, heap_number } = *moved;
        let Some(fd) = fds.first() else {
            session.heaps.retain(|(number, _)| *number == heap_number);
            return Ok(false);
        };
        let heap = open_relayed_heap(fd, u32::try_from(receive_heap_bytes).unwrap_or(u32::MAX))?;
        session.heaps.retain(|(number, _)| *number != heap_number);
        session.heaps.push((heap_number, heap));
        if session.heaps.len() > HEAPS_KEPT {
            session.heaps.remove(0);
        }
        Ok(true)
    }
}

fn early() -> LinkError {
    LinkError::Protocol("entries before the session is there".into())
}

impl FarSession {
    fn heap(&self, number: u32) -> Option<&AllegedHeap> {
        let later = self.heaps.iter().rfind(|(known, _)| *known == number).map(|(_, heap)| heap);
        later.or_else(|| (number == 0).then_some(&self.end.receive_heap))
    }

    /// Whether every heap an entry points into is here: the word of a new one comes by the control socket before.
    fn has_heaps_of(&self, spans: &[Span]) -> bool {
        spans.iter().filter(|span| span.len > 0).all(|span| self.heap(place_of(*span).0).is_some())
    }

    /// Gives the send heap's pages back when nothing lies there. How many bytes that were.
    fn clear_at_rest(&mut self) -> u64 {
        let bytes = self.touched.len() as u64 * u64::from(PIECE_BYTES);
        if bytes < CLEAR_BYTES_MIN || !self.lent.is_empty() || self.is_written {
            return 0;
        }
        if let Err(error) = self.end.send_heap.clear() {
            tracing::debug!(%error, "pages of a send heap not given back");
            return 0;
        }
        self.touched.clear();
        bytes
    }
}

impl SessionEnd for HostSide {
    fn greeted(&mut self, _same_clock: bool) {}

    fn clock_told(&mut self, _sent_ns: u64, _clock_ns: u64) {}

    fn take(&mut self) -> Result<Option<TakenEntry>, LinkError> {
        let Some(session) = &mut self.session else { return Ok(None) };
        let Some(entry) = session.end.completions.peek()? else { return Ok(None) };
        let completion = Completion::decode(&entry)
            .map_err(|error| LinkError::Protocol(format!("the daemon's entry: {error:?}")))?;
        let spans = completion.carries();
        if !session.has_heaps_of(&spans) {
            return Ok(None);
        }
        if let Completion::Freed { offsets } = &completion {
            offsets.iter().for_each(|offset| _ = session.lent.remove(offset));
        }
        session.end.completions.pop()?;
        Ok(Some(TakenEntry { entry, spans }))
    }

    fn copy_out(&self, offset: u32, into: &mut [u8]) -> Result<(), LinkError> {
        let session = self.session.as_ref().ok_or(LinkError::Left("there is no session"))?;
        let (number, first) = place_of(Span { offset, len: 0 });
        let heap = session.heap(number);
        let heap = heap.ok_or_else(|| LinkError::Protocol(format!("an entry of receive heap {number}")))?;
        Ok(heap.copy_out(first, into)?)
    }

    fn write(&mut self, offset: u32, bytes: &[u8]) -> Result<(), LinkError> {
        let Self { account, session, .. } = self;
        let session = session.as_mut().ok_or_else(early)?;
        let last = offset.saturating_add(u32::try_from(bytes.len()).unwrap_or(u32::MAX).saturating_sub(1));
        for piece in offset / PIECE_BYTES..=last / PIECE_BYTES {
            if !session.touched.contains(&piece) {
                account.take(PIECE_BYTES.into()).map_err(LinkError::Full)?;
                session.touched.insert(piece);
            }
        }
        session.end.send_heap.write(offset, bytes)?;
        session.is_written = true;
        Ok(())
    }

    fn put(&mut self, entry: Entry) -> Result<bool, LinkError> {
        let session = self.session()?;
        if session.end.submissions.is_full()? {
            return Ok(false);
        }
        // What is no entry the daemon refuses, and says so.
        if let Ok(submission) = Submission::decode(&entry) {
            session
                .lent
                .extend(submission.carries().iter().filter(|span| span.len > 0).map(|span| span.offset));
        }
        session.is_written = false;
        session.end.submissions.stage(&entry)?;
        Ok(true)
    }

    fn publish(&mut self) -> Result<(), LinkError> {
        let RelayedAppEnd { submissions, peer_doorbell, .. } = &mut self.session()?.end;
        Ok(peer_doorbell.publish(submissions).map_err(io::Error::from)?)
    }

    fn arm(&mut self) -> Result<bool, LinkError> {
        let Some(session) = &mut self.session else { return Ok(true) };
        self.account.give_back(session.clear_at_rest());
        Ok(session.end.completions.arm()?)
    }

    fn disarm(&mut self) {
        if let Some(session) = &mut self.session {
            session.end.completions.disarm();
            let _ = session.end.own_doorbell.quiet();
        }
    }

    fn doorbell(&self) -> Option<BorrowedFd<'_>> {
        self.session.as_ref().map(|session| session.end.own_doorbell.as_fd())
    }

    fn say(&mut self, control: &ControlSocket, output: &mut LinkOutput) -> Result<bool, LinkError> {
        let mut packet = std::mem::take(&mut self.packet);
        let fds = match control.recv(&mut packet, SESSION_FDS) {
            Ok(Some(fds)) => fds,
            Ok(None) => return Err(LinkError::Left("the daemon has ended the session")),
            Err(error) if error.would_block() => {
                self.packet = packet;
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        };
        let said = decode_reply(&packet).map_err(|error| LinkError::Protocol(error.to_string()))?;
        let heap = match said {
            (_, reply::Kind::Attached(attached)) => {
                self.open(&attached, fds)?;
                false
            }
            (_, reply::Kind::Moved(moved)) => self.moved(&moved, &fds)?,
            (_, reply::Kind::Bound(_) | reply::Kind::Detached(_)) => false,
        };
        output.push(&LinkFrame::Packet { packet: &packet, heap });
        self.packet = packet;
        Ok(true)
    }

    fn keep(&mut self, blob_bytes: usize) -> Result<(), LinkError> {
        self.account.take(blob_bytes as u64).map_err(LinkError::Full)
    }

    fn hear(
        &mut self,
        packet: &[u8],
        heap: bool,
        blob: Vec<u8>,
        control: &ControlSocket,
    ) -> Result<(), LinkError> {
        self.account.give_back(blob.len() as u64);
        if heap {
            return Err(LinkError::Protocol("a receive heap from an application".into()));
        }
        match decode_request(packet).map_err(|error| LinkError::Protocol(error.to_string()))? {
            (tag, request::Kind::Attach(attach)) => self.attach(tag, attach, control),
            (_, request::Kind::Bind(Bind { descriptor_set_bytes: 0, .. })) if blob.is_empty() => {
                Ok(control.send(packet, &[])?)
            }
            (_, request::Kind::Bind(_)) => {
                let blob = create_blob(&blob)
                    .map_err(|error| LinkError::Protocol(format!("descriptor set: {error}")))?;
                Ok(control.send(packet, &[blob.as_fd()])?)
            }
        }
    }
}
