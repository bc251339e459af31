//! Shows calls over R2P2 between two daemons on this host: real ports, all sizes, and datagrams nobody asked for.

mod raw;

use raw::*;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;
use trunkline_call::Code;
use trunkline_call::entry::{Completion, Submission};
use trunkline_daemon::{Config, Daemon};

/// A daemon that serves over R2P2 with a server behind it, and one with a caller.
struct Stage {
    caller: RawApp,
    near: Daemon,
    far: Daemon,
}

impl Stage {
    fn set(mode: &str) -> Self {
        Self::set_with(mode, ["", ""])
    }

    /// The same with more configuration of the caller's host and of the server's.
    fn set_with(mode: &str, more: [&str; 2]) -> Self {
        let config = |listen: &str| {
            let more = more[usize::from(!listen.is_empty())];
            let text = format!("[r2p2]\nlisten = {listen:?}\nmode = {mode:?}\n{more}");
            Config::from_toml(&text, "test").unwrap()
        };
        let far = Daemon::embedded(config("127.0.0.1:0")).unwrap();
        echo_in_thread(RawApp::attach(&far, "", true));
        let near = Daemon::embedded(config("")).unwrap();
        // A server that has just started does not know what was executed before, and passes over requests that cannot
        // be repeated for as long as datagrams may be on their way.
        std::thread::sleep(Duration::from_nanos(2 * trunkline_r2p2::Config::default().lifetime_ns));
        let caller = RawApp::attach(&near, &far.endpoints()[0], false);
        Self { caller, near, far }
    }

    fn until_idle(&self) {
        let began = std::time::Instant::now();
        while !(self.near.is_idle() && self.far.is_idle()) {
            assert!(began.elapsed() < WATCHDOG, "calls are left");
            std::thread::yield_now();
        }
    }
}

#[test]
fn all_sizes_in_both_modes() {
    for mode in ["offer", "compatible"] {
        let mut stage = Stage::set(mode);
        for bytes in [0, 1, 1000, 1300, 1500, 5000, 60_000, 300_000] {
            assert_eq!(stage.caller.unary(&vec![7; bytes]).code, Code::Ok, "{bytes} bytes, {mode}");
        }
        stage.until_idle();
    }
}

#[test]
fn many_calls_at_once() {
    let mut stage = Stage::set("offer");
    for _ in 0..10 {
        for _ in 0..40 {
            let payload = stage.caller.blob(&[1; 3000]);
            let call = stage.caller.call(0, Some(payload), true);
            stage.caller.submit(Submission::Call(call));
        }
        for _ in 0..40 {
            let Completion::Finish(finish) = stage.caller.next() else { panic!("a unary call finishes") };
            assert_eq!(finish.code, Code::Ok);
            let block = finish.payload.map_or_else(Default::default, |payload| payload.span);
            stage.caller.submit(Submission::Release {
                call: finish.call,
                block,
                metadata: finish.metadata,
                a18: trunkline_call::Instant(9),
            });
        }
    }
    stage.until_idle();
}

#[test]
fn datagrams_nobody_asked_for_harm_nobody() {
    let mut stage = Stage::set("offer");
    assert_eq!(stage.caller.unary(b"before").code, Code::Ok);
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = stage.far.endpoints()[0].strip_prefix("r2p2://").unwrap().to_owned();
    let mut seed = 7u32;
    for length in 0..600 {
        let mut noise: Vec<u8> = (0..length * 5)
            .map(|_| {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (seed >> 24) as u8
            })
            .collect();
        // Half of them look like R2P2 at first sight.
        if length % 2 == 0 && noise.len() >= 8 {
            noise[..4].copy_from_slice(&[0xcc, 8, (length % 7) as u8 * 16, 0xf0]);
        }
        stranger.send_to(&noise, &port).unwrap();
    }
    for _ in 0..20 {
        assert_eq!(stage.caller.unary(b"still here").code, Code::Ok);
    }
    stage.until_idle();
}

/// A file of keys that only its user may read.
fn key_file(folder: &tempfile::TempDir, name: &str, keys: &[char]) -> String {
    let path = folder.path().join(name);
    let lines = keys.iter().map(|key| key.to_string().repeat(64) + "\n");
    std::fs::write(&path, lines.collect::<String>()).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    format!("key_file = {path:?}\n")
}

#[test]
fn hosts_with_a_key_believe_each_other_and_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    let [first, both, second] = [("first", &['a'][..]), ("both", &['b', 'a']), ("second", &['b'])]
        .map(|(n, k)| key_file(&folder, n, k));
    for mode in ["offer", "extended"] {
        for (near, far, passes) in [
            (&first, &first, true),
            (&first, &both, false),
            (&both, &second, true),
            (&first, &second, false),
            (&first, &String::new(), false),
            (&String::new(), &first, false),
        ] {
            let mut stage = Stage::set_with(mode, [near, far]);
            if passes {
                for bytes in [0, 1000, 1500, 60_000, 300_000] {
                    assert_eq!(stage.caller.unary(&vec![7; bytes]).code, Code::Ok, "{bytes} bytes, {mode}");
                }
            } else {
                let payload = stage.caller.blob(b"?");
                let now = trunkline_shm::monotonic_ns();
                let deadline = trunkline_call::Deadline::at(trunkline_call::Instant(now + 1_000_000_000));
                let call =
                    trunkline_call::entry::Call { deadline, ..stage.caller.call(0, Some(payload), true) };
                stage.caller.submit(Submission::Call(call));
                let Completion::Finish(finish) = stage.caller.next() else { panic!("a unary call finishes") };
                assert_ne!(finish.code, Code::Ok, "{near} calls {far}, {mode}");
                let refused = |host: &Daemon| -> u64 {
                    let shards = host.observe(&trunkline_telemetry::Ask::default());
                    shards.iter().map(|shard| shard.snapshot.datagrams_refused).sum()
                };
                let all = || refused(&stage.near) + refused(&stage.far);
                let began = std::time::Instant::now();
                // The datagrams may lie in a socket still.
                while !far.is_empty() && all() == 0 {
                    assert!(began.elapsed() < WATCHDOG, "{near} calls {far}, {mode}: nothing is refused");
                    std::thread::yield_now();
                }
                assert_eq!(all() > 0, !far.is_empty(), "{near} calls {far}, {mode}");
            }
        }
    }
}

#[test]
fn a_port_that_is_taken_is_named() {
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let config = Config::from_toml(&format!("[r2p2]\nlisten = \"{address}\""), "test").unwrap();
    let said = Daemon::embedded(config).err().unwrap().to_string();
    assert!(said.contains(&address.to_string()), "{said}");
}
