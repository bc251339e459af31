//! Who is believed: roots, lists of revoked certificates, and servers known by their SPIFFE id.
//!
//! With lists, every certificate between the peer's and the root must be on no list of its issuer, and every issuer
//! must have one: where nothing is known of a certificate, it is refused (RFC 5280, section 6.3). A list that is past
//! its next update is used on; who replaces the file decides when.

use super::identity::{Identity, trust_domain};
use super::provider::PROVIDER;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme,
};
use std::collections::HashMap;
use std::sync::Arc;
use webpki::{
    CertRevocationList, EndEntityCert, KeyUsage, OwnedCertRevocationList, RevocationOptionsBuilder,
};

/// Roots, and what is revoked below them.
#[derive(Debug)]
pub(super) struct Trust {
    /// Of certificates that are told apart by names.
    roots: Arc<RootCertStore>,
    /// Of SPIFFE ids by trust domain, where domains have roots of their own: those of one domain say nothing about the
    /// ids of another (SPIFFE Trust Domain and Bundle, section 6).
    domains: HashMap<String, Arc<RootCertStore>>,
    lists: Vec<CertificateRevocationListDer<'static>>,
    /// The same, read.
    parsed: Vec<CertRevocationList<'static>>,
}

impl Trust {
    /// The same roots for everybody. No list: nothing is asked about revocation.
    pub fn of_roots(
        roots: RootCertStore,
        lists: Vec<CertificateRevocationListDer<'static>>,
    ) -> Result<Self, String> {
        Self::new(Arc::new(roots), HashMap::new(), lists)
    }

    /// Roots of trust domains, among them one's own.
    pub fn of_domains(
        own: &str,
        domains: HashMap<String, Arc<RootCertStore>>,
        lists: Vec<CertificateRevocationListDer<'static>>,
    ) -> Result<Self, String> {
        let roots = domains.get(own).ok_or_else(|| format!("has no roots for the trust domain {own}"))?;
        Self::new(Arc::clone(roots), domains, lists)
    }

    fn new(
        roots: Arc<RootCertStore>,
        domains: HashMap<String, Arc<RootCertStore>>,
        lists: Vec<CertificateRevocationListDer<'static>>,
    ) -> Result<Self, String> {
        let read =
            |list: &CertificateRevocationListDer<'_>| OwnedCertRevocationList::from_der(list).map(Into::into);
        let parsed = lists.iter().map(read).collect::<Result<_, _>>();
        let parsed =
            parsed.map_err(|why| format!("has a list of revoked certificates that cannot be read: {why}"))?;
        Ok(Self { roots, domains, lists, parsed })
    }

    /// Checks servers that are known by a name or an address.
    pub fn of_servers(&self) -> Result<Arc<WebPkiServerVerifier>, VerifierBuilderError> {
        WebPkiServerVerifier::builder_with_provider(Arc::clone(&self.roots), Arc::clone(&PROVIDER))
            .with_crls(self.lists.iter().cloned())
            .build()
    }

    /// Checks clients, whoever they are.
    pub fn of_clients(&self, is_optional: bool) -> Result<Arc<dyn ClientCertVerifier>, VerifierBuilderError> {
        let roots = Arc::clone(&self.roots);
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&PROVIDER))
            .with_crls(self.lists.iter().cloned());
        if is_optional { verifier.allow_unauthenticated().build() } else { verifier.build() }
    }

    /// Whether a certificate comes from a root that may say so, and is not revoked; and what its SPIFFE id is then.
    fn check(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
        usage: KeyUsage,
    ) -> Result<Option<String>, Error> {
        let id = Identity::of(certificate).spiffe_id().map(str::to_owned);
        let roots = if self.domains.is_empty() {
            Some(&self.roots)
        } else {
            id.as_deref().and_then(trust_domain).and_then(|domain| self.domains.get(domain))
        };
        let roots = roots.ok_or(CertificateError::UnknownIssuer)?;
        let lists: Vec<_> = self.parsed.iter().collect();
        let revocation = RevocationOptionsBuilder::new(&lists).ok().map(RevocationOptionsBuilder::build);
        let algorithms = PROVIDER.signature_verification_algorithms.all;
        let certificate = EndEntityCert::try_from(certificate).map_err(of_webpki)?;
        certificate
            .verify_for_usage(algorithms, &roots.roots, intermediates, now, usage, revocation, None)
            .map_err(of_webpki)?;
        Ok(id)
    }
}

/// Takes a server whose certificate has this SPIFFE id (SPIFFE X.509-SVID, section 5), whatever it is called.
#[derive(Debug)]
pub(super) struct SpiffeServer {
    pub trust: Arc<Trust>,
    pub id: String,
}

impl ServerCertVerifier for SpiffeServer {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.trust.check(certificate, intermediates, now, KeyUsage::server_auth())? {
            Some(id) if id == self.id => Ok(ServerCertVerified::assertion()),
            Some(id) => Err(Error::General(format!("the server is {id}, not {}", self.id))),
            None => Err(Error::General(format!("the server has no SPIFFE id, {} is wanted", self.id))),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Anyone.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Anyone.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        Anyone.supported_verify_schemes()
    }
}

/// Takes clients with a SPIFFE id, by the roots of its trust domain.
#[derive(Debug)]
pub(super) struct SpiffeClients {
    pub trust: Trust,
    pub is_optional: bool,
}

impl ClientCertVerifier for SpiffeClients {
    fn client_auth_mandatory(&self) -> bool {
        !self.is_optional
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let checked = self.trust.check(certificate, intermediates, now, KeyUsage::client_auth())?;
        checked.map(|_| ClientCertVerified::assertion()).ok_or(CertificateError::UnknownIssuer.into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Anyone.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Anyone.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        Anyone.supported_verify_schemes()
    }
}

/// The alert the peer gets, and what the log says.
fn of_webpki(why: webpki::Error) -> Error {
    use webpki::Error as Why;
    match why {
        Why::CertExpired { .. } => CertificateError::Expired.into(),
        Why::CertNotValidYet { .. } => CertificateError::NotValidYet.into(),
        Why::UnknownIssuer => CertificateError::UnknownIssuer.into(),
        Why::CertRevoked => CertificateError::Revoked.into(),
        Why::UnknownRevocationStatus => CertificateError::UnknownRevocationStatus.into(),
        why => Error::General(format!("invalid peer certificate: {why}")),
    }
}

/// Takes whatever certificate it is shown. That the server has its key is checked all the same.
#[derive(Debug)]
pub(super) struct Anyone;

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &PROVIDER.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &PROVIDER.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        PROVIDER.signature_verification_algorithms.supported_schemes()
    }
}
