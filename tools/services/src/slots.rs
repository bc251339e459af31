//! Room for streams that wait.
//!
//! There is so much of it for all callers. Where one more comes, the oldest of the caller with the most gives way: a
//! crowd from one address, or of one user, keeps out itself and nobody else.

use std::collections::{BTreeMap, HashMap};
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
    /// Takes room for a stream of this caller; another stream gives way if there is none.
    pub fn take(&self, caller: Option<&Caller>) -> Slot {
        let source = StreamSource::of(caller);
        let notice = Arc::new(Notice::default());
        let mut taken = self.lock();
        let gives_way = if taken.streams.len() >= STREAMS_MAX { taken.oldest_of_most(&source) } else { None };
        let gone = gives_way.and_then(|number| taken.streams.remove(&number));
        let number = taken.next;
        taken.next += 1;
        taken.streams.insert(number, (source, Arc::clone(&notice)));
        drop(taken);
        gone.into_iter().for_each(|(_, notice)| notice.give_way());
        Slot { slots: self.clone(), number, notice }
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    /// The oldest stream of whoever has the most, of which one more of `newest` is one.
    fn oldest_of_most(&self, newest: &StreamSource) -> Option<u64> {
        let mut counts: HashMap<&StreamSource, usize> = HashMap::from([(newest, 1)]);
        self.streams.values().for_each(|(source, _)| *counts.entry(source).or_default() += 1);
        let most = self.streams.values().map(|(source, _)| counts[source]).max()?;
        let mut oldest = self.streams.iter().filter(|(_, (source, _))| counts[source] == most);
        oldest.next().map(|(number, _)| *number)
    }
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
                let why = format!(
                    "the daemon's own services have {STREAMS_MAX} streams at once (STREAMS_MAX), of which this caller \
                     has the most: its oldest gives way to one more"
                );
                return Poll::Ready(Err(Status::resource_exhausted(why)));
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
        self.slots.lock().streams.remove(&self.number);
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
        let few: Vec<Slot> =
            (0..2).map(|port| slots.take(Some(&client(&format!("10.0.0.7:{port}"))))).collect();
        let of_crowd = |port: usize| slots.take(Some(&client(&format!("10.0.0.9:{port}"))));
        let crowd: Vec<Slot> = (2..STREAMS_MAX).map(of_crowd).collect();
        assert!(!crowd.iter().any(ended), "there is room");
        // Its own next, and that of another, take its oldest places.
        let more = of_crowd(STREAMS_MAX);
        let other = slots.take(Some(&Caller::application("a[1]", "uid:7")));
        let gone: Vec<bool> = crowd.iter().map(ended).collect();
        assert_eq!(gone[..3], [true, true, false]);
        assert!(!few.iter().chain([&more, &other]).any(ended) && !gone[3..].contains(&true));
        assert_eq!(slots.lock().streams.len(), STREAMS_MAX);
        drop((few, crowd, more, other));
        assert!(slots.lock().streams.is_empty());
    }

    #[test]
    fn a_stream_ends_when_it_gives_way_and_is_woken_for_it() {
        let slots = Slots::default();
        let slot = slots.take(None);
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
        assert!(trunkline::block_on(slots.take(None).run(ready(Ok(())))).is_ok());
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
