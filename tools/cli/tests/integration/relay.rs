//! Shows `trunkline relay` as it is installed: it reads the daemon's file, says where it is, attaches who has a
//! certificate, and gives nobody the rights of its own user.

use crate::support;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use support::{Ended, Host, end, trunkline, watched};
use tempfile::TempDir;
use trunkline_measure::Child;

/// A daemon, its relay, and certificates.
struct Beside {
    _server: trunkline::ServerHandle,
    relay: Child,
    _host: Host,
    keys: TempDir,
    address: String,
}

impl Beside {
    /// The relay may have so many descriptors.
    fn start(descriptors: u64) -> Self {
        let keys = tempfile::tempdir().unwrap();
        let path = |name: &str| keys.path().join(name);
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        std::fs::write(path("ca.pem"), ca.pem()).unwrap();
        for name in ["relay.internal", "app.internal"] {
            let key = KeyPair::generate().unwrap();
            let certificate =
                CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &ca).unwrap();
            std::fs::write(path(&format!("{name}.pem")), certificate.pem()).unwrap();
            std::fs::write(path(&format!("{name}.key")), key.serialize_pem()).unwrap();
        }
        let config = format!(
            "[tls]\ncertificate = {:?}\nkey = {:?}\nclient_ca = {:?}\n[relay]\nlisten = [\"tcp://127.0.0.1:0\"]\n",
            path("relay.internal.pem"),
            path("relay.internal.key"),
            path("ca.pem")
        );
        let host = Host::start(&config);
        let (server, _) = host.serve_search();
        let manager = UnixDatagram::bind(path("notify")).unwrap();
        let mut relay = Command::new("sh");
        relay.args(["-c", &format!("ulimit -n {descriptors}; exec \"$0\" \"$@\"")]);
        relay.arg(env!("CARGO_BIN_EXE_trunkline")).arg("relay");
        relay.arg("--config").arg(host.folder().join("d.toml")).arg("--socket").arg(host.socket());
        let log = std::fs::File::create(keys.path().join("relay.log")).unwrap();
        relay
            .env("NOTIFY_SOCKET", path("notify"))
            .env_remove("TRUNKLINE_LOG")
            .stdout(Stdio::piped())
            .stderr(log);
        let mut relay = relay.spawn().unwrap();
        let mut said = String::new();
        BufReader::new(relay.stdout.take().unwrap()).read_line(&mut said).unwrap();
        let address =
            said.trim().strip_prefix("relay at tcp://").unwrap_or_else(|| panic!("{said}")).to_owned();
        let mut told = [0; 64];
        let told = manager.recv(&mut told).map(|bytes| String::from_utf8_lossy(&told[..bytes]).into_owned());
        assert!(told.unwrap().starts_with("READY=1\n"), "the service manager is told");
        Self { _server: server, relay: relay.into(), _host: host, keys, address }
    }

    /// A verb through the relay, without a certificate.
    fn verb(&self, arguments: &[&str]) -> Command {
        let mut command = trunkline(arguments);
        command.env("TRUNKLINE_SOCKET", format!("tcp+tls://relay.internal@{}", self.address));
        command.env("TRUNKLINE_TLS_CA", self.keys.path().join("ca.pem"));
        command
    }

    /// With one.
    fn certified(&self, arguments: &[&str]) -> Ended {
        let mut command = self.verb(arguments);
        command.env("TRUNKLINE_TLS_CERTIFICATE", self.keys.path().join("app.internal.pem"));
        end(command.env("TRUNKLINE_TLS_KEY", self.keys.path().join("app.internal.key")), "")
    }

    fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.relay.pid())).unwrap().count()
    }
}

#[test]
fn a_relay_beside_its_daemon() {
    watched();
    let beside = Beside::start(4096);
    let listed = beside.certified(&["list"]);
    assert!(listed.err.contains("app.internal may not call trunkline.admin.v1.Admin"), "{listed:?}");
    let query = ["call", "--proto", support::SEARCH_PROTO, "Search/Query", r#"{"query": "bell"}"#];
    let called = beside.certified(&query);
    assert!(called.code == Some(0) && called.out.contains("\"b\""), "{called:?}");
    let bare = end(&mut beside.verb(&["list"]), "");
    assert!(bare.err.contains("TRUNKLINE_TLS_CERTIFICATE"), "{bare:?}");
}

/// Fewer descriptors than connections come: they have places of their own, and who has a certificate has others.
#[test]
fn a_crowd_takes_no_descriptor_from_who_has_a_certificate() {
    watched();
    let mut beside = Beside::start(128);
    let before = beside.descriptors();
    let crowd: Vec<TcpStream> = (0..600).map(|_| TcpStream::connect(&beside.address).unwrap()).collect();
    for _ in 0..5 {
        let listed = beside.certified(&["list"]);
        assert!(listed.err.contains("app.internal may not call trunkline.admin.v1.Admin"), "{listed:?}");
    }
    drop(crowd);
    while beside.descriptors() > before {
        std::thread::yield_now();
    }
    let log = std::fs::read_to_string(beside.keys.path().join("relay.log")).unwrap();
    assert!(log.contains("fewer descriptors than relay.connections_max needs"), "{log}");
    assert!(log.contains("gave way to a newer one (relay.handshakes_max)"), "{log}");
    assert!(!log.contains(" ERROR "), "{log}");
    assert_eq!(beside.relay.ended(), None, "the relay is there");
}

#[test]
fn a_relay_without_a_port_says_what_to_write() {
    watched();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("d.toml");
    // Where the daemon writes is nothing to the relay.
    std::fs::write(&file, "[admin]\naudit_log = \"/nonexistent/audit.log\"\n").unwrap();
    let ended = end(&mut trunkline(&["relay", "--config", file.to_str().unwrap()]), "");
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.contains("relay.listen names no port; write tcp://ADDRESS:PORT"), "{ended:?}");
}
