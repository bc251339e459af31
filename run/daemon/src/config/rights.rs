//! What applications may do by configuration: the addresses they may name, the services they may serve and call.

use super::Principal;
use serde::de::{Deserializer, Error, Unexpected};
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::str::FromStr;
use trunkline_net::{Endpoint, Name, Target};

/// `[egress]`: the targets applications may name.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Egress {
    /// Whose applications may name any target: those who could connect with the daemon's rights anyway.
    pub unrestricted: Vec<Principal>,
    /// Targets everybody's applications may name.
    pub allow: Vec<Reach>,
}

/// `[[serve]]` and `[[call]]`: who may serve, or call, a service. The first rule that names a service decides.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceRule {
    /// `search.v1.Search`, `search.v1.*` or `*`.
    pub service: String,
    /// Who may, of this host. Empty: nobody.
    pub who: Vec<Principal>,
    /// Who may, of those that prove who they are by a certificate, by identity, whole or up to a `*`. `[[call]]`: of
    /// those that come over the network, and of applications that a relay has attached; without it the rule says
    /// nothing about them. `[[serve]]`: of the latter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peers: Option<Vec<String>>,
    /// `[[call]]`: what the certificate of the server that a target names must say, where an application names one:
    /// SPIFFE ids or names. Targets without TLS, and whatever goes by another name, are refused. Empty: not asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub server_identity: Vec<String>,
}

/// Targets that may be named: `10.0.0.0/8:8000-8999`, `[2001:db8::]/32:443`, `db.example:80`, `*.example`,
/// `unix:/run/a.sock`; without ports all of them. `*` is every address and every name, and no Unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Addresses whose first bits are these.
    Network {
        /// The network's address.
        address: IpAddr,
        /// Bits of it that count.
        bits: u8,
        /// Ports.
        ports: RangeInclusive<u16>,
    },
    /// Names, whatever they stand for: `db.example`, `*.example`, or `*`.
    Named {
        /// In lower case.
        pattern: String,
        /// Ports.
        ports: RangeInclusive<u16>,
    },
    /// One Unix socket.
    Socket(Endpoint),
}

const ANY_PORT: RangeInclusive<u16> = 0..=u16::MAX;

impl Egress {
    /// Whether an application of this user may name a target.
    ///
    /// # Errors
    /// Why not, and which key says so.
    pub(crate) fn permit(&self, target: &Target, uid: u32, gid: u32) -> Result<(), String> {
        if self.unrestricted.iter().any(|principal| principal.covers(uid, gid)) {
            return Ok(());
        }
        self.permit_all(target, &format!("applications of uid {uid}"))
    }

    /// Whether everybody's applications may name a target; `whose` it is for that asks.
    ///
    /// # Errors
    /// As [`Egress::permit`].
    pub(crate) fn permit_all(&self, target: &Target, whose: &str) -> Result<(), String> {
        let entry = match target {
            Target::Name(name) if !self.allow.iter().any(|reach| reach.covers_name(name)) => {
                format!("{}:{}", name.host, name.port)
            }
            Target::Name(_) => return Ok(()),
            Target::Endpoints(all) => {
                let uncovered = |endpoint: &&Endpoint| !self.allow.iter().any(|reach| reach.covers(endpoint));
                let Some(endpoint) = all.iter().find(uncovered) else { return Ok(()) };
                address_of(endpoint).map_or_else(|| endpoint.to_string(), |address| address.to_string())
            }
        };
        Err(format!(
            "target {target} is not for {whose}: the daemon would connect with its own rights, and \
             egress.allow in its configuration does not have {entry:?}; call the service without a target, or have \
             the target allowed"
        ))
    }
}

impl Default for Egress {
    fn default() -> Self {
        Self { unrestricted: vec![Principal::User(0), Principal::Owner], allow: Vec::new() }
    }
}

impl ServiceRule {
    /// The rule that decides about a service, by its full name.
    pub(crate) fn of<'a>(rules: &'a [Self], service: &str) -> Option<&'a Self> {
        rules.iter().find(|rule| rule.names(service))
    }

    /// Whether this user is among those who may.
    pub(crate) fn covers(&self, uid: u32, gid: u32) -> bool {
        self.who.iter().any(|principal| principal.covers(uid, gid))
    }

    /// Whether one that has proved to be this is among those who may.
    pub(crate) fn covers_identity(&self, identity: &str) -> bool {
        let fits = |pattern: &String| match pattern.strip_suffix('*') {
            Some(prefix) => identity.starts_with(prefix),
            None => pattern == identity,
        };
        self.peers.iter().flatten().any(fits)
    }

    /// The rule that decides about a service for those that prove who they are: the first that says anything of them.
    pub(crate) fn of_peers<'a>(rules: &'a [Self], service: &str) -> Option<&'a Self> {
        rules.iter().find(|rule| rule.peers.is_some() && rule.names(service))
    }

    /// Whether every server of a target must prove to be one of those the rule names.
    ///
    /// # Errors
    /// Which one need not, and what to write.
    pub(crate) fn permits_servers(&self, target: &Target) -> Result<(), String> {
        if self.server_identity.is_empty() {
            return Ok(());
        }
        let proves = |endpoint: &Endpoint| {
            endpoint.server_name().is_some_and(|name| self.server_identity.contains(&name))
        };
        let unproven = match target {
            Target::Name(name) => format!("{}:{}", name.host, name.port),
            Target::Endpoints(all) => match all.iter().find(|endpoint| !proves(endpoint)) {
                Some(endpoint) => endpoint.to_string(),
                None => return Ok(()),
            },
        };
        Err(format!(
            "target {unproven} does not say which server it is: server_identity of [[call]] for {:?} in the daemon's \
             configuration wants one of {}; write tls://IDENTITY@ADDRESS:PORT",
            self.service,
            self.server_identity.join(", ")
        ))
    }

    /// Whether a rule before this one decides wherever this one would: about users of this host, and about those that
    /// prove who they are if this one says anything of them.
    pub(super) fn is_hidden_by(&self, before: &Self) -> bool {
        // A pattern that this one is part of names its beginning, too.
        before.names(&self.service) && (self.peers.is_none() || before.peers.is_some())
    }

    fn names(&self, service: &str) -> bool {
        match self.service.strip_suffix('*') {
            Some(prefix) => service.starts_with(prefix),
            None => self.service == service,
        }
    }

    /// Whether the pattern is one: a full name, or its beginning up to a dot and a star.
    pub(super) fn is_well_formed(&self) -> bool {
        let name = match self.service.strip_suffix('*') {
            Some("") => return true,
            Some(prefix) => prefix.strip_suffix('.'),
            None => Some(self.service.as_str()),
        };
        name.is_some_and(is_full_name)
    }
}

impl Reach {
    fn covers(&self, endpoint: &Endpoint) -> bool {
        match (self, address_of(endpoint)) {
            (Self::Socket(socket), _) => socket == endpoint,
            (Self::Network { address, bits, ports }, Some(place)) => {
                ports.contains(&place.port()) && is_within(place.ip().to_canonical(), *address, *bits)
            }
            (Self::Named { pattern, ports }, Some(place)) => pattern == "*" && ports.contains(&place.port()),
            (Self::Network { .. } | Self::Named { .. }, None) => false,
        }
    }

    fn covers_name(&self, name: &Name) -> bool {
        let Self::Named { pattern, ports } = self else { return false };
        let host = name.host.trim_end_matches('.').to_ascii_lowercase();
        let is_meant = match pattern.strip_prefix('*') {
            Some(suffix) => host.ends_with(suffix),
            None => host == *pattern,
        };
        is_meant && ports.contains(&name.port)
    }
}

/// The address an endpoint is at, unless it is a Unix socket.
fn address_of(endpoint: &Endpoint) -> Option<SocketAddr> {
    match endpoint {
        Endpoint::Tcp(address) | Endpoint::Tls(address, _) => Some(*address),
        Endpoint::R2p2(address) => Some((*address).into()),
        Endpoint::Unix(_) | Endpoint::Abstract(_) => None,
    }
}

fn is_within(address: IpAddr, network: IpAddr, bits: u8) -> bool {
    let differing = match (address, network) {
        (IpAddr::V4(address), IpAddr::V4(network)) => (address.to_bits() ^ network.to_bits()).leading_zeros(),
        (IpAddr::V6(address), IpAddr::V6(network)) => (address.to_bits() ^ network.to_bits()).leading_zeros(),
        _ => return false,
    };
    differing >= bits.into()
}

impl FromStr for Reach {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if text.starts_with("unix") && text.contains(':') {
            let endpoint: Endpoint = text.parse().map_err(drop)?;
            let is_certain = endpoint.path().is_none_or(|path| path.is_absolute());
            return if is_certain { Ok(Self::Socket(endpoint)) } else { Err(()) };
        }
        let (host, mask, rest) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) = rest.split_once(']').ok_or(())?;
                let _: Ipv6Addr = host.parse().map_err(drop)?;
                let (mask, ports) = split(rest, ':');
                (host, mask, ports)
            }
            None => {
                let (place, ports) = split(text, ':');
                let (host, _) = split(place, '/');
                (host, &place[host.len()..], ports)
            }
        };
        let ports = ports(rest)?;
        if let Ok(address) = host.parse::<IpAddr>() {
            let most = if address.is_ipv4() { 32 } else { 128 };
            let bits = match mask {
                "" => most,
                _ => mask.strip_prefix('/').and_then(|bits| bits.parse().ok()).ok_or(())?,
            };
            return if bits <= most { Ok(Self::Network { address, bits, ports }) } else { Err(()) };
        }
        let labels = host.strip_prefix("*.").unwrap_or(host);
        let is_label = |label: &str| {
            !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        };
        let is_address = labels.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        if mask.is_empty() && (host == "*" || !is_address && labels.split('.').all(is_label)) {
            return Ok(Self::Named { pattern: host.to_ascii_lowercase(), ports });
        }
        Err(())
    }
}

/// What is before the first `at`, and what is behind it, with it.
fn split(text: &str, at: char) -> (&str, &str) {
    text.split_at(text.find(at).unwrap_or(text.len()))
}

/// `:443`, `:8000-8999`, or nothing for all.
fn ports(text: &str) -> Result<RangeInclusive<u16>, ()> {
    if text.is_empty() {
        return Ok(ANY_PORT);
    }
    let text = text.strip_prefix(':').ok_or(())?;
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let number = |text: &str| text.parse::<u16>().map_err(drop);
    let ports = number(first)?..=number(last)?;
    if ports.is_empty() { Err(()) } else { Ok(ports) }
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ports = match self {
            Self::Network { address, bits, ports } => {
                let most = if address.is_ipv4() { 32 } else { 128 };
                match address {
                    IpAddr::V4(address) => write!(f, "{address}")?,
                    IpAddr::V6(address) => write!(f, "[{address}]")?,
                }
                if *bits < most {
                    write!(f, "/{bits}")?;
                }
                ports
            }
            Self::Named { pattern, ports } => {
                f.write_str(pattern)?;
                ports
            }
            Self::Socket(endpoint) => return endpoint.fmt(f),
        };
        match (ports.start(), ports.end()) {
            (0, &u16::MAX) => Ok(()),
            (first, last) if first == last => write!(f, ":{first}"),
            (first, last) => write!(f, ":{first}-{last}"),
        }
    }
}

impl Serialize for Reach {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Reach {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let expected = "an address, network or name with ports or without, such as \"10.0.0.0/8:8000-8999\", \
                        \"[2001:db8::]/32\", \"db.example:80\", \"*.example\", or \"unix:/run/a.sock\"";
        text.parse().map_err(|()| D::Error::invalid_value(Unexpected::Str(&text), &expected))
    }
}

/// Whether a text can be the full name of a service.
pub(super) fn is_full_name(text: &str) -> bool {
    text.split('.').all(|part| {
        part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    })
}

#[cfg(test)]
mod tests {
    //! Shows which targets an entry covers, how entries are written, and which rule decides about a service.
    use super::*;
    use proptest::prelude::*;

    fn covers(entry: &str, target: &str) -> bool {
        let allow = vec![entry.parse().unwrap_or_else(|()| panic!("{entry} is an entry"))];
        let egress = Egress { unrestricted: Vec::new(), allow };
        egress.permit(&target.parse().unwrap(), 1000, 1000).is_ok()
    }

    #[test]
    fn an_entry_covers_what_it_says_and_nothing_else() {
        let table = [
            ("10.0.0.0/8", "tcp://10.255.0.7:80", true),
            ("10.0.0.0/8", "tcp://11.0.0.7:80", false),
            ("10.0.0.0/8", "tls://a.example@10.0.0.7:443", true),
            ("10.0.0.0/8", "r2p2://10.0.0.7:8000", true),
            ("10.0.0.0/8", "tcp://[::ffff:10.0.0.7]:80", true),
            ("10.0.0.0/8", "ipv4:10.0.0.7:80,11.0.0.7:80", false),
            ("10.0.0.0/8", "db.example:80", false),
            ("10.0.0.0/8", "unix:/run/a.sock", false),
            ("10.0.0.7:80", "10.0.0.7:80", true),
            ("10.0.0.7:80", "10.0.0.7:81", false),
            ("10.0.0.7:80-90", "10.0.0.7:90", true),
            ("10.0.0.7:80-90", "10.0.0.7:91", false),
            ("0.0.0.0/0", "tcp://1.2.3.4:5", true),
            ("0.0.0.0/0", "tcp://[2001:db8::1]:5", false),
            ("[::]/0", "tcp://[2001:db8::1]:5", true),
            ("[::]/0", "tcp://[::ffff:10.0.0.7]:80", false),
            ("[2001:db8::]/32:443", "tcp://[2001:db8:1::]:443", true),
            ("[2001:db8::]/32:443", "tcp://[2001:db9::]:443", false),
            ("[::1]", "tcp://[::1]:9", true),
            ("db.example:80", "dns:///DB.example:80", true),
            ("db.example:80", "dns:///xdb.example:80", false),
            ("*.example", "dns:///a.b.example:80", true),
            ("*.example", "dns:///example:80", false),
            ("*.example", "tcp://10.0.0.7:80", false),
            ("*:443", "tcp://10.0.0.7:443", true),
            ("*:443", "dns:///db.example:443", true),
            ("*:443", "dns:///db.example:80", false),
            ("*", "unix:/run/a.sock", false),
            ("*", "unix-abstract:a", false),
            ("unix:/run/a.sock", "unix:///run/a.sock", true),
            ("unix:/run/a.sock", "unix:/run/b.sock", false),
            ("unix:/run/a.sock", "unix:/run/x/../a.sock", false),
            ("unix-abstract:a", "unix-abstract:a", true),
        ];
        for (entry, target, expected) in table {
            assert_eq!(covers(entry, target), expected, "{entry} covers {target}");
        }
    }

    #[test]
    fn who_is_unrestricted_may_name_anything() {
        let egress = Egress { unrestricted: vec![Principal::User(7)], allow: Vec::new() };
        for target in ["unix:/run/a.sock", "tcp://10.0.0.7:80", "dns:///db.example:80"] {
            let target: Target = target.parse().unwrap();
            assert_eq!(egress.permit(&target, 7, 7), Ok(()));
            let why = egress.permit(&target, 8, 7).unwrap_err();
            assert!(why.contains(&target.to_string()) && why.contains("uid 8"), "{why}");
            assert!(why.contains("egress.allow"), "{why}");
        }
    }

    #[test]
    fn what_is_no_entry_is_refused() {
        for text in [
            "",
            ":80",
            "10.0.0.7/33",
            "10.0.0.7/x",
            "10.0.0.300",
            "10.0.0.7:90-80",
            "10.0.0.7:65536",
            "2001:db8::1",
            "[2001:db8::1",
            "[10.0.0.7]",
            "[::1]x",
            "a.*",
            "**",
            "*a.example",
            "a..b",
            "a.example/8",
            "unix:relative.sock",
            "unix:",
            "http://a",
        ] {
            assert!(text.parse::<Reach>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_first_rule_that_names_a_service_decides() {
        let rule = |service: &str, uid| ServiceRule {
            service: service.into(),
            who: vec![Principal::User(uid)],
            peers: None,
            server_identity: Vec::new(),
        };
        let rules = [rule("a.v1.B", 1), rule("a.v1.*", 2), rule("*", 3)];
        let uid = |service| (1..4).find(|uid| ServiceRule::of(&rules, service).unwrap().covers(*uid, 0));
        let found = ["a.v1.B", "a.v1.C", "a.v1.sub.C", "a.v10.B"].map(uid);
        assert_eq!(found, [Some(1), Some(2), Some(2), Some(3)]);
        assert!(ServiceRule::of(&rules[..2], "b.C").is_none());
        let well_formed =
            ["*", "a.*", "a.B", "a", "a.B*", ".*", "", "a..B", "a.*.B"].map(|s| rule(s, 1).is_well_formed());
        assert_eq!(well_formed, [true, true, true, true, false, false, false, false, false]);
    }

    #[test]
    fn a_rule_says_which_servers_a_target_may_name() {
        let rule = ServiceRule {
            service: "*".into(),
            who: Vec::new(),
            peers: None,
            server_identity: vec!["spiffe://corp/search".into(), "search.internal".into()],
        };
        for (target, permitted) in [
            ("tls://spiffe://corp/search@10.0.0.7:80", true),
            ("tls://search.internal@10.0.0.7:80", true),
            ("tls://spiffe://corp/other@10.0.0.7:80", false),
            ("tls://10.0.0.7:80", false),
            ("tcp://10.0.0.7:80", false),
            ("unix:/run/a.sock", false),
            ("search.internal:80", false),
        ] {
            let target = target.parse().unwrap();
            let judged = rule.permits_servers(&target);
            assert_eq!(judged.is_ok(), permitted, "{target}");
            assert!(judged.is_ok() || judged.unwrap_err().contains("tls://IDENTITY@ADDRESS:PORT"));
        }
    }

    proptest! {
        #[test]
        fn any_text_is_an_entry_that_reads_back_or_none(text in "[\\[\\]0-9a-c.:/*x-]{0,14}|unix:/[a-c/.]{0,5}") {
            if let Ok(entry) = text.parse::<Reach>() {
                prop_assert_eq!(entry.to_string().parse::<Reach>(), Ok(entry));
            }
        }
    }
}
