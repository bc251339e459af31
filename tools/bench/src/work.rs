//! What a driver calls: the methods of `bench.proto`, by name, the same for every peer.

use crate::children::Failure;
use std::str::FromStr;

/// One kind of call. The size of an order means bytes, or for [`Work::Average`] and [`Work::Numbers`]
/// integers, for [`Work::Large`] members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Bytes there, their count back.
    Bytes,
    /// The same with a name in the request, one in a hundred of which a policy would not let pass. None is there.
    Open,
    /// The same with that policy.
    Guarded,
    /// A name there, a greeting back.
    Hello,
    /// Integers there, their mean back.
    Average,
    /// A count there, so many integers back.
    Numbers,
    /// A message of so many members there and back.
    Large,
}

/// One in so many named requests bears [`FORBIDDEN`].
pub const FORBIDDEN_EVERY: u64 = 100;
/// The name that must not pass.
pub const FORBIDDEN: &str = "mallory";
/// All others'.
pub const PERMITTED: &str = "alice";

impl Work {
    const ALL: [Self; 7] =
        [Self::Bytes, Self::Open, Self::Guarded, Self::Hello, Self::Average, Self::Numbers, Self::Large];

    /// As drivers are told.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Open => "open",
            Self::Guarded => "guarded",
            Self::Hello => "hello",
            Self::Average => "average",
            Self::Numbers => "numbers",
            Self::Large => "large",
        }
    }
}

impl FromStr for Work {
    type Err = Failure;

    fn from_str(name: &str) -> Result<Self, Failure> {
        let found = Self::ALL.into_iter().find(|work| work.name() == name);
        found.ok_or_else(|| format!("no such work: {name}").into())
    }
}

/// The name of the n-th named request.
pub fn name_of(call: u64) -> &'static str {
    if is_forbidden(call) { FORBIDDEN } else { PERMITTED }
}

/// Whether the n-th named request must not pass.
pub fn is_forbidden(call: u64) -> bool {
    call.is_multiple_of(FORBIDDEN_EVERY)
}
