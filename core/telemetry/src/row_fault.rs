//! What no recorded call can be.

use std::fmt;

/// What is wrong with the bytes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowFault {
    /// A number that stands for no side.
    Side,
    /// A number that stands for no coverage.
    Coverage,
    /// A number that stands for no gRPC code.
    Code,
    /// A weight below one, or none.
    Weight,
    /// Components that add up to more than thirty days.
    Stamps,
    /// A trace or span without an id, or of no call.
    Trace,
}

impl fmt::Display for RowFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Side => "a side that is none",
            Self::Coverage => "a coverage that is none",
            Self::Code => "a status code beyond 16",
            Self::Weight => "a weight below one",
            Self::Stamps => "components of more than thirty days",
            Self::Trace => "a trace without an id, or of no call",
        })
    }
}
