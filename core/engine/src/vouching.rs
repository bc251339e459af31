//! Whose word about callers is taken, and what was said of callers to a peer.
//!
//! A daemon knows who calls on its own host; of calls that come from another host it knows who the peer has proved to
//! be and what that one says. Whoever holds a certificate could say anything, so the operator names the peers that are
//! daemons of his hosts (`daemon.hosts`): only from them is it taken, and only to them is it said.

use crate::opaque::shown;
use crate::{GrpcKey, SessionKey};
use std::sync::Arc;
use trunkline_call::{Code, Execution, KeyedMap, Status, VouchedCaller};
use trunkline_native::{CallerNumber, Connection};

/// The peers that are daemons of the operator's hosts, by identity.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    patterns: Vec<Box<str>>,
}

impl Hosts {
    pub fn new(patterns: &[String]) -> Self {
        Self { patterns: patterns.iter().map(|pattern| pattern.as_str().into()).collect() }
    }

    /// Whether a peer that has proved to be this one is among them. Who has proved nothing never is.
    pub fn include(&self, identity: &str) -> bool {
        !identity.is_empty() && self.patterns.iter().any(|pattern| fits(pattern, identity))
    }
}

/// Who may call a service, of those that come over the network, by identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerRule {
    /// `search.v1.Search`, `search.v1.*` or `*`.
    pub service: Box<str>,
    /// Identities, whole or up to a `*`. None: nobody.
    pub peers: Vec<String>,
}

impl PeerRule {
    /// Holds rules against a call: the first that names the service decides.
    ///
    /// # Errors
    /// Who may not call it, and which rule says so.
    pub(crate) fn check(rules: &[Self], identity: &str, service: &str) -> Result<(), Status> {
        let Some(rule) = rules.iter().find(|rule| fits(&rule.service, service)) else { return Ok(()) };
        if rule.permits(identity) {
            return Ok(());
        }
        let who = if identity.is_empty() { "a peer that has proved nothing" } else { identity };
        let (pattern, service) = (&rule.service, shown(service));
        let why = format!(
            "{who} may not call {service}: [[call]] for {pattern:?} in the daemon's configuration says who of the \
             network may (peers)"
        );
        Err(Status::new(Code::PermissionDenied, why).with_execution(Execution::NotExecuted))
    }

    /// Whether a rule that names the service permits this one.
    pub(crate) fn permit(rules: &[Self], identity: &str, service: &str) -> bool {
        rules.iter().find(|rule| fits(&rule.service, service)).is_some_and(|rule| rule.permits(identity))
    }

    fn permits(&self, identity: &str) -> bool {
        !identity.is_empty() && self.peers.iter().any(|pattern| fits(pattern, identity))
    }
}

/// Whether an identity is the one that is written, or begins with what is written before a `*`.
pub(crate) fn fits(pattern: &str, identity: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => identity.starts_with(prefix),
        None => pattern == identity,
    }
}

/// Who makes a call: a session with what is known of it at present, or a client of the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Maker {
    Session(SessionKey, u32),
    Grpc(GrpcKey),
}

/// Makers whose numbers are remembered: as many processes may be one caller (the same program of the same user).
const MAKERS_MAX: usize = 4 * Connection::CALLERS_MAX as usize;

/// The callers that were named on a connection.
#[derive(Debug, Default)]
pub(crate) struct CallersSaid {
    numbers: KeyedMap<Maker, CallerNumber>,
    /// By number, from 1.
    said: Vec<Arc<VouchedCaller>>,
    /// Whose number is given to the next one when all are in use.
    oldest: usize,
}

impl CallersSaid {
    /// The number of a maker's calls, named now if it is new to the peer. `None` if it cannot be said.
    pub fn number(
        &mut self,
        maker: Maker,
        connection: &mut Connection,
        caller: impl FnOnce() -> Option<Arc<VouchedCaller>>,
    ) -> Option<CallerNumber> {
        if let Some(number) = self.numbers.get(&maker) {
            return Some(*number);
        }
        let caller = caller()?;
        let known = self.said.iter().position(|said| *said == caller);
        let number = match known {
            Some(index) => CallerNumber(index as u16 + 1),
            None => self.name(caller, connection)?,
        };
        if self.numbers.len() >= MAKERS_MAX {
            self.numbers.clear();
        }
        self.numbers.insert(maker, number);
        Some(number)
    }

    fn name(&mut self, caller: Arc<VouchedCaller>, connection: &mut Connection) -> Option<CallerNumber> {
        if self.said.len() < Connection::CALLERS_MAX.into() {
            // After a hand-over the connection knows numbers that are not known here: they are given away anew.
            let next = CallerNumber(self.said.len() as u16 + 1);
            let named = connection.announce_caller(&caller, Some(next));
            let number = named.or_else(|_| connection.announce_caller(&caller, None)).ok()?;
            self.said.push(caller);
            return Some(number);
        }
        let number = CallerNumber(self.oldest as u16 + 1);
        connection.announce_caller(&caller, Some(number)).ok()?;
        self.numbers.retain(|_, known| *known != number);
        self.said[self.oldest] = caller;
        self.oldest = (self.oldest + 1) % self.said.len();
        Some(number)
    }
}

/// The callers a peer has named, by number from 1.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub(crate) struct CallersHeard(Vec<Arc<VouchedCaller>>);

impl CallersHeard {
    /// Takes what a peer says; its connection has seen to it that numbers come in order and are few. Behind a gap, of
    /// what was said while the peer was not believed, nothing is taken.
    pub fn hear(&mut self, number: CallerNumber, caller: VouchedCaller) {
        let caller = Arc::new(caller);
        let index = usize::from(number.0).wrapping_sub(1);
        if let Some(known) = self.0.get_mut(index) {
            *known = caller;
        } else if self.0.len() == index && index < Connection::CALLERS_MAX.into() {
            self.0.push(caller);
        }
    }

    pub fn find(&self, number: CallerNumber) -> Option<&Arc<VouchedCaller>> {
        self.0.get(usize::from(number.0).wrapping_sub(1))
    }
}

#[cfg(test)]
mod tests {
    //! Shows who is a host, that one caller has one number however many processes it is, and that numbers run out for
    //! nobody.
    use super::*;
    use crate::session::Session;
    use trunkline_call::Instant;
    use trunkline_native::{Config, Features, INPUT_BYTES_MIN, Input, Side};

    #[test]
    fn hosts_are_named_whole_or_by_their_beginning() {
        let hosts = Hosts::new(&["spiffe://a/host/*".into(), "b.example".into()]);
        let all = ["spiffe://a/host/1", "spiffe://a/hosts", "b.example", "b.example.org", "", "c"];
        assert_eq!(all.map(|name| hosts.include(name)), [true, false, true, false, false, false]);
        assert!(!Hosts::new(&["*".into()]).include(""), "who has proved nothing");
        assert!(!Hosts::default().include("a"));
    }

    #[test]
    fn the_first_rule_that_names_the_service_decides_about_the_network() {
        let rule = |service: &str, peers: &[&str]| PeerRule {
            service: service.into(),
            peers: peers.iter().map(|peer| (*peer).into()).collect(),
        };
        let rules =
            [rule("pay.v1.Admin", &[]), rule("pay.*", &["spiffe://a/host/*", "b"]), rule("x.*", &["*"])];
        for (identity, service, may) in [
            ("spiffe://a/host/1", "pay.v1.Pay", true),
            ("b", "pay.v1.Pay", true),
            ("c", "pay.v1.Pay", false),
            ("", "pay.v1.Pay", false),
            ("b", "pay.v1.Admin", false),
            ("c", "x.Y", true),
            ("", "x.Y", false),
            ("", "z.Y", true),
        ] {
            let checked = PeerRule::check(&rules, identity, service);
            assert_eq!(checked.is_ok(), may, "{identity} calls {service}");
            let Err(status) = checked else { continue };
            let says = [status.message(), service, "[[call]]"].map(str::to_owned);
            assert!(says[1..].iter().all(|part| says[0].contains(part)), "{}", says[0]);
            assert_eq!((status.code(), status.execution()), (Code::PermissionDenied, Execution::NotExecuted));
        }
    }

    #[test]
    fn nobody_is_taken_for_another_whose_number_was_not_heard() {
        let mut heard = CallersHeard::default();
        let named = |name: &str| VouchedCaller { name: name.into(), ..VouchedCaller::default() };
        heard.hear(CallerNumber(5), named("five"));
        assert_eq!(heard.find(CallerNumber(1)), None);
        heard.hear(CallerNumber(1), named("one"));
        heard.hear(CallerNumber(2), named("two"));
        heard.hear(CallerNumber(1), named("other"));
        let found =
            [1, 2, 5].map(|number| heard.find(CallerNumber(number)).map(|caller| caller.name.clone()));
        assert_eq!(found, [Some("other".into()), Some("two".into()), None]);
    }

    /// A connection past hello, on which callers are named.
    fn connection() -> Connection {
        let config = Arc::new(Config { features: Features::CALLERS, ..Config::default() });
        let mut ends = [Side::Initiator, Side::Acceptor]
            .map(|side| Connection::new(side, Arc::clone(&config), Instant(1)));
        let mut hello = vec![0; INPUT_BYTES_MIN];
        let mut bytes = 0;
        for chunk in ends[1].poll_transmit(Instant(1), 1 << 20) {
            let trunkline_native::Chunk::Bytes(own) = chunk else { continue };
            hello[bytes..bytes + own.len()].copy_from_slice(own);
            bytes += own.len();
        }
        let [north, _] = &mut ends;
        north.handle_bytes(Instant(1), &mut Input::new(&hello[..bytes])).unwrap();
        let [north, _] = ends;
        north
    }

    #[test]
    fn a_caller_has_one_number_and_numbers_are_given_anew() {
        let mut sessions = crate::sessions::SessionEnds::default();
        let mut said = CallersSaid::default();
        let mut connection = connection();
        let named = |name: &str| Arc::new(VouchedCaller { name: name.into(), ..VouchedCaller::default() });
        let mut number = |name: &str, maker| said.number(maker, &mut connection, || Some(named(name)));
        let mut makers =
            (0..2000).map(|_| Maker::Session(sessions.insert(Session::new("a[1]".into(), 0)), 0));
        let first = makers.next().unwrap();
        assert_eq!(number("till", first), Some(CallerNumber(1)));
        assert_eq!(number("not looked at: it is known", first), Some(CallerNumber(1)));
        assert_eq!(number("till", makers.next().unwrap()), Some(CallerNumber(1)), "another process of it");
        for n in 2..=Connection::CALLERS_MAX {
            assert_eq!(number(&format!("app{n}"), makers.next().unwrap()), Some(CallerNumber(n)));
        }
        assert_eq!(number("late", makers.next().unwrap()), Some(CallerNumber(1)), "the oldest one's");
        assert_eq!(number("till", first), Some(CallerNumber(2)), "which is named anew when it calls again");
        for maker in makers {
            assert_eq!(number("till", maker), Some(CallerNumber(2)));
        }
        assert!(said.numbers.len() <= MAKERS_MAX && said.said.len() == usize::from(Connection::CALLERS_MAX));
    }
}
