//! What the single operations cost on one thread, without anybody to wait for.
//!
//! ```text
//! cargo run --release -p trunkline-shm --example costs
//! ```

use std::hint::black_box;

use trunkline_shm::{
    BlockAllocator, ForkGuard, SessionConfig, Span, create_session, monotonic_ns, open_session,
};

fn main() {
    let config = SessionConfig::default();
    let (mut daemon, fds) = create_session(&config).unwrap();
    let mut app = open_session(fds, &config).unwrap();
    let entry = [7; 8];

    ns("ring: push, publish, pop", 1_000_000, || {
        let _ = app.submissions.push(black_box(&entry)).unwrap();
        black_box(daemon.submissions.pop().unwrap());
    });
    ns("ring: 32 staged, one publish, 32 pops", 100_000, || {
        (0..32).for_each(|_| app.submissions.stage(black_box(&entry)).unwrap());
        let _ = app.submissions.publish();
        (0..32).for_each(|_| _ = black_box(daemon.submissions.pop().unwrap()));
    });
    ns("ring: look at an empty one", 1_000_000, || {
        black_box(daemon.submissions.ready().unwrap());
    });
    ns("ring: arm and disarm", 1_000_000, || {
        black_box(daemon.submissions.arm().unwrap());
        daemon.submissions.disarm();
    });
    ns("doorbell of the daemon: ring, quiet", 100_000, || {
        app.peer_doorbell.ring().unwrap();
        daemon.own_doorbell.quiet().unwrap();
    });
    ns("doorbell of the application: ring, quiet", 100_000, || {
        daemon.peer_doorbell.ring().unwrap();
        app.own_doorbell.quiet().unwrap();
    });
    let guard = ForkGuard::new();
    ns("fork guard", 1_000_000, || {
        black_box(guard.is_foreign());
    });
    allocators();
    ns("heap: allocate, lend, free", 1_000_000, || {
        let span = app.send_heap.allocate(black_box(200)).unwrap().lend(180);
        app.send_heap.free(span.offset).unwrap();
    });
    copies(&app.send_heap, &daemon.send_heap);
}

fn allocators() {
    let mut allocator = BlockAllocator::new(64 << 20).unwrap();
    ns("allocator: allocate, free, empty heap", 1_000_000, || {
        let offset = allocator.allocate(black_box(200)).unwrap();
        allocator.free(offset).unwrap();
    });
    let mut random = 1u64;
    let mut next = move |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % below
    };
    let mut blocks: Vec<u32> = (0..256).map(|_| allocator.allocate(next(4_000) as u32).unwrap()).collect();
    ns("allocator: allocate, free, 256 mixed blocks", 1_000_000, || {
        let which = next(256) as usize;
        allocator.free(blocks[which]).unwrap();
        blocks[which] = allocator.allocate(next(4_000) as u32).unwrap();
    });
}

fn copies(heap: &trunkline_shm::Heap, alleged: &trunkline_shm::AllegedHeap) {
    for len in [64u32, 1 << 10, 16 << 10, 256 << 10, 16 << 20] {
        let rounds = (1 << 28) / u64::from(len).max(1 << 10);
        let mut block = heap.allocate(len).unwrap();
        block.bytes_mut().fill(1);
        let plain_source = vec![1u8; len as usize];
        let mut into = vec![0u8; len as usize];
        let plain = ns_of(rounds, || into.copy_from_slice(black_box(&plain_source)));
        let Span { offset, .. } = block.lend(len);
        let racing = ns_of(rounds, || alleged.copy_out(black_box(offset), black_box(&mut into)).unwrap());
        let rate = |ns: f64| f64::from(len) / ns;
        println!("copy {len:>9} B: plain {plain:>9.1} ns {:>5.1} GB/s", rate(plain));
        println!("{:>15} alleged {racing:>9.1} ns {:>5.1} GB/s", "", rate(racing));
        heap.free(offset).unwrap();
    }
}

fn ns(what: &str, rounds: u64, operation: impl FnMut()) {
    println!("{what:<45} {:>7.1} ns", ns_of(rounds, operation));
}

/// The best of five, because everything that disturbs only adds.
fn ns_of(rounds: u64, mut operation: impl FnMut()) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let began = monotonic_ns();
        (0..rounds).for_each(|_| operation());
        best = best.min((monotonic_ns() - began) as f64 / rounds as f64);
    }
    best
}
