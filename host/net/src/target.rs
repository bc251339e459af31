//! What users write to say whom they call: an endpoint, several, or a name to be looked up.
//!
//! The syntax is gRPC's (the project's naming.md) beside our own `tcp://`. Nothing is looked up here: that may take
//! seconds, and is the control plane's to do.

use crate::{Endpoint, EndpointError};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use thiserror::Error;

/// Whom to call.
///
/// | written | means |
/// |---|---|
/// | `tcp://10.0.0.7:80`, `tcp://[::1]:80`, `unix:a.sock`, `unix:///run/a.sock`, `unix-abstract:a` | that endpoint |
/// | `tls://10.0.0.7:443`, `tls://search.internal@10.0.0.7:443` | that endpoint, with TLS |
/// | `r2p2://10.0.0.7:8000` | that endpoint, by datagrams |
/// | `ipv4:10.0.0.7:80,10.0.0.8:80`, `ipv6:[::1]:80,[::2]:80` | those endpoints; port 443 if none is written |
/// | `dns:///db.example:80`, `dns:db.example:80`, `tcp://db.example:80`, `db.example:80` | the addresses of that name |
/// | `10.0.0.7:80`, `[::1]:80` | that endpoint |
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// These: at least one.
    Endpoints(Vec<Endpoint>),
    /// Whatever the name stands for at the time.
    Name(Name),
}

/// A name to be looked up, and the port to go to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Name {
    /// A host's name: letters, digits, `-`, `_` and dots.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// Why a text is not a target.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TargetError {
    /// As an endpoint.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// A scheme of gRPC's, or nobody's, that is not offered.
    #[error(
        "{text:?}: scheme {scheme:?} is not offered; write dns:///HOST:PORT, tcp://HOST:PORT or unix:PATH"
    )]
    Scheme {
        /// What was written.
        text: String,
        /// The scheme.
        scheme: String,
    },
    /// A DNS server of its own.
    #[error(
        "{text:?} names a DNS server: this host's own is asked; write dns:///HOST:PORT, with three slashes"
    )]
    Authority {
        /// What was written.
        text: String,
    },
    /// Not the name of a host.
    #[error(
        "{host:?} is not the name of a host: 1 to 253 letters, digits, - and _, in parts of up to 63 between dots"
    )]
    Host {
        /// What was written for it.
        host: String,
    },
    /// Not an address of that kind.
    #[error("{address:?} is not an {kind} address: write {example}")]
    Address {
        /// What was written for it.
        address: String,
        /// `IPv4` or `IPv6`.
        kind: &'static str,
        /// One that is.
        example: &'static str,
    },
    /// The port is missing or no port.
    #[error("{text:?} has no port from 0 to 65535: write HOST:PORT")]
    Port {
        /// What was written.
        text: String,
    },
    /// More addresses than a list may have.
    #[error("{count} addresses are more than the {limit} a target may list: use a name")]
    TooMany {
        /// How many are written.
        count: usize,
        /// How many there may be.
        limit: usize,
    },
}

/// What gRPC takes for a port where none is written (naming.md).
const DEFAULT_PORT: u16 = 443;

/// Schemes gRPC libraries know and we do not offer: refused by name, not looked up as one.
const NOT_OFFERED: [&str; 6] = ["google-c2p", "http", "https", "passthrough", "vsock", "xds"];

impl Target {
    /// Addresses in one list.
    pub const ADDRESSES_MAX: usize = 256;
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (scheme, rest) = text.split_once(':').unwrap_or(("", text));
        match scheme {
            "tcp" if rest.starts_with("//") => of_tcp(text),
            "unix" | "unix-abstract" | "tls" | "r2p2" => Ok(Self::Endpoints(vec![text.parse()?])),
            "dns" => of_dns(text, rest),
            "ipv4" => of_list(rest, |text| address(text, "IPv4", "10.0.0.7:80", ipv4)),
            "ipv6" => of_list(rest, |text| address(text, "IPv6", "[2001:db8::7]:80", ipv6)),
            _ if NOT_OFFERED.contains(&scheme) || rest.starts_with("//") => {
                Err(TargetError::Scheme { text: text.to_owned(), scheme: scheme.to_owned() })
            }
            _ => of_host_and_port(text, None),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let endpoints = match self {
            Self::Name(name) => return name.fmt(f),
            Self::Endpoints(endpoints) => endpoints,
        };
        if let [only] = &endpoints[..] {
            return only.fmt(f);
        }
        let addresses = endpoints.iter().filter_map(|endpoint| match endpoint {
            Endpoint::Tcp(address) => Some(address),
            Endpoint::Tls(..) | Endpoint::R2p2(_) | Endpoint::Unix(_) | Endpoint::Abstract(_) => None,
        });
        for (index, address) in addresses.enumerate() {
            let scheme = if address.is_ipv4() { "ipv4:" } else { "ipv6:" };
            write!(f, "{}{address}", if index == 0 { scheme } else { "," })?;
        }
        Ok(())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "dns:///{}:{}", self.host, self.port)
    }
}

/// Our own syntax, in which a name may stand, too.
fn of_tcp(text: &str) -> Result<Target, TargetError> {
    match text.parse() {
        Ok(endpoint) => Ok(Target::Endpoints(vec![endpoint])),
        Err(EndpointError::Name { host, port }) => named(host, port),
        Err(error) => Err(error.into()),
    }
}

fn of_dns(text: &str, rest: &str) -> Result<Target, TargetError> {
    let name = match rest.strip_prefix("//") {
        None => rest.strip_prefix('/').unwrap_or(rest),
        Some(rest) => match rest.split_once('/') {
            Some(("", name)) => name,
            Some(_) | None => return Err(TargetError::Authority { text: text.to_owned() }),
        },
    };
    of_host_and_port(name, Some(DEFAULT_PORT))
}

/// `HOST:PORT`, where the host may be an address.
fn of_host_and_port(text: &str, default_port: Option<u16>) -> Result<Target, TargetError> {
    let (host, port) = split_port(text, default_port)?;
    match host.parse::<IpAddr>() {
        Ok(address) => Ok(Target::Endpoints(vec![SocketAddr::new(address, port).into()])),
        Err(_) => named(host.to_owned(), port),
    }
}

fn named(host: String, port: u16) -> Result<Target, TargetError> {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    // A dot at the end says that the name is whole.
    let labels = host.strip_suffix('.').unwrap_or(&host);
    if host.len() > 253 || !labels.split('.').all(label) {
        return Err(TargetError::Host { host });
    }
    if host == "localhost" {
        return Ok(Target::Endpoints(vec![SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port).into()]));
    }
    Ok(Target::Name(Name { host: host.to_ascii_lowercase(), port }))
}

fn of_list(
    rest: &str,
    address: impl Fn(&str) -> Result<SocketAddr, TargetError>,
) -> Result<Target, TargetError> {
    let count = rest.split(',').count();
    if count > Target::ADDRESSES_MAX {
        return Err(TargetError::TooMany { count, limit: Target::ADDRESSES_MAX });
    }
    let endpoints: Result<Vec<Endpoint>, _> =
        rest.split(',').map(|text| address(text).map(Endpoint::Tcp)).collect();
    endpoints.map(Target::Endpoints)
}

fn address(
    text: &str,
    kind: &'static str,
    example: &'static str,
    read: fn(&str) -> Option<IpAddr>,
) -> Result<SocketAddr, TargetError> {
    let (host, port) = split_port(text, Some(DEFAULT_PORT))?;
    match read(host) {
        Some(address) => Ok(SocketAddr::new(address, port)),
        None => Err(TargetError::Address { address: text.to_owned(), kind, example }),
    }
}

fn ipv4(text: &str) -> Option<IpAddr> {
    text.parse::<Ipv4Addr>().ok().map(IpAddr::V4)
}

fn ipv6(text: &str) -> Option<IpAddr> {
    text.parse::<Ipv6Addr>().ok().map(IpAddr::V6)
}

/// Takes the port off, and the brackets. An IPv6 address without brackets has no port, only colons.
fn split_port(text: &str, default: Option<u16>) -> Result<(&str, u16), TargetError> {
    let wrong = || TargetError::Port { text: text.to_owned() };
    let (host, port) = match text.strip_prefix('[').map(|rest| rest.split_once(']').ok_or_else(wrong)) {
        Some(split) => match split? {
            (host, "") => (host, None),
            (host, rest) => (host, Some(rest.strip_prefix(':').ok_or_else(wrong)?)),
        },
        None if text.matches(':').count() > 1 => (text, None),
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let digits = |port: &&str| port.bytes().all(|byte| byte.is_ascii_digit());
    match (port, default) {
        (Some(port), _) => {
            Ok((host, Some(port).filter(digits).and_then(|port| port.parse().ok()).ok_or_else(wrong)?))
        }
        (None, Some(port)) => Ok((host, port)),
        (None, None) => Err(wrong()),
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
            ("tcp://db.example:80", "dns:///db.example:80"),
            ("10.0.0.7:80", "tcp://10.0.0.7:80"),
            ("[::1]:80", "tcp://[::1]:80"),
            ("localhost:80", "tcp://127.0.0.1:80"),
            ("db:80", "dns:///db:80"),
            ("DB.example.:80", "dns:///db.example.:80"),
            ("dns:db.example", "dns:///db.example:443"),
            ("dns:/db.example:1", "dns:///db.example:1"),
            ("dns:///db.example:80", "dns:///db.example:80"),
            ("dns:///10.0.0.7:80", "tcp://10.0.0.7:80"),
            ("dns:///[::1]:80", "tcp://[::1]:80"),
            ("ipv4:10.0.0.7", "tcp://10.0.0.7:443"),
            ("ipv4:10.0.0.7:80,10.0.0.8", "ipv4:10.0.0.7:80,10.0.0.8:443"),
            ("ipv6:[::1]:80,::2", "ipv6:[::1]:80,[::2]:443"),
            ("unix:a.sock", "unix:a.sock"),
            ("unix:///run/a.sock", "unix:///run/a.sock"),
            ("unix-abstract:a/b", "unix-abstract:a/b"),
        ] {
            let target: Target = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(target.to_string(), shown);
            assert_eq!(shown.parse::<Target>(), Ok(target));
        }
    }

    #[test]
    fn what_the_user_is_told() {
        let (many, long) =
            (format!("ipv4:{}10.0.0.7", "10.0.0.7,".repeat(256)), format!("{}:1", "x".repeat(64)));
        for (text, told) in [
            ("", "has no port"),
            ("db.example", "has no port"),
            ("db.example:", "has no port"),
            ("db.example:http", "has no port"),
            ("db.example:65536", "has no port"),
            ("db.example:+1", "has no port"),
            ("dns://8.8.8.8/db.example:80", "with three slashes"),
            ("dns://db.example:80", "with three slashes"),
            ("dns:///", "is not the name of a host"),
            ("a b:80", "is not the name of a host"),
            ("a..b:80", "is not the name of a host"),
            (&long, "is not the name of a host"),
            ("https://db.example:443", "scheme \"https\" is not offered"),
            ("xds:///db", "scheme \"xds\" is not offered"),
            ("nats://db:1", "scheme \"nats\" is not offered"),
            ("ipv4:[::1]:80", "is not an IPv4 address"),
            ("ipv4:10.0.0.7:80,", "is not an IPv4 address"),
            ("ipv6:10.0.0.7:80", "is not an IPv6 address"),
            ("[::1", "has no port"),
            ("[::1]80", "has no port"),
            (&many, "257 addresses are more than the 256"),
            ("unix:", "must have 1 to 107 bytes"),
            ("unix-abstract:", "must have 1 to 107 bytes"),
        ] {
            let error = text.parse::<Target>().unwrap_err().to_string();
            assert!(error.contains(told), "{text}: {error}");
        }
    }
}
