//! Room for streams that wait.
//!
//! There is so much of it for all callers. Where one more comes, the oldest of the caller with the most gives way, and
//! who has the most himself is refused: a crowd from one address, or of one user, keeps out itself and nobody else. (If
//! its own oldest gave way, its streams would end each other without end: who watches comes again.)

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::{Future, poll_fn};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use trunkline::{Caller, Status};

/// Streams of all these services that wait at once. A quarter of the calls one session may have in hand
/// (`limits.calls_delivered_per_session`), so that plain questions always find room beside them.
pub const STREAMS_MAX: usize = 1024;

/// The streams there are, and whose.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slots(Arc<Mutex<Taken>>);

#[derive(Debug, Default)]
struct Taken {
    /// By number; numbers grow, so the first is the oldest.
    streams: BTreeMap<u64, (StreamSource, Arc<Notice>)>,
    /// Their numbers by source.
    sources: HashMap<StreamSource, BTreeSet<u64>>,
    next: u64,
}

/// Whom a stream counts for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum StreamSource {
    /// A user of this host.
    User(u32),
    /// An address; of IPv6 the first half, because a host has the other half for itself.
    Address(IpAddr),
    /// Another name: of a relayed application's certificate, or of a Unix socket.
    Named(String),
    /// Nobody says.
    Unknown,
}

/// What a stream hears of its room.
#[derive(Debug, Default)]
struct Notice(Mutex<Heard>);

#[derive(Debug, Default)]
struct Heard {
    gives_way: bool,
    waker: Option<Waker>,
}

/// Room for one stream, given back when dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    slots: Slots,
    number: u64,
    notice: Arc<Notice>,
}

impl Slots {
    /// Takes room for a stream of this caller; if there is none, a stream of another gives way that has more.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED, naming the limit, if nobody has more.
    pub fn take(&self, caller: Option<&Caller>) -> Result<Slot, Status> {
        let source = StreamSource::of(caller);
        let notice = Arc::new(Notice::default());
        let mut taken = self.lock();
        let gone = match taken.streams.len() >= STREAMS_MAX {
            true => Some(taken.make_room(&source).ok_or_else(|| full("has as many as any other"))?),
            false => None,
        };
        let number = taken.insert(source, Arc::clone(&notice));
        drop(taken);
        gone.into_iter().for_each(|notice| notice.give_way());
        Ok(Slot { slots: self.clone(), number, notice })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    /// Ends the oldest stream of whoever has the most, if that is more than `newest` will have with one more.
    fn make_room(&mut self, newest: &StreamSource) -> Option<Arc<Notice>> {
        let own = self.sources.get(newest).map_or(0, BTreeSet::len);
        let most = self.sources.values().max_by_key(|numbers| numbers.len())?;
        // If it were as many, the two would take the place from each other for ever.
        let oldest = most.first().copied().filter(|_| most.len() > own + 1)?;
        self.remove(oldest)
    }

    fn insert(&mut self, source: StreamSource, notice: Arc<Notice>) -> u64 {
        let number = self.next;
        self.next += 1;
        self.sources.entry(source.clone()).or_default().insert(number);
        self.streams.insert(number, (source, notice));
        number
    }

    fn remove(&mut self, number: u64) -> Option<Arc<Notice>> {
        let (source, notice) = self.streams.remove(&number)?;
        if let Some(numbers) = self.sources.get_mut(&source) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.sources.remove(&source);
            }
        }
        Some(notice)
    }
}

/// What a stream hears that has no room.
fn full(why: &str) -> Status {
    let limit = format!("the daemon's own services have {STREAMS_MAX} streams at once (STREAMS_MAX)");
    Status::resource_exhausted(format!("{limit}, and this caller {why}"))
}

impl StreamSource {
    fn of(caller: Option<&Caller>) -> Self {
        match caller {
            Some(Caller::Application { uid, .. }) => Self::User(*uid),
            Some(Caller::Relayed { identity, .. }) => Self::Named(identity.clone()),
            Some(
                Caller::Daemon { address, .. } | Caller::Grpc { address, .. } | Caller::R2p2 { address },
            ) => Self::of_address(address),
            _ => Self::Unknown,
        }
    }

    fn of_address(address: &str) -> Self {
        match address.parse::<SocketAddr>().map(|address| address.ip().to_canonical()) {
            Ok(IpAddr::V6(ip)) => Self::Address(Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into()),
            Ok(ip) => Self::Address(ip),
            Err(_) => Self::Named(address.to_owned()),
        }
    }
}

impl Slot {
    /// Does the stream's work, until it is done or gives way.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED, naming the limit, if it gives way; else those of the work.
    pub async fn run(self, work: impl Future<Output = Result<(), Status>>) -> Result<(), Status> {
        let mut work = pin!(work);
        poll_fn(|cx| {
            if self.notice.gives_way(cx) {
                return Poll::Ready(Err(full(
                    "has the most of them: its oldest gives way to one of another",
                )));
            }
            work.as_mut().poll(cx)
        })
        .await
    }
}

impl Notice {
    /// Whether it is to end; else it is woken when it is.
    fn gives_way(&self, cx: &Context<'_>) -> bool {
        let mut heard = self.lock();
        heard.waker = Some(cx.waker().clone());
        heard.gives_way
    }

    fn give_way(&self) {
        let waker = {
            let mut heard = self.lock();
            heard.gives_way = true;
            heard.waker.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, Heard> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.lock().remove(self.number);
    }
}

#[cfg(test)]
mod tests {
    //! Shows that room is limited and comes back, and who gives way.
    use super::*;
    use std::future::{pending, ready};

    fn client(address: &str) -> Caller {
        Caller::Grpc { address: address.to_owned(), identity: String::new(), encrypted: false }
    }

    fn ended(slot: &Slot) -> bool {
        slot.notice.lock().gives_way
    }

    #[test]
    fn a_crowd_keeps_out_itself() {
        let slots = Slots::default();
        let take = |host: u8, port: usize| slots.take(Some(&client(&format!("10.0.0.{host}:{port}"))));
        let few: Vec<Slot> = (0..2).map(|port| take(7, port).unwrap()).collect();
        let crowd: Vec<Slot> = (2..STREAMS_MAX).map(|port| take(9, port).unwrap()).collect();
        assert!(!crowd.iter().any(ended), "there is room");
        // One more of its own is refused, however often it comes; that of another takes its oldest place.
        for _ in 0..3 {
            let refused = take(9, STREAMS_MAX).unwrap_err();
            assert!(refused.message().contains("STREAMS_MAX"), "{refused}");
        }
        assert!(!crowd.iter().any(ended));
        let other = slots.take(Some(&Caller::application("a[1]", "uid:7"))).unwrap();
        let gone: Vec<bool> = crowd.iter().map(ended).collect();
        assert_eq!((gone[0], gone[1..].contains(&true)), (true, false));
        assert!(!few.iter().chain([&other]).any(ended));
        assert_eq!(slots.lock().streams.len(), STREAMS_MAX);
        drop((few, crowd, other));
        let taken = slots.lock();
        assert!(taken.streams.is_empty() && taken.sources.is_empty());
    }

    /// Two that come again whenever one of their streams has ended share the room, and then nobody ends any more.
    #[test]
    fn crowds_come_to_rest() {
        let slots = Slots::default();
        let take = |host: u8| slots.take(Some(&client(&format!("10.0.0.{host}:1"))));
        let mut streams: Vec<(u8, Slot)> = (0..STREAMS_MAX).map(|_| (1, take(1).unwrap())).collect();
        let mut turns = 0;
        while let Ok(slot) = take(2 + (turns % 2) as u8) {
            streams.push((2 + (turns % 2) as u8, slot));
            streams.retain(|(_, slot)| !ended(slot));
            turns += 1;
            assert!(turns < 2 * STREAMS_MAX, "they end each other's");
        }
        let of = |host: u8| streams.iter().filter(|(of, _)| *of == host).count();
        assert!([1, 2, 3].iter().all(|host| of(*host).abs_diff(STREAMS_MAX / 3) <= 1));
        assert!([1, 2, 3].iter().all(|host| take(*host).is_err()));
    }

    #[test]
    fn a_stream_ends_when_it_gives_way_and_is_woken_for_it() {
        let slots = Slots::default();
        let slot = slots.take(None).unwrap();
        let notice = Arc::clone(&slot.notice);
        let giving = std::thread::spawn(move || {
            while notice.lock().waker.is_none() {
                std::thread::yield_now();
            }
            notice.give_way();
        });
        let ended = trunkline::block_on(slot.run(pending())).unwrap_err();
        assert!(ended.message().contains("STREAMS_MAX"), "{ended}");
        giving.join().unwrap();
        assert!(trunkline::block_on(slots.take(None).unwrap().run(ready(Ok(())))).is_ok());
        assert!(slots.lock().streams.is_empty());
    }

    #[test]
    fn ports_of_one_host_are_one_source() {
        let of = |address: &str| StreamSource::of(Some(&client(address)));
        assert_eq!(of("10.0.0.7:1"), of("[::ffff:10.0.0.7]:2"));
        assert_eq!(of("[2001:db8::1]:1"), of("[2001:db8::2]:1"));
        assert_ne!(of("10.0.0.7:1"), of("10.0.0.8:1"));
        assert_ne!(of("[2001:db8::1]:1"), of("[2001:db8:0:1::1]:1"));
    }
}
