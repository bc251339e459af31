//! Shows that two daemons of one machine are not taken for hosts with one clock when their clocks differ: in time
//! namespaces a thousand seconds apart the offset is estimated, and the report says how well it is known.

use crate::support;

use serde_json::Value;
use std::process::{Child, Command, Stdio};
use support::{Host, Recording, end, own_address, trunkline, watched};

/// A namespace whose monotonic clock is so many seconds ahead; what runs in it ends with its maker.
const AHEAD: [&str; 5] = ["--time", "--monotonic", "1000", "--fork", "--kill-child"];

/// A daemon there, until its standard input closes.
struct Far(Child);

impl Drop for Far {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

#[test]
fn time_namespaces_are_two_clocks() {
    watched();
    let tried = Command::new("unshare").args(AHEAD).arg("true").output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        eprintln!("no time namespace can be made here: it takes root and unshare");
        return;
    }
    let address = own_address();
    let folder = tempfile::tempdir().unwrap();
    let (socket, file) = (folder.path().join("d.sock"), folder.path().join("d.toml"));
    std::fs::write(&file, format!("[daemon]\nnode = \"far\"\nlisten = [\"tcp://{address}\"]\n")).unwrap();
    let mut command = Command::new("unshare");
    command.args(AHEAD).args([env!("CARGO_BIN_EXE_trunkline"), "daemon", "--until-stdin-closes"]);
    command.arg("--socket").arg(&socket).arg("--config").arg(&file);
    let _far = Far(command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let near = Host::start("[daemon]\nnode = \"near\"\n");
    let target = format!("tcp://{address}");
    let call = || near.verb(&["call", "--target", &target, "grpc.health.v1.Health/Check", "{}"], "");
    while call().code != Some(0) {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(call().code, Some(0));
    let told = near.verb(&["explain", "grpc.health.v1.Health/Check", "--json"], "");
    let told: Value = serde_json::from_str(&told.out).unwrap_or_else(|error| panic!("{error}: {told:?}"));
    let made = told.as_array().unwrap().iter().find(|one| one["side"] == "made").expect("calls were made");
    assert_eq!(made["peers"], serde_json::json!(["far"]), "{made}");
    let half_width_ns = made["half_width_ns"].as_u64().unwrap();
    assert!(half_width_ns > 0, "one clock would need no estimate: {made}");
    let total_ns = made["total"]["mean_ns"].as_u64().unwrap();
    assert!(half_width_ns < total_ns, "the wires hide no more than the calls took: {made}");

    // Recorded calls say so too, one by one.
    let file = folder.path().join("near.rec");
    let recording = Recording::begin(&near.socket(), &file, &[]);
    (0..3).for_each(|_| assert_eq!(call().code, Some(0)));
    recording.stop();
    let clock = end(&mut trunkline(&["clock", file.to_str().unwrap()]), "");
    let line =
        clock.out.lines().find(|line| line.starts_with("near ")).unwrap_or_else(|| panic!("{clock:?}"));
    assert!(
        line.contains(" far ") && !line.contains("one clock") && !line.contains("not known"),
        "{clock:?}"
    );
}
