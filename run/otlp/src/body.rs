//! Requests of a bounded size: what is exported is cut into as many as it takes.

use serde_json::{Value, json};

/// A request is sent when it has so many bytes. Collectors take 4 MiB and more.
pub const REQUEST_BYTES_MAX: usize = 1 << 20;

/// What is said of whoever exports, with every request.
#[derive(Debug)]
pub(crate) struct ExportOrigin {
    resource: Value,
    version: String,
}

/// Where requests go; says whether it is worth going on.
pub(crate) type Send<'a> = dyn FnMut(&str) -> bool + 'a;

/// A request that fills.
pub(crate) struct RequestBody<'a> {
    head: String,
    text: String,
    send: &'a mut Send<'a>,
    is_over: bool,
}

impl ExportOrigin {
    pub fn new(attributes: &[(String, String)], version: &str) -> Self {
        let resource = attributes.iter().map(|(key, value)| attribute(key, &json!({ "stringValue": value })));
        Self { resource: resource.collect(), version: version.to_owned() }
    }

    /// What stands in front of the items: `signal` is `Metrics` or `Spans`, `items` the key they have.
    fn head(&self, signal: &str, items: &str) -> String {
        let resource = json!({ "attributes": self.resource });
        let scope = json!({ "name": "trunkline", "version": self.version });
        format!(
            "{{\"resource{signal}\":[{{\"resource\":{resource},\"scope{signal}\":[{{\"scope\":{scope},\"{items}\":["
        )
    }
}

impl<'a> RequestBody<'a> {
    /// Closes what the head opens.
    const TAIL: &'static str = "]}]}]}";

    pub fn new(origin: &ExportOrigin, signal: &str, items: &str, send: &'a mut Send<'a>) -> Self {
        Self { head: origin.head(signal, items), text: String::new(), send, is_over: false }
    }

    /// Adds an item. Whether it is worth going on.
    pub fn add(&mut self, item: &Value) -> bool {
        self.text.push_str(if self.text.is_empty() { &self.head } else { "," });
        self.text.push_str(&item.to_string());
        if self.text.len() >= REQUEST_BYTES_MAX {
            self.flush();
        }
        !self.is_over
    }

    /// Whether all that was added is sent, or was to be.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Whether it is not worth going on.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Sends what there is.
    pub fn flush(&mut self) {
        if !self.text.is_empty() && !self.is_over {
            self.text.push_str(Self::TAIL);
            self.is_over = !(self.send)(&self.text);
        }
        self.text.clear();
    }
}

/// A key with its value, as OTLP has them.
pub(crate) fn attribute(key: &str, value: &Value) -> Value {
    json!({ "key": key, "value": value })
}

/// A text.
pub(crate) fn text(key: &str, value: &str) -> Value {
    attribute(key, &json!({ "stringValue": value }))
}

/// A whole number. JSON has no room for those of 64 bits, so protobuf writes them as text.
pub(crate) fn whole(key: &str, value: u64) -> Value {
    attribute(key, &json!({ "intValue": value.to_string() }))
}
