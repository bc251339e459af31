//! Shows each service as its clients see it, against a daemon with real applications that come and go.

use std::cell::RefCell;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use trunkline::wkt as protobuf;
use trunkline::{Channel, Code, Server, ServerHandle, Status, Wait};
use trunkline_daemon::{Config, Daemon};
use trunkline_example_search::proto::QueryRequest;
use trunkline_example_search::proto::search_client::SearchClient;
use trunkline_example_search::proto::search_server::SearchServer;
use trunkline_example_search::{Collection, SearchService};
use trunkline_services::proto::grpc::channelz::v1 as channelz;
use trunkline_services::proto::grpc::health::v1 as health;
use trunkline_services::proto::grpc::reflection::{v1, v1alpha};
use trunkline_services::proto::xds::service::orca::v3 as orca;
use trunkline_services::{LoadService, Recorder};

use health::health_check_response::ServingStatus;
use health::health_client::HealthClient;

const SEARCH: &str = "search.v1.Search";
const HEALTH: &str = "grpc.health.v1.Health";

/// So long a test may take: what takes longer hangs.
const WATCHDOG: Duration = Duration::from_secs(400);

/// Ends the process with a message if the test of this thread hangs.
fn watched() {
    thread_local!(static RUNS: RefCell<Option<mpsc::Sender<()>>> = const { RefCell::new(None) });
    let (runs, ended) = mpsc::channel();
    std::thread::spawn(move || {
        if ended.recv_timeout(WATCHDOG) == Err(mpsc::RecvTimeoutError::Timeout) {
            eprintln!("a test of tools/services hangs");
            std::process::exit(101);
        }
    });
    RUNS.set(Some(runs));
}

/// A daemon in this process, with the services as the binary has them.
struct Host {
    own: ServerHandle,
    daemon: Arc<Daemon>,
    folder: tempfile::TempDir,
}

impl Host {
    fn start() -> Self {
        watched();
        trunkline_test_logs::watch();
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("d.sock");
        let text = format!(
            "[daemon]\nsocket = {socket:?}\nlisten = [\"unix:{}\"]",
            folder.path().join("p").display()
        );
        let config = Config::from_toml(&text, "test").unwrap();
        let wanted = config.grpc_services;
        let daemon = Arc::new(Daemon::start(config).unwrap());
        let own = Server::builder().socket(&socket).stand_by();
        let own = trunkline_services::add_to(own, &Arc::downgrade(&daemon), &wanted).spawn().unwrap();
        own.ready().wait().unwrap();
        Self { own, daemon, folder }
    }

    fn socket(&self) -> std::path::PathBuf {
        self.folder.path().join("d.sock")
    }

    fn channel(&self) -> Channel {
        Channel::builder().socket(self.socket()).connect_lazy()
    }

    /// Through the daemon's port, as a peer would.
    fn outside(&self) -> Channel {
        Channel::builder().socket(self.socket()).target(&self.daemon.endpoints()[0]).connect_lazy()
    }

    fn search(&self) -> ServerHandle {
        let service = SearchServer::new(SearchService::new(Arc::new(Collection::default())));
        let server = Server::builder().socket(self.socket()).add_service(service).spawn().unwrap();
        server.ready().wait().unwrap();
        server
    }

    fn check(&self, service: &str) -> Result<ServingStatus, Status> {
        let client = HealthClient::new(self.channel());
        Ok(client.check(asked(service)).wait()?.view().status())
    }
}

fn asked(service: &str) -> health::HealthCheckRequest {
    health::HealthCheckRequest { service: service.into() }
}

#[test]
fn health_follows_applications() {
    let host = Host::start();
    assert_eq!(host.check("").unwrap(), ServingStatus::Serving);
    assert_eq!(host.check(HEALTH).unwrap(), ServingStatus::Serving);
    let unknown = host.check(SEARCH).unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound, "{unknown}");

    let server = host.search();
    assert_eq!(host.check(SEARCH).unwrap(), ServingStatus::Serving, "as soon as it is ready");
    let outside = HealthClient::new(host.outside());
    assert_eq!(outside.check(asked(SEARCH)).wait().unwrap().view().status(), ServingStatus::Serving);
    server.shutdown(WATCHDOG).wait().unwrap();
    let mut watch = HealthClient::new(host.channel()).watch(asked(SEARCH)).wait().unwrap();
    while watch.recv().wait().unwrap().unwrap().view().status() != ServingStatus::NotServing {}
    assert_eq!(host.check(SEARCH).unwrap(), ServingStatus::NotServing);

    let statuses =
        HealthClient::new(host.channel()).list(health::HealthListRequest::default()).wait().unwrap();
    let statuses = statuses.into_inner().statuses;
    assert_eq!(statuses[SEARCH].status, ServingStatus::NotServing);
    assert_eq!(statuses[""].status, ServingStatus::Serving);
    assert!(statuses.len() >= 7, "{statuses:?}");
}

#[test]
fn watch_tells_every_change_and_ends_with_the_daemon() {
    let host = Host::start();
    let mut watch = HealthClient::new(host.channel()).watch(asked(SEARCH)).wait().unwrap();
    let mut next = || watch.recv().wait().map(|status| status.unwrap().view().status());
    assert_eq!(next().unwrap(), ServingStatus::ServiceUnknown);
    let first = host.search();
    assert_eq!(next().unwrap(), ServingStatus::Serving);
    let second = host.search();
    first.shutdown(WATCHDOG).wait().unwrap();
    second.shutdown(WATCHDOG).wait().unwrap();
    assert_eq!(next().unwrap(), ServingStatus::NotServing, "only when the last has gone");
    let _third = host.search();
    assert_eq!(next().unwrap(), ServingStatus::Serving);
    host.daemon.drain();
    assert_eq!(next().unwrap(), ServingStatus::NotServing);
    let end = next().unwrap_err();
    assert_eq!(end.code(), Code::Unavailable, "{end}");
}

/// An application's own idea of health.
struct OwnHealth;

impl health::health_server::Health for OwnHealth {
    async fn check(
        &self,
        _: trunkline::Incoming<health::HealthCheckRequest>,
    ) -> Result<trunkline::Response<health::HealthCheckResponse>, Status> {
        Err(Status::aborted("mine"))
    }

    async fn list(
        &self,
        _: trunkline::Incoming<health::HealthListRequest>,
    ) -> Result<trunkline::Response<health::HealthListResponse>, Status> {
        Err(Status::aborted("mine"))
    }

    async fn watch(
        &self,
        _: trunkline::Incoming<health::HealthCheckRequest>,
        _: trunkline::Sender<health::HealthCheckResponse>,
    ) -> Result<(), Status> {
        Err(Status::aborted("mine"))
    }
}

#[test]
fn an_applications_own_service_wins() {
    let host = Host::start();
    let own = Server::builder().socket(host.socket());
    let own = own.add_service(health::health_server::HealthServer::new(OwnHealth)).spawn().unwrap();
    own.ready().wait().unwrap();
    for _ in 0..4 {
        assert_eq!(host.check("").unwrap_err().code(), Code::Aborted);
    }
    own.shutdown(WATCHDOG).wait().unwrap();
    // The daemon may learn of it a moment after the application has ended.
    while host.check("").is_err_and(|status| status.code() != Code::NotFound) {}
    assert_eq!(host.check("").unwrap(), ServingStatus::Serving, "the daemon steps in again");
}

#[test]
fn both_reflections_describe_what_is_served() {
    use v1::server_reflection_request::MessageRequest as Ask;
    use v1::server_reflection_response::MessageResponse as Told;
    let host = Host::start();
    let _server = host.search();
    let client = v1::server_reflection_client::ServerReflectionClient::new(host.outside());
    let (mut questions, mut answers) = client.server_reflection_info().split();
    let mut ask = |question| {
        let request = v1::ServerReflectionRequest { host: "h".into(), message_request: Some(question) };
        questions.send(request.clone()).wait().unwrap();
        let answer = answers.recv().wait().unwrap().unwrap().into_inner();
        assert_eq!((answer.valid_host.as_str(), answer.original_request), ("h", Some(request)));
        answer.message_response.unwrap()
    };
    let Told::ListServicesResponse(list) = ask(Ask::ListServices(String::new())) else { panic!("no list") };
    let names: Vec<&str> = list.service.iter().map(|service| service.name.as_str()).collect();
    assert!(names.contains(&SEARCH) && names.contains(&HEALTH), "{names:?}");
    assert!(names.is_sorted() && !names.iter().any(|name| name.starts_with("trunkline.")), "{names:?}");
    for service in &names {
        let Told::FileDescriptorResponse(files) = ask(Ask::FileContainingSymbol(service.to_string())) else {
            panic!("{service} is not described")
        };
        assert!(!files.file_descriptor_proto.is_empty());
    }
    let Told::ErrorResponse(error) = ask(Ask::FileByFilename("none.proto".into())) else {
        panic!("no error")
    };
    assert_eq!(error.error_code, i32::from(Code::NotFound.number()));

    let older = v1alpha::server_reflection_client::ServerReflectionClient::new(host.channel());
    let (mut questions, mut answers) = older.server_reflection_info().split();
    let list = v1alpha::server_reflection_request::MessageRequest::ListServices(String::new());
    let request = v1alpha::ServerReflectionRequest { message_request: Some(list), ..Default::default() };
    questions.send(request).wait().unwrap();
    questions.close();
    let answer = answers.recv().wait().unwrap().unwrap().into_inner().message_response.unwrap();
    let v1alpha::server_reflection_response::MessageResponse::ListServicesResponse(older) = answer else {
        panic!("no list")
    };
    assert_eq!(older.service.len(), list_len(&names));
    assert!(answers.recv().wait().unwrap().is_none(), "the stream ends with its questions");
}

fn list_len(names: &[&str]) -> usize {
    names.len()
}

#[test]
fn channelz_shows_connections_and_calls() {
    let host = Host::start();
    let _server = host.search();
    let search = SearchClient::new(host.outside());
    search.query(QueryRequest { query: "ring".into(), ..QueryRequest::default() }).wait().unwrap();
    search.query(QueryRequest::default()).wait().unwrap_err();

    let client = channelz::channelz_client::ChannelzClient::new(host.channel());
    let channels = client.get_top_channels(channelz::GetTopChannelsRequest::default()).wait().unwrap();
    let channels = channels.into_inner();
    let endpoint = &host.daemon.endpoints()[0];
    let channel =
        channels.channel.into_iter().find(|row| row.data.as_ref().unwrap().target == *endpoint).unwrap();
    let data = channel.data.unwrap();
    assert_eq!(data.state.unwrap().state, channelz::channel_connectivity_state::State::Ready);
    assert_eq!((data.calls_succeeded, data.calls_failed), (1, 1));

    let servers = client.get_servers(channelz::GetServersRequest::default()).wait().unwrap().into_inner();
    let [server] = &servers.server[..] else { panic!("{servers:?}") };
    assert!(servers.end && server.data.as_ref().unwrap().calls_succeeded >= 1, "{server:?}");
    assert_eq!(server.listen_socket[0].name, *endpoint);

    let server_id = server.r#ref.as_ref().unwrap().server_id;
    let asked = channelz::GetServerSocketsRequest { server_id, ..Default::default() };
    let sockets = client.get_server_sockets(asked).wait().unwrap().into_inner().socket_ref;
    assert!(!sockets.is_empty());
    for socket in sockets.iter().chain(&channel.socket_ref).chain(&server.listen_socket) {
        let asked = channelz::GetSocketRequest { socket_id: socket.socket_id, summary: false };
        let found = client.get_socket(asked).wait().unwrap().into_inner().socket.unwrap();
        assert_eq!(found.r#ref.as_ref(), Some(socket));
    }
    let gone = client.get_socket(channelz::GetSocketRequest { socket_id: 7, summary: false }).wait();
    assert_eq!(gone.unwrap_err().code(), Code::NotFound);
}

#[test]
fn load_is_reported_by_the_host_and_by_applications() {
    let host = Host::start();
    let client = orca::open_rca_service_client::OpenRcaServiceClient::new(host.outside());
    let every_second = orca::OrcaLoadReportRequest {
        report_interval: Some(protobuf::Duration { seconds: 1, nanos: 0 }),
        ..Default::default()
    };
    let mut reports = client.stream_core_metrics(every_second.clone()).wait().unwrap();
    for _ in 0..2 {
        let report = reports.recv().wait().unwrap().unwrap().into_inner();
        assert!((0.0..=1.0).contains(&report.cpu_utilization), "{report:?}");
        assert!(report.mem_utilization > 0.0 && report.mem_utilization < 1.0, "{report:?}");
    }
    drop(reports);

    let load = Recorder::default();
    load.change(|report| report.application_utilization = 0.25);
    let service = LoadService::new(load.clone());
    let service = orca::open_rca_service_server::OpenRcaServiceServer::new(service);
    let own = Server::builder().socket(host.socket()).add_service(service).spawn().unwrap();
    own.ready().wait().unwrap();
    let mut reports = client.stream_core_metrics(every_second).wait().unwrap();
    assert_eq!(reports.recv().wait().unwrap().unwrap().view().application_utilization(), 0.25);
    load.change(|report| report.application_utilization = 0.75);
    assert_eq!(reports.recv().wait().unwrap().unwrap().view().application_utilization(), 0.75);
}

#[test]
fn waiting_streams_have_a_limit_and_leave_room_for_questions() {
    let host = Host::start();
    let client = HealthClient::new(host.channel());
    let mut streams = Vec::new();
    for _ in 0..trunkline_services::STREAMS_MAX {
        let mut stream = client.watch(asked("")).wait().unwrap();
        assert_eq!(stream.recv().wait().unwrap().unwrap().view().status(), ServingStatus::Serving);
        streams.push(stream);
    }
    let mut another = client.watch(asked("")).wait().unwrap();
    let refused = another.recv().wait().unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    assert!(refused.message().contains("STREAMS_MAX"), "{refused}");
    assert_eq!(host.check("").unwrap(), ServingStatus::Serving);
    drop(streams);
    host.own.ready().wait().unwrap();
}

/// To say that one is stuck, and to hear that it may go on.
type StuckOnce = (mpsc::Sender<()>, mpsc::Receiver<()>);

/// A daemon that is stuck once, when it is asked what is served.
#[derive(Clone)]
struct Stuck {
    daemon: std::sync::Weak<Daemon>,
    /// Says that it is, and waits.
    once: Arc<std::sync::Mutex<Option<StuckOnce>>>,
}

impl trunkline_services::Host for Stuck {
    fn services(&self) -> trunkline_daemon::Services {
        let once = self.once.lock().unwrap().take();
        if let Some((stuck, go_on)) = once {
            stuck.send(()).unwrap();
            let _ = go_on.recv();
        }
        self.daemon.services()
    }

    fn watch(&self) -> Option<trunkline_daemon::Watcher> {
        self.daemon.watch()
    }

    fn observe(&self, ask: &trunkline_telemetry::Ask) -> Vec<trunkline_daemon::Observation> {
        self.daemon.observe(ask)
    }

    fn listening(&self) -> Vec<String> {
        self.daemon.listening()
    }
}

#[test]
fn health_answers_while_reflection_is_kept_busy() {
    watched();
    trunkline_test_logs::watch();
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("d.sock");
    let config = Config::from_toml(&format!("[daemon]\nsocket = {socket:?}\n"), "test").unwrap();
    let wanted = config.grpc_services;
    let daemon = Arc::new(Daemon::start(config).unwrap());
    let ((stuck, is_stuck), (release, go_on)) = (mpsc::channel(), mpsc::channel());
    let host = Stuck { daemon: Arc::downgrade(&daemon), once: Arc::default() };
    let begin = |name: &str| Server::builder().name(name).socket(&socket);
    let own = trunkline_services::serve(&host, &wanted, begin).unwrap();
    own.iter().for_each(|server| server.ready().wait().unwrap());
    let channel = || Channel::builder().socket(&socket).connect_lazy();

    *host.once.lock().unwrap() = Some((stuck, go_on));
    let reflection = v1::server_reflection_client::ServerReflectionClient::new(channel());
    let (mut questions, mut answers) = reflection.server_reflection_info().split();
    let list = v1::server_reflection_request::MessageRequest::ListServices(String::new());
    let list = v1::ServerReflectionRequest { host: String::new(), message_request: Some(list) };
    questions.send(list).wait().unwrap();
    is_stuck.recv().unwrap();
    // With one thread for both, there is no answer before it goes on.
    let answer = HealthClient::new(channel()).check(asked("")).wait().unwrap();
    assert_eq!(answer.view().status(), ServingStatus::Serving);
    release.send(()).unwrap();
    assert!(answers.recv().wait().unwrap().is_some(), "and reflection answers then");
}
