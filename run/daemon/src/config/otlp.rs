//! `[otlp]`: the OpenTelemetry collector that is sent figures and spans.

use super::error::{Breach, breach};
use super::rules::within;
use serde::{Deserialize, Serialize};

/// `[otlp]`: the OpenTelemetry collector that is sent figures and spans.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Otlp {
    /// Where it takes OTLP over HTTP: `http://127.0.0.1:4318`. Empty: nothing is sent.
    pub endpoint: String,
    /// Seconds between two sets of figures. Spans are sent every second.
    pub interval_s: u64,
    /// Share (0 to 1) of the calls without a trace context with which a trace begins.
    pub sample: f64,
    /// What is said of this daemon beside its name: `key=value`.
    pub attributes: Vec<String>,
}

/// A collector's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collector {
    /// Name or address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// What stands in front of `/v1/metrics` there.
    pub path: String,
}

/// The port collectors listen at for OTLP over HTTP.
const PORT: u16 = 4318;
const INTERVAL_S_MAX: u64 = 3600;
const ATTRIBUTES_MAX: usize = 64;
const ATTRIBUTE_BYTES_MAX: usize = 1024;

impl Otlp {
    /// Whether anything is sent.
    pub fn is_on(&self) -> bool {
        !self.endpoint.is_empty()
    }

    /// The collector; `None` if there is none.
    pub fn collector(&self) -> Option<Collector> {
        Collector::parse(&self.endpoint)
    }

    /// What is said of this daemon: key and value.
    pub fn attributes(&self) -> impl Iterator<Item = (&str, &str)> {
        self.attributes.iter().filter_map(|text| text.split_once('='))
    }
}

impl Collector {
    /// Of `http://HOST[:PORT][/PATH]`.
    fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix("http://")?;
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        // The colons within brackets are an IPv6 address's.
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port.parse().ok().filter(|port| *port != 0)?),
            _ => (authority, PORT),
        };
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = bare.unwrap_or(host);
        let is_host =
            |c: char| c.is_ascii_alphanumeric() || "-._".contains(c) || (bare.is_some() && c == ':');
        let is_path = |c: char| c.is_ascii_graphic() && !"?#\"<>".contains(c);
        let is_sound = !host.is_empty() && host.chars().all(is_host) && path.chars().all(is_path);
        let path = path.trim_end_matches('/').to_owned();
        is_sound.then(|| Self { host: host.to_owned(), port, path })
    }
}

impl Default for Otlp {
    fn default() -> Self {
        Self { endpoint: String::new(), interval_s: 10, sample: 0.0, attributes: Vec::new() }
    }
}

impl Otlp {
    pub(super) fn check(&self) -> Result<(), Breach> {
        let Self { endpoint, interval_s, sample, attributes } = self;
        if self.is_on() && self.collector().is_none() {
            let advice = "write \"http://HOST:PORT\" of a collector that takes OTLP over HTTP without TLS, such as \
                          one on this host: \"http://127.0.0.1:4318\"";
            return Err(breach("otlp.endpoint", format!("is {endpoint:?}"), advice));
        }
        within("otlp.interval_s", *interval_s, 1, INTERVAL_S_MAX)?;
        if !(0.0..=1.0).contains(sample) {
            return Err(breach("otlp.sample", format!("is {sample}"), "write a share from 0.0 to 1.0"));
        }
        if attributes.len() > ATTRIBUTES_MAX {
            let problem = format!("has {} attributes", attributes.len());
            return Err(breach("otlp.attributes", problem, &format!("write at most {ATTRIBUTES_MAX}")));
        }
        let is_sound = |text: &&String| {
            let key = text.split_once('=').map_or("", |(key, _)| key);
            text.len() <= ATTRIBUTE_BYTES_MAX && !key.is_empty() && !key.contains(char::is_whitespace)
        };
        match attributes.iter().find(|text| !is_sound(text)) {
            Some(text) => {
                let advice =
                    "write key=value, such as \"deployment.environment.name=test\", in at most 1024 bytes";
                Err(breach("otlp.attributes", format!("has {text:.80?}"), advice))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Shows which addresses are a collector's.
    use super::*;

    #[test]
    fn addresses() {
        let at =
            |host: &str, port, path: &str| Some(Collector { host: host.into(), port, path: path.into() });
        let table = [
            ("http://127.0.0.1:4318", at("127.0.0.1", 4318, "")),
            ("http://collector.example", at("collector.example", PORT, "")),
            ("http://[::1]:1/", at("::1", 1, "")),
            ("http://[::1]", at("::1", PORT, "")),
            ("http://h:1/otlp/", at("h", 1, "/otlp")),
            ("https://h", None),
            ("h:4318", None),
            ("http://", None),
            ("http://:1", None),
            ("http://h:0", None),
            ("http://h:70000", None),
            ("http://u@h", None),
            ("http://h/a b", None),
            ("http://h/a?b", None),
            ("http://h\r\nx: y", None),
            ("http://::1", None),
        ];
        for (text, expected) in table {
            assert_eq!(Collector::parse(text), expected, "{text}");
        }
    }
}
