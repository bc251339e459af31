//! A client of the SPIFFE Workload API: an agent of this host gives the daemon its certificate, its key and the roots
//! of trust domains over a Unix socket, and new ones before they end. No file holds them.
//!
//! A thread of its own has the connection, for the agent may be slow or gone: it leaves the newest answer where the
//! control thread finds it. What was told last stays in use while the agent is away.
//!
//! Source: SPIFFE Workload API, sections 4 to 6 (`FetchX509SVID`).

use bytes::Bytes;
use prost::Message;
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant as Clock};
use trunkline_call::{Instant, Metadata, Status};
use trunkline_grpc::framing::{Deframer, PREFIX_BYTES};
use trunkline_grpc::{Command, Event, Limits, StreamTag, response};
use trunkline_net::{Buffers, Endpoint, Http2, Http2Settings, Poller, Ready, State, Stream, Svid, Token};

/// Largest answer. An SVID has some kilobytes; roots of a hundred domains fit.
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// Roots of other domains at most.
const DOMAINS_MAX: usize = 1024;
/// Between two attempts to reach the agent: at first, and at most (the specification asks for exponential backoff).
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];
/// Time an agent has for its first answer, which it gives at once; between answers it may be silent for as long as a
/// certificate is valid.
const FIRST_ANSWER: Duration = Duration::from_secs(10);
/// How often the thread looks whether anybody still wants to know.
const LOOK_NS: u64 = 500_000_000;
/// What keeps a page or a program in between from asking on somebody's behalf (section 4).
const SECURITY_HEADER: &str = "workload.spiffe.io";
const PATH: &str = "/SpiffeWorkloadAPI/FetchX509SVID";
const STREAM: StreamTag = StreamTag(StreamTag::OWN | 1);

/// What the agent has told.
pub(crate) struct WorkloadApi {
    told: Arc<Told>,
}

#[derive(Default)]
struct Told {
    newest: Mutex<Newest>,
    changed: Condvar,
}

#[derive(Default)]
struct Newest {
    svid: Option<Svid>,
    /// Counts answers.
    number: u64,
    /// Why there is none; empty while the agent is asked for the first time.
    why: String,
}

/// `X509SVIDResponse`.
#[derive(Clone, PartialEq, Message)]
struct Answer {
    #[prost(message, repeated, tag = "1")]
    svids: Vec<One>,
    #[prost(bytes = "vec", repeated, tag = "2")]
    crl: Vec<Vec<u8>>,
    #[prost(map = "string, bytes", tag = "3")]
    federated_bundles: HashMap<String, Vec<u8>>,
}

/// `X509SVID`.
#[derive(Clone, PartialEq, Message)]
struct One {
    #[prost(string, tag = "1")]
    spiffe_id: String,
    #[prost(bytes = "vec", tag = "2")]
    x509_svid: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    x509_svid_key: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    bundle: Vec<u8>,
}

impl WorkloadApi {
    /// Asks an agent, from now on and until this is dropped.
    ///
    /// # Errors
    /// No thread can be had.
    pub fn ask(agent: Endpoint) -> std::io::Result<Self> {
        let told = Arc::new(Told::default());
        let listener = Arc::downgrade(&told);
        let thread = std::thread::Builder::new().name("trunkline-workload".to_owned());
        thread.spawn(move || listen(&agent, &listener))?;
        Ok(Self { told })
    }

    /// The newest answer and its number; waits so long for the first.
    ///
    /// # Errors
    /// Why there is none.
    pub fn newest(&self, patience: Duration) -> Result<(Svid, u64), String> {
        let newest = self.told.newest.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.told.changed.wait_timeout_while(newest, patience, |newest| newest.svid.is_none());
        let newest = waited.unwrap_or_else(PoisonError::into_inner).0;
        let why = || if newest.why.is_empty() { "it has not answered yet" } else { &newest.why };
        newest.svid.clone().map(|svid| (svid, newest.number)).ok_or_else(|| why().to_owned())
    }
}

/// Asks again whenever an answer ends, after a pause that grows.
fn listen(agent: &Endpoint, told: &Weak<Told>) {
    let [first, longest] = PAUSES;
    let mut pause = first;
    while told.strong_count() > 0 {
        let began = told.upgrade().map(|told| told.number());
        let why = match fetch(agent, told, FIRST_ANSWER) {
            Ok(()) => return,
            Err(why) => why,
        };
        tracing::warn!(%agent, %why, again_s = pause.as_secs(), "the Workload API does not answer; asked again");
        let Some(told) = told.upgrade() else { return };
        if began != Some(told.number()) {
            pause = first;
        }
        told.miss(&why);
        let until = Clock::now() + pause;
        let told = Arc::downgrade(&told);
        while Clock::now() < until && told.strong_count() > 0 {
            std::thread::sleep(Duration::from_nanos(LOOK_NS).min(pause));
        }
        pause = (pause * 2).min(longest);
    }
}

/// Takes answers until the stream ends, which is an error, or nobody wants to know any more.
fn fetch(agent: &Endpoint, told: &Weak<Told>, patience: Duration) -> Result<(), String> {
    let began = Clock::now();
    let now = || Instant(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX));
    let stream = Stream::connect(agent).map_err(|error| format!("cannot be reached: {error}"))?;
    let poller = Poller::new().map_err(|error| error.to_string())?;
    // The agent may say nothing for the life of a certificate.
    let settings = Http2Settings { unfinished_ns_max: u64::MAX / 2, ..Http2Settings::client() };
    let mut http = Http2::client(stream, Arc::new(settings), now());
    poller.add(http.stream(), Token(0), http.interest()).map_err(|error| error.to_string())?;
    http.command(Command::Request { stream: STREAM, head: Box::new(head()), end: false });
    // An empty message: one prefix.
    http.command(Command::Data { stream: STREAM, bytes: Bytes::from_static(&[0; PREFIX_BYTES]), end: true });
    let (mut answers, mut has_answered) = (Deframer::new(ANSWER_BYTES_MAX), false);
    let (mut buffers, mut events, mut ready) = (Buffers::new(), Vec::new(), Vec::<Ready>::new());
    loop {
        let state = http.turn(now(), &mut buffers, &mut events);
        for event in events.drain(..) {
            match event {
                Event::Data { bytes, end, .. } => {
                    http.command(Command::Release { stream: STREAM, bytes: bytes.len() });
                    answers.push(bytes);
                    while let Some(answer) = answers.next().map_err(|fault| fault.to_string())? {
                        let svid = read(&answer.bytes)?;
                        has_answered = true;
                        let Some(told) = told.upgrade() else { return Ok(()) };
                        let id = svid.id.clone();
                        // An agent may repeat itself as often as it likes.
                        if told.tell(svid) {
                            tracing::info!(%agent, %id, "the Workload API told a certificate");
                        }
                    }
                    if end {
                        return Err("ends the answer without a status".into());
                    }
                }
                Event::Response { head, end: true, .. } => return Err(ended(&head.headers)),
                Event::Response { head, .. } if head.status != ::http::StatusCode::OK => {
                    return Err(format!("answers with HTTP {}", head.status));
                }
                Event::Trailers { trailers, .. } => return Err(ended(&trailers)),
                Event::Reset { reason, .. } => return Err(format!("resets the stream: {reason:?}")),
                _ => {}
            }
        }
        match state {
            State::Over(ended) => return Err(format!("ends the connection: {}", ended.why)),
            State::More => continue,
            State::Open => {}
        }
        if told.strong_count() == 0 {
            return Ok(());
        }
        if !has_answered && began.elapsed() > patience {
            return Err(format!("takes the connection and says nothing for {patience:?}"));
        }
        poller.set_interest(http.stream(), Token(0), http.interest()).map_err(|error| error.to_string())?;
        let due_ns = http.next_timeout().map_or(LOOK_NS, |at| at.0.saturating_sub(now().0).clamp(1, LOOK_NS));
        poller.wait(Some(due_ns), &mut ready).map_err(|error| error.to_string())?;
        if ready.drain(..).count() > 0 {
            http.handle_readable();
        }
    }
}

fn head() -> ::http::request::Parts {
    let request = ::http::Request::post(format!("http://localhost{PATH}"))
        .version(::http::Version::HTTP_2)
        .header("te", "trailers")
        .header("content-type", "application/grpc")
        .header(SECURITY_HEADER, "true")
        .body(());
    request.expect("it is always the same").into_parts().0
}

fn ended(trailers: &::http::HeaderMap) -> String {
    let outcome = response::parse_trailers(trailers, &Limits::default());
    let mut metadata = Metadata::decode(&outcome.metadata).unwrap_or_default();
    let status = Status::take_from(&mut metadata, outcome.code);
    format!("ends the answer with {:?}: {}", status.code(), status.message())
}

/// The first SVID is the one for who asks for none in particular (section 5.2.1).
fn read(bytes: &[u8]) -> Result<Svid, String> {
    let answer = Answer::decode(bytes)
        .map_err(|error| format!("answers with what is no X509SVIDResponse: {error}"))?;
    if answer.federated_bundles.len() > DOMAINS_MAX {
        return Err(format!(
            "tells the roots of {} domains, {DOMAINS_MAX} are taken",
            answer.federated_bundles.len()
        ));
    }
    let one = answer.svids.into_iter().next().ok_or("tells no certificate")?;
    Ok(Svid {
        id: one.spiffe_id,
        chain: one.x509_svid,
        key: one.x509_svid_key,
        roots: one.bundle,
        federated: answer.federated_bundles.into_iter().collect(),
        lists: answer.crl,
    })
}

impl Told {
    /// Takes an answer; whether it is another than the last.
    fn tell(&self, svid: Svid) -> bool {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = newest.svid.as_ref() != Some(&svid);
        if is_new {
            newest.svid = Some(svid);
            newest.number += 1;
        }
        self.changed.notify_all();
        is_new
    }

    fn miss(&self, why: &str) {
        why.clone_into(&mut self.newest.lock().unwrap_or_else(PoisonError::into_inner).why);
    }

    fn number(&self) -> u64 {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner).number
    }
}

#[cfg(test)]
mod tests {
    //! Shows what of an answer is taken, that no bytes are too much for it, and that an agent that says nothing is told
    //! of.
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::net::UnixListener;

    fn one(id: &str) -> One {
        One { spiffe_id: id.into(), x509_svid: vec![1], x509_svid_key: vec![2], bundle: vec![3] }
    }

    #[test]
    fn the_first_certificate_is_taken() {
        let federated_bundles = HashMap::from([("spiffe://b".to_owned(), vec![4])]);
        let answer = Answer {
            svids: vec![one("spiffe://a/1"), one("spiffe://a/2")],
            crl: vec![vec![5]],
            federated_bundles,
        };
        let svid = read(&answer.encode_to_vec()).unwrap();
        let federated = vec![("spiffe://b".to_owned(), vec![4])];
        let (id, lists) = ("spiffe://a/1".to_owned(), vec![vec![5]]);
        assert_eq!(svid, Svid { id, chain: vec![1], key: vec![2], roots: vec![3], federated, lists });
        assert!(read(&[]).unwrap_err().contains("no certificate"));
        assert!(read(&[0xff]).unwrap_err().contains("no X509SVIDResponse"));
    }

    #[test]
    fn an_agent_that_says_nothing_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agent");
        let _silent = UnixListener::bind(&path).unwrap();
        let agent: Endpoint = format!("unix:{}", path.display()).parse().unwrap();
        let told = Arc::new(Told::default());
        let why = fetch(&agent, &Arc::downgrade(&told), Duration::from_millis(20)).unwrap_err();
        assert!(why.contains("says nothing for 20ms"), "{why}");
        let api = WorkloadApi { told };
        assert_eq!(api.newest(Duration::ZERO).unwrap_err(), "it has not answered yet");
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_much(id in "(spiffe://)?[a-z/]{0,8}", parts: [Vec<u8>; 4]) {
            let [x509_svid, x509_svid_key, bundle, crl] = parts;
            let svids = vec![One { spiffe_id: id, x509_svid, x509_svid_key, bundle }];
            let answer = Answer { svids, crl: vec![crl], federated_bundles: HashMap::new() };
            let svid = read(&answer.encode_to_vec()).unwrap();
            prop_assert!(svid.keys(Default::default(), false).is_err());
        }
    }
}
