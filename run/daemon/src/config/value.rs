//! Values with a unit or a form of their own: sizes, permissions, addresses.

use serde::de::{Deserializer, Error, Unexpected, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;
use std::net::SocketAddrV4;
use trunkline_net::{Endpoint, Target};

/// A size in bytes, written as a number or as text: `65536`, `"64 KiB"`, `"1.5 GiB"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

/// Threads that carry calls: a number, or `"auto"`, as many as there is work for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shards {
    /// As many as there is work for, up to one for each processor this process may use, and [`Shards::MAX`].
    Auto,
    /// So many.
    Count(u16),
}

/// Permission bits of a file, written as octal text: `"0660"`.
///
/// Text only: the number 400 in a file would mean 0620 to a reader of decimals and 0400 to its writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode(pub u32);

/// Where a daemon listens: `tcp://address:port` or `unix:/path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address(pub Endpoint);

/// A UDP port of this host: `10.0.0.7:8000`; none, if empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UdpAddress(pub Option<SocketAddrV4>);

/// A Unix socket by its absolute path: `unix:/run/agent.sock`; none, if empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnixAddress(pub Option<Endpoint>);

/// Whom to call: endpoints, or a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whom(pub Target);

/// Whom a permission is given to: `"*"`, `"owner"`, `"uid:1000"` or `"gid:1000"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Principal {
    /// Everybody who may attach.
    Anyone,
    /// The user the daemon runs as.
    Owner,
    /// Processes of this user.
    User(u32),
    /// Processes whose primary group this is.
    Group(u32),
}

/// Largest first: a size is shown in the largest unit that leaves no fraction.
const UNITS: [(&str, u64); 5] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

impl Shards {
    /// More than this is no use: each looks at a queue from every other in every turn.
    pub const MAX: u16 = 32;

    /// Shards that a daemon begins with.
    pub fn least(self) -> usize {
        match self {
            Self::Auto => 1,
            Self::Count(count) => usize::from(count.clamp(1, Self::MAX)),
        }
    }

    /// Shards that a daemon has at most. Processors are those the process may run on, and no more than the time its
    /// control group has of them (`sched_getaffinity`, `cpu.max`).
    pub fn most(self) -> usize {
        match self {
            Self::Auto => {
                let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
                processors.min(Self::MAX.into())
            }
            Self::Count(_) => self.least(),
        }
    }
}

impl Principal {
    /// Whether a process is meant, by the kernel's word about it.
    pub fn covers(self, uid: u32, gid: u32) -> bool {
        match self {
            Self::Anyone => true,
            Self::Owner => uid == rustix::process::geteuid().as_raw(),
            Self::User(user) => uid == user,
            Self::Group(group) => gid == group,
        }
    }
}

impl Bytes {
    /// Reads `"64 MiB"`, `"64MiB"`, `"1.5 GiB"`, `"4096"`. `None` if it is none of these, or not a whole number of
    /// bytes.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let unit = unit.trim();
        let scale = if unit.is_empty() { 1 } else { UNITS.iter().find(|(name, _)| *name == unit)?.1 };
        scaled(number, scale).map(Self)
    }

    /// The size where the format holds 32 bits; `rules.rs` keeps larger ones out.
    pub(super) fn as_u32(self) -> u32 {
        u32::try_from(self.0).unwrap_or(u32::MAX)
    }

    pub(super) fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

/// `number`, which may have a fraction, times `scale`, if that is a whole number that fits.
fn scaled(number: &str, scale: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole = whole.parse::<u64>().ok()?.checked_mul(scale)?;
    if fraction.is_empty() {
        return (!number.ends_with('.')).then_some(whole);
    }
    let parts = 10u64.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let part = fraction.parse::<u64>().ok()?.checked_mul(scale)?;
    part.is_multiple_of(parts).then(|| whole.checked_add(part / parts))?
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, scale) = UNITS
            .into_iter()
            .find(|(_, scale)| self.0 >= *scale && self.0.is_multiple_of(*scale))
            .unwrap_or(("B", 1));
        write!(f, "{} {unit}", self.0 / scale)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anyone => f.write_str("*"),
            Self::Owner => f.write_str("owner"),
            Self::User(user) => write!(f, "uid:{user}"),
            Self::Group(group) => write!(f, "gid:{group}"),
        }
    }
}

impl Serialize for Principal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Principal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let number = |of: &str| text.strip_prefix(of).and_then(|number| number.parse().ok());
        let found = match text.as_str() {
            "*" => Some(Self::Anyone),
            "owner" => Some(Self::Owner),
            _ => number("uid:").map(Self::User).or_else(|| number("gid:").map(Self::Group)),
        };
        let expected = "\"*\", \"owner\", \"uid:1000\" or \"gid:1000\"";
        found.ok_or_else(|| D::Error::invalid_value(Unexpected::Str(&text), &expected))
    }
}

impl From<u32> for Bytes {
    fn from(bytes: u32) -> Self {
        Self(bytes.into())
    }
}

impl From<usize> for Bytes {
    fn from(bytes: usize) -> Self {
        Self(bytes as u64)
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for Mode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for UdpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |address| address.fmt(f))
    }
}

impl Serialize for UdpAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for UdpAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.is_empty() {
            return Ok(Self(None));
        }
        let address = text.strip_prefix("r2p2://").unwrap_or(&text).parse();
        let expected = "an IPv4 address and a port, such as \"10.0.0.7:8000\", or \"\" for none";
        let wrong = |_| D::Error::invalid_value(Unexpected::Str(&text), &expected);
        address.map(Some).map(Self).map_err(wrong)
    }
}

impl fmt::Display for UnixAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |endpoint| endpoint.fmt(f))
    }
}

impl Serialize for UnixAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for UnixAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.is_empty() {
            return Ok(Self(None));
        }
        match text.parse() {
            Ok(Endpoint::Unix(path)) if path.is_absolute() => Ok(Self(Some(Endpoint::Unix(path)))),
            _ => {
                let expected = "an absolute path, such as \"unix:/run/spire/agent.sock\", or \"\" for none";
                Err(D::Error::invalid_value(Unexpected::Str(&text), &expected))
            }
        }
    }
}

impl fmt::Display for Whom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for Whom {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Whom {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map(Self).map_err(D::Error::custom)
    }
}

impl Serialize for Address {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for Shards {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Count(count) => serializer.serialize_u16(*count),
        }
    }
}

impl<'de> Deserialize<'de> for Shards {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Threads;
        impl Visitor<'_> for Threads {
            type Value = Shards;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a number from 1 to {}, or \"auto\"", Shards::MAX)
            }

            fn visit_i64<E: Error>(self, value: i64) -> Result<Shards, E> {
                let count = u16::try_from(value).ok().filter(|count| (1..=Shards::MAX).contains(count));
                count.map(Shards::Count).ok_or_else(|| E::invalid_value(Unexpected::Signed(value), &self))
            }

            fn visit_str<E: Error>(self, value: &str) -> Result<Shards, E> {
                let known = (value == "auto").then_some(Shards::Auto);
                known.ok_or_else(|| E::invalid_value(Unexpected::Str(value), &self))
            }
        }
        deserializer.deserialize_any(Threads)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Size;
        impl Visitor<'_> for Size {
            type Value = Bytes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as 4096, \"64 KiB\" or \"1.5 GiB\" (units: B, KiB, MiB, GiB, TiB)")
            }

            fn visit_i64<E: Error>(self, value: i64) -> Result<Bytes, E> {
                u64::try_from(value)
                    .map(Bytes)
                    .map_err(|_| E::invalid_value(Unexpected::Signed(value), &self))
            }

            fn visit_str<E: Error>(self, value: &str) -> Result<Bytes, E> {
                Bytes::parse(value).ok_or_else(|| E::invalid_value(Unexpected::Str(value), &self))
            }
        }
        deserializer.deserialize_any(Size)
    }
}

impl<'de> Deserialize<'de> for Mode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "octal permissions as text, such as \"0660\"";
        let wrong = |text: &str| D::Error::invalid_value(Unexpected::Str(text), &expected);
        let text = String::deserialize(deserializer)?;
        let mode = u32::from_str_radix(&text, 8).map_err(|_| wrong(&text))?;
        if mode > 0o777 { Err(wrong(&text)) } else { Ok(Self(mode)) }
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map(Self).map_err(D::Error::custom)
    }
}
