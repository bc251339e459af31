//! Calls that wait for a service of this host nobody serves: their callers have said that they wait until somebody is
//! ready (gRPC's wait-for-ready), and do so until the service is there, their deadline passes or they are cancelled.
//!
//! Such a call has no server end. Its opening lies in its backlog, and it is queued, though for no worker; so the next
//! process begins it anew after a hand-over, as it does all calls that are queued. Here is who waits for what, and how
//! much of it there may be; `served_later.rs` has calls wait, and begin.
//!
//! Only calls of this host's applications wait. A call of a peer is refused there and then: whether it waits is for its
//! own host to say.
//!
//! # Limits
//! `limits.calls_waiting_per_endpoint` calls on a shard, and `limits.parked_bytes_per_session` bytes of theirs that the
//! daemon holds itself, shared by the users that make them ([`SharedRoom`]).

use crate::CallKey;
use crate::limits::{Limits, UNSERVED, UNSERVED_BYTES};
use crate::shared_room::SharedRoom;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use trunkline_call::{Fault, KeyedMap};

/// Who waits for which service.
#[derive(Debug, Default)]
pub(crate) struct UnservedCalls {
    /// By the service's full name; in the order in which they came.
    lines: KeyedMap<Arc<str>, BTreeMap<u64, CallKey>>,
    /// All of them, those that may begin again too.
    calls: KeyedMap<CallKey, WaitingCall>,
    /// Those whose service has come; some may have ended meanwhile.
    ready: VecDeque<CallKey>,
    /// How many have come.
    count: u64,
    room: SharedRoom,
    bytes: SharedRoom,
}

#[derive(Debug)]
struct WaitingCall {
    service: Arc<str>,
    number: u64,
    bytes: u64,
}

impl UnservedCalls {
    /// A call waits from now on.
    ///
    /// # Errors
    /// [`Fault::Limit`] if its source may not have another, or not so many bytes.
    pub fn admit(
        &mut self,
        (key, service, bytes): (CallKey, &str, usize),
        limits: &Limits,
        source: impl Fn() -> Arc<str>,
    ) -> Result<(), Fault> {
        let (calls_max, bytes_max) =
            (limits.calls_waiting_per_endpoint as u64, limits.parked_bytes_per_session as u64);
        let bytes = bytes as u64;
        if !self.room.has_room(1, calls_max, &source) {
            return Err(Fault::Limit { name: UNSERVED, limit: calls_max });
        }
        if bytes > 0 && !self.bytes.has_room(bytes, bytes_max, &source) {
            return Err(Fault::Limit { name: UNSERVED_BYTES, limit: bytes_max });
        }
        self.room.take(key, 1, calls_max, &source);
        self.bytes.take(key, bytes, bytes_max, &source);
        let service = match self.lines.get_key_value(service) {
            Some((known, _)) => Arc::clone(known),
            None => service.into(),
        };
        self.count += 1;
        let number = self.count;
        self.lines.entry(Arc::clone(&service)).or_default().insert(number, key);
        self.calls.insert(key, WaitingCall { service, number, bytes });
        Ok(())
    }

    /// A call waits no more, for whatever reason. Whether it did.
    pub fn leave(&mut self, key: CallKey) -> bool {
        let Some(WaitingCall { service, number, bytes }) = self.calls.remove(&key) else { return false };
        self.room.give_back(key, 1);
        self.bytes.give_back(key, bytes);
        if let Some(line) = self.lines.get_mut(&*service) {
            line.remove(&number);
            if line.is_empty() {
                self.lines.remove(&*service);
            }
        }
        true
    }

    /// Somebody serves this service, or its calls have another place to go to: those that wait for it begin again.
    pub fn serve(&mut self, service: &str) {
        if let Some(line) = self.lines.remove(service) {
            self.ready.extend(line.into_values());
        }
    }

    /// All begin again.
    pub fn serve_all(&mut self) {
        let lines = std::mem::take(&mut self.lines);
        self.ready.extend(lines.into_values().flat_map(BTreeMap::into_values));
    }

    /// Whether some may begin again.
    #[inline]
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// A call that begins again; it waits no more.
    pub fn next_ready(&mut self) -> Option<CallKey> {
        while let Some(key) = self.ready.pop_front() {
            if self.leave(key) {
                return Some(key);
            }
        }
        None
    }

    /// Services that are waited for, and by how many calls, for operators.
    pub fn waiting(&self) -> impl Iterator<Item = (String, usize)> {
        self.lines.iter().map(|(service, line)| (service.to_string(), line.len()))
    }

    /// Bytes of theirs that the daemon holds.
    pub fn held_bytes(&self) -> u64 {
        self.bytes.used()
    }

    /// How many wait or may begin again.
    pub fn len(&self) -> usize {
        self.calls.len()
    }
}

#[cfg(test)]
mod tests {
    //! Shows that who waits is found again by its service, in order, and that room comes back however it goes.
    use super::*;
    use crate::table::Key;

    fn key(number: u64) -> CallKey {
        Key::from_bits(number << 32 | 1)
    }

    fn limits() -> Limits {
        Limits { calls_waiting_per_endpoint: 4, parked_bytes_per_session: 400, ..Limits::default() }
    }

    fn admit(waiting: &mut UnservedCalls, number: u64, service: &str, bytes: usize) -> Result<(), Fault> {
        waiting.admit((key(number), service, bytes), &limits(), || "a user".into())
    }

    #[test]
    fn calls_begin_in_order_once_their_service_is_there() {
        let mut waiting = UnservedCalls::default();
        for (number, service) in [(1, "a.A"), (2, "b.B"), (3, "a.A"), (4, "a.A")] {
            admit(&mut waiting, number, service, 10).unwrap();
        }
        assert!(waiting.leave(key(3)) && !waiting.leave(key(3)));
        waiting.serve("c.C");
        assert!(!waiting.has_ready());
        waiting.serve("a.A");
        // One that ends between the two is passed by.
        admit(&mut waiting, 5, "a.A", 0).unwrap();
        assert!(waiting.leave(key(4)));
        assert_eq!((waiting.next_ready(), waiting.next_ready()), (Some(key(1)), None));
        let mut rows: Vec<_> = waiting.waiting().collect();
        rows.sort_unstable();
        assert_eq!(rows, [("a.A".to_owned(), 1), ("b.B".to_owned(), 1)]);
        waiting.serve_all();
        while waiting.next_ready().is_some() {}
        assert_eq!((waiting.room.used(), waiting.held_bytes(), waiting.calls.len()), (0, 0, 0));
        assert!(waiting.lines.is_empty());
    }

    #[test]
    fn calls_and_bytes_are_bounded() {
        let mut waiting = UnservedCalls::default();
        let mut numbers = 1..;
        let full = loop {
            let number = numbers.next().unwrap();
            match admit(&mut waiting, number, &format!("a.A{number}"), 0) {
                Ok(()) => assert!(number < 10),
                Err(fault) => break fault,
            }
        };
        assert!(matches!(full, Fault::Limit { name: UNSERVED, limit: 4 }), "{full:?}");
        let mut waiting = UnservedCalls::default();
        let full = admit(&mut waiting, 1, "a.A", 1000).unwrap_err();
        assert!(matches!(full, Fault::Limit { name: UNSERVED_BYTES, limit: 400 }), "{full:?}");
        assert_eq!((waiting.room.used(), waiting.calls.len()), (0, 0));
    }
}
