//! `[http2]` and `[tls]`: what is set about connections of gRPC and about encryption.

use super::value::{Bytes, UnixAddress};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trunkline_net::{
    AgeSettings, ClientFiles, Http2Settings, KeepaliveSettings, PingSettings, Rate, ServerFiles, TlsVersion,
    TlsVersions,
};

/// `[tls]`: keys and certificates. The files are read again when they change.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tls {
    /// The daemon's certificate chain, PEM. Empty: TLS is not served.
    pub certificate: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
    /// Roots of clients' certificates, PEM. Empty: clients are not asked for one.
    pub client_ca: PathBuf,
    /// Clients without a certificate are served, too.
    pub client_certificate_optional: bool,
    /// Connections over TCP without TLS are refused.
    pub required: bool,
    /// Roots of the servers called with `tls://`, PEM. Empty: the system's.
    pub ca: PathBuf,
    /// Certificates that are valid no longer, of clients and servers alike: CRLs, PEM. Empty: nobody asks.
    pub crl: PathBuf,
    /// Where an agent of this host gives all of these instead (SPIFFE Workload API). Empty: nowhere.
    pub workload_api: UnixAddress,
    /// The oldest version of TLS that is spoken.
    pub version_min: TlsVersionKey,
    /// The newest.
    pub version_max: TlsVersionKey,
    /// Servers are not asked who they are. No file can say this: only a program that has been told by a person.
    #[serde(skip)]
    pub trusts_anyone: bool,
}

/// A version of TLS, as a file says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub enum TlsVersionKey {
    /// TLS 1.2.
    #[serde(rename = "1.2")]
    V1_2,
    /// TLS 1.3.
    #[serde(rename = "1.3")]
    V1_3,
}

/// `[http2]`: connections of gRPC; the reasons stand at [`Http2Settings`], key by key.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "the names and their reasons are those of `trunkline_net::Http2Settings`")]
pub struct Http2Keys {
    pub streams_max: u32,
    pub stream_window_bytes: Bytes,
    pub connection_window_bytes: Bytes,
    pub header_list_bytes_max: Bytes,
    pub send_ahead_bytes: Bytes,
    pub resets_burst: u32,
    pub resets_per_s: u32,
    pub idle_frames_burst: u32,
    pub idle_frames_per_s: u32,
    pub unfinished_s_max: u64,
    pub keepalive_s: u64,
    pub client_keepalive_s: u64,
    pub keepalive_timeout_s: u64,
    pub keepalive_without_calls: bool,
    pub ping_interval_s_min: u64,
    pub pings_without_calls: bool,
    pub age_s_max: u64,
    pub age_grace_s: u64,
    pub idle_s_max: u64,
}

const SECOND_NS: u64 = 1_000_000_000;

impl Tls {
    /// What the daemon serves TLS with; `None` if it does not.
    pub fn server(&self) -> Option<ServerFiles> {
        let (certificate, key) = (set(&self.certificate)?, set(&self.key)?);
        Some(ServerFiles {
            certificate,
            key,
            client_ca: set(&self.client_ca),
            crl: set(&self.crl),
            client_certificate_is_optional: self.client_certificate_optional,
            versions: self.versions(),
        })
    }

    /// What the daemon calls servers with: the same certificate says who it is.
    pub fn client(&self) -> ClientFiles {
        ClientFiles {
            ca: set(&self.ca),
            crl: set(&self.crl),
            identity: set(&self.certificate).zip(set(&self.key)),
            trusts_anyone: self.trusts_anyone,
            versions: self.versions(),
        }
    }

    /// Whether connections with TLS are served.
    pub fn is_served(&self) -> bool {
        set(&self.certificate).is_some() || self.workload_api.0.is_some()
    }

    /// Whether clients are asked for certificates, too.
    pub(super) fn asks_clients(&self) -> bool {
        self.is_served() && (set(&self.client_ca).is_some() || self.workload_api.0.is_some())
    }

    pub(crate) fn versions(&self) -> TlsVersions {
        TlsVersions { min: self.version_min.into(), max: self.version_max.into() }
    }
}

impl Default for Tls {
    fn default() -> Self {
        Self {
            certificate: PathBuf::new(),
            key: PathBuf::new(),
            client_ca: PathBuf::new(),
            client_certificate_optional: false,
            required: false,
            ca: PathBuf::new(),
            crl: PathBuf::new(),
            workload_api: UnixAddress::default(),
            version_min: TlsVersionKey::V1_2,
            version_max: TlsVersionKey::V1_3,
            trusts_anyone: false,
        }
    }
}

impl From<TlsVersionKey> for TlsVersion {
    fn from(key: TlsVersionKey) -> Self {
        match key {
            TlsVersionKey::V1_2 => Self::V1_2,
            TlsVersionKey::V1_3 => Self::V1_3,
        }
    }
}

impl Http2Keys {
    /// Settings of connections others make to this daemon.
    pub fn server(&self) -> Arc<Http2Settings> {
        Arc::new(self.settings(self.keepalive_s))
    }

    /// Settings of connections this daemon makes.
    pub fn client(&self) -> Arc<Http2Settings> {
        Arc::new(self.settings(self.client_keepalive_s))
    }

    /// Written out field by field, so that a setting without a key does not compile.
    fn settings(&self, keepalive_s: u64) -> Http2Settings {
        Http2Settings {
            streams_max: self.streams_max,
            stream_window_bytes: self.stream_window_bytes.as_u32(),
            connection_window_bytes: self.connection_window_bytes.as_u32(),
            header_list_bytes_max: self.header_list_bytes_max.as_u32(),
            send_ahead_bytes: self.send_ahead_bytes.as_usize(),
            resets: Rate { burst: self.resets_burst, per_second: self.resets_per_s },
            idle_frames: Rate { burst: self.idle_frames_burst, per_second: self.idle_frames_per_s },
            unfinished_ns_max: self.unfinished_s_max * SECOND_NS,
            keepalive: KeepaliveSettings {
                after_ns: seconds(keepalive_s),
                timeout_ns: self.keepalive_timeout_s * SECOND_NS,
                without_calls: self.keepalive_without_calls,
            },
            pings: PingSettings {
                interval_ns_min: self.ping_interval_s_min * SECOND_NS,
                without_calls: self.pings_without_calls,
            },
            age: AgeSettings {
                age_ns_max: seconds(self.age_s_max),
                grace_ns: seconds(self.age_grace_s),
                idle_ns_max: seconds(self.idle_s_max),
            },
            // The protocol's.
            own_stream_max: Http2Settings::client().own_stream_max,
        }
    }
}

impl Default for Http2Keys {
    fn default() -> Self {
        let server = Http2Settings::server();
        let client = Http2Settings::client();
        let whole = |ns: Option<u64>| ns.unwrap_or(0) / SECOND_NS;
        Self {
            streams_max: server.streams_max,
            stream_window_bytes: server.stream_window_bytes.into(),
            connection_window_bytes: server.connection_window_bytes.into(),
            header_list_bytes_max: server.header_list_bytes_max.into(),
            send_ahead_bytes: server.send_ahead_bytes.into(),
            resets_burst: server.resets.burst,
            resets_per_s: server.resets.per_second,
            idle_frames_burst: server.idle_frames.burst,
            idle_frames_per_s: server.idle_frames.per_second,
            unfinished_s_max: server.unfinished_ns_max / SECOND_NS,
            keepalive_s: whole(server.keepalive.after_ns),
            client_keepalive_s: whole(client.keepalive.after_ns),
            keepalive_timeout_s: server.keepalive.timeout_ns / SECOND_NS,
            keepalive_without_calls: server.keepalive.without_calls,
            ping_interval_s_min: server.pings.interval_ns_min / SECOND_NS,
            pings_without_calls: server.pings.without_calls,
            age_s_max: whole(server.age.age_ns_max),
            age_grace_s: whole(server.age.grace_ns),
            idle_s_max: whole(server.age.idle_ns_max),
        }
    }
}

fn set(path: &Path) -> Option<PathBuf> {
    (!path.as_os_str().is_empty()).then(|| path.to_owned())
}

/// Zero stands for never.
fn seconds(count: u64) -> Option<u64> {
    (count > 0).then_some(count * SECOND_NS)
}
