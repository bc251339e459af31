//! The access log: a line for every call that is to be logged, until the host writes it.

use std::collections::VecDeque;
use std::sync::Arc;
use trunkline_call::Code;

/// A call that is to be logged has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessRecord {
    /// `/package.Service/Method`
    pub path: Arc<str>,
    /// Who called: an application of this host or a peer.
    pub caller: String,
    /// How it ended.
    pub code: Code,
    /// From its entry into this daemon.
    pub duration_ns: u64,
    /// Message bytes of the request, as its sender counted them.
    pub request_bytes: u64,
    /// Message bytes of the response.
    pub response_bytes: u64,
}

/// Records kept for the host. More are dropped: a log must not hold up calls.
const RECORDS_MAX: usize = 4096;

/// Records the host has not taken yet.
#[derive(Debug, Default)]
pub(super) struct AccessLog {
    records: VecDeque<AccessRecord>,
}

impl AccessLog {
    /// Whether another record has room.
    pub fn has_room(&self) -> bool {
        self.records.len() < RECORDS_MAX
    }

    pub fn push(&mut self, record: AccessRecord) {
        if self.has_room() {
            self.records.push_back(record);
        }
    }

    pub fn poll(&mut self) -> Option<AccessRecord> {
        self.records.pop_front()
    }
}
