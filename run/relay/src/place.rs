//! Where a relay is: `tcp+tls://HOST:PORT`, or `tcp+tls://NAME@HOST:PORT` if its certificate says a name and not the
//! host.

use std::fmt;
use std::str::FromStr;

/// A relay's address, as `TRUNKLINE_SOCKET` has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RemotePlace {
    /// A host's name or address.
    host: String,
    port: u16,
    /// What its certificate must say: a DNS name, an address, or a SPIFFE id.
    name: String,
}

/// Why a text is no such address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no address of a relay: {why}; write tcp+tls://HOST:PORT or tcp+tls://NAME@HOST:PORT")]
pub struct PlaceError {
    /// What was written.
    pub text: String,
    /// What is wrong with it.
    pub why: &'static str,
}

const SCHEME: &str = "tcp+tls://";

impl RemotePlace {
    /// Whether a text means a relay, well written or not, and not a socket's path.
    pub fn is_meant(text: &str) -> bool {
        text.starts_with(SCHEME)
    }

    /// Host and port, to be looked up.
    pub(crate) fn address(&self) -> (&str, u16) {
        (&self.host, self.port)
    }

    /// What the relay's certificate must say.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

impl FromStr for RemotePlace {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Self, PlaceError> {
        let wrong = |why| PlaceError { text: text.to_owned(), why };
        let rest = text.strip_prefix(SCHEME).ok_or_else(|| wrong("it does not begin with tcp+tls://"))?;
        // A SPIFFE id has colons and slashes, and no host has an @.
        let (name, address) = rest.rsplit_once('@').map_or((None, rest), |(name, rest)| (Some(name), rest));
        let (host, port) = address.rsplit_once(':').ok_or_else(|| wrong("there is no port"))?;
        let port = port.parse().ok().filter(|port| *port != 0).ok_or_else(|| wrong("the port is none"))?;
        let host = match host.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']').ok_or_else(|| wrong("a bracket is not closed"))?,
            None if host.contains(':') => return Err(wrong("an IPv6 address needs brackets")),
            None => host,
        };
        let name = name.unwrap_or(host);
        if host.is_empty() || name.is_empty() || host.contains('/') {
            return Err(wrong("there is no host"));
        }
        Ok(Self { host: host.to_owned(), port, name: name.to_owned() })
    }
}

impl fmt::Display for RemotePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SCHEME)?;
        if self.name != self.host {
            write!(f, "{}@", self.name)?;
        }
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    //! Lists what is an address of a relay.
    use super::*;

    #[test]
    fn addresses_of_relays() {
        for (text, host, name) in [
            ("tcp+tls://10.0.0.7:7979", "10.0.0.7", "10.0.0.7"),
            ("tcp+tls://relay.internal:1", "relay.internal", "relay.internal"),
            ("tcp+tls://relay.internal@10.0.0.7:7979", "10.0.0.7", "relay.internal"),
            ("tcp+tls://spiffe://corp/relay@10.0.0.7:7979", "10.0.0.7", "spiffe://corp/relay"),
            ("tcp+tls://[::1]:7979", "::1", "::1"),
        ] {
            let place: RemotePlace = text.parse().unwrap();
            assert_eq!((place.address().0, place.name()), (host, name), "{text}");
            assert_eq!(place.to_string(), text);
        }
        for (text, why) in [
            ("tls://10.0.0.7:1", "tcp+tls://"),
            ("tcp+tls://10.0.0.7", "no port"),
            ("tcp+tls://10.0.0.7:0", "port is none"),
            ("tcp+tls://10.0.0.7:x", "port is none"),
            ("tcp+tls://::1:7", "brackets"),
            ("tcp+tls://[::1:7", "not closed"),
            ("tcp+tls://:7", "no host"),
            ("tcp+tls://@h:7", "no host"),
        ] {
            let error = text.parse::<RemotePlace>().unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("write tcp+tls://HOST:PORT"), "{error}");
        }
    }
}
