//! Keys, certificates and whom to believe, ready for connections, wherever they come from.

use super::Alpn;
use super::portable::Capture;
use super::provider::PROVIDER;
use super::verify::{Anyone, SpiffeServer, Trust};
use rustls::client::Resumption;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoClientAuth, NoServerSessionStorage, VerifierBuilderError};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ServerConfig, SupportedProtocolVersion};
use std::sync::Arc;
use thiserror::Error;

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
    /// Whom it believes; `None`: everybody.
    trust: Option<Arc<Trust>>,
}

/// A certificate, those between it and the root, and its key.
pub(super) type Own = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// Why keys cannot be put to work.
#[derive(Debug, Error)]
pub(super) enum KeysError {
    /// One's own do not belong together.
    #[error("{0}")]
    Own(rustls::Error),
    /// Nobody can be believed by them.
    #[error("{0}")]
    Trust(#[from] VerifierBuilderError),
}

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
    /// Serves with these. `clients` checks who connects; without it nobody is asked.
    pub(super) fn new(
        (chain, key): Own,
        clients: Option<Arc<dyn ClientCertVerifier>>,
        versions: TlsVersions,
    ) -> Result<Self, rustls::Error> {
        let asks_clients = clients.is_some();
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&PROVIDER))
            .with_protocol_versions(versions.supported())
            .expect("the provider has suites for TLS 1.2 and 1.3")
            .with_client_cert_verifier(clients.unwrap_or_else(|| Arc::new(NoClientAuth)))
            .with_single_cert(chain, key)?;
        (config.enable_secret_extraction, config.key_log) = (true, Arc::new(Capture));
        if asks_clients {
            // Who resumes a session is who began it: nobody looks at the certificate again, which may have expired.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        let mut grpc = config.clone();
        grpc.alpn_protocols = vec![Alpn::H2.name().to_vec()];
        config.alpn_protocols = Alpn::OF_DAEMONS.iter().map(|alpn| alpn.name().to_vec()).collect();
        Ok(Self { config: Arc::new(config), grpc: Arc::new(grpc) })
    }

    /// These keys for a relay, with which nothing but relayed sessions is spoken.
    #[must_use]
    pub fn for_relay(&self) -> Self {
        let mut config = ServerConfig::clone(&self.config);
        config.alpn_protocols = vec![Alpn::Attach.name().to_vec()];
        let config = Arc::new(config);
        Self { config: Arc::clone(&config), grpc: config }
    }

    /// These keys for connections on which nothing but gRPC is spoken, whatever else the other side offers.
    #[must_use]
    pub fn for_grpc(&self) -> Self {
        Self { config: Arc::clone(&self.grpc), grpc: Arc::clone(&self.grpc) }
    }
}

impl TlsClient {
    /// Calls with these, and believes these; without them, everybody.
    pub(super) fn new(
        own: Option<Own>,
        trust: Option<Trust>,
        versions: TlsVersions,
    ) -> Result<Self, KeysError> {
        let verifier: Arc<dyn ServerCertVerifier> = match &trust {
            None => Arc::new(Anyone),
            Some(trust) => trust.of_servers()?,
        };
        let builder = ClientConfig::builder_with_provider(Arc::clone(&PROVIDER))
            .with_protocol_versions(versions.supported())
            .expect("the provider has suites for TLS 1.2 and 1.3")
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let mut config = match own {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => builder.with_client_auth_cert(chain, key).map_err(KeysError::Own)?,
        };
        (config.enable_secret_extraction, config.key_log) = (true, Arc::new(Capture));
        if trust.is_some() {
            // A server that resumes shows no certificate, which may have expired.
            config.resumption = Resumption::disabled();
        }
        Ok(Self { config: Arc::new(config), trust: trust.map(Arc::new) })
    }

    /// These keys for a server that must have this SPIFFE id, whatever it is called.
    pub(super) fn for_spiffe_id(&self, id: &str) -> Arc<ClientConfig> {
        let Some(trust) = &self.trust else { return Arc::clone(&self.config) };
        let mut config = ClientConfig::clone(&self.config);
        let verifier = SpiffeServer { trust: Arc::clone(trust), id: id.to_owned() };
        config.dangerous().set_certificate_verifier(Arc::new(verifier));
        Arc::new(config)
    }
}

#[cfg(test)]
mod tests {
    //! Shows that clients whose certificates are asked for show them for every connection.
    use super::super::{ClientFiles, ServerFiles};
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
    use rustls::{ClientConnection, HandshakeKind, ServerConnection};
    use std::path::PathBuf;

    fn pass_on(write: impl FnOnce(&mut Vec<u8>) -> std::io::Result<usize>, mut read: impl FnMut(&mut &[u8])) {
        let mut bytes = Vec::new();
        write(&mut bytes).unwrap();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            read(&mut rest);
        }
    }

    fn connect(server: &TlsServer, client: &TlsClient) -> HandshakeKind {
        let mut server = ServerConnection::new(Arc::clone(&server.config)).unwrap();
        let name = "search.internal".try_into().unwrap();
        let mut client = ClientConnection::new(Arc::clone(&client.config), name).unwrap();
        while client.wants_write() || server.wants_write() {
            if client.wants_write() {
                pass_on(
                    |bytes| client.write_tls(bytes),
                    |rest| {
                        server.read_tls(rest).unwrap();
                        server.process_new_packets().unwrap();
                    },
                );
            }
            if server.wants_write() {
                pass_on(
                    |bytes| server.write_tls(bytes),
                    |rest| {
                        client.read_tls(rest).unwrap();
                        client.process_new_packets().unwrap();
                    },
                );
            }
        }
        assert!(!server.is_handshaking());
        server.handshake_kind().unwrap()
    }

    #[test]
    fn no_session_of_a_client_with_a_certificate_is_resumed() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: String| -> PathBuf {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority");
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let ca = write("ca.pem", issuer.pem());
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec!["search.internal".into()]).unwrap();
        let certificate = write("own.pem", certificate.signed_by(&key, &issuer).unwrap().pem());
        let key = write("own.key", key.serialize_pem());
        for version in [TlsVersion::V1_2, TlsVersion::V1_3] {
            let versions = TlsVersions { min: version, max: version };
            let own = (certificate.clone(), key.clone());
            let client = |own: (PathBuf, PathBuf), trusts_anyone: bool| ClientFiles {
                ca: Some(ca.clone()).filter(|_| !trusts_anyone),
                identity: Some(own),
                versions,
                trusts_anyone,
                ..ClientFiles::default()
            };
            // A side that looks at certificates looks each time.
            for (client_ca, trusts_anyone, second) in [
                (None, true, HandshakeKind::Resumed),
                (None, false, HandshakeKind::Full),
                (Some(ca.clone()), true, HandshakeKind::Full),
            ] {
                let (certificate, key) = (certificate.clone(), key.clone());
                let files = ServerFiles { certificate, key, client_ca, versions, ..ServerFiles::default() };
                let server = TlsServer::load(&files).unwrap();
                let client = TlsClient::load(&client(own.clone(), trusts_anyone)).unwrap();
                assert_eq!(connect(&server, &client), HandshakeKind::Full);
                assert_eq!(connect(&server, &client), second, "{version:?}");
            }
        }
    }
}
