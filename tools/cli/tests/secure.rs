//! Shows `call` and `bench` over TLS, written as grpcurl's users write it: roots, names, the caller's own certificate,
//! reflection, and what a wrong word gets.

mod support;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};
use serde_json::Value;
use std::path::PathBuf;
use support::{Ended, Host, watched};
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
        &["-plaintext", "-max-time", "5s"],
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
        (&["-d", "{}", "Search/Query", "{}"], 2, "not both"),
    ] {
        let told = verb(&[&["call"], arguments].concat());
        assert_eq!(told.code, Some(code), "{arguments:?}: {told:?}");
        assert!(told.err.contains(part), "{arguments:?}: {told:?}");
    }
}
