//! The engine of a shard, as the configuration says.

use crate::config::{Config, ServiceRule};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use trunkline_call::Instant;
use trunkline_engine::{
    Engine, GatewaySettings, PeerRule, Plant, R2p2Settings, ShardIndex, join_shards, share_limits,
};
use trunkline_share::HostLimits;
use trunkline_shm::{clock_id, monotonic_ns};

/// The engine of one of the shards that hold these limits together, with nobody attached.
pub(crate) fn fresh_engine(
    index: usize,
    shared: &Arc<HostLimits>,
    config: &Config,
    gateway: GatewaySettings,
) -> Engine {
    let mut engine = Engine::new(config.limits(), config.node(), clock_id());
    join_shards(&mut engine, ShardIndex(index as u16), shared.shards());
    share_limits(&mut engine, shared);
    engine.configure_grpc(config.grpc());
    engine.configure_gateway(gateway);
    engine.configure_integrity(config.daemon.integrity);
    engine.configure_hosts(&config.daemon.hosts);
    engine.configure_peer_rules(config.call.iter().filter_map(peer_rule).collect());
    // The standard library's only door to the system's randomness.
    engine.seed(RandomState::new().hash_one(0));
    if let Some(share) = config.recorder.traced_share(&config.otlp) {
        engine.trace_calls(share, RandomState::new().hash_one(1));
    }
    engine.telemetry().keep_traced(config.otlp.is_on());
    engine.sample_calls(config.sample.iter().map(|table| table.rule()).collect());
    // Requests arrive at the first shard: one that is sent twice must come where it is known.
    let r2p2 = config.r2p2();
    engine
        .configure_r2p2(Instant(monotonic_ns()), R2p2Settings { serves: r2p2.serves && index == 0, ..r2p2 });
    engine.plant(Plant {
        request_hold_ns: config.debug.request_hold_us.saturating_mul(1000),
        response_hold_ns: config.debug.response_hold_us.saturating_mul(1000),
        unrecorded: config.debug.unrecorded,
    });
    engine
}

/// What a rule says about those that come over the network, if it does.
fn peer_rule(rule: &ServiceRule) -> Option<PeerRule> {
    Some(PeerRule { service: rule.service.as_str().into(), peers: rule.peers.clone()? })
}
