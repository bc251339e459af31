//! Keys and certificates from files.

use super::keys::{KeysError, TlsClient, TlsServer, TlsVersions};
use super::verify::Trust;
use crate::regular_file::{RegularFileError, read_regular};
use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
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
    /// Certificates of clients that are valid no longer: CRLs, PEM (RFC 5280, section 5). `None` asks nobody.
    pub crl: Option<PathBuf>,
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
    /// Certificates of servers that are valid no longer: CRLs, PEM. `None` asks nobody.
    pub crl: Option<PathBuf>,
    /// The client's own certificate and key, PEM.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Servers are not asked who they are: anybody may pose as anybody. For tools, when somebody says so.
    pub trusts_anyone: bool,
    /// The versions of TLS that are spoken.
    pub versions: TlsVersions,
}

/// Notices that files have changed.
#[derive(Clone, Debug)]
pub struct TlsWatch {
    files: Vec<PathBuf>,
    seen: Vec<Option<Sight>>,
    /// What was seen last could not be used.
    is_unused: bool,
}

/// What tells one version of a file from another: device, inode, size, and the seconds and nanoseconds at which its
/// contents and its inode changed last, for a file is of use when it may be read, too. A secret mounted by an
/// orchestrator changes by a link, so links are followed.
type Sight = (u64, u64, u64, [i64; 4]);

/// No file of keys, certificates or revocations has more: the bundle of a system's roots has a quarter of a MiB.
pub const TLS_FILE_BYTES_MAX: u64 = 16 << 20;

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

impl TlsServer {
    /// Reads a server's files.
    ///
    /// # Errors
    /// [`TlsError`] names the file and what is wrong with it.
    pub fn load(files: &ServerFiles) -> Result<Self, TlsError> {
        let (chain, key) = (certificates(&files.certificate)?, private_key(&files.key)?);
        let of_clients = |path: &PathBuf| {
            let trust = trust(roots(path)?, files.crl.as_deref())?;
            trust.of_clients(files.client_certificate_is_optional).map_err(|why| content(path, why))
        };
        let clients = files.client_ca.as_ref().map(of_clients).transpose()?;
        Self::new((chain, key), clients, files.versions)
            .map_err(|why| mismatch(&files.certificate, &files.key, &why))
    }
}

impl TlsClient {
    /// Reads a client's files.
    ///
    /// # Errors
    /// [`TlsError`] names the file and what is wrong with it.
    pub fn load(files: &ClientFiles) -> Result<Self, TlsError> {
        let trust = if files.trusts_anyone { None } else { Some(files.trust()?) };
        let read =
            |(certificate, key): &(PathBuf, PathBuf)| Ok((certificates(certificate)?, private_key(key)?));
        let own = files.identity.as_ref().map(read).transpose()?;
        Self::new(own, trust, files.versions).map_err(|why| match (&files.identity, why) {
            (Some((certificate, key)), KeysError::Own(why)) => mismatch(certificate, key, &why),
            (_, why) => content(files.ca.as_deref().unwrap_or(Path::new("system roots")), why),
        })
    }
}

impl ServerFiles {
    /// What to watch.
    pub fn watch(&self) -> TlsWatch {
        let files = [&self.certificate, &self.key].into_iter().chain(&self.client_ca).chain(&self.crl);
        TlsWatch::new(files.cloned().collect())
    }
}

impl ClientFiles {
    /// What to watch.
    pub fn watch(&self) -> TlsWatch {
        let own = self.identity.iter().flat_map(|(certificate, key)| [certificate, key]);
        TlsWatch::new(self.ca.iter().chain(&self.crl).chain(own).cloned().collect())
    }

    fn trust(&self) -> Result<Trust, TlsError> {
        let roots = match &self.ca {
            Some(path) => roots(path)?,
            None => system_roots()?,
        };
        trust(roots, self.crl.as_deref())
    }
}

impl TlsWatch {
    fn new(files: Vec<PathBuf>) -> Self {
        let seen = files.iter().map(|path| sight(path)).collect();
        Self { files, seen, is_unused: false }
    }

    /// Whether any file is another than when this was last asked, or was [of no use](TlsWatch::try_again) then.
    pub fn has_changed(&mut self) -> bool {
        let now: Vec<_> = self.files.iter().map(|path| sight(path)).collect();
        let changed = now != self.seen || self.is_unused;
        (self.seen, self.is_unused) = (now, false);
        changed
    }

    /// What is there cannot be used: it is looked at once more, for what hinders (no descriptor left, say) may pass
    /// without a change of the files.
    pub fn try_again(&mut self) {
        self.is_unused = true;
    }

    /// Whether it watches nothing.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }
}

fn sight(path: &Path) -> Option<Sight> {
    let times = |it: &fs::Metadata| [it.mtime(), it.mtime_nsec(), it.ctime(), it.ctime_nsec()];
    fs::metadata(path).ok().map(|it| (it.dev(), it.ino(), it.size(), times(&it)))
}

fn contents(path: &Path) -> Result<Vec<u8>, TlsError> {
    let read = read_regular(path, TLS_FILE_BYTES_MAX, |_| Ok(()));
    read.map_err(|why: RegularFileError| match why {
        RegularFileError::Unreadable(why) => {
            TlsError::Unreadable { path: path.to_owned(), why: why.to_string() }
        }
        why => content(path, why),
    })
}

pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    match CertificateDer::pem_slice_iter(&contents(path)?).collect::<Result<Vec<_>, _>>() {
        Ok(found) if found.is_empty() => Err(content(path, "holds no -----BEGIN CERTIFICATE-----")),
        Ok(found) => Ok(found),
        Err(why) => Err(unusable(path, why)),
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(&contents(path)?).map_err(|why| match why {
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

/// Roots, and the lists of what they, and those below them, have revoked.
fn trust(roots: RootCertStore, crl: Option<&Path>) -> Result<Trust, TlsError> {
    let lists = crl.map(revocation_lists).transpose()?.unwrap_or_default();
    Trust::of_roots(roots, lists).map_err(|why| content(crl.unwrap_or(Path::new("")), why))
}

fn revocation_lists(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    match CertificateRevocationListDer::pem_slice_iter(&contents(path)?).collect::<Result<Vec<_>, _>>() {
        Ok(found) if found.is_empty() => Err(content(path, "holds no -----BEGIN X509 CRL-----")),
        Ok(found) => Ok(found),
        Err(why) => Err(unusable(path, why)),
    }
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
    content(path, format!("is not PEM: {why}"))
}

fn content(path: &Path, what: impl ToString) -> TlsError {
    TlsError::Content { path: path.to_owned(), what: what.to_string() }
}

fn mismatch(certificate: &Path, key: &Path, why: &rustls::Error) -> TlsError {
    TlsError::Mismatch { certificate: certificate.to_owned(), key: key.to_owned(), why: why.to_string() }
}
