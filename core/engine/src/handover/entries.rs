//! Completions on their way: as the entries they will be.

use serde::{Deserialize, Deserializer, Serializer, de::Error as _};
use std::collections::VecDeque;
use trunkline_call::entry::{Completion, Entry};

pub fn serialize<S: Serializer>(outbox: &VecDeque<Completion>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(outbox.iter().map(Completion::encode))
}

pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<VecDeque<Completion>, D::Error> {
    let entries = Vec::<Entry>::deserialize(deserializer)?;
    let completion =
        |entry| Completion::decode(entry).map_err(|error| D::Error::custom(format!("{error:?}")));
    entries.iter().map(completion).collect()
}
