//! Descriptors that applications sent and nobody wants are closed on a thread of their own: the last close of one may
//! wait for as long as its sender likes (SO_LINGER, a file of a FUSE server), and no shard and no attach waits for it.
//!
//! The thread is there while something waits to be closed. What waits is counted by user, and of a user with much of it
//! nothing more is read ([`Closer::may_send`]): its connections are closed, each of them one more that waits if some
//! lie unread in it. Only who has attached may send any ([`trunkline_net::accept_descriptors`]), and a user has so many
//! sessions. A kernel before Linux 6.16 lets everybody send some who connects; there the process's own limit of
//! descriptors is the bound.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{fcntl_get_seals, fstat};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Descriptors of one user that may wait to be closed before it is refused: one packet brings 253, and what is sent
/// by mistake is closed at once.
const WAITING_PER_USER_MAX: usize = 256;
/// Memory files are closed where they are, up to so many bytes: giving back the memory of larger ones takes a while.
const MEMORY_BYTES_MAX: u64 = 64 << 20;
const BLOCK_BYTES: u64 = 512;

/// Whoever sent them: a user of this host. `None` if the kernel does not say.
pub(crate) type Sender = Option<u32>;

/// The thread, and what waits for it.
#[derive(Debug, Default)]
pub(crate) struct Closer {
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    descriptors: VecDeque<(Sender, OwnedFd)>,
    /// With the one that is being closed.
    by_user: HashMap<Sender, usize>,
    is_running: bool,
}

impl Closer {
    /// Closes descriptors that a user sent, none of them in this thread but memory files, whose close never waits.
    pub fn close(self: &Arc<Self>, sender: Sender, descriptors: impl IntoIterator<Item = OwnedFd>) {
        let may_wait = descriptors.into_iter().filter(|descriptor| !is_memory_file(descriptor));
        let may_wait: Vec<_> = may_wait.map(|descriptor| (sender, descriptor)).collect();
        if may_wait.is_empty() {
            return;
        }
        let mut waiting = self.lock();
        *waiting.by_user.entry(sender).or_default() += may_wait.len();
        waiting.descriptors.extend(may_wait);
        if waiting.is_running {
            return;
        }
        let this = Arc::clone(self);
        let thread = std::thread::Builder::new().name("trunkline-closer".into());
        // Without a thread they wait for the next that are sent: here they may not be closed.
        waiting.is_running = thread.spawn(move || this.run()).is_ok();
    }

    /// Whether more of what a user sends may be read.
    ///
    /// # Errors
    /// Why not, in a sentence for the application.
    pub fn may_send(&self, user: Sender) -> Result<(), String> {
        let waiting = self.lock().by_user.get(&user).copied().unwrap_or_default();
        if waiting <= WAITING_PER_USER_MAX {
            return Ok(());
        }
        Err(format!(
            "{waiting} descriptors that processes of this user sent wait to be closed, where the daemon has at most \
             {WAITING_PER_USER_MAX}: sockets that linger, or files whose server does not answer"
        ))
    }

    fn run(&self) {
        while let Some((sender, descriptor)) = self.next() {
            drop(descriptor);
            let by_user = &mut self.lock().by_user;
            if let Some(count) = by_user.get_mut(&sender) {
                *count -= 1;
                if *count == 0 {
                    by_user.remove(&sender);
                }
            }
        }
    }

    /// What is to be closed next; if nothing is, the thread ends.
    fn next(&self) -> Option<(Sender, OwnedFd)> {
        let mut waiting = self.lock();
        let next = waiting.descriptors.pop_front();
        waiting.is_running = next.is_some();
        next
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether it is a file in memory, and a small one.
fn is_memory_file(descriptor: &OwnedFd) -> bool {
    let is_small = |bytes: u64| bytes <= MEMORY_BYTES_MAX;
    fcntl_get_seals(descriptor.as_fd()).is_ok()
        && fstat(descriptor).is_ok_and(|found| is_small(found.st_blocks.cast_unsigned() * BLOCK_BYTES))
}

#[cfg(test)]
mod tests {
    //! Shows that a descriptor whose close waits keeps nobody but the thread that closes it, and that its user, and no
    //! other, is refused while many wait.
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    /// A socket that lingers over what its peer does not read.
    fn lingering() -> (OwnedFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (peer, _) = listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        while (&stream).write(&[0; 65536]).is_ok() {}
        let for_long = Some(Duration::from_secs(100_000));
        rustix::net::sockopt::set_socket_linger(&stream, for_long).unwrap();
        (stream.into(), peer)
    }

    #[test]
    fn who_sent_many_whose_close_waits_is_refused_until_they_are_closed() {
        let closer = Arc::new(Closer::default());
        let (socket, peer) = lingering();
        let (pipe, _writer) = rustix::pipe::pipe().unwrap();
        let memory = rustix::fs::memfd_create("small", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        closer.close(Some(1), [socket, memory]);
        closer.close(Some(2), [pipe.try_clone().unwrap()]);
        let waiting = |user| closer.lock().by_user.get(&user).copied();
        assert_eq!((waiting(Some(1)), waiting(Some(2))), (Some(1), Some(1)));
        let pipes = |count| (0..count).map(|_| pipe.try_clone().unwrap());
        closer.close(Some(1), pipes(WAITING_PER_USER_MAX - 1));
        closer.may_send(Some(1)).unwrap();
        closer.close(Some(1), pipes(1));
        let why = closer.may_send(Some(1)).unwrap_err();
        assert!(why.contains("257 descriptors"), "{why}");
        closer.may_send(Some(2)).unwrap();
        drop(peer);
        while closer.may_send(Some(1)).is_err() || waiting(Some(2)).is_some() {
            std::thread::yield_now();
        }
    }
}
