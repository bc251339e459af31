//! Shows, between daemons with certificates, that policies and rules of the serving host tell host from host, over the
//! native protocol and gRPC alike, and application from application where the calling host is one of the operator's.

mod agent;
mod raw;

use agent::{Agent, Authority};
use raw::{Keys, RawApp, WATCHDOG, echo_in_thread};
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

/// Over a Unix socket the kernel says who calls: its user's rights hold by both protocols, unless a native peer is one
/// of the operator's daemons, which has looked at its callers' rights.
#[test]
fn over_a_unix_socket_a_user_has_its_rights_only() {
    let folder = tempfile::tempdir().unwrap();
    let own = rustix::process::geteuid().as_raw();
    let (its, others) = (format!("uid:{own}"), format!("uid:{}", own + 1));
    let denied = Code::PermissionDenied;
    for (number, who, hosts, ends) in [
        (0, &its, &others, [Code::Ok, Code::Ok]),
        (1, &others, &others, [denied, denied]),
        (2, &others, &its, [Code::Ok, denied]),
    ] {
        let target = format!("unix:{}", folder.path().join(number.to_string()).display());
        let text = format!(
            "[daemon]\nlisten = [{target:?}]\nhosts = [{hosts:?}]\n[[call]]\nservice = \"raw.*\"\nwho = [{who:?}]\n"
        );
        let server = Daemon::embedded(Config::from_toml(&text, "test").unwrap()).unwrap();
        echo_in_thread(RawApp::attach(&server, "", true));
        for (protocol, ends) in PROTOCOLS.into_iter().zip(ends) {
            let host = Daemon::embedded(Config::from_toml(protocol, "test").unwrap()).unwrap();
            let mut app = RawApp::attach(&host, &target, false);
            let (finish, words) = app.unary_told(b"?");
            assert_eq!(finish.code, ends, "{who} may, {hosts} are hosts, {protocol:?}: {words}");
            if ends == denied {
                let says = format!("uid {own}, gid ");
                assert!(words.contains(&says) && words.contains("[[call]] for \"raw.*\""), "{words}");
            }
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

/// A daemon whose certificate is on the list is refused by those that read it, and whoever comes onto it while they run
/// is, too.
#[test]
fn revoked_daemons_are_refused() {
    let keys = Keys::new();
    for file in ["a", "b"] {
        keys.issue_as(file, "search.internal", &format!("spiffe://example.org/host/{file}"));
    }
    let crl = keys.revoke("b");
    let listen = "[daemon]\nlisten = [\"tcp://127.0.0.1:0\"]\n";
    let tls =
        keys.config(&format!("client_ca = {:?}\nrequired = true\ncrl = {crl:?}\n", keys.path("ca.pem")));
    let server = Daemon::embedded(Config::from_toml(&format!("{listen}{tls}"), "test").unwrap()).unwrap();
    echo_in_thread(RawApp::attach(&server, "", true));
    let target = format!("tls://search.internal@{}", server.endpoints()[0].strip_prefix("tcp://").unwrap());
    let call = |file: &str| {
        let host = Config::from_toml(&keys.config_as(file, ""), "test").unwrap();
        RawApp::attach_as(&Daemon::embedded(host).unwrap(), "till", &target, false).unary(b"?").code
    };
    assert_eq!(["a", "b"].map(call), [Code::Ok, Code::Unavailable]);
    keys.revoke("a");
    let until = std::time::Instant::now() + WATCHDOG;
    while call("a") != Code::Unavailable {
        assert!(std::time::Instant::now() < until, "the new list is not read");
    }
    assert_eq!(call("b"), Code::Ok, "it is on the list no longer");
}

/// Daemons whose certificates come from agents: each is known by its SPIFFE id, roots say nothing about other domains'
/// ids, and a new certificate is in use when the agent has told it.
#[test]
fn certificates_come_from_the_workload_api() {
    const SERVER: &str = "spiffe://example.org/host/server";
    let (own, other) = (Authority::new(), Authority::new());
    let federated = [("spiffe://other.org", other.roots())];
    let serving = Agent::start(own.svid(SERVER, &federated));
    let more = "[daemon]\nlisten = [\"tcp://127.0.0.1:0\"]\n";
    let allow = "peer.identity in ['spiffe://example.org/host/a', 'spiffe://other.org/host/a']";
    let server = format!("{more}{}required = true\n{}", serving.config(), access(allow));
    let server = Daemon::embedded(Config::from_toml(&server, "test").unwrap()).unwrap();
    echo_in_thread(RawApp::attach(&server, "", true));
    let address = server.endpoints()[0].strip_prefix("tcp://").unwrap().to_owned();
    let call = |authority: &Authority, client: &str, federated: &[(&str, Vec<u8>)], wanted: &str| {
        let agent = Agent::start(authority.svid(client, federated));
        let host = Daemon::embedded(Config::from_toml(&agent.config(), "test").unwrap()).unwrap();
        RawApp::attach_as(&host, "till", &format!("tls://{wanted}@{address}"), false).unary(b"?").code
    };
    let back = [("spiffe://example.org", own.roots())];
    for (authority, client, federated, wanted, ends) in [
        (&own, "spiffe://example.org/host/a", &[][..], SERVER, Code::Ok),
        (&own, "spiffe://example.org/host/b", &[], SERVER, Code::PermissionDenied),
        // The server is not who is wanted.
        (&own, "spiffe://example.org/host/a", &[], "spiffe://example.org/host/a", Code::Unavailable),
        (&other, "spiffe://other.org/host/a", &back, SERVER, Code::Ok),
        // Nobody vouches for the server.
        (&other, "spiffe://other.org/host/a", &[], SERVER, Code::Unavailable),
        // The roots of one domain vouch for an id of another.
        (
            &other,
            "spiffe://example.org/host/a",
            &[("spiffe://other.org", own.roots())],
            SERVER,
            Code::Unavailable,
        ),
    ] {
        assert_eq!(call(authority, client, federated, wanted), ends, "{client} calls {wanted}");
    }
    const NEXT: &str = "spiffe://example.org/host/next";
    serving.tell(own.svid(NEXT, &federated));
    let until = std::time::Instant::now() + WATCHDOG;
    while call(&own, "spiffe://example.org/host/a", &[], NEXT) != Code::Ok {
        assert!(std::time::Instant::now() < until, "the new certificate is not used");
    }
}
