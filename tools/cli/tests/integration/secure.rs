//! Shows `call` and `bench` over TLS, written as grpcurl's users write it: roots, names, the caller's own certificate,
//! reflection, and what a wrong word gets.

use crate::support;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use support::{Ended, Host, own_address, watched};
use tempfile::TempDir;

const QUERY: &str = r#"{"query": "bell"}"#;

/// A CA, and what it has issued: to a server of two names and an address, and to a client.
struct Keys(TempDir);

impl Keys {
    fn new() -> Self {
        let keys = Self(tempfile::tempdir().unwrap());
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        std::fs::write(keys.path("ca.pem"), ca.pem()).unwrap();
        for name in ["server", "client"] {
            let names = vec!["search.internal".to_owned(), "localhost".to_owned()];
            let mut params = CertificateParams::new(names).unwrap();
            params.subject_alt_names.push(SanType::IpAddress([127, 0, 0, 1].into()));
            let key = KeyPair::generate().unwrap();
            std::fs::write(keys.path(&format!("{name}.pem")), params.signed_by(&key, &ca).unwrap().pem())
                .unwrap();
            std::fs::write(keys.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
        }
        keys
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn config(&self, more: &str) -> String {
        let (certificate, key) = (self.path("server.pem"), self.path("server.key"));
        format!(
            "[daemon]\nlisten = [\"tcp://127.0.0.1:0\"]\n[tls]\nrequired = true\ncertificate = {certificate:?}\nkey = \
             {key:?}\n{more}"
        )
    }
}

/// The port the daemon listens at.
fn port(host: &Host) -> String {
    let listed: Value = serde_json::from_str(&host.verb(&["list", "--json"], "").out).unwrap();
    listed["listening"][0].as_str().unwrap().rsplit_once(':').unwrap().1.to_owned()
}

/// Where no daemon runs: no usual place has one, for there is no runtime folder.
fn verb(arguments: &[&str]) -> Ended {
    support::end(support::trunkline(arguments).env("XDG_RUNTIME_DIR", "/nonexistent"), "")
}

#[test]
fn calls_over_tls() {
    watched();
    let keys = Keys::new();
    let host = Host::start(&keys.config(""));
    let (_server, _client) = host.serve_search();
    let (port, ca) = (port(&host), keys.text("ca.pem"));
    let (address, local) = (format!("127.0.0.1:{port}"), format!("localhost:{port}"));

    let listed = verb(&["call", "-cacert", &ca, &address, "list"]);
    assert!(listed.out.lines().any(|line| line == "search.v1.Search"), "by reflection over TLS: {listed:?}");
    let described = verb(&["call", "-cacert", &ca, &local, "describe", "search.v1.QueryRequest"]);
    assert!(described.out.contains("string query = 1;"), "{described:?}");

    for flags in [
        &["-cacert", &ca][..],
        &["-cacert", &ca, "-servername", "search.internal"],
        &["-cacert", &ca, "-authority", "search.internal:443", "-H", "tenant: blue"],
        &["-insecure"],
        &["-insecure", "-servername", "other.internal"],
    ] {
        let called = verb(&[&["call"], flags, &["-d", QUERY, &address, "Search/Query"]].concat());
        assert_eq!(called.code, Some(0), "{flags:?}: {called:?}");
        let answer: Value = serde_json::from_str(&called.out).unwrap();
        assert_eq!(answer["hits"][0]["name"], "b", "{flags:?}");
    }
    let tls = format!("tls://search.internal@{address}");
    let called = verb(&["call", "--cacert", &ca, "--target", &tls, "Search/Query", QUERY]);
    assert_eq!(called.code, Some(0), "{called:?}");

    let bench = ["bench", "-cacert", &ca, "-n", "20", "--rate", "200", "-d", QUERY, &local, "Search/Query"];
    let bench = verb(&bench);
    assert!(bench.code == Some(0) && bench.out.contains("20 OK"), "{bench:?}");
}

#[test]
fn whoever_is_not_known_is_not_called() {
    watched();
    let (keys, others) = (Keys::new(), Keys::new());
    let host = Host::start(&keys.config(""));
    let (_server, _client) = host.serve_search();
    let (ca, other) = (keys.text("ca.pem"), others.text("ca.pem"));
    let address = format!("127.0.0.1:{}", port(&host));
    for flags in [
        &["-cacert", &other][..],
        &["-cacert", &ca, "-servername", "other.internal"],
        &["--tls"],
        &["-plaintext", "-max-time", "60s"],
    ] {
        let refused = verb(
            &[
                &["call", "--proto", support::SEARCH_PROTO],
                flags,
                &["-d", QUERY],
                &[&address, "Search/Query"],
            ]
            .concat(),
        );
        assert_eq!(refused.code, Some(64 + 14), "{flags:?}: {refused:?}");
        assert_eq!(refused.out, "", "{flags:?}");
    }
    let mistaken = verb(&["call", "-cacert", &ca, "-servername", "other.internal", &address, "list"]);
    assert!(mistaken.err.contains("other.internal"), "the name is named: {mistaken:?}");
}

#[test]
fn a_server_may_want_to_know_who_calls() {
    watched();
    let keys = Keys::new();
    let host = Host::start(&keys.config(&format!("client_ca = {:?}\n", keys.path("ca.pem"))));
    let (_server, _client) = host.serve_search();
    let address = format!("127.0.0.1:{}", port(&host));
    let ca = keys.text("ca.pem");
    let (certificate, key) = (keys.text("client.pem"), keys.text("client.key"));
    let known =
        ["call", "-cacert", &ca, "-cert", &certificate, "-key", &key, &address, "Search/Query", QUERY];
    let called = verb(&known);
    assert_eq!(called.code, Some(0), "{called:?}");
    let unknown = verb(&["call", "-cacert", &ca, &address, "Search/Query", QUERY]);
    assert_ne!(unknown.code, Some(0), "{unknown:?}");
}

#[test]
fn mistakes_are_told() {
    watched();
    let none = "/nonexistent/ca.pem";
    for (arguments, code, part) in [
        (&["--tls", "Search/Query", "{}"][..], 1, "--target HOST:PORT"),
        (&["-cacert", none, "127.0.0.1:1", "list"], 1, none),
        (&["-cacert", none, "unix:/a", "list"], 1, "TLS is spoken to one TCP address"),
        (&["--tls", "no-such-name.invalid:1", "list"], 1, "no-such-name.invalid"),
        (&["-plaintext", "-insecure", "127.0.0.1:1", "list"], 2, "cannot be used with"),
        (&["-cert", none, "127.0.0.1:1", "list"], 2, "--key"),
        (&["127.0.0.1:1"], 2, "what is to be called at 127.0.0.1:1"),
        (&["localhost", "list"], 2, "\"localhost\" is no address: write HOST:PORT"),
        (&["localhost", "Search/Query", "{}"], 2, "\"localhost\" is no address: write HOST:PORT"),
        (&["-d", "{}", "Search/Query", "{}"], 2, "not both"),
    ] {
        let told = verb(&[&["call"], arguments].concat());
        assert_eq!(told.code, Some(code), "{arguments:?}: {told:?}");
        assert!(told.err.contains(part), "{arguments:?}: {told:?}");
    }
}

/// What the first question about certificates would meet is said before a daemon runs, with the place of the key.
#[test]
fn files_that_cannot_be_used_are_no_good_configuration() {
    watched();
    let (keys, others) = (Keys::new(), Keys::new());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("d.toml");
    let config = |certificate: &str, key: &str, more: &str| {
        format!("[tls]\ncertificate = {certificate:?}\nkey = {key:?}\n{more}")
    };
    let (certificate, key, other) =
        (keys.text("server.pem"), keys.text("server.key"), others.text("server.key"));
    let none = folder.path().join("none").join("x").display().to_string();
    for (text, wanted) in [
        (
            config(&none, &key, ""),
            format!("d.toml:2:15: tls.certificate: {none}: cannot be read: No such file"),
        ),
        (
            config(&certificate, &none, ""),
            format!("d.toml:3:7: tls.key: {none}: cannot be read: No such file"),
        ),
        (
            config(&certificate, &certificate, ""),
            format!("d.toml:3:7: tls.key: {certificate}: holds no -----BEGIN"),
        ),
        (config(&certificate, &other, ""), format!("d.toml:3:7: tls.key: {certificate} and {other}: ")),
        (
            config(&certificate, &key, &format!("client_ca = {key:?}")),
            format!("d.toml:4:13: tls.client_ca: {key}: holds no -----BEGIN CERTIFICATE-----"),
        ),
        (
            format!("[otlp]\nendpoint = \"https://h\"\nca = {none:?}"),
            format!("d.toml:3:6: otlp.ca: {none}: cannot be read"),
        ),
        (format!("tls.ca = {none:?}"), format!("d.toml:1:10: tls.ca: {none}: cannot be read")),
        (
            config(&certificate, &key, &format!("ca = {certificate:?}\ncrl = {key:?}")),
            format!("d.toml:5:7: tls.crl: {key}: holds no -----BEGIN X509 CRL-----"),
        ),
        (
            format!("[daemon]\nlisten = [\"unix:{none}\"]"),
            format!("d.toml:2:10: daemon.listen: names {none}, and its folder cannot be used: No such file"),
        ),
        (
            format!("[admin]\naudit_log = {none:?}"),
            format!(
                "d.toml:2:13: admin.audit_log: names {none}, and its folder cannot be used: No such file"
            ),
        ),
        ("[log]\nlevel = \"chatty\"".to_owned(), "d.toml:2:9: log.level: has \"chatty\"".to_owned()),
    ] {
        std::fs::write(&path, &text).unwrap();
        for more in [&["--check-config"][..], &[]] {
            let daemon = ["daemon", "--until-stdin-closes", "--config", path.to_str().unwrap()];
            let refused = verb(&[&daemon, more].concat());
            assert_eq!(refused.code, Some(1), "{text}: {refused:?}");
            assert!(refused.err.contains(&wanted), "{text}: {wanted}: {refused:?}");
        }
    }
    std::fs::write(&path, config(&certificate, &key, "")).unwrap();
    let good = verb(&["daemon", "--check-config", "--config", path.to_str().unwrap()]);
    assert_eq!(good.code, Some(0), "{good:?}");
}

/// A collector over TLS that asks for certificates: the first lines of the requests it gets.
fn collector(keys: &Keys) -> (u16, Receiver<String>) {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(keys.path("ca.pem")).unwrap()).unwrap();
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let chain = vec![CertificateDer::from_pem_file(keys.path("server.pem")).unwrap()];
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients.build().unwrap())
        .with_single_cert(chain, PrivateKeyDer::from_pem_file(keys.path("server.key")).unwrap())
        .unwrap();
    let (config, listener) = (Arc::new(config), TcpListener::bind("127.0.0.1:0").unwrap());
    let (port, (sender, got)) = (listener.local_addr().unwrap().port(), channel());
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let session = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = BufReader::new(StreamOwned::new(session, stream));
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") && stream.read_line(&mut head).is_ok_and(|bytes| bytes > 0) {}
            let Some(length) = head.lines().find_map(|line| line.strip_prefix("content-length: ")) else {
                continue;
            };
            stream.read_exact(&mut vec![0; length.parse().unwrap()]).unwrap();
            stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").unwrap();
            if sender.send(head.lines().next().unwrap().to_owned()).is_err() {
                return;
            }
        }
    });
    (port, got)
}

/// One that the roots do not speak for is told of once and counted each time; with other roots in the file it gets
/// everything.
#[test]
fn a_collector_is_spoken_to_over_tls() {
    watched();
    let (keys, others) = (Keys::new(), Keys::new());
    let (port, got) = collector(&keys);
    let metrics = own_address();
    let (ca, certificate, key) = (others.path("ca.pem"), keys.path("client.pem"), keys.path("client.key"));
    let host = Host::start(&format!(
        "[metrics]\nlisten = [\"tcp://{metrics}\"]\n[otlp]\nendpoint = \"https://localhost:{port}\"\n\
         interval_s = 1\nca = {ca:?}\ncertificate = {certificate:?}\nkey = {key:?}\n"
    ));
    let counted = |outcome: &str| {
        let mut stream = TcpStream::connect(metrics).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let name = format!("trunkline_otlp_requests_total{{what=\"metrics\",outcome=\"{outcome}\"}} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&name));
        line.unwrap_or_else(|| panic!("{text}")).parse::<u64>().unwrap()
    };
    let until = |is_so: &dyn Fn() -> bool| {
        while !is_so() {
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    until(&|| counted("failed") >= 2);
    let told = |part: &str| host.log().lines().filter(|line| line.contains(part)).count();
    assert_eq!(told("the OpenTelemetry collector takes nothing"), 1, "{}", host.log());
    assert_eq!(told("no TLS with it: invalid peer certificate: "), 1, "{}", host.log());
    let why = format!("(by the roots in {}, otlp.ca)", ca.display());
    assert_eq!(told(&why), 1, "{}", host.log());
    assert_eq!((counted("taken"), got.try_iter().count()), (0, 0));
    std::fs::copy(keys.path("ca.pem"), others.path("new.pem")).unwrap();
    std::fs::rename(others.path("new.pem"), &ca).unwrap();
    assert_eq!(got.recv().unwrap(), "POST /v1/metrics HTTP/1.1");
    until(&|| counted("taken") >= 1);
    assert_eq!(told("keys and certificates loaded anew"), 1, "{}", host.log());
    assert_eq!(told("the OpenTelemetry collector takes figures and spans again"), 1, "{}", host.log());
}

#[test]
fn a_level_of_the_environment_is_checked_too() {
    watched();
    let mut command = support::trunkline(&["daemon", "--until-stdin-closes", "--config", "/dev/null"]);
    let refused = support::end(command.env("TRUNKLINE_LOG", "info,chatty"), "");
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.err.contains("TRUNKLINE_LOG: has \"chatty\", which is no level"), "{refused:?}");
}
