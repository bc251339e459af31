//! What stands for a host: a folder, a daemon's socket in it, and the processes around them.

use super::process::{Process, until};
use crate::program::{LOG_VARIABLE, TARGET_VARIABLE};
use std::ffi::OsString;
use std::fmt::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;
use trunkline_test_logs::Expected;

/// A host with a daemon.
pub struct Host {
    dir: TempDir,
    daemon: Option<Process>,
    listen: Vec<String>,
    /// Where the calls of the probe service go; nowhere in particular if empty.
    routes: Vec<String>,
    /// Where it serves over R2P2, and the routers it tells.
    r2p2: Option<(String, Vec<String>)>,
    namespace: Option<String>,
    /// What its daemon is: `daemon`, or `healthy`, which answers probes of its health.
    part: &'static str,
    /// As `daemon.shards` has it.
    shards: String,
    keys: Option<Keys>,
    /// The version of TLS it speaks; every one if empty.
    tls_version: String,
    /// What holds for calls of the probe service, and what else is in the configuration.
    service_config: String,
    more: String,
    /// More keys of `[daemon]`.
    daemon_keys: String,
    /// What its daemons may log.
    expected: Vec<Expected>,
}

/// A certificate and its key, of all hosts that know each other: each asks for it, and shows it.
#[derive(Clone)]
pub struct Keys(Arc<TempDir>);

/// What a daemon holds, by name (`program.rs`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held(Vec<(String, u64)>);

impl Host {
    /// A host whose daemon talks to no other.
    pub fn alone() -> Self {
        Self::with(Vec::new(), Vec::new())
    }

    /// The same, with so many shards.
    pub fn of_shards(shards: u16) -> Self {
        let mut host = Self { shards: shards.to_string(), ..Self::unstarted() };
        host.start();
        host
    }

    /// The same, with as many shards as there is work for.
    pub fn elastic() -> Self {
        let mut host = Self { shards: "\"auto\"".into(), ..Self::unstarted() };
        host.start();
        host
    }

    /// The daemon that replaces this one has so many shards.
    pub fn set_shards(&mut self, shards: u16) {
        self.say_shards(&shards.to_string());
    }

    /// The daemon that replaces this one has as many shards as there is work for.
    pub fn set_shards_elastic(&mut self) {
        self.say_shards("\"auto\"");
    }

    fn say_shards(&mut self, shards: &str) {
        let file = self.dir.path().join("daemon.toml");
        let text = std::fs::read_to_string(&file).unwrap();
        let key = |shards: &str| format!("\nshards = {shards}\n");
        std::fs::write(&file, text.replace(&key(&self.shards), &key(shards))).unwrap();
        self.shards = shards.to_owned();
    }

    /// A host others reach over loopback TCP.
    pub fn over_tcp() -> Self {
        Self::with(vec!["tcp://127.0.0.1:0".to_owned()], Vec::new())
    }

    /// The same, with more configuration.
    pub fn over_tcp_as(more: &str) -> Self {
        let listen = vec!["tcp://127.0.0.1:0".to_owned()];
        let mut host = Self { listen, more: more.to_owned(), ..Self::unstarted() };
        host.start();
        host
    }

    /// A host others reach over loopback TCP, to which every user may attach; with more keys of `[daemon]`, and more
    /// configuration.
    pub fn open_to_users(daemon_keys: &str, more: &str) -> Self {
        Self::open_to_users_as("daemon", shards(), daemon_keys, more)
    }

    /// The same, whose daemon has one shard, however many others have.
    pub fn open_to_users_of_one_shard(more: &str) -> Self {
        Self::open_to_users_as("daemon", 1, "", more)
    }

    /// The same, with a daemon that answers probes of its health.
    pub fn healthy(daemon_keys: &str, more: &str) -> Self {
        Self::open_to_users_as("healthy", shards(), daemon_keys, more)
    }

    fn open_to_users_as(part: &'static str, shards: u16, daemon_keys: &str, more: &str) -> Self {
        let mut host = Self { part, shards: shards.to_string(), ..Self::unstarted() };
        host.listen.push("tcp://127.0.0.1:0".to_owned());
        (host.daemon_keys, host.more) = (format!("socket_mode = \"0666\"\n{daemon_keys}"), more.to_owned());
        let anybody = std::fs::Permissions::from_mode(0o711);
        std::fs::set_permissions(host.dir.path(), anybody).unwrap();
        host.start();
        host
    }

    /// A host others reach over a Unix socket.
    pub fn over_unix() -> Self {
        let mut host = Self::unstarted();
        host.listen.push(format!("unix:{}", host.dir.path().join("peers.sock").display()));
        host.start();
        host
    }

    /// A host others reach by datagrams at `listen`, straight or through the routers with these control
    /// ports.
    pub fn over_r2p2(namespace: Option<&str>, listen: &str, controls: &[&str]) -> Self {
        let mut host = Self::unstarted();
        host.namespace = namespace.map(str::to_owned);
        let controls = controls.iter().map(|control| (*control).to_owned()).collect();
        host.r2p2 = Some((listen.to_owned(), controls));
        host.start();
        host
    }

    /// A host in a network namespace, whose daemon calls others.
    pub fn within(namespace: &str) -> Self {
        let mut host = Self::unstarted();
        host.namespace = Some(namespace.to_owned());
        host.start();
        host
    }

    /// A host whose daemon sends the calls of the probe service to `far`.
    pub fn routed_to(far: &Host) -> Self {
        Self::routed(vec![far.endpoint().to_owned()])
    }

    /// A host whose daemon sends the calls of the probe service to one of these endpoints.
    pub fn routed(endpoints: Vec<String>) -> Self {
        Self::with(Vec::new(), endpoints)
    }

    /// A host that speaks TLS with those who have these keys, and to others not at all.
    pub fn secured(keys: &Keys, listens: bool) -> Self {
        let mut host = Self { keys: Some(keys.clone()), ..Self::unstarted() };
        host.listen.extend(listens.then(|| "tcp://127.0.0.1:0".to_owned()));
        host.start();
        host
    }

    /// A host that speaks this version of TLS with those who have these keys: it listens there, sends the calls of the
    /// probe service to `routes`, and has more configuration.
    pub fn secured_with(
        keys: &Keys,
        listen: Option<&str>,
        routes: Vec<String>,
        version: &str,
        more: &str,
    ) -> Self {
        let listen = listen.map(str::to_owned).into_iter().collect();
        let tls_version = version.to_owned();
        let (keys, more) = (Some(keys.clone()), more.to_owned());
        let mut host = Self { listen, routes, keys, tls_version, more, ..Self::unstarted() };
        host.start();
        host
    }

    /// A host that sends the calls of the probe service there, with a gRPC service config and more configuration.
    pub fn routed_as(endpoints: Vec<String>, service_config: &str, more: &str) -> Self {
        let (service_config, more) = (service_config.to_owned(), more.to_owned());
        let mut host = Self { routes: endpoints, service_config, more, ..Self::unstarted() };
        host.start();
        host
    }

    /// A host whose gateway forwards calls of the probe service to `far`.
    pub fn gateway_to(far: &Host, more: &str) -> Self {
        let mut host = Self { routes: vec![far.endpoint().to_owned()], ..Self::unstarted() };
        host.more = format!("[gateway]\nlisten = [{:?}]\n{more}", host.gateway());
        host.start();
        host
    }

    /// Where gRPC clients have their calls forwarded.
    pub fn gateway(&self) -> String {
        format!("unix:{}", self.dir.path().join("grpc.sock").display())
    }

    fn with(listen: Vec<String>, routes: Vec<String>) -> Self {
        let mut host = Self { listen, routes, ..Self::unstarted() };
        host.start();
        host
    }

    fn unstarted() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            daemon: None,
            listen: Vec::new(),
            routes: Vec::new(),
            r2p2: None,
            namespace: None,
            part: "daemon",
            shards: shards().to_string(),
            keys: None,
            tls_version: String::new(),
            service_config: String::new(),
            more: String::new(),
            daemon_keys: String::new(),
            expected: Vec::new(),
        }
    }

    /// Starts the daemon, at the same socket and addresses as the last time.
    pub fn start(&mut self) {
        let config = self.dir.path().join("daemon.toml");
        std::fs::write(&config, self.config()).unwrap();
        let arguments = [self.part, config.to_str().unwrap()];
        let mut daemon = Process::start_within(self.namespace.as_deref(), &arguments, &[]);
        daemon.expect(&self.expected);
        // The port the kernel chose stays this host's port.
        self.listen = daemon.greeting().split_whitespace().map(str::to_owned).collect();
        if let Some((listen, _)) = &mut self.r2p2 {
            let endpoint = self.listen.last().and_then(|endpoint| endpoint.strip_prefix("r2p2://"));
            *listen = endpoint.expect("it listens for datagrams").to_owned();
        }
        self.daemon = Some(daemon);
    }

    /// From now on its daemons may log a line at ERROR that has `part` in it, because `why`.
    pub fn expect(&mut self, part: &'static str, why: &'static str) {
        let line = Expected { part, why };
        self.expected.push(line);
        if let Some(daemon) = &mut self.daemon {
            daemon.expect(&[line]);
        }
    }

    /// Kills the daemon.
    pub fn kill_daemon(&mut self) {
        self.daemon = None;
    }

    /// Has the daemon replaced by another process. For how long calls stood still.
    pub fn replace_daemon(&mut self) -> std::time::Duration {
        let said = self.daemon().replace();
        let paused_ns = said.split(' ').next().and_then(|word| word.parse().ok());
        std::time::Duration::from_nanos(paused_ns.expect("the successor says how long it took"))
    }

    /// The running daemon.
    pub fn daemon(&mut self) -> &mut Process {
        self.daemon.as_mut().expect("the daemon runs")
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        self.dir.path()
    }

    /// Where applications attach.
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("trunkline.sock")
    }

    /// Where other hosts reach this one.
    pub fn endpoint(&self) -> &str {
        self.listen.first().expect("a host that listens")
    }

    /// The same, with TLS.
    pub fn secured_endpoint(&self) -> String {
        self.endpoint().replace("tcp://", &format!("tls://{}@", Keys::NAME))
    }

    /// Where it serves by datagrams, if it does.
    pub fn datagrams(&self) -> Option<&str> {
        self.listen.iter().find_map(|endpoint| endpoint.strip_prefix("r2p2://"))
    }

    /// The file servers on this host log executed orders to.
    pub fn log(&self) -> PathBuf {
        self.dir.path().join("executed")
    }

    /// Starts a server on this host: `server`, `older`, `newer`.
    pub fn server(&self, role: &str) -> Process {
        Process::start(&[role], &self.environment(""))
    }

    /// Starts a client process on this host.
    pub fn client(&self, target: &str) -> Process {
        self.program("client", target)
    }

    /// Starts a process on this host that plays `role` towards `target`.
    pub fn program(&self, role: &str, target: &str) -> Process {
        Process::start(&[role], &self.environment(target))
    }

    /// The shards that have threads, and the applications on each.
    pub fn shards(&mut self) -> Vec<(usize, Vec<String>)> {
        let answer = self.daemon().ask("shards");
        let words = answer.split(' ').map(|word| {
            let (shard, labels) = word.split_once('=').unwrap_or_else(|| panic!("{answer}"));
            let labels = labels.split(',').filter(|label| !label.is_empty()).map(str::to_owned);
            (shard.parse().unwrap(), labels.collect())
        });
        words.collect()
    }

    /// What the daemon holds.
    pub fn held(&mut self) -> Held {
        let answer = self.daemon().ask("observe");
        let pair = |word: &str| {
            let (name, number) = word.split_once('=').unwrap_or_else(|| panic!("{answer}"));
            (name.to_owned(), number.parse().unwrap())
        };
        Held(answer.split(' ').map(pair).collect())
    }

    /// Waits until the daemon holds nothing but its sessions: no call, no stream, no block, nothing queued.
    pub fn until_idle(&mut self) {
        let mut last = None;
        let began = std::time::Instant::now();
        loop {
            let held = self.held();
            if held.nothing_but_sessions() {
                return;
            }
            assert!(began.elapsed() < crate::scenario::WATCHDOG, "the daemon still holds {last:?}");
            last = Some(held);
            std::thread::park_timeout(std::time::Duration::from_millis(2));
        }
    }

    /// Whether the daemon holds nothing but its sessions, and knows their endpoints.
    pub fn holds_nothing(&mut self) -> bool {
        self.held().nothing_but_sessions()
    }

    /// Waits until a count is what it should be.
    pub fn until_held(&mut self, name: &str, count: u64) {
        until(&format!("{name} = {count}"), || (self.held().of(name) == count).then_some(()));
    }

    fn environment(&self, target: &str) -> Vec<(&'static str, OsString)> {
        let path = |path: PathBuf| path.into_os_string();
        vec![
            ("TRUNKLINE_SOCKET", path(self.socket())),
            (LOG_VARIABLE, path(self.log())),
            (TARGET_VARIABLE, target.into()),
        ]
    }

    /// Where it listens for connections.
    fn streams(&self) -> Vec<&String> {
        self.listen.iter().filter(|endpoint| !endpoint.starts_with("r2p2:")).collect()
    }

    fn config(&self) -> String {
        let node = Path::new(self.dir.path()).file_name().unwrap();
        let mut text = format!(
            "[daemon]\nnode = {node:?}\nsocket = {:?}\nlisten = {:?}\nshards = {}\n",
            self.socket(),
            self.streams(),
            self.shards
        );
        text += &self.daemon_keys;
        if let Some((listen, routers)) = &self.r2p2 {
            let _ = write!(text, "[r2p2]\nlisten = {listen:?}\nrouters = {routers:?}\nslots = 2\n");
            if !routers.is_empty() {
                // They join by themselves.
                text += "mode = \"extended\"\n";
            }
        }
        if let Some(keys) = &self.keys {
            text += &keys.config();
            if !self.tls_version.is_empty() {
                let version = &self.tls_version;
                let _ = writeln!(text, "version_min = {version:?}\nversion_max = {version:?}");
            }
        }
        if !self.routes.is_empty() {
            let _ = writeln!(text, "[services.\"probe.v1.Probe\"]\nendpoints = {:?}", self.routes);
            if !self.service_config.is_empty() {
                let _ = writeln!(text, "service_config = '''{}'''", self.service_config);
            }
        }
        text.push_str(&self.more);
        text
    }
}

/// Threads that carry calls, on every host of a test: `TRUNKLINE_TEST_SHARDS` says how many.
pub fn shards() -> u16 {
    let said = std::env::var("TRUNKLINE_TEST_SHARDS");
    said.map_or(1, |said| said.parse().expect("TRUNKLINE_TEST_SHARDS is a number"))
}

impl Default for Keys {
    fn default() -> Self {
        Self::new()
    }
}

impl Keys {
    /// The name in the certificate.
    const NAME: &str = "host.internal";

    /// New ones.
    pub fn new() -> Self {
        let own = rcgen::generate_simple_self_signed(vec![Self::NAME.to_owned()]).unwrap();
        let keys = Self(Arc::new(tempfile::tempdir().unwrap()));
        std::fs::write(keys.0.path().join("own.pem"), own.cert.pem()).unwrap();
        std::fs::write(keys.0.path().join("own.key"), own.signing_key.serialize_pem()).unwrap();
        keys
    }

    fn config(&self) -> String {
        let [certificate, key] = ["own.pem", "own.key"].map(|name| self.0.path().join(name));
        format!(
            "[tls]\ncertificate = {certificate:?}\nkey = {key:?}\nclient_ca = {certificate:?}\nca = {certificate:?}\n\
             required = true\n"
        )
    }
}

impl Held {
    /// A count by name.
    pub fn of(&self, name: &str) -> u64 {
        self.0.iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("no count called {name}")).1
    }

    fn nothing_but_sessions(&self) -> bool {
        self.0.iter().all(|(name, count)| ["sessions", "endpoints"].contains(&&**name) || *count == 0)
    }
}
