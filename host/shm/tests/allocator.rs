//! The allocator against a model: a map of the blocks in use and nothing else.
#![cfg(not(loom))]

use std::collections::BTreeMap;

use proptest::prelude::*;
use trunkline_shm::{BlockAllocator, FreeError, GRANULE_BYTES};

const HEAP_BYTES: u32 = 1 << 20;

#[derive(Clone, Debug)]
enum Step {
    Allocate(u32),
    /// Frees the n-th block in use.
    Free(usize),
    Grow(usize, u32),
    Lend(usize, u32),
    /// Frees an offset that need not be a block.
    FreeWild(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let len = prop_oneof![4 => 0..2_000u32, 2 => 0..70_000u32, 1 => 0..2 * HEAP_BYTES];
    let step = prop_oneof![
        5 => len.clone().prop_map(Step::Allocate),
        4 => any::<usize>().prop_map(Step::Free),
        2 => (any::<usize>(), len.clone()).prop_map(|(which, len)| Step::Grow(which, len)),
        1 => (any::<usize>(), len).prop_map(|(which, len)| Step::Lend(which, len)),
        1 => (0..HEAP_BYTES + 10).prop_map(Step::FreeWild),
    ];
    prop::collection::vec(step, 1..400)
}

/// Blocks in use by offset: length in bytes and whether lent.
type Model = BTreeMap<u32, (u32, bool)>;

fn nth(model: &Model, which: usize) -> Option<(u32, u32, bool)> {
    let (offset, (len, lent)) = model.iter().nth(which % model.len().max(1))?;
    Some((*offset, *len, *lent))
}

fn rounded(len: u32) -> u32 {
    len.max(1).next_multiple_of(GRANULE_BYTES)
}

/// Largest gap between blocks in use.
fn largest_gap(model: &Model) -> u32 {
    let (mut end, mut largest) = (0, 0);
    for (offset, (len, _)) in model {
        largest = largest.max(offset - end);
        end = offset + len;
    }
    largest.max(HEAP_BYTES - end)
}

fn check(allocator: &BlockAllocator, model: &Model) {
    let mut end = 0;
    for (offset, (len, _)) in model {
        assert!(*offset >= end && offset.is_multiple_of(GRANULE_BYTES), "blocks overlap at {offset}");
        assert_eq!(allocator.len_at(*offset), Some(*len));
        end = offset + len;
    }
    assert!(end <= HEAP_BYTES);
    assert_eq!(allocator.bytes_in_use(), model.values().map(|(len, _)| len).sum::<u32>());
    assert!(allocator.touched_bytes() >= end);
    let gap = largest_gap(model);
    let largest = allocator.largest_free();
    assert!(
        largest <= gap && u64::from(largest) * 9 >= u64::from(gap) * 8,
        "largest_free {largest}, gap {gap}"
    );
}

fn take_step(allocator: &mut BlockAllocator, model: &mut Model, step: Step) {
    match step {
        Step::Allocate(len) => match allocator.allocate(len) {
            Some(offset) => assert!(model.insert(offset, (rounded(len), false)).is_none()),
            None => assert!(
                u64::from(largest_gap(model)) < u64::from(rounded(len)) * 9 / 8 + 64,
                "{len} was there"
            ),
        },
        Step::Free(which) => {
            let Some((offset, len, lent)) = nth(model, which) else { return };
            assert_eq!(
                allocator.free_lent(offset),
                if lent { Ok(len) } else { Err(FreeError::NotLent { offset }) }
            );
            if !lent {
                assert_eq!(allocator.free(offset), Ok(len));
            }
            assert_eq!(allocator.free(offset), Err(FreeError::NoBlock { offset }), "a second time");
            model.remove(&offset);
        }
        Step::Grow(which, len) => {
            let Some((offset, before, _)) = nth(model, which) else { return };
            let end = model.range(offset + 1..).next().map_or(HEAP_BYTES, |(next, _)| *next);
            let grown = allocator.grow(offset, len);
            assert_eq!(grown, u64::from(offset) + u64::from(rounded(len)) <= u64::from(end));
            if grown {
                model.get_mut(&offset).unwrap().0 = before.max(rounded(len));
            }
        }
        Step::Lend(which, len) => {
            let Some((offset, before, _)) = nth(model, which) else { return };
            allocator.lend(offset, len).unwrap();
            let after = if before.saturating_sub(rounded(len)) >= 1024 { rounded(len) } else { before };
            model.insert(offset, (after, true));
        }
        Step::FreeWild(offset) if model.contains_key(&offset) => {}
        Step::FreeWild(offset) => assert_eq!(allocator.free(offset), Err(FreeError::NoBlock { offset })),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Blocks never overlap, never leave the heap, free exactly once, grow exactly when there is room, and a block
    /// that fits with an eighth to spare is found.
    #[test]
    fn behaves_like_a_map_of_blocks(steps in steps()) {
        let mut allocator = BlockAllocator::new(HEAP_BYTES).unwrap();
        let mut model = Model::new();
        for step in steps {
            take_step(&mut allocator, &mut model, step);
            check(&allocator, &model);
        }
        for offset in model.into_keys() {
            allocator.free(offset).unwrap();
        }
        prop_assert_eq!(allocator.largest_free(), HEAP_BYTES, "all free blocks have joined");
        prop_assert_eq!(allocator.allocate(HEAP_BYTES), Some(0));
    }

    /// With at most 64 KiB in use at any time, blocks of mixed sizes and lifetimes stay within the heap's first
    /// 256 KiB: what is resident follows what is used.
    #[test]
    fn low_addresses_first(sizes in prop::collection::vec((1..4_000u32, any::<usize>()), 100..2_000)) {
        let mut allocator = BlockAllocator::new(HEAP_BYTES).unwrap();
        let mut in_use = Vec::new();
        for (len, which) in sizes {
            while allocator.bytes_in_use() + rounded(len) > 64 << 10 {
                let offset = in_use.swap_remove(which % in_use.len());
                allocator.free(offset).unwrap();
            }
            in_use.push(allocator.allocate(len).unwrap());
        }
        prop_assert!(allocator.touched_bytes() <= 256 << 10, "{} bytes touched", allocator.touched_bytes());
    }
}

/// After everything was returned the next block lies at the bottom again, and the touched part can be given back.
#[test]
fn an_idle_heap_starts_from_the_bottom() {
    let mut allocator = BlockAllocator::new(HEAP_BYTES).unwrap();
    let blocks: Vec<u32> = (0..100).map(|index| allocator.allocate(index * 100).unwrap()).collect();
    let touched = allocator.touched_bytes();
    for offset in blocks.into_iter().rev() {
        allocator.free(offset).unwrap();
    }
    assert_eq!(allocator.allocate(64), Some(0));
    assert_eq!(allocator.idle_top(), (64, touched - 64));
    allocator.forget_idle_top();
    assert_eq!(allocator.idle_top(), (64, 0));
    assert_eq!(allocator.touched_bytes(), 64);
}

/// A full heap says so and recovers; a length that cannot be rounded is refused.
#[test]
fn a_full_heap_refuses() {
    let mut allocator = BlockAllocator::new(GRANULE_BYTES * 4).unwrap();
    let blocks: Vec<u32> = (0..4).map(|_| allocator.allocate(1).unwrap()).collect();
    assert_eq!(allocator.allocate(1), None);
    assert_eq!(allocator.largest_free(), 0);
    assert_eq!(allocator.free(blocks[2]), Ok(64));
    assert_eq!(allocator.allocate(65), None);
    assert_eq!(allocator.allocate(64), Some(blocks[2]));
    assert_eq!(allocator.allocate(u32::MAX), None);
    assert!(!allocator.grow(blocks[0], u32::MAX));
    assert_eq!(BlockAllocator::new(0).unwrap().allocate(1), None);
}
