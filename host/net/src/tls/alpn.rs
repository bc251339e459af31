//! What is spoken inside TLS, as it is negotiated (ALPN, RFC 7301).

/// What is spoken inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Alpn {
    /// The native protocol.
    Trunkline,
    /// HTTP/2.
    H2,
    /// Sessions of applications that are elsewhere. Offered and taken by nobody but relays and their applications.
    Attach,
}

impl Alpn {
    /// What a daemon's ports take.
    pub(crate) const OF_DAEMONS: [Self; 2] = [Self::Trunkline, Self::H2];
    pub(crate) const ALL: [Self; 3] = [Self::Trunkline, Self::H2, Self::Attach];

    /// As it is negotiated.
    pub fn name(self) -> &'static [u8] {
        match self {
            Self::Trunkline => b"trunkline",
            Self::H2 => b"h2",
            Self::Attach => b"trunkline-attach",
        }
    }
}
