//! The engine of a shard, as the configuration says.

use crate::config::Config;
use std::hash::{BuildHasher, RandomState};
use trunkline_call::Instant;
use trunkline_engine::{Engine, GatewaySettings, Limits, Plant, R2p2Settings, ShardIndex, join_shards};
use trunkline_shm::monotonic_ns;

/// A shard's engine, one of `count`, with nobody attached.
pub(crate) fn fresh_engine(index: usize, count: usize, config: &Config, gateway: GatewaySettings) -> Engine {
    let mut engine = Engine::new(limits_of_shard(config.limits(), count), config.node(), clock_id());
    join_shards(&mut engine, ShardIndex(index as u16), count as u16);
    engine.configure_grpc(config.grpc());
    engine.configure_gateway(gateway);
    // The standard library's only door to the system's randomness.
    engine.seed(RandomState::new().hash_one(0));
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

/// What all calls of the host may take together is divided among its shards.
fn limits_of_shard(all: Limits, count: usize) -> Limits {
    Limits {
        attempts_bytes: all.attempts_bytes.div_ceil(count),
        attempts_per_second: all.attempts_per_second.div_ceil(count as u32),
        mirror_bytes: all.mirror_bytes.div_ceil(count),
        ..all
    }
}

/// Equal on two daemons exactly if they read the same clock: the same boot of the same kernel.
fn clock_id() -> u64 {
    use std::hash::{BuildHasherDefault, DefaultHasher};
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    match boot.trim() {
        // Unknown: a number of our own, so that nobody takes our clock for theirs.
        "" => RandomState::new().hash_one(std::process::id()),
        boot => BuildHasherDefault::<DefaultHasher>::default().hash_one(boot),
    }
}
