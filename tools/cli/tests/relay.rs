//! Shows `trunkline relay` as it is installed: it reads the daemon's file, says where it is, attaches who has a
//! certificate, and gives nobody the rights of its own user.

mod support;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use support::{Host, end, trunkline, watched};

/// Ended when dropped.
struct Relay(Child);

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_relay_beside_its_daemon() {
    watched();
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
    let (_server, _) = host.serve_search();
    let file = host.folder().join("d.toml");

    let mut relay = trunkline(&["relay", "--config", file.to_str().unwrap()]);
    relay.arg("--socket").arg(host.socket()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut relay = Relay(relay.spawn().unwrap());
    let mut said = String::new();
    BufReader::new(relay.0.stdout.take().unwrap()).read_line(&mut said).unwrap();
    let address = said.trim().strip_prefix("relay at tcp://").unwrap_or_else(|| panic!("{said}"));

    let verb = |arguments: &[&str]| {
        let mut command = trunkline(arguments);
        command.env("TRUNKLINE_SOCKET", format!("tcp+tls://relay.internal@{address}"));
        command.env("TRUNKLINE_TLS_CA", path("ca.pem"));
        command
    };
    let certified = |arguments: &[&str]| {
        let mut command = verb(arguments);
        command.env("TRUNKLINE_TLS_CERTIFICATE", path("app.internal.pem"));
        end(command.env("TRUNKLINE_TLS_KEY", path("app.internal.key")), "")
    };
    let listed = certified(&["list"]);
    assert!(listed.err.contains("app.internal may not call trunkline.admin.v1.Admin"), "{listed:?}");
    let bare = end(&mut verb(&["list"]), "");
    assert!(bare.err.contains("TRUNKLINE_TLS_CERTIFICATE"), "{bare:?}");
}

#[test]
fn a_relay_without_a_port_says_what_to_write() {
    watched();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("d.toml");
    std::fs::write(&file, "").unwrap();
    let ended = end(&mut trunkline(&["relay", "--config", file.to_str().unwrap()]), "");
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.contains("relay.listen names no port; write tcp://ADDRESS:PORT"), "{ended:?}");
}
