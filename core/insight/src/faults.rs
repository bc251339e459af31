//! What of a file could not be used, counted and named.

use std::collections::BTreeMap;
use std::fmt;
use trunkline_telemetry::RowFault;

/// The version of the file this program writes. It reads all from 1 on.
pub const VERSION: u16 = 2;
/// Versions of blocks that are named one by one: a file may say anything.
const VERSIONS_MAX: usize = 64;

/// What is wrong with a part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileFault {
    /// Bytes between blocks.
    NoBlock,
    /// The file ends within a block.
    CutShort,
    /// Another program wrote it.
    Version(u16),
    /// Other programs wrote them, beyond those that are named.
    MoreVersions,
    /// Bytes were changed.
    Checksum,
    /// The head is no JSON of a head, or beyond its limits.
    Head,
    /// Variables, stages and components of a head, beyond its limits.
    TooManyNames,
    /// Ended before it began.
    ClockBackwards,
    /// The last row of a block is not whole.
    PartOfRow,
    /// A row that no call can be.
    Row(RowFault),
    /// A trace that no call can have.
    Trace(RowFault),
    /// A row whose method or host the head does not name.
    NoName,
    /// A row that ended before its block began or after it ended.
    OutsideOfBlock,
    /// Calls of a time that another recording of the same daemon has.
    ToldBefore,
    /// More rows than are read at once.
    TooMany,
    /// More blocks, or more in their heads, than are read at once.
    TooManyBlocks,
}

/// What could not be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults(BTreeMap<FileFault, u64>);

impl Faults {
    /// Counts some more.
    pub fn note(&mut self, fault: FileFault, count: u64) {
        if count == 0 {
            return;
        }
        let is_named = |fault: &FileFault| matches!(fault, FileFault::Version(_));
        let is_one_more = is_named(&fault) && !self.0.contains_key(&fault);
        let fault = match is_one_more && self.0.keys().filter(|known| is_named(known)).count() >= VERSIONS_MAX
        {
            true => FileFault::MoreVersions,
            false => fault,
        };
        *self.0.entry(fault).or_default() += count;
    }

    /// Adds those of another file.
    pub fn merge(&mut self, other: &Self) {
        other.list().for_each(|(fault, count)| self.note(fault, count));
    }

    /// Each with how often.
    pub fn list(&self) -> impl Iterator<Item = (FileFault, u64)> {
        self.0.iter().map(|(fault, count)| (*fault, *count))
    }

    /// Whether all was sound.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for FileFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoBlock => f.write_str("bytes that belong to no block"),
            Self::CutShort => f.write_str("blocks cut short"),
            Self::Version(version) => {
                write!(f, "blocks of version {version} (this program reads 1 to {VERSION})")
            }
            Self::MoreVersions => f.write_str("blocks of yet other versions"),
            Self::Checksum => f.write_str("blocks with a wrong checksum"),
            Self::Head => f.write_str("blocks with a head that is not understood"),
            Self::TooManyNames => {
                f.write_str("names of variables, stages and components beyond the limit of a block")
            }
            Self::ClockBackwards => {
                f.write_str("blocks whose clock ran backwards (their calls are used, their times are not)")
            }
            Self::PartOfRow => f.write_str("blocks whose last call is not whole"),
            Self::Row(fault) => write!(f, "calls with {fault}"),
            Self::Trace(fault) => write!(f, "traces of calls with {fault}"),
            Self::NoName => f.write_str("calls of a method or host without a name"),
            Self::OutsideOfBlock => f.write_str("calls that ended outside of their block's time"),
            Self::ToldBefore => {
                f.write_str("calls of a time that another recording of their daemon has, too")
            }
            Self::TooMany => f.write_str("calls beyond the limit of what is read at once"),
            Self::TooManyBlocks => f.write_str("blocks beyond the limit of what is read at once"),
        }
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.list().map(|(fault, count)| format!("{count} {fault}")).collect();
        f.write_str(&words.join(", "))
    }
}

#[cfg(test)]
mod tests {
    //! Shows that what is said of a file is bounded, whatever the file says.
    use super::*;

    #[test]
    fn of_very_many_versions_some_are_named() {
        let mut faults = Faults::default();
        (VERSION + 1..=u16::MAX).for_each(|version| faults.note(FileFault::Version(version), 1));
        faults.note(FileFault::Version(VERSION + 1), 1);
        assert_eq!(faults.list().count(), VERSIONS_MAX + 1);
        let said = faults.to_string();
        assert!(said.contains("2 blocks of version 3 ") && said.len() < 10_000, "{said}");
        let all: u64 = faults.list().map(|(_, count)| count).sum();
        assert_eq!(all, u64::from(u16::MAX - VERSION) + 1);
    }
}
