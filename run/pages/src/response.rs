//! What is answered.

use std::borrow::Cow;

/// A page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Its media type, such as `text/html; charset=utf-8`.
    pub kind: &'static str,
    /// Its text.
    pub body: Cow<'static, str>,
}

impl Page {
    /// Text in Prometheus' format (exposition format 0.0.4).
    pub fn metrics(text: String) -> Self {
        Self { kind: "text/plain; version=0.0.4; charset=utf-8", body: text.into() }
    }

    /// A page of HTML.
    pub fn html(text: impl Into<Cow<'static, str>>) -> Self {
        Self { kind: "text/html; charset=utf-8", body: text.into() }
    }

    /// Plain text.
    pub fn text(text: impl Into<Cow<'static, str>>) -> Self {
        Self { kind: "text/plain; charset=utf-8", body: text.into() }
    }
}

/// The bytes of a response that ends its connection. Pages run nothing and load nothing from elsewhere, whatever names
/// of applications and peers are in them.
pub(crate) fn response(status: &str, page: &Page, head_only: bool) -> Vec<u8> {
    let allow = if status.starts_with("405") { "allow: GET, HEAD\r\n" } else { "" };
    let head = format!(
        "HTTP/1.1 {status}\r\n\
         content-type: {}\r\n\
         content-length: {}\r\n\
         cache-control: no-store\r\n\
         content-security-policy: default-src 'none'; style-src 'unsafe-inline'; img-src data:\r\n\
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
