//! Programs of two users who both want all of a shard, and have what their weights say.
//!
//! Both are bounded by the shard alone: what they do themselves is little, and they have hundreds of calls in flight.
//! What is compared are counts, taken one after the other at either end of a while; the good pair calls beside them.

use crate::pair::Pair;
use std::path::{Path, PathBuf};
use trunkline_system_tests::harness::{Host, Process, until, use_program};

/// The users, of whom the first has three times the other's weight.
const USERS: [u32; 2] = [54_321, 54_322];
const BY_USER: &str = "[[tenant]]\nuid = 54321\nweight = 3\n";
/// The same by what its callers serve.
const BY_SERVICE: &str = "[[tenant]]\nservice = \"hostile.v1.User54321\"\nweight = 3\n";
/// Where the host's only hierarchy of control groups is, if it has one.
const CGROUPS: &str = "/sys/fs/cgroup";
/// Calls of the first user before anything is compared, and those that are.
const WARM_UP_CALLS: u64 = 2_000;
const CALLS: u64 = 20_000;

/// A host with a good pair and a program of either user, where there may be such.
fn stage(what: &str, weights: &str) -> Option<(Host, Pair, [Process; 2])> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("{what}: NOT SHOWN, because only root can start a program of another user");
        return None;
    }
    use_program(env!("CARGO_BIN_EXE_hostile"));
    let host = Host::open_to_users_of_one_shard(weights);
    let pair = Pair::begin(&host);
    let socket = host.socket();
    let words = ["attacker", socket.to_str().unwrap(), ""];
    let programs = USERS.map(|user| Process::start_as(user, &words, &[]));
    Some((host, pair, programs))
}

fn order(program: &mut Process, order: &str) -> String {
    let said = program.ask(order);
    said.strip_prefix("done: ").unwrap_or_else(|| panic!("{order}: {said}")).to_owned()
}

fn answered(program: &mut Process) -> u64 {
    order(program, "answered").parse().unwrap()
}

fn ends(host: &mut Host, pair: Pair, programs: [Process; 2], what: &str) {
    drop(programs);
    let noticed = pair.end();
    assert_eq!(noticed.errors, [""; 0], "{what}");
    noticed.print(what);
    host.until_idle();
}

/// What the first user had for each of the other's, both with messages of so many bytes. `prepare` is done to the first
/// program before it attaches.
fn ratio(what: &str, weights: &str, bytes: usize, prepare: impl FnOnce(&Process)) -> Option<f64> {
    let (mut host, pair, mut programs) = stage(what, weights)?;
    prepare(&programs[0]);
    for program in &mut programs {
        order(program, &format!("busy {bytes}"));
    }
    until("calls of both", || programs.iter_mut().all(|one| answered(one) > WARM_UP_CALLS).then_some(()));
    let before = programs.each_mut().map(answered);
    until("calls of the first", || (answered(&mut programs[0]) >= before[0] + CALLS).then_some(()));
    let had: Vec<u64> = programs.iter_mut().zip(before).map(|(one, before)| answered(one) - before).collect();
    let ratio = had[0] as f64 / had[1] as f64;
    eprintln!("{what}: {had:?} calls with {bytes} bytes each way, {ratio:.3} to 1");
    ends(&mut host, pair, programs, what);
    Some(ratio)
}

#[test]
fn weights_are_shares_of_calls() {
    let Some(ratio) = ratio("shares of calls", BY_USER, 64, |_| {}) else { return };
    assert!((2.85..=3.15).contains(&ratio), "{ratio}");
}

#[test]
fn weights_are_shares_of_bytes() {
    let Some(ratio) = ratio("shares of bytes", BY_USER, 32 << 10, |_| {}) else { return };
    assert!((2.85..=3.15).contains(&ratio), "{ratio}");
}

#[test]
fn services_have_weights() {
    let Some(ratio) = ratio("shares of services", BY_SERVICE, 64, |_| {}) else { return };
    assert!((2.85..=3.15).contains(&ratio), "{ratio}");
}

#[test]
fn control_groups_have_weights() {
    let what = "shares of control groups";
    let name = format!("trunkline-hostile-{}", std::process::id());
    let group = ControlGroup(Path::new(CGROUPS).join(&name));
    let is_unified = Path::new(CGROUPS).join("cgroup.controllers").exists();
    if !is_unified || std::fs::create_dir(&group.0).is_err() {
        eprintln!(
            "{what}: NOT SHOWN, because {CGROUPS} is no hierarchy of cgroup v2 that this test may write to"
        );
        return;
    }
    let weights = format!("[[tenant]]\ncgroup = \"/{name}\"\nweight = 3\n");
    let enter = |program: &Process| {
        std::fs::write(group.0.join("cgroup.procs"), program.id().to_string()).unwrap();
    };
    let Some(ratio) = ratio(what, &weights, 64, enter) else { return };
    assert!((2.85..=3.15).contains(&ratio), "{ratio}");
}

/// Removed with the test, once nobody is in it.
struct ControlGroup(PathBuf);

impl Drop for ControlGroup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn who_wants_nothing_keeps_nothing() {
    let Some((mut host, pair, mut programs)) = stage("idle", BY_USER) else { return };
    order(&mut programs[0], "idle 64");
    order(&mut programs[1], "busy 64");
    until("calls of the one that wants some", || (answered(&mut programs[1]) >= CALLS).then_some(()));
    assert_eq!(answered(&mut programs[0]), 0);
    ends(&mut host, pair, programs, "idle");
}
