//! Connections that have not shown who they are: TLS is agreed upon here, on the thread that accepts, so that a
//! connection without rights costs a descriptor and no thread.
//!
//! There are so many at most. Where one comes for which there is no room, the oldest of the address with the most gives
//! way: a crowd from one address keeps out itself, and one that speaks at once has done so before it would give way.
//! One with bytes that were not read yet goes last.

use std::collections::{BTreeMap, HashMap};
use std::io;
use trunkline_net::{Interest, Poller, Source, Stream, TlsServer, Token};
use trunkline_shm::monotonic_ns;

/// Time for TLS.
const HANDSHAKE_NS_MAX: u64 = 10_000_000_000;

/// Connections without a name.
#[derive(Debug)]
pub(crate) struct Door {
    connections_max: usize,
    /// By token; numbers grow, so the first is the oldest.
    waiting: BTreeMap<u64, Waiting>,
    next: u64,
}

#[derive(Debug)]
struct Waiting {
    stream: Stream,
    source: Source,
    until_ns: u64,
    interest: Interest,
}

impl Door {
    /// Whose tokens begin at `first`.
    pub fn new(connections_max: usize, first: u64) -> Self {
        Self { connections_max, waiting: BTreeMap::new(), next: first }
    }

    /// A connection that was accepted. Whether another gave way for it.
    ///
    /// # Errors
    /// What the kernel says; it is closed then.
    pub fn admit(&mut self, poller: &Poller, mut stream: Stream, tls: &TlsServer) -> io::Result<bool> {
        let source = stream.source()?;
        stream.begin_tls_server(tls, &[])?;
        let gave_way = self.waiting.len() >= self.connections_max && self.give_way(Some(source));
        let token = self.next;
        poller.add(&stream, Token(token), Interest::Read)?;
        let until_ns = monotonic_ns() + HANDSHAKE_NS_MAX;
        self.waiting.insert(token, Waiting { stream, source, until_ns, interest: Interest::Read });
        self.next += 1;
        Ok(gave_way)
    }

    /// The oldest of the address with the most goes, of which `newest` is one more. `false`: there is none.
    pub fn give_way(&mut self, newest: Option<Source>) -> bool {
        let mut counts: HashMap<Source, usize> = HashMap::new();
        for source in self.waiting.values().map(|waiting| waiting.source).chain(newest) {
            *counts.entry(source).or_default() += 1;
        }
        let has_some = self.waiting.values().map(|waiting| counts[&waiting.source]);
        let Some(most) = has_some.max() else { return false };
        let of_most = self.waiting.iter().filter(|(_, waiting)| counts[&waiting.source] == most);
        // The first of those with nothing unread; else the first.
        let oldest = of_most.min_by_key(|(_, waiting)| waiting.stream.has_unread());
        let Some(token) = oldest.map(|(token, _)| *token) else { return false };
        self.waiting.remove(&token).is_some()
    }

    /// Goes on with the one of this token. `Some`: it is done, or has failed, and is here no more.
    pub fn go_on(&mut self, poller: &Poller, token: Token) -> Option<(Stream, io::Result<()>)> {
        let waiting = self.waiting.get_mut(&token.0)?;
        let agreed = match waiting.stream.handshake() {
            Ok(true) => Ok(()),
            Ok(false) => {
                let interest =
                    if waiting.stream.wants_write() { Interest::ReadWrite } else { Interest::Read };
                if interest == waiting.interest {
                    return None;
                }
                waiting.interest = interest;
                match poller.set_interest(&waiting.stream, token, interest) {
                    Ok(()) => return None,
                    Err(error) => Err(error),
                }
            }
            Err(error) => Err(error),
        };
        let Waiting { stream, .. } = self.waiting.remove(&token.0)?;
        let left = poller.remove(&stream);
        Some((stream, agreed.and(left)))
    }

    /// One whose time is over. One with bytes that were not read yet has as much time again: the thread that reads may
    /// have been away.
    pub fn overdue(&mut self, now_ns: u64) -> Option<Stream> {
        let mut overdue = self.waiting.iter().take_while(|(_, waiting)| waiting.until_ns <= now_ns);
        let is_over =
            |waiting: &Waiting| waiting.until_ns + HANDSHAKE_NS_MAX <= now_ns || !waiting.stream.has_unread();
        let token = overdue.find(|(_, waiting)| is_over(waiting)).map(|(token, _)| *token)?;
        self.waiting.remove(&token).map(|waiting| waiting.stream)
    }
}

#[cfg(test)]
mod tests {
    //! Shows who gives way.
    use super::*;
    use std::io::Write;
    use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};

    /// A door with one connection of each of these addresses, in their order, and the other ends.
    fn door(addresses: &[u8]) -> (Door, Vec<TcpStream>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let mut door = Door::new(addresses.len(), 7);
        let mut others = Vec::new();
        for last in addresses {
            others.push(TcpStream::connect(to).unwrap());
            let stream = Stream::inherit(listener.accept().unwrap().0.into(), true).unwrap();
            let source = Source::of_address(IpAddr::V4(Ipv4Addr::new(10, 0, 0, *last)));
            let until_ns = door.next;
            door.waiting.insert(door.next, Waiting { stream, source, until_ns, interest: Interest::Read });
            door.next += 1;
        }
        (door, others)
    }

    #[test]
    fn the_oldest_of_the_address_with_the_most_gives_way() {
        let of = |last| Some(Source::of_address(IpAddr::V4(Ipv4Addr::new(10, 0, 0, last))));
        let (mut door, _others) = door(&[1, 2, 2, 3]);
        let left = |door: &Door| door.waiting.keys().copied().collect::<Vec<_>>();
        assert!(door.give_way(None));
        assert_eq!(left(&door), [7, 9, 10]);
        // Now each has one: the newcomer's address has most.
        assert!(door.give_way(of(3)));
        assert_eq!(left(&door), [7, 9]);
        assert!(door.give_way(of(4)));
        assert!(door.give_way(of(4)));
        assert!(!door.give_way(of(4)));
    }

    #[test]
    fn one_with_bytes_unread_gives_way_last() {
        let (mut door, mut others) = door(&[1, 1, 1]);
        others[0].write_all(b"hello").unwrap();
        let left = |door: &Door| door.waiting.keys().copied().collect::<Vec<_>>();
        assert!(door.give_way(None));
        assert_eq!(left(&door), [7, 9]);
        others[2].write_all(b"hello").unwrap();
        assert!(door.give_way(None));
        assert_eq!(left(&door), [9], "the oldest of those that have said something");
    }

    #[test]
    fn time_ends_in_the_order_of_arrival() {
        let (mut door, _others) = door(&[1, 1]);
        assert!(door.overdue(6).is_none());
        assert!(door.overdue(7).is_some());
        assert!(door.overdue(7).is_none());
        assert!(door.overdue(8).is_some());
    }

    #[test]
    fn time_ends_later_for_one_with_bytes_unread() {
        let (mut door, mut others) = door(&[1, 1]);
        others[0].write_all(b"hello").unwrap();
        assert!(door.overdue(8).is_some());
        assert_eq!(door.waiting.keys().collect::<Vec<_>>(), [&7]);
        assert!(door.overdue(6 + HANDSHAKE_NS_MAX).is_none());
        assert!(door.overdue(7 + HANDSHAKE_NS_MAX).is_some());
    }
}
