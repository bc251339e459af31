//! Sizes that one key promises and another takes back.
//!
//! A message has to fit in several places on its way. Each has a key of its own, and the smallest one decides: a file
//! that raises one of them only promises what no call gets. Defaults are not held against each other: they bound what
//! anybody may try, and a configuration that was printed has all of them.

use super::error::Breach;
use super::{Bytes, Config, LimitKeys};
use trunkline_shm::HEAP_BYTES_MIN;

/// A key and what it says.
type Key = (&'static str, Bytes);

/// Checks what the file changes against what bounds it.
pub(super) fn check(config: &Config) -> Result<(), Breach> {
    let (limits, defaults) = (&config.limits, LimitKeys::default());
    for (key, bytes, default) in [
        ("limits.grpc_message_bytes", limits.grpc_message_bytes, defaults.grpc_message_bytes),
        ("limits.message_bytes", limits.message_bytes, defaults.message_bytes),
    ] {
        if bytes != default {
            holds((key, bytes), &way_of_a_message(config))?;
        }
    }
    let (bytes, default) = (limits.grpc_replay_bytes_per_call, defaults.grpc_replay_bytes_per_call);
    if bytes != default {
        let all = ("limits.grpc_replay_bytes_per_peer", limits.grpc_replay_bytes_per_peer);
        holds(("limits.grpc_replay_bytes_per_call", bytes), &[all])?;
    }
    let (of_source, of_all) = (limits.held_bytes_per_source, limits.held_bytes);
    if of_all != defaults.held_bytes {
        holds(("limits.held_bytes_per_source", of_source), &[("limits.held_bytes", of_all)])?;
    }
    Ok(())
}

/// Every key that bounds a message of another host: what it may be, where it is put together if it has to be decoded,
/// and the heap of whoever gets it.
fn way_of_a_message(config: &Config) -> [Key; 4] {
    let (limits, sessions) = (&config.limits, &config.sessions);
    [
        ("limits.message_bytes", limits.message_bytes),
        ("limits.assembling_bytes_per_peer", limits.assembling_bytes_per_peer),
        ("sessions.heap_bytes", sessions.heap_bytes),
        ("sessions.heap_bytes_max", sessions.heap_bytes_max),
    ]
}

/// Refuses a size that is larger than others let through, and names all of them: who raises one after the other meets
/// the next one every time.
fn holds((key, bytes): Key, places: &[Key]) -> Result<(), Breach> {
    let smaller: Vec<Key> = places.iter().filter(|(_, held)| *held < bytes).copied().collect();
    if smaller.is_empty() {
        return Ok(());
    }
    let list = |one: &dyn Fn(&Key) -> String| smaller.iter().map(one).collect::<Vec<_>>().join(", ");
    let held = list(&|(key, held)| format!("{key} is {held}"));
    // Heaps come in whole granules; a little more is no fault anywhere else.
    let enough = Bytes(bytes.0.next_multiple_of(HEAP_BYTES_MIN.into()));
    let raised = list(&|(key, _)| format!("{key} = \"{enough}\""));
    let least = smaller.iter().map(|(_, held)| *held).min().unwrap_or_default();
    let problem = format!("is {bytes}, and {held}: the smallest one decides");
    Err(Breach {
        key: key.to_owned(),
        problem,
        advice: format!("write {raised}, too, or at most {least} here"),
    })
}
