//! How many requests a second one core forwards: the router alone on one, clients and workers on another.
//!
//! They are made to cost little, so that the router is what is full: requests and answers are written without the
//! bookkeeping of real endpoints. Requests of a client differ in length, so that the kernel does not join them: those
//! of many clients on many hosts could not be joined either.

use crate::Spread;
use crate::route::{Thread, pin, start};
use crate::support::ANY;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use trunkline_net::{DatagramBatch, Datagrams, Outgoing};
use trunkline_r2p2::{
    Extension, FeedbackFor, FeedbackPart, Flags, Head, Header, Identity, Mode, NO_REQUEST, Packet,
    PacketType, Part, Policy, RequestPart,
};
use trunkline_router::Forwarding;

const CLIENTS: usize = 16;
const WORKERS: usize = 4;
/// Requests a client sends one behind the other.
const BURST: usize = 4;
const STEP: Duration = Duration::from_millis(500);
/// Offered, in thousands a second.
const RATES: [u64; 16] = [25, 50, 75, 100, 120, 140, 160, 180, 200, 225, 250, 275, 300, 350, 400, 500];
/// Of what is offered so much must have been forwarded.
const SHARE: f64 = 0.995;
/// Of what is to be offered so much must have been, or what makes the load is full itself.
const MADE: f64 = 0.97;

struct Flood {
    mode: Mode,
    listen: SocketAddrV4,
    control: SocketAddrV4,
    clients: Vec<(Datagrams, u32)>,
    workers: Vec<(Datagrams, u64)>,
    batch: DatagramBatch,
    sent: u64,
    turn: usize,
}

/// What one rate came to.
struct Step {
    offered: f64,
    forwarded: f64,
    core: f64,
}

pub fn measure(rounds: usize) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if cores < 2 {
        return println!("\nlargest rate: skipped, there is one core");
    }
    println!(
        "\nLargest rate, the router alone on a core: the last of which {:.1} % came through, and the next\n",
        SHARE * 100.0
    );
    println!(
        "| | forwarded/s | its core | CPU µs per request | beyond: offered/s | forwarded/s | its core |"
    );
    println!("|---|---|---|---|---|---|---|");
    for forwarding in [Forwarding::Preserve, Forwarding::Proxy] {
        for mode in [Mode::Compatible, Mode::Extended] {
            let mut columns: [Vec<f64>; 6] = Default::default();
            for _ in 0..rounds {
                let Some([most, beyond]) = climb(forwarding, mode) else { continue };
                let cpu_us = most.core * 1e6 / most.forwarded;
                let row = [
                    most.forwarded,
                    most.core * 100.0,
                    cpu_us,
                    beyond.offered,
                    beyond.forwarded,
                    beyond.core * 100.0,
                ];
                columns.iter_mut().zip(row).for_each(|(column, value)| column.push(value));
            }
            if columns[0].is_empty() {
                println!("{forwarding:?}: skipped");
                continue;
            }
            let [forwarded, core, cpu, offered, came, full] = columns.map(Spread);
            let name = format!("{forwarding:?} {mode:?}").to_lowercase();
            // Where all of the next came through, too, what makes the load was full, and not the router.
            println!("| {name} | {forwarded} | {core} % | {cpu} | {offered} | {came} | {full} % |");
        }
    }
}

/// More and more until something is lost, or no more can be made: the last rate, and the one that failed.
fn climb(forwarding: Forwarding, mode: Mode) -> Option<[Step; 2]> {
    let bind = || Datagrams::bind(ANY).expect("a port");
    let workers: Vec<(Datagrams, u64)> = (0..WORKERS).map(|_| (bind(), 0)).collect();
    let addresses: Vec<SocketAddrV4> =
        workers.iter().map(|(socket, _)| socket.address().expect("it has one")).collect();
    let stop = Arc::new(AtomicBool::new(false));
    let (router, [listen, control]) = start(forwarding, mode, &addresses, Some(0), &stop).ok()?;
    let clients = (0..CLIENTS).map(|_| (bind(), 0)).collect();
    let batch = DatagramBatch::new();
    let flood = Flood { mode, listen, control, clients, workers, batch, sent: 0, turn: 0 };
    // A thread of its own, for the pin stays.
    let steps =
        std::thread::scope(|scope| scope.spawn(|| flood.climb(&router)).join().expect("it does not panic"));
    stop.store(true, Ordering::Relaxed);
    steps
}

impl Flood {
    fn climb(mut self, router: &Thread) -> Option<[Step; 2]> {
        pin(1);
        if self.mode == Mode::Extended {
            self.beat();
        }
        self.run(router, 10_000);
        let mut last = None;
        for thousands in RATES {
            let step = self.run(router, thousands * 1000);
            let is_made = step.offered >= thousands as f64 * 1000.0 * MADE;
            if step.forwarded < step.offered * SHARE || !is_made {
                return Some([last?, step]);
            }
            last = Some(step);
        }
        None
    }

    /// Offers so many a second for a while.
    fn run(&mut self, router: &Thread, per_second: u64) -> Step {
        let (began, sent, cpu_ns) = (Instant::now(), self.sent, router.cpu_ns());
        let forwarded = router.shared.report.lock().counters.forwarded;
        while began.elapsed() < STEP {
            let due = sent + began.elapsed().as_micros() as u64 * per_second / 1_000_000;
            for _ in 0..CLIENTS {
                if self.sent + BURST as u64 <= due {
                    self.burst();
                }
            }
            self.answer();
        }
        let (seconds, cpu_ns) = (began.elapsed().as_secs_f64(), router.cpu_ns() - cpu_ns);
        // What is on its way arrives; the report is a tenth of a second old at most.
        let quiet = Instant::now();
        while quiet.elapsed() < Duration::from_millis(250) {
            self.answer();
        }
        let came = router.shared.report.lock().counters.forwarded - forwarded;
        let offered = (self.sent - sent) as f64 / seconds;
        Step { offered, forwarded: came as f64 / seconds, core: cpu_ns as f64 / 1e9 / seconds }
    }

    /// The next client sends some requests.
    fn burst(&mut self) {
        self.turn = (self.turn + 1) % CLIENTS;
        let (socket, number) = &mut self.clients[self.turn];
        let heads: [Head; BURST] = std::array::from_fn(|_| {
            *number = number.wrapping_add(1);
            request(self.mode, *number)
        });
        let lengths = [64, 60, 62, 58];
        let out: [Outgoing<'_>; BURST] = std::array::from_fn(|index| Outgoing {
            to: self.listen,
            pieces: [heads[index].as_slice(), &[7; 64][..lengths[index]]],
        });
        socket.send(&out);
        self.sent += BURST as u64;
    }

    /// Workers answer what they have got, and say so to the router; clients take it.
    fn answer(&mut self) {
        let Self { mode, control, clients, workers, batch, turn, .. } = self;
        for (socket, served) in workers {
            socket.receive_batch(batch).expect("it can be read");
            if batch.is_empty() {
                continue;
            }
            let mut heads: Vec<(SocketAddrV4, Head, Option<FeedbackFor>)> = Vec::new();
            for (from, datagram) in batch.iter() {
                let Ok(packet) = Packet::parse(datagram, *mode == Mode::Extended) else { continue };
                let identity = packet.extension.map(|extension| extension.identity);
                let (id, client) = (packet.header.id, packet.on_behalf_of().unwrap_or(from));
                *served += 1;
                heads.push((client, reply(id, identity), None));
                let about = FeedbackFor { id, port: client.port(), ip: u32::from(*client.ip()) };
                heads.push((*control, feedback(identity, *served), Some(about)));
            }
            let bodies: Vec<Vec<u8>> = heads
                .iter()
                .map(|(_, _, about)| about.map_or(vec![1; 8], |about| about.encode().to_vec()))
                .collect();
            let out = heads.iter().zip(&bodies);
            let out = out.map(|((to, head, _), body)| Outgoing { to: *to, pieces: [head.as_slice(), body] });
            socket.send(&out.collect::<Vec<_>>());
        }
        // Each client takes what came to it now and then; nobody looks at it.
        *turn = (*turn + 1) % CLIENTS;
        clients[*turn].0.receive_batch(batch).expect("it can be read");
    }

    fn beat(&self) {
        for (socket, _) in &self.workers {
            let head = feedback(Some(Identity::default()), 0);
            socket.send(&[Outgoing { to: self.control, pieces: [head.as_slice(), &NO_REQUEST.encode()] }]);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn request(mode: Mode, number: u32) -> Head {
    let part =
        RequestPart { again: false, class: 0, router: None, client: None, age_us: 0, budget_us: u32::MAX };
    let identity = Identity { epoch: 1, round: (number >> 16) as u16 };
    let extension = (mode == Mode::Extended).then_some(Extension { identity, part: Part::Request(part) });
    head(PacketType::Request, Policy::Unrestricted, number as u16, extension)
}

fn reply(id: u16, identity: Option<Identity>) -> Head {
    let extension = identity.map(|identity| Extension { identity, part: Part::Reply(None) });
    head(PacketType::Reply, Policy::Sticky, id, extension)
}

fn feedback(identity: Option<Identity>, served: u64) -> Head {
    let part = FeedbackPart {
        slots: 1024,
        leaving: false,
        on_behalf: true,
        queue_ns: 0,
        service_ns: 1000,
        epoch: 1,
        taken: served,
        served,
    };
    let extension = identity.map(|identity| Extension { identity, part: Part::Feedback(part) });
    head(PacketType::Feedback, Policy::Unrestricted, 0, extension)
}

fn head(kind: PacketType, policy: Policy, id: u16, extension: Option<Extension>) -> Head {
    let extended = if extension.is_some() { Flags::EXTENDED | Flags::OFFER } else { 0 };
    let flags = Flags(Flags::FIRST | Flags::LAST | extended);
    Packet::head(&Header { kind, policy, flags, id, order: 1 }, extension.as_ref())
}
