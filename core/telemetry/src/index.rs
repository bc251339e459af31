//! What a shard calls methods and other hosts.

/// A method, as this shard numbers it. Zero stands for all methods beyond the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MethodIndex(pub u32);

/// Another host, as this shard numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerIndex(pub u32);

impl MethodIndex {
    /// All methods beyond [`Telemetry::METHODS_MAX`](crate::Telemetry::METHODS_MAX).
    pub const OTHER: Self = Self(0);
}

impl PeerIndex {
    /// All peers beyond [`Telemetry::PEERS_MAX`](crate::Telemetry::PEERS_MAX).
    pub const OTHER: Self = Self(0);
    /// Both applications are on this host.
    pub const LOCAL: Self = Self(1);
}
