//! The control socket of a session, and the receive heaps that come over it.

use super::heaps::ReceiveHeaps;
use crate::refusals::unavailable;
use parking_lot::Mutex;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::collections::VecDeque;
use trunkline_call::Status;
use trunkline_shm::{ControlError, ControlSocket, PACKET_BYTES_MAX};

/// What the daemon is asked over, by any thread, and answers on, to the listener.
#[derive(Debug)]
pub(super) struct ControlLink {
    /// `None` once closed, which only the listener does, or a forked child to its copy.
    socket: Mutex<Option<ControlSocket>>,
    questions: Mutex<Questions>,
    /// Packets that were read in search of a heap, and are the listener's.
    unread: Mutex<VecDeque<Vec<u8>>>,
    pub(super) heaps: ReceiveHeaps,
}

/// A packet, with a descriptor set if there is one.
type Question = (Vec<u8>, Option<OwnedFd>);

/// Questions that are to be answered at once, at most: enough that neither side waits for the other. A socket has room
/// for some hundred short packets, or three of the longest, that the other side has not read (`net.core.wmem_default`),
/// and a daemon ends the session of who does not read what it answers.
const QUESTIONS_MAX: usize = 8;

/// What the daemon is asked. Under the socket's lock, or alone.
#[derive(Debug, Default)]
struct Questions {
    under_way: usize,
    /// Those that wait for an answer to another, in order: no more than services and methods that somebody binds.
    waiting: VecDeque<Question>,
}

/// A packet that was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PacketRead {
    /// Earlier, by whoever looked for a heap.
    Before,
    /// Now; `bare`: without a descriptor.
    Now { bare: bool },
    /// The daemon has closed.
    Closed,
}

impl ControlLink {
    pub(super) fn new(socket: ControlSocket, heaps: ReceiveHeaps) -> Self {
        let (questions, unread) = (Mutex::default(), Mutex::default());
        Self { socket: Mutex::new(Some(socket)), questions, unread, heaps }
    }

    /// Asks the daemon what it answers, once it has answered enough of what it was asked before.
    ///
    /// # Errors
    /// UNAVAILABLE when the session is over, or the question longer than a packet.
    pub(super) fn ask(&self, packet: Vec<u8>, set: Option<OwnedFd>) -> Result<(), Status> {
        let socket = self.socket.lock();
        let socket = socket.as_ref().ok_or_else(|| unavailable("the session is over"))?;
        let mut questions = self.questions.lock();
        let question = (packet, set);
        // One that is too long never goes, and hears that now.
        let waits = questions.under_way >= QUESTIONS_MAX && question.0.len() <= PACKET_BYTES_MAX;
        if waits || !say(socket, &question).map_err(|error| unavailable(&error.to_string()))? {
            questions.waiting.push_back(question);
        } else {
            questions.under_way += 1;
        }
        Ok(())
    }

    /// The daemon has answered a question: others that wait are asked.
    pub(super) fn answered(&self) {
        let socket = self.socket.lock();
        let mut questions = self.questions.lock();
        questions.under_way = questions.under_way.saturating_sub(1);
        let Some(socket) = &*socket else { return };
        // Of a daemon that has gone the listener hears.
        while questions.under_way < QUESTIONS_MAX
            && questions.waiting.front().is_some_and(|question| say(socket, question).unwrap_or(false))
        {
            questions.waiting.pop_front();
            questions.under_way += 1;
        }
    }

    /// Reads one packet, which replaces what was in `packet`.
    ///
    /// # Errors
    /// As [`ControlSocket::recv`].
    pub(super) fn read(&self, packet: &mut Vec<u8>) -> Result<PacketRead, ControlError> {
        if let Some(unread) = self.unread.lock().pop_front() {
            *packet = unread;
            return Ok(PacketRead::Before);
        }
        let socket = self.socket.lock();
        let Some(socket) = &*socket else { return Ok(PacketRead::Closed) };
        let Some(fds) = socket.recv(packet, 1)? else { return Ok(PacketRead::Closed) };
        let bare = fds.is_empty();
        // Under the socket's lock: whoever finds the socket empty finds the heap here.
        self.heaps.take(packet, fds)?;
        Ok(PacketRead::Now { bare })
    }

    /// Whether a packet that was read before waits for the listener.
    pub(super) fn has_unread(&self) -> bool {
        !self.unread.lock().is_empty()
    }

    /// Reads the socket until a heap is there, or nothing more is. Tells whether anything was read: then the listener
    /// is to look for packets that are its own.
    pub(super) fn look_for_heap(&self, number: u32) -> bool {
        let mut packet = Vec::new();
        let mut any = false;
        loop {
            let socket = self.socket.lock();
            if self.heaps.has(number) {
                return any;
            }
            let Some(socket) = &*socket else { return any };
            match socket.recv(&mut packet, 1) {
                Ok(Some(fds)) if !fds.is_empty() => drop(self.heaps.take(&packet, fds)),
                Ok(Some(_)) => self.unread.lock().push_back(std::mem::take(&mut packet)),
                Ok(None) | Err(_) => return any,
            }
            any = true;
        }
    }

    pub(super) fn close(&self) {
        let mut socket = self.socket.lock();
        socket.take();
        self.questions.lock().waiting.clear();
    }

    /// In a forked child: closes the copy of the socket, so that the daemon sees its parent's death when it comes. If
    /// another thread of the parent was using it at the moment of the fork, the copy stays.
    pub(super) fn close_inherited(&self) {
        if let Some(mut socket) = self.socket.try_lock() {
            socket.take();
        }
    }

    /// Tells the daemon that the session is over; the listener reads the end of it, and closes.
    pub(super) fn shut_down(&self) {
        if let Some(socket) = &*self.socket.lock() {
            // The socket may be gone already; there is nobody left to tell.
            let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
        }
    }
}

/// `false`: the daemon has no room for it now.
fn say(socket: &ControlSocket, (packet, set): &Question) -> Result<bool, ControlError> {
    let fds: Vec<BorrowedFd<'_>> = set.iter().map(AsFd::as_fd).collect();
    match socket.send(packet, &fds) {
        Ok(()) => Ok(true),
        Err(error) if error.would_block() => Ok(false),
        Err(error) => Err(error),
    }
}
