//! The live page: what `trunkline list`, `top`, `explain` and `policy list` show, as a page for browsers and as JSON.
//!
//! The page (`live.html`) is one file that asks for `/live.json` every two seconds. Names are chosen by applications
//! and peers: the page puts them in as text, and the response allows it no other script than its own
//! ([`Page::with_script`]), so that no name can become one.

use crate::admin::{Facts, Host, NameRoom, ServedServices, UpgradeState};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use trunkline_daemon::Observation;
use trunkline_engine::{AttemptFigures, RemoteState, ServiceRow, SessionRow};
use trunkline_pages::Page;
use trunkline_policy::PolicyRow;
use trunkline_telemetry::{Ask, Explanation, Side, Snapshot, Spread};

/// Rows of one table of the page, and names of applications, services, endpoints or policies in one family of figures.
pub const NAMES_MAX: usize = 500;

/// What methods show is of the last minute, if there are calls of theirs: of twice as long after a pause at most.
const LATELY_NS: u64 = 60_000_000_000;
/// Of less than that it says little.
const LATELY_NS_MIN: u64 = 10_000_000_000;

/// Methods of one service of the page.
const METHODS_MAX: usize = 100;

const PAGE: &str = include_str!("live.html");

/// The page.
pub fn page() -> Page {
    Page::html(PAGE).with_script(script())
}

/// The text of its script.
fn script() -> &'static str {
    let (_, rest) = PAGE.split_once("<script>").unwrap_or_default();
    rest.split_once("</script>").unwrap_or_default().0
}

/// What the page shows.
#[derive(Debug, Default, Serialize)]
struct Picture {
    node: String,
    version: &'static str,
    process_id: u32,
    uptime_ns: u64,
    resident_bytes: u64,
    listening: Vec<String>,
    calls_in_flight: u64,
    connections: usize,
    methods: Vec<Method>,
    services: Vec<Service>,
    endpoints: Vec<Endpoint>,
    policies: Vec<PolicyLine>,
    applications: Vec<Application>,
    attempts: BTreeMap<&'static str, u64>,
    limits: BTreeMap<&'static str, u64>,
    memory: Vec<(String, u64)>,
    upgrade: Upgrade,
}

#[derive(Debug, Serialize)]
struct Method {
    method: String,
    side: &'static str,
    /// Calls per second since the picture before.
    rate: f64,
    /// Calls since the start.
    calls: u64,
    /// Since when the rest is: for so long, or since the start, where there was no call lately.
    lately_ns: Option<u64>,
    errors: u64,
    codes: Vec<(String, u64)>,
    p50_ns: u64,
    p99_ns: u64,
    /// None where every call streams: those are not divided, and their durations are told.
    tax_percent: Option<f64>,
    /// The nine, and what could not be divided.
    parts: Vec<Spread>,
    measured: String,
    peers: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Service {
    name: String,
    methods: Vec<String>,
    /// Those beside the first.
    methods_more: usize,
    servers: usize,
    waiting: usize,
}

#[derive(Debug, Serialize)]
struct Endpoint {
    endpoint: Arc<str>,
    service: Option<String>,
    state: &'static str,
    outstanding: Option<u64>,
    ejected: Option<bool>,
    weight: Option<f64>,
}

#[derive(Debug, Serialize)]
struct PolicyLine {
    name: String,
    kind: String,
    side: String,
    seen: u64,
    refused: u64,
    delayed: u64,
    errors: u64,
}

#[derive(Debug, Serialize)]
struct Application {
    name: String,
    shard: usize,
    serves: Vec<String>,
    /// Services beside those.
    serves_more: u32,
    calls_made: usize,
    calls_delivered: usize,
    completions_queued: usize,
    messages_parked: usize,
    receive_heap_bytes: u64,
    draining: bool,
}

#[derive(Debug, Default, Serialize)]
struct Upgrade {
    under_way: bool,
    steps: Vec<String>,
    failure: String,
    taken: Option<TakenFrom>,
}

#[derive(Debug, Serialize)]
struct TakenFrom {
    from: u32,
    sessions: usize,
    connections: usize,
    calls: usize,
    paused_ns: u64,
}

/// Pictures, one after the other: a rate is that since the one before, the rest is of half a minute to a minute.
#[derive(Debug, Default)]
pub struct Pictures {
    /// What was counted before what is shown, and what will be that later: two, for each may be tens of megabytes.
    earlier: Option<Snapshot>,
    next: Option<Snapshot>,
    /// When there was a picture last, and the calls of each method then.
    at_ns: u64,
    calls: CallsOfMethods,
}

/// Calls of each method and side.
type CallsOfMethods = HashMap<(Side, String), u64>;

impl Pictures {
    /// The next, as JSON.
    pub fn next(&mut self, host: &impl Host) -> String {
        let mut shards = host.observe(&Ask::default());
        let mut measured = Snapshot::default();
        shards.iter_mut().for_each(|shard| measured.merge(std::mem::take(&mut shard.telemetry)));
        let methods = self.methods(measured);
        let picture =
            Picture { methods, ..of(&shards, host.facts(), &host.policies(), host.upgrade_state()) };
        serde_json::to_string(&picture).unwrap_or_default()
    }

    fn methods(&mut self, measured: Snapshot) -> Vec<Method> {
        let age_ns = |old: &Snapshot| measured.at_ns.saturating_sub(old.at_ns);
        self.earlier.take_if(|old| age_ns(old) > 2 * LATELY_NS);
        let calls = calls_of(&measured);
        let earlier = self.earlier.as_ref().filter(|old| age_ns(old) >= LATELY_NS_MIN);
        let mut shown = methods(&measured, earlier);
        let seconds = measured.at_ns.saturating_sub(self.at_ns).max(1) as f64 / 1e9;
        for method in &mut shown {
            let side = Side::ALL.into_iter().find(|side| side.name() == method.side).unwrap_or(Side::Made);
            let key = (side, method.method.clone());
            let of = |calls: &CallsOfMethods| calls.get(&key).copied().unwrap_or(0);
            method.calls = of(&calls);
            let more = method.calls.saturating_sub(of(&self.calls));
            method.rate = if self.at_ns == 0 { 0.0 } else { more as f64 / seconds };
        }
        shown.sort_by_key(|method| std::cmp::Reverse(method.calls));
        shown.truncate(NAMES_MAX);
        (self.at_ns, self.calls) = (measured.at_ns, calls);
        self.keep(measured);
        shown
    }

    fn keep(&mut self, measured: Snapshot) {
        let age_ns = self.earlier.as_ref().map(|old| measured.at_ns.saturating_sub(old.at_ns));
        match age_ns {
            None => (self.earlier, self.next) = (Some(measured), None),
            Some(age_ns) if age_ns >= LATELY_NS => {
                let next = self.next.replace(measured);
                self.earlier = next.or_else(|| self.next.take());
            }
            Some(age_ns) if age_ns >= LATELY_NS / 2 && self.next.is_none() => self.next = Some(measured),
            Some(_) => {}
        }
    }
}

fn calls_of(measured: &Snapshot) -> CallsOfMethods {
    let mut calls = CallsOfMethods::new();
    for entry in &measured.series {
        *calls.entry((entry.side, entry.method.clone())).or_default() += entry.series.calls();
    }
    calls
}

fn of(shards: &[Observation], facts: Facts, chain: &[PolicyRow], state: UpgradeState) -> Picture {
    let seen = || shards.iter().map(|shard| &shard.snapshot);
    Picture {
        node: facts.node,
        version: env!("CARGO_PKG_VERSION"),
        process_id: std::process::id(),
        uptime_ns: facts.uptime_ns,
        resident_bytes: facts.resident_bytes,
        listening: facts.listening,
        calls_in_flight: seen().map(|shard| shard.calls as u64).sum(),
        connections: seen().map(|shard| shard.peers.len()).sum(),
        methods: Vec::new(),
        services: services(shards),
        endpoints: endpoints(shards),
        policies: chain.iter().take(NAMES_MAX).map(policy).collect(),
        applications: applications(shards),
        attempts: attempts(shards),
        limits: limits(shards),
        memory: memory(shards),
        upgrade: upgrade(state),
    }
}

/// The methods, with what they have been since an earlier picture; those that nobody has called since, since the start.
fn methods(measured: &Snapshot, earlier: Option<&Snapshot>) -> Vec<Method> {
    let recent = earlier.map(|earlier| measured.since(earlier)).unwrap_or_default();
    let lately_ns = earlier.map(|earlier| measured.at_ns.saturating_sub(earlier.at_ns));
    let (ever, lately) = (by_method(measured), by_method(&recent));
    let explained = ever.into_iter().filter_map(|((method, side), all)| {
        let (part, lately_ns) = match lately.get(&(method, side)) {
            Some(part) => (part, lately_ns),
            None => (&all, None),
        };
        Some(Method { lately_ns, ..of_explanation(method, Explanation::of(part, side)?) })
    });
    explained.collect()
}

fn by_method(measured: &Snapshot) -> BTreeMap<(&str, Side), Snapshot> {
    let mut of_method: BTreeMap<(&str, Side), Snapshot> = BTreeMap::new();
    for entry in &measured.series {
        let part = of_method.entry((&entry.method, entry.side)).or_default();
        part.series.push(entry.clone());
    }
    of_method
}

fn of_explanation(method: &str, explained: Explanation) -> Method {
    let tax_percent = explained.tax_percent();
    let durations = explained.streams.filter(|_| explained.only_streams()).unwrap_or(explained.total);
    let parts = explained.components.iter().map(|row| row.spread);
    Method {
        method: method.to_owned(),
        side: explained.side.name(),
        rate: 0.0,
        calls: explained.calls,
        lately_ns: None,
        errors: explained.errors.iter().map(|(_, calls)| calls).sum(),
        p50_ns: durations.p50_ns,
        p99_ns: durations.p99_ns,
        tax_percent,
        parts: parts.chain([explained.remote.unwrap_or_default()]).collect(),
        measured: measured(&explained),
        codes: explained.errors,
        peers: explained.peers.into_iter().take(NAMES_MAX).collect(),
    }
}

/// How much of a method's calls is known, in words.
fn measured(explained: &Explanation) -> String {
    let Explanation { calls, client_only, one_host, stayed, .. } = explained;
    let streams = explained.streams.map_or(0, |streams| streams.calls);
    if explained.side == Side::Served && !explained.only_streams() {
        return "5 of 9 components: the server's own part".to_owned();
    }
    let others = [*client_only, *one_host, *stayed, streams];
    let whole = others.iter().fold(*calls, |left, other| left.saturating_sub(*other));
    let kinds = [
        (whole, "9 of 9 components"),
        (*one_host, "7 of 7, within this host"),
        (*client_only, "5 of 9, no stamps came back"),
        (*stayed, "ended before anybody was asked"),
        (streams, "streams, not divided"),
    ];
    let told = kinds.into_iter().filter(|(calls, _)| *calls > 0);
    told.map(|(calls, kind)| format!("{kind}: {calls}")).collect::<Vec<_>>().join("; ")
}

fn services(shards: &[Observation]) -> Vec<Service> {
    let mut found: BTreeMap<&str, (&ServiceRow, usize)> = BTreeMap::new();
    for row in shards.iter().flat_map(|shard| &shard.snapshot.services) {
        found.entry(&row.name).or_insert((row, 0)).1 += row.sessions.len();
    }
    let mut waiting: HashMap<&str, usize> = HashMap::new();
    for (service, calls) in shards.iter().flat_map(|shard| &shard.snapshot.waiting) {
        *waiting.entry(service).or_default() += calls;
    }
    let shown = found.into_values().take(NAMES_MAX);
    let service = |(row, servers): (&ServiceRow, usize)| Service {
        name: row.name.clone(),
        methods: row.methods.iter().take(METHODS_MAX).cloned().collect(),
        methods_more: row.methods.len().saturating_sub(METHODS_MAX),
        servers,
        waiting: waiting.get(row.name.as_str()).copied().unwrap_or(0),
    };
    shown.map(service).collect()
}

/// Endpoints as shards see them: where one is connected it is, and where one leaves it out it is left out.
fn endpoints(shards: &[Observation]) -> Vec<Endpoint> {
    let mut states: BTreeMap<Arc<str>, RemoteState> = BTreeMap::new();
    for row in shards.iter().flat_map(|shard| &shard.snapshot.remotes) {
        let state = states.entry(Arc::clone(&row.endpoint)).or_insert(row.state);
        if rank(row.state) > rank(*state) {
            *state = row.state;
        }
    }
    let mut found: BTreeMap<(Arc<str>, String), Endpoint> = BTreeMap::new();
    for row in shards.iter().flat_map(|shard| &shard.snapshot.balanced) {
        let endpoint = Arc::clone(&row.endpoint);
        let state = name(states.get(&endpoint).copied().unwrap_or(RemoteState::Idle));
        let (outstanding, ejected, weight) = (Some(0), Some(false), row.weight);
        let service = Some(row.service.clone()).filter(|service| !service.is_empty());
        let new = Endpoint { endpoint: Arc::clone(&endpoint), service, state, outstanding, ejected, weight };
        let known = found.entry((endpoint, row.service.clone())).or_insert(new);
        known.outstanding = known.outstanding.map(|calls| calls + u64::from(row.outstanding));
        known.ejected = known.ejected.map(|ejected| ejected || row.ejected);
    }
    let known: HashSet<Arc<str>> = found.keys().map(|(endpoint, _)| Arc::clone(endpoint)).collect();
    let alone = states.into_iter().filter(|(endpoint, _)| !known.contains(endpoint));
    let alone = alone.map(|(endpoint, state)| {
        let (service, outstanding, ejected, weight) = (None, None, None, None);
        Endpoint { endpoint, service, state: name(state), outstanding, ejected, weight }
    });
    found.into_values().chain(alone).take(NAMES_MAX).collect()
}

fn rank(state: RemoteState) -> u8 {
    match state {
        RemoteState::Idle => 0,
        RemoteState::Failing => 1,
        RemoteState::Connecting => 2,
        RemoteState::Ready => 3,
    }
}

fn name(state: RemoteState) -> &'static str {
    match state {
        RemoteState::Idle => "idle",
        RemoteState::Connecting => "connecting",
        RemoteState::Ready => "ready",
        RemoteState::Failing => "failing",
    }
}

fn policy(row: &PolicyRow) -> PolicyLine {
    let word = |value: Result<serde_json::Value, _>| match value {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    };
    PolicyLine {
        name: row.definition.name.clone(),
        kind: word(serde_json::to_value(row.definition.kind)),
        side: word(serde_json::to_value(row.definition.side)),
        seen: row.figures.seen,
        refused: row.figures.refused,
        delayed: row.figures.delayed,
        errors: row.figures.errors,
    }
}

fn applications(shards: &[Observation]) -> Vec<Application> {
    let mut rows: Vec<(usize, &SessionRow)> = Vec::new();
    for (shard, seen) in shards.iter().enumerate() {
        rows.extend(seen.snapshot.sessions.iter().map(|row| (shard, row)));
    }
    rows.sort_by(|(_, a), (_, b)| {
        b.receive_heap_bytes.cmp(&a.receive_heap_bytes).then_with(|| a.label.cmp(&b.label))
    });
    rows.truncate(NAMES_MAX);
    let served: Vec<ServedServices<'_>> =
        shards.iter().map(|seen| ServedServices::of(&seen.snapshot.services)).collect();
    let mut room = NameRoom::default();
    let application = |(shard, row): (usize, &SessionRow)| {
        let (serves, serves_more) = served[shard].names(row.key, &mut room);
        Application {
            name: row.label.clone(),
            shard,
            serves,
            serves_more,
            calls_made: row.calls_made,
            calls_delivered: row.calls_delivered,
            completions_queued: row.completions_queued,
            messages_parked: row.parked,
            receive_heap_bytes: row.receive_heap_bytes,
            draining: row.draining,
        }
    };
    rows.into_iter().map(application).collect()
}

/// Figures of attempts over all shards, by name.
pub fn attempts(shards: &[Observation]) -> BTreeMap<&'static str, u64> {
    let mut sums = BTreeMap::new();
    for AttemptFigures { calls, retries, hedges, unseen, pushed_back, throttled, over_budget, budget_left } in
        shards.iter().map(|shard| shard.snapshot.attempts)
    {
        let figures = [
            ("calls", calls),
            ("retries", retries),
            ("hedges", hedges),
            ("sent_again_unseen", unseen),
            ("pushed_back", pushed_back),
            ("throttled", throttled),
            ("over_budget", over_budget),
            ("budget_left", budget_left),
        ];
        for (name, count) in figures {
            *sums.entry(name).or_default() += count;
        }
    }
    sums
}

/// Calls ended at limits, over all shards.
pub fn limits(shards: &[Observation]) -> BTreeMap<&'static str, u64> {
    let mut sums = BTreeMap::new();
    for (name, calls) in shards.iter().flat_map(|shard| &shard.snapshot.limits_met) {
        *sums.entry(*name).or_default() += calls;
    }
    sums
}

/// Bytes by owner, over all shards, those of applications together.
pub fn memory(shards: &[Observation]) -> Vec<(String, u64)> {
    let mut sums: Vec<(String, u64)> = Vec::new();
    for (owner, bytes) in shards.iter().flat_map(|shard| &shard.snapshot.memory) {
        match sums.iter_mut().find(|(known, _)| known == owner) {
            Some((_, sum)) => *sum += bytes,
            None => sums.push(((*owner).to_owned(), *bytes)),
        }
    }
    let heaps = shards.iter().flat_map(|shard| &shard.snapshot.sessions).map(|row| row.receive_heap_bytes);
    sums.push(("receive heaps of applications".to_owned(), heaps.sum()));
    sums
}

fn upgrade(state: UpgradeState) -> Upgrade {
    let UpgradeState { under_way, steps, failure, taken } = state;
    let taken = taken.map(|taken| TakenFrom {
        from: taken.from,
        sessions: taken.sessions,
        connections: taken.connections,
        calls: taken.calls,
        paused_ns: taken.paused_ns,
    });
    Upgrade { under_way, steps, failure, taken }
}

#[cfg(test)]
mod tests {
    //! Shows that the page is one file whose script is the one allowed, and that it puts names in as text only.
    use super::*;

    #[test]
    fn it_is_one_file_and_asks_for_nothing_elsewhere() {
        assert_eq!(PAGE.matches("<script").count(), 1);
        for outside in ["http://", "https://", "@import", "url(", "<link", "src="] {
            assert!(!PAGE.contains(outside), "{outside}");
        }
    }

    #[test]
    fn names_are_text() {
        for door in
            ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"]
        {
            assert!(!script().contains(door), "{door}");
        }
        assert!(script().contains("createTextNode"));
    }

    #[test]
    fn what_is_shown_is_of_lately() {
        let counted = |at_s: u64, slow: u64, failed: u64| {
            let mut series = trunkline_telemetry::Series::default();
            (series.codes[0], series.codes[14]) = (10_000 + slow - failed, failed);
            (0..10_000).for_each(|_| series.total.record(1_000_000));
            (0..slow).for_each(|_| series.total.record(100_000_000));
            let (method, peer) = ("/s.S/M".to_owned(), "10.0.0.7:7878".to_owned());
            let exemplars = Default::default();
            let series =
                vec![trunkline_telemetry::Entry { side: Side::Made, method, peer, series, exemplars }];
            Snapshot { at_ns: at_s * 1_000_000_000, series, ..Snapshot::default() }
        };
        let mut pictures = Pictures::default();
        let mut look = |at_s, slow, failed| {
            let method = pictures.methods(counted(at_s, slow, failed)).remove(0);
            (method.p99_ns > 90_000_000, method.errors, method.calls, method.rate, method.lately_ns.is_some())
        };
        assert_eq!(look(1_000, 0, 0), (false, 0, 10_000, 0.0, false), "the first is of all there was");
        assert_eq!(look(1_002, 0, 0), (false, 0, 10_000, 0.0, false), "two seconds say little");
        assert_eq!(look(1_012, 100, 7), (true, 7, 10_100, 10.0, true), "a percent of all, and all of lately");
        assert_eq!(look(1_032, 100, 7), (true, 7, 10_100, 0.0, true));
        assert_eq!(look(1_062, 200, 7), (true, 7, 10_200, 100.0 / 30.0, true));
        assert_eq!(look(1_064, 200, 7), (true, 0, 10_200, 0.0, true), "failures of a minute ago are over");
        assert_eq!(look(1_098, 200, 7), (true, 0, 10_200, 0.0, true));
        let (_, errors, calls, _, is_lately) = look(1_100, 200, 7);
        assert_eq!((errors, calls, is_lately), (7, 10_200, false), "nobody calls: of all there was");
        assert_eq!(look(9_000, 300, 7).1, 7, "nobody has looked for long");
    }

    #[test]
    fn a_method_that_only_streams_has_the_durations_of_its_streams_and_no_tax() {
        let entry = |method: &str, streams: u64| {
            let mut series = trunkline_telemetry::Series { streams, ..Default::default() };
            series.codes[0] = 3;
            for call in 0..3 {
                let times = if call < streams { &mut series.stream_total } else { &mut series.total };
                times.record(5_000_000);
            }
            let (method, peer) = (method.to_owned(), "10.0.0.7:7878".to_owned());
            trunkline_telemetry::Entry {
                side: Side::Made,
                method,
                peer,
                series,
                exemplars: Default::default(),
            }
        };
        let series = vec![entry("/s.S/Some", 1), entry("/s.S/Watch", 3)];
        let rows = methods(&Snapshot { series, ..Snapshot::default() }, None);
        let row = |name: &str| rows.iter().find(|row| row.method == name).unwrap();
        let (some, watch) = (row("/s.S/Some"), row("/s.S/Watch"));
        assert_eq!((watch.tax_percent, &*watch.measured), (None, "streams, not divided: 3"));
        assert!(
            some.tax_percent.is_some() && some.measured.ends_with("; streams, not divided: 1"),
            "{some:?}"
        );
        for row in [some, watch] {
            let near = |ns: u64| ns.abs_diff(5_000_000) < 200_000;
            assert!(near(row.p50_ns) && near(row.p99_ns), "{row:?}");
        }
        assert!(script().contains("one.tax_percent === null ? \"–\""));
    }
}
