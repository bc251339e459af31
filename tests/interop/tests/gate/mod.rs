//! A gate between two daemons that lets gRPC through and nothing else. Between themselves daemons speak the native
//! protocol; behind a gate each takes the other for a stock gRPC peer.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// The name in the certificate.
pub const NAME: &str = "interop.test";

/// A CA, and a server's certificate and key by it, as files.
pub struct Keys {
    pub ca: PathBuf,
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Keys {
    /// Made new, in this folder.
    pub fn new(folder: &Path) -> Self {
        let mut ca = CertificateParams::new(Vec::<String>::new()).unwrap();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(ca, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate =
            CertificateParams::new(vec![NAME.to_owned()]).unwrap().signed_by(&key, &ca).unwrap();
        let write = |name: &str, text: String| {
            let path = folder.join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        Self {
            ca: write("ca.pem", ca.pem()),
            certificate: write("server.pem", certificate.pem()),
            key: write("server.key", key.serialize_pem()),
        }
    }

    fn acceptor(&self) -> TlsAcceptor {
        let chain = vec![CertificateDer::from_pem_file(&self.certificate).unwrap()];
        let key = PrivateKeyDer::from_pem_file(&self.key).unwrap();
        let builder = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let mut config = builder.with_single_cert(chain, key).unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        Arc::new(config).into()
    }

    fn connector(&self) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&self.ca).unwrap()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
        let mut config = builder.with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        Arc::new(config).into()
    }
}

/// Opens a gate to `server` and says where it is; it closes with the runtime. It ends TLS on one side and begins it
/// anew on the other, and agrees to `h2` only.
pub fn open(runtime: &Runtime, server: SocketAddr, keys: &Keys) -> SocketAddr {
    let (acceptor, connector) = (keys.acceptor(), keys.connector());
    let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", 0))).unwrap();
    let address = listener.local_addr().unwrap();
    runtime.spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (acceptor, connector) = (acceptor.clone(), connector.clone());
            // A connection that fails is the daemons' to tell of.
            tokio::spawn(async move { secure(client, server, &acceptor, &connector).await });
        }
    });
    address
}

async fn secure(
    client: TcpStream,
    server: SocketAddr,
    acceptor: &TlsAcceptor,
    connector: &TlsConnector,
) -> io::Result<()> {
    let mut client = acceptor.accept(client).await?;
    let name = ServerName::try_from(NAME).map_err(io::Error::other)?;
    let mut server = connector.connect(name, TcpStream::connect(server).await?).await?;
    copy_bidirectional(&mut client, &mut server).await.map(drop)
}
