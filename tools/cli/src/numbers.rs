//! Numbers on the command line.

/// Reads a number with both ends of its range allowed.
pub fn count_within(least: u64, most: u64) -> clap::builder::RangedU64ValueParser<usize> {
    clap::builder::RangedU64ValueParser::new().range(least..=most)
}

/// Reads a shard's number.
///
/// # Errors
/// What to write instead.
pub fn shard(said: &str) -> Result<u32, String> {
    said.parse()
        .map_err(|_| "write the number of a shard, from 0 on: `trunkline shards` shows them".to_owned())
}
