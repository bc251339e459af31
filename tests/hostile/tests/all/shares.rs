//! Programs of two users who both want all of a shard, and have what their weights say.
//!
//! What is compared are the calls a shard takes from either while both have some; the good pair calls beside them.

use crate::pair::Pair;
use std::path::PathBuf;
use trunkline_call::RouteIndex;
use trunkline_call::entry::Completion;
use trunkline_control::Attach;
use trunkline_hostile_tests::application::Application;
use trunkline_system_tests::harness::{Host, Process, until, use_program};

/// The users, of whom the first has three times the other's weight.
const USERS: [u32; 2] = [54_321, 54_322];
const BY_USER: &str = "[[tenant]]\nuid = 54321\nweight = 3\n";
/// The same by what its callers serve.
const BY_SERVICE: &str = "[[tenant]]\nservice = \"hostile.v1.User54321\"\nweight = 3\n\
    [[serve]]\nservice = \"hostile.v1.User54321\"\nwho = [\"uid:54321\"]\n";
/// Calls of either user that are queued, of small ones and of large: those fit into the receive heap of one session.
/// Credit is had in rounds, and a turn has 64 entries, so that of few small ones either may have a tenth more.
const QUEUED: [u64; 2] = [8_000, 1_800];
/// From so many bytes on they are large.
const LARGE_BYTES: usize = 4 << 10;
/// So many calls at once.
const LIMITS: &str = "[limits]\ncalls_made_per_session = 16384\ncalls_delivered_per_session = 16384\n";
/// Calls of one that is alone.
const CALLS: u64 = 20_000;

/// A host with a good pair and a program of either user, where there may be such.
fn stage(what: &str, weights: &str) -> Option<(Host, Pair, [Process; 2])> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("{what}: NOT SHOWN, because only root can start a program of another user");
        return None;
    }
    use_program(env!("CARGO_BIN_EXE_hostile"));
    let host = Host::open_to_users_of_one_shard(&format!("{LIMITS}{weights}"));
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

/// Calls of a program that were answered so far.
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
///
/// Both have a ring full of calls before the daemon looks, and one session serves both: it is told the calls in the
/// order in which the shard has taken them, whatever else the machine does. Counted from where both have had some.
fn ratio(what: &str, weights: &str, bytes: usize, prepare: impl FnOnce(&Process)) -> Option<f64> {
    let (mut host, pair, mut programs) = stage(what, weights)?;
    prepare(&programs[0]);
    let queued = QUEUED[usize::from(bytes >= LARGE_BYTES)];
    // Either has some left when so many are taken, also if it was alone for the eight turns after which a shard hears
    // of a ring that was at rest.
    let compared = queued * 2 / 3;
    let wants = Attach { submission_entries: 8192, completion_entries: 8192, ..Attach::default() };
    let mut server = Application::attach_as(&host.socket(), wants).unwrap();
    let routes = USERS.map(|user| {
        let bound = server.bind(vec![format!("hostile.v1.Of{user}")], Vec::new()).unwrap();
        RouteIndex(bound.serves[0].route)
    });
    programs.iter_mut().for_each(|program| _ = order(program, &format!("client {bytes}")));
    host.daemon().stop_for(|| {
        programs.iter_mut().for_each(|program| _ = order(program, &format!("fill {queued}")));
    });
    let mut had = [0_u64; 2];
    let mut first = None;
    until("as many calls as one of them has", || {
        while let Some(completion) = server.hear().unwrap().filter(|_| had[0] + had[1] < compared) {
            let Completion::Call(call) = completion else { continue };
            // Of a ring that is at rest a shard hears some turns later; until then the other is alone.
            if call.route != *first.get_or_insert(call.route) || had != [0, 0] {
                had[usize::from(call.route == routes[1])] += 1;
            }
        }
        (had[0] + had[1] == compared).then_some(())
    });
    let ratio = had[0] as f64 / had[1] as f64;
    eprintln!("{what}: {had:?} calls with {bytes} bytes, {ratio:.3} to 1");
    drop(server);
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
    let Some((group, path)) = hierarchy().and_then(|at| ControlGroup::make(&at, &name)) else {
        eprintln!(
            "{what}: NOT SHOWN, because there is no hierarchy of cgroup v2 that this test may write to"
        );
        return;
    };
    let weights = format!("[[tenant]]\ncgroup = {path:?}\nweight = 3\n");
    let enter = |program: &Process| {
        std::fs::write(group.0.join("cgroup.procs"), program.id().to_string()).unwrap();
    };
    let Some(ratio) = ratio(what, &weights, 64, enter) else { return };
    assert!((2.85..=3.15).contains(&ratio), "{ratio}");
}

/// Where this host has its hierarchy of cgroup v2, alone or beside those of v1, and the group this process is in.
fn hierarchy() -> Option<(PathBuf, String)> {
    // proc(5): root of the mount, mount point, …, a hyphen, type.
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let unified = |fields: &Vec<&str>| fields.iter().rev().nth(2) == Some(&"cgroup2") && fields[3] == "/";
    let mount = fields.filter(unified).find_map(|fields| fields.get(4).map(|at| (*at).to_owned()))?;
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"))?.to_owned();
    Some((mount.into(), own))
}

/// Removed with the test, once nobody is in it.
struct ControlGroup(PathBuf);

impl ControlGroup {
    /// A group below this process's own, and its name in the hierarchy.
    fn make((mount, own): &(PathBuf, String), name: &str) -> Option<(Self, String)> {
        let path = format!("{}/{name}", own.trim_end_matches('/'));
        let at = mount.join(path.trim_start_matches('/'));
        std::fs::create_dir(&at).ok()?;
        Some((Self(at), path))
    }
}

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
