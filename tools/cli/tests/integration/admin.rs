//! Shows the admin API at a socket of its own: a stock gRPC client (tonic) looks and changes there if it may, and is
//! told why if it may not; nothing else is served there, and the API nowhere else; the verbs go there; it outlives a
//! replacement of the daemon.

use crate::support;

use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;
use support::{Ended, Host, end, trunkline, watched};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Endpoint;
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

const DENY: &str = r#"
[[policy]]
name = "no-bells"
kind = "access"
side = "server"
deny = 'application == "bell"'
"#;

const LIST: &str = "/trunkline.admin.v1.Admin/ListPolicies";
const CHANGE: &str = "/trunkline.admin.v1.Control/ChangePolicies";

#[derive(Clone, PartialEq, prost::Message)]
struct Nothing {}

/// Of `ListPoliciesResponse`, what is looked at.
#[derive(Clone, PartialEq, prost::Message)]
struct Listed {
    #[prost(string, tag = "2")]
    document: String,
}

/// Of `ChangePoliciesRequest`, what is said.
#[derive(Clone, PartialEq, prost::Message)]
struct Change {
    #[prost(int32, tag = "1")]
    change: i32,
    #[prost(string, tag = "2")]
    document: String,
}

/// Of `ChangePoliciesResponse`, what is looked at.
#[derive(Clone, PartialEq, prost::Message)]
struct Changed {
    #[prost(string, repeated, tag = "1")]
    added: Vec<String>,
    #[prost(uint32, tag = "4")]
    count: u32,
}

fn addition() -> Change {
    Change { change: 2, document: DENY.into() }
}

/// A host whose operators connect to a socket, with more in `[admin]`.
struct Stage {
    host: Host,
    socket: PathBuf,
    _folder: tempfile::TempDir,
}

impl Stage {
    fn new(more: &str) -> Self {
        watched();
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("admin.sock");
        let own = format!(
            "[daemon]\nlisten = [\"tcp://127.0.0.1:0\"]\n[admin]\nlisten = [\"unix:{}\"]",
            socket.display()
        );
        Self { host: Host::start(&format!("{own}\n{more}")), socket, _folder: folder }
    }

    /// A call by tonic, as any of its users would make it.
    fn ask<A, B>(&self, path: &'static str, message: A) -> Result<B, Status>
    where
        A: prost::Message + Default + 'static,
        B: prost::Message + Default + 'static,
    {
        ask(format!("unix:{}", self.socket.display()), path, message)
    }

    /// A verb that goes to the socket.
    fn verb(&self, arguments: &[&str]) -> Ended {
        let mut command = trunkline(&["--admin-socket", self.socket.to_str().unwrap()]);
        end(command.args(arguments), "")
    }
}

fn ask<A, B>(target: String, path: &'static str, message: A) -> Result<B, Status>
where
    A: prost::Message + Default + 'static,
    B: prost::Message + Default + 'static,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async move {
        let channel = Endpoint::from_shared(target).unwrap().connect().await.unwrap();
        let mut client = tonic::client::Grpc::new(channel);
        client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let mut request = Request::new(message);
        // Whatever a client says of itself, it is who the kernel says it is.
        request.metadata_mut().insert("trunkline-caller", "uid:4294967294".parse().unwrap());
        let codec = ProstCodec::<A, B>::default();
        client.unary(request, PathAndQuery::from_static(path), codec).await.map(tonic::Response::into_inner)
    })
}

/// Each stream keeps what it showed last: who opens them without end is refused, and one that ends makes room.
#[test]
fn who_watches_has_so_many_streams() {
    const OF_USER_MAX: usize = 8;
    let stage = Stage::new("");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let target = format!("unix:{}", stage.socket.display());
        let channel = Endpoint::from_shared(target).unwrap().connect().await.unwrap();
        let mut client = tonic::client::Grpc::new(channel);
        let mut watched = Vec::new();
        let refused = loop {
            client.ready().await.unwrap();
            let request = Request::new(Nothing {});
            let path = PathAndQuery::from_static("/trunkline.admin.v1.Admin/Top");
            let codec = ProstCodec::<Nothing, Nothing>::default();
            let mut stream = match client.server_streaming(request, path, codec).await {
                Ok(response) => response.into_inner(),
                Err(refused) => break refused,
            };
            match stream.message().await {
                Ok(_) => watched.push(stream),
                Err(refused) => break refused,
            }
        };
        assert_eq!((watched.len(), refused.code()), (OF_USER_MAX, Code::ResourceExhausted), "{refused}");
        assert!(refused.message().contains("WATCHERS_PER_USER_MAX"), "{refused}");
        watched.clear();
    });
    // Its connection, too, is closed with that. It is noticed in a moment.
    drop(runtime);
    while stage.verb(&["top", "--once", "--interval", "100ms"]).code != Some(0) {
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn any_grpc_client_looks_and_changes_if_it_may() {
    let folder = tempfile::tempdir().unwrap();
    let audit = folder.path().join("audit");
    let stage = Stage::new(&format!("audit_log = {:?}\nsocket_mode = \"0600\"", audit.display().to_string()));
    let mode = std::fs::metadata(&stage.socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(stage.ask::<_, Listed>(LIST, Nothing {}).unwrap().document, "");
    let changed: Changed = stage.ask(CHANGE, addition()).unwrap();
    assert_eq!((changed.added, changed.count), (vec!["no-bells".to_owned()], 1));
    assert!(stage.ask::<_, Listed>(LIST, Nothing {}).unwrap().document.contains("name = \"no-bells\""));
    let again = stage.ask::<_, Changed>(CHANGE, addition()).unwrap_err();
    assert_eq!(again.code(), Code::InvalidArgument);
    assert!(again.message().contains("there is a policy \"no-bells\" already"), "{again}");

    let own = format!("uid:{}", rustix::process::geteuid().as_raw());
    let lines = std::fs::read_to_string(audit).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2);
    assert!(lines.iter().all(|line| line["identity"] == own.as_str()), "{lines:?}");
}

/// However often, and by whichever way; and of no one more lines than a minute has.
#[test]
fn who_may_not_and_tries_is_written_down() {
    const TRIES: usize = 100;
    let folder = tempfile::tempdir().unwrap();
    let audit = folder.path().join("audit");
    let keys = format!("change = [\"uid:4294967294\"]\naudit_log = {:?}", audit.display().to_string());
    let stage = Stage::new(&keys);
    stage.ask::<_, Changed>(CHANGE, addition()).unwrap_err();
    let lines = || -> Vec<Value> {
        let text = std::fs::read_to_string(&audit).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let until = |count: usize| {
        while lines().len() < count {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    };
    until(1);
    // By the library it asks for the service, and never comes to say which change it is.
    let refused = stage.host.verb(&["policy", "remove", "x"], "");
    assert_ne!(refused.code, Some(0), "{refused:?}");
    until(2);
    let own = format!("uid:{}", rustix::process::geteuid().as_raw());
    for (line, change) in lines().iter().zip([&CHANGE[1..], "trunkline.admin.v1.Control"]) {
        assert_eq!((&line["identity"], &line["change"]), (&own.as_str().into(), &change.into()), "{line}");
        let outcome = line["outcome"].as_str().unwrap();
        assert!(outcome.starts_with("denied: not for uid ") && outcome.contains("admin.change"), "{line}");
    }
    for _ in 0..TRIES {
        stage.ask::<_, Changed>(CHANGE, addition()).unwrap_err();
    }
    // Who looks and may not changes nothing, and is no line.
    drop(stage);
    let lines = lines();
    let left_out = |line: &Value| -> usize {
        let words = line["outcome"].as_str().unwrap().strip_suffix(" more, within a minute");
        words.map_or(1, |words| words.rsplit(' ').next().unwrap().parse().unwrap())
    };
    assert_eq!(lines.iter().map(left_out).sum::<usize>(), 2 + TRIES, "each is there, or counted: {lines:?}");
    assert!(lines.len() < TRIES, "{lines:?}");
}

#[test]
fn who_may_not_is_told_who_says_so() {
    let stage = Stage::new("change = [\"uid:4294967294\"]");
    assert_eq!(stage.ask::<_, Listed>(LIST, Nothing {}).unwrap().document, "");
    let refused = stage.ask::<_, Changed>(CHANGE, addition()).unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert!(
        refused.message().contains("admin.change in the daemon's configuration says who may"),
        "{refused}"
    );
    assert_eq!(stage.ask::<_, Listed>(LIST, Nothing {}).unwrap().document, "");
    let refused = stage.verb(&["policy", "remove", "x"]);
    assert!(refused.err.contains("admin.change in the daemon's configuration"), "{}", refused.err);

    let stage = Stage::new("read = []");
    let refused = stage.ask::<_, Listed>(LIST, Nothing {}).unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert!(refused.message().contains("admin.read"), "{refused}");
}

#[test]
fn nothing_else_is_served_there_and_the_api_nowhere_else() {
    let stage = Stage::new("");
    let (_server, _client) = stage.host.serve_search();
    for path in
        ["/search.v1.Search/Query", "/grpc.health.v1.Health/Check", "/trunkline.admin.v1.Admin/Nothing", "/x"]
    {
        assert_eq!(
            stage.ask::<_, Nothing>(path, Nothing {}).unwrap_err().code(),
            Code::Unimplemented,
            "{path}"
        );
    }
    let listed: Value = serde_json::from_str(&stage.host.verb(&["list", "--json"], "").out).unwrap();
    let port = listed["listening"][0].as_str().unwrap().replace("tcp://", "http://");
    assert_eq!(listed["adminListening"][0], format!("unix://{}", stage.socket.display()));
    for path in [LIST, CHANGE] {
        let refused = ask::<_, Nothing>(port.clone(), path, Nothing {}).unwrap_err();
        assert_eq!(refused.code(), Code::Unimplemented, "{path}");
    }
    assert_eq!(
        ask::<_, Nothing>(port, "/grpc.health.v1.Health/Check", Nothing {}).map(|_| ()).ok(),
        Some(())
    );
}

#[test]
fn the_verbs_go_there_and_it_outlives_a_replacement() {
    let logs = tempfile::tempdir().unwrap();
    let audit = logs.path().join("audit");
    let stage = Stage::new(&format!("audit_log = {:?}", audit.display().to_string()));
    let listed = stage.verb(&["list"]);
    assert!(
        listed.out.contains(&format!("operators connect to unix://{}", stage.socket.display())),
        "{listed:?}"
    );
    let folder = tempfile::tempdir().unwrap();
    let deny = folder.path().join("deny.toml");
    std::fs::write(&deny, DENY).unwrap();
    let added = stage.verb(&["policy", "add", deny.to_str().unwrap()]);
    assert_eq!(added.out, "added: no-bells\nthe chain has 1 policy\n", "{added:?}");
    assert_eq!(stage.verb(&["top", "--once", "--interval", "100ms"]).code, Some(0));

    let before =
        serde_json::from_str::<Value>(&stage.verb(&["list", "--json"]).out).unwrap()["processId"].clone();
    let upgraded = stage.verb(&["upgrade"]);
    assert_eq!(upgraded.code, Some(0), "{upgraded:?}");
    let after =
        serde_json::from_str::<Value>(&stage.verb(&["list", "--json"]).out).unwrap()["processId"].clone();
    assert_ne!(before, after);
    let lines = std::fs::read_to_string(&audit).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let upgrades: Vec<&Value> = lines.iter().filter(|line| line["change"] == "upgrade").collect();
    assert!(upgrades.len() == 2 && lines.len() == 3, "{lines:?}");
    for line in upgrades {
        let program = line["program"].as_str().unwrap_or_default();
        assert!(program.ends_with("/trunkline"), "{line}");
    }
    assert!(stage.ask::<_, Listed>(LIST, Nothing {}).unwrap().document.contains("name = \"no-bells\""));
}
