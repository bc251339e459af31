//! Shows `trunkline doctor` beside a daemon that is well, without one, and with a configuration that is not.

use crate::support;

use serde_json::Value;
use support::{Ended, Host, end, trunkline, watched};

fn doctor(folder: &std::path::Path, more: &[&str]) -> (Ended, Vec<Value>) {
    // No usual place has a daemon of the test's.
    let mut command = trunkline(&[&["doctor", "--json"][..], more].concat());
    let ended = end(command.env("XDG_RUNTIME_DIR", folder).env_remove("TRUNKLINE_ADMIN_SOCKET"), "");
    let findings = serde_json::from_str(&ended.out).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    (ended, findings)
}

fn of<'a>(findings: &'a [Value], area: &str) -> Vec<&'a Value> {
    findings.iter().filter(|finding| finding["area"] == area).collect()
}

#[test]
fn a_host_that_is_well_has_no_problem() {
    watched();
    let host = Host::start("");
    let socket = host.socket();
    let (ended, findings) = doctor(host.folder(), &["--socket", socket.to_str().unwrap()]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for area in ["configuration", "certificates", "socket", "rights", "limits", "kernel", "clock"] {
        assert!(!of(&findings, area).is_empty(), "{area}: {ended:?}");
    }
    assert_eq!(of(&findings, "rights")[0]["state"], "good", "{ended:?}");
    let text = end(&mut trunkline(&["doctor", "--socket", socket.to_str().unwrap()]), "");
    assert!(text.out.lines().last().is_some_and(|line| line.starts_with("no problem")), "{text:?}");
}

#[test]
fn what_is_wrong_is_said_with_what_to_do() {
    watched();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("d.toml");
    let path = file.to_str().unwrap();
    let socket = folder.path().join("d.sock");
    let named = ["--config", path, "--socket", socket.to_str().unwrap()];
    std::fs::write(&file, "[daemon]\nlisen = []").unwrap();
    let (ended, findings) = doctor(folder.path(), &named);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let configuration = of(&findings, "configuration")[0];
    assert!(configuration["found"].as_str().unwrap().contains("did you mean \"listen\"?"), "{ended:?}");
    let socket = of(&findings, "socket")[0];
    assert_eq!(socket["state"], "problem", "{ended:?}");
    assert!(socket["remedy"].as_str().unwrap().contains("start one"), "{ended:?}");
}

/// A certificate that has expired is loaded by a daemon, and refused by every peer.
#[test]
fn certificates_are_held_against_the_clock() {
    watched();
    let folder = tempfile::tempdir().unwrap();
    let of_folder = |name: &str| folder.path().join(name);
    let mut params = rcgen::CertificateParams::new(vec!["a".to_owned()]).unwrap();
    params.not_after = rcgen::date_time_ymd(2001, 1, 1);
    let key = rcgen::KeyPair::generate().unwrap();
    std::fs::write(of_folder("a.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
    std::fs::write(of_folder("a.key"), key.serialize_pem()).unwrap();
    let tls = format!("[tls]\ncertificate = {:?}\nkey = {:?}", of_folder("a.pem"), of_folder("a.key"));
    std::fs::write(of_folder("d.toml"), tls).unwrap();
    let (_, findings) = doctor(folder.path(), &["--config", of_folder("d.toml").to_str().unwrap()]);
    assert_eq!(of(&findings, "configuration")[0]["state"], "good");
    let certificate = of(&findings, "certificates")[0];
    assert!(certificate["found"].as_str().unwrap().contains("has expired"), "{certificate}");
}

/// Applications do not look where this daemon listens, and it runs.
#[test]
fn a_daemon_where_nobody_looks_is_found() {
    watched();
    let host = Host::start("");
    let file = host.folder().join("other.toml");
    std::fs::write(&file, format!("[daemon]\nsocket = {:?}", host.socket())).unwrap();
    let (ended, findings) = doctor(host.folder(), &["--config", file.to_str().unwrap()]);
    let socket = of(&findings, "socket")[0];
    assert!(socket["found"].as_str().unwrap().contains("where applications do not look"), "{ended:?}");
    assert_eq!(of(&findings, "rights")[0]["state"], "good", "{ended:?}");
}
