//! An authority and the certificates it has signed, in files.

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, IsCa, KeyIdMethod,
    KeyPair, RevokedCertParams, SanType, SerialNumber, date_time_ymd,
};
use std::path::PathBuf;
use tempfile::TempDir;
use trunkline_net::{ClientFiles, TlsClient};

/// A folder with an authority, a server's certificate and a client's.
pub struct Keys {
    folder: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Keys {
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let this = Self { folder: tempfile::tempdir().unwrap(), issuer };
        std::fs::write(this.path("ca.pem"), this.issuer.pem()).unwrap();
        this.issue("server", "search.internal");
        this
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn issue(&self, file: &str, name: &str) {
        self.issue_as(file, name, "spiffe://example.org/search");
    }

    pub fn issue_as(&self, file: &str, name: &str, spiffe_id: &str) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.subject_alt_names.push(SanType::URI(spiffe_id.try_into().unwrap()));
        let key = KeyPair::generate().unwrap();
        let serial = &key.public_key_raw()[1..17];
        params.serial_number = Some(SerialNumber::from_slice(serial));
        std::fs::write(self.path(&format!("{file}.serial")), serial).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        std::fs::write(self.path(&format!("{file}.new")), key.serialize_pem()).unwrap();
        std::fs::rename(self.path(&format!("{file}.new")), self.path(&format!("{file}.key"))).unwrap();
        std::fs::write(self.path(&format!("{file}.new")), certificate.pem()).unwrap();
        std::fs::rename(self.path(&format!("{file}.new")), self.path(&format!("{file}.pem"))).unwrap();
    }

    /// Puts this certificate on the list of those that are valid no longer, the only one there.
    pub fn revoke(&self, file: &str) -> PathBuf {
        let serial = std::fs::read(self.path(&format!("{file}.serial"))).unwrap();
        let one = RevokedCertParams {
            serial_number: SerialNumber::from_slice(&serial),
            revocation_time: date_time_ymd(2020, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 1, 1),
            next_update: date_time_ymd(2090, 1, 1),
            crl_number: 1.into(),
            issuing_distribution_point: None,
            revoked_certs: vec![one],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let (new, path) = (self.path("crl.new"), self.path("crl.pem"));
        std::fs::write(&new, list.signed_by(&self.issuer).unwrap().pem().unwrap()).unwrap();
        std::fs::rename(new, &path).unwrap();
        path
    }

    pub fn config(&self, more: &str) -> String {
        self.config_as("server", more)
    }

    /// The configuration of a daemon with this certificate.
    pub fn config_as(&self, file: &str, more: &str) -> String {
        let path = |name: &str| format!("{:?}", self.path(name));
        let (certificate, key, ca) =
            (path(&format!("{file}.pem")), path(&format!("{file}.key")), path("ca.pem"));
        format!("[tls]\ncertificate = {certificate}\nkey = {key}\nca = {ca}\n{more}")
    }

    pub fn client(&self) -> TlsClient {
        let files = ClientFiles { ca: Some(self.path("ca.pem")), ..ClientFiles::default() };
        TlsClient::load(&files).unwrap()
    }
}
