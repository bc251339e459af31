//! What is handed from step to step: where a message ends, where a field ended, that something went wrong.

use super::arena::Full;
use crate::transcode::error::DecodeErrorKind as Kind;

/// A message being read: its block, where it ends, and whether it is a group.
///
/// Two words, which are handed on in registers. A group ends with a tag, which the parser's `group_end` holds for the
/// innermost group; a message inside the group does not end with it, so being a group is a matter of the level.
#[derive(Clone, Copy)]
pub(super) struct Level {
    pub base: u32,
    /// The end, and the high bit for a group.
    bound: u32,
}

impl Level {
    const GROUP: u32 = 1 << 31;

    #[inline(always)]
    pub(super) fn new(base: u32, end: u32) -> Self {
        Level { base, bound: end }
    }

    /// The level of a group in this one.
    pub(super) fn group(self, base: u32) -> Self {
        Level { base, bound: self.end() | Self::GROUP }
    }

    /// Where the message ends.
    #[inline(always)]
    pub(super) fn end(self) -> u32 {
        self.bound & !Self::GROUP
    }

    #[inline(always)]
    pub(super) fn is_group(self) -> bool {
        self.bound & Self::GROUP != 0
    }
}

/// Where a field, or a run of fields, ended, or that parsing stopped: one word, so that the loop over fields has one
/// thing to look at. What ends the loop lies behind every end of a message: positions are below 2 GiB.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Next(u32);

impl Next {
    /// Parsing stopped, for the reason the parser holds.
    pub(super) const FAILED: Next = Next(u32::MAX);
    const GROUP_ENDED: u32 = 1 << 31;

    #[inline(always)]
    pub(super) fn at(position: u32) -> Self {
        Next(position)
    }

    /// The group being read ended with a tag before `position`.
    pub(super) fn group_ended(position: u32) -> Self {
        Next(position | Self::GROUP_ENDED)
    }

    /// The position, if it is before `end`.
    #[inline(always)]
    pub(super) fn before(self, end: u32) -> Option<u32> {
        (self.0 < end).then_some(self.0)
    }

    /// Whether this is where a message, not a group, should end.
    #[inline(always)]
    pub(super) fn is_end_of(self, level: Level) -> bool {
        self.0 == level.end() && !level.is_group()
    }

    /// Where a group ended.
    pub(super) fn end_of_group(self) -> Option<u32> {
        (self != Self::FAILED && self.0 & Self::GROUP_ENDED != 0).then_some(self.0 & !Self::GROUP_ENDED)
    }
}

impl From<Result<u32, Halt>> for Next {
    #[inline(always)]
    fn from(end: Result<u32, Halt>) -> Self {
        match end {
            Ok(position) => Next(position),
            Err(Halt) => Next::FAILED,
        }
    }
}

impl From<Next> for Result<u32, Halt> {
    #[inline(always)]
    fn from(next: Next) -> Self {
        if next == Next::FAILED { Err(Halt) } else { Ok(next.0) }
    }
}

/// Parsing stopped; the parser holds the reason, or that the arena is full.
pub(super) struct Halt;

/// Why parsing stopped, as far as the place knows.
pub(super) struct Fault {
    pub kind: Kind,
    pub at: u32,
    pub tag: u32,
    /// Index of the innermost message type.
    pub message: Option<u32>,
}

impl From<Full> for Halt {
    #[inline(always)]
    fn from(_: Full) -> Halt {
        Halt
    }
}

impl From<Halt> for Next {
    fn from(_: Halt) -> Next {
        Next::FAILED
    }
}
