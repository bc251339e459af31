//! What a well-typed configuration may still get wrong.

use super::error::{Breach, breach, quoted};
use super::rights::is_full_name;
use super::tenants::{Tenant, WEIGHT_MAX};
use super::{Address, Bytes, Config, R2p2Mode, ServiceRule, level, needless, sizes};
use std::fmt::Display;
use std::path::Path;
use trunkline_engine::is_own_service;
use trunkline_grpc::service_config::ServiceConfig;
use trunkline_net::{Endpoint, KeepaliveSettings, Target};
use trunkline_policy::{Chain, Definition, PolicyError};
use trunkline_shm::{HEAP_BYTES_MAX, HEAP_BYTES_MIN, RING_ENTRIES_MAX, RING_ENTRIES_MIN};

const KIB: u64 = 1 << 10;
const GIB: u64 = 1 << 30;
/// More calls, routes or endpoints than this are a mistake in the file, not a load: a call costs about 300 bytes.
const COUNT_MAX: usize = 1 << 20;
/// The native protocol adds windows up in 31 bits.
const WINDOW_BYTES_MAX: u64 = (1 << 31) - 1;
/// Ten seconds: looking or holding for longer is never meant.
pub(super) const PAUSE_US_MAX: u64 = 10_000_000;
/// What servers of gRPC permit (gRFC A8).
const CLIENT_KEEPALIVE_S_MIN: u64 = KeepaliveSettings::CLIENT_AFTER_NS_MIN / 1_000_000_000;
const HOUR_S: u64 = 3600;
/// Longer is never; zero says so.
const YEAR_S: u64 = 365 * 24 * HOUR_S;
/// Each is told of every request of the compatible mode, and has a heartbeat.
const ROUTERS_MAX: usize = 64;
/// A node's name travels in the native HELLO.
const NODE_BYTES_MAX: usize = 255;
/// Nobody's identity is longer: a SPIFFE id has at most 2048 bytes, and a name in a certificate 255.
const NAME_BYTES_MAX: usize = 2048;

impl Config {
    /// Checks every value against its bounds and its neighbours.
    pub(super) fn check(&self) -> Result<(), Breach> {
        self.check_daemon()?;
        self.check_sessions()?;
        self.check_limits()?;
        sizes::check(self)?;
        self.check_tls()?;
        self.check_http2()?;
        self.check_r2p2()?;
        self.check_services()?;
        self.check_admin()?;
        self.metrics.check(&self.daemon.listen)?;
        self.otlp.check()?;
        self.recorder.check()?;
        self.samples.check(&self.sample)?;
        self.gateway.check(self.tls.is_served())?;
        self.relay.check(self.tls.asks_clients())?;
        if let Some(problem) = level::problem(&self.log.level) {
            return Err(breach("log.level", problem, level::ADVICE));
        }
        check_service_rules("serve", &self.serve)?;
        check_service_rules("call", &self.call)?;
        check_peers("call", &self.call)?;
        check_peers("serve", &self.serve)?;
        if let Some(index) = self.serve.iter().position(|rule| !rule.server_identity.is_empty()) {
            let problem = "means nothing: it is about the targets of calls".into();
            let advice = "write it in [[call]], or leave it out";
            return Err(breach(&format!("serve[{index}].server_identity"), problem, advice));
        }
        check_tenants(&self.tenant, &self.serve)?;
        check_policies(&self.policy)?;
        within("waiting.patience_us_max", self.waiting.patience_us_max, 0, PAUSE_US_MAX)?;
        self.debug.check()?;
        needless::check(self)
    }

    fn check_daemon(&self) -> Result<(), Breach> {
        if self.daemon.node.len() > NODE_BYTES_MAX || self.daemon.node.contains(char::is_control) {
            let problem = format!("must be at most {NODE_BYTES_MAX} bytes of printable text");
            return Err(breach("daemon.node", problem, "leave it out to use the host's name"));
        }
        if self.listen().any(|endpoint| matches!(endpoint, Endpoint::Tls(..))) {
            let problem = "says tls://, but a listener takes connections with TLS and without".into();
            return Err(breach(
                "daemon.listen",
                problem,
                "write tcp://, and set tls.certificate and tls.key",
            ));
        }
        if self.listen().any(|endpoint| matches!(endpoint, Endpoint::R2p2(_))) {
            let problem = "says r2p2://, which has a port of its own".into();
            return Err(breach("daemon.listen", problem, "write r2p2.listen instead"));
        }
        check_identities("daemon.hosts", &self.daemon.hosts)?;
        within("daemon.connections_max", self.daemon.connections_max, 0, COUNT_MAX)?;
        let (all, of_source) = (self.daemon.connections_max, self.daemon.connections_per_source_max);
        within("daemon.connections_per_source_max", of_source, 0, COUNT_MAX)?;
        if all != 0 && of_source > all {
            let problem =
                format!("is {of_source}, and daemon.connections_max is {all}: one source never has so many");
            let advice = format!("write at most {all}, or leave it out");
            return Err(breach("daemon.connections_per_source_max", problem, &advice));
        }
        Ok(())
    }

    fn check_sessions(&self) -> Result<(), Breach> {
        let s = &self.sessions;
        within("sessions.count_max", s.count_max, 1, 1 << 16)?;
        within("sessions.per_user_max", s.per_user_max, 0, 1 << 16)?;
        if s.per_user_max > s.count_max {
            let (of_user, all) = (s.per_user_max, s.count_max);
            let problem =
                format!("is {of_user}, and sessions.count_max is {all}: one user never has so many");
            let advice = format!("write at most {all}, or leave it out");
            return Err(breach("sessions.per_user_max", problem, &advice));
        }
        within("sessions.unattached_per_user_max", s.unattached_per_user_max, 1, 1 << 16)?;
        bytes("sessions.descriptor_bytes_max", s.descriptor_bytes_max, 64 * KIB, 64 * GIB)?;
        bytes("sessions.descriptor_bytes_per_user_max", s.descriptor_bytes_per_user_max, 0, 64 * GIB)?;
        within("sessions.attach_ms_max", s.attach_ms_max, 100, 3_600_000)?;
        ring("sessions.ring_entries_max", s.ring_entries_max, RING_ENTRIES_MAX)?;
        ring("sessions.ring_entries", s.ring_entries, s.ring_entries_max)?;
        heap("sessions.heap_bytes_max", s.heap_bytes_max, HEAP_BYTES_MAX.into())?;
        heap("sessions.heap_bytes", s.heap_bytes, s.heap_bytes_max)?;
        for (key, max) in [
            ("sessions.receive_heap_bytes_max", s.receive_heap_bytes_max),
            ("sessions.receive_heap_bytes_per_user_max", s.receive_heap_bytes_per_user_max),
        ] {
            if max.0 != 0 && max < s.heap_bytes {
                let problem =
                    format!("is {max}, and sessions.heap_bytes is {}: nobody could attach", s.heap_bytes);
                return Err(breach(key, problem, "write as much at least, or leave it out"));
            }
        }
        Ok(())
    }

    fn check_limits(&self) -> Result<(), Breach> {
        let l = &self.limits;
        within("limits.calls_made_per_session", l.calls_made_per_session, 1, COUNT_MAX)?;
        within("limits.calls_delivered_per_session", l.calls_delivered_per_session, 1, COUNT_MAX)?;
        within("limits.routes_per_session", l.routes_per_session, 1, COUNT_MAX)?;
        within("limits.routes_per_user", l.routes_per_user, 1, 16 * COUNT_MAX)?;
        let learned = l.methods_learned_per_service;
        within("limits.methods_learned_per_service", learned, 1, COUNT_MAX)?;
        within("limits.calls_waiting_per_endpoint", l.calls_waiting_per_endpoint, 1, COUNT_MAX)?;
        within("limits.endpoints", l.endpoints, 1, COUNT_MAX)?;
        within("limits.endpoints_per_user", l.endpoints_per_user, 0, COUNT_MAX)?;
        bytes("limits.stream_window_bytes", l.stream_window_bytes, 64 * KIB, WINDOW_BYTES_MAX)?;
        bytes("limits.parked_bytes_per_session", l.parked_bytes_per_session, 64 * KIB, 64 * GIB)?;
        bytes("limits.assembling_bytes_per_peer", l.assembling_bytes_per_peer, 64 * KIB, 64 * GIB)?;
        bytes("limits.message_bytes", l.message_bytes, 4 * KIB, WINDOW_BYTES_MAX)?;
        within("limits.linear_growth", l.linear_growth, 1, 1 << 20)?;
        bytes("limits.inline_body_bytes", l.inline_body_bytes, 0, 64 * KIB)?;
        bytes("limits.bulk_body_bytes", l.bulk_body_bytes, l.inline_body_bytes.0, WINDOW_BYTES_MAX)?;
        bytes("limits.connection_queue_bytes", l.connection_queue_bytes, 64 * KIB, 64 * GIB)?;
        bytes("limits.grpc_message_bytes", l.grpc_message_bytes, 4 * KIB, WINDOW_BYTES_MAX)?;
        within("limits.grpc_connections_per_endpoint", l.grpc_connections_per_endpoint, 1, 1024)?;
        bytes("limits.grpc_replay_bytes_per_call", l.grpc_replay_bytes_per_call, 0, GIB)?;
        bytes("limits.grpc_replay_bytes_per_peer", l.grpc_replay_bytes_per_peer, 0, 64 * GIB)?;
        bytes("limits.attempts_bytes", l.attempts_bytes, 0, 64 * GIB)?;
        within("limits.attempts_percent", l.attempts_percent, 0, 400)?;
        within("limits.attempts_per_second", l.attempts_per_second, 0, 1_000_000)?;
        bytes("limits.mirror_bytes", l.mirror_bytes, 0, 64 * GIB)?;
        bytes("limits.held_bytes_per_source", l.held_bytes_per_source, 0, 64 * GIB)?;
        bytes("limits.held_bytes", l.held_bytes, 0, 1024 * GIB)?;
        within("limits.message_stall_s", l.message_stall_s, 0, YEAR_S as u32)
    }

    fn check_tls(&self) -> Result<(), Breach> {
        let tls = &self.tls;
        let is_set = |path: &Path| !path.as_os_str().is_empty();
        let (certificate, key) = (is_set(&tls.certificate), is_set(&tls.key));
        let problem = |key, what: &str, advice| Err(breach(key, what.into(), advice));
        if certificate && !key {
            let advice = "write the path of its private key: a PEM file, not encrypted";
            return problem("tls.key", "is missing beside tls.certificate", advice);
        }
        if key && !certificate {
            let advice = "write the path of the certificate chain made for that key: a PEM file";
            return problem("tls.certificate", "is missing beside tls.key", advice);
        }
        if tls.workload_api.0.is_some() {
            let files = [
                ("tls.certificate", &tls.certificate),
                ("tls.client_ca", &tls.client_ca),
                ("tls.ca", &tls.ca),
                ("tls.crl", &tls.crl),
            ];
            if let Some((key, _)) = files.into_iter().find(|(_, path)| is_set(path)) {
                let advice = "leave it out, or tls.workload_api: one of them says who this host is";
                return problem(key, "is said beside tls.workload_api, which tells the same", advice);
            }
        }
        let needs = "write tls.certificate and tls.key, too, or leave it out";
        if is_set(&tls.client_ca) && !certificate {
            return problem("tls.client_ca", "means nothing where TLS is not served", needs);
        }
        if tls.required && !tls.is_served() {
            return problem("tls.required", "would refuse every connection: TLS is not served", needs);
        }
        if tls.client_certificate_optional && !is_set(&tls.client_ca) && tls.workload_api.0.is_none() {
            let advice = "write tls.client_ca, the roots of clients' certificates, or leave it out";
            return problem("tls.client_certificate_optional", "means nothing: none is asked for", advice);
        }
        if tls.version_max < tls.version_min {
            let advice = "write the same version for both, or leave one of them out";
            return problem("tls.version_max", "is older than tls.version_min", advice);
        }
        Ok(())
    }

    fn check_r2p2(&self) -> Result<(), Breach> {
        let r2p2 = &self.r2p2;
        let problem = |key, what: String, advice| Err(breach(key, what, advice));
        if r2p2.listen.0.is_some() && self.tls.required {
            let what = "is a port without TLS, and tls.required is set".into();
            return problem("r2p2.listen", what, "leave out one of the two");
        }
        if !r2p2.key_file.as_os_str().is_empty() && r2p2.mode == R2p2Mode::Compatible {
            let what = "means nothing in the compatible mode, which has no place for a seal".into();
            return problem("r2p2.key_file", what, "leave out r2p2.mode, or the key");
        }
        if !r2p2.routers.is_empty() && r2p2.listen.0.is_none() {
            let advice = "write r2p2.listen, the port requests are to come to, or leave the routers out";
            return problem("r2p2.routers", "mean nothing where R2P2 is not served".into(), advice);
        }
        if r2p2.routers.len() > ROUTERS_MAX {
            let what = format!("has {} routers; at most {ROUTERS_MAX}", r2p2.routers.len());
            return problem("r2p2.routers", what, "write those in front of this host");
        }
        if let Some(router) =
            r2p2.routers.iter().find(|router| router.port() == 0 || router.ip().is_unspecified())
        {
            let what = format!("has {router}, where no FEEDBACK arrives");
            return problem("r2p2.routers", what, "write the address and port of a router's --control");
        }
        Ok(())
    }

    fn check_http2(&self) -> Result<(), Breach> {
        let h = &self.http2;
        within("http2.streams_max", h.streams_max, 1, COUNT_MAX as u32)?;
        bytes("http2.stream_window_bytes", h.stream_window_bytes, 64 * KIB, WINDOW_BYTES_MAX)?;
        let stream = h.stream_window_bytes.0;
        bytes("http2.connection_window_bytes", h.connection_window_bytes, stream, WINDOW_BYTES_MAX)?;
        bytes("http2.header_list_bytes_max", h.header_list_bytes_max, 4 * KIB, 16 << 20)?;
        bytes("http2.send_ahead_bytes", h.send_ahead_bytes, 16 * KIB, GIB)?;
        for (key, value) in [
            ("http2.resets_burst", h.resets_burst),
            ("http2.resets_per_s", h.resets_per_s),
            ("http2.idle_frames_burst", h.idle_frames_burst),
            ("http2.idle_frames_per_s", h.idle_frames_per_s),
        ] {
            within(key, value, 1, 1 << 30)?;
        }
        if (1..CLIENT_KEEPALIVE_S_MIN).contains(&h.client_keepalive_s) {
            let problem =
                format!("is {}: servers answer such clients with too_many_pings", h.client_keepalive_s);
            return Err(breach("http2.client_keepalive_s", problem, "write 0 for never, or at least 10"));
        }
        within("http2.unfinished_s_max", h.unfinished_s_max, 1, HOUR_S)?;
        within("http2.keepalive_timeout_s", h.keepalive_timeout_s, 1, HOUR_S)?;
        for (key, value) in [
            ("http2.keepalive_s", h.keepalive_s),
            ("http2.client_keepalive_s", h.client_keepalive_s),
            ("http2.ping_interval_s_min", h.ping_interval_s_min),
            ("http2.age_s_max", h.age_s_max),
            ("http2.age_grace_s", h.age_grace_s),
            ("http2.idle_s_max", h.idle_s_max),
        ] {
            within(key, value, 0, YEAR_S)?;
        }
        Ok(())
    }

    fn check_admin(&self) -> Result<(), Breach> {
        let local = |address: &&Address| !matches!(address.0, Endpoint::Unix(_) | Endpoint::Abstract(_));
        if let Some(address) = self.admin.listen.iter().find(local) {
            let problem = format!("has {address}, where nobody says who asks");
            let advice = "write a Unix socket, such as \"unix:/run/trunkline-admin.sock\"";
            return Err(breach("admin.listen", problem, advice));
        }
        let file = &self.admin.policies_file;
        if self.policies_file().is_none() || file.is_absolute() && file.file_name().is_some() {
            return Ok(());
        }
        let advice = "write an absolute path to a file, such as \"/var/lib/trunkline/policies.toml\"";
        Err(breach("admin.policies_file", format!("is {:?}", file.display().to_string()), advice))
    }

    fn check_services(&self) -> Result<(), Breach> {
        for (name, service) in &self.services {
            let key = format!("services.{}", quoted(name));
            if !is_full_name(name) {
                let advice = "write it as in the .proto, with its package, in quotes: \"search.v1.Search\"";
                return Err(breach(&key, "is not the full name of a service".into(), advice));
            }
            if let Err(error) = ServiceConfig::parse(&service.service_config)
                && !service.service_config.is_empty()
            {
                let problem = format!("is no service config: {}: {}", error.place, error.found);
                return Err(breach(
                    &format!("{key}.service_config"),
                    problem,
                    &format!("write {}", error.advice),
                ));
            }
            if service.endpoints.is_empty() && service.service_config.is_empty() {
                let advice = "write endpoints = [\"tcp://10.0.0.7:7878\"], or leave the service out";
                return Err(breach(&key, "has no endpoints".into(), advice));
            }
        }
        Ok(())
    }
}

fn check_service_rules(kind: &str, rules: &[ServiceRule]) -> Result<(), Breach> {
    for (index, rule) in rules.iter().enumerate() {
        let key = format!("{kind}[{index}].service");
        if !rule.is_well_formed() {
            let problem = format!("is {:?}", rule.service);
            return Err(breach(&key, problem, "write \"search.v1.Search\", \"search.v1.*\" or \"*\""));
        }
        if is_own_service(&rule.service) {
            let problem = format!("is {:?}: such services are the daemon's own", rule.service);
            return Err(breach(&key, problem, "write admin.read and admin.change to say who may call them"));
        }
        if let Some(first) = rules[..index].iter().position(|before| rule.is_hidden_by(before)) {
            let named = &rules[first].service;
            let problem = format!(
                "is {:?}, and is never asked: {kind}[{first}] ({named:?}) decides first",
                rule.service
            );
            return Err(breach(&key, problem, &format!("put it before {kind}[{first}], or leave it out")));
        }
    }
    Ok(())
}

/// Who comes over the network, in `[[call]]`.
fn check_peers(kind: &str, rules: &[ServiceRule]) -> Result<(), Breach> {
    for (index, rule) in rules.iter().enumerate() {
        check_identities(&format!("{kind}[{index}].peers"), rule.peers.as_deref().unwrap_or_default())?;
        // What a connection is held against is the whole name.
        let can_be_named = |name: &String| {
            let target = format!("tls://{name}@127.0.0.1:1").parse::<trunkline_net::Endpoint>();
            // A target that names nobody is known by its address.
            let is_address = name.parse::<std::net::IpAddr>().is_ok();
            let is_named = target.is_ok_and(|target| target.server_name().as_ref() == Some(name));
            !name.contains('*') && (is_address || is_named)
        };
        if let Some(pattern) = rule.server_identity.iter().find(|name| !can_be_named(name)) {
            let problem = format!("has {pattern:?}, which no target can name");
            let advice = "write whole SPIFFE ids or names of certificates";
            return Err(breach(&format!("{kind}[{index}].server_identity"), problem, advice));
        }
    }
    Ok(())
}

fn check_tenants(tenants: &[Tenant], serve: &[ServiceRule]) -> Result<(), Breach> {
    for (index, tenant) in tenants.iter().enumerate() {
        let key = |name: &str| format!("tenant[{index}].{name}");
        let said = [tenant.uid.is_some(), tenant.cgroup.is_some(), tenant.service.is_some()];
        if said.iter().filter(|said| **said).count() != 1 {
            let problem = "has to say one of uid, cgroup and service".to_owned();
            return Err(breach(&format!("tenant[{index}]"), problem, "write one table for each"));
        }
        within(&key("weight"), tenant.weight, 1, WEIGHT_MAX)?;
        if let Some(cgroup) = tenant.cgroup.as_ref().filter(|cgroup| !is_cgroup(cgroup)) {
            let advice = "write it as /proc/PID/cgroup has it, such as \"/system.slice/shop.service\", whole or with * \
                          at the end";
            return Err(breach(&key("cgroup"), format!("is {cgroup:?}, which is no control group"), advice));
        }
        let rule = tenant.service.clone().map(|service| ServiceRule {
            service,
            who: Vec::new(),
            peers: None,
            server_identity: Vec::new(),
        });
        if let Some(rule) = rule.filter(|rule| !rule.is_well_formed()) {
            let advice = "write package.Service, package.* or *";
            return Err(breach(
                &key("service"),
                format!("is {:?}, which is no service", rule.service),
                advice,
            ));
        }
        if let Some(service) = tenant.service.as_deref().filter(|service| !is_ruled(serve, service)) {
            let problem =
                format!("is {service:?}, whose share anybody would have who serves a free name of it");
            let advice = format!("write a [[serve]] rule for {service:?} that says who may");
            return Err(breach(&key("service"), problem, &advice));
        }
        if tenants[..index].iter().any(|before| before.name() == tenant.name()) {
            let problem = format!("is {}, which has a weight already", tenant.name());
            return Err(breach(&format!("tenant[{index}]"), problem, "keep one of them"));
        }
    }
    Ok(())
}

/// Whether rules say of every service that fits a pattern who may serve it.
fn is_ruled(serve: &[ServiceRule], pattern: &str) -> bool {
    let covers = |rule: &ServiceRule| match rule.service.strip_suffix('*') {
        Some(prefix) => pattern.starts_with(prefix),
        None => rule.service == pattern,
    };
    serve.iter().any(covers)
}

/// The path of a control group, or its beginning up to a star.
fn is_cgroup(text: &str) -> bool {
    let beginning = text.strip_suffix('*').unwrap_or(text);
    text.starts_with('/') && text.len() <= NAME_BYTES_MAX && !beginning.contains(['*', '\n'])
}

/// Identities of peers: a SPIFFE id, a name of a certificate, a user, or the beginning of one.
fn check_identities(key: &str, identities: &[String]) -> Result<(), Breach> {
    let is_one = |text: &&String| {
        let beginning = text.strip_suffix('*').unwrap_or(text);
        !text.is_empty() && text.len() <= NAME_BYTES_MAX && !beginning.contains(['*', ' '])
    };
    match identities.iter().find(|text| !is_one(text)) {
        Some(text) => {
            let advice = "write a SPIFFE id, such as \"spiffe://example.org/host/7\", a name in a certificate, or \
                          \"uid:0\" of a Unix socket's peer, whole or with * at the end";
            Err(breach(key, format!("has {text:?}, which is nobody's identity"), advice))
        }
        None => Ok(()),
    }
}

/// Checks policies by themselves and against each other; what fits a method is known when it is bound.
pub(super) fn check_policies(definitions: &[Definition]) -> Result<(), Breach> {
    Chain::build(definitions).map(drop).map_err(policy_breach)
}

/// Brings the targets of mirrors into the one form that all calls' targets have, so that who means the same endpoint
/// shares its connections.
pub(crate) fn settle_targets(definitions: &mut [Definition]) -> Result<(), PolicyError> {
    for (index, definition) in definitions.iter_mut().enumerate() {
        let Some(text) = &definition.target else { continue };
        match text.parse::<Target>() {
            Ok(target) => definition.target = Some(target.to_string()),
            Err(error) => {
                let problem = format!("is {text:?}: {error}");
                let advice = "write an address or a name, as `trunkline call --target` takes it".to_owned();
                let name = definition.name.clone();
                return Err(PolicyError { index, name, key: "target", problem, advice });
            }
        }
    }
    Ok(())
}

/// A policy's error as one of the file.
pub(crate) fn policy_breach(error: PolicyError) -> Breach {
    let place = format!("policy[{}]", error.index);
    let key = if error.key.is_empty() { place } else { format!("{place}.{}", error.key) };
    Breach { key, problem: format!("(policy {:?}) {}", error.name, error.problem), advice: error.advice }
}

pub(super) fn within<T: PartialOrd + Display>(key: &str, value: T, min: T, max: T) -> Result<(), Breach> {
    if min <= value && value <= max {
        return Ok(());
    }
    Err(breach(key, format!("is {value}"), &format!("write a number from {min} to {max}")))
}

fn bytes(key: &str, value: Bytes, min: u64, max: u64) -> Result<(), Breach> {
    if min <= value.0 && value.0 <= max {
        return Ok(());
    }
    let advice = format!("write a size from {} to {}", Bytes(min), Bytes(max));
    Err(breach(key, format!("is {value}"), &advice))
}

fn ring(key: &str, entries: u32, max: u32) -> Result<(), Breach> {
    if entries.is_power_of_two() && (RING_ENTRIES_MIN..=max).contains(&entries) {
        return Ok(());
    }
    let advice = format!("write a power of two from {RING_ENTRIES_MIN} to {max}");
    Err(breach(key, format!("is {entries}"), &advice))
}

fn heap(key: &str, size: Bytes, max: Bytes) -> Result<(), Breach> {
    let granule = u64::from(HEAP_BYTES_MIN);
    if size.0.is_multiple_of(granule) && (granule..=max.0).contains(&size.0) {
        return Ok(());
    }
    let advice = format!("write a multiple of {} up to {max}", Bytes(granule));
    Err(breach(key, format!("is {size}"), &advice))
}
