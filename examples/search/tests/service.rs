//! The service over RPC: every test runs with a daemon on a socket and with an engine inside the process, and must not
//! notice the difference.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use trunkline::{Channel, ChannelBuilder, Code, Request, Server, ServerHandle, Wait};
use trunkline_daemon::{Config, Daemon};
use trunkline_example_search::proto::search_client::SearchClient;
use trunkline_example_search::proto::search_server::SearchServer;
use trunkline_example_search::proto::{Ask, Document, Hit, Page, QueryRequest, answer, ask};
use trunkline_example_search::{Collection, SearchService};

/// Where a test's calls go.
#[derive(Clone, Copy)]
enum Mode {
    Daemon,
    Embedded,
}

/// A served, empty collection, and a client of it.
struct World {
    client: SearchClient,
    server: ServerHandle,
    /// Ends after the server.
    _daemon: Option<(Daemon, tempfile::TempDir)>,
}

impl World {
    fn new(mode: Mode) -> Self {
        let daemon = matches!(mode, Mode::Daemon).then(start_daemon);
        let socket = daemon.as_ref().map(|(_, folder)| socket_in(folder));
        let service = SearchService::new(Arc::new(Collection::default()));
        let server = Server::builder().workers(2).add_service(SearchServer::new(service));
        let server = match &socket {
            Some(path) => server.socket(path),
            None => server.embedded(true),
        };
        let server = server.spawn().unwrap();
        server.ready().wait().unwrap();
        let client = SearchClient::new(channel(socket).connect_lazy());
        Self { client, server, _daemon: daemon }
    }

    fn index(&self, documents: &[(&str, &str)]) -> u32 {
        let mut call = self.client.index();
        for (name, text) in documents {
            call.send(Document { name: (*name).into(), text: (*text).into() }).wait().unwrap();
        }
        call.finish().wait().unwrap().into_inner().documents
    }

    fn names(&self, query: &str) -> Vec<String> {
        let response = self.client.query(request(query)).wait().unwrap().into_inner();
        response.hits.into_iter().map(|hit| hit.name).collect()
    }
}

fn start_daemon() -> (Daemon, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let mut config = Config::default();
    config.daemon.socket = socket_in(&folder);
    (Daemon::start(config).unwrap(), folder)
}

fn socket_in(folder: &tempfile::TempDir) -> PathBuf {
    folder.path().join("d.sock")
}

fn channel(socket: Option<PathBuf>) -> ChannelBuilder {
    match socket {
        Some(path) => Channel::builder().socket(path),
        None => Channel::builder().embedded(true),
    }
}

fn request(query: &str) -> QueryRequest {
    QueryRequest { query: query.into(), ..QueryRequest::default() }
}

/// Runs a test in both modes; one that hangs ends the process with a message instead.
fn in_both_modes(test: impl Fn(&World)) {
    trunkline_test_logs::watch();
    std::thread::spawn(|| {
        std::thread::sleep(Duration::from_secs(400));
        eprintln!("a test of examples/search hangs");
        std::process::exit(101);
    });
    test(&World::new(Mode::Daemon));
    // A process has one engine inside, and whoever serves a service there serves it for all: one test at a time.
    let _alone = EMBEDDED.lock().unwrap_or_else(PoisonError::into_inner);
    let world = World::new(Mode::Embedded);
    test(&world);
    world.server.shutdown(Duration::from_secs(10)).wait().unwrap();
}

static EMBEDDED: Mutex<()> = Mutex::new(());

#[test]
fn what_is_indexed_is_found() {
    in_both_modes(|world| {
        assert_eq!(world.names("ring"), [""; 0]);
        assert_eq!(world.index(&[("a", "a ring"), ("b", "a bell"), ("c", "ring the ring")]), 3);
        assert_eq!(world.names("ring"), ["c", "a"]);
        assert_eq!(world.index(&[("a", "replaced")]), 1);
        assert_eq!(world.names("ring"), ["c"]);
        let response = world.client.query(request("rinng bell")).wait().unwrap().into_inner();
        assert_eq!((response.documents, response.matches), (3, 1));
        assert_eq!(response.did_you_mean.as_deref(), Some("ring bell"));
    });
}

#[test]
fn every_hit_is_streamed_in_order() {
    in_both_modes(|world| {
        let names: Vec<String> = (0..500).map(|i| format!("d{i:03}")).collect();
        let documents: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "same text")).collect();
        world.index(&documents);
        let mut hits = world.client.results(request("text")).wait().unwrap();
        let mut found = Vec::new();
        while let Some(hit) = hits.recv().wait().unwrap() {
            let Hit { rank, name, .. } = hit.into_inner();
            assert_eq!(rank as usize, found.len() + 1);
            found.push(name);
        }
        assert_eq!(found, names);
    });
}

#[test]
fn a_stream_may_be_left_early() {
    in_both_modes(|world| {
        let text = "word ".repeat(1000);
        let names: Vec<String> = (0..200).map(|i| format!("d{i}")).collect();
        let documents: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), text.as_str())).collect();
        world.index(&documents);
        let mut hits = world.client.results(request("word")).wait().unwrap();
        assert!(hits.recv().wait().unwrap().is_some());
        drop(hits);
        assert_eq!(world.names("word").len(), 10, "the service goes on");
    });
}

#[test]
fn a_conversation_remembers() {
    in_both_modes(|world| {
        world.index(&[("a", "daemon ring"), ("b", "daemon bell"), ("c", "daemon")]);
        let mut call = world.client.session();
        let mut ask = |kind| {
            call.send(Ask { kind: Some(kind) }).wait().unwrap();
            call.recv().wait().unwrap().unwrap().into_inner().kind.unwrap()
        };
        let matches = |answer| match answer {
            answer::Kind::Page(Page { query, matches, .. }) => (query, matches),
            other => panic!("not a page: {other:?}"),
        };
        assert_eq!(matches(ask(ask::Kind::Query("daemon".into()))), ("daemon".into(), 3));
        assert_eq!(matches(ask(ask::Kind::Refine("ring".into()))), ("daemon +ring".into(), 1));
        assert_eq!(matches(ask(ask::Kind::Undo(Default::default()))), ("daemon".into(), 3));
        assert!(
            matches!(ask(ask::Kind::Open(9)), answer::Kind::Complaint(why) if why.contains("there are 3"))
        );
    });
}

#[test]
fn bad_questions_get_a_status() {
    in_both_modes(|world| {
        let long = "x".repeat(5000);
        for query in ["", "-only -excluded", &long] {
            let status = world.client.query(request(query)).wait().unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        }
        let status = world.client.results(request("")).wait().unwrap().recv().wait().unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);

        let mut call = world.client.index();
        call.send(Document { name: String::new(), text: "nameless".into() }).wait().unwrap();
        let status = call.finish().wait().unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::InvalidArgument, "a name has 1 to 4096 bytes"));
    });
}

#[test]
fn many_search_while_one_indexes() {
    in_both_modes(|world| {
        world.index(&[("always", "needle")]);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let request = Request::new(request("needle")).with_timeout(Duration::from_secs(60));
                        let response = world.client.query(request).wait().unwrap();
                        assert_eq!(response.view().matches(), 1);
                    }
                });
            }
            for i in 0..20 {
                world.index(&[(&format!("straw{i}"), "straw")]);
            }
        });
        assert_eq!(world.client.query(request("straw")).wait().unwrap().view().matches(), 20);
    });
}
