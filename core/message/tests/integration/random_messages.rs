//! Shows, on random messages of random schemas: what is built is what is read, every built message passes the check,
//! and no damage to it makes check or view panic or walk further than the extent is long.

use crate::support;

use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use support::{Case, bytes_visited, model_of};
use trunkline_message::{
    AlignedBuf, DynamicBuilder, DynamicView, Extent, HEADER_BYTES, Header, Transcoder, check,
};

fn tape() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..900)
}

/// The same cases on every run.
fn cases(n: u32) -> ProptestConfig {
    ProptestConfig { failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..ProptestConfig::with_cases(n) }
}

/// One edit of a built message: a word at an aligned place, aimed at where offsets and counts are.
#[derive(Clone, Debug)]
struct Edit {
    at: prop::sample::Index,
    kind: u8,
    value: u32,
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let edit = (any::<prop::sample::Index>(), any::<u8>(), any::<u32>());
    proptest::collection::vec(edit.prop_map(|(at, kind, value)| Edit { at, kind, value }), 1..6)
}

impl Edit {
    fn apply(&self, extent: &mut [u8], length: usize) {
        let at = self.at.index(length / 4) * 4;
        let old = u32::from_le_bytes(extent[at..at + 4].try_into().unwrap());
        let new = match self.kind % 8 {
            0 => self.value,
            1 => self.value % (length as u32 + 16),
            2 => self.value % (length as u32 + 16) / 8 * 8,
            3 => old ^ (1 << (self.value % 32)),
            4 => old.wrapping_add(self.value % 9).wrapping_sub(4),
            5 => 24,
            6 => old.wrapping_mul(2),
            _ => u32::MAX,
        };
        extent[at..at + 4].copy_from_slice(&new.to_le_bytes());
    }
}

proptest! {
    #![proptest_config(cases(512))]

    #[test]
    fn built_is_read_and_accepted(tape in tape()) {
        let case = Case::from_tape(&tape);
        let verified = check(&case.schema, case.root, case.built.bytes())
            .map_err(|e| TestCaseError::fail(e.describe(&case.schema)))?;
        prop_assert_eq!(verified.bytes(), case.built.bytes());
        let view = DynamicView::root(&case.schema, case.root, verified.bytes());
        prop_assert_eq!(model_of(view), case.model);
        let budget = case.built.len_bytes() - HEADER_BYTES;
        prop_assert!(bytes_visited(view, budget) <= budget);
    }

    #[test]
    fn a_deep_copy_holds_the_same_and_no_more(tape in tape()) {
        let case = Case::from_tape(&tape);
        let view = DynamicView::root(&case.schema, case.root, case.built.bytes());
        let copy = DynamicBuilder::build(&case.schema, case.root, AlignedBuf::new(), |b| b.copy_from(view)).unwrap();
        prop_assert!(check(&case.schema, case.root, copy.bytes()).is_ok());
        prop_assert_eq!(model_of(DynamicView::root(&case.schema, case.root, copy.bytes())), case.model);
    }

    /// A buffer full of an old message must not shine through: recycled memory is what builders usually get.
    #[test]
    fn dirty_extents_make_the_same_bytes(tape in tape(), dirt in any::<u8>()) {
        let case = Case::from_tape(&tape);
        let view = DynamicView::root(&case.schema, case.root, case.built.bytes());
        let build = |extent: AlignedBuf| {
            DynamicBuilder::build(&case.schema, case.root, extent, |b| b.copy_from(view)).unwrap()
        };
        let mut dirty = AlignedBuf::new();
        dirty.grow(4 * case.built.len_bytes()).unwrap();
        dirty.bytes_mut().fill(dirt);
        let (clean, dirty) = (build(AlignedBuf::new()), build(dirty));
        prop_assert_eq!(clean.bytes(), dirty.bytes());
    }
}

proptest! {
    #![proptest_config(cases(2048))]

    #[test]
    fn damage_is_refused_or_harmless(tape in tape(), edits in edits(), cut in any::<prop::sample::Index>()) {
        let case = Case::from_tape(&tape);
        let length = case.built.len_bytes();
        let mut extent = case.built.into_extent();
        edits.iter().for_each(|edit| edit.apply(extent.bytes_mut(), length));
        let damaged = &extent.bytes()[..length];
        let budget = length - HEADER_BYTES;
        let view = DynamicView::root(&case.schema, case.root, damaged);
        if check(&case.schema, case.root, damaged).is_ok() {
            prop_assert!(bytes_visited(view, usize::MAX) <= budget, "an accepted message is walked within its length");
        } else {
            bytes_visited(view, 100_000);
        }
        let cut = &damaged[..cut.index(length)];
        let stated = Header::read(damaged).map_or(0, |header| header.total_bytes as usize);
        prop_assert!(cut.len() >= stated || check(&case.schema, case.root, cut).is_err());
        bytes_visited(DynamicView::root(&case.schema, case.root, cut), 100_000);
    }

    /// The encoder checks while it writes, by code of its own; it must not let through what the check refuses. (Map
    /// entries apart: it writes both their fields whatever their presence bits say.)
    #[test]
    fn what_the_encoder_takes_the_check_takes(tape in tape(), edits in edits()) {
        let case = Case::from_tape(&tape);
        if case.schema.messages().iter().any(|message| message.is_map_entry) {
            return Ok(());
        }
        let length = case.built.len_bytes();
        let mut extent = case.built.into_extent();
        edits.iter().for_each(|edit| edit.apply(extent.bytes_mut(), length));
        let damaged = &extent.bytes()[..length];
        let checked = check(&case.schema, case.root, damaged).map(drop);
        let encoded = Transcoder::new(Arc::new(case.schema)).encode(case.root, damaged, &mut Vec::new());
        prop_assert!(encoded.is_err() || checked.is_ok(), "{:?}", checked);
    }

    #[test]
    fn noise_behind_a_true_header_never_panics(
        tape in tape(),
        noise in proptest::collection::vec(0u32..400, 0..120),
    ) {
        let case = Case::from_tape(&tape);
        let mut extent = AlignedBuf::copied(&case.built.bytes()[..HEADER_BYTES]).unwrap();
        let length = HEADER_BYTES + 4 * noise.len();
        extent.grow(length).unwrap();
        for (word, value) in extent.bytes_mut()[HEADER_BYTES..].chunks_exact_mut(4).zip(&noise) {
            word.copy_from_slice(&value.to_le_bytes());
        }
        extent.bytes_mut()[4..8].copy_from_slice(&(length as u32).to_le_bytes());
        let bytes = &extent.bytes()[..length];
        let view = DynamicView::root(&case.schema, case.root, bytes);
        let limit = if check(&case.schema, case.root, bytes).is_ok() { usize::MAX } else { 100_000 };
        let visited = bytes_visited(view, limit);
        prop_assert!(limit < usize::MAX || visited <= length - HEADER_BYTES);
    }
}
