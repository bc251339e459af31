//! Shows, between daemons with certificates, that policies and rules of the serving host tell host from host, over the
//! native protocol and gRPC alike, and application from application where the calling host is one of the operator's.

mod raw;

use raw::{Keys, RawApp, echo_in_thread};
use trunkline_call::Code;
use trunkline_daemon::{Config, Daemon};

/// How the calling daemon speaks.
const PROTOCOLS: [&str; 2] = ["", "[grpc]\nalways = true\n"];

/// The hosts of a test: who is who by certificate.
const HOSTS: [(&str, &str); 4] = [
    ("server", "spiffe://example.org/host/server"),
    ("a", "spiffe://example.org/host/a"),
    ("b", "spiffe://example.org/host/b"),
    ("stranger", "spiffe://example.org/service/a"),
];

/// A serving host, and what is needed to call it.
struct Stage {
    keys: Keys,
    target: String,
    _server: Daemon,
}

impl Stage {
    /// The serving host's configuration ends with this.
    fn set(shards: u32, more: &str) -> Self {
        let keys = Keys::new();
        for (file, spiffe_id) in HOSTS {
            keys.issue_as(file, "search.internal", spiffe_id);
        }
        let tls = keys.config(&format!("client_ca = {:?}\nrequired = true\n", keys.path("ca.pem")));
        let hosts = "hosts = [\"spiffe://example.org/host/*\"]";
        let daemon = format!("[daemon]\nlisten = [\"tcp://127.0.0.1:0\"]\n{hosts}\nshards = {shards}\n");
        let server = Daemon::embedded(Config::from_toml(&format!("{daemon}{tls}{more}"), "test").unwrap());
        let server = server.unwrap();
        echo_in_thread(RawApp::attach(&server, "", true));
        let address = server.endpoints()[0].strip_prefix("tcp://").unwrap();
        let target = format!("tls://search.internal@{address}");
        Self { keys, target, _server: server }
    }

    /// A daemon of another host.
    fn host(&self, file: &str, more: &str) -> Daemon {
        let text = format!("{}{more}", self.keys.config_as(file, ""));
        Daemon::embedded(Config::from_toml(&text, "test").unwrap()).unwrap()
    }

    /// How a call ends that an application of this name makes there.
    fn call(&self, host: &Daemon, name: &str, serves: bool) -> Code {
        RawApp::attach_as(host, name, &self.target, serves).unary(b"?").code
    }
}

fn access(allow: &str) -> String {
    format!("[[policy]]\nname = \"who\"\nkind = \"access\"\nside = \"server\"\nallow = {allow:?}\n")
}

#[test]
fn a_policy_tells_host_from_host() {
    let stage = Stage::set(1, &access("peer.identity == 'spiffe://example.org/host/a'"));
    for protocol in PROTOCOLS {
        for (file, ends) in
            [("a", Code::Ok), ("b", Code::PermissionDenied), ("stranger", Code::PermissionDenied)]
        {
            let host = stage.host(file, protocol);
            assert_eq!(stage.call(&host, "till", false), ends, "{file} {protocol}");
        }
    }
}

#[test]
fn a_rule_tells_host_from_host() {
    let rule = "[[call]]\nservice = \"raw.*\"\nwho = [\"*\"]\npeers = [\"spiffe://example.org/host/a\"]\n";
    let stage = Stage::set(1, rule);
    for protocol in PROTOCOLS {
        for (file, ends) in [("a", Code::Ok), ("b", Code::PermissionDenied)] {
            let host = stage.host(file, protocol);
            assert_eq!(stage.call(&host, "till", false), ends, "{file} {protocol}");
        }
    }
}

/// On a host with several shards the connection comes to one, and the server is on another, or not.
#[test]
fn a_policy_tells_application_from_application() {
    let (uid, program) = (rustix::process::geteuid().as_raw(), std::env::current_exe().unwrap());
    let allow = format!(
        "caller.uid == {uid} && caller.name == 'till' && caller.program == '{}' && 'raw.Echo' in caller.services",
        program.display()
    );
    let told = "[daemon]\nhosts = [\"spiffe://example.org/host/server\"]\n";
    for shards in [1, 2] {
        let stage = Stage::set(shards, &access(&allow));
        for (file, more, name, serves, ends) in [
            ("a", told, "till", true, Code::Ok),
            ("a", told, "till", false, Code::PermissionDenied),
            ("a", told, "other", true, Code::PermissionDenied),
            // The word of who is not one of the operator's hosts is not taken.
            ("stranger", told, "till", true, Code::PermissionDenied),
            // Who does not take the server for one of his hosts tells it nothing.
            ("a", "", "till", true, Code::PermissionDenied),
        ] {
            for _ in 0..shards {
                let host = stage.host(file, more);
                let found = stage.call(&host, name, serves);
                assert_eq!(found, ends, "{file} {more} {name} {serves}, {shards} shards");
            }
        }
    }
}
