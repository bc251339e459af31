//! What a driver calls: the methods of `bench.proto`, by name, the same for every peer.

use super::children::Failure;
use clap::ValueEnum;

/// One kind of call. The size of an order means bytes, or for [`Work::Average`] and [`Work::Numbers`]
/// integers, for [`Work::Large`] members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
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

/// The name of one of a few things, as it is written on a command line.
pub fn word<T: ValueEnum>(of: T) -> String {
    of.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// The thing of a name.
pub fn named<T: ValueEnum>(name: &str) -> Result<T, Failure> {
    T::from_str(name, false).map_err(|_| format!("there is no {name:?} to be measured").into())
}

/// Text with what stands between `@` in it.
pub fn filled(text: &str, values: &[(&str, &str)]) -> String {
    values.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("@{name}@"), value))
}

/// The name of the n-th named request.
pub fn name_of(call: u64) -> &'static str {
    if is_forbidden(call) { FORBIDDEN } else { "alice" }
}

/// Whether the n-th named request must not pass.
pub fn is_forbidden(call: u64) -> bool {
    call.is_multiple_of(FORBIDDEN_EVERY)
}
