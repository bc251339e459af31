//! The daemon's listening socket: one daemon to a path, and no stale socket in the way of the next.

use std::path::{Path, PathBuf};

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, FlockOperation, Mode, OFlags, chmod, fchmod, flock, lstat, open, unlink};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with, bind, listen};

use crate::control::{ControlError, ControlSocket, address, seqpacket, system};
use crate::fork::ForkGuard;

/// Connections waiting to be accepted before `connect` waits: attaches come in bursts when a service starts.
const BACKLOG: i32 = 128;

/// The daemon's listening socket. Its path is removed when it is dropped.
#[derive(Debug)]
pub struct ControlListener {
    fd: OwnedFd,
    path: PathBuf,
    /// Held for as long as we serve; tells a stale socket from a served one.
    lock: OwnedFd,
    guard: ForkGuard,
    /// Passed on to a successor: the path is not ours to remove any more.
    passed_on: bool,
}

impl ControlListener {
    /// Listens at `path`, with permissions `mode` (0o600: this user's processes only; 0o666: everybody's).
    ///
    /// A socket left behind by a daemon that died is replaced. Whether one is alive is told by a lock on
    /// `<path>.lock`, not by trying to connect: that would race with a daemon that is just starting.
    ///
    /// # Errors
    /// [`ControlError::Served`], [`ControlError::NotASocket`], [`ControlError::Path`], [`ControlError::System`].
    pub fn bind(path: impl AsRef<Path>, mode: u32) -> Result<ControlListener, ControlError> {
        let path = path.as_ref();
        let address = address(path)?;
        let lock = lock_path(path)?;
        remove_stale(path)?;
        let fd = seqpacket()?;
        // The file takes the socket's mode less the umask, so it is never wider than asked for; then it is widened.
        let mode = Mode::from_raw_mode(mode);
        fchmod(&fd, mode).map_err(system("fchmod"))?;
        bind(&fd, &address).map_err(system("bind"))?;
        let listener = ControlListener::inherit(path, fd, lock);
        chmod(path, mode).map_err(system("chmod"))?;
        listen(&listener.fd, BACKLOG).map_err(system("listen"))?;
        Ok(listener)
    }

    /// Accepts one connection; its socket is blocking unless made otherwise.
    ///
    /// # Errors
    /// [`ControlError::System`]; `EAGAIN` when the listener is non-blocking and nobody waits.
    pub fn accept(&self) -> Result<ControlSocket, ControlError> {
        loop {
            match accept_with(&self.fd, SocketFlags::CLOEXEC) {
                Err(Errno::INTR) => {}
                accepted => return accepted.map(ControlSocket::from).map_err(system("accept")),
            }
        }
    }

    /// Makes `accept` answer `EAGAIN` instead of waiting, or wait again.
    ///
    /// # Errors
    /// [`ControlError::System`].
    pub fn set_nonblocking(&self, nonblocking: bool) -> Result<(), ControlError> {
        rustix::io::ioctl_fionbio(&self.fd, nonblocking).map_err(system("FIONBIO"))
    }

    /// The listening socket and the lock, for a daemon that may take this one's place: until it does, this one goes on.
    #[must_use]
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.fd.as_fd(), self.lock.as_fd()]
    }

    /// The listening socket and the lock, for a daemon that takes this one's place ([`ControlListener::inherit`]).
    /// Connections made meanwhile wait; from now on this process may drop the listener without removing the path.
    pub fn pass_on(&mut self) -> [BorrowedFd<'_>; 2] {
        self.passed_on = true;
        [self.fd.as_fd(), self.lock.as_fd()]
    }

    /// Says whether dropping this removes the path: not while the daemon before this one may still go on.
    pub fn clear_path_at_end(&mut self, clears: bool) {
        self.passed_on = !clears;
    }

    /// Goes on listening at `path` with what an older daemon passed on.
    #[must_use]
    pub fn inherit(path: &Path, fd: OwnedFd, lock: OwnedFd) -> ControlListener {
        ControlListener { fd, path: path.to_path_buf(), lock, guard: ForkGuard::new(), passed_on: false }
    }

    /// Where it listens.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl AsFd for ControlListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for ControlListener {
    fn drop(&mut self) {
        if self.passed_on || self.guard.is_foreign() {
            return;
        }
        // Under the lock, so it is ours. Failing to remove it only leaves a stale socket for the next daemon.
        let _ = unlink(&self.path);
    }
}

fn lock_path(path: &Path) -> Result<OwnedFd, ControlError> {
    let mut lock = path.as_os_str().to_owned();
    lock.push(".lock");
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let lock = open(Path::new(&lock), flags, Mode::RUSR | Mode::WUSR).map_err(system("open lock file"))?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(Errno::WOULDBLOCK) => Err(ControlError::Served { path: path.to_path_buf() }),
        Err(errno) => Err(ControlError::System { what: "flock", errno }),
    }
}

/// Removes the socket of a daemon that is gone: we hold the lock, so nobody serves it.
fn remove_stale(path: &Path) -> Result<(), ControlError> {
    let stat = match lstat(path) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(ControlError::System { what: "lstat", errno }),
    };
    if FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
        return Err(ControlError::NotASocket { path: path.to_path_buf() });
    }
    unlink(path).map_err(system("unlink"))
}
