//! Where something listens, as users write it.

use crate::tls::is_spiffe_id;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use thiserror::Error;

/// An address a stream can be opened to, or datagrams sent to.
///
/// Written `tcp://127.0.0.1:7878`, `tcp://[::1]:7878`, `tcp://localhost:7878`, `unix:run/greeter.sock` (relative),
/// `unix:///run/greeter.sock`, or `unix-abstract:greeter`.
/// With TLS, `tls://10.0.0.7:7878`, or `tls://search.internal@10.0.0.7:7878` if the server's
/// certificate says a name and not the address; the name may be a SPIFFE id, as in
/// `tls://spiffe://corp.example/search@10.0.0.7:7878`. Over R2P2 (docs/r2p2.md), `r2p2://10.0.0.7:8000`: IPv4 only.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// TCP.
    Tcp(SocketAddr),
    /// TLS over TCP: what the certificate must say, if that is not the address.
    Tls(SocketAddr, Option<String>),
    /// R2P2 over UDP.
    R2p2(SocketAddrV4),
    /// A Unix stream socket.
    Unix(PathBuf),
    /// A Unix stream socket without a file: a name in the network namespace (unix(7), "abstract").
    Abstract(String),
}

/// Why a text is not an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EndpointError {
    /// No scheme, or one that is not known here.
    #[error(
        "{text:?} is not an endpoint: write tcp://ADDRESS:PORT, tls://ADDRESS:PORT, r2p2://ADDRESS:PORT or unix:PATH"
    )]
    Scheme {
        /// What was written.
        text: String,
    },
    /// The name before the `@` is none.
    #[error(
        "{name:?} is not a server name: write tls://NAME@ADDRESS:PORT with a DNS name or a SPIFFE id, \
         or tls://ADDRESS:PORT"
    )]
    ServerName {
        /// What was written.
        name: String,
    },
    /// The port is missing or not a number up to 65535.
    #[error("{text:?} has no port from 0 to 65535: write tcp://ADDRESS:PORT")]
    Port {
        /// What was written.
        text: String,
    },
    /// The host is a name. Names are looked up by the control plane, not here.
    #[error("{host:?} is a name, not an IP address: resolve it first (only localhost is known here)")]
    Name {
        /// The name.
        host: String,
        /// The port beside it.
        port: u16,
    },
    /// An IPv6 address without brackets.
    #[error("{text:?}: put an IPv6 address in brackets, as in tcp://[::1]:7878")]
    Brackets {
        /// What was written.
        text: String,
    },
    /// R2P2's FEEDBACK has room for nothing else.
    #[error("{text:?}: R2P2 is spoken over IPv4 only: write r2p2://10.0.0.7:8000")]
    V4 {
        /// What was written.
        text: String,
    },
    /// The path is empty, has a NUL, or is too long for a socket address.
    #[error("unix socket path {path:?} must have 1 to {limit} bytes and no NUL")]
    Path {
        /// The path.
        path: PathBuf,
        /// Longest a socket address holds.
        limit: usize,
    },
}

impl Endpoint {
    /// Longest path of a Unix socket: 108 bytes with the NUL (unix(7)).
    pub const PATH_BYTES_MAX: usize = 107;

    /// An endpoint at a path.
    ///
    /// # Errors
    /// [`EndpointError::Path`] if no socket address can hold it.
    pub fn unix(path: impl Into<PathBuf>) -> Result<Self, EndpointError> {
        let path = path.into();
        let bytes = path.as_os_str().as_encoded_bytes();
        if bytes.is_empty() || bytes.len() > Self::PATH_BYTES_MAX || bytes.contains(&0) {
            return Err(EndpointError::Path { path, limit: Self::PATH_BYTES_MAX });
        }
        Ok(Self::Unix(path))
    }

    /// What a server's certificate must say: a name, a SPIFFE id or an address. `None` where no TLS is spoken.
    pub fn server_name(&self) -> Option<String> {
        match self {
            Self::Tls(address, name) => Some(name.clone().unwrap_or_else(|| address.ip().to_string())),
            Self::Tcp(_) | Self::R2p2(_) | Self::Unix(_) | Self::Abstract(_) => None,
        }
    }

    /// Whether others than this host's programs can reach it.
    pub fn is_beyond_host(&self) -> bool {
        match self {
            Self::Tcp(address) | Self::Tls(address, _) => !address.ip().to_canonical().is_loopback(),
            Self::R2p2(address) => !address.ip().is_loopback(),
            Self::Unix(_) | Self::Abstract(_) => false,
        }
    }

    /// The path of a Unix endpoint.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Tcp(_) | Self::Tls(..) | Self::R2p2(_) | Self::Abstract(_) => None,
            Self::Unix(path) => Some(path),
        }
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(rest) = text.strip_prefix("tcp://") {
            return address(text, rest).map(Self::Tcp);
        }
        if let Some(rest) = text.strip_prefix("r2p2://") {
            return match address(text, rest)? {
                SocketAddr::V4(address) => Ok(Self::R2p2(address)),
                SocketAddr::V6(_) => Err(EndpointError::V4 { text: text.to_owned() }),
            };
        }
        if let Some(rest) = text.strip_prefix("tls://") {
            return tls(text, rest);
        }
        if let Some(name) = text.strip_prefix("unix-abstract:") {
            // The same limits: a name takes the place of a path, behind one NUL.
            return Self::unix(name).map(|_| Self::Abstract(name.to_owned()));
        }
        match text.strip_prefix("unix:") {
            Some(rest) => Self::unix(rest.strip_prefix("//").unwrap_or(rest)),
            None => Err(EndpointError::Scheme { text: text.to_owned() }),
        }
    }
}

impl From<SocketAddr> for Endpoint {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "tcp://{address}"),
            Self::Tls(address, None) => write!(f, "tls://{address}"),
            Self::Tls(address, Some(name)) => write!(f, "tls://{name}@{address}"),
            Self::R2p2(address) => write!(f, "r2p2://{address}"),
            Self::Unix(path) if path.is_absolute() => write!(f, "unix://{}", path.display()),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Abstract(name) => write!(f, "unix-abstract:{name}"),
        }
    }
}

fn tls(text: &str, rest: &str) -> Result<Endpoint, EndpointError> {
    let Some((name, rest)) = rest.split_once('@') else {
        return Ok(Endpoint::Tls(address(text, rest)?, None));
    };
    if is_spiffe_id(name) || rustls::pki_types::DnsName::try_from(name).is_ok() {
        return Ok(Endpoint::Tls(address(text, rest)?, Some(name.to_owned())));
    }
    Err(EndpointError::ServerName { name: name.to_owned() })
}

fn address(text: &str, rest: &str) -> Result<SocketAddr, EndpointError> {
    let no_port = || EndpointError::Port { text: text.to_owned() };
    let (host, port) = rest.rsplit_once(':').ok_or_else(no_port)?;
    if host.contains(':') && !host.starts_with('[') {
        return Err(EndpointError::Brackets { text: text.to_owned() });
    }
    let port: u16 = port.parse().map_err(|_| no_port())?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if bare == "localhost" {
        return Ok(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port));
    }
    match bare.parse::<IpAddr>() {
        Ok(address) => Ok(SocketAddr::new(address, port)),
        Err(_) => Err(EndpointError::Name { host: bare.to_owned(), port }),
    }
}

#[cfg(test)]
mod tests {
    //! Lists what can be written, what it means, and what the user is told otherwise.
    use super::*;

    #[test]
    fn what_can_be_written() {
        for (text, shown) in [
            ("tcp://127.0.0.1:80", "tcp://127.0.0.1:80"),
            ("tcp://localhost:7878", "tcp://127.0.0.1:7878"),
            ("tcp://[::1]:0", "tcp://[::1]:0"),
            ("unix:/run/a.sock", "unix:///run/a.sock"),
            ("unix:///run/a.sock", "unix:///run/a.sock"),
            ("unix:a.sock", "unix:a.sock"),
            ("unix-abstract:a", "unix-abstract:a"),
            ("tls://localhost:443", "tls://127.0.0.1:443"),
            ("tls://search.internal@[::1]:443", "tls://search.internal@[::1]:443"),
            ("tls://spiffe://corp/a@[::1]:443", "tls://spiffe://corp/a@[::1]:443"),
        ] {
            let endpoint: Endpoint = text.parse().unwrap();
            assert_eq!(endpoint.to_string(), shown);
            assert_eq!(shown.parse::<Endpoint>(), Ok(endpoint));
        }
    }

    #[test]
    fn what_the_user_is_told() {
        let long = format!("unix:/{}", "x".repeat(107));
        for (text, told) in [
            ("10.0.0.1:80", "write tcp://ADDRESS:PORT, tls://ADDRESS:PORT, r2p2://ADDRESS:PORT or unix:PATH"),
            ("tls://a b@10.0.0.1:80", "\"a b\" is not a server name"),
            ("tls://name@other:80", "\"other\" is a name"),
            ("tls://spiffe://corp@10.0.0.1:80", "\"spiffe://corp\" is not a server name"),
            ("http://10.0.0.1:80", "is not an endpoint"),
            ("tcp://10.0.0.1", "has no port"),
            ("tcp://10.0.0.1:65536", "has no port from 0 to 65535"),
            ("tcp://::1:80", "in brackets"),
            ("tcp://db.example:80", "\"db.example\" is a name"),
            ("unix:", "must have 1 to 107 bytes"),
            (&long, "must have 1 to 107 bytes"),
            ("unix:a\0b", "no NUL"),
        ] {
            let error = text.parse::<Endpoint>().unwrap_err().to_string();
            assert!(error.contains(told), "{text}: {error}");
        }
    }
}
