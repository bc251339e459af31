//! How a call's cost grows with what is there: applications attached to a daemon, methods bound, peers connected. Each
//! size has daemons of its own; sizes take turns, so that a machine that slows down slows all of them.

use crate::children::{Child, Failure, text, wait_for_file};
use crate::connections::allow_descriptors;
use crate::orders::{Answer, Order, Times};
use crate::ours;
use crate::processes::idle_cpu_ns;
use crate::raw::{Methods, RawApp};
use crate::sections::Plan;
use crate::stats::{Spread, short};
use serde::Serialize;
use std::collections::VecDeque;
use std::path::Path;
use tempfile::TempDir;
use trunkline_call::CallId;
use trunkline_shm::monotonic_ns;

/// Small calls at once, over whatever there is.
const OUTSTANDING: usize = 128;
/// Heaps of an application here.
const HEAP: &str = "1 MiB";
const HEAP_BYTES: u64 = 1 << 20;
/// Descriptors of an application, with its control socket, and as many again.
const DESCRIPTORS_EACH: usize = 14;

/// What there is more and more of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Of {
    /// Applications, every one of which calls, in turn.
    Applications,
    /// Methods of one application, called in turn.
    Methods,
    /// Daemons' addresses, each a connection of its own, called in turn.
    Peers,
}

const SIZES: [(Of, &[usize]); 3] = [
    (Of::Applications, &[1, 10, 100, 1000]),
    (Of::Methods, &[1, 100, 1000, 10_000]),
    (Of::Peers, &[1, 10, 100, 1000]),
];

/// One size, with its rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Scaled {
    pub of: Of,
    pub count: usize,
    pub calls_per_second: Vec<f64>,
    pub p50_us: Vec<f64>,
    pub p99_us: Vec<f64>,
    /// Processor time per call of the applications that call (they are this process), of the daemons, and of the
    /// application that answers.
    pub cpu_us: [Vec<f64>; 3],
}

/// Measures every size of everything.
pub fn measure(plan: &Plan) -> Result<Vec<Scaled>, Failure> {
    // Methods need none.
    let sized = SIZES.iter().filter(|(of, _)| *of != Of::Methods);
    let most = sized.flat_map(|(_, sizes)| sizes.iter()).max().copied().unwrap_or_default();
    allow_descriptors(most * DESCRIPTORS_EACH)?;
    let mut all = Vec::new();
    for (of, sizes) in SIZES {
        all.extend(take_turns(of, sizes, plan)?);
    }
    Ok(all)
}

fn take_turns(of: Of, sizes: &[usize], plan: &Plan) -> Result<Vec<Scaled>, Failure> {
    let fields: Result<Vec<Field>, Failure> = sizes.iter().map(|count| Field::set_up(of, *count)).collect();
    let mut fields = fields?;
    let empty = |count: &usize| Scaled {
        of,
        count: *count,
        calls_per_second: Vec::new(),
        p50_us: Vec::new(),
        p99_us: Vec::new(),
        cpu_us: Default::default(),
    };
    let mut scaled: Vec<Scaled> = sizes.iter().map(empty).collect();
    let order = |millis| Order { millis, request_bytes: 64, outstanding: OUTSTANDING };
    for round in 0..plan.rounds {
        for (field, row) in fields.iter_mut().zip(&mut scaled) {
            field.carry_out(order(plan.warm_up_millis))?;
            let before_ns = field.cpu_ns()?;
            let Answer { calls, elapsed_ns, p50_ns, p99_ns } = field.carry_out(order(plan.round_millis))?;
            for ((row, before_ns), after_ns) in row.cpu_us.iter_mut().zip(before_ns).zip(field.cpu_ns()?) {
                row.push(after_ns.saturating_sub(before_ns) as f64 / 1e3 / calls as f64);
            }
            row.calls_per_second.push(calls as f64 / elapsed_ns as f64 * 1e9);
            row.p50_us.push(p50_ns as f64 / 1e3);
            row.p99_us.push(p99_ns as f64 / 1e3);
            eprintln!(
                "{:>6} {of:?} round {} {:>9.0}/s  p99 {:>9.2} µs",
                row.count,
                round + 1,
                calls as f64 / elapsed_ns as f64 * 1e9,
                p99_ns as f64 / 1e3
            );
        }
    }
    Ok(scaled)
}

/// Daemons, a server, and applications that call.
struct Field {
    apps: Vec<RawApp>,
    methods: Methods,
    /// The next call's application and route.
    next: usize,
    daemons: Vec<Child>,
    servers: Vec<Child>,
    _dir: TempDir,
}

impl Field {
    fn set_up(of: Of, count: usize) -> Result<Self, Failure> {
        let began_ns = monotonic_ns();
        let dir = tempfile::tempdir()?;
        let (near, far) = (dir.path().join("near.sock"), dir.path().join("far.sock"));
        let (applications, methods, peers) = match of {
            Of::Applications => (count, 1, 0),
            Of::Methods => (1, count, 0),
            Of::Peers => (1, 1, count),
        };
        let mut daemons = Vec::new();
        let mut targets = vec![String::new()];
        if peers > 0 {
            let port_file = far.with_extension("ports");
            let arguments = ["far-daemon", text(&far), text(&port_file), &peers.to_string()];
            daemons.push(Child::role(&arguments)?);
            targets = wait_for_file(&port_file)?.lines().map(str::to_owned).collect();
        }
        daemons.push(ours::start_daemon(&near, HEAP)?.0);
        let at = if peers > 0 { &far } else { &near };
        let served = dir.path().join("served");
        let servers = vec![Child::role(&["serve-raw", text(at), &methods.to_string(), text(&served)])?];
        wait_for_file(&served)?;
        let methods = Methods::new(methods)?;
        let paths: Vec<&str> = methods.paths().iter().map(String::as_str).collect();
        let calls: Vec<(&str, &str)> =
            paths.iter().flat_map(|path| targets.iter().map(|target| (*path, target.as_str()))).collect();
        let attach = |_| -> Result<RawApp, Failure> {
            let mut app = RawApp::attach(&near, HEAP_BYTES)?;
            app.call_at(&methods, &calls)?;
            Ok(app)
        };
        let apps: Result<Vec<RawApp>, Failure> = (0..applications).map(attach).collect();
        let apps = apps?;
        let mut field = Self { apps, methods, next: 0, daemons, servers, _dir: dir };
        field.call_each_once()?;
        eprintln!("{count:>6} {of:?} are there after {:.1} s", (monotonic_ns() - began_ns) as f64 / 1e9);
        Ok(field)
    }

    /// Of callers, daemons and server, so far.
    fn cpu_ns(&self) -> Result<[u64; 3], Failure> {
        let of = |processes: &[Child]| idle_cpu_ns(&processes.iter().map(Child::pid).collect::<Vec<_>>());
        Ok([idle_cpu_ns(&[std::process::id()])?, of(&self.daemons)?, of(&self.servers)?])
    }

    /// What is agreed on or dialled with the first call is.
    fn call_each_once(&mut self) -> Result<(), Failure> {
        let mut under_way = VecDeque::new();
        for _ in 0..self.apps.len() * self.apps[0].routes.len() {
            if under_way.len() == OUTSTANDING {
                self.take_oldest(&mut under_way)?;
            }
            under_way.push_back(self.call_next()?);
        }
        while !under_way.is_empty() {
            self.take_oldest(&mut under_way)?;
        }
        Ok(())
    }

    fn carry_out(&mut self, order: Order) -> Result<Answer, Failure> {
        let mut times = Times::start(order)?;
        let mut under_way = VecDeque::with_capacity(order.outstanding);
        while times.go_on() || !under_way.is_empty() {
            while times.go_on() && under_way.len() < order.outstanding {
                times.sent();
                under_way.push_back(self.call_next()?);
            }
            self.take_oldest(&mut under_way)?;
            times.answered()?;
        }
        Ok(times.answer())
    }

    fn call_next(&mut self) -> Result<(usize, CallId), Failure> {
        let app = self.next % self.apps.len();
        let route = self.next / self.apps.len() % self.apps[app].routes.len();
        self.next += 1;
        Ok((app, self.apps[app].call(route, &self.methods)?))
    }

    fn take_oldest(&mut self, under_way: &mut VecDeque<(usize, CallId)>) -> Result<(), Failure> {
        let (app, call) = under_way.pop_front().ok_or("nothing is under way")?;
        self.apps[app].wait_for(call)
    }
}

/// The answering process; says in a file when it is bound.
pub fn serve(socket: &Path, count: usize, served: &Path) -> Result<(), Failure> {
    let methods = Methods::new(count)?;
    let mut app = RawApp::attach(socket, HEAP_BYTES)?;
    app.serve(&methods)?;
    crate::children::write_file(served, "served")?;
    app.answer_all(&methods)
}

/// As the documents have it: the factor is to the smallest size, round by round.
pub fn markdown(scaled: &[Scaled]) -> String {
    let mut table = format!(
        "\n### Scaling: small calls, {OUTSTANDING} outstanding over all there is\n\n\
         | how many | calls/s | ÷ the smallest | p50 µs | p99 µs \
         | CPU µs per call: callers, daemons, server |\n|---|---|---|---|---|---|\n"
    );
    for row in scaled {
        let smallest = scaled.iter().find(|other| other.of == row.of).unwrap_or(row);
        let figures = [
            Spread::of(row.calls_per_second.iter().copied()),
            Spread::of_ratio(&row.calls_per_second, &smallest.calls_per_second),
            Spread::of(row.p50_us.iter().copied()),
            Spread::of(row.p99_us.iter().copied()),
        ];
        let cells = figures.map(|figure| figure.map_or_else(String::new, |spread| spread.to_string()));
        let cpu = row.cpu_us.each_ref().map(|of| Spread::of(of.iter().copied()));
        let cpu = cpu.map(|spread| spread.map_or_else(String::new, |spread| short(spread.median))).join(", ");
        let what = row.of.name(row.count);
        table += &format!("| {} {what} | {} | {cpu} |\n", row.count, cells.join(" | "));
    }
    table
}

impl Of {
    fn name(self, count: usize) -> &'static str {
        match (self, count) {
            (Self::Applications, 1) => "application",
            (Self::Applications, _) => "applications",
            (Self::Methods, 1) => "method",
            (Self::Methods, _) => "methods",
            (Self::Peers, 1) => "peer",
            (Self::Peers, _) => "peers",
        }
    }
}

#[cfg(test)]
mod tests {
    //! Calls go over every application and every method, and are answered.
    use super::*;

    #[test]
    fn everything_is_called() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("daemon.sock");
        let config = format!("[daemon]\nsocket = {socket:?}\n[sessions]\nheap_bytes = {HEAP:?}");
        let config = trunkline_daemon::Config::from_toml(&config, "test").unwrap();
        let _daemon = trunkline_daemon::Daemon::start(config).unwrap();
        let methods = Methods::new(3).unwrap();
        let mut server = RawApp::attach(&socket, HEAP_BYTES).unwrap();
        server.serve(&methods).unwrap();
        std::thread::spawn(move || server.answer_all(&Methods::new(3).unwrap()).map_err(|_| ()));
        let calls: Vec<(&str, &str)> = methods.paths().iter().map(|path| (path.as_str(), "")).collect();
        let attach = |_| {
            let mut app = RawApp::attach(&socket, HEAP_BYTES).unwrap();
            app.call_at(&methods, &calls).unwrap();
            app
        };
        let apps: Vec<RawApp> = (0..5).map(attach).collect();
        let mut field = Field { apps, methods, next: 0, daemons: Vec::new(), servers: Vec::new(), _dir: dir };
        field.call_each_once().unwrap();
        assert_eq!(field.next, 15);
        let answer =
            field.carry_out(Order { millis: 1, request_bytes: 64, outstanding: OUTSTANDING }).unwrap();
        assert!(answer.calls >= 1 && answer.p99_ns >= answer.p50_ns, "{answer:?}");
    }
}
