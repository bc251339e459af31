//! Shows that handlers may use tokio's timers and sockets, in the program's runtime and without one, and that a server
//! ends with the calls it has begun; and that the threads of a runtime call through sessions of their own.

mod support;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::text::{Echo, EchoServer, Parrot};
use support::{EchoClient, Place, Text, WATCHDOG, channel, watched, with_task_sessions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot};
use trunkline::codegen::{Incoming, Receiver, Sender};
use trunkline::{Execution, Response, Server, ServerBuilder, Status, Wait};
use trunkline_daemon::{Config, Daemon};

/// Sends each text through a socket of its own, a moment later.
struct Slow;

impl Echo for Slow {
    async fn say(&self, request: Incoming<Text>) -> Result<Response<Text>, Status> {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let text = tokio::spawn(through_a_socket(request.view().text().to_owned())).await;
        let text = text.map_err(|error| Status::internal(error.to_string()))?;
        Ok(Text::new(text.map_err(|error| Status::internal(error.to_string()))?).into())
    }

    async fn repeat(&self, _request: Incoming<Text>, _out: Sender<Text>) -> Result<(), Status> {
        Ok(())
    }

    async fn collect(&self, _input: Receiver<Text>) -> Result<Response<Text>, Status> {
        Ok(Text::default().into())
    }

    async fn chat(&self, _input: Receiver<Text>, _out: Sender<Text>) -> Result<(), Status> {
        Ok(())
    }
}

async fn through_a_socket(text: String) -> std::io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let mut to = TcpStream::connect(listener.local_addr()?).await?;
    let (mut from, _) = listener.accept().await?;
    to.write_all(text.as_bytes()).await?;
    drop(to);
    let mut text = String::new();
    from.read_to_string(&mut text).await?;
    Ok(text)
}

/// A daemon of the test's own: others serve the same service.
struct Host {
    dir: tempfile::TempDir,
    _daemon: Daemon,
}

impl Host {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = format!("[daemon]\nsocket = {:?}\n", dir.path().join("daemon.sock"));
        let _daemon = Daemon::start(Config::from_toml(&config, "test").unwrap()).unwrap();
        Self { dir, _daemon }
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("daemon.sock")
    }

    fn server(&self) -> ServerBuilder {
        Server::in_tokio().socket(self.socket()).add_service(EchoServer::new(Slow))
    }

    fn client(&self) -> EchoClient {
        EchoClient::new(channel(&self.socket()))
    }
}

/// The runtime is asked for nothing: whichever of its threads polls a task, calls through a session of its own.
#[test]
fn threads_of_a_runtime_spread_over_as_many_sessions_as_are_allowed() {
    with_task_sessions("3", "threads_of_a_runtime_spread_over_as_many_sessions_as_are_allowed", || {
        let relay = Place::new().relay();
        let server =
            Server::builder().socket(relay.path()).add_service(EchoServer::new(Parrot)).spawn().unwrap();
        server.ready().wait().unwrap();
        let client = EchoClient::new(channel(&relay.path()));
        let runtime = Builder::new_multi_thread().worker_threads(4).build().unwrap();
        let enough = Arc::new(AtomicBool::new(false));
        let call = |client: EchoClient, enough: Arc<AtomicBool>| async move {
            while !enough.load(Ordering::Relaxed) {
                assert_eq!(client.say(Text::new("x")).await.unwrap().view().text(), "x");
                // Calls that are answered at once would keep their tasks where they are.
                tokio::task::yield_now().await;
            }
        };
        let tasks: Vec<_> =
            (0..32).map(|_| runtime.spawn(call(client.clone(), Arc::clone(&enough)))).collect();
        while relay.callers() < 3 {
            std::thread::yield_now();
        }
        enough.store(true, Ordering::Relaxed);
        tasks.into_iter().for_each(|task| runtime.block_on(task).unwrap());
        assert_eq!((relay.callers(), relay.sessions()), (3, 4), "and one of the server");
    });
}

#[test]
fn without_a_runtime_the_server_brings_one() {
    watched(|| {
        let host = Host::new();
        let server = host.server().spawn().unwrap();
        server.ready().wait().unwrap();
        assert_eq!(host.client().say(Text::new("hello")).wait().unwrap().view().text(), "hello");
        server.shutdown(WATCHDOG).wait().unwrap();
    });
}

#[test]
fn in_a_runtime_it_is_the_programs() {
    watched(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let host = Host::new();
            let server = host.server().spawn().unwrap();
            server.ready().await.unwrap();
            assert_eq!(host.client().say(Text::new("hello")).await.unwrap().view().text(), "hello");
            server.shutdown(WATCHDOG).await.unwrap();
        });
    });
}

/// Answers when it is told to, and says that it has been called.
struct Held {
    called: mpsc::UnboundedSender<oneshot::Sender<()>>,
}

impl Echo for Held {
    async fn say(&self, request: Incoming<Text>) -> Result<Response<Text>, Status> {
        let (answer, answered) = oneshot::channel();
        self.called.send(answer).map_err(|_| Status::internal("the test is over"))?;
        answered.await.map_err(|_| Status::internal("the test is over"))?;
        Ok(request.into_inner().into())
    }

    async fn repeat(&self, _request: Incoming<Text>, _out: Sender<Text>) -> Result<(), Status> {
        Ok(())
    }

    async fn collect(&self, _input: Receiver<Text>) -> Result<Response<Text>, Status> {
        Ok(Text::default().into())
    }

    async fn chat(&self, _input: Receiver<Text>, _out: Sender<Text>) -> Result<(), Status> {
        Ok(())
    }
}

#[test]
fn a_server_that_is_told_to_stop_ends_with_the_calls_it_has_begun() {
    watched(|| {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(async {
            let (called, mut calls) = mpsc::unbounded_channel();
            let (stop, stopped) = oneshot::channel::<()>();
            let host = Host::new();
            let server = Server::builder().socket(host.socket()).grace(Duration::from_secs(600));
            let server = server.add_service(EchoServer::new(Held { called }));
            let server = tokio::spawn(server.serve_with_shutdown(stopped));
            let client = host.client();
            let call = tokio::spawn(async move {
                loop {
                    match client.say(Text::new("hello")).await {
                        // The server's services are not bound yet.
                        Err(status) if status.execution() == Execution::NotExecuted => {
                            tokio::task::yield_now().await
                        }
                        done => return done.map(|reply| reply.view().text().to_owned()),
                    }
                }
            });
            let answer = calls.recv().await.unwrap();
            stop.send(()).unwrap();
            answer.send(()).unwrap();
            assert_eq!(call.await.unwrap().unwrap(), "hello");
            server.await.unwrap().unwrap();
        });
    });
}
