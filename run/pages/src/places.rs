//! Places for connections: so many in all, and so many from one source. Where one more comes, the oldest that is not
//! being answered gives way: of its own source, or of the source with the most; rather one that has its answer, then
//! one whose thread has read all there is of it, for the others may have asked already.

use rustix::net::{RecvFlags, recv};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Connections that are answered at once.
pub const PLACES_MAX: usize = 8;
/// Those of them that may come from one address (of IPv6: one /64; this host is one): whoever is slow on purpose leaves
/// places to others.
pub const PLACES_OF_SOURCE_MAX: usize = 4;

/// The places. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReaderLimit(Arc<Mutex<ReaderPlaces>>);

#[derive(Debug, Default)]
struct ReaderPlaces {
    /// The oldest first.
    taken: Vec<ReaderPlace>,
    next: u64,
}

#[derive(Debug)]
struct ReaderPlace {
    number: u64,
    source: IpAddr,
    stream: Arc<TcpStream>,
    stage: Stage,
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Silent,
    /// Its request has come: it is answered, and gives way to nobody.
    Asked,
    /// The kernel has its answer.
    Answered,
}

/// A connection's place; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct ReaderPermit {
    places: ReaderLimit,
    number: u64,
}

impl ReaderLimit {
    /// A place for a connection from this address, if there is one or another gives way: that one is shut down.
    pub fn admit(&self, address: IpAddr, stream: &Arc<TcpStream>) -> Option<ReaderPermit> {
        let source = source_of(address);
        let mut places = self.lock();
        if places.is_full_for(source) {
            let at = places.one_to_give_way(source)?;
            let _ = places.taken.remove(at).stream.shutdown(Shutdown::Both);
        }
        let number = places.next;
        places.next += 1;
        places.taken.push(ReaderPlace { number, source, stream: Arc::clone(stream), stage: Stage::Silent });
        Some(ReaderPermit { places: self.clone(), number })
    }

    fn lock(&self) -> MutexGuard<'_, ReaderPlaces> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReaderPlaces {
    fn of_source(&self, source: IpAddr) -> usize {
        self.taken.iter().filter(|one| one.source == source).count()
    }

    fn is_full_for(&self, source: IpAddr) -> bool {
        self.taken.len() >= PLACES_MAX || self.of_source(source) >= PLACES_OF_SOURCE_MAX
    }

    /// Where the oldest is that is not being answered: of this source if it has all it may have, else of the one with
    /// the most such connections, of which one more of this source is one.
    fn one_to_give_way(&self, source: IpAddr) -> Option<usize> {
        let idle = || self.taken.iter().enumerate().filter(|(_, one)| one.stage != Stage::Asked);
        // The first of those that are answered, then of those with nothing unread; else the first.
        let first_at = |of: IpAddr| {
            idle()
                .filter(|(_, one)| one.source == of)
                .min_by_key(|(_, one)| (one.stage != Stage::Answered, one.has_unread()))
                .map(|(at, _)| at)
        };
        if self.of_source(source) >= PLACES_OF_SOURCE_MAX {
            return first_at(source);
        }
        let mut counts: HashMap<IpAddr, usize> = HashMap::from([(source, 1)]);
        idle().for_each(|(_, one)| *counts.entry(one.source).or_default() += 1);
        let most = idle().map(|(_, one)| counts[&one.source]).max()?;
        let (_, first) = idle().find(|(_, one)| counts[&one.source] == most)?;
        first_at(first.source)
    }
}

impl ReaderPlace {
    /// Whether its thread has not read what it sent last.
    fn has_unread(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        recv(&*self.stream, &mut [0; 1][..], flags).is_ok_and(|(_, bytes)| bytes > 0)
    }
}

impl ReaderPermit {
    /// The connection's request has come.
    pub fn has_asked(&self) {
        self.is(Stage::Asked);
    }

    /// The kernel has all of its answer: it waits for the reader to close.
    pub fn is_answered(&self) {
        self.is(Stage::Answered);
    }

    fn is(&self, stage: Stage) {
        let mut places = self.places.lock();
        let own = places.taken.iter_mut().find(|one| one.number == self.number);
        own.into_iter().for_each(|one| one.stage = stage);
    }
}

impl Drop for ReaderPermit {
    fn drop(&mut self) {
        self.places.lock().taken.retain(|one| one.number != self.number);
    }
}

/// Of IPv6 the first half: a host has the other half for itself. All of this host's own addresses are one.
fn source_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        address if address.is_loopback() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

#[cfg(test)]
mod tests {
    //! Shows that no source has all places, who gives way, and that places are given back.
    use super::*;
    use std::io::{ErrorKind, Read, Write};
    use std::net::TcpListener;

    /// Connections: each end that has a place, with the other, which does not wait.
    struct Ends(TcpListener);

    impl Ends {
        fn new() -> Self {
            Self(TcpListener::bind("127.0.0.1:0").unwrap())
        }

        fn admit(&self, places: &ReaderLimit, address: &str) -> (Option<ReaderPermit>, TcpStream) {
            let reader = TcpStream::connect(self.0.local_addr().unwrap()).unwrap();
            let stream = Arc::new(self.0.accept().unwrap().0);
            reader.set_nonblocking(true).unwrap();
            let permit = places.admit(address.parse().unwrap(), &stream);
            // What is not shut down stays open, as it does while it is answered.
            std::mem::forget(stream);
            (permit, reader)
        }
    }

    fn is_open(reader: &TcpStream) -> bool {
        let mut reader = reader;
        matches!(reader.read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
    }

    #[test]
    fn who_has_not_asked_gives_way_the_oldest_of_the_source_with_the_most() {
        let (places, ends) = (ReaderLimit::default(), Ends::new());
        let silent: Vec<_> = (0..4).map(|_| ends.admit(&places, "10.0.0.1")).collect();
        let others: Vec<_> = (0..4).map(|n| ends.admit(&places, &format!("2001:db8:0:{n}::1"))).collect();
        // One more of the crowd takes the place of its first; and so does one of a new source, of the next.
        let (more, _more) = ends.admit(&places, "::ffff:10.0.0.1");
        let (new, _new) = ends.admit(&places, "10.0.0.2");
        assert!(more.is_some() && new.is_some());
        let open: Vec<bool> = silent.iter().map(|(_, reader)| is_open(reader)).collect();
        assert_eq!(open, [false, false, true, true]);
        assert!(others.iter().all(|(_, reader)| is_open(reader)));
        assert_eq!(places.lock().taken.len(), PLACES_MAX);
        drop((silent, others, more, new));
        assert!(places.lock().taken.is_empty());
    }

    #[test]
    fn whose_request_has_not_been_read_gives_way_last() {
        let (places, ends) = (ReaderLimit::default(), Ends::new());
        let silent: Vec<_> = (0..4).map(|_| ends.admit(&places, "10.0.0.1")).collect();
        let ask = |at: usize| (&silent[at].1).write_all(b"GET").unwrap();
        let open = || silent.iter().map(|(_, reader)| is_open(reader)).collect::<Vec<_>>();
        ask(0);
        let (_one, _) = ends.admit(&places, "10.0.0.1");
        assert_eq!(open(), [true, false, true, true]);
        (2..4).for_each(ask);
        let newest = ends.admit(&places, "10.0.0.1");
        assert_eq!(open(), [true, false, true, true], "the newcomer before is silent");
        (&newest.1).write_all(b"GET").unwrap();
        let (_one, _) = ends.admit(&places, "10.0.0.1");
        assert_eq!(open(), [false, false, true, true], "all have said something, and one must go");
    }

    #[test]
    fn who_has_asked_keeps_its_place() {
        let (places, ends) = (ReaderLimit::default(), Ends::new());
        let local = ["127.0.0.1", "127.0.0.2", "::1", "::ffff:127.0.0.3"];
        let asked: Vec<_> = local.map(|address| ends.admit(&places, address)).into_iter().collect();
        asked.iter().for_each(|(permit, _)| permit.as_ref().unwrap().has_asked());
        assert!(ends.admit(&places, "127.0.0.4").0.is_none(), "this host is one source");
        assert!(asked.iter().all(|(_, reader)| is_open(reader)));
        assert!(ends.admit(&places, "10.0.0.1").0.is_some());
    }
}
