//! Sixteen workers behind everything that can choose among them: our router with each of its policies, nginx, HAProxy.
//!
//! The workers are the same processes for all, reached as datagrams or over gRPC (`sleepers.rs`); so is the client's
//! daemon. Two more have their workers, as many threads of one server, on the client's own host: there the daemon
//! itself holds calls back until one is free, or (methods that stream) gives them out in turn.
//!
//! Peers take turns, load by load and round by round, and are asked the same at the same times (`open.rs`).

use super::data::{self, ChooserData, STUDIES};
use crate::harness::children::{Child, Failure, Talker, role, role_command, text, wait_for_file};
use crate::harness::rounds::{Entrant, Measured, Plan, Turns};
use crate::harness::work::{named, word};
use crate::peers::foreign::Foreign;
use crate::peers::hosts::{self, HEAP, HostProcess, LISTEN, tcp};
use crate::peers::open::{self, Load, Shape, WORKERS};
use crate::peers::proxies::{self, Upstreams};
use crate::peers::sleepers;
use crate::report::sheet::{Results, Sheet};
use clap::ValueEnum;
use std::time::Duration;
use tempfile::TempDir;
use trunkline_measure::{Machine, Spread, cpu_ns, us};

/// Percent of what the workers can do.
const PERCENTS: [u32; 3] = [50, 70, 90];
/// Columns of the bound's own figures, of calls that failed, of what the host gave away, of rounds measured again.
const BOUND: usize = 7;
const FAILED: usize = 11;
const STOLEN: usize = 12;
const AGAIN: usize = 13;

/// Beyond a round's own time: a saturated worker needs so long to empty its queue.
const PATIENCE: Duration = Duration::from_secs(120);
/// Most times a round is measured again; then the one with most of the processors counts.
const AGAIN_MAX: u32 = 5;
const WARM_UP_MILLIS: u64 = 1000;
const WARM_UP_PERCENT: u32 = 30;

/// Measures it; a peer that fails is absent from then on, with its reason.
pub fn measure(plan: &Plan, foreign: &Foreign) -> Result<Results, Failure> {
    let scene = Scene::start(plan)?;
    let mut turns = Turns::new("r2p2", plan);
    let choosers = STUDIES.r2p2.choosers.iter().map(|chooser| (&*chooser.name, chooser));
    let mut peers = turns.start(choosers, |chooser| scene.peer(chooser, foreign));
    let load =
        Load { shape: Shape::Fixed, mean_us: plan.mean_us, percent: 0, millis: plan.round_millis, seed: 0 };
    turns.pass(&mut peers, |peer| {
        peer.round(Load { percent: WARM_UP_PERCENT, millis: WARM_UP_MILLIS, ..load }).map(drop)
    });
    let mut sheets = Vec::new();
    for (shape, percent) in loads(plan)? {
        let load = Load { shape, percent, ..load };
        sheets.push(measure_load(plan, load, &mut turns, &mut peers)?);
    }
    Ok(Results { sheets, absent: turns.absent })
}

/// Every load, the lightest first.
fn loads(plan: &Plan) -> Result<Vec<(Shape, u32)>, Failure> {
    let shapes: Result<Vec<Shape>, Failure> = plan.services.iter().map(|name| named(name)).collect();
    let shapes = Some(shapes?).filter(|shapes| !shapes.is_empty());
    let percents = if plan.percents.is_empty() { &PERCENTS[..] } else { &plan.percents };
    let shapes = shapes.unwrap_or_else(|| Shape::value_variants().to_vec());
    Ok(shapes.into_iter().flat_map(|shape| percents.iter().map(move |percent| (shape, *percent))).collect())
}

fn measure_load(
    plan: &Plan,
    load: Load,
    turns: &mut Turns<'_>,
    peers: &mut Vec<Entrant<Peer>>,
) -> Result<Sheet, Failure> {
    let Load { shape, percent, mean_us, millis, .. } = load;
    let turn = |peer: &mut Peer, round| {
        let seed = (round as u64) << 32 | u64::from(percent) << 8 | shape as u64;
        peer.quiet_round(Load { seed, ..load }, plan.stolen_percent_max)
    };
    let service = word(shape);
    let mut sheet = data::sheet(
        "r2p2",
        &[
            ("percent", &percent),
            ("service", &service),
            ("workers", &WORKERS),
            ("mean", &(mean_us as f64 / 1e3)),
            ("rounds", &plan.rounds),
            ("millis", &millis),
        ],
    )?;
    sheet.key = format!("r2p2 {service} {percent} %");
    let mut rows = turns.whole_rounds(&sheet.columns, peers, turn);
    // Turns have moved them.
    rows.sort_by_key(|(name, _)| STUDIES.r2p2.choosers.iter().position(|chooser| chooser.name == *name));
    Ok(finished(sheet, rows, plan.stolen_percent_max))
}

/// A sheet with its rows, behind that of the bound, and what is to be said of them.
fn finished(sheet: Sheet, rows: Vec<Measured>, stolen_percent_max: Option<f64>) -> Sheet {
    let all = |column: usize| rows.iter().flat_map(move |(_, values)| values[column].iter().copied());
    let mut notes = Vec::new();
    if let Some(stolen) = Spread::of(all(STOLEN)) {
        let again = stolen_percent_max.map_or_else(String::new, |most| {
            let again: f64 = all(AGAIN).sum();
            format!("; one with more than {most} % was measured again, five times at most: {again} were")
        });
        notes.push(format!("The host gave {stolen} % of the processors to others in a round{again}."));
    }
    for (name, values) in &rows {
        let failed: f64 = values[FAILED].iter().sum();
        notes.extend((failed > 0.0).then(|| format!("{name}: {failed} calls failed.")));
    }
    let bound = rows.first().map(|(_, values)| {
        let mut bound = values[BOUND..BOUND + 3].to_vec();
        bound.push(vec![1.0]);
        bound.resize(sheet.columns.len(), Vec::new());
        (format!("bound (M/G/{WORKERS})"), bound)
    });
    let sheet = sheet.with(bound.into_iter().chain(rows).collect());
    Sheet { notes, ..sheet }
}

/// A chooser with its processes.
struct Peer {
    driver: Talker,
    pid: u32,
    daemon: u32,
    _proxy: Option<Child>,
}

impl Peer {
    /// A round during which the host left the machine its processors, if that matters. Whoever is measured, a round is
    /// judged by the host's time alone, and not by what came of it.
    fn quiet_round(&mut self, load: Load, stolen_percent_max: Option<f64>) -> Result<Vec<f64>, Failure> {
        let mut best = self.round(load)?;
        let mut again = 0;
        while stolen_percent_max.is_some_and(|most| best[STOLEN] > most) && again < AGAIN_MAX {
            again += 1;
            let next = self.round(load)?;
            if next[STOLEN] < best[STOLEN] {
                best = next;
            }
        }
        best[AGAIN] = f64::from(again);
        Ok(best)
    }

    /// Values in the order of the columns.
    fn round(&mut self, load: Load) -> Result<Vec<f64>, Failure> {
        let cpu = || Ok::<_, Failure>([cpu_ns(&[self.pid])?, cpu_ns(&[self.daemon])?]);
        let (before, cpu_before) = (Machine::now()?, cpu()?);
        let patience = PATIENCE + Duration::from_millis(load.millis);
        let answer = open::ask(&mut self.driver, &load, patience)?;
        let cpu_after = cpu()?;
        if answer.failed > answer.calls / 2 {
            return Err(format!("{} of {} calls failed", answer.failed, answer.calls).into());
        }
        let [stolen, _] = Machine::now()?.lost_since(before, 0);
        let [chooser_us, daemon_us] =
            [0, 1].map(|of| us(cpu_after[of].saturating_sub(cpu_before[of])) / answer.calls as f64);
        let [took, bound] = [answer.took, answer.bound].map(|of| of.map(|ns| us(ns) / 1e3));
        let p99 = answer.took[1] as f64;
        let ratios = [answer.bound, answer.bound_as_served].map(|bound| p99 / bound[1] as f64);
        let counts = [answer.calls as f64, answer.failed as f64, stolen, 0.0];
        Ok([&took[..], &ratios, &[chooser_us, daemon_us], &bound, &counts].concat())
    }
}

/// The hosts all of them share. They end with this.
struct Scene {
    dir: TempDir,
    near: HostProcess,
    /// Where each policy's router takes requests.
    routers: Vec<(String, String)>,
    routers_process: Child,
    /// Where workers take calls over gRPC.
    upstreams: Vec<String>,
    _workers: Vec<Talker>,
}

impl Scene {
    fn start(plan: &Plan) -> Result<Self, Failure> {
        let dir = tempfile::tempdir()?;
        let policies = STUDIES.r2p2.choosers.iter().filter(|chooser| chooser.by == "router");
        let policies: Vec<&str> =
            policies.map(|of| of.name.as_str()).filter(|name| plan.wants(name)).collect();
        let port_file = dir.path().join("routers");
        let routers_process = role(&[&["routers", text(&port_file)][..], &policies].concat())?;
        let lines = wait_for_file(&port_file)?;
        let ports: Vec<(&str, &str)> = lines.lines().filter_map(|line| line.split_once(' ')).collect();
        let controls: Vec<&str> = ports.iter().map(|(_, control)| *control).collect();
        let r2p2 = format!(
            "[r2p2]\nlisten = \"127.0.0.1:0\"\nmode = \"extended\"\nrouters = {controls:?}\nslots = 1\n"
        );
        let (mut workers, mut upstreams) = (Vec::new(), Vec::new());
        for worker in 0..WORKERS {
            let (worker, endpoints) =
                sleepers::start(dir.path(), &format!("worker{worker}"), None, &r2p2, 1, 0)?;
            workers.push(worker);
            upstreams.push(tcp(&endpoints)?.to_owned());
        }
        let near = hosts::start_host(dir.path(), "near", LISTEN, &hosts::rest(HEAP, true, "bare")?)?;
        workers.push(sleepers::start(dir.path(), "here", Some(&near.socket), "", WORKERS, 0)?.0);
        let targets = ports.iter().map(|(listen, _)| format!("r2p2://{listen}"));
        let routers = policies.into_iter().map(str::to_owned).zip(targets).collect();
        Ok(Self { dir, near, routers, routers_process, upstreams, _workers: workers })
    }

    fn peer(&self, chooser: &ChooserData, foreign: &Foreign) -> Result<Peer, Failure> {
        let ChooserData { name, by, rule, each } = chooser;
        let near_pid = self.near.process.pid();
        let (proxy, target, pid) = match by.as_str() {
            "router" => {
                let found = self.routers.iter().find(|(policy, _)| policy == name);
                (None, found.ok_or("its router did not start")?.1.clone(), self.routers_process.pid())
            }
            "host" => (None, String::new(), near_pid),
            proxy => {
                let upstreams = Upstreams { servers: &self.upstreams, rule, each };
                let (folder, name) = (self.dir.path(), name.replace(' ', "-"));
                let (proxy, address) = proxies::start(foreign, proxy, folder, &name, upstreams)?;
                let pid = proxy.pid();
                (Some(proxy), format!("tcp://{address}"), pid)
            }
        };
        let mut driver = role_command(&["drive-open", text(&self.near.socket), &target])?;
        driver.args((by == "host" && !rule.is_empty()).then_some(rule));
        Ok(Peer { driver: Talker::start(&mut driver)?, pid, daemon: near_pid, _proxy: proxy })
    }
}

#[cfg(test)]
mod tests {
    //! The bound stands above who is held against it, and calls that failed are said.
    use super::*;

    #[test]
    fn the_bound_is_a_row() {
        let empty = data::sheet("r2p2", &[]).unwrap();
        let mut values: Vec<Vec<f64>> = (0..empty.columns.len()).map(|column| vec![column as f64]).collect();
        values[AGAIN] = vec![2.0];
        let rows = vec![("nginx".to_owned(), values)];
        let sheet = finished(empty, rows, Some(6.0));
        assert_eq!(sheet.values("p99 ms", "bound (M/G/16)"), Some(&[8.0][..]));
        assert_eq!(sheet.values("p99 ÷ bound", "nginx"), Some(&[3.0][..]));
        assert!(sheet.markdown().contains("| nginx | 0 | 1.00 | 2.00 |"), "{}", sheet.markdown());
        assert_eq!(sheet.notes[1], "nginx: 11 calls failed.");
        assert!(
            sheet.notes[0].contains("more than 6 %") && sheet.notes[0].contains("2 were"),
            "{}",
            sheet.notes[0]
        );
    }
}
