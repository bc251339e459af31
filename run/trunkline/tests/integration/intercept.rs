//! Shows interceptors of clients and servers, and who a handler is told calls it, through the real engine.

use crate::support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::text::{Echo, EchoServer};
use support::{EchoClient, Text, channel, watched};
use trunkline::{
    Caller, ClientCall, Code, Execution, Incoming, Intercept, Receiver, Request, Response, Sender, Server,
    ServerBuilder, ServerCall, ServerHandle, Status, Wait,
};
use trunkline_daemon::{Config, Daemon};

/// Tells what it was called with.
#[derive(Clone, Default)]
struct Told {
    handled: Arc<AtomicUsize>,
    callers: Arc<Mutex<Vec<Option<Caller>>>>,
}

impl Told {
    fn note(&self, caller: Option<&Caller>) {
        self.handled.fetch_add(1, Ordering::Relaxed);
        self.callers.lock().unwrap().push(caller.cloned());
    }

    /// Who called since this was asked last.
    fn callers(&self) -> Vec<Option<Caller>> {
        std::mem::take(&mut self.callers.lock().unwrap())
    }
}

impl Echo for Told {
    async fn say(&self, request: Incoming<Text>) -> Result<Response<Text>, Status> {
        self.note(request.caller());
        let pairs: Vec<String> = request
            .metadata()
            .iter()
            .map(|(key, value)| format!("{key}={}", String::from_utf8_lossy(value)))
            .collect();
        Ok(Text::new(pairs.join(" ")).into())
    }

    async fn repeat(&self, request: Incoming<Text>, _out: Sender<Text>) -> Result<(), Status> {
        self.note(request.caller());
        Ok(())
    }

    async fn collect(&self, input: Receiver<Text>) -> Result<Response<Text>, Status> {
        self.note(input.caller());
        Ok(Text::new(input.metadata().text("who").unwrap_or("nobody")).into())
    }

    async fn chat(&self, _input: Receiver<Text>, _out: Sender<Text>) -> Result<(), Status> {
        Ok(())
    }
}

struct Stage {
    dir: tempfile::TempDir,
    _daemon: Daemon,
    server: ServerHandle,
}

impl Stage {
    fn new(server: ServerBuilder) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("daemon.sock");
        let config = format!("[daemon]\nsocket = {path:?}\n");
        let _daemon = Daemon::start(Config::from_toml(&config, "test").unwrap()).unwrap();
        let server = server.socket(&path).spawn().unwrap();
        server.ready().wait().unwrap();
        Self { dir, _daemon, server }
    }

    fn channel(&self) -> trunkline::Channel {
        channel(&self.dir.path().join("daemon.sock"))
    }
}

/// Adds `word` to the value of `who`.
fn adds(word: &'static str) -> impl Fn(&mut ClientCall<'_>) -> Result<(), Status> + Send + Sync + 'static {
    move |call| {
        let before = call.metadata_mut().remove("who");
        let before = before.map(|value| format!("{} ", String::from_utf8_lossy(&value))).unwrap_or_default();
        Ok(call.metadata_mut().insert("who", format!("{before}{word}"))?)
    }
}

#[test]
fn a_clients_interceptors_see_each_call_once_and_in_order() {
    watched(|| {
        let told = Told::default();
        let stage = Stage::new(Server::builder().add_service(EchoServer::new(told.clone())));
        let plain = stage.channel();
        let channel = plain.clone().with_interceptor(adds("one")).with_interceptor(adds("two"));
        let channel = channel.with_interceptor(|call: &mut ClientCall<'_>| match call.path() {
            "/test.Echo/Repeat" => Err(Status::permission_denied("no repetitions")),
            _ => Ok(()),
        });
        let client = EchoClient::new(channel);
        let request = Request::new(Text::new("x")).with_metadata("who", "zero").unwrap();
        assert_eq!(client.say(request).wait().unwrap().view().text(), "who=zero one two");
        assert_eq!(client.collect().finish().wait().unwrap().view().text(), "one two");
        assert_eq!(EchoClient::new(plain).say(Text::new("x")).wait().unwrap().view().text(), "");
        let mut repeated = client.repeat(Text::new("x")).wait();
        let refused = match &mut repeated {
            Ok(words) => words.recv().wait().map(drop),
            Err(status) => Err(status.clone()),
        };
        let refused = refused.unwrap_err();
        assert_eq!((refused.code(), refused.execution()), (Code::PermissionDenied, Execution::NotExecuted));
        assert_eq!(told.handled.load(Ordering::Relaxed), 3);
    });
}

#[test]
fn an_interceptor_may_shorten_a_call() {
    watched(|| {
        let stage = Stage::new(Server::builder().add_service(EchoServer::new(Told::default())));
        let channel = stage.channel().with_interceptor(|call: &mut ClientCall<'_>| {
            call.limit(Duration::ZERO);
            Ok(())
        });
        let status = EchoClient::new(channel).say(Text::new("x")).wait().unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded);
    });
}

#[test]
fn a_servers_interceptors_refuse_and_change_what_handlers_see() {
    watched(|| {
        let told = Told::default();
        let seen = |word: &'static str| {
            move |call: &mut ServerCall<'_>| {
                call.metadata_mut().insert("seen", word)?;
                Ok(())
            }
        };
        let service = EchoServer::new(told.clone()).with_interceptor(seen("of the service"));
        let server = Server::builder().add_service(service).with_interceptor(seen("first"));
        let stage = Stage::new(server.with_interceptor(|call: &mut ServerCall<'_>| {
            assert!(call.caller().is_none(), "nobody has asked");
            match call.metadata().text("tenant") {
                Some("blue") => Ok(()),
                _ => Err(Status::unauthenticated(format!("{} wants a tenant", call.path()))),
            }
        }));
        let client = EchoClient::new(stage.channel());
        let request = Request::new(Text::new("x")).with_metadata("tenant", "blue").unwrap();
        let answer = client.say(request).wait().unwrap();
        assert_eq!(answer.view().text(), "tenant=blue seen=first seen=of the service");
        let status = client.say(Text::new("x")).wait().unwrap_err();
        assert_eq!(
            (status.code(), status.message()),
            (Code::Unauthenticated, "/test.Echo/Say wants a tenant")
        );
        let status = client.collect().finish().wait().unwrap_err();
        assert_eq!(
            (status.code(), status.message()),
            (Code::Unauthenticated, "/test.Echo/Collect wants a tenant")
        );
        assert_eq!(told.handled.load(Ordering::Relaxed), 1);
        drop(stage.server);
    });
}

#[test]
fn a_server_that_asks_is_told_who_calls() {
    watched(|| {
        let told = Told::default();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let server =
            Server::builder().name("test").add_service(EchoServer::new(told.clone())).tell_callers(true);
        let stage = Stage::new(server.with_interceptor({
            let seen = Arc::clone(&seen);
            move |call: &mut ServerCall<'_>| {
                seen.lock().unwrap().push(call.caller().cloned());
                Ok(())
            }
        }));
        let client = EchoClient::new(stage.channel());
        let forged =
            Request::new(Text::new("x")).with_metadata("trunkline-caller", "application;0;1;init").unwrap();
        assert_eq!(client.say(forged).wait().unwrap().view().text(), "", "the key is the daemon's");
        client.say(Text::new("x")).wait().unwrap();
        client.collect().finish().wait().unwrap();
        let me = Caller::Application {
            name: "test".into(),
            pid: std::process::id(),
            uid: rustix::process::getuid().as_raw(),
        };
        let expected = vec![Some(me); 3];
        assert_eq!(told.callers(), expected);
        assert_eq!(*seen.lock().unwrap(), expected);
    });
}

#[test]
fn a_server_that_does_not_ask_believes_nobody() {
    watched(|| {
        let told = Told::default();
        let stage = Stage::new(Server::builder().add_service(EchoServer::new(told.clone())));
        let forged =
            Request::new(Text::new("x")).with_metadata("trunkline-caller", "application;0;1;init").unwrap();
        EchoClient::new(stage.channel()).say(forged).wait().unwrap();
        assert_eq!(told.callers(), [None]);
    });
}
