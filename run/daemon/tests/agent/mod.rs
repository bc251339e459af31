//! An agent that serves the SPIFFE Workload API, and an authority that signs what it tells.

use bytes::Bytes;
use prost::Message;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use tempfile::TempDir;
use trunkline_call::Instant;
use trunkline_grpc::{Command, Event};
use trunkline_net::{Buffers, Endpoint, Http2, Http2Settings, Listener, State};

/// Who signs.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// An answer as it goes over the wire (`X509SVIDResponse`, here with one certificate and one federated domain at most).
#[derive(Clone, PartialEq, Message)]
pub struct Answer {
    #[prost(message, repeated, tag = "1")]
    svids: Vec<One>,
    #[prost(map = "string, bytes", tag = "3")]
    federated: std::collections::HashMap<String, Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct One {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(bytes = "vec", tag = "2")]
    chain: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    roots: Vec<u8>,
}

/// An agent. It ends with its first caller's connection, once nothing can be told any more.
pub struct Agent {
    folder: TempDir,
    news: Sender<Answer>,
}

impl Authority {
    pub fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, format!("{:?}", key.public_key_raw()));
        Self { issuer: CertifiedIssuer::self_signed(params, key).unwrap() }
    }

    pub fn roots(&self) -> Vec<u8> {
        self.issuer.der().to_vec()
    }

    pub fn svid(&self, id: &str, federated: &[(&str, Vec<u8>)]) -> Answer {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.subject_alt_names.push(SanType::URI(id.try_into().unwrap()));
        let key = KeyPair::generate().unwrap();
        let chain = params.signed_by(&key, &self.issuer).unwrap().der().to_vec();
        let one = One { id: id.to_owned(), chain, key: key.serialize_der(), roots: self.roots() };
        let federated = federated.iter().map(|(domain, roots)| ((*domain).to_owned(), roots.clone()));
        Answer { svids: vec![one], federated: federated.collect() }
    }
}

impl Agent {
    pub fn start(answer: Answer) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener =
            Listener::bind(&Endpoint::unix(folder.path().join("agent.sock")).unwrap(), false).unwrap();
        let (news, told) = channel();
        news.send(answer).unwrap();
        std::thread::spawn(move || serve(&listener, &told));
        Self { folder, news }
    }

    pub fn tell(&self, answer: Answer) {
        self.news.send(answer).unwrap();
    }

    /// The part of a configuration that names it.
    pub fn config(&self) -> String {
        format!("[tls]\nworkload_api = \"unix:{}\"\n", self.folder.path().join("agent.sock").display())
    }
}

fn serve(listener: &Listener, told: &Receiver<Answer>) {
    let pause = || std::thread::sleep(std::time::Duration::from_millis(1));
    let stream = loop {
        match listener.accept().unwrap() {
            Some(accepted) => break accepted.stream,
            None => pause(),
        }
    };
    let mut http = Http2::server(stream, Arc::new(Http2Settings::server()), Instant(0), &[], 0);
    let (mut buffers, mut events, mut asked) = (Buffers::new(), Vec::new(), None);
    loop {
        http.handle_readable();
        if let State::Over(_) = http.turn(Instant(0), &mut buffers, &mut events) {
            return;
        }
        for event in events.drain(..) {
            if let Event::Request { stream, head, .. } = event {
                assert_eq!(head.headers["workload.spiffe.io"], "true");
                assert_eq!(head.uri.path(), "/SpiffeWorkloadAPI/FetchX509SVID");
                let response = http::Response::builder().header("content-type", "application/grpc").body(());
                let head = Box::new(response.unwrap().into_parts().0);
                http.command(Command::Response { stream, head, end: false });
                asked = Some(stream);
            }
        }
        if let Some(stream) = asked
            && let Ok(answer) = told.try_recv()
        {
            let answer = answer.encode_to_vec();
            let mut bytes = vec![0];
            bytes.extend(u32::try_from(answer.len()).unwrap().to_be_bytes());
            bytes.extend(answer);
            http.command(Command::Data { stream, bytes: Bytes::from(bytes), end: false });
        }
        pause();
    }
}
