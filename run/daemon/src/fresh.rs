//! The engine of a shard, as the configuration says.

use crate::config::{Config, ServiceRule};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use trunkline_call::Instant;
use trunkline_engine::{
    Engine, GatewaySettings, PeerRule, Plant, R2p2Settings, ShardIndex, join_shards, share_limits,
};
use trunkline_share::HostLimits;
use trunkline_shm::monotonic_ns;

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

/// Equal on two daemons exactly if they read the same clock: the same boot of the same kernel, with the same offset of
/// the monotonic clock in their time namespaces.
fn clock_id() -> u64 {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    // A kernel without time namespaces has no such file, and one clock.
    let offsets = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    clock_id_of(boot.trim(), &offsets)
}

/// `offsets` as in time_namespaces(7): a clock's name, seconds and nanoseconds a line. Without an offset the id is that
/// of the boot alone, as in daemons that know nothing of such namespaces.
fn clock_id_of(boot: &str, offsets: &str) -> u64 {
    use std::hash::{BuildHasherDefault, DefaultHasher};
    if boot.is_empty() {
        // Unknown: a number of our own, so that nobody takes our clock for theirs.
        return RandomState::new().hash_one(std::process::id());
    }
    let mut lines = offsets.lines().map(str::split_whitespace);
    let monotonic = lines.find_map(|mut words| (words.next()? == "monotonic").then_some(words));
    let offset: Vec<&str> = monotonic.map_or_else(Vec::new, Iterator::collect);
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    if offset.iter().all(|part| *part == "0") {
        hasher.hash_one(boot)
    } else {
        hasher.hash_one((boot, offset))
    }
}

#[cfg(test)]
mod tests {
    //! Shows which daemons take each other's clock for their own.
    use super::clock_id_of;

    const HOST: &str = "monotonic           0         0\nboottime            0         0\n";
    const SHIFTED: &str = "monotonic        1000         0\nboottime            0         0\n";

    #[test]
    fn one_clock_has_one_id() {
        let id = clock_id_of("b1", HOST);
        assert_eq!(id, clock_id_of("b1", ""), "a kernel without time namespaces");
        assert_eq!(id, clock_id_of("b1", "monotonic 0 0\nboottime 50 0\n"), "the other clock is not read");
        assert_eq!(clock_id_of("b1", SHIFTED), clock_id_of("b1", SHIFTED));
    }

    #[test]
    fn another_offset_is_another_clock() {
        let ids = [
            clock_id_of("b1", HOST),
            clock_id_of("b2", HOST),
            clock_id_of("b1", SHIFTED),
            clock_id_of("b1", "monotonic 1000 1\n"),
            clock_id_of("b1", "monotonic -1000 0\n"),
        ];
        for (n, id) in ids.iter().enumerate() {
            assert!(!ids[..n].contains(id), "{n}: {ids:?}");
        }
        assert_ne!(clock_id_of("", HOST), clock_id_of("", HOST), "an unknown clock is nobody's");
    }
}
