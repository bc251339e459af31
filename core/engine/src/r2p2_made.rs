//! Calls over R2P2 that are made and not answered: what is kept of them, by source and by endpoint, and who waits until
//! some are.
//!
//! There is no connection whose queue would bound them. A request is kept until it is answered, for it may have to be
//! sent again; so who calls a server that does not answer has its part of what may be kept for that endpoint
//! (`shared_room.rs`), and of all endpoints together, and others have theirs.

use crate::r2p2_remote::R2p2Remote;
use crate::remote::Remotes;
use crate::shared_room::SharedRoom;
use crate::turn_lines::TurnLines;
use crate::{CallKey, RemoteKey};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use trunkline_call::{Fault, KeyedMap};

pub(crate) const CALLS_MADE: &str = "calls in flight over R2P2 (fixed)";
/// Calls in flight of one source, and with what [`SharedRoom`] has for others fewer than there are ids: greetings need
/// some, too.
const CALLS_OF_SOURCE_MAX: u64 = 1 << 14;
/// At all endpoints together a source may have the bytes of so many.
const ENDPOINTS_OF_SOURCE: u64 = 4;

/// Calls made.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct MadeCalls {
    made: KeyedMap<CallKey, MadeCall>,
    /// Bytes of their requests, and how many they are: beside what each endpoint has ([`R2p2Remote::made`]).
    #[serde(skip)]
    bytes: SharedRoom,
    #[serde(skip)]
    count: SharedRoom,
    /// Calls that wait for others to be answered, by source and endpoint.
    blocked: TurnLines<CallKey>,
    /// Some have been since those were asked.
    #[serde(skip)]
    has_room_again: bool,
}

/// One of them.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct MadeCall {
    pub bytes: usize,
    #[serde(default = "nowhere")]
    pub remote: RemoteKey,
    /// The request if it is linear, and nothing if not: a server without its type gets it as protobuf.
    #[serde(with = "trunkline_call::octets")]
    pub linear: Bytes,
}

fn nowhere() -> RemoteKey {
    RemoteKey::NOTHING
}

impl MadeCalls {
    /// Whether a source may send a request there now, of which an endpoint may have so many bytes: while there are any,
    /// one more may go, however large.
    #[inline]
    pub fn has_room(
        &self,
        there: &R2p2Remote,
        bytes_max: usize,
        source: impl Fn() -> Arc<str> + Copy,
    ) -> bool {
        let has_room = |room: &SharedRoom, max: u64| room.used() == 0 || room.has_room(1, max, source);
        let bytes_max = bytes_max as u64;
        has_room(&there.made, bytes_max)
            && has_room(&self.bytes, bytes_max.saturating_mul(ENDPOINTS_OF_SOURCE))
    }

    /// Whether a source may have one more call in flight.
    ///
    /// # Errors
    /// It has too many.
    #[inline]
    pub fn has_ids(&self, source: impl FnOnce() -> Arc<str>) -> Result<(), Fault> {
        let limit = CALLS_OF_SOURCE_MAX;
        if self.count.has_room(1, limit, source) {
            return Ok(());
        }
        Err(Fault::Limit { name: CALLS_MADE, limit })
    }

    /// A call's request has gone to an endpoint.
    #[inline]
    pub fn note(
        &mut self,
        (key, there): (CallKey, Option<&mut R2p2Remote>),
        request: MadeCall,
        bytes_max: usize,
        source: impl Fn() -> Arc<str> + Copy,
    ) {
        let (bytes, bytes_max) = (request.bytes as u64, bytes_max as u64);
        if let Some(there) = there {
            there.made.take(key, bytes, bytes_max, source);
        }
        self.bytes.take(key, bytes, bytes_max.saturating_mul(ENDPOINTS_OF_SOURCE), source);
        self.count.take(key, 1, CALLS_OF_SOURCE_MAX, source);
        self.made.insert(key, request);
    }

    /// A call has its answer, or is over.
    pub fn forget(&mut self, remotes: &mut Remotes, call: CallKey) {
        let Some(made) = self.made.remove(&call) else { return };
        let bytes = made.bytes as u64;
        if let Some(there) = remotes.r2p2_mut(made.remote) {
            there.made.give_back(call, bytes);
        }
        self.bytes.give_back(call, bytes);
        self.count.give_back(call, 1);
        self.has_room_again = true;
    }

    /// A call is to be made again. Its request if that was linear, and nothing if not.
    pub fn take_linear(&mut self, call: CallKey) -> Bytes {
        self.made.get_mut(&call).map_or_else(Bytes::new, |made| std::mem::take(&mut made.linear))
    }

    /// A call waits for others to be answered: of its source, or at its endpoint. `waits` says of those that do whether
    /// they still do.
    pub fn line_up(
        &mut self,
        source: &str,
        remote: RemoteKey,
        call: CallKey,
        waits: impl Fn(CallKey) -> bool,
    ) {
        self.blocked.leave_if_over(waits);
        self.blocked.push(format!("{source} {:x}", remote.to_bits()).into(), call);
    }

    /// Those that another process had.
    pub fn take_up(&mut self, moved: Self) {
        let bytes = moved.made.values().map(|made| made.bytes as u64).fold(0, u64::saturating_add);
        let count = moved.made.len() as u64;
        *self = Self { bytes: bytes.into(), count: count.into(), has_room_again: true, ..moved };
    }

    /// Whether calls that wait may go on.
    #[inline]
    pub fn may_go_on(&self) -> bool {
        self.has_room_again && self.blocked.len() > 0
    }

    /// Whether those that wait are asked: some calls have been answered since they were.
    pub fn begin_round(&mut self) -> bool {
        std::mem::take(&mut self.has_room_again) && self.blocked.len() > 0
    }

    /// The next of them.
    pub fn next_in_line(&mut self) -> Option<CallKey> {
        self.blocked.pop()
    }

    /// Whether it has to wait on. Others of its source for its endpoint do so without being asked.
    pub fn waits_again(&mut self, call: CallKey) -> bool {
        self.blocked.waits_again(call)
    }

    /// All have been asked, or there are `more`.
    pub fn end_round(&mut self, more: bool) {
        self.blocked.end_round();
        self.has_room_again |= more;
    }

    /// Entries of those that wait.
    pub fn entries_in_line(&self) -> usize {
        self.blocked.len()
    }

    /// Bytes of requests, as they are counted.
    pub fn bytes(&self) -> u64 {
        self.bytes.used()
    }

    /// Each call, its endpoint and its bytes.
    pub fn each(&self) -> impl Iterator<Item = (CallKey, RemoteKey, usize)> {
        self.made.iter().map(|(call, made)| (*call, made.remote, made.bytes))
    }
}
