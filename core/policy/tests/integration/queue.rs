//! Shows a queue under load, under virtual time: a burst is smoothed, an overload is shed so that what is served is
//! served soon, urgent calls go first and nobody starves; beside it what a plain queue does to callers with deadlines.

use std::collections::VecDeque;
use std::sync::Arc;
use trunkline_call::Instant;
use trunkline_message::View;
use trunkline_policy::{
    Admission, Chain, Definition, Inputs, Kind, Modules, Permits, Plan, Policies, Side, Subject, Verdict,
};

const MS: u64 = 1_000_000;

/// One server behind a queue, 10 ms per call.
struct Host {
    policies: Policies,
    plan: Arc<Plan>,
    now: Instant,
    /// The call at work, and when it is done.
    busy: Option<(u64, Instant, Permits)>,
    begun: Vec<Instant>,
    /// Token and how long it waited.
    served: Vec<(u64, u64)>,
    shed: Vec<u64>,
    refused: usize,
}

impl Host {
    fn new(definition: Definition) -> Self {
        let chain = Chain::build(&[definition]).unwrap();
        let mut policies = Policies::new(1);
        let mut staged = policies.stage(chain, Modules::default()).unwrap();
        let subject = Subject {
            side: Side::Server,
            application: "shop",
            path: "/shop.v1.Shop/Buy",
            request: None,
            client_streams: false,
        };
        let plan = staged.chain_mut().plan(&subject).0.unwrap();
        policies.commit(staged);
        let now = Instant(1_000 * MS);
        let (served, shed) = (Vec::new(), Vec::new());
        Self { policies, plan, now, busy: None, begun: Vec::new(), served, shed, refused: 0 }
    }

    fn arrive(&mut self, caller: &str) {
        let token = self.begun.len() as u64;
        self.begun.push(self.now);
        let inputs = Inputs {
            request: View::EMPTY,
            metadata: &[],
            path: "/shop.v1.Shop/Buy",
            application: caller,
            peer_identity: "",
            caller: None,
            peer_address: "",
            deadline: trunkline_call::Deadline::NONE,
            request_bytes: 0,
        };
        let mut admission = Admission::default();
        match self.policies.admit(&self.plan, self.now, &inputs, true, &mut admission) {
            Ok(()) => match admission.ticket {
                Some(ticket) => self.policies.enqueue(self.now, ticket, token),
                None => self.work(token, admission.permits),
            },
            Err(_) => self.refused += 1,
        }
    }

    fn work(&mut self, token: u64, permits: Permits) {
        assert!(self.busy.is_none(), "one at a time");
        self.served.push((token, self.now.since_ns(self.begun[token as usize])));
        self.busy = Some((token, self.now.plus_ns(10 * MS), permits));
    }

    fn run(&mut self, ms: u64) {
        for _ in 0..ms {
            self.now = self.now.plus_ns(MS);
            if let Some((_, _, permits)) = self.busy.take_if(|(_, done, _)| *done <= self.now) {
                self.policies.release(permits);
            }
            while let Some(verdict) = self.policies.serve(self.now) {
                match verdict {
                    Verdict::Served(token, permits) => self.work(token, permits),
                    Verdict::Shed(token, _) => self.shed.push(token),
                    Verdict::Waits(..) => panic!("nobody has changed anything"),
                }
            }
        }
    }
}

fn queue() -> Definition {
    Definition {
        name: "turns".into(),
        kind: Kind::Queue,
        side: Side::Server,
        calls_max: Some(1),
        ..Definition::default()
    }
}

#[test]
fn a_burst_is_served_in_order() {
    let mut host = Host::new(queue());
    (0..8).for_each(|_| host.arrive("till"));
    host.run(200);
    let order: Vec<u64> = host.served.iter().map(|(token, _)| *token).collect();
    assert_eq!(order, (0..8).collect::<Vec<_>>());
    assert!(host.shed.is_empty() && host.refused == 0);
}

#[test]
fn under_twice_the_load_what_is_served_is_served_soon() {
    let mut host = Host::new(queue());
    for _ in 0..2000 {
        host.arrive("till");
        host.run(5);
    }
    // After the first moments: a hundred calls a second are all that fits, and each waits for the target at most.
    let late: Vec<u64> = host.served.iter().skip(50).map(|(_, waited)| *waited).collect();
    assert!(late.len() > 900, "the server is never idle: {}", late.len());
    assert!(late.iter().all(|waited| *waited <= 5 * MS), "{:?}", late.iter().max());
    let rows = host.policies.rows();
    assert!(rows[0].figures.refused > 800, "{:?}", rows[0].figures);

    // The same load on a plain queue: everybody waits, until everybody has given up.
    let (mut waiting, mut done, mut in_time) = (VecDeque::new(), 0, 0);
    for ms in 0..10_000u64 {
        if ms % 5 == 0 {
            waiting.push_back(ms);
        }
        if ms >= done
            && let Some(begun) = waiting.pop_front()
        {
            done = ms + 10;
            in_time += u64::from(ms - begun <= 50);
        }
    }
    assert!(in_time < 30, "a plain queue serves {in_time} of 2000 within 50 ms");
}

#[test]
fn urgent_calls_go_first_and_others_do_not_starve() {
    let definition = Definition {
        urgent: Some("application == 'till'".into()),
        interval_ms: Some(100_000),
        target_ms: Some(100_000),
        ..queue()
    };
    let mut host = Host::new(definition);
    host.arrive("report");
    (0..40).for_each(|_| host.arrive("report"));
    (0..40).for_each(|_| host.arrive("till"));
    host.run(900);
    let tills =
        |range: std::ops::Range<usize>| host.served[range].iter().filter(|(token, _)| *token > 40).count();
    assert_eq!((tills(1..17), tills(1..35)), (16, 32), "one of the others after sixteen");
    assert_eq!(host.served.len(), 81);
}

#[test]
fn what_is_full_refuses_and_what_leaves_makes_room() {
    let mut host = Host::new(Definition { waiting_max: Some(2), ..queue() });
    (0..5).for_each(|_| host.arrive("till"));
    assert_eq!(host.refused, 2);
    host.run(100);
    assert_eq!(host.served.len(), 3);
}
