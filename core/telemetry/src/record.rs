//! One finished call, and its division into components.

use crate::clock::{ClockOffset, Wires};
use crate::component::{Component, Components, Coverage, Stamp};
use crate::timeline::{ClientLine, ServerLine};
use crate::{MethodIndex, PeerIndex};
use serde::{Deserialize, Serialize};
use trunkline_call::{ClientStamps, Code, Instant, ServerStamps};

/// Which end of the call this host was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// An application here made the call.
    Made,
    /// An application here served a call from another host.
    Served,
    /// One of the attempts at a call made here that may take several: retries and hedges.
    Attempt,
}

impl Side {
    /// All, each at its number.
    pub const ALL: [Self; 3] = [Self::Made, Self::Served, Self::Attempt];

    /// The name in tables and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Made => "made",
            Self::Served => "served",
            Self::Attempt => "attempt",
        }
    }
}

/// What is known of a call when it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Which end this host was.
    pub side: Side,
    /// The method, as [`crate::Telemetry::method`] numbered it.
    pub method: MethodIndex,
    /// The other host, as [`crate::Telemetry::peer`] numbered it; [`PeerIndex::LOCAL`] within one host.
    pub peer: PeerIndex,
    /// How it ended.
    pub code: Code,
    /// Request message bytes.
    pub request_bytes: u64,
    /// Response message bytes.
    pub response_bytes: u64,
    /// This host's stamps of a call made here; ignored for a call served here.
    pub client: ClientStamps,
    /// The server's stamps: from the trailer for a call made here (`None` if the peer sent none), this host's own for a
    /// call served here.
    pub server: Option<ServerStamps>,
    /// It streamed: how long it took says when its ends had enough of it, and is divided for nobody.
    pub is_stream: bool,
}

impl Record {
    // LIFE: 22
    /// Divides the completion time.
    ///
    /// Any stamps give nine non-negative parts that sum exactly to the completion time: missing stamps are stood in
    /// for, stamps out of order are moved, a server that claims more time than there was is scaled down, and the clock
    /// offset only decides how the rest is split between the two wires.
    pub fn components(&self, clock: ClockOffset) -> Components {
        self.lines(Instant(u64::MAX)).divide(&mut |_| clock)
    }

    /// Its stamps in order. What an application says of its own clock is not later than `until`.
    pub(crate) fn lines(&self, until: Instant) -> Lines {
        match (self.side, &self.server) {
            (Side::Served, server) => Lines::Server(ServerLine::of(&server.unwrap_or_default())),
            (_, None) => Lines::Client(ClientLine::of(&self.client, until)),
            (_, Some(server)) => {
                let lines = (ClientLine::of(&self.client, until), ServerLine::of(server));
                let is_one_host = self.peer == PeerIndex::LOCAL;
                if is_one_host { Lines::OneHost(lines.0, lines.1) } else { Lines::Both(lines.0, lines.1) }
            }
        }
    }
}

/// A record's stamps in order.
pub(crate) enum Lines {
    Both(ClientLine, ServerLine),
    /// Of one clock, and without a wire between them.
    OneHost(ClientLine, ServerLine),
    Client(ClientLine),
    Server(ServerLine),
}

impl Lines {
    #[cold]
    pub fn divide(&self, offset: &mut dyn FnMut(&Wires) -> ClockOffset) -> Components {
        match self {
            Self::Both(client, server) => whole(client, server, offset(&Wires::of(client, server))),
            Self::OneHost(client, server) => one_host(client, server),
            Self::Client(client) => client_only(client),
            Self::Server(server) => server_only(server),
        }
    }

    /// First and last stamp, on this host's clock.
    pub fn ends_ns(&self) -> [u64; 2] {
        match self {
            Self::Both(client, _) | Self::OneHost(client, _) | Self::Client(client) => {
                [client.stamps.a0.0, client.stamps.a18.0]
            }
            Self::Server(server) => [server.stamps.k7.0, server.stamps.k14.0],
        }
    }
}

fn whole(client: &ClientLine, server: &ServerLine, clock: ClockOffset) -> Components {
    let away_ns = client.away_ns();
    let mut stay = Stay::of(server);
    let clipped = stay.fit(away_ns);
    let wires_ns = away_ns - stay.sum_ns();
    let request_wire_ns = request_wire_ns(client, server, clock).min(wires_ns);
    let mut components = client_part(client);
    stay.add_to(&mut components);
    components.ns[Component::RequestWire as usize] = request_wire_ns;
    components.ns[Component::ResponseWire as usize] = wires_ns - request_wire_ns;
    components.stand_ins = client.stand_ins.union(server.stand_ins);
    components.clipped = clipped;
    components
}

/// Without a wire: what passes between the two ends is a hop from one shard of the daemon to another.
fn one_host(client: &ClientLine, server: &ServerLine) -> Components {
    let mut components = whole(client, server, ClockOffset::SAME);
    for (stack, wire) in [
        (Component::RequestStack, Component::RequestWire),
        (Component::ResponseStack, Component::ResponseWire),
    ] {
        components.ns[stack as usize] += std::mem::take(&mut components.ns[wire as usize]);
    }
    components.coverage = Coverage::OneHost;
    components.kernel_sent = false;
    components
}

fn client_only(client: &ClientLine) -> Components {
    let mut components = client_part(client);
    components.ns[Component::ServerApplication as usize] = client.away_ns();
    components.coverage = if client.stayed { Coverage::Stayed } else { Coverage::ClientOnly };
    components.kernel_sent &= !client.stayed;
    components
}

fn server_only(server: &ServerLine) -> Components {
    let mut components = Components { stand_ins: server.stand_ins, ..Components::default() };
    Stay::of(server).add_to(&mut components);
    components.coverage = Coverage::ServerOnly;
    components
}

/// What the client's own stamps say: a0…k6 and k15…a18.
fn client_part(client: &ClientLine) -> Components {
    let s = &client.stamps;
    let kernel_sent = !client.stand_ins.contains(Stamp::K6);
    let mut components = Components { stand_ins: client.stand_ins, kernel_sent, ..Components::default() };
    let work_ns = s.d3.since_ns(s.d2) - s.wait_ns;
    components.ns[Component::ClientSendQueue as usize] = s.d2.since_ns(s.a1) + s.wait_ns;
    components.ns[Component::RequestStack as usize] = s.a1.since_ns(s.a0) + work_ns + s.k6.since_ns(s.d3);
    components.ns[Component::ResponseStack as usize] = s.d17.since_ns(s.k15);
    components.ns[Component::ClientReceiveQueue as usize] = s.a18.since_ns(s.d17);
    components.response_wakeup_ns = s.d16.since_ns(s.k15);
    components
}

/// k7 − k6 − θ, zero if that is negative.
fn request_wire_ns(client: &ClientLine, server: &ServerLine, clock: ClockOffset) -> u64 {
    let apart_ns = i128::from(server.stamps.k7.0) - i128::from(client.stamps.k6.0);
    u64::try_from((apart_ns - i128::from(clock.ns)).max(0)).unwrap_or(u64::MAX)
}

/// The parts of the server's stay, k7…k14.
struct Stay {
    request_stack_ns: u64,
    receive_queue_ns: u64,
    application_ns: u64,
    send_queue_ns: u64,
    response_stack_ns: u64,
    request_wakeup_ns: u64,
}

impl Stay {
    fn of(server: &ServerLine) -> Self {
        let s = &server.stamps;
        Self {
            request_stack_ns: s.d9.since_ns(s.k7),
            receive_queue_ns: s.a10.since_ns(s.d9),
            application_ns: s.a11.since_ns(s.a10),
            send_queue_ns: s.d12.since_ns(s.a11) + s.wait_ns,
            response_stack_ns: s.k14.since_ns(s.d12) - s.wait_ns,
            request_wakeup_ns: s.d8.since_ns(s.k7),
        }
    }

    /// No part overflows: together they are k14 − k7.
    fn sum_ns(&self) -> u64 {
        self.request_stack_ns
            + self.receive_queue_ns
            + self.application_ns
            + self.send_queue_ns
            + self.response_stack_ns
    }

    /// Scales the parts down to `budget_ns` if they exceed it; says whether they did.
    ///
    /// In proportion, because the honest reason is a server clock that runs a few millionths fast, which stretches
    /// every part alike. What rounding leaves over goes to the application.
    fn fit(&mut self, budget_ns: u64) -> bool {
        let sum_ns = self.sum_ns();
        if sum_ns <= budget_ns {
            return false;
        }
        let scale = |ns: u64| (u128::from(ns) * u128::from(budget_ns) / u128::from(sum_ns)) as u64;
        for part in [
            &mut self.request_stack_ns,
            &mut self.receive_queue_ns,
            &mut self.application_ns,
            &mut self.send_queue_ns,
            &mut self.response_stack_ns,
            &mut self.request_wakeup_ns,
        ] {
            *part = scale(*part);
        }
        self.application_ns += budget_ns - self.sum_ns();
        true
    }

    fn add_to(&self, components: &mut Components) {
        components.ns[Component::RequestStack as usize] += self.request_stack_ns;
        components.ns[Component::ServerReceiveQueue as usize] += self.receive_queue_ns;
        components.ns[Component::ServerApplication as usize] += self.application_ns;
        components.ns[Component::ServerSendQueue as usize] += self.send_queue_ns;
        components.ns[Component::ResponseStack as usize] += self.response_stack_ns;
        components.request_wakeup_ns = self.request_wakeup_ns;
    }
}

#[cfg(test)]
mod tests {
    //! Shows the division by hand on one call, and that wild stamps still give nine parts that sum exactly.
    use super::*;
    use proptest::prelude::*;

    /// Server's clock is this far ahead.
    const THETA: u64 = 1_000_000;

    fn client() -> ClientStamps {
        let at = |ns: u64| Instant(1_000 + ns);
        ClientStamps {
            a0: at(0),
            a1: at(10),
            d2: at(30),
            d3: at(100),
            wait_ns: 50,
            d4: at(105),
            k6: at(110),
            k15: at(900),
            d16: at(920),
            d17: at(930),
            a18: at(960),
        }
    }

    fn server() -> ServerStamps {
        let at = |ns: u64| Instant(1_000 + THETA + ns);
        ServerStamps {
            k7: at(210),
            d8: at(215),
            d9: at(220),
            a10: at(250),
            a11: at(650),
            d12: at(660),
            wait_ns: 5,
            k14: at(680),
            subtree: 1,
            cpu_ns: 0,
        }
    }

    fn made(client: ClientStamps, server: Option<ServerStamps>) -> Record {
        let (method, peer) = (MethodIndex(1), PeerIndex(2));
        Record {
            side: Side::Made,
            method,
            peer,
            code: Code::Ok,
            request_bytes: 0,
            response_bytes: 0,
            client,
            server,
            is_stream: false,
        }
    }

    fn exact() -> ClockOffset {
        ClockOffset { ns: THETA as i64, half_width_ns: 0 }
    }

    #[test]
    fn one_call_by_hand() {
        let parts = made(client(), Some(server())).components(exact());
        assert_eq!(parts.ns, [70, 10 + 20 + 10 + 10, 100, 30, 400, 15, 220, 15 + 30, 30]);
        assert_eq!((parts.total_ns(), parts.tax_ns()), (960, 560));
        assert_eq!((parts.request_wakeup_ns, parts.response_wakeup_ns), (5, 20));
        assert_eq!((parts.coverage, parts.clipped), (Coverage::Whole, false));
        assert!(parts.stand_ins.is_empty(), "{:?}", parts.stand_ins);
    }

    #[test]
    fn a_wrong_offset_moves_time_between_the_wires_only() {
        let right = made(client(), Some(server())).components(exact());
        for ns in [i64::MIN, -7, THETA as i64 + 60, i64::MAX] {
            let parts = made(client(), Some(server())).components(ClockOffset { ns, half_width_ns: 0 });
            let wires = |parts: &Components| parts[Component::RequestWire] + parts[Component::ResponseWire];
            assert_eq!((parts.total_ns(), wires(&parts)), (960, wires(&right)), "offset {ns}");
            for component in Component::ALL {
                if !matches!(component, Component::RequestWire | Component::ResponseWire) {
                    assert_eq!(parts[component], right[component], "{component}");
                }
            }
        }
    }

    #[test]
    fn without_kernel_stamps_the_daemon_stands_in_and_the_record_says_so() {
        let mut stamps = client();
        (stamps.k6, stamps.k15) = (Instant(0), Instant(0));
        let parts = made(stamps, Some(server())).components(exact());
        assert_eq!(parts.stand_ins.iter().collect::<Vec<_>>(), [Stamp::K6, Stamp::K15]);
        assert_eq!((parts[Component::RequestWire], parts[Component::ResponseWire]), (105, 240));
        assert_eq!(parts.total_ns(), 960);
    }

    #[test]
    fn a_silent_peer_gives_five_of_nine() {
        let parts = made(client(), None).components(ClockOffset::SAME);
        assert_eq!(parts.ns, [70, 10 + 20 + 10, 0, 0, 790, 0, 0, 30, 30]);
        assert_eq!((parts.coverage, parts.coverage.measured()), (Coverage::ClientOnly, 5));
        assert_eq!(parts.total_ns(), 960);
    }

    #[test]
    fn a_call_that_never_left_was_waiting() {
        let at = |ns: u64| Instant(1_000 + ns);
        let (a0, a1, d2, d17, a18) = (at(0), at(10), at(30), at(930), at(960));
        let stamps = ClientStamps { a0, a1, d2, d17, a18, ..ClientStamps::default() };
        let parts = made(stamps, None).components(ClockOffset::SAME);
        assert_eq!(parts.ns, [920, 10, 0, 0, 0, 0, 0, 0, 30]);
        assert_eq!((parts.coverage, parts.coverage.measured()), (Coverage::Stayed, 4));
        assert!(!parts.kernel_sent, "no byte left");
    }

    #[test]
    fn within_one_host_there_is_no_wire() {
        let at = |ns: u64| Instant(1_000 + ns);
        let (handed, back) = (at(120), at(700));
        let client =
            ClientStamps { d3: handed, d4: handed, k6: handed, k15: back, d16: back, d17: back, ..client() };
        let server = ServerStamps {
            k7: handed,
            d8: handed,
            d9: handed,
            a10: at(150),
            a11: at(650),
            d12: at(660),
            k14: back,
            ..ServerStamps::default()
        };
        let here = Record { peer: PeerIndex::LOCAL, ..made(client, Some(server)) };
        let parts = here.components(ClockOffset::SAME);
        assert_eq!(parts.ns, [70, 10 + 40, 0, 30, 500, 10, 0, 40, 260]);
        assert!(parts.stand_ins.is_empty());
        assert_eq!((parts.coverage, parts.coverage.measured()), (Coverage::OneHost, 7));
        assert!(!parts.kernel_sent, "no kernel has seen it");
        // Between two shards there is a hop, which is no wire.
        let later = ServerStamps { k7: at(125), d8: at(125), d9: at(125), ..server };
        let parts = Record { server: Some(later), ..here }.components(ClockOffset::SAME);
        assert_eq!(parts.ns, [70, 10 + 40 + 5, 0, 25, 500, 10, 0, 40, 260]);
    }

    #[test]
    fn a_server_that_claims_too_much_is_scaled_to_what_there_was() {
        let mut greedy = server();
        greedy.a11 = greedy.a11.plus_ns(1 << 40);
        (greedy.d12, greedy.k14) = (greedy.a11, greedy.a11.plus_ns(1 << 40));
        let parts = made(client(), Some(greedy)).components(exact());
        assert!(parts.clipped);
        assert_eq!(parts.total_ns(), 960);
        assert_eq!((parts[Component::RequestWire], parts[Component::ResponseWire]), (0, 0));
        assert!(parts[Component::ServerApplication].abs_diff(395) <= 1, "{parts:?}");
    }

    #[test]
    fn a_served_call_has_the_server_part() {
        let record = Record { side: Side::Served, ..made(ClientStamps::default(), Some(server())) };
        let parts = record.components(ClockOffset::SAME);
        assert_eq!(parts.ns, [0, 10, 0, 30, 400, 15, 0, 15, 0]);
        assert_eq!((parts.coverage, parts.total_ns()), (Coverage::ServerOnly, 470));
    }

    /// Small numbers collide and cross; zero is *missing*; the ends of the range overflow what is careless.
    fn stamp() -> impl Strategy<Value = Instant> {
        prop_oneof![Just(0), 1..20_u64, 1_000..10_000_u64, any::<u64>(), Just(u64::MAX)].prop_map(Instant)
    }

    prop_compose! {
        fn wild_client()(s in prop::array::uniform10(stamp()), wait in stamp()) -> ClientStamps {
            let [a0, a1, d2, d3, d4, k6, k15, d16, d17, a18] = s;
            ClientStamps { a0, a1, d2, d3, wait_ns: wait.0, d4, k6, k15, d16, d17, a18 }
        }
    }

    prop_compose! {
        fn wild_server()(s in prop::array::uniform7(stamp()), wait in stamp()) -> ServerStamps {
            let [k7, d8, d9, a10, a11, d12, k14] = s;
            ServerStamps { k7, d8, d9, a10, a11, d12, wait_ns: wait.0, k14, subtree: 0, cpu_ns: 0 }
        }
    }

    prop_compose! {
        /// Stamps as an honest client takes them: all there, in order.
        fn honest_client()(steps in prop::array::uniform10(0..1_000_000_u64), wait in any::<u32>()) -> ClientStamps {
            let mut at = 1;
            let [a0, a1, d2, d3, d4, k6, k15, d16, d17, a18] = steps.map(|step| {
                at += step;
                Instant(at)
            });
            ClientStamps { a0, a1, d2, d3, wait_ns: wait.into(), d4, k6, k15, d16, d17, a18 }
        }
    }

    proptest! {
        #[test]
        fn honest_clients_get_their_whole_time(
            client in honest_client(),
            server in prop::option::of(wild_server()),
            ns in any::<i64>(),
        ) {
            let parts = made(client, server).components(ClockOffset { ns, half_width_ns: 0 });
            prop_assert_eq!(parts.total_ns(), client.a18.since_ns(client.a0));
        }

        #[test]
        fn the_short_way_agrees_with_the_long_one(
            client in honest_client(),
            client_wait in prop_oneof![0..10_000_u64, any::<u64>()],
            server_steps in prop::array::uniform7(0..50_000_u64),
            wait in prop_oneof![0..1_000_u64, any::<u64>()],
            has_k6 in any::<bool>(),
            swapped in prop::option::of(0..6_usize),
            ns in prop_oneof![-3_000_000..3_000_000_i64, any::<i64>()],
            side in prop::sample::select(&Side::ALL),
            peer in prop_oneof![Just(PeerIndex(2)), Just(PeerIndex::LOCAL)],
            until in prop_oneof![Just(u64::MAX), 1..10_000_000_u64],
        ) {
            let mut at = 5;
            let mut stamps = server_steps.map(|step| {
                at += step;
                Instant(at)
            });
            if let Some(swapped) = swapped {
                stamps.swap(swapped, swapped + 1);
            }
            let [k7, d8, d9, a10, a11, d12, k14] = stamps;
            let server = ServerStamps { k7, d8, d9, a10, a11, d12, wait_ns: wait, k14, subtree: 1, cpu_ns: 0 };
            let k6 = if has_k6 { client.k6 } else { Instant(0) };
            let client = ClientStamps { wait_ns: client_wait, ..client };
            let record = Record { side, peer, ..made(ClientStamps { k6, ..client }, Some(server)) };
            let (until, clock) = (Instant(until), ClockOffset { ns, half_width_ns: 0 });
            let divided = match side {
                Side::Served => record.divide_in_order::<true>(until, |_| clock),
                Side::Made | Side::Attempt => record.divide_in_order::<false>(until, |_| clock),
            };
            if let Some((parts, total_ns)) = divided {
                prop_assert_eq!(total_ns, parts.total_ns());
                prop_assert_eq!(parts, record.lines(until).divide(&mut |_| clock));
            } else {
                let is_odd = swapped.is_some() || wait > k14.since_ns(d12) || client.a18 > until;
                let is_long = k14.since_ns(k7) > client.k15.since_ns(k6.max(client.d4));
                prop_assert!(is_odd || is_long || client.wait_ns > client.d3.since_ns(client.d2));
            }
        }

        #[test]
        fn wild_stamps_give_parts_of_a_whole(
            client in wild_client(),
            server in prop::option::of(wild_server()),
            ns in any::<i64>(),
            side in prop::sample::select(&Side::ALL),
            peer in prop_oneof![Just(PeerIndex(2)), Just(PeerIndex::LOCAL)],
        ) {
            let record = Record { side, peer, ..made(client, server) };
            let parts = record.components(ClockOffset { ns, half_width_ns: 0 });
            let sum: u128 = parts.ns.iter().map(|ns| u128::from(*ns)).sum();
            let whole = match side {
                Side::Made | Side::Attempt => {
                    let line = ClientLine::of(&client, Instant(u64::MAX)).stamps;
                    line.a18.since_ns(line.a0)
                }
                Side::Served => {
                    let line = ServerLine::of(&server.unwrap_or_default()).stamps;
                    line.k14.since_ns(line.k7)
                }
            };
            prop_assert_eq!(sum, u128::from(whole));
            prop_assert!(parts.request_wakeup_ns <= parts[Component::RequestStack]);
            prop_assert!(parts.response_wakeup_ns <= parts[Component::ResponseStack]);
        }
    }
}
