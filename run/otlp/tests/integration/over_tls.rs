//! Shows what of TLS is kept with a collector: who it is, by roots and by name; who the daemon is, where it is asked;
//! files that change while it runs; requests of every size; and that one that never answers costs its time.

use crate::support;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use support::watched;
use tempfile::TempDir;
use trunkline_net::ClientFiles;
use trunkline_otlp::{ExportSettings, ExportSource, Exporter};
use trunkline_telemetry::{CallTrace, Coverage, Exposition, Side, TracedCall};

/// Two CAs; `a` has issued a collector's certificate and a daemon's, `b` nothing that counts.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        for ca in ["a", "b"] {
            let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
            fs::write(files.path(&format!("{ca}.pem")), issuer.pem()).unwrap();
            for (who, name) in
                [("collector", "localhost"), ("elsewhere", "elsewhere.example"), ("daemon", "d")]
            {
                let (key, params) =
                    (KeyPair::generate().unwrap(), CertificateParams::new(vec![name.to_owned()]));
                let certificate = params.unwrap().signed_by(&key, &issuer).unwrap();
                fs::write(files.path(&format!("{ca}-{who}.pem")), certificate.pem()).unwrap();
                fs::write(files.path(&format!("{ca}-{who}.key")), key.serialize_pem()).unwrap();
            }
        }
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn client(&self, ca: &str, identity: Option<&str>) -> ClientFiles {
        let own = |name: &str| (self.path(&format!("{name}.pem")), self.path(&format!("{name}.key")));
        ClientFiles { ca: Some(self.path(ca)), identity: identity.map(own), ..ClientFiles::default() }
    }

    fn read<T: PemObject>(&self, name: &str) -> T {
        T::from_pem_file(self.path(name)).unwrap()
    }

    /// A collector with this certificate, which asks for certificates of the first CA if it `asks`: the bodies of the
    /// requests it gets, as their lengths.
    fn collector(&self, name: &str, asks: bool) -> (u16, Receiver<usize>) {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(self.read::<CertificateDer<'_>>("a.pem")).unwrap();
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
        let builder =
            if asks { builder.with_client_cert_verifier(clients) } else { builder.with_no_client_auth() };
        let chain = vec![self.read::<CertificateDer<'_>>(&format!("{name}.pem"))];
        let key = self.read::<PrivateKeyDer<'_>>(&format!("{name}.key"));
        let config = Arc::new(builder.with_single_cert(chain, key).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, (sender, got)) = (listener.local_addr().unwrap().port(), channel());
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let session = ServerConnection::new(Arc::clone(&config)).unwrap();
                let body = exchange(&mut StreamOwned::new(session, stream));
                if body.is_some_and(|bytes| sender.send(bytes).is_err()) {
                    return;
                }
            }
        });
        (port, got)
    }
}

/// Reads a request and takes it; `None` if none comes.
fn exchange(stream: &mut StreamOwned<ServerConnection, TcpStream>) -> Option<usize> {
    let (mut bytes, mut piece) = (Vec::new(), [0; 65536]);
    loop {
        let head = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        if let Some(head) = head {
            let text = std::str::from_utf8(&bytes[..head]).unwrap();
            let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
            let body = bytes.len() - head - 4;
            if body >= length.parse().unwrap() {
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").ok()?;
                stream.conn.send_close_notify();
                stream.flush().ok()?;
                return Some(body);
            }
        }
        let count = stream.read(&mut piece).ok().filter(|count| *count > 0)?;
        bytes.extend_from_slice(&piece[..count]);
    }
}

fn export(port: u16, tls: ClientFiles, calls: Vec<TracedCall>) -> std::io::Result<Exporter> {
    let settings = ExportSettings {
        host: "localhost".into(),
        port,
        path: String::new(),
        tls: Some(tls),
        interval: Duration::from_secs(1),
        resource: Vec::new(),
        version: "1".into(),
        goes_on: false,
    };
    let figures = || {
        let mut figures = Exposition::default();
        figures.family("trunkline_calls_total", "counter", "Calls.");
        figures.sample(&[], 3_u64);
        figures
    };
    let calls = std::sync::Mutex::new(calls);
    let source = ExportSource {
        figures: Box::new(figures),
        traced: Box::new(move |_| (std::mem::take(&mut *calls.lock().unwrap()), 0)),
        clocks: Box::new(|| (2_000, 1_000)),
    };
    Exporter::start(settings, source)
}

/// Figures that were taken, and requests that failed.
fn outcomes(exporter: &Exporter) -> (u64, u64) {
    let figures = exporter.figures();
    let at = |place: usize| figures.metrics[place].load(Ordering::Relaxed);
    (at(0), at(2))
}

fn until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn who_a_collector_is_and_who_the_daemon_is_must_be_proven() {
    watched();
    let files = Files::new();
    // Certificate of the collector, whether it asks for one, roots believed, certificate shown: whether it is taken.
    for (collector, asks, ca, own, is_taken) in [
        ("a-collector", false, "a.pem", None, true),
        ("a-collector", false, "a.pem", Some("b-daemon"), true),
        ("a-collector", false, "b.pem", None, false),
        ("b-collector", false, "a.pem", None, false),
        ("a-elsewhere", false, "a.pem", None, false),
        ("a-collector", true, "a.pem", Some("a-daemon"), true),
        ("a-collector", true, "a.pem", Some("b-daemon"), false),
        ("a-collector", true, "a.pem", None, false),
    ] {
        let (port, got) = files.collector(collector, asks);
        let exporter = export(port, files.client(ca, own), Vec::new()).unwrap();
        until(|| outcomes(&exporter) != (0, 0));
        let case = (collector, asks, ca, own);
        assert_eq!(outcomes(&exporter).0 > 0, is_taken, "{case:?}");
        if is_taken {
            // It may not have said so yet.
            got.recv().unwrap();
        }
        assert!(is_taken || got.try_iter().count() == 0, "{case:?}");
    }
}

#[test]
fn files_are_read_again_when_they_change_and_kept_while_they_cannot_be() {
    watched();
    let files = Files::new();
    let (port, got) = files.collector("a-collector", false);
    let ca = files.path("ca.pem");
    let put = |bytes: &[u8]| {
        fs::write(files.path("new"), bytes).unwrap();
        fs::rename(files.path("new"), &ca).unwrap();
    };
    put(&fs::read(files.path("b.pem")).unwrap());
    let exporter = export(port, files.client("ca.pem", None), Vec::new()).unwrap();
    until(|| outcomes(&exporter).1 > 0);
    assert_eq!(got.try_iter().count(), 0);
    put(&fs::read(files.path("a.pem")).unwrap());
    got.recv().unwrap();
    put(b"no certificate");
    for _ in 0..2 {
        got.recv().unwrap();
    }
}

#[test]
fn files_that_cannot_be_used_are_named_at_the_start() {
    watched();
    let files = Files::new();
    let why = |tls| export(1, tls, Vec::new()).err().unwrap().to_string();
    assert!(why(files.client("none.pem", None)).contains("none.pem: cannot be read"));
    assert!(why(files.client("a-daemon.key", None)).contains("holds no -----BEGIN CERTIFICATE-----"));
}

#[test]
fn requests_of_a_megabyte_pass() {
    watched();
    let files = Files::new();
    let (port, got) = files.collector("a-collector", false);
    let call = |n: u64| TracedCall {
        ids: CallTrace { trace: n.into(), span: n, attempt: n + 1_000_000, ..CallTrace::default() },
        side: Side::Made,
        began_ns: 10,
        ended_ns: 100,
        method: format!("/{}/C", "a".repeat(2000)),
        peer: "p".into(),
        code: 0,
        ns: [10; 9],
        coverage: Coverage::Whole,
        request_bytes: 1,
        response_bytes: 2,
    };
    let exporter = export(port, files.client("a.pem", None), (1..=1000).map(call).collect()).unwrap();
    let figures = exporter.figures();
    let mut largest = 0;
    while largest < 500_000 {
        largest = largest.max(got.recv().unwrap());
    }
    until(|| figures.spans[0].load(Ordering::Relaxed) >= 4);
    assert_eq!(figures.spans[2].load(Ordering::Relaxed), 0);
}

/// It takes the connection and says nothing, or no TLS.
#[test]
fn one_that_does_not_agree_on_tls_costs_its_time_only() {
    watched();
    let files = Files::new();
    for said in [&b""[..], b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let exporter = export(port, files.client("a.pem", None), Vec::new()).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(said).unwrap();
        until(|| outcomes(&exporter).1 > 0);
        assert_eq!(outcomes(&exporter).0, 0);
    }
}
