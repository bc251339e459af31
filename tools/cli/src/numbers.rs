//! Numbers on the command line.

/// Reads a number with both ends of its range allowed.
pub fn count_within(least: u64, most: u64) -> clap::builder::RangedU64ValueParser<usize> {
    clap::builder::RangedU64ValueParser::new().range(least..=most)
}
