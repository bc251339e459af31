//! Looks names up, on threads of its own: the system's resolver may take as long as it likes.
//!
//! A name is looked up when a shard first asks, again when a shard asks because an endpoint failed (not sooner than
//! [`ASKED_PAUSE`] after the last time), and in any case every [`PERIOD`], so that servers that have come since get
//! calls without anybody having failed. Every shard that has asked for a name is told what changed, and in any case
//! when it asks again; no other is. A name is forgotten when every shard that has asked for it has said that it is done
//! with it. Which is next is known without looking at all.
//!
//! Names that were never looked up wait in lines by source: the users that have bound them, the configuration as one.
//! What the lookups of a source take is its own to pay (`fair_queue.rs`), so that any number of names whose servers do
//! not answer keep nobody else's waiting for more than the lookups under way.

use crate::command::{Command, LookedUp, ShardSender};
use crate::fair_queue::FairQueue;
use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use trunkline_net::{Endpoint, Name, Target};

/// gRPC's own floor for looking again unasked; names of services have such times to live.
const PERIOD: Duration = Duration::from_secs(30);
/// After a failed lookup, until the next of its own accord.
const FAILED_PAUSE: Duration = Duration::from_secs(5);
/// Between two lookups of one name that shards ask for: a server that refuses connections must not become a storm of
/// questions.
const ASKED_PAUSE: Duration = Duration::from_secs(1);
/// Lookups at the same time: one name whose server does not answer must not hold up the others.
const WORKERS: usize = 8;
/// Of those so many are of quick names, of slow ones, and of names that were never looked up: any number whose servers
/// do not answer leave threads for names that are known to be quick.
const LOOKED_UP_MAX: [usize; 3] = [WORKERS, 1, WORKERS / 2];
/// What a lookup that has begun counts until it is known what it takes: those of one source are not all begun before
/// the first has ended.
const BEGUN_NS: u64 = 1_000_000;
/// A name whose last lookup took longer than this is slow.
const SLOW: Duration = Duration::from_secs(1);

/// Names in use. Threads start with the first name that must be looked up.
pub(crate) struct Names {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    names: HashMap<Arc<str>, Watched>,
    /// Those that are not being looked up, by when they are due; of each [`Pace`] but new ones.
    due: [BTreeSet<(Instant, Arc<str>)>; 2],
    /// New ones, each in the line of every source that has it.
    new: FairQueue<SourceKey, Arc<str>>,
    source_hash: RandomState,
    /// How many threads look up such names, of each.
    looked_up: [usize; 3],
    /// By their numbers.
    shards: Vec<ShardSender>,
    workers: usize,
    stopped: bool,
}

/// For whom a name is looked up: a hash of who has bound it, of nothing for the configuration.
type SourceKey = u64;

/// What is known of how long a lookup takes.
#[derive(Clone, Copy)]
enum Pace {
    Quick,
    Slow,
    New,
}

/// A lookup under way.
struct BegunLookup {
    name: Name,
    pace: Pace,
    /// Whose turn it was, of a new name.
    payer: Option<SourceKey>,
}

struct Watched {
    name: Name,
    told: Option<LookedUp>,
    looked: Option<Instant>,
    due: Instant,
    /// A shard waits for an answer, changed or not.
    asked: bool,
    /// Since when it is being looked up.
    looking: Option<Instant>,
    is_slow: bool,
    /// Addresses it had beyond the most that are used.
    left_out: usize,
    /// Shards that have it.
    shards: BTreeSet<usize>,
    /// In whose lines it is.
    sources: BTreeSet<SourceKey>,
}

/// What a name stands for.
struct Found {
    endpoints: Vec<String>,
    /// Addresses beyond the most a target may have.
    left_out: usize,
}

impl Names {
    pub fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), changed: Condvar::new() })
    }

    /// This shard, the next by its number, may ask from now on.
    pub fn add_shard(&self, shard: ShardSender) {
        self.lock().shards.push(shard);
    }

    /// This shard wants to know what a name stands for that these have bound, or nobody but the configuration.
    pub fn ask(self: &Arc<Self>, shard: usize, text: &Arc<str>, bound_by: &[&str]) {
        let mut state = self.lock();
        match text.parse::<Target>() {
            Ok(Target::Endpoints(endpoints)) => {
                state.tell(&[shard].into(), text, &Ok(endpoints.iter().map(ToString::to_string).collect()));
            }
            Ok(Target::Name(name)) => {
                let configuration: &[&str] = &[""];
                let sources = if bound_by.is_empty() { configuration } else { bound_by };
                let sources = sources.iter().map(|source| state.source_hash.hash_one(source)).collect();
                state.want(shard, text, (name, sources), Instant::now());
                self.hire(&mut state);
            }
            Err(error) => state.tell(&[shard].into(), text, &Err(error.to_string())),
        }
        self.changed.notify_one();
    }

    /// This shard does not need a name any more.
    pub fn forget(&self, shard: usize, text: &str) {
        self.lock().forget(shard, text);
    }

    /// Nobody is told anything any more. A lookup under way cannot be stopped; its thread ends with it.
    pub fn stop(&self) {
        let mut state = self.lock();
        state.stopped = true;
        state.shards.clear();
        self.changed.notify_all();
    }

    fn hire(self: &Arc<Self>, state: &mut State) {
        // Those that look up names which were forgotten meanwhile are of no use to the others.
        let busy: usize = state.looked_up.iter().sum();
        if state.workers >= WORKERS.min(state.names.len() + busy) {
            return;
        }
        let names = Arc::clone(self);
        let started =
            std::thread::Builder::new().name("trunkline-names".to_owned()).spawn(move || names.work());
        match started {
            Ok(_) => state.workers += 1,
            Err(error) => tracing::error!(%error, "no thread to look names up"),
        }
    }

    fn work(&self) {
        let mut state = self.lock();
        while !state.stopped {
            let now = Instant::now();
            match state.next_due() {
                Some((text, due)) if due <= now => {
                    let Some(begun) = state.begin(&text, now) else { continue };
                    drop(state);
                    let found = look_up(&begun.name);
                    state = self.lock();
                    state.is_free(&begun, now.elapsed());
                    state.finish(&text, found, Instant::now());
                    self.changed.notify_all();
                }
                Some((_, due)) => state = self.wait(state, Some(due - now)),
                None => state = self.wait(state, None),
            }
        }
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, time: Option<Duration>) -> MutexGuard<'a, State> {
        let day = Duration::from_secs(86_400);
        let waited = self.changed.wait_timeout(state, time.unwrap_or(day));
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watched {
    fn pace(&self) -> Pace {
        match (self.looked, self.is_slow) {
            (None, _) => Pace::New,
            (Some(_), true) => Pace::Slow,
            (Some(_), false) => Pace::Quick,
        }
    }
}

impl State {
    /// Somebody asks: as soon as the pause allows.
    fn want(&mut self, shard: usize, text: &Arc<str>, (name, sources): (Name, Vec<SourceKey>), now: Instant) {
        let watched = self.names.entry(Arc::clone(text)).or_insert(Watched {
            name,
            told: None,
            looked: None,
            due: now,
            asked: true,
            looking: None,
            is_slow: false,
            left_out: 0,
            shards: BTreeSet::new(),
            sources: BTreeSet::new(),
        });
        watched.asked = true;
        watched.shards.insert(shard);
        let allowed = watched.looked.map_or(now, |looked| looked + ASKED_PAUSE);
        let before = watched.due;
        watched.due = before.min(allowed);
        if watched.looking.is_some() {
            return;
        }
        match self.due.get_mut(watched.pace() as usize) {
            Some(line) => {
                line.remove(&(before, Arc::clone(text)));
                line.insert((watched.due, Arc::clone(text)));
            }
            None => {
                let others = sources.into_iter().filter(|source| watched.sources.insert(*source));
                others.for_each(|source| self.new.push(source, Arc::clone(text)));
            }
        }
    }

    fn forget(&mut self, shard: usize, text: &str) {
        let Some(watched) = self.names.get_mut(text) else { return };
        watched.shards.remove(&shard);
        if watched.shards.is_empty() {
            self.step_out(text);
            self.names.remove(text);
        }
    }

    /// A name is neither due nor being looked up any more. Since when it was.
    fn step_out(&mut self, text: &str) -> Option<Instant> {
        let watched = self.names.get_mut(text)?;
        if let Some(since) = watched.looking {
            return Some(since);
        }
        match self.due.get_mut(watched.pace() as usize) {
            Some(line) => _ = line.remove(&(watched.due, text.into())),
            None => {
                let sources = std::mem::take(&mut watched.sources);
                sources.into_iter().for_each(|source| self.new.retain(source, |new| **new != *text));
            }
        }
        None
    }

    fn next_due(&self) -> Option<(Arc<str>, Instant)> {
        let paces = self.due.iter().zip(self.looked_up).zip(LOOKED_UP_MAX);
        let lines = paces.filter(|((_, looked_up), max)| looked_up < max).map(|((line, _), _)| line);
        let known = lines.filter_map(BTreeSet::first).map(|(due, text)| (text, *due));
        let has_room = self.looked_up[Pace::New as usize] < LOOKED_UP_MAX[Pace::New as usize];
        let new = has_room.then(|| self.new.peek()).flatten();
        let new = new.and_then(|(_, text)| Some((text, self.names.get(text)?.due)));
        let (text, due) = known.chain(new).min_by_key(|(_, due)| *due)?;
        Some((Arc::clone(text), due))
    }

    fn begin(&mut self, text: &Arc<str>, now: Instant) -> Option<BegunLookup> {
        let payer = self.new.peek().filter(|(_, next)| *next == text).map(|(payer, _)| payer);
        self.step_out(text);
        if let Some(payer) = payer {
            self.new.charge(payer, BEGUN_NS);
        }
        let watched = self.names.get_mut(text)?;
        watched.looking = Some(now);
        let pace = watched.pace();
        self.looked_up[pace as usize] += 1;
        Some(BegunLookup { name: watched.name.clone(), pace, payer })
    }

    /// The thread that looked up a name is free, also if the name was forgotten meanwhile.
    fn is_free(&mut self, begun: &BegunLookup, took: Duration) {
        self.looked_up[begun.pace as usize] -= 1;
        if let Some(payer) = begun.payer {
            self.new.charge(payer, u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        }
    }

    fn finish(&mut self, text: &Arc<str>, found: Result<Found, String>, now: Instant) {
        let since = self.step_out(text);
        let Some(watched) = self.names.get_mut(text) else { return };
        let left_out = found.as_ref().map_or(0, |found| found.left_out);
        // Said once, not at every lookup.
        if std::mem::replace(&mut watched.left_out, left_out) == 0 && left_out > 0 {
            let used = Target::ADDRESSES_MAX;
            tracing::warn!(name = %text, used, left_out, "has more addresses than are used");
        }
        let found = found.map(|found| found.endpoints);
        watched.looking = None;
        watched.is_slow = since.is_some_and(|since| now - since > SLOW);
        watched.looked = Some(now);
        watched.due = now + if found.is_ok() { PERIOD } else { FAILED_PAUSE };
        // It was looked up, so it is not new.
        let pace = if watched.is_slow { Pace::Slow } else { Pace::Quick };
        self.due[pace as usize].insert((watched.due, Arc::clone(text)));
        let news = watched.told.as_ref() != Some(&found);
        if std::mem::take(&mut watched.asked) | news {
            watched.told = Some(found.clone());
            let shards = watched.shards.clone();
            self.tell(&shards, text, &found);
        }
    }

    fn tell(&self, shards: &BTreeSet<usize>, text: &Arc<str>, found: &LookedUp) {
        match found {
            Ok(endpoints) => tracing::debug!(name = %text, ?endpoints, "looked up"),
            Err(why) => tracing::warn!(name = %text, %why, "cannot be looked up"),
        }
        for shard in shards.iter().filter_map(|shard| self.shards.get(*shard)) {
            shard.send(Command::LookedUp { name: Arc::clone(text), found: found.clone() });
        }
    }
}

/// Asks the system, which reads /etc/hosts and asks the servers /etc/resolv.conf names. Sorted, so that the same
/// addresses in another order are no news; the engine takes them in turn anyway.
fn look_up(name: &Name) -> Result<Found, String> {
    let found = (name.host.as_str(), name.port).to_socket_addrs().map_err(|error| error.to_string())?;
    Ok(Found::of(found.collect()))
}

impl Found {
    /// The first ones, in their own order.
    fn of(mut addresses: Vec<SocketAddr>) -> Self {
        addresses.sort_unstable();
        addresses.dedup();
        let left_out = addresses.len().saturating_sub(Target::ADDRESSES_MAX);
        addresses.truncate(Target::ADDRESSES_MAX);
        let endpoints = addresses.into_iter().map(|address| Endpoint::from(address).to_string()).collect();
        Self { endpoints, left_out }
    }
}

#[cfg(test)]
mod tests {
    //! Shows when names are looked up, and who is told, with time as an argument.
    use super::*;
    use crate::command::shard_channel;
    use crate::waker::Waker;

    fn text() -> Arc<str> {
        "dns:///db.example:80".into()
    }

    fn name() -> Name {
        Name { host: "db.example".into(), port: 80 }
    }

    /// A name of the same user.
    fn asked() -> (Name, Vec<SourceKey>) {
        (name(), vec![1])
    }

    fn found(address: &str) -> LookedUp {
        Ok(vec![address.to_owned()])
    }

    fn looked(address: &str) -> Result<Found, String> {
        Ok(Found { endpoints: vec![address.to_owned()], left_out: 0 })
    }

    #[test]
    fn addresses_beyond_the_most_are_counted_and_not_dropped_in_silence() {
        let addresses = |count: u16| (0..count).map(|port| SocketAddr::from(([10, 0, 0, 1], port))).collect();
        let most = Target::ADDRESSES_MAX as u16;
        assert_eq!(Found::of(addresses(most)).left_out, 0);
        let many = Found::of(addresses(most + 3));
        assert_eq!((many.endpoints.len(), many.left_out), (Target::ADDRESSES_MAX, 3));
        let (mut state, now) = (State::default(), Instant::now());
        state.want(0, &text(), asked(), now);
        state.begin(&text(), now);
        state.finish(&text(), Ok(many), now);
        assert_eq!(state.names[&text()].left_out, 3, "so that it is said once");
    }

    #[test]
    fn who_asks_is_told_and_news_are_told_unasked() {
        let (sender, receiver) = shard_channel(Waker::new().unwrap().into());
        let told = || match receiver.next() {
            Some(Command::LookedUp { found, .. }) => Some(found),
            _ => None,
        };
        let (mut state, start) = (State { shards: vec![sender], ..State::default() }, Instant::now());
        state.want(0, &text(), asked(), start);
        assert_eq!(state.next_due(), Some((text(), start)));
        assert!(state.begin(&text(), start).is_some_and(|begun| begun.name == name()));
        assert_eq!(state.next_due(), None);
        state.finish(&text(), looked("a"), start);
        assert_eq!((told(), told()), (Some(found("a")), None));
        assert_eq!(state.next_due(), Some((text(), start + PERIOD)));
        state.finish(&text(), looked("a"), start + PERIOD);
        assert_eq!(told(), None);
        state.finish(&text(), looked("b"), start + 2 * PERIOD);
        assert_eq!(told(), Some(found("b")));
        state.want(0, &text(), asked(), start + 2 * PERIOD);
        assert_eq!(state.next_due(), Some((text(), start + 2 * PERIOD + ASKED_PAUSE)));
        state.finish(&text(), looked("b"), start + 3 * PERIOD);
        assert_eq!(told(), Some(found("b")));
        state.finish(&text(), Err("gone".into()), start + 4 * PERIOD);
        assert_eq!(told(), Some(Err("gone".into())));
        assert_eq!(state.next_due(), Some((text(), start + 4 * PERIOD + FAILED_PAUSE)));
    }

    #[test]
    fn only_shards_that_have_a_name_hear_of_it() {
        let (senders, receivers): (Vec<_>, Vec<_>) =
            (0..3).map(|_| shard_channel(Waker::new().unwrap().into())).unzip();
        let told = || receivers.iter().map(|one| one.next().is_some()).collect::<Vec<_>>();
        let (mut state, now) = (State { shards: senders, ..State::default() }, Instant::now());
        state.want(1, &text(), asked(), now);
        state.finish(&text(), looked("a"), now);
        assert_eq!(told(), [false, true, false]);
        state.want(2, &text(), asked(), now);
        state.forget(1, &text());
        state.finish(&text(), looked("b"), now + PERIOD);
        assert_eq!(told(), [false, false, true]);
        state.forget(2, &text());
        assert!(state.names.is_empty() && state.due.iter().all(BTreeSet::is_empty));
    }

    #[test]
    fn a_name_is_forgotten_with_the_last_shard_that_has_it() {
        let (mut state, now) = (State::default(), Instant::now());
        state.want(0, &text(), asked(), now);
        state.want(1, &text(), asked(), now);
        state.forget(0, &text());
        state.forget(0, &text());
        assert_eq!(state.next_due(), Some((text(), now)));
        state.begin(&text(), now);
        state.forget(1, &text());
        assert_eq!((state.names.len(), state.next_due()), (0, None));
        // Its lookup ends when it is gone, or has come again.
        state.finish(&text(), looked("a"), now);
        state.want(1, &text(), asked(), now);
        state.finish(&text(), looked("a"), now);
        assert_eq!(state.next_due(), Some((text(), now + PERIOD)));
    }

    #[test]
    fn names_that_take_long_wait_for_each_other_only() {
        let (mut state, start) = (State::default(), Instant::now());
        let slow: [Arc<str>; 3] = ["dns:///a:1", "dns:///b:1", "dns:///c:1"].map(Arc::from);
        for text in &slow {
            state.want(0, text, asked(), start);
            let begun = state.begin(text, start).unwrap();
            state.is_free(&begun, 2 * SLOW);
            state.finish(text, Err("no answer".into()), start + 2 * SLOW);
        }
        let later = start + PERIOD;
        let (first, _) = state.next_due().unwrap();
        let begun = state.begin(&first, later).unwrap();
        assert_eq!(state.next_due(), None, "the others wait for it");
        state.want(0, &text(), asked(), later);
        assert_eq!(state.next_due(), Some((text(), later)), "a new name does not");
        state.is_free(&begun, SLOW / 2);
        state.finish(&first, looked("a"), later + SLOW / 2);
        state.begin(&text(), later);
        assert!(slow.contains(&state.next_due().unwrap().0), "one that is quick again holds up nobody");
    }

    /// Nor do names leave no thread that nobody has ever looked up, however often they are forgotten meanwhile.
    #[test]
    fn new_names_leave_threads_for_those_that_are_known() {
        let (mut state, start) = (State::default(), Instant::now());
        state.want(0, &text(), asked(), start);
        let begun = state.begin(&text(), start).unwrap();
        state.is_free(&begun, Duration::ZERO);
        state.finish(&text(), looked("a"), start);
        let later = start + PERIOD;
        let mut begun = 0;
        for number in 0..100 {
            let new: Arc<str> = format!("dns:///{number}:1").into();
            state.want(0, &new, asked(), later - SLOW);
            if state.next_due().is_some_and(|(next, _)| next == new) {
                state.begin(&new, later);
                begun += 1;
            }
            state.forget(0, &new);
        }
        assert_eq!(begun, WORKERS / 2);
        assert_eq!(state.next_due(), Some((text(), later)));
    }

    /// An application names a thousand names of a zone whose servers do not answer; somebody else's name waits for
    /// those under way, also if it is one of them.
    #[test]
    fn names_of_one_source_keep_nobody_elses_waiting() {
        let (mut state, start) = (State::default(), Instant::now());
        let new = |number: usize| -> Arc<str> { format!("dns:///{number}:1").into() };
        (0..1000).for_each(|number| state.want(0, &new(number), (name(), vec![1]), start));
        let mut under_way: Vec<_> = (0..WORKERS / 2)
            .map(|_| {
                let (next, _) = state.next_due().unwrap();
                (state.begin(&next, start).unwrap(), next)
            })
            .collect();
        assert!(state.next_due().is_none());
        let later = start + SLOW;
        state.want(0, &text(), (name(), vec![2]), later);
        state.want(0, &new(999), (name(), vec![2]), later);
        for expected in [text(), new(999)] {
            let (begun, next) = under_way.remove(0);
            state.is_free(&begun, Duration::from_secs(10));
            state.finish(&next, Err("no answer".into()), start + Duration::from_secs(10));
            let (next, _) = state.next_due().unwrap();
            assert_eq!(next, expected);
            under_way.push((state.begin(&next, later).unwrap(), next));
        }
        for number in 0..1000 {
            state.forget(0, &new(number));
        }
        assert!(state.new.is_empty(), "nothing is kept of names that are forgotten");
    }
}
