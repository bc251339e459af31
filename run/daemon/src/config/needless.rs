//! Keys that mean nothing without another one: who writes one and forgets the other waits for what never comes.

use super::Config;
use super::error::{Breach, breach};

/// Refuses a key that is not at its default where what it is about is off.
pub(super) fn check(config: &Config) -> Result<(), Breach> {
    let usual = Config::default();
    let Config { admin, gateway, http2, metrics, otlp, r2p2, recorder, relay, .. } = config;
    let pairs = [
        (
            "admin.socket_mode",
            admin.socket_mode != usual.admin.socket_mode,
            "admin.listen",
            admin.listen.is_empty(),
        ),
        ("debug.spin_stage", !config.debug.spin_stage.is_empty(), "debug.spin_us", config.debug.spin_us == 0),
        (
            "gateway.socket_mode",
            gateway.socket_mode != usual.gateway.socket_mode,
            GATEWAY,
            gateway.listen.is_empty(),
        ),
        ("gateway.open_to", gateway.open_to != usual.gateway.open_to, GATEWAY, gateway.listen.is_empty()),
        ("gateway.hops_max", gateway.hops_max != usual.gateway.hops_max, GATEWAY, gateway.listen.is_empty()),
        (
            "http2.age_grace_s",
            http2.age_grace_s != usual.http2.age_grace_s,
            "http2.age_s_max",
            http2.age_s_max == 0,
        ),
        ("metrics.hosts", !metrics.hosts.is_empty(), "metrics.listen", metrics.listen.is_empty()),
        ("otlp.attributes", !otlp.attributes.is_empty(), "otlp.endpoint", !otlp.is_on()),
        ("r2p2.slots", r2p2.slots != 0, "r2p2.listen", r2p2.listen.0.is_none()),
        (
            "recorder.sample",
            recorder.sample.to_bits() != usual.recorder.sample.to_bits(),
            "recorder.traces",
            !recorder.traces,
        ),
        ("relay.by", relay.by != usual.relay.by, "relay.listen", relay.listen.is_empty()),
        (
            "samples.file",
            !config.samples.file.as_os_str().is_empty(),
            "a [[sample]] table",
            config.sample.is_empty(),
        ),
    ];
    let needless = pairs.into_iter().find(|(_, is_said, _, is_off)| *is_said && *is_off);
    needless.map_or(Ok(()), |(key, _, other, _)| {
        Err(breach(
            key,
            format!("means nothing without {other}"),
            &format!("write {other}, too, or leave it out"),
        ))
    })
}

const GATEWAY: &str = "gateway.listen";
