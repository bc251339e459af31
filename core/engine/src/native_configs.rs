//! The settings of connections to other daemons.

use crate::limits::Limits;
use std::sync::Arc;
use trunkline_native::{Config, Features};

/// The settings of connections: those that carry small calls, and the bulk lanes.
pub(crate) struct NativeConfigs {
    pub small: Arc<Config>,
    pub bulk: Arc<Config>,
}

/// On a lane without small calls a segment may be as long as one turn writes.
const BULK_SEGMENT_BYTES: u32 = 1 << 20;

impl NativeConfigs {
    pub fn new(limits: &Limits, node_name: &str, clock_id: u64) -> Self {
        let mut small = Config { node_name: node_name.to_owned(), clock_id, ..Config::default() };
        small.limits.stream_window_bytes = limits.stream_window_bytes;
        small.limits.message_bytes_max = limits.message_bytes;
        small.queue_bytes_max = limits.connection_queue_bytes as u64;
        small.features = Features::CALLERS;
        let bulk = Config { segment_bytes: BULK_SEGMENT_BYTES, ..small.clone() };
        Self { small: Arc::new(small), bulk: Arc::new(bulk) }
    }
}
