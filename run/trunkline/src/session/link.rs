//! The control socket of a session, and the receive heaps that come over it.

use super::heaps::ReceiveHeaps;
use crate::refusals::unavailable;
use parking_lot::Mutex;
use rustix::fd::BorrowedFd;
use std::collections::VecDeque;
use trunkline_call::Status;
use trunkline_shm::{ControlError, ControlSocket};

/// What the daemon is asked over, by any thread, and answers on, to the listener.
#[derive(Debug)]
pub(super) struct ControlLink {
    /// `None` once closed, which only the listener does, or a forked child to its copy.
    socket: Mutex<Option<ControlSocket>>,
    /// Packets that were read in search of a heap, and are the listener's.
    unread: Mutex<VecDeque<Vec<u8>>>,
    pub(super) heaps: ReceiveHeaps,
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
        Self { socket: Mutex::new(Some(socket)), unread: Mutex::default(), heaps }
    }

    /// # Errors
    /// UNAVAILABLE when the session is over or its daemon does not read, RESOURCE_EXHAUSTED for limits.
    pub(super) fn send(&self, packet: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), Status> {
        let socket = self.socket.lock();
        let socket = socket.as_ref().ok_or_else(|| unavailable("the session is over"))?;
        socket.send(packet, fds).map_err(|error| unavailable(&error.to_string()))
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
        self.socket.lock().take();
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
