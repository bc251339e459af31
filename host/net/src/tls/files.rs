//! Keys and certificates from files.

use super::portable::Capture;
use super::provider::PROVIDER;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme,
    SupportedProtocolVersion,
};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;

/// What a server reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerFiles {
    /// The certificate and those between it and the root, PEM.
    pub certificate: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
    /// Roots of the clients' certificates, PEM; `None` asks clients for no certificate.
    pub client_ca: Option<PathBuf>,
    /// Clients without a certificate are taken, too; they have no identity.
    pub client_certificate_is_optional: bool,
    /// The versions of TLS that are spoken.
    pub versions: TlsVersions,
}

/// What a client reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientFiles {
    /// Roots of the servers' certificates, PEM; `None` uses the system's.
    pub ca: Option<PathBuf>,
    /// The client's own certificate and key, PEM.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Servers are not asked who they are: anybody may pose as anybody. For tools, when somebody says so.
    pub trusts_anyone: bool,
    /// The versions of TLS that are spoken.
    pub versions: TlsVersions,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// RFC 5246.
    V1_2,
    /// RFC 8446.
    V1_3,
}

/// Which versions are spoken; the default is all there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsVersions {
    /// The oldest.
    pub min: TlsVersion,
    /// The newest. Not older than the oldest.
    pub max: TlsVersion,
}

/// A server's keys, ready for connections.
#[derive(Clone, Debug)]
pub struct TlsServer {
    pub(super) config: Arc<ServerConfig>,
    /// The same where nothing but gRPC is spoken.
    grpc: Arc<ServerConfig>,
}

/// A client's roots and keys, ready for connections.
#[derive(Clone, Debug)]
pub struct TlsClient {
    pub(super) config: Arc<ClientConfig>,
}

/// Notices that files have changed.
#[derive(Clone, Debug)]
pub struct TlsWatch {
    files: Vec<PathBuf>,
    seen: Vec<Option<Sight>>,
}

/// What tells one version of a file from another: device, inode, size, time of the last change in seconds and
/// nanoseconds. A secret mounted by an orchestrator changes by a link, so links are followed.
type Sight = (u64, u64, u64, i64, i64);

/// Why keys and certificates cannot be used.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{path}: cannot be read: {why}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        why: String,
    },
    /// A file has the wrong content.
    #[error("{path}: {what}")]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what is expected.
        what: String,
    },
    /// Certificate and key are each fine, and do not belong together.
    #[error(
        "{certificate} and {key}: {why}; the key must be the one the first certificate of the file was made for"
    )]
    Mismatch {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// What the library says.
        why: String,
    },
    /// No roots were named and the system has none where they usually are.
    #[error("no root certificates: none of {looked} exists; name a file")]
    NoRoots {
        /// Where they were looked for.
        looked: String,
    },
}

/// Where distributions keep the roots they trust.
const SYSTEM_ROOTS: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

impl Default for TlsVersions {
    fn default() -> Self {
        Self { min: TlsVersion::V1_2, max: TlsVersion::V1_3 }
    }
}

impl TlsVersions {
    fn supported(self) -> &'static [&'static SupportedProtocolVersion] {
        static NEWEST_FIRST: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];
        match (self.min, self.max) {
            (TlsVersion::V1_3, _) => &NEWEST_FIRST[..1],
            (_, TlsVersion::V1_2) => &NEWEST_FIRST[1..],
            (TlsVersion::V1_2, TlsVersion::V1_3) => &NEWEST_FIRST,
        }
    }
}

impl TlsServer {
    /// Reads a server's files.
    ///
    /// # Errors
    /// [`TlsError`] names the file and what is wrong with it.
    pub fn load(files: &ServerFiles) -> Result<Self, TlsError> {
        let chain = certificates(&files.certificate)?;
        let key = private_key(&files.key)?;
        let builder = ServerConfig::builder_with_provider(Arc::clone(&PROVIDER))
            .with_protocol_versions(files.versions.supported())
            .expect("the provider has suites for TLS 1.2 and 1.3");
        let builder = match &files.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(
                    Arc::new(roots(path)?),
                    Arc::clone(&PROVIDER),
                );
                let verifier = match files.client_certificate_is_optional {
                    true => verifier.allow_unauthenticated().build(),
                    false => verifier.build(),
                };
                builder.with_client_cert_verifier(verifier.map_err(|why| content(path, why))?)
            }
        };
        let mut config = builder
            .with_single_cert(chain, key)
            .map_err(|why| mismatch(&files.certificate, &files.key, &why))?;
        (config.enable_secret_extraction, config.key_log) = (true, Arc::new(Capture));
        let mut grpc = config.clone();
        grpc.alpn_protocols = vec![super::Alpn::H2.name().to_vec()];
        config.alpn_protocols = super::Alpn::ALL.iter().map(|alpn| alpn.name().to_vec()).collect();
        Ok(Self { config: Arc::new(config), grpc: Arc::new(grpc) })
    }

    /// These keys for connections on which nothing but gRPC is spoken, whatever else the other side offers.
    #[must_use]
    pub fn for_grpc(&self) -> Self {
        Self { config: Arc::clone(&self.grpc), grpc: Arc::clone(&self.grpc) }
    }
}

impl TlsClient {
    /// Reads a client's files.
    ///
    /// # Errors
    /// [`TlsError`] names the file and what is wrong with it.
    pub fn load(files: &ClientFiles) -> Result<Self, TlsError> {
        let builder = ClientConfig::builder_with_provider(Arc::clone(&PROVIDER))
            .with_protocol_versions(files.versions.supported())
            .expect("the provider has suites for TLS 1.2 and 1.3");
        let builder = match files.trusts_anyone {
            true => builder.dangerous().with_custom_certificate_verifier(Arc::new(Anyone)),
            false => builder.with_webpki_verifier(verifier(files)?),
        };
        let mut config = match &files.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => builder
                .with_client_auth_cert(certificates(certificate)?, private_key(key)?)
                .map_err(|why| mismatch(certificate, key, &why))?,
        };
        (config.enable_secret_extraction, config.key_log) = (true, Arc::new(Capture));
        Ok(Self { config: Arc::new(config) })
    }
}

/// Checks what a client is shown against its roots.
fn verifier(files: &ClientFiles) -> Result<Arc<WebPkiServerVerifier>, TlsError> {
    let roots = match &files.ca {
        Some(path) => roots(path)?,
        None => system_roots()?,
    };
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&PROVIDER));
    let named = || files.ca.as_deref().unwrap_or(Path::new("system roots"));
    verifier.build().map_err(|why| content(named(), why))
}

/// Takes whatever certificate it is shown. That the server has its key is checked all the same.
#[derive(Debug)]
struct Anyone;

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &PROVIDER.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &PROVIDER.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        PROVIDER.signature_verification_algorithms.supported_schemes()
    }
}

impl ServerFiles {
    /// What to watch.
    pub fn watch(&self) -> TlsWatch {
        let files = [&self.certificate, &self.key].into_iter().chain(&self.client_ca);
        TlsWatch::new(files.cloned().collect())
    }
}

impl ClientFiles {
    /// What to watch.
    pub fn watch(&self) -> TlsWatch {
        let own = self.identity.iter().flat_map(|(certificate, key)| [certificate, key]);
        TlsWatch::new(self.ca.iter().chain(own).cloned().collect())
    }
}

impl TlsWatch {
    fn new(files: Vec<PathBuf>) -> Self {
        let seen = files.iter().map(|path| sight(path)).collect();
        Self { files, seen }
    }

    /// Whether any file is another than when this was last asked.
    pub fn has_changed(&mut self) -> bool {
        let now: Vec<_> = self.files.iter().map(|path| sight(path)).collect();
        let changed = now != self.seen;
        self.seen = now;
        changed
    }

    /// Whether it watches nothing.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }
}

fn sight(path: &Path) -> Option<Sight> {
    fs::metadata(path).ok().map(|it| (it.dev(), it.ino(), it.size(), it.mtime(), it.mtime_nsec()))
}

pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(found) if found.is_empty() => Err(content(path, "holds no -----BEGIN CERTIFICATE-----")),
        Ok(found) => Ok(found),
        Err(why) => Err(unusable(path, why)),
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(|why| match why {
        pem::Error::NoItemsFound => {
            let what = "holds no -----BEGIN PRIVATE KEY----- (PKCS#8, SEC 1 or PKCS#1, not encrypted)";
            content(path, what)
        }
        why => unusable(path, why),
    })
}

fn roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|why| content(path, format!("holds no usable root: {why}")))?;
    }
    Ok(roots)
}

/// The roots the system trusts. Some bundles hold a certificate no library takes; it is left out.
fn system_roots() -> Result<RootCertStore, TlsError> {
    let Some(path) = SYSTEM_ROOTS.iter().map(Path::new).find(|path| path.exists()) else {
        return Err(TlsError::NoRoots { looked: SYSTEM_ROOTS.join(", ") });
    };
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates(path)?);
    Ok(roots)
}

fn unusable(path: &Path, why: pem::Error) -> TlsError {
    match why {
        pem::Error::Io(why) => TlsError::Unreadable { path: path.to_owned(), why: why.to_string() },
        why => content(path, format!("is not PEM: {why}")),
    }
}

fn content(path: &Path, what: impl ToString) -> TlsError {
    TlsError::Content { path: path.to_owned(), what: what.to_string() }
}

fn mismatch(certificate: &Path, key: &Path, why: &rustls::Error) -> TlsError {
    TlsError::Mismatch { certificate: certificate.to_owned(), key: key.to_owned(), why: why.to_string() }
}
