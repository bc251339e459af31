//! What is answered.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest, Sha256};
use std::borrow::Cow;

/// A page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Its media type, such as `text/html; charset=utf-8`.
    pub kind: &'static str,
    /// Its text.
    pub body: Cow<'static, str>,
    /// What its one script must be, as Content Security Policy names it.
    pub(crate) script: Option<String>,
}

impl Page {
    /// Text in Prometheus' format (exposition format 0.0.4).
    pub fn metrics(text: String) -> Self {
        Self::new("text/plain; version=0.0.4; charset=utf-8", text)
    }

    /// Text in OpenMetrics 1.0.
    pub fn openmetrics(text: String) -> Self {
        Self::new("application/openmetrics-text; version=1.0.0; charset=utf-8", text)
    }

    /// A page of HTML.
    pub fn html(text: impl Into<Cow<'static, str>>) -> Self {
        Self::new("text/html; charset=utf-8", text)
    }

    /// Plain text.
    pub fn text(text: impl Into<Cow<'static, str>>) -> Self {
        Self::new("text/plain; charset=utf-8", text)
    }

    /// JSON.
    pub fn json(text: String) -> Self {
        Self::new("application/json", text)
    }

    /// The page may run this script, which is in it, and no other, and ask this server for more.
    pub fn with_script(self, script: &str) -> Self {
        let hash = BASE64_STANDARD.encode(Sha256::digest(script));
        Self { script: Some(format!("'sha256-{hash}'")), ..self }
    }

    fn new(kind: &'static str, body: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, body: body.into(), script: None }
    }
}

/// The bytes of a response that ends its connection. Pages run nothing but the script they came with, if any, and load
/// nothing from elsewhere, whatever names of applications and peers are in them; and pages from elsewhere neither frame
/// nor embed them.
pub(crate) fn response(status: &str, page: &Page, head_only: bool) -> Vec<u8> {
    let allow = if status.starts_with("405") { "allow: GET, HEAD\r\n" } else { "" };
    let scripts = page.script.as_ref();
    let scripts = scripts.map(|hash| format!("; script-src {hash}; connect-src 'self'")).unwrap_or_default();
    let head = format!(
        "HTTP/1.1 {status}\r\n\
         content-type: {}\r\n\
         content-length: {}\r\n\
         cache-control: no-store\r\n\
         content-security-policy: default-src 'none'; style-src 'unsafe-inline'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'{scripts}\r\n\
         cross-origin-resource-policy: same-origin\r\n\
         x-content-type-options: nosniff\r\n\
         {allow}connection: close\r\n\r\n",
        page.kind,
        page.body.len()
    );
    let mut bytes = head.into_bytes();
    if !head_only {
        bytes.extend_from_slice(page.body.as_bytes());
    }
    bytes
}
