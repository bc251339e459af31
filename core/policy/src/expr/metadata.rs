//! Keys of metadata in expressions.

use super::error::Complaint;
use super::node::{Constant, Node};
use trunkline_call::Metadata;

/// A key of metadata: one that stands in the expression is taken as it is sent, one from elsewhere as it is.
pub(super) fn sent_key(at: u32, key: Node) -> Result<Node, Complaint> {
    match key {
        Node::Constant(Constant::Str(name)) => metadata_key(at, &String::from_utf8_lossy(&name)),
        key => Ok(key),
    }
}

pub(super) fn metadata_key(at: u32, name: &str) -> Result<Node, Complaint> {
    let key = Metadata::key_of(name);
    key.map(|key| text(&key)).map_err(|error| Complaint::new(at, format!("no call has it: {error}"), ""))
}

pub(super) fn text(name: &str) -> Node {
    Node::Constant(Constant::Str(name.as_bytes().into()))
}
