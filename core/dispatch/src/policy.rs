//! The policies by name.

use crate::bound::Bound;
use std::fmt;
use std::str::FromStr;

/// How a worker is picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// Any.
    Random,
    /// Each in turn.
    RoundRobin,
    /// The less loaded of two drawn.
    PowerOfTwo,
    /// The least loaded.
    JoinShortestQueue,
    /// The least loaded below the bound; else a queue here.
    Bounded(Bound),
}

/// A policy's name that is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPolicy(pub String);

impl Default for Policy {
    fn default() -> Self {
        Self::Bounded(Bound::Auto)
    }
}

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        let unknown = || UnknownPolicy(text.to_owned());
        Ok(match text {
            "random" => Self::Random,
            "round-robin" => Self::RoundRobin,
            "power-of-two" => Self::PowerOfTwo,
            "jsq" => Self::JoinShortestQueue,
            "jbsq" | "jbsq(auto)" => Self::Bounded(Bound::Auto),
            _ => {
                let number =
                    text.strip_prefix("jbsq(").and_then(|rest| rest.strip_suffix(')')).ok_or_else(unknown)?;
                let is_bound = |n: &u32| (1..=Bound::FIXED_MAX).contains(n) || *n == Bound::MAX;
                Self::Bounded(Bound::Fixed(number.parse().ok().filter(is_bound).ok_or_else(unknown)?))
            }
        })
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Random => f.write_str("random"),
            Self::RoundRobin => f.write_str("round-robin"),
            Self::PowerOfTwo => f.write_str("power-of-two"),
            Self::JoinShortestQueue => f.write_str("jsq"),
            Self::Bounded(Bound::Auto) => f.write_str("jbsq(auto)"),
            Self::Bounded(Bound::Fixed(n)) => write!(f, "jbsq({n})"),
        }
    }
}

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let max = Bound::FIXED_MAX;
        write!(
            f,
            "policy is {:?}: write random, round-robin, power-of-two, jsq, jbsq, or jbsq(n), n from 1 to {max}",
            self.0
        )
    }
}

impl std::error::Error for UnknownPolicy {}

#[cfg(test)]
mod tests {
    //! Shows that names are read as they are written, and what is said of others.
    use super::*;

    #[test]
    fn names() {
        for name in [
            "random",
            "round-robin",
            "power-of-two",
            "jsq",
            "jbsq(auto)",
            "jbsq(1)",
            "jbsq(1024)",
            "jbsq(65536)",
        ] {
            assert_eq!(name.parse::<Policy>().unwrap().to_string(), name);
        }
        for name in ["", "jbsq(0)", "jbsq(1025)", "jbsq(65535)", "jbsq(65537)", "jbsq(x)", "JSQ"] {
            let said = name.parse::<Policy>().unwrap_err().to_string();
            assert!(said.contains("jbsq(n)"), "{said}");
        }
    }
}
