//! Shows that a session for which there is no memory is refused, and ends nothing. A program of its own: it changes the
//! limits of its process.

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use trunkline_shm::{SessionConfig, SessionError, create_session};

/// Addresses this process has taken.
fn address_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split_whitespace().next().unwrap().parse().unwrap();
    pages * rustix::param::page_size() as u64
}

fn limit(bytes: Option<u64>) {
    setrlimit(Resource::As, Rlimit { current: bytes, ..getrlimit(Resource::As) }).unwrap();
}

#[test]
fn a_session_without_memory_for_its_books_is_refused() {
    let config = SessionConfig { send_heap_bytes: 1 << 30, receive_heap_bytes: 1 << 30, ..<_>::default() };
    // What the first takes beside its memory is taken.
    drop(create_session(&config).unwrap());
    let regions = config.rings_bytes() as u64 + (2 << 30);
    // The books of a heap of 1 GiB are 64 MiB.
    limit(Some(address_bytes() + regions + (32 << 20)));
    for _ in 0..10 {
        let refused = create_session(&config).unwrap_err();
        assert!(matches!(refused, SessionError::System { errno: Errno::NOMEM, .. }), "{refused}");
        assert!(refused.to_string().contains("books of a heap"), "{refused}");
    }
    limit(None);
    let (_end, _fds) = create_session(&config).unwrap();
}
