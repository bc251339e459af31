//! What the kernel takes for a datagram to this very host, its way into the receiver's socket included: nobody who
//! sends one on pays less, and the hour decides how much it is.

use crate::support::ANY;
use rustix::time::{ClockId, clock_gettime};
use trunkline_net::{DatagramBatch, Datagrams, Outgoing};

/// Datagrams sent together. Each is longer than the one before, so that the kernel cannot take several as one.
const TOGETHER: usize = 32;
const BATCHES: usize = 500;
const BYTES: [u8; 64 + TOGETHER] = [7; 64 + TOGETHER];

/// CPU µs of one datagram, in the mean.
pub fn send_us() -> f64 {
    let (from, to) = (Datagrams::bind(ANY).expect("a port"), Datagrams::bind(ANY).expect("a port"));
    let address = to.address().expect("it has one");
    let batch: Vec<_> =
        (0..TOGETHER).map(|more| Outgoing { to: address, pieces: [&BYTES[..64 + more], &[]] }).collect();
    let (mut received, mut sent, mut took_ns) = (DatagramBatch::new(), 0, 0);
    for _ in 0..BATCHES {
        let began_ns = cpu_ns();
        sent += from.send(&batch);
        took_ns += cpu_ns() - began_ns;
        to.receive_batch(&mut received).expect("it can be read");
    }
    took_ns as f64 / 1e3 / sent.max(1) as f64
}

/// CPU time of the calling thread.
fn cpu_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
