//! What is read of a state before the rest of it, which may be hundreds of megabytes while nobody turns.

use crate::shard::ShardLinks;
use serde::de::{Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;

/// The version of a state. Nothing behind it is looked at: it may be something else in another version.
pub(super) struct Version(pub u32);

/// A state's shards. Where they stand in front, nothing behind them is looked at.
pub(super) struct ShardsOfState(pub ShardLinks);

/// What stands behind the version.
struct Fields(ShardLinks);

struct First;
struct Second;
struct UpToShards;

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(First)
    }
}

impl<'de> Deserialize<'de> for ShardsOfState {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Second)
    }
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(UpToShards)
    }
}

impl<'de> Visitor<'de> for First {
    type Value = Version;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a version and a state")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Version, A::Error> {
        parts.next_element()?.map(Version).ok_or_else(|| A::Error::invalid_length(0, &self))
    }
}

impl<'de> Visitor<'de> for Second {
    type Value = ShardsOfState;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a version and a state")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<ShardsOfState, A::Error> {
        let _version: Option<u32> = parts.next_element()?;
        let fields: Option<Fields> = parts.next_element()?;
        fields.map(|fields| ShardsOfState(fields.0)).ok_or_else(|| A::Error::invalid_length(1, &self))
    }
}

impl<'de> Visitor<'de> for UpToShards {
    type Value = Fields;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the fields of a state")
    }

    /// States of older programs have their shards further behind, or none.
    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Fields, A::Error> {
        while let Some(name) = fields.next_key::<String>()? {
            if name == "shards" {
                return fields.next_value().map(Fields);
            }
            fields.next_value::<IgnoredAny>()?;
        }
        Ok(Fields(ShardLinks::default()))
    }
}
