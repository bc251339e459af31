//! A policy as an operator writes it: one `[[policy]]` table.

use crate::setting::Settings;
use serde::{Deserialize, Serialize};
use std::fmt;
use trunkline_call::Code;

/// One `[[policy]]` table. Which keys belong to which kind, and their bounds, is checked by
/// [`Chain::build`](crate::Chain::build); docs/policy.md explains them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// Names the policy in commands, statuses and figures.
    pub name: String,
    /// What it does.
    pub kind: Kind,
    /// Whose calls: those applications of this host make, or those they serve.
    pub side: Side,
    /// Only calls of (or to) the application of this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application: Option<String>,
    /// Only calls of this service, by its full name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// Only calls of this method of the service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Only calls for which this expression is true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// `access`: calls pass only if this is true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow: Option<String>,
    /// `access`: calls are refused if this is true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deny: Option<String>,
    /// Words for the refused caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// `rate-limit`: calls per second and key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls_per_second: Option<f64>,
    /// `rate-limit`: calls that may come at once after a pause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
    /// `rate-limit`: expression whose value tells calls apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// `rate-limit`: keys remembered at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys_max: Option<u32>,
    /// `fault`, `access-log`, `mirror`: share of the calls, 0 to 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<f64>,
    /// `fault`: time the call is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
    /// `fault`: the code the call ends with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abort: Option<CodeName>,
    /// `mirror`: where copies go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// `timeout`: time the call may take, if its caller gives it more. `mirror`: time a copy may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// `balance`: how an endpoint is picked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pick: Option<PickName>,
    /// `balance`, `least-request`: endpoints looked at for each call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choices: Option<u32>,
    /// `balance`, `ring-hash`: metadata by whose value calls meet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash_header: Option<String>,
    /// `balance`: calls under way at one endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outstanding_max: Option<u32>,
    /// `balance`: calls waiting for a connection to one endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending_max: Option<u32>,
    /// `balance`: failures in a row after which an endpoint is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eject_after: Option<u32>,
    /// `balance`: how long, the first time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eject_ms: Option<u64>,
    /// `balance`: share of the endpoints that may be left out at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eject_percent_max: Option<u32>,
    /// `compress`: how requests are compressed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<EncodingName>,
    /// `priority`: which calls these are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<ClassName>,
    /// `priority`, `batch`: what all of them may move while latency calls are about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<u64>,
    /// `queue`: calls for which this expression is true go before the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub urgent: Option<String>,
    /// `queue`: calls that wait at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_max: Option<u32>,
    /// `queue`: time a call may wait under overload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_ms: Option<u64>,
    /// `queue`: time a call may wait otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_ms: Option<u64>,
    /// `concurrency-limit`, `queue`: calls under way at once. `mirror`: copies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls_max: Option<u32>,
    /// `workers`: the class of the calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_class: Option<u32>,
    /// `workers`: whether calls of one caller go to one worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sticky: Option<bool>,
    /// `workers`: workers of this host that serve the class and no other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers_reserved: Option<u32>,
    /// `module`: the shared object, by its absolute path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// `module`: what becomes of calls when it is faulty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_fault: Option<OnFault>,
    /// `module`: what the module is told. The last, because it is a table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<Settings>,
}

/// What a policy does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Lets calls pass, or refuses them, by an expression.
    #[default]
    Access,
    /// Token buckets.
    RateLimit,
    /// Delays calls or ends them, to try what callers make of it.
    Fault,
    /// An upper bound for deadlines.
    Timeout,
    /// A line per call.
    AccessLog,
    /// An upper bound for calls under way.
    ConcurrencyLimit,
    /// Which endpoint gets a call.
    Balance,
    /// Calls wait their turn, and not for too long.
    Queue,
    /// How requests to gRPC servers are compressed.
    Compress,
    /// What a module in a shared object says.
    Module,
    /// Which calls go ahead of which on this host.
    Priority,
    /// Sends copies of calls elsewhere.
    Mirror,
    /// Which worker gets a call.
    Workers,
}

/// On which side of a call a policy stands. A call between two applications of one host passes both, client first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// Calls applications of this host make.
    #[default]
    Client,
    /// Calls applications of this host serve.
    Server,
}

/// What becomes of the calls of a module that was ejected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnFault {
    /// They are refused.
    #[default]
    Deny,
    /// They go on as if the policy were not there.
    Pass,
}

/// A message encoding of gRPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the names of the encodings say all there is to say")]
pub enum EncodingName {
    Identity,
    Gzip,
    Deflate,
    Zstd,
}

/// What calls are to those who run the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClassName {
    /// Somebody waits for them.
    Latency,
    /// They have time.
    Batch,
}

/// How an endpoint is picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PickName {
    /// The first that can be reached.
    First,
    /// One after the other.
    RoundRobin,
    /// The less loaded of a few.
    LeastRequest,
    /// By what servers report.
    Weighted,
    /// By the value of `hash_header`.
    RingHash,
}

/// A status code by gRPC's name for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeName(pub Code);

impl Definition {
    /// Whether one of its expressions reads an input, as its text says: `caller.program`.
    pub fn reads(&self, input: &str) -> bool {
        let expressions = [&self.when, &self.allow, &self.deny, &self.key, &self.urgent];
        expressions.into_iter().flatten().any(|text| text.contains(input))
    }
}

impl Kind {
    /// As written in a file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Access => "access",
            Self::RateLimit => "rate-limit",
            Self::Fault => "fault",
            Self::Timeout => "timeout",
            Self::AccessLog => "access-log",
            Self::ConcurrencyLimit => "concurrency-limit",
            Self::Balance => "balance",
            Self::Queue => "queue",
            Self::Compress => "compress",
            Self::Module => "module",
            Self::Priority => "priority",
            Self::Mirror => "mirror",
            Self::Workers => "workers",
        }
    }
}

impl Side {
    /// As written in a file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }
}

impl fmt::Display for CodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())
    }
}

impl Serialize for CodeName {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CodeName {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let found = (1..=16).map(Code::from_number).find(|code| code.name() == text);
        found.map(Self).ok_or_else(|| {
            let advice = "write a gRPC status code other than OK, such as \"UNAVAILABLE\"";
            serde::de::Error::custom(format!("{text:?} is no status code: {advice}"))
        })
    }
}
