//! The configuration file: every key, its default and its reason. `docs/configuration.md` lists the same, and a test
//! holds the two together.
//!
//! A file is read whole or refused whole: an unknown key, a wrong type or a number out of bounds is a [`ConfigError`]
//! that names place, key, problem and remedy. Every key may be left out; no file at all is a good configuration.

mod debug;
mod error;
mod gateway;
mod http2;
mod level;
mod limit_keys;
mod log;
mod metrics;
mod needless;
mod otlp;
mod r2p2;
mod recorder;
mod relay;
mod rights;
mod rules;
mod samples;
mod sessions;
mod sizes;
mod tenants;
#[cfg(test)]
mod tests;
mod value;

pub use debug::Debug;
pub(crate) use error::Breach;
pub use error::{ConfigError, nearest};
pub use gateway::{Gateway, OpenTo};
pub use http2::{Http2Keys, Tls};
pub use level::check_log_level;
pub use limit_keys::LimitKeys;
pub use log::{Log, LogFormat};
pub use metrics::Metrics;
pub use otlp::{Collector, Otlp};
pub use r2p2::{R2p2, R2p2Mode};
pub use recorder::RecorderKeys;
pub use relay::RelayKeys;
pub use rights::{Egress, Reach, ServiceRule};
pub(crate) use rules::{policy_breach, settle_targets};
pub use samples::{SampleFile, SampledCalls};
pub use sessions::Sessions;
pub use tenants::Tenant;
pub(crate) use tenants::TenantCandidate;
pub use value::{Address, Bytes, Mode, Principal, Shards, UdpAddress, UnixAddress, Whom};

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use trunkline_control::Attach;
use trunkline_engine::{GrpcSettings, Limits, R2p2Settings};
use trunkline_grpc::compress::Encoding;
use trunkline_grpc::service_config::ServiceConfig;
use trunkline_net::{ConnectionLimits, Endpoint, Target};
use trunkline_policy::{Definition, PolicyError};
use trunkline_shm::SessionConfig;

/// All that can be set about a daemon.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The daemon as the host sees it.
    pub daemon: Daemon,
    /// What an attached application gets.
    pub sessions: Sessions,
    /// What one shard holds at most.
    pub limits: LimitKeys,
    /// How gRPC is spoken.
    pub grpc: Grpc,
    /// Keys and certificates.
    pub tls: Tls,
    /// Connections of gRPC.
    pub http2: Http2Keys,
    /// Requests and replies over datagrams.
    pub r2p2: R2p2,
    /// How threads wait.
    pub waiting: Waiting,
    /// What is logged.
    pub log: Log,
    /// Services of gRPC's own that the daemon answers for its applications.
    pub grpc_services: GrpcServices,
    /// Faults planted on purpose.
    pub debug: Debug,
    /// Who may ask the daemon, and who may change it.
    pub admin: Admin,
    /// Where Prometheus reads what was counted.
    pub metrics: Metrics,
    /// The OpenTelemetry collector that is sent figures and spans.
    pub otlp: Otlp,
    /// What the flight recorder keeps beside every call.
    pub recorder: RecorderKeys,
    /// Where calls go that are kept with their messages.
    pub samples: SampleFile,
    /// Where gRPC clients have their calls forwarded.
    pub gateway: Gateway,
    /// Applications of other hosts and containers, attached over TLS.
    pub relay: RelayKeys,
    /// The targets applications may name.
    pub egress: Egress,
    /// Where calls go that no application of this host serves, by full service name.
    pub services: BTreeMap<String, Service>,
    /// Who may serve which services.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub serve: Vec<ServiceRule>,
    /// Who may call which services.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub call: Vec<ServiceRule>,
    /// How the users of this host share a shard's time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tenant: Vec<Tenant>,
    /// Which calls are kept with their messages.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sample: Vec<SampledCalls>,
    /// What every call passes, in order (docs/policy.md).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub policy: Vec<Definition>,
}

/// `[admin]`: who may ask the daemon, and who may change it.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Admin {
    /// Who may look: `trunkline list`, `top`, `explain`, `policy list`.
    pub read: Vec<Principal>,
    /// Who may change: `trunkline policy add`, `set`, `remove`, `apply`.
    pub change: Vec<Principal>,
    /// Unix sockets at which operators reach the admin API, and nothing else, by gRPC. None: only attached
    /// applications do.
    pub listen: Vec<Address>,
    /// Permissions of those sockets.
    pub socket_mode: Mode,
    /// File to which a line is added for every change that was tried. Empty: the log only.
    pub audit_log: PathBuf,
    /// File the chain of policies is kept in. Empty: changes at run time end with the daemon.
    pub policies_file: PathBuf,
}

/// A file of policies: `[[policy]]` tables and nothing else.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyDocument {
    #[serde(default)]
    policy: Vec<Definition>,
}

/// `[daemon]`: the daemon as the host sees it.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Daemon {
    /// Name shown to peers and operators. Empty: the host's name.
    pub node: String,
    /// Path of the socket applications attach to. Empty: where applications look for it (docs/shared-memory.md).
    pub socket: PathBuf,
    /// Permissions of that socket: who may attach is who may write to it.
    pub socket_mode: Mode,
    /// Threads that carry calls. One carries several hundred thousand calls a second; by default more begin while there
    /// is work for them.
    pub shards: Shards,
    /// Addresses other daemons reach this one at. None: nothing listens.
    pub listen: Vec<Address>,
    /// Identities of other hosts' daemons, whole or up to a `*`: they are told who calls, and believed about it.
    pub hosts: Vec<String>,
    /// Connections to other daemons have checksums where those want them, too.
    pub integrity: bool,
    /// Accepted connections at once. Zero: three quarters of the descriptors the process may have.
    pub connections_max: usize,
    /// Accepted connections at once from one address, or one user of this host. Zero: three quarters of all.
    pub connections_per_source_max: usize,
}

/// `[grpc]`: how gRPC is spoken.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Grpc {
    /// How responses are compressed, for clients that can read it.
    pub response_encoding: Compression,
    /// How requests are compressed; servers that cannot read it refuse them.
    pub request_encoding: Compression,
    /// gRPC is spoken to every endpoint, to daemons, too: for addresses behind which both kinds stand.
    pub always: bool,
}

/// A message encoding of gRPC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the names of the encodings say all there is to say")]
pub enum Compression {
    #[default]
    Identity,
    Gzip,
    Deflate,
    Zstd,
}

/// `[waiting]`: how threads wait.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Waiting {
    /// Longest time a shard looks for work before it sleeps. Zero: sleeps at once, saves the core, costs a wake-up.
    pub patience_us_max: u64,
}

/// `[grpc_services]`: services of gRPC's own that the daemon answers while no application serves them itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct GrpcServices {
    /// `grpc.health.v1.Health`: which services can be called here.
    pub health: bool,
    /// `grpc.reflection.v1` and `v1alpha`: the descriptors of what is served.
    pub reflection: bool,
    /// `grpc.channelz.v1`: endpoints and connections.
    pub channelz: bool,
    /// `xds.service.orca.v3`: the load of this host.
    pub orca: bool,
}

impl Default for GrpcServices {
    fn default() -> Self {
        Self { health: true, reflection: true, channelz: true, orca: true }
    }
}

/// `[services."package.Service"]`: where its calls go.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Service {
    /// Daemons whose applications serve it, or gRPC servers: endpoints, or names that are looked up.
    pub endpoints: Vec<Whom>,
    /// What holds for its calls, as a gRPC service config (JSON).
    pub service_config: String,
}

impl Service {
    /// The service config, if there is one.
    pub fn calls(&self) -> Option<ServiceConfig> {
        ServiceConfig::parse(&self.service_config).ok()
    }
}

impl Config {
    /// Reads a configuration; `origin` names it in errors, usually the file's path.
    ///
    /// # Errors
    /// [`ConfigError`] for the first thing wrong, with its place.
    ///
    /// ```
    /// # use trunkline_daemon::Config;
    /// let config = Config::from_toml("[limits]\nmessage_bytes = \"64 MiB\"", "daemon.toml").unwrap();
    /// assert_eq!(config.limits().message_bytes, 64 << 20);
    /// let error = Config::from_toml("[daemon]\nlisen = []", "daemon.toml").unwrap_err();
    /// assert!(error.to_string().starts_with("daemon.toml:2:1: daemon.lisen"));
    /// ```
    pub fn from_toml(text: &str, origin: &str) -> Result<Self, ConfigError> {
        let mut config: Self =
            toml::from_str(text).map_err(|error| ConfigError::of_parser(&error, text, origin))?;
        settle_policies(&mut config.policy, text, origin)?;
        config.check().map_err(|breach| ConfigError::of_rule(breach, text, origin))?;
        Ok(config)
    }

    /// Reads a file of policies; `origin` names it in errors.
    ///
    /// # Errors
    /// As [`Config::from_toml`].
    pub fn policies_from_toml(text: &str, origin: &str) -> Result<Vec<Definition>, ConfigError> {
        let mut document: PolicyDocument =
            toml::from_str(text).map_err(|error| ConfigError::of_parser(&error, text, origin))?;
        settle_policies(&mut document.policy, text, origin)?;
        rules::check_policies(&document.policy)
            .map_err(|breach| ConfigError::of_rule(breach, text, origin))?;
        Ok(document.policy)
    }

    /// Policies as a file of `[[policy]]` tables.
    ///
    /// # Errors
    /// A value has no TOML form. What was read from a file has one.
    pub fn policies_to_toml(policies: &[Definition]) -> Result<String, toml::ser::Error> {
        #[derive(Serialize)]
        struct Document<'a> {
            policy: &'a [Definition],
        }
        if policies.is_empty() { Ok(String::new()) } else { toml::to_string(&Document { policy: policies }) }
    }

    /// Finds the place of a policy's error in the file the policy came from.
    pub fn policy_error(error: PolicyError, text: &str, origin: &str) -> ConfigError {
        let document: Result<PolicyDocument, _> = toml::from_str(text);
        let policies = document.map_or_else(|_| Vec::new(), |document| document.policy);
        // In the chain it may have another place than in this file; if it is not in it at all, it has none.
        let index = policies.iter().position(|policy| policy.name == error.name).unwrap_or(usize::MAX);
        ConfigError::of_rule(rules::policy_breach(PolicyError { index, ..error }), text, origin)
    }

    /// This configuration as a file that sets every key.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("every key has a TOML form")
    }

    /// The daemon's name.
    pub fn node(&self) -> &str {
        if self.daemon.node.is_empty() { host_name() } else { &self.daemon.node }
    }

    /// Where applications attach, if it is set.
    pub fn socket(&self) -> Option<&Path> {
        (!self.daemon.socket.as_os_str().is_empty()).then_some(&*self.daemon.socket)
    }

    /// Where the chain of policies is kept, if it is.
    pub fn policies_file(&self) -> Option<&Path> {
        let path = &*self.admin.policies_file;
        (!path.as_os_str().is_empty()).then_some(path)
    }

    /// Where other daemons reach this one.
    pub fn listen(&self) -> impl Iterator<Item = &Endpoint> {
        self.daemon.listen.iter().map(|address| &address.0)
    }

    /// Where the calls of services go that no application of this host serves: full name, endpoints.
    pub fn services(&self) -> impl Iterator<Item = (&str, impl Iterator<Item = &Target>)> {
        self.services
            .iter()
            .map(|(name, service)| (name.as_str(), service.endpoints.iter().map(|address| &address.0)))
    }

    /// How many connections are accepted.
    pub fn connections(&self) -> ConnectionLimits {
        let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let descriptors = descriptors.and_then(|count| usize::try_from(count).ok()).unwrap_or(1 << 20);
        let or = |value, otherwise: usize| if value == 0 { otherwise } else { value };
        // What is left is for sessions, files, and connections this daemon makes.
        let in_all = or(self.daemon.connections_max, (descriptors / 4 * 3).max(1));
        let of_source = or(self.daemon.connections_per_source_max, in_all - in_all / 4).min(in_all);
        ConnectionLimits { of_source, in_all }
    }

    /// Longest time to look for work before sleeping, in nanoseconds.
    pub fn patience_ns_max(&self) -> u64 {
        self.waiting.patience_us_max.saturating_mul(1000)
    }

    /// The engine's limits.
    pub fn limits(&self) -> Limits {
        self.limits.resolved()
    }

    /// How the engine speaks gRPC.
    pub fn grpc(&self) -> GrpcSettings {
        GrpcSettings {
            response_encoding: self.grpc.response_encoding.into(),
            request_encoding: self.grpc.request_encoding.into(),
            always: self.grpc.always,
            stream_window_bytes: self.http2.stream_window_bytes.as_u32(),
            connection_window_bytes: self.http2.connection_window_bytes.as_u32(),
            ..GrpcSettings::default()
        }
    }

    /// How the engine speaks R2P2.
    pub fn r2p2(&self) -> R2p2Settings {
        let processors = || std::thread::available_parallelism().map_or(1, NonZero::get);
        R2p2Settings {
            mode: match self.r2p2.mode {
                R2p2Mode::Offer => trunkline_r2p2::Mode::Offer,
                R2p2Mode::Extended => trunkline_r2p2::Mode::Extended,
                R2p2Mode::Compatible => trunkline_r2p2::Mode::Compatible,
            },
            serves: self.r2p2.listen.0.is_some(),
            routers: self.r2p2.routers.clone(),
            slots: match self.r2p2.slots {
                0 => u16::try_from(processors()).unwrap_or(u16::MAX),
                slots => slots,
            },
        }
    }

    /// The sizes an application gets that asks for these: zero is the default, everything else is rounded up to what
    /// the session format allows and capped.
    pub fn session_geometry(&self, wanted: &Attach) -> SessionConfig {
        let sessions = &self.sessions;
        SessionConfig {
            submission_entries: sessions.ring(wanted.submission_entries),
            completion_entries: sessions.ring(wanted.completion_entries),
            send_heap_bytes: sessions.heap(wanted.send_heap_bytes),
            receive_heap_bytes: sessions.heap(wanted.receive_heap_bytes),
        }
    }
}

fn settle_policies(policies: &mut [Definition], text: &str, origin: &str) -> Result<(), ConfigError> {
    settle_targets(policies).map_err(|error| ConfigError::of_rule(rules::policy_breach(error), text, origin))
}

impl Default for Daemon {
    fn default() -> Self {
        Self {
            node: String::new(),
            socket: PathBuf::new(),
            socket_mode: Mode(0o660),
            shards: Shards::Auto,
            listen: Vec::new(),
            hosts: Vec::new(),
            integrity: false,
            connections_max: 0,
            connections_per_source_max: 0,
        }
    }
}

impl Default for Admin {
    fn default() -> Self {
        let change = vec![Principal::User(0), Principal::Owner];
        Self {
            read: vec![Principal::Anyone],
            change,
            listen: Vec::new(),
            socket_mode: Mode(0o660),
            audit_log: PathBuf::new(),
            policies_file: PathBuf::new(),
        }
    }
}

impl Admin {
    /// Whether a process may ask a method of the daemon's own.
    ///
    /// # Errors
    /// Why not, and who says so.
    pub(crate) fn permit(&self, reads: bool, uid: u32, gid: u32) -> Result<(), String> {
        let (key, allowed) = if reads { ("admin.read", &self.read) } else { ("admin.change", &self.change) };
        if allowed.iter().any(|principal| principal.covers(uid, gid)) {
            return Ok(());
        }
        Err(format!("not for uid {uid}, gid {gid}; {key} in the daemon's configuration says who may"))
    }
}

impl From<Compression> for Encoding {
    fn from(compression: Compression) -> Self {
        match compression {
            Compression::Identity => Self::Identity,
            Compression::Gzip => Self::Gzip,
            Compression::Deflate => Self::Deflate,
            Compression::Zstd => Self::Zstd,
        }
    }
}

impl Default for Waiting {
    fn default() -> Self {
        Self { patience_us_max: 2000 }
    }
}

/// The kernel's name for this host. It seldom changes and is only a label: read once.
fn host_name() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        if name.trim().is_empty() { "localhost".into() } else { name.trim().into() }
    })
}
