//! Shows TLS under a stream: versions, ALPN, who is believed, who somebody is, new files, and both protocols' bytes
//! through it; and what people are told about files that cannot be used.

use crate::ends;

use bytes::Bytes;
use ends::{End, WATCHDOG, own, request, response, streams, trailers, until};
use proptest::prelude::*;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType, IsCa,
    KeyIdMethod, KeyPair, RevokedCertParams, SanType, SerialNumber, date_time_ymd,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::io::{IoSlice, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant as Clock;
use tempfile::TempDir;
use trunkline_call::Instant;
use trunkline_grpc::{Command, Event};
use trunkline_net::{
    Alpn, Buffers, ClientFiles, Http2, Http2Settings, Interest, Poller, ServerFiles, State, Stream,
    TLS_FILE_BYTES_MAX, TlsClient, TlsServer, TlsVersion, TlsVersions, Token, Transfer,
};

/// A certificate authority in a folder.
struct Authority {
    folder: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let folder = tempfile::tempdir().unwrap();
        // Issuers are told apart by name.
        params.distinguished_name.push(DnType::CommonName, folder.path().display().to_string());
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let this = Self { folder, issuer };
        std::fs::write(this.path("ca.pem"), this.issuer.pem()).unwrap();
        this
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a certificate and key for these names.
    fn issue(&self, file: &str, dns: &[&str], uri: Option<&str>) -> (PathBuf, PathBuf) {
        let names: Vec<String> = dns.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        if let Some(uri) = uri {
            params.subject_alt_names.push(SanType::URI(uri.try_into().unwrap()));
        }
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let paths = (self.path(&format!("{file}.pem")), self.path(&format!("{file}.key")));
        std::fs::write(&paths.0, certificate.pem()).unwrap();
        std::fs::write(&paths.1, key.serialize_pem()).unwrap();
        paths
    }

    /// Writes a list with one certificate.
    fn revoke(&self, file: &str, certificate: &Path) -> PathBuf {
        let (at, next) = (date_time_ymd(2020, 1, 1), date_time_ymd(2090, 1, 1));
        let one = RevokedCertParams {
            serial_number: serial_of(certificate),
            revocation_time: at,
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: at,
            next_update: next,
            crl_number: 1.into(),
            issuing_distribution_point: None,
            revoked_certs: vec![one],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let path = self.path(file);
        std::fs::write(&path, list.signed_by(&self.issuer).unwrap().pem().unwrap()).unwrap();
        path
    }

    fn server_files(&self) -> ServerFiles {
        let (certificate, key) = self.issue("server", &["search.internal"], None);
        ServerFiles { certificate, key, ..ServerFiles::default() }
    }

    fn client_files(&self) -> ClientFiles {
        ClientFiles { ca: Some(self.path("ca.pem")), ..ClientFiles::default() }
    }
}

/// The number an issuer gave a certificate: behind the outer headers and the version.
fn serial_of(certificate: &Path) -> SerialNumber {
    let der = CertificateDer::from_pem_file(certificate).unwrap();
    let version = der.windows(5).position(|bytes| bytes == [0xa0, 3, 2, 1, 2]).unwrap() + 5;
    assert_eq!(der[version], 2, "an integer");
    SerialNumber::from_slice(&der[version + 2..][..usize::from(der[version + 1])])
}

/// Shakes hands until both have, or one has failed.
fn shake(server: &mut Stream, client: &mut Stream) -> Result<(), (String, String)> {
    let until = Clock::now() + WATCHDOG;
    loop {
        let (client_side, server_side) = (client.handshake(), server.handshake());
        match (&server_side, &client_side) {
            (Ok(true), Ok(true)) => return Ok(()),
            (Ok(_), Ok(_)) => {}
            _ => {
                let told = |side: std::io::Result<bool>| side.err().map_or(String::new(), |e| e.to_string());
                return Err((told(server_side), told(client_side)));
            }
        }
        assert!(Clock::now() < until, "handshake hangs");
    }
}

fn secured(server: &TlsServer, client: &TlsClient, name: &str, offer: &[Alpn]) -> (Stream, Stream) {
    let (mut server_stream, mut client_stream) = streams();
    server_stream.begin_tls_server(server, &[]).unwrap();
    client_stream.begin_tls_client(client, name, offer).unwrap();
    shake(&mut server_stream, &mut client_stream).unwrap();
    (server_stream, client_stream)
}

#[test]
fn alpn_is_agreed() {
    let authority = Authority::new();
    let server = TlsServer::load(&authority.server_files()).unwrap();
    let client = TlsClient::load(&authority.client_files()).unwrap();
    for (offer, agreed) in [
        (&[Alpn::H2][..], Some(Alpn::H2)),
        (&[Alpn::Trunkline, Alpn::H2], Some(Alpn::Trunkline)),
        (&[], None),
    ] {
        let (server, client) = secured(&server, &client, "search.internal", offer);
        assert_eq!((server.alpn(), client.alpn()), (agreed, agreed));
        assert!(server.is_secure() && server.identity().is_none());
    }
}

#[test]
fn only_the_versions_that_are_allowed_are_spoken() {
    use TlsVersion::{V1_2, V1_3};
    let authority = Authority::new();
    for (server, client, agreed) in [
        ((V1_2, V1_3), (V1_2, V1_2), true),
        ((V1_2, V1_2), (V1_2, V1_3), true),
        ((V1_3, V1_3), (V1_2, V1_3), true),
        ((V1_3, V1_3), (V1_2, V1_2), false),
        ((V1_2, V1_2), (V1_3, V1_3), false),
    ] {
        let versions = |(min, max)| TlsVersions { min, max };
        let server = ServerFiles { versions: versions(server), ..authority.server_files() };
        let client = ClientFiles { versions: versions(client), ..authority.client_files() };
        let (mut server_stream, mut client_stream) = streams();
        server_stream.begin_tls_server(&TlsServer::load(&server).unwrap(), &[]).unwrap();
        let client = TlsClient::load(&client).unwrap();
        client_stream.begin_tls_client(&client, "search.internal", &[Alpn::H2]).unwrap();
        let shaken = shake(&mut server_stream, &mut client_stream);
        assert_eq!(shaken.is_ok(), agreed, "{:?}: {shaken:?}", server.versions);
    }
}

/// Bytes of any length pass both ways, through small buffers, with partial writes.
#[test]
fn bytes_pass() {
    let authority = Authority::new();
    let server = TlsServer::load(&authority.server_files()).unwrap();
    let client = TlsClient::load(&authority.client_files()).unwrap();
    let (mut server, mut client) = secured(&server, &client, "search.internal", &[Alpn::Trunkline]);
    let said: Vec<u8> = (0..3_000_000u32).map(|n| (n % 241) as u8).collect();
    let (mut sent, mut heard) = (0, Vec::new());
    let mut buffer = [0; 1000];
    let until = Clock::now() + WATCHDOG;
    while heard.len() < said.len() {
        if let Transfer::Bytes(bytes) = client.write_vectored(&[IoSlice::new(&said[sent..])]).unwrap() {
            sent += bytes;
        }
        client.flush().unwrap();
        loop {
            match server.read(&mut buffer).unwrap() {
                Transfer::Bytes(bytes) => heard.extend_from_slice(&buffer[..bytes]),
                Transfer::NotReady => break,
                Transfer::Ended => panic!("ended"),
            }
            if !server.has_buffered() && heard.len() % 3 == 0 {
                break;
            }
        }
        assert!(Clock::now() < until, "{sent} sent, {} heard", heard.len());
    }
    assert!(heard == said);
    client.end().unwrap();
    while server.read(&mut buffer).unwrap() != Transfer::Ended {
        assert!(Clock::now() < until);
    }
}

#[test]
fn a_call_over_tls() {
    let authority = Authority::new();
    let server = TlsServer::load(&authority.server_files()).unwrap();
    let client = TlsClient::load(&authority.client_files()).unwrap();
    let (server, client) = secured(&server, &client, "search.internal", &[Alpn::H2]);
    let settings = Arc::new(Http2Settings::server());
    let mut server = End::new(Http2::server(server, Arc::clone(&settings), Instant(0), &[], 0));
    let mut client = End::new(Http2::client(client, settings, Instant(0)));
    let body: Vec<u8> = vec![9; 600_000];
    client.command(Command::Request { stream: own(1), head: request("/a.B/C"), end: false });
    client.command(Command::Data { stream: own(1), bytes: body.clone().into(), end: true });
    let tag = until(&mut server, &mut client, |server, _| server.take_request());
    let heard = |end: &End| -> usize {
        end.events
            .iter()
            .map(|event| if let Event::Data { bytes, .. } = event { bytes.len() } else { 0 })
            .sum()
    };
    until(&mut server, &mut client, |server, _| (heard(server) == body.len()).then_some(()));
    server.command(Command::Response { stream: tag, head: response(), end: false });
    server.command(Command::Data { stream: tag, bytes: Bytes::from(body.clone()), end: false });
    server.command(Command::Trailers { stream: tag, trailers: trailers() });
    until(&mut server, &mut client, |_, client| (heard(client) == body.len()).then_some(()));
}

/// An end that is turned when the poller names it, when it has said that it has more to do, and after commands: as the
/// daemon does.
struct Told {
    http: Http2,
    poller: Poller,
    interest: Interest,
    has_more: bool,
    buffers: Buffers,
}

impl Told {
    fn new(mut http: Http2) -> Self {
        // What came with the handshake, the poller does not tell.
        http.handle_readable();
        let (poller, interest) = (Poller::new().unwrap(), Interest::Read);
        poller.add(http.stream(), Token(0), interest).unwrap();
        Self { http, poller, interest, has_more: true, buffers: Buffers::new() }
    }

    /// A turn, if there is a reason for one.
    fn turn(&mut self, mut handle: impl FnMut(&mut Http2, Event)) -> bool {
        let mut ready = Vec::new();
        self.poller.wait(Some(0), &mut ready).unwrap();
        if ready.is_empty() && !self.has_more {
            return false;
        }
        if ready.iter().any(|ready| ready.readable) {
            self.http.handle_readable();
        }
        let mut events = Vec::new();
        let state = self.http.turn(Instant(0), &mut self.buffers, &mut events);
        assert!(!matches!(state, State::Over(_)), "{state:?}");
        // Commands are carried out in the next turn.
        self.has_more = state == State::More || !events.is_empty();
        events.into_iter().for_each(|event| handle(&mut self.http, event));
        let interest = self.http.interest();
        if interest != std::mem::replace(&mut self.interest, interest) {
            self.poller.set_interest(self.http.stream(), Token(0), interest).unwrap();
        }
        true
    }

    fn command(&mut self, command: Command) {
        self.http.command(command);
        self.has_more = true;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    /// Requests and their echoes fill both directions, so that reading and writing stop wherever a buffer is full;
    /// whoever stops is not reminded by a further byte.
    #[test]
    fn nothing_is_forgotten_behind_a_turn_that_stops(
        bodies in proptest::collection::vec(1..1_200_000usize, 1..5),
    ) {
        let authority = Authority::new();
        let server = TlsServer::load(&authority.server_files()).unwrap();
        let client = TlsClient::load(&authority.client_files()).unwrap();
        let (server, client) = secured(&server, &client, "search.internal", &[Alpn::H2]);
        let mut server = Told::new(Http2::server(server, Arc::new(Http2Settings::server()), Instant(0), &[], 0));
        let mut client = Told::new(Http2::client(client, Arc::new(Http2Settings::client()), Instant(0)));
        for (number, body) in (1..).zip(&bodies) {
            client.command(Command::Request { stream: own(number), head: request("/a.B/C"), end: false });
            client.command(Command::Data { stream: own(number), bytes: vec![9; *body].into(), end: true });
        }
        let (whole, mut heard) = (bodies.iter().sum::<usize>(), 0);
        let both = Poller::new().unwrap();
        for (number, end) in (0..).zip([&server, &client]) {
            both.add(&end.poller, Token(number), Interest::Read).unwrap();
        }
        while heard < whole {
            let worked = server.turn(echo) | client.turn(|http, event| {
                if let Event::Data { stream, bytes, .. } = event {
                    heard += bytes.len();
                    http.command(Command::Release { stream, bytes: bytes.len() });
                }
            });
            if !worked {
                let mut ready = Vec::new();
                both.wait(Some(WATCHDOG.as_nanos() as u64), &mut ready).unwrap();
                prop_assert!(!ready.is_empty(), "{heard} of {whole} bytes heard, and nothing is to be done");
            }
        }
    }
}

/// Answers with what it hears.
fn echo(http: &mut Http2, event: Event) {
    match event {
        Event::Request { stream, .. } => {
            http.command(Command::Response { stream, head: response(), end: false });
        }
        Event::Data { stream, bytes, end } => {
            http.command(Command::Release { stream, bytes: bytes.len() });
            http.command(Command::Data { stream, bytes, end });
        }
        _ => {}
    }
}

#[test]
fn a_server_nobody_vouches_for_is_not_believed() {
    let (good, bad) = (Authority::new(), Authority::new());
    let server = TlsServer::load(&bad.server_files()).unwrap();
    let client = TlsClient::load(&good.client_files()).unwrap();
    let (mut server_stream, mut client_stream) = streams();
    server_stream.begin_tls_server(&server, &[]).unwrap();
    client_stream.begin_tls_client(&client, "search.internal", &[Alpn::H2]).unwrap();
    let (_, told) = shake(&mut server_stream, &mut client_stream).unwrap_err();
    assert!(told.contains("invalid peer certificate"), "{told}");

    let server = TlsServer::load(&good.server_files()).unwrap();
    let (mut server_stream, mut client_stream) = streams();
    server_stream.begin_tls_server(&server, &[]).unwrap();
    client_stream.begin_tls_client(&client, "other.internal", &[Alpn::H2]).unwrap();
    let (_, told) = shake(&mut server_stream, &mut client_stream).unwrap_err();
    assert!(told.contains("other.internal"), "{told}");
}

#[test]
fn clients_prove_who_they_are() {
    let authority = Authority::new();
    let files = ServerFiles { client_ca: Some(authority.path("ca.pem")), ..authority.server_files() };
    let server = TlsServer::load(&files).unwrap();
    let spiffe = "spiffe://example.org/ns/shop/sa/cart";
    let identity = Some(authority.issue("client", &["cart.internal"], Some(spiffe)));
    let known = TlsClient::load(&ClientFiles { identity, ..authority.client_files() }).unwrap();
    let (server_stream, _client) = secured(&server, &known, "search.internal", &[Alpn::H2]);
    let who = server_stream.identity().unwrap();
    assert_eq!(who.dns, ["cart.internal"]);
    assert_eq!(who.spiffe_id(), Some(spiffe));

    let unknown = TlsClient::load(&authority.client_files()).unwrap();
    let (mut server_stream, mut client_stream) = streams();
    server_stream.begin_tls_server(&server, &[]).unwrap();
    client_stream.begin_tls_client(&unknown, "search.internal", &[Alpn::H2]).unwrap();
    let (told, _) = shake(&mut server_stream, &mut client_stream).unwrap_err();
    assert!(told.contains("certificate"), "{told}");

    let files = ServerFiles { client_certificate_is_optional: true, ..files };
    let (server_stream, _client) =
        secured(&TlsServer::load(&files).unwrap(), &unknown, "search.internal", &[Alpn::H2]);
    assert_eq!(server_stream.identity(), None);
}

/// A certificate of a list is refused at either side, one of an issuer without a list as well; others are not.
#[test]
fn revoked_certificates_are_refused() {
    let (authority, other) = (Authority::new(), Authority::new());
    let (good, bad) = (
        authority.issue("good", &["search.internal"], None),
        authority.issue("bad", &["search.internal"], None),
    );
    let crl = authority.revoke("revoked.pem", &bad.0);
    let unrelated = other.revoke("unrelated.pem", &other.issue("some", &["a"], None).0);
    let shaken = |server: &(PathBuf, PathBuf), client: &(PathBuf, PathBuf), lists: [Option<&PathBuf>; 2]| {
        let [of_server, of_client] = lists.map(Option::<&PathBuf>::cloned);
        let server = ServerFiles {
            certificate: server.0.clone(),
            key: server.1.clone(),
            client_ca: Some(authority.path("ca.pem")),
            crl: of_server,
            ..ServerFiles::default()
        };
        let client =
            ClientFiles { identity: Some(client.clone()), crl: of_client, ..authority.client_files() };
        let (mut server_stream, mut client_stream) = streams();
        server_stream.begin_tls_server(&TlsServer::load(&server).unwrap(), &[]).unwrap();
        let client = TlsClient::load(&client).unwrap();
        client_stream.begin_tls_client(&client, "search.internal", &[Alpn::H2]).unwrap();
        shake(&mut server_stream, &mut client_stream)
    };
    assert!(shaken(&good, &good, [Some(&crl), Some(&crl)]).is_ok());
    assert!(shaken(&good, &bad, [None, Some(&crl)]).is_ok(), "nobody asked about the client");
    let (told, _) = shaken(&good, &bad, [Some(&crl), None]).unwrap_err();
    assert!(told.contains("Revoked"), "{told}");
    let (_, told) = shaken(&bad, &good, [None, Some(&crl)]).unwrap_err();
    assert!(told.contains("Revoked"), "{told}");
    let (_, told) = shaken(&good, &good, [None, Some(&unrelated)]).unwrap_err();
    assert!(told.contains("UnknownRevocationStatus"), "{told}");
}

/// A server that is asked for by its SPIFFE id has that id, comes from the roots, and is not revoked.
#[test]
fn a_server_is_known_by_its_spiffe_id() {
    const ID: &str = "spiffe://corp/search";
    let (authority, other) = (Authority::new(), Authority::new());
    let mine = authority.issue("mine", &[], Some(ID));
    let crl = authority.revoke("revoked.pem", &mine.0);
    let told = |server: (PathBuf, PathBuf), crl: Option<PathBuf>| {
        let server = ServerFiles { certificate: server.0, key: server.1, ..ServerFiles::default() };
        let (mut server_stream, mut client_stream) = streams();
        server_stream.begin_tls_server(&TlsServer::load(&server).unwrap(), &[]).unwrap();
        let client = TlsClient::load(&ClientFiles { crl, ..authority.client_files() }).unwrap();
        client_stream.begin_tls_client(&client, ID, &[Alpn::H2]).unwrap();
        shake(&mut server_stream, &mut client_stream).err().map(|(_, client)| client)
    };
    assert_eq!(told(mine.clone(), None), None);
    let of = |file, uri| authority.issue(file, &["search.internal"], uri);
    for (server, crl, reason) in [
        (
            of("one", Some("spiffe://corp/other")),
            None,
            "the server is spiffe://corp/other, not spiffe://corp/search",
        ),
        (of("two", None), None, "the server has no SPIFFE id"),
        (other.issue("false", &[], Some(ID)), None, "UnknownIssuer"),
        (mine, Some(crl), "Revoked"),
    ] {
        let told = told(server, crl).expect("refused");
        assert!(told.contains(reason), "{told}");
    }
}

#[test]
fn changed_files_are_noticed_and_used() {
    let authority = Authority::new();
    let files = authority.server_files();
    let mut watch = files.watch();
    assert!(!watch.has_changed());
    let client = TlsClient::load(&authority.client_files()).unwrap();
    let old = TlsServer::load(&files).unwrap();
    // Renamed into place, as orchestrators do.
    let (certificate, key) = authority.issue("new", &["renamed.internal"], None);
    std::fs::rename(certificate, &files.certificate).unwrap();
    std::fs::rename(key, &files.key).unwrap();
    assert!(watch.has_changed() && !watch.has_changed());
    let new = TlsServer::load(&files).unwrap();
    secured(&old, &client, "search.internal", &[Alpn::H2]);
    secured(&new, &client, "renamed.internal", &[Alpn::H2]);
}

#[test]
fn files_of_no_use_are_looked_at_again() {
    let authority = Authority::new();
    let files = authority.server_files();
    let mut watch = files.watch();
    // Read while only root may: what comes later is no change of its contents.
    std::fs::set_permissions(&files.key, PermissionsExt::from_mode(0o640)).unwrap();
    assert!(watch.has_changed() && !watch.has_changed());
    watch.try_again();
    assert!(watch.has_changed() && !watch.has_changed(), "nothing changed, and nothing was of use");
}

#[test]
fn neither_a_pipe_nor_an_endless_file_is_read() {
    let authority = Authority::new();
    let refused = |files: &ServerFiles| TlsServer::load(files).map(drop).unwrap_err().to_string();
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe.pem");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
    let files = ServerFiles { certificate: pipe, ..authority.server_files() };
    assert!(refused(&files).ends_with("pipe.pem: is no regular file; write the path of one"));
    let files = ServerFiles { key: "/dev/zero".into(), ..authority.server_files() };
    assert!(refused(&files).contains("is no regular file"));
    let long = folder.path().join("long.pem");
    std::fs::File::create(&long).unwrap().set_len(TLS_FILE_BYTES_MAX + 1).unwrap();
    let files = ServerFiles { client_ca: Some(long), ..authority.server_files() };
    assert!(refused(&files).ends_with("long.pem: has more than 16777216 bytes"));
}

/// Only versions that are not broken: a ClientHello of TLS 1.1 is refused with an alert.
#[test]
fn old_versions_are_refused() {
    let authority = Authority::new();
    let server = TlsServer::load(&authority.server_files()).unwrap();
    let (mut server_stream, mut client_stream) = streams();
    // Version 3.2, no session, one suite, no compression; the extension says signature algorithms.
    let mut hello = vec![0x16, 3, 1, 0, 55, 1, 0, 0, 51, 3, 2];
    hello.extend([7; 32]);
    hello.extend([0, 0, 2, 0, 0x2f, 1, 0, 0, 8, 0, 13, 0, 4, 0, 2, 4, 3]);
    server_stream.begin_tls_server(&server, &hello).unwrap();
    let until = Clock::now() + WATCHDOG;
    let told = loop {
        match server_stream.handshake() {
            Ok(done) => assert!(!done && Clock::now() < until),
            Err(error) => break error.to_string(),
        }
    };
    assert!(told.to_lowercase().contains("version") || told.contains("Tls12"), "{told}");
    let mut buffer = [0; 16];
    while let Transfer::NotReady = client_stream.read(&mut buffer).unwrap() {
        assert!(Clock::now() < until);
    }
    assert_eq!(buffer[0], 0x15, "an alert");
}

#[test]
fn what_people_are_told_about_files() {
    let authority = Authority::new();
    let good = authority.server_files();
    let other = authority.issue("other", &["other.internal"], None);
    let file = |name: &str, content: &str| {
        let path = authority.path(name);
        std::fs::File::create(&path).unwrap().write_all(content.as_bytes()).unwrap();
        path
    };
    let told = |certificate: &Path, key: &Path, client_ca: Option<PathBuf>| {
        let (certificate, key) = (certificate.to_owned(), key.to_owned());
        let files = ServerFiles { certificate, key, client_ca, ..ServerFiles::default() };
        TlsServer::load(&files).unwrap_err().to_string()
    };
    let empty = file("empty.pem", "");
    let nonsense = file("nonsense.pem", "-----BEGIN CERTIFICATE-----\nä\n-----END CERTIFICATE-----\n");
    for (told, says) in [
        (told(Path::new("/no/such.pem"), &good.key, None), "/no/such.pem: cannot be read: No such file"),
        (told(&empty, &good.key, None), "empty.pem: holds no -----BEGIN CERTIFICATE-----"),
        (told(&good.key, &good.key, None), "server.key: holds no -----BEGIN CERTIFICATE-----"),
        (told(&nonsense, &good.key, None), "nonsense.pem: is not PEM"),
        (
            told(&good.certificate, &good.certificate, None),
            "server.pem: holds no -----BEGIN PRIVATE KEY-----",
        ),
        (told(&good.certificate, &other.1, None), "the key must be the one"),
        (told(&good.certificate, &good.key, Some(empty.clone())), "empty.pem: holds no"),
    ] {
        assert!(told.contains(says), "{told}");
    }
}
