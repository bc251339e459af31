//! A workload's certificate, key and roots, as the SPIFFE Workload API tells them (SPIFFE Workload API, section 5.2).

use super::der::sequences;
use super::identity::{is_spiffe_id, trust_domain};
use super::keys::{KeysError, Own, TlsClient, TlsServer, TlsVersions};
use super::verify::{SpiffeClients, Trust};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivatePkcs8KeyDer};
use std::collections::HashMap;
use std::sync::Arc;

/// An X.509-SVID with what it takes to check others, as it is told.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Svid {
    /// The SPIFFE id.
    pub id: String,
    /// The certificate and those between it and the root: DER, one behind the other.
    pub chain: Vec<u8>,
    /// The private key: PKCS#8, DER.
    pub key: Vec<u8>,
    /// The roots of the id's trust domain: DER, one behind the other.
    pub roots: Vec<u8>,
    /// The roots of other trust domains, by the domain's name or id.
    pub federated: Vec<(String, Vec<u8>)>,
    /// Lists of revoked certificates, DER.
    pub lists: Vec<Vec<u8>>,
}

impl Svid {
    /// Keys to serve and to call with. Clients are asked for an SVID of a trust domain whose roots are known; with
    /// `is_optional` they may have none, and no identity then.
    ///
    /// # Errors
    /// What is wrong with which part.
    pub fn keys(&self, versions: TlsVersions, is_optional: bool) -> Result<(TlsServer, TlsClient), String> {
        let clients = SpiffeClients { trust: self.trust()?, is_optional };
        let server = TlsServer::new(self.own()?, Some(Arc::new(clients)), versions);
        let server = server.map_err(|why| format!("{}: certificate and key: {why}", self.id))?;
        let client = TlsClient::new(Some(self.own()?), Some(self.trust()?), versions);
        let client = client.map_err(|why| match why {
            KeysError::Own(why) => format!("{}: certificate and key: {why}", self.id),
            KeysError::Trust(why) => format!("{}: roots: {why}", self.id),
        })?;
        Ok((server, client))
    }

    fn own(&self) -> Result<Own, String> {
        let chain = certificates(&self.chain).filter(|chain| !chain.is_empty());
        let chain = chain.ok_or_else(|| format!("{}: the certificate is not DER", self.id))?;
        Ok((chain, PrivatePkcs8KeyDer::from(self.key.clone()).into()))
    }

    fn trust(&self) -> Result<Trust, String> {
        let domain = trust_domain(&self.id).filter(|_| is_spiffe_id(&self.id));
        let domain = domain.ok_or_else(|| format!("{:?} is not a SPIFFE id", self.id))?;
        let mut domains = HashMap::from([(domain.to_owned(), store(domain, &self.roots)?)]);
        for (other, roots) in &self.federated {
            let other = trust_domain(other).unwrap_or(other);
            // What another says about one's own domain does not count.
            if other != domain {
                domains.insert(other.to_owned(), store(other, roots)?);
            }
        }
        let lists = self.lists.iter().cloned().map(CertificateRevocationListDer::from).collect();
        Trust::of_domains(domain, domains, lists).map_err(|why| format!("{} {why}", self.id))
    }
}

/// Without the key.
impl std::fmt::Debug for Svid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Svid").field("id", &self.id).finish_non_exhaustive()
    }
}

fn store(domain: &str, der: &[u8]) -> Result<Arc<RootCertStore>, String> {
    let roots = certificates(der).ok_or_else(|| format!("the roots of {domain} are not DER"))?;
    let mut store = RootCertStore::empty();
    for root in roots {
        store
            .add(root)
            .map_err(|why| format!("the roots of {domain} have one that cannot be used: {why}"))?;
    }
    Ok(Arc::new(store))
}

fn certificates(der: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let certificates = sequences(der)?;
    Some(certificates.into_iter().map(|one| CertificateDer::from(one.to_vec())).collect())
}
