//! What is under a client and a server: tonic's transport over TCP, Trunkline in one of its topologies, or one end of
//! each.

use crate::handler::{Handler, guard};
use crate::ours::exam_server::ExamServer as TypedServer;
use crate::stubs::exam_server::ExamServer;
use crate::typed::Typed;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;
use tonic::codec::CompressionEncoding;
use tonic::service::interceptor::{InterceptedService, InterceptorLayer};
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Status};
use trunkline::{ServerBuilder, ServerHandle};
use trunkline_daemon::{Config, Daemon};
use trunkline_tonic::Server;

/// Largest message handlers and examiners take.
pub const MESSAGE_BYTES_MAX: usize = 18 << 20;
/// Streams tonic's server takes on one connection, instead of hyper's 200: a crowd comes over one.
const STREAMS_MAX: u32 = 2000;

/// The service as a user of tonic makes it.
pub fn service() -> ExamServer<Handler> {
    ExamServer::new(Handler::default())
        .accept_compressed(CompressionEncoding::Gzip)
        .send_compressed(CompressionEncoding::Gzip)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX)
}

/// An interceptor.
type Guard = fn(Request<()>) -> Result<Request<()>, Status>;

/// The interceptor as a layer of the server.
fn guards() -> InterceptorLayer<Guard> {
    InterceptorLayer::new(guard)
}

/// tonic's own server over TCP, until the process ends.
pub async fn stock_server() -> SocketAddr {
    let listener = tokio::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let address = listener.local_addr().unwrap();
    // What is set at the server holds only for sockets it accepts itself.
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let server = tonic::transport::Server::builder().max_concurrent_streams(STREAMS_MAX);
    tokio::spawn(server.layer(guards()).add_service(service()).serve_with_incoming(incoming));
    address
}

/// tonic's own channel over TCP, to whoever speaks gRPC there.
pub async fn stock_channel(address: SocketAddr) -> tonic::transport::Channel {
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{address}")).unwrap();
    endpoint.tcp_nodelay(true).connect().await.unwrap()
}

/// A daemon, where applications attach to it, and where everybody else reaches it.
pub struct Host {
    /// Ends when it is dropped.
    pub daemon: Arc<Daemon>,
    /// For [`Server::socket`] and [`trunkline::ChannelBuilder::socket`].
    pub socket: PathBuf,
    _dir: TempDir,
}

impl Host {
    /// Starts one.
    pub fn start() -> Self {
        Self::start_with(|_| String::new())
    }

    /// Starts one with a gateway, over a Unix socket (`grpc.sock`) and at a port, to whoever serves the exam there.
    pub fn start_gateway(endpoint: SocketAddr, more: &str) -> Self {
        Self::start_with(|dir| {
            let socket = dir.join("grpc.sock");
            format!(
                "[gateway]\nlisten = [\"unix:{}\", \"tcp://127.0.0.1:0\"]\n{more}\n\
                 [services.\"exam.v1.Exam\"]\nendpoints = [\"tcp://{endpoint}\"]\n",
                socket.display()
            )
        })
    }

    /// Starts one whose gateway has itself for an endpoint.
    pub fn start_gateway_to_itself() -> Self {
        Self::start_with(|dir| {
            let socket = dir.join("grpc.sock");
            format!(
                "[gateway]\nlisten = [\"unix:{0}\"]\n[services.\"exam.v1.Exam\"]\nendpoints = [\"unix:{0}\"]\n",
                socket.display()
            )
        })
    }

    fn start_with(more: impl FnOnce(&Path) -> String) -> Self {
        trunkline_test_logs::watch();
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("daemon.sock");
        let text = format!(
            "[daemon]\nsocket = {socket:?}\nlisten = [\"tcp://127.0.0.1:0\"]\n\
             [limits]\ngrpc_message_bytes = \"64 MiB\"\n{}",
            more(dir.path())
        );
        let config = Config::from_toml(&text, "stage.toml").unwrap();
        Self { daemon: Arc::new(Daemon::start(config).unwrap()), socket, _dir: dir }
    }

    /// Where daemons and gRPC clients reach it.
    pub fn address(&self) -> SocketAddr {
        self.daemon.endpoints()[0].strip_prefix("tcp://").unwrap().parse().unwrap()
    }

    /// tonic's own channel to the gateway's Unix socket.
    pub async fn gateway_channel(&self) -> tonic::transport::Channel {
        let path = self.socket.with_file_name("grpc.sock");
        let endpoint = format!("unix://{}", path.display());
        tonic::transport::Endpoint::from_shared(endpoint).unwrap().connect().await.unwrap()
    }

    /// The gateway's port.
    pub fn gateway_address(&self) -> SocketAddr {
        self.daemon.gateway_endpoints()[1].strip_prefix("tcp://").unwrap().parse().unwrap()
    }

    /// A channel of an application of this host, to whoever serves.
    pub fn channel(&self) -> trunkline::Channel {
        trunkline::Channel::builder().socket(&self.socket).connect_lazy()
    }

    /// A channel of an application of this host, to an address.
    pub fn channel_to(&self, address: SocketAddr) -> trunkline::Channel {
        trunkline::Channel::builder().socket(&self.socket).target(&format!("tcp://{address}")).connect_lazy()
    }
}

/// Where the daemons are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// Inside this process.
    Embedded,
    /// Client and server attached to one.
    OneDaemon,
    /// Each attached to its own.
    TwoDaemons,
}

/// Who serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serves {
    /// tonic's handlers, as tasks of the runtime.
    Tonic,
    /// tonic's handlers, where their calls arrive.
    TonicInPlace,
    /// Ours.
    Typed,
}

/// Daemons, a server, and the channel of a client. All end when it is dropped.
pub struct Stage {
    /// Where the client's calls go.
    pub channel: trunkline::Channel,
    // In the order in which they are to end.
    _server: ServerHandle,
    /// The server's is the last.
    hosts: Vec<Host>,
}

impl Stage {
    /// Trunkline, with a server that is ready.
    pub async fn set(topology: Topology, serves: Serves) -> Self {
        let hosts: Vec<Host> = match topology {
            Topology::Embedded => Vec::new(),
            Topology::OneDaemon => vec![Host::start()],
            Topology::TwoDaemons => vec![Host::start(), Host::start()],
        };
        let channel = match hosts.as_slice() {
            [] => trunkline::Channel::builder().embedded(true).connect_lazy(),
            [only] => only.channel(),
            [near, far, ..] => near.channel_to(far.address()),
        };
        let server = serve(serves, hosts.last());
        server.ready().await.unwrap();
        Self { channel, _server: server, hosts }
    }

    /// Where gRPC clients reach the server.
    ///
    /// # Panics
    /// If nothing listens: embedded.
    pub fn address(&self) -> SocketAddr {
        self.hosts.last().unwrap().address()
    }
}

fn serve(serves: Serves, host: Option<&Host>) -> ServerHandle {
    match serves {
        Serves::Tonic => at(Server::builder().layer(guards()), host).add_service(service()).spawn().unwrap(),
        Serves::TonicInPlace => {
            let guarded = InterceptedService::new(service(), guard);
            at(Server::builder().in_place(), host).add_service(guarded).spawn().unwrap()
        }
        Serves::Typed => {
            let server = trunkline::Server::builder().add_service(TypedServer::new(Typed));
            typed_at(server, host).spawn().unwrap()
        }
    }
}

fn at<L>(server: Server<L>, host: Option<&Host>) -> Server<L> {
    match host {
        Some(host) => server.socket(&host.socket),
        None => server.embedded(true),
    }
}

fn typed_at(server: ServerBuilder, host: Option<&Host>) -> ServerBuilder {
    match host {
        Some(host) => server.socket(&host.socket),
        None => server.embedded(true),
    }
}
