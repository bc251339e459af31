//! Who a peer is, by its certificate.

use rustls::pki_types::CertificateDer;

/// What a verified certificate says of its holder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Identity {
    /// DNS names (subject alternative names), as they stand there, wildcards included.
    pub dns: Vec<String>,
    /// URI names.
    pub uris: Vec<String>,
}

/// What a URI must begin with to be a SPIFFE id.
const SPIFFE: &str = "spiffe://";

impl Identity {
    /// Reads a certificate that has been verified. One without names has none; it is not an error.
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Self {
        let Ok(parsed) = webpki::EndEntityCert::try_from(certificate) else { return Self::default() };
        Self {
            dns: parsed.valid_dns_names().map(str::to_owned).collect(),
            uris: parsed.valid_uri_names().map(str::to_owned).collect(),
        }
    }

    /// The SPIFFE id, if there is exactly one URI name and it is one (SPIFFE X.509-SVID, section 2).
    pub fn spiffe_id(&self) -> Option<&str> {
        match &self.uris[..] {
            [only] if only.starts_with(SPIFFE) => Some(only),
            _ => None,
        }
    }
}
