//! One program for all targets: `TRUNKLINE_FUZZ` says which.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use trunkline_fuzz::{TARGETS, Target};

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let wanted = std::env::var("TRUNKLINE_FUZZ").expect("TRUNKLINE_FUZZ names a target");
    TARGETS.iter().find(|target| target.name == wanted).expect("a target of TARGETS")
});

fuzz_target!(|bytes: &[u8]| (TARGET.run)(bytes));
