//! Proxy mode: which client has which of the router's ports, and who gives way where there are no more.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddrV4};
use trunkline_call::Instant;

/// The flows of all clients; `S` is what each has.
///
/// One that rests is closed after a minute. Where there are as many as there may be, the address that has most of them
/// gives one up, the one it has not used for longest: whoever sends from ever new ports pays for them with its own. Of
/// addresses that all have one, none gives way.
#[derive(Debug)]
pub(crate) struct Flows<S> {
    most: usize,
    flows: HashMap<SocketAddrV4, Flow<S>>,
    clients: HashMap<u16, SocketAddrV4>,
    /// The flows of each address, in the order in which they were used when somebody looked.
    by_use: BTreeMap<(Ipv4Addr, Instant, u64), SocketAddrV4>,
    /// How many each address has.
    counts: HashMap<Ipv4Addr, usize>,
    by_count: BTreeSet<(usize, Ipv4Addr)>,
    /// Flows by the time at which they were used when somebody looked whether they rest.
    looks: BTreeMap<(Instant, u64), SocketAddrV4>,
    opened: u64,
    closed: Closed,
}

/// When clients had flows last that they have no more: for a while, and of so many.
#[derive(Debug, Default)]
struct Closed {
    at: HashMap<SocketAddrV4, Instant>,
    /// In order, some of clients whose flow was closed once more since.
    order: VecDeque<(Instant, SocketAddrV4)>,
    /// Anybody may have had one until then.
    forgotten: Option<Instant>,
}

#[derive(Debug)]
struct Flow<S> {
    content: S,
    port: u16,
    /// Since when it is there, and when it was used last.
    began: Instant,
    used: Instant,
    /// Its times in `by_use` and in `looks`.
    placed: Instant,
    seen: Instant,
    number: u64,
}

/// After this time without a request a flow is closed.
const IDLE_NS: u64 = 60_000_000_000;
/// Flows looked at in one go.
const LOOKS_MAX: usize = 64;
/// As long as a router remembers requests that are over.
const CLOSED_NS: u64 = 20_000_000_000;
const CLOSED_MAX: usize = 16_384;

impl<S> Flows<S> {
    /// So many, at the most.
    pub fn new(most: usize) -> Self {
        Self {
            most: most.max(1),
            flows: HashMap::new(),
            clients: HashMap::new(),
            by_use: BTreeMap::new(),
            counts: HashMap::new(),
            by_count: BTreeSet::new(),
            looks: BTreeMap::new(),
            opened: 0,
            closed: Closed::default(),
        }
    }

    /// A client that is known begins another flow, or one that is not its first, at this port.
    pub fn insert(&mut self, now: Instant, client: SocketAddrV4, port: u16, content: S) {
        self.close(now, client);
        let number = self.opened;
        self.opened += 1;
        let flow = Flow { content, port, began: now, used: now, placed: now, seen: now, number };
        self.flows.insert(client, flow);
        self.clients.insert(port, client);
        self.by_use.insert((*client.ip(), now, number), client);
        self.looks.insert((now, number), client);
        self.count(*client.ip(), 1);
    }

    /// Makes room for one more flow of this address, if there is none. `false`: nobody gives way.
    pub fn make_room(&mut self, now: Instant, ip: Ipv4Addr) -> bool {
        self.flows.len() < self.most || self.give_way(now, ip)
    }

    /// Whether a client has had no other flow than its present one since then: that was there already, or no other has
    /// been closed, as far as that is remembered.
    pub fn are_one(&self, client: SocketAddrV4, since: Instant) -> bool {
        let was_there = self.flows.get(&client).is_some_and(|flow| flow.began <= since);
        was_there || self.closed.last(client).is_none_or(|closed| closed < since)
    }

    /// Closes a flow in favour of one of this address, if anybody is to give way.
    pub fn give_way(&mut self, now: Instant, ip: Ipv4Addr) -> bool {
        let own = self.counts.get(&ip).copied().unwrap_or(0);
        let loser = match self.by_count.last() {
            Some((most, fullest)) if *most > own + 1 => *fullest,
            _ if own > 0 => ip,
            _ => return false,
        };
        self.longest_unused(loser).is_some_and(|client| self.close(now, client))
    }

    /// Closes flows that have rested, some at a time.
    pub fn close_idle(&mut self, now: Instant) {
        for _ in 0..LOOKS_MAX {
            let Some(look) = self.looks.first_entry().filter(|look| now.since_ns(look.key().0) >= IDLE_NS)
            else {
                return;
            };
            let client = *look.get();
            let Some(flow) = self.flows.get_mut(&client) else { return };
            if now.since_ns(flow.used) >= IDLE_NS {
                self.close(now, client);
                continue;
            }
            flow.seen = flow.used;
            look.remove();
            self.looks.insert((flow.seen, flow.number), client);
        }
    }

    /// What a client has, which it uses now.
    pub fn use_of(&mut self, now: Instant, client: SocketAddrV4) -> Option<&mut S> {
        let flow = self.flows.get_mut(&client)?;
        flow.used = now;
        Some(&mut flow.content)
    }

    /// Whose a port is, and what it has.
    pub fn at(&self, port: u16) -> Option<(&S, SocketAddrV4)> {
        let client = *self.clients.get(&port)?;
        Some((&self.flows.get(&client)?.content, client))
    }

    /// How many there may be.
    pub fn most(&self) -> usize {
        self.most
    }

    /// Of the flows of an address, the one it has not used for longest, as far as some looks tell.
    fn longest_unused(&mut self, ip: Ipv4Addr) -> Option<SocketAddrV4> {
        let mut found = None;
        for _ in 0..LOOKS_MAX {
            let ((of, placed, number), client) = self
                .by_use
                .range((ip, Instant::default(), 0)..)
                .next()
                .map(|(key, client)| (*key, *client))?;
            let flow = self.flows.get_mut(&client).filter(|_| of == ip)?;
            found = Some(client);
            if flow.used <= placed {
                break;
            }
            // It has been used since.
            flow.placed = flow.used;
            self.by_use.remove(&(ip, placed, number));
            self.by_use.insert((ip, flow.used, number), client);
        }
        found
    }

    fn close(&mut self, now: Instant, client: SocketAddrV4) -> bool {
        let Some(flow) = self.flows.remove(&client) else { return false };
        self.closed.note(now, client);
        self.clients.remove(&flow.port);
        self.by_use.remove(&(*client.ip(), flow.placed, flow.number));
        self.looks.remove(&(flow.seen, flow.number));
        self.count(*client.ip(), -1);
        true
    }

    fn count(&mut self, ip: Ipv4Addr, more: isize) {
        let count = self.counts.entry(ip).or_default();
        self.by_count.remove(&(*count, ip));
        *count = count.saturating_add_signed(more);
        if *count > 0 {
            self.by_count.insert((*count, ip));
        } else {
            self.counts.remove(&ip);
        }
    }
}

impl Closed {
    /// A client's flow is closed.
    fn note(&mut self, now: Instant, client: SocketAddrV4) {
        self.at.insert(client, now);
        self.order.push_back((now, client));
        while let Some(&(at, of)) = self.order.front()
            && (self.order.len() > CLOSED_MAX || now.since_ns(at) >= CLOSED_NS)
        {
            self.order.pop_front();
            self.forgotten = Some(at);
            if self.at.get(&of) == Some(&at) {
                self.at.remove(&of);
            }
        }
    }

    /// When a client's last flow before its present one was closed, or that of anybody who is forgotten.
    fn last(&self, client: SocketAddrV4) -> Option<Instant> {
        self.at.get(&client).copied().max(self.forgotten)
    }
}

#[cfg(test)]
mod tests {
    //! Shows who gives way where there are no more flows, and that what rests is closed and leaves nothing.
    use super::*;

    const S: u64 = 1_000_000_000;

    fn client(host: u8, port: u16) -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, host), port)
    }

    /// Opens one for the client, if that can be.
    fn open(flows: &mut Flows<()>, at_s: u64, client: SocketAddrV4) -> bool {
        let is_room = flows.make_room(Instant(at_s * S), *client.ip());
        if is_room {
            let port = 1000 + flows.opened as u16;
            flows.insert(Instant(at_s * S), client, port, ());
        }
        is_room
    }

    fn has(flows: &Flows<()>, client: SocketAddrV4) -> bool {
        flows.flows.contains_key(&client)
    }

    fn nothing_is_left(flows: &Flows<()>) -> bool {
        let sizes = [flows.flows.len(), flows.clients.len(), flows.by_use.len(), flows.counts.len()];
        sizes == [0; 4] && flows.by_count.is_empty() && flows.looks.is_empty()
    }

    #[test]
    fn what_rests_is_closed_without_anybody_asking() {
        let mut flows = Flows::new(4096);
        for port in 0..100 {
            assert!(open(&mut flows, 0, client(1, port)));
        }
        for at_s in 0..200 {
            flows.use_of(Instant(at_s * S), client(1, 7)).unwrap();
            flows.close_idle(Instant(at_s * S));
            assert!(at_s >= 60 || flows.flows.len() == 100, "after {at_s} s");
        }
        assert_eq!(flows.flows.len(), 1, "and the one in use stays");
        (0..3).for_each(|_| flows.close_idle(Instant(300 * S)));
        assert!(nothing_is_left(&flows), "{flows:?}");
    }

    #[test]
    fn who_has_most_gives_way() {
        let mut flows = Flows::new(10);
        let steady = client(1, 1);
        assert!(open(&mut flows, 1, steady));
        for port in 2..50 {
            assert!(open(&mut flows, 2, client(1, port)), "port {port}");
            flows.use_of(Instant(3 * S), steady).unwrap();
        }
        assert!(has(&flows, steady), "it is used, and the others are not");
        // Others come, and take of those only: each has no more than its part.
        for host in 2..6 {
            for port in 0..5 {
                assert!(open(&mut flows, 4, client(host, port)));
            }
        }
        let mut counts: Vec<usize> = flows.counts.values().copied().collect();
        counts.sort_unstable();
        assert_eq!(counts, [2; 5]);
        assert!(has(&flows, steady));
        assert_eq!(flows.flows.len(), 10);
    }

    #[test]
    fn where_everybody_has_one_a_new_address_waits_until_one_rests() {
        let mut flows = Flows::new(3);
        for host in 1..=3 {
            assert!(open(&mut flows, 0, client(host, 1)));
        }
        assert!(!open(&mut flows, 1, client(4, 1)));
        assert!(open(&mut flows, 1, client(3, 2)), "in place of its own");
        assert!(!has(&flows, client(3, 1)));
        flows.use_of(Instant(2 * S), client(1, 1)).unwrap();
        flows.close_idle(Instant(60 * S));
        assert!(open(&mut flows, 60, client(4, 1)));
        assert!(has(&flows, client(1, 1)) && !has(&flows, client(2, 1)));
    }

    #[test]
    fn who_has_had_another_flow_since_is_known() {
        let mut flows = Flows::new(2);
        assert!(open(&mut flows, 10, client(1, 1)) && open(&mut flows, 11, client(2, 1)));
        assert!(
            flows.are_one(client(1, 1), Instant(3 * S)),
            "no flow was ever closed: nothing went out by another"
        );
        assert!(open(&mut flows, 20, client(1, 2)), "in place of its own");
        assert!(open(&mut flows, 21, client(1, 1)), "and back again");
        for (since_s, is_one) in [(9, false), (10, false), (20, false), (21, true), (30, true)] {
            assert_eq!(flows.are_one(client(1, 1), Instant(since_s * S)), is_one, "since {since_s} s");
        }
        assert!(flows.are_one(client(2, 1), Instant(3 * S)), "what others had is nothing to it");
        // What is forgotten may have been anybody's.
        assert!(open(&mut flows, 50, client(1, 3)));
        assert!(!flows.are_one(client(2, 1), Instant(3 * S)) && flows.are_one(client(2, 1), Instant(11 * S)));
    }

    #[test]
    fn a_port_that_is_used_again_is_its_last_clients() {
        let mut flows = Flows::new(1);
        assert!(flows.make_room(Instant(0), [10, 0, 0, 1].into()));
        flows.insert(Instant(0), client(1, 1), 7, 'a');
        assert!(flows.make_room(Instant(0), [10, 0, 0, 1].into()));
        flows.insert(Instant(0), client(1, 2), 7, 'b');
        assert_eq!(flows.at(7), Some((&'b', client(1, 2))));
        assert_eq!(flows.use_of(Instant(0), client(1, 1)), None);
    }
}
