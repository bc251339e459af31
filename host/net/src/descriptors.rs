//! Whether descriptors may be sent to a Unix socket: SO_PASSRIGHTS (Linux 6.16).
//!
//! A message that holds the last reference to somebody's socket or file closes it where the message is dropped: in the
//! thread that reads or closes the socket it was sent to, for as long as that close waits (SO_LINGER, a FUSE server).
#![allow(unsafe_code, reason = "no crate we have sets this option; one call of the kernel")]

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};

/// include/uapi/asm-generic/socket.h; libc has no name for it yet.
const SO_PASSRIGHTS: libc::c_int = 83;

/// Says whether others may send descriptors to a Unix socket. A send with some is EPERM otherwise. Sockets that are
/// accepted are as their listener was when they were connected.
///
/// # Errors
/// What the kernel says: before Linux 6.16 they may always.
pub fn accept_descriptors(socket: impl AsFd, accepts: bool) -> io::Result<()> {
    let flag = libc::c_int::from(accepts);
    let size = size_of::<libc::c_int>() as libc::socklen_t;
    let (fd, value) = (socket.as_fd().as_raw_fd(), &raw const flag);
    // SAFETY: the descriptor is open while it is borrowed, and the value is as long as it is said to be.
    let done = unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, SO_PASSRIGHTS, value.cast(), size) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
