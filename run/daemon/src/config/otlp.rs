//! `[otlp]`: the OpenTelemetry collector that is sent figures and spans.

use super::Tls;
use super::error::{Breach, breach};
use super::rules::within;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use trunkline_net::ClientFiles;

/// `[otlp]`: the OpenTelemetry collector that is sent figures and spans.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Otlp {
    /// Where it takes OTLP over HTTP: `http://127.0.0.1:4318`, or `https://`. Empty: nothing is sent.
    pub endpoint: String,
    /// Roots of the collector's certificate, PEM. Empty: the system's.
    pub ca: PathBuf,
    /// The certificate that is shown to the collector, PEM. Empty: none.
    pub certificate: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
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
    /// Whether TLS is spoken with it.
    pub is_secure: bool,
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

    /// What TLS is spoken with, in the versions that `[tls]` says; `None` if it is not.
    pub fn files(&self, tls: &Tls) -> Option<ClientFiles> {
        let set = |path: &PathBuf| (!path.as_os_str().is_empty()).then(|| path.clone());
        self.collector().filter(|collector| collector.is_secure).map(|_| ClientFiles {
            ca: set(&self.ca),
            identity: set(&self.certificate).zip(set(&self.key)),
            versions: tls.versions(),
            ..ClientFiles::default()
        })
    }

    /// What is said of this daemon: key and value.
    pub fn attributes(&self) -> impl Iterator<Item = (&str, &str)> {
        self.attributes.iter().filter_map(|text| text.split_once('='))
    }
}

impl Collector {
    /// Of `http://HOST[:PORT][/PATH]`, or the same with `https://`.
    fn parse(text: &str) -> Option<Self> {
        let (is_secure, rest) = match text.strip_prefix("https://") {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix("http://")?),
        };
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
        is_sound.then(|| Self { is_secure, host: host.to_owned(), port, path })
    }
}

impl Default for Otlp {
    fn default() -> Self {
        Self {
            endpoint: String::new(),
            ca: PathBuf::new(),
            certificate: PathBuf::new(),
            key: PathBuf::new(),
            interval_s: 10,
            sample: 0.0,
            attributes: Vec::new(),
        }
    }
}

impl Otlp {
    pub(super) fn check(&self) -> Result<(), Breach> {
        let Self { endpoint, interval_s, sample, attributes, .. } = self;
        if self.is_on() && self.collector().is_none() {
            let advice = "write \"http://HOST:PORT\" or \"https://HOST:PORT\" of a collector that takes OTLP over \
                          HTTP, such as one on this host: \"http://127.0.0.1:4318\"";
            return Err(breach("otlp.endpoint", format!("is {endpoint:?}"), advice));
        }
        self.check_tls()?;
        within("otlp.interval_s", *interval_s, 1, INTERVAL_S_MAX)?;
        if !(0.0..=1.0).contains(sample) {
            return Err(breach("otlp.sample", format!("is {sample}"), "write a share from 0.0 to 1.0"));
        }
        if *sample > 0.0 && !self.is_on() {
            let problem = format!("is {sample}, and there is no collector that traces are sent to");
            let advice =
                "write otlp.endpoint, too, or leave it out; traces that are recorded have recorder.sample";
            return Err(breach("otlp.sample", problem, advice));
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

    fn check_tls(&self) -> Result<(), Breach> {
        let Self { ca, certificate, key, .. } = self;
        let is_set = |path: &PathBuf| !path.as_os_str().is_empty();
        let named = [("otlp.ca", ca), ("otlp.certificate", certificate), ("otlp.key", key)];
        let is_secure = self.collector().is_some_and(|collector| collector.is_secure);
        if let Some((name, _)) = named.into_iter().find(|(_, path)| is_set(path) && !is_secure) {
            let advice = "write an otlp.endpoint that begins with https://, or leave it out";
            return Err(breach(name, "means nothing where otlp.endpoint is without TLS".into(), advice));
        }
        let (name, what, beside) = match (is_set(certificate), is_set(key)) {
            (true, false) => ("otlp.key", "the private key of that certificate", "otlp.certificate"),
            (false, true) => ("otlp.certificate", "the certificate chain made for that key", "otlp.key"),
            _ => return Ok(()),
        };
        let advice = format!("write the path of {what}: a PEM file");
        Err(breach(name, format!("is missing beside {beside}"), &advice))
    }
}

#[cfg(test)]
mod tests {
    //! Shows which addresses are a collector's.
    use super::*;

    #[test]
    fn addresses() {
        let at = |host: &str, port, path: &str| {
            Some(Collector { is_secure: false, host: host.into(), port, path: path.into() })
        };
        let secure =
            |host: &str, port, path| at(host, port, path).map(|at| Collector { is_secure: true, ..at });
        let table = [
            ("http://127.0.0.1:4318", at("127.0.0.1", 4318, "")),
            ("http://collector.example", at("collector.example", PORT, "")),
            ("http://[::1]:1/", at("::1", 1, "")),
            ("http://[::1]", at("::1", PORT, "")),
            ("http://h:1/otlp/", at("h", 1, "/otlp")),
            ("https://h", secure("h", PORT, "")),
            ("https://[::1]:443/otlp", secure("::1", 443, "/otlp")),
            ("https://", None),
            ("https://http://h", None),
            ("HTTPS://h", None),
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
