//! What is spoken inside TLS, as it is negotiated (ALPN, RFC 7301).

/// What is spoken inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Alpn {
    /// The native protocol.
    Trunkline,
    /// HTTP/2.
    H2,
}

impl Alpn {
    pub(crate) const ALL: [Self; 2] = [Self::Trunkline, Self::H2];

    /// As it is negotiated.
    pub fn name(self) -> &'static [u8] {
        match self {
            Self::Trunkline => b"trunkline",
            Self::H2 => b"h2",
        }
    }
}
