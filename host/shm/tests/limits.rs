//! Shows what is said where the process can have no more memory or descriptors. A program of its own: it changes the
//! limits of its process.

use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::os::fd::AsRawFd;
use std::sync::Mutex;
use trunkline_shm::{ControlError, ControlSocket, SessionConfig, SessionError, create_session};

/// One test changes limits at a time.
static LIMITS: Mutex<()> = Mutex::new(());

/// Addresses this process has taken.
fn address_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split_whitespace().next().unwrap().parse().unwrap();
    pages * rustix::param::page_size() as u64
}

fn limit(resource: Resource, most: Option<u64>) {
    setrlimit(resource, Rlimit { current: most, ..getrlimit(resource) }).unwrap();
}

#[test]
fn a_session_without_memory_for_its_books_is_refused() {
    let _alone = LIMITS.lock();
    let config = SessionConfig { send_heap_bytes: 1 << 30, receive_heap_bytes: 1 << 30, ..<_>::default() };
    // What the first takes beside its memory is taken.
    drop(create_session(&config).unwrap());
    let regions = config.rings_bytes() as u64 + (2 << 30);
    // The books of a heap of 1 GiB are 64 MiB.
    limit(Resource::As, Some(address_bytes() + regions + (32 << 20)));
    for _ in 0..10 {
        let refused = create_session(&config).unwrap_err();
        assert!(matches!(refused, SessionError::System { errno: Errno::NOMEM, .. }), "{refused}");
        assert!(refused.to_string().contains("books of a heap"), "{refused}");
    }
    limit(Resource::As, None);
    let (_end, _fds) = create_session(&config).unwrap();
}

/// A successor that says "more than 8 descriptors" has its operator look for a fault where there is none.
#[test]
fn descriptors_for_which_there_is_no_place_are_not_too_many() {
    let _alone = LIMITS.lock();
    let (one, other) = ControlSocket::pair().unwrap();
    one.send(b"x", &[std::io::stderr().as_fd(); 2]).unwrap();
    let before = getrlimit(Resource::Nofile).current;
    // All below this are in use.
    let free = one.as_fd().try_clone_to_owned().unwrap().as_raw_fd();
    limit(Resource::Nofile, Some(free as u64));
    let heard = other.recv(&mut Vec::new(), 8);
    limit(Resource::Nofile, before);
    assert!(matches!(heard, Err(ControlError::NoDescriptors)), "{heard:?}");
}
