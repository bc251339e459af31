//! How a call's cost grows with what is there: applications attached to a daemon, methods bound, peers connected. Each
//! size has daemons of its own; sizes take turns, so that a machine that slows down slows all of them.

use super::connections::allow_descriptors;
use super::data::sheet;
use crate::harness::children::{Child, Failure, role, text, wait_for_file, write_file};
use crate::harness::orders::{Answer, Order, Times};
use crate::harness::rounds::{Plan, Turns};
use crate::peers::foreign::Foreign;
use crate::peers::hosts;
use crate::peers::raw::{Methods, RawApp};
use crate::report::sheet::Results;
use std::collections::VecDeque;
use std::path::Path;
use tempfile::TempDir;
use trunkline_call::CallId;
use trunkline_measure::{idle_cpu_ns, us};
use trunkline_shm::monotonic_ns;

/// Small calls at once, over whatever there is.
const OUTSTANDING: usize = 128;
/// Heaps of an application here.
const HEAP: &str = "1 MiB";
const HEAP_BYTES: u64 = 1 << 20;
/// Descriptors of an application, with its control socket, and as many again.
const DESCRIPTORS_EACH: usize = 14;

/// What there is more and more of: applications, every one of which calls, in turn; methods of one application, called
/// in turn; daemons' addresses, each a connection of its own, called in turn.
const SIZES: [(&str, [usize; 4]); 3] = [
    ("applications", [1, 10, 100, 1000]),
    ("methods", [1, 100, 1000, 10_000]),
    ("peers", [1, 10, 100, 1000]),
];
/// Measures every size of everything.
pub fn measure(plan: &Plan, _: &Foreign) -> Result<Results, Failure> {
    // Methods need none.
    let sized = SIZES.iter().filter(|(of, _)| *of != "methods");
    let most = sized.flat_map(|(_, sizes)| sizes).max().copied().unwrap_or_default();
    allow_descriptors(most * DESCRIPTORS_EACH)?;
    let mut sheet = sheet("scaling", &[("outstanding", &OUTSTANDING)])?;
    let mut turns = Turns::new("scaling", plan);
    for (of, sizes) in SIZES {
        let name = |count: usize| format!("{count} {}", if count == 1 { &of[..of.len() - 1] } else { of });
        let mut grounds =
            turns.start(sizes.map(|count| (name(count), count)), |count| Ground::set_up(of, count));
        let mut rows = turns.whole_rounds(&sheet.columns, &mut grounds, |ground, _| ground.round(plan));
        let smallest = rows.first().map_or_else(Vec::new, |(_, values)| values[0].clone());
        for (_, values) in &mut rows {
            values[1] = values[0].iter().zip(&smallest).map(|(of, to)| of / to).collect();
        }
        sheet = sheet.with(rows);
    }
    Ok(Results { sheets: vec![sheet], absent: turns.absent })
}

/// Daemons, a server, and applications that call.
struct Ground {
    apps: Vec<RawApp>,
    methods: Methods,
    /// The next call's application and route.
    next: usize,
    daemons: Vec<Child>,
    servers: Vec<Child>,
    _dir: TempDir,
}

impl Ground {
    fn set_up(of: &str, count: usize) -> Result<Self, Failure> {
        let began_ns = monotonic_ns();
        let dir = tempfile::tempdir()?;
        let among = |what| if of == what { count } else { 1 };
        let (applications, methods) = (among("applications"), among("methods"));
        let near = hosts::start_daemon(dir.path(), "near", HEAP)?;
        let mut targets = vec![String::new()];
        let (mut daemons, near, mut at) = (vec![near.process], near.socket.clone(), near.socket);
        if of == "peers" {
            // So that each is a peer of its own.
            let address = |n: usize| format!("tcp://127.0.{}.{}:0", n / 250, n % 250 + 1);
            let listen: Vec<String> = (0..count).map(address).collect();
            let far = hosts::start_host(dir.path(), "far", &format!("listen = {listen:?}\n"), "")?;
            (targets, at) = (far.endpoints, far.socket);
            daemons.push(far.process);
        }
        let served = dir.path().join("served");
        let servers = vec![role(&["serve-raw", text(&at), &methods.to_string(), text(&served)])?];
        wait_for_file(&served)?;
        let methods = Methods::new(methods)?;
        let paths: Vec<&str> = methods.paths.iter().map(String::as_str).collect();
        let calls: Vec<(&str, &str)> =
            paths.iter().flat_map(|path| targets.iter().map(|target| (*path, target.as_str()))).collect();
        let attach = |_| -> Result<RawApp, Failure> {
            let mut app = RawApp::attach(&near, HEAP_BYTES)?;
            app.call_at(&methods, &calls)?;
            Ok(app)
        };
        let apps = (0..applications).map(attach).collect::<Result<Vec<_>, _>>()?;
        let mut ground = Self { apps, methods, next: 0, daemons, servers, _dir: dir };
        ground.call_each_once()?;
        eprintln!("{count} {of} are there after {:.1} s", (monotonic_ns() - began_ns) as f64 / 1e9);
        Ok(ground)
    }

    fn round(&mut self, plan: &Plan) -> Result<Vec<f64>, Failure> {
        let order = |millis| Order { millis, request_bytes: 64, outstanding: OUTSTANDING };
        self.carry_out(order(plan.warm_up_millis))?;
        let before_ns = self.cpu_ns()?;
        let answer = self.carry_out(order(plan.round_millis))?;
        let after_ns = self.cpu_ns()?;
        let cpu = |of: usize| us(after_ns[of].saturating_sub(before_ns[of])) / answer.calls as f64;
        let rate = answer.calls_per_second();
        // The ratio is known when all are.
        Ok(vec![rate, 1.0, us(answer.p50_ns), us(answer.p99_ns), cpu(0), cpu(1), cpu(2)])
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
    write_file(served, "served")?;
    app.answer_all(&methods)
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
        let calls: Vec<(&str, &str)> = methods.paths.iter().map(|path| (path.as_str(), "")).collect();
        let attach = |_| {
            let mut app = RawApp::attach(&socket, HEAP_BYTES).unwrap();
            app.call_at(&methods, &calls).unwrap();
            app
        };
        let apps: Vec<RawApp> = (0..5).map(attach).collect();
        let mut field =
            Ground { apps, methods, next: 0, daemons: Vec::new(), servers: Vec::new(), _dir: dir };
        field.call_each_once().unwrap();
        assert_eq!(field.next, 15);
        let answer =
            field.carry_out(Order { millis: 1, request_bytes: 64, outstanding: OUTSTANDING }).unwrap();
        assert!(answer.calls >= 1 && answer.p99_ns >= answer.p50_ns, "{answer:?}");
    }
}
