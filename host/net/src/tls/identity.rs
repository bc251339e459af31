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

/// What users of this host are called by: the kernel says who they are, and no certificate does.
const USER: &str = "uid:";

/// What a URI must begin with to be a SPIFFE id.
const SPIFFE: &str = "spiffe://";

impl Identity {
    /// Reads a certificate that has been verified. One without names has none; it is not an error.
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Self {
        let Ok(parsed) = webpki::EndEntityCert::try_from(certificate) else { return Self::default() };
        Self::named(parsed.valid_dns_names(), parsed.valid_uri_names())
    }

    /// Of these names. Names of one kind are not taken if one of them is as that of a user of this host.
    fn named<'a>(dns: impl Iterator<Item = &'a str>, uris: impl Iterator<Item = &'a str>) -> Self {
        Self { dns: names(dns), uris: names(uris) }
    }

    /// The SPIFFE id, if there is exactly one URI name and it is one (SPIFFE X.509-SVID, section 2).
    pub fn spiffe_id(&self) -> Option<&str> {
        match &self.uris[..] {
            [only] if only.starts_with(SPIFFE) => Some(only),
            _ => None,
        }
    }
}

fn names<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let names: Vec<String> = names.map(str::to_owned).collect();
    if names.iter().any(|name| name.starts_with(USER)) { Vec::new() } else { names }
}

/// The trust domain of a SPIFFE id (SPIFFE-ID, section 2.1).
pub(super) fn trust_domain(id: &str) -> Option<&str> {
    id.strip_prefix(SPIFFE)?.split('/').next()
}

/// Longest SPIFFE id (SPIFFE-ID, section 2.3).
const SPIFFE_BYTES_MAX: usize = 2048;

/// Whether a text is a SPIFFE id of a workload: a trust domain and a path (SPIFFE-ID, sections 2.1 and 2.2).
pub(crate) fn is_spiffe_id(text: &str) -> bool {
    let Some((domain, path)) = text.strip_prefix(SPIFFE).and_then(|rest| rest.split_once('/')) else {
        return false;
    };
    let of_domain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'_');
    let of_path = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    let is_segment = |segment: &str| !matches!(segment, "" | "." | "..") && segment.bytes().all(of_path);
    text.len() <= SPIFFE_BYTES_MAX
        && (1..=255).contains(&domain.len())
        && domain.bytes().all(of_domain)
        && path.split('/').all(is_segment)
}

#[cfg(test)]
mod tests {
    //! Lists what is a SPIFFE id, and which names of a certificate count.
    use super::*;

    #[test]
    fn no_certificate_names_a_user_of_this_host() {
        let id = "spiffe://corp/search";
        for (uris, taken) in [
            (&["uid:0"][..], &[][..]),
            (&["uid:1000", id], &[]),
            (&[id, "uid:"], &[]),
            (&[id, "https://corp/uid:0"], &[id, "https://corp/uid:0"]),
        ] {
            let identity = Identity::named(["a.corp"].into_iter(), uris.iter().copied());
            assert_eq!(identity.uris, taken, "{uris:?}");
            assert_eq!(
                (identity.spiffe_id(), &identity.dns[..]),
                (None, &["a.corp".to_owned()][..]),
                "{uris:?}"
            );
        }
        let identity = Identity::named(["uid:0"].into_iter(), [id].into_iter());
        assert_eq!((identity.dns.len(), identity.spiffe_id()), (0, Some(id)));
    }

    #[test]
    fn what_is_a_spiffe_id() {
        let long = format!("spiffe://corp/{}", "x".repeat(2048));
        for (text, is_one) in [
            ("spiffe://corp/search", true),
            ("spiffe://corp.example/ns/shop/sa/Cart_1.b-c", true),
            ("spiffe://corp", false),
            ("spiffe://corp/", false),
            ("spiffe://Corp/a", false),
            ("spiffe:///a", false),
            ("spiffe://corp/a//b", false),
            ("spiffe://corp/a/../b", false),
            ("spiffe://corp/a?b", false),
            ("spiffe://corp/a@b", false),
            ("https://corp/a", false),
            (&long, false),
        ] {
            assert_eq!(is_spiffe_id(text), is_one, "{text}");
        }
    }
}
