//! How a session's send heap is shared between its streams and everything else.
//!
//! Messages of a stream lie in the send heap until its receiver has taken them, a window's worth for each. Many streams
//! whose receivers take nothing could fill the heap, and then nothing else would find a block: no answer, no call, no
//! stream whose receiver does read. So a part of the heap is kept from streams, and what a stream may have there of the
//! rest depends on how much of that is left (dynamic thresholds: Choudhury and Hahne, 1998): one stream alone may have
//! half of the heap, and of many each the less the more they are.

use trunkline_call::CallId;

/// Streams have three quarters of the heap together.
const STREAMS_QUARTERS: u64 = 3;

/// What streams have under way.
#[derive(Debug)]
pub(super) struct StreamShare {
    bytes_max: u64,
    bytes: u64,
    /// Streams that may send by their window and wait for others to be read. As many as there are of those at most.
    waiting: Vec<CallId>,
}

impl StreamShare {
    /// Of a heap of so many bytes.
    pub(super) fn new(heap_bytes: u32) -> Self {
        Self { bytes_max: u64::from(heap_bytes) / 4 * STREAMS_QUARTERS, bytes: 0, waiting: Vec::new() }
    }

    /// Whether a stream that has so many bytes under way may send a message.
    #[inline]
    pub(super) fn admits(&self, held_bytes: u64) -> bool {
        let left = self.bytes_max.saturating_sub(self.bytes);
        left > 0 && held_bytes <= 2 * left
    }

    /// A message of so many bytes is under way.
    #[inline]
    pub(super) fn hold(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// So many are no longer. The streams that waited for that.
    #[inline]
    pub(super) fn release(&mut self, bytes: u64) -> Vec<CallId> {
        self.bytes = self.bytes.saturating_sub(bytes);
        if bytes == 0 { Vec::new() } else { std::mem::take(&mut self.waiting) }
    }

    /// A stream waits until others have less under way.
    pub(super) fn wait(&mut self, call: CallId) {
        self.waiting.push(call);
    }

    /// It is over.
    pub(super) fn stop_waiting(&mut self, call: CallId) {
        self.waiting.retain(|waiting| *waiting != call);
    }
}

#[cfg(test)]
mod tests {
    //! Shows what streams leave to others, and that each gets something.
    use super::*;

    const HEAP_BYTES: u32 = 64 << 20;

    /// So many streams send messages of so many bytes for as long as they may, and nobody reads. What each has.
    fn fill(streams: usize, window: u64, message: u64) -> (StreamShare, Vec<u64>) {
        let mut share = StreamShare::new(HEAP_BYTES);
        let mut held = vec![0; streams];
        loop {
            let before = share.bytes;
            for held in &mut held {
                if *held < window && share.admits(*held) {
                    share.hold(message);
                    *held += message;
                }
            }
            if share.bytes == before {
                return (share, held);
            }
        }
    }

    #[test]
    fn streams_that_nobody_reads_leave_a_quarter_of_the_heap() {
        for (streams, message) in [(1, 1000), (10, 1000), (100, 60_000), (1000, 60_000), (4000, 60_000)] {
            let (share, held) = fill(streams, 1 << 20, message);
            assert!(share.bytes <= share.bytes_max + message, "{streams}: {}", share.bytes);
            if streams as u64 * message < share.bytes_max {
                assert!(held.iter().all(|held| *held > 0), "{streams}: each has something");
            }
        }
        let (_, held) = fill(3, 1 << 20, 1000);
        assert!(held.iter().all(|held| *held >= 1 << 20), "a few have their windows");
        let (_, held) = fill(1, 1 << 40, 1000);
        assert!(held[0] >= u64::from(HEAP_BYTES) / 2 - 1000, "one alone has half: {}", held[0]);
    }

    #[test]
    fn who_waits_goes_on_when_others_are_read() {
        let (mut share, held) = fill(1000, 1 << 20, 60_000);
        assert!(!share.admits(held[0]));
        share.wait(CallId(7));
        assert_eq!(share.release(0), []);
        assert_eq!(share.release(share.bytes), [CallId(7)]);
        assert!(share.admits(held[0]) && share.release(1).is_empty());
        (0..3).for_each(|call| share.wait(CallId(call)));
        share.stop_waiting(CallId(1));
        assert_eq!(share.release(1), [CallId(0), CallId(2)], "what is over does not wait");
    }
}
