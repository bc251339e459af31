//! Shows applications whose daemon is beyond a relay: the same program gives the same answers, whoever has the wrong
//! certificate is refused, and no call is executed twice, whoever is killed or replaced. Programs in C, C++ and Python
//! differ by their environment alone.

use crate::c_programs::are_true;
use crate::once::{Load, are_true_of_the_logs, finish};
use crate::python;
use crate::support::c_programs::{Command as Words, Prefix, Program};
use crate::support::{Host, Process, client, until, until_served};
use crate::topologies::embedded;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use tempfile::TempDir;
use trunkline_system_tests::program::LOG_VARIABLE;
use trunkline_system_tests::scenario::ALL;

/// Who may serve the probe.
pub(crate) const SERVER: &str = "spiffe://corp/probe";
/// Who may do nothing but call.
pub(crate) const CALLER: &str = "spiffe://corp/till";
/// The name in the relay's certificate.
pub(crate) const RELAY: &str = "relay.internal";

/// Certificates of one authority.
pub(crate) struct Authority {
    folder: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A host with a daemon and a relay beside it.
pub(crate) struct RelayedHost {
    host: Host,
    relay: Process,
    authority: Authority,
    /// Where the relay is, once it was there.
    endpoint: String,
}

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "corp");
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { folder, issuer }
    }

    /// A certificate and its key.
    pub fn issue(&self, name: &str) -> [PathBuf; 2] {
        let file: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let paths = ["pem", "key"].map(|end| self.folder.path().join(format!("{file}.{end}")));
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.subject_alt_names.push(if name.contains("://") {
            SanType::URI(name.try_into().unwrap())
        } else {
            SanType::DnsName(name.try_into().unwrap())
        });
        std::fs::write(&paths[0], params.signed_by(&key, &self.issuer).unwrap().pem()).unwrap();
        std::fs::write(&paths[1], key.serialize_pem()).unwrap();
        paths
    }

    pub fn roots(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }
}

impl RelayedHost {
    fn new() -> Self {
        Self::with_limits("")
    }

    /// With more keys of `[relay]`.
    pub fn with_limits(keys: &str) -> Self {
        let authority = Authority::new();
        let [certificate, key] = authority.issue(RELAY);
        let roots = authority.roots();
        let tls = format!(
            "[tls]\ncertificate = {certificate:?}\nkey = {key:?}\nclient_ca = {roots:?}\nca = {roots:?}\n"
        );
        let rule = format!("[[serve]]\nservice = \"*\"\nwho = [\"owner\"]\npeers = [{SERVER:?}]\n");
        let relay = format!("[relay]\nlisten = [\"tcp://127.0.0.1:0\"]\n{keys}");
        let host = Host::over_tcp_as(&format!("{tls}{relay}{rule}"));
        let config = host.folder().join("daemon.toml");
        let relay = Process::start(&["relay", config.to_str().unwrap()], &[]);
        let endpoint = relay.greeting().to_owned();
        Self { host, relay, authority, endpoint }
    }

    /// Its process.
    pub fn relay(&self) -> &Process {
        &self.relay
    }

    /// Where it listens.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Whose certificates it believes.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The relay dies and comes back at its port.
    fn replace_relay(&mut self) {
        self.relay.kill();
        let config = self.host.folder().join("daemon.toml");
        self.relay = Process::start(&["relay", config.to_str().unwrap(), &self.endpoint], &[]);
    }

    /// The environment of an application with this certificate.
    fn environment_of(&self, authority: &Authority, name: &str) -> Vec<(&'static str, OsString)> {
        let [certificate, key] = authority.issue(name);
        let address = self.endpoint.strip_prefix("tcp://").unwrap();
        vec![
            ("TRUNKLINE_SOCKET", format!("tcp+tls://{RELAY}@{address}").into()),
            ("TRUNKLINE_TLS_CERTIFICATE", certificate.into()),
            ("TRUNKLINE_TLS_KEY", key.into()),
            ("TRUNKLINE_TLS_CA", self.authority.roots().into()),
            (LOG_VARIABLE, self.host.log().into()),
        ]
    }

    fn environment(&self, name: &str) -> Vec<(&'static str, OsString)> {
        self.environment_of(&self.authority, name)
    }

    /// A program with this certificate.
    pub fn start(&self, part: &str, name: &str) -> Process {
        Process::start(&[part], &self.environment(name))
    }

    /// A program of another language with this certificate.
    fn words(&self, program: &Words, name: &str) -> Words {
        let variables = self.environment(name).into_iter();
        let variables: Vec<String> =
            variables.map(|(variable, value)| format!("{variable}={}", value.to_str().unwrap())).collect();
        let variables: Vec<&str> = variables.iter().map(String::as_str).collect();
        Words::of("env").with(&variables).and(program)
    }
}

#[test]
fn a_relayed_program_gives_the_answers_of_one_that_is_embedded() {
    let mut relayed = RelayedHost::new();
    let server = relayed.start("server", SERVER);
    let mut caller = relayed.start("client", CALLER);
    for ((name, _), expected) in ALL.iter().zip(embedded()) {
        let said = caller.ask(&format!("scenario {name}"));
        assert_eq!(said, *expected, "{name}");
    }
    // One of the daemon's own host meets it, too.
    until_served(&client(&relayed.host, ""));
    drop(caller);
    relayed.host.until_idle();
    drop(server);
    relayed.host.until_held("sessions", 1);
}

#[test]
fn whoever_has_the_wrong_certificate_is_refused() {
    let relayed = RelayedHost::new();
    let _server = relayed.start("server", SERVER);
    let mut caller = relayed.start("client", CALLER);
    assert_eq!(caller.ask("echo known"), "OK");

    // Of another authority: the relay does not believe it.
    let strangers = Authority::new();
    let mut stranger = Process::start(&["client"], &relayed.environment_of(&strangers, SERVER));
    let said = stranger.ask("echo unknown");
    assert!(said.starts_with("UNAVAILABLE NotExecuted"), "{said}");

    // The relay is another than was meant: the application does not believe it.
    let mut environment = relayed.environment(CALLER);
    environment[0].1 = relayed.endpoint.replace("tcp://", "tcp+tls://other.internal@").into();
    let said = Process::start(&["client"], &environment).ask("echo elsewhere");
    assert!(said.starts_with("UNAVAILABLE NotExecuted"), "{said}");

    // A daemon's own port is no relay's.
    environment[0].1 = relayed.host.endpoint().replace("tcp://", &format!("tcp+tls://{RELAY}@")).into();
    let said = Process::start(&["client"], &environment).ask("echo daemon");
    assert!(said.starts_with("UNAVAILABLE NotExecuted"), "{said}");

    // Who may call only may not serve.
    let test = std::env::current_exe().unwrap();
    let probe = test.parent().and_then(|deps| deps.parent()).unwrap().join("probe");
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut server = Command::new(probe);
    server.arg("server").envs(relayed.environment(CALLER)).stdin(Stdio::null()).stderr(log.reopen().unwrap());
    let mut server = server.spawn().unwrap();
    let refused = format!("{CALLER} may not serve probe.v1.Probe");
    until("the server refused", || {
        std::fs::read_to_string(log.path()).unwrap().contains(&refused).then_some(())
    });
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!(caller.ask("echo known"), "OK");
}

#[test]
fn no_call_fails_when_the_daemon_behind_a_relay_is_replaced() {
    let mut relayed = RelayedHost::new();
    let server = relayed.start("server", SERVER);
    let near = client(&relayed.host, "");
    until_served(&near);
    let (load, threads) = Load::start(&near);
    let mut caller = relayed.start("client", CALLER);
    for round in 0..3 {
        load.until_answered(100);
        relayed.host.replace_daemon();
        assert_eq!(caller.ask(&format!("echo after {round}")), "OK");
    }
    load.until_answered(100);
    finish(&load, threads);
    assert_eq!(load.failures(), "");
    are_true_of_the_logs(&load, std::slice::from_ref(&relayed.host));
    drop((server, caller));
    relayed.host.until_idle();
}

#[test]
fn no_call_is_executed_twice_whoever_is_killed() {
    let mut relayed = RelayedHost::new();
    let mut server = relayed.start("server", SERVER);
    let mut caller = relayed.start("client", CALLER);
    let near = client(&relayed.host, "");
    until_served(&near);
    let (load, threads) = Load::start(&near);
    for round in 0..6 {
        load.until_answered(50);
        match round % 3 {
            0 => {
                server.kill();
                server = relayed.start("server", SERVER);
            }
            1 => relayed.replace_relay(),
            _ => {
                relayed.host.kill_daemon();
                relayed.host.start();
            }
        }
        until("the caller back", || (caller.ask("echo again") == "OK").then_some(()));
    }
    load.until_answered(50);
    finish(&load, threads);
    are_true_of_the_logs(&load, std::slice::from_ref(&relayed.host));
    drop((server, caller));
    relayed.host.until_idle();
}

/// Load of a language through a relay: daemons are replaced, which no call notices, and killed with their relay.
fn holds_beyond_a_relay(load: &Words) {
    let mut relayed = RelayedHost::new();
    let log = relayed.host.log();
    let serve = relayed.words(load, SERVER).with(&["server", log.to_str().unwrap()]);
    let server = Program::start(&relayed.host, &serve);
    let call = relayed.words(load, CALLER).with(&["client", "4"]);
    let caller = Program::start(&relayed.host, &call);
    for _ in 0..2 {
        caller.until_more("answered", 50);
        relayed.host.replace_daemon();
    }
    caller.until_more("answered", 50);
    let lines = caller.finish();
    let failed = |line: &&String| line.starts_with("failed") || line.starts_with("not-");
    assert_eq!(lines.iter().find(failed), None);
    are_true(&lines, &relayed.host);
    std::fs::write(&log, "").unwrap();

    let caller = Program::start(&relayed.host, &call);
    caller.until_more("answered", 50);
    relayed.replace_relay();
    caller.until_more("answered", 50);
    relayed.host.kill_daemon();
    relayed.host.start();
    caller.until_more("answered", 50);
    are_true(&caller.finish(), &relayed.host);
    drop(server);
    relayed.host.until_idle();
}

/// Programs whose clocks show other times than the daemon's: an hour less, and more. Their deadlines hold all the same.
#[test]
fn deadlines_hold_between_clocks_that_differ() {
    let prefix = Prefix::new();
    let Some(load) = prefix.compiled("tests/system/c/load.c") else { return };
    let within = |seconds: i64| {
        let offset = seconds.to_string();
        Words::of("unshare").with(&["--time", "--fork", "--kill-child", "--monotonic", &offset])
    };
    // Only who may make such a namespace, on a host that has been up for so long.
    let tried = within(-3600).with(&["true"]);
    if !Command::new(tried.program()).args(tried.arguments()).status().is_ok_and(|status| status.success()) {
        return eprintln!("skipped: no time namespace can be made here");
    }
    let mut relayed = RelayedHost::new();
    let log = relayed.host.log();
    for [serves, calls] in [[-3600, 7200], [7200, -3600]] {
        let serve = relayed.words(&load, SERVER).with(&["server", log.to_str().unwrap()]);
        let server = Program::start(&relayed.host, &within(serves).and(&serve));
        let call = relayed.words(&load, CALLER).with(&["client", "2"]);
        let caller = Program::start(&relayed.host, &within(calls).and(&call));
        caller.until_more("answered", 100);
        let lines = caller.finish();
        let failed = |line: &&String| line.starts_with("failed") || line.starts_with("not-");
        assert_eq!(lines.iter().find(failed), None);
        drop(server);
        relayed.host.until_held("sessions", 0);
        std::fs::write(&log, "").unwrap();
    }
    relayed.host.until_idle();
}

#[test]
fn a_program_in_c_is_relayed_by_its_environment_alone() {
    let prefix = Prefix::new();
    let Some(load) = prefix.compiled("tests/system/c/load.c") else { return };
    holds_beyond_a_relay(&load);
}

#[test]
fn a_program_in_cpp_is_relayed_by_its_environment_alone() {
    let prefix = Prefix::new();
    let Some(load) = prefix.compiled_over_the_probe("tests/system/cpp/load.cpp") else { return };
    holds_beyond_a_relay(&load);
}

#[test]
fn a_program_in_python_is_relayed_by_its_environment_alone() {
    let Some(load) = python::load() else { return };
    holds_beyond_a_relay(&load);
}
