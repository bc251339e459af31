//! Business work: a loop that only takes time. The tonic peer compiles this very file, so that both do the same.

use std::hint::black_box;
use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicU64, Ordering};

/// Work of every call from now on, in turns of the loop.
static TURNS: AtomicU64 = AtomicU64::new(0);

/// What a call has to do beside its messages.
pub fn work() {
    turn(TURNS.load(Ordering::Relaxed));
}

/// So many turns of the loop, each of which needs the one before.
pub fn turn(turns: u64) {
    let mut value = 1_u64;
    for _ in 0..turns {
        value = black_box(value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
}

/// Takes the work from lines of standard input, and says so, until it ends.
pub fn take_orders() {
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let Ok(turns) = line.trim().parse() else { return };
        TURNS.store(turns, Ordering::Relaxed);
        let mut output = std::io::stdout().lock();
        if writeln!(output, "{turns}").and_then(|()| output.flush()).is_err() {
            return;
        }
    }
}
