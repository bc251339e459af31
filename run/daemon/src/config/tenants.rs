//! `[[tenant]]`: how the users of a host share a shard's time.

use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Largest weight: what one unit gets in a turn is this part of it at least.
pub(super) const WEIGHT_MAX: u32 = 1000;

/// The share of one user.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Tenant {
    /// The user whose applications they are.
    pub uid: u32,
    /// How much they get beside others, whose weight is 1 if nothing is said.
    pub weight: u32,
}

impl Tenant {
    /// The weights of users, by what the engine knows them as.
    pub(crate) fn weights(all: &[Self]) -> HashMap<Box<str>, u32> {
        all.iter().map(|tenant| (format!("uid:{}", tenant.uid).into(), tenant.weight)).collect()
    }
}
