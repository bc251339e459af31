//! Who makes a call, as the daemon that delivers it knows: metadata that it sets, and nobody else can.

use crate::{Metadata, MetadataWriter, VouchedCaller};
use std::fmt::{self, Write as _};

/// Metadata in which a daemon says who calls, to those that are told: its own services, and sessions that have asked to
/// be told. What a caller puts there is removed.
pub const CALLER_KEY: &str = "trunkline-caller";

/// Who made a call that was delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Caller {
    /// An application on this host.
    Application {
        /// The name it has given itself.
        name: String,
        /// Its process, by the kernel's word.
        pid: u32,
        /// The user it runs as, by the kernel's word.
        uid: u32,
    },
    /// An application on another host, or in another container, that a relay has attached.
    Relayed {
        /// The name it has given itself.
        name: String,
        /// Who it has proved to be, by its verified certificate.
        identity: String,
    },
    /// An application on another host, through the daemon there.
    Daemon {
        /// Where its connection comes from.
        address: String,
        /// The name that daemon has given itself; empty if none.
        node: String,
        /// Who that daemon has proved to be: the SPIFFE id, or else the first name, of its verified certificate, or its
        /// user, over a Unix socket; empty if nothing was proven.
        identity: String,
        /// What it says of the application, if it is one of the operator's hosts (`daemon.hosts`).
        vouched: Option<Box<VouchedCaller>>,
    },
    /// A gRPC client.
    Grpc {
        /// Where its connection comes from.
        address: String,
        /// The SPIFFE id, or else the first name, of the client certificate that was verified; empty without one.
        identity: String,
        /// Whether the connection is encrypted.
        encrypted: bool,
    },
    /// A client of R2P2.
    R2p2 {
        /// Where its request comes from; of a router, or of the client that a router has named.
        address: String,
    },
}

impl Caller {
    /// Takes the caller out of a delivered call's metadata; `None` if it does not say.
    pub fn take_from(metadata: &mut Metadata) -> Option<Self> {
        let value = metadata.remove(CALLER_KEY)?;
        Self::parse(std::str::from_utf8(&value).ok()?)
    }

    /// A call's encoded metadata with the caller, or without any, instead of what was said there before. Without room
    /// for it nothing is said; of what cannot be read nothing stays.
    pub fn named_in(caller: Option<&Self>, metadata: &[u8]) -> Vec<u8> {
        let text = caller.map(Self::text);
        let spare_bytes = CALLER_KEY.len() + text.as_ref().map_or(0, String::len) + 8;
        let others = MetadataWriter::behind_others(metadata, spare_bytes, |key| key == CALLER_KEY);
        let mut named = others.unwrap_or_default();
        if let Some(text) = text {
            let _ = named.insert(CALLER_KEY, text.as_bytes());
        }
        named.into_bytes()
    }

    /// The application with this label (`name[pid]`) and identity (`uid:0`, or what a relay says), as sessions have
    /// them.
    pub fn application(label: &str, identity: &str) -> Self {
        let (name, pid) =
            label.strip_suffix(']').and_then(|label| label.rsplit_once('[')).unwrap_or((label, ""));
        let uid = identity.strip_prefix("uid:");
        if uid.is_none() && !identity.is_empty() {
            return Self::Relayed { name: name.to_owned(), identity: identity.to_owned() };
        }
        let uid = uid.unwrap_or_default();
        // Nobody's number, where there is none.
        let number = |text: &str| text.parse().unwrap_or(u32::MAX);
        Self::Application { name: name.to_owned(), pid: number(pid), uid: number(uid) }
    }

    /// `kind;field;field…`, each escaped.
    fn text(&self) -> String {
        let mut text = String::new();
        let mut write = |kind: &str, fields: &[&str]| {
            text.push_str(kind);
            for field in fields {
                text.push(';');
                escape(field, &mut text);
            }
        };
        match self {
            Self::Application { name, pid, uid } => {
                write("application", &[&uid.to_string(), &pid.to_string(), name]);
            }
            Self::Relayed { name, identity } => write("relayed", &[identity, name]),
            Self::Daemon { address, node, identity, vouched: None } => {
                write("daemon", &[address, node, identity]);
            }
            Self::Daemon { address, node, identity, vouched: Some(vouched) } => {
                let mut fields: Vec<&str> = vec![address, node, identity];
                fields.extend([&*vouched.identity, &vouched.name, &vouched.program]);
                fields.extend(vouched.services.iter().map(|service| &**service));
                write("daemon", &fields);
            }
            Self::Grpc { address, identity, encrypted } => {
                write("grpc", &[address, identity, if *encrypted { "tls" } else { "" }]);
            }
            Self::R2p2 { address } => write("r2p2", &[address]),
        }
        text
    }

    fn parse(text: &str) -> Option<Self> {
        let mut fields = text.split(';').map(unescape);
        let kind = fields.next()?;
        let mut next = || fields.next();
        match kind.as_str() {
            "application" => {
                let (uid, pid) = (next()?.parse().ok()?, next()?.parse().ok()?);
                Some(Self::Application { name: next()?, pid, uid })
            }
            "daemon" => {
                let (address, node, identity) = (next()?, next()?, next()?);
                let vouched = next().and_then(|identity| {
                    let (name, program) = (next()?, next()?);
                    let services = std::iter::from_fn(&mut next).map(Into::into).collect();
                    let identity = identity.into();
                    Some(VouchedCaller { identity, name: name.into(), program: program.into(), services })
                });
                Some(Self::Daemon { address, node, identity, vouched: vouched.map(Box::new) })
            }
            "relayed" => {
                let identity = next()?;
                Some(Self::Relayed { name: next()?, identity })
            }
            "grpc" => Some(Self::Grpc { address: next()?, identity: next()?, encrypted: next()? == "tls" }),
            "r2p2" => Some(Self::R2p2 { address: next()? }),
            _ => None,
        }
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Application { name, pid, uid } => write!(f, "application {name} (pid {pid}, uid {uid})"),
            Self::Relayed { name, identity } => write!(f, "application {name} of {identity}, by a relay"),
            Self::Daemon { address, node, identity, vouched } => {
                if let Some(vouched) = vouched {
                    write!(f, "{vouched} by the word of ")?;
                }
                f.write_str("daemon")?;
                let name = if identity.is_empty() { node } else { identity };
                if !name.is_empty() {
                    write!(f, " {name}")?;
                }
                write!(f, " at {address}")
            }
            Self::Grpc { address, identity, .. } if identity.is_empty() => {
                write!(f, "gRPC client at {address}")
            }
            Self::Grpc { address, identity, .. } => write!(f, "gRPC client {identity} at {address}"),
            Self::R2p2 { address } => write!(f, "R2P2 client at {address}"),
        }
    }
}

/// What metadata and the separator do not admit, in per cent.
fn escape(text: &str, out: &mut String) {
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' && byte != b';' => out.push(char::from(byte)),
            _ => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
}

fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let digits =
            after.get(..2).filter(|_| byte == b'%').and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(escaped) => {
                bytes.push(escaped);
                rest = &after[2..];
            }
            None => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    //! Shows that callers survive metadata, whatever their names are, and that there is one of them.
    use super::*;

    fn all(name: &str) -> [Caller; 7] {
        let text = || name.to_owned();
        [
            Caller::Application { name: text(), pid: 77, uid: 1000 },
            Caller::Relayed { name: text(), identity: text() },
            Caller::Daemon { address: text(), node: text(), identity: text(), vouched: None },
            Caller::Daemon {
                address: text(),
                node: text(),
                identity: text(),
                vouched: Some(Box::new(VouchedCaller {
                    identity: name.into(),
                    name: name.into(),
                    program: name.into(),
                    services: vec![name.into(), "b.v1.B".into()],
                })),
            },
            Caller::Grpc { address: text(), identity: text(), encrypted: true },
            Caller::Grpc { address: text(), identity: String::new(), encrypted: false },
            Caller::R2p2 { address: text() },
        ]
    }

    fn named(caller: Option<&Caller>, metadata: &Metadata) -> Vec<u8> {
        let mut encoded = Vec::new();
        metadata.encode(&mut encoded);
        Caller::named_in(caller, &encoded)
    }

    #[test]
    fn a_caller_goes_into_metadata_and_comes_out() {
        for name in ["greeter", "10.0.0.7:9000", "a;b%c;%41", "größer\n", ""] {
            for caller in all(name) {
                let mut metadata = Metadata::new();
                metadata.insert(CALLER_KEY, "application;0;1;forged").unwrap();
                metadata.insert("tenant", "blue").unwrap();
                let mut metadata = Metadata::decode(&named(Some(&caller), &metadata)).unwrap();
                assert_eq!(Caller::take_from(&mut metadata), Some(caller));
                assert_eq!((metadata.len(), metadata.text("tenant")), (1, Some("blue")));
                assert_eq!(Caller::take_from(&mut metadata), None);
            }
        }
    }

    #[test]
    fn without_room_nothing_is_said() {
        let mut metadata = Metadata::new();
        metadata.insert(CALLER_KEY, "application;0;1;forged").unwrap();
        while metadata.insert("k", [b'x'; 1024]).is_ok() {}
        while metadata.insert("k", "x").is_ok() {}
        // More than what was forged has left free.
        let named = named(Some(&all(&"name".repeat(20))[0]), &metadata);
        assert_eq!(Metadata::decode(&named).unwrap().first(CALLER_KEY), None);
        assert!(named.len() > Metadata::BYTES_MAX / 2, "the rest stays");
        assert_eq!(Caller::named_in(None, &named), named);
        assert!(Caller::named_in(None, b"nonsense").is_empty());
    }

    #[test]
    fn a_session_says_who_it_is() {
        let caller = Caller::application("a[b]c[77]", "uid:1000");
        assert_eq!(caller, Caller::Application { name: "a[b]c".into(), pid: 77, uid: 1000 });
        let unknown = Caller::application("app0", "");
        assert_eq!(unknown, Caller::Application { name: "app0".into(), pid: u32::MAX, uid: u32::MAX });
        let relayed = Caller::application("till[spiffe://corp/till]", "spiffe://corp/till");
        let identity = "spiffe://corp/till".to_owned();
        assert_eq!(relayed, Caller::Relayed { name: "till".into(), identity });
    }

    #[test]
    fn nonsense_is_no_caller() {
        for text in
            ["", "application", "application;x;1;name", "king;1", "daemon;1.2.3.4", "daemon;1.2.3.4;a"]
        {
            assert_eq!(Caller::parse(text), None, "{text}");
        }
    }
}
