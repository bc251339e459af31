//! A request that may be sent again: kept until its server has shown that it has it, or it is too large.

use crate::item::{Body, Item, KeptBody};
use crate::packing::Packing;
use bytes::Bytes;
use std::borrow::Cow;
use trunkline_call::Encoding;
use trunkline_call::entry::MessageCompression;
use trunkline_grpc::compress::Encoding as Compression;
use trunkline_grpc::framing::PREFIX_BYTES;

/// A request that may be sent again.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    pub metadata: Vec<u8>,
    /// Messages as they were sent, with their prefix.
    pub frames: Vec<Bytes>,
    pub bytes: usize,
}

impl Replay {
    /// The items it was made of, whose messages were sent in this encoding.
    pub fn into_items(self, encoding: Compression, ended: bool) -> Vec<Item<'static>> {
        let count = self.frames.len();
        let mut bodies = self.frames.iter().map(|frame| kept(frame, encoding));
        let metadata = Cow::Owned(self.metadata);
        let mut items = vec![Item::Open { metadata, body: bodies.next(), end: ended && count <= 1 }];
        for (index, body) in bodies.enumerate() {
            items.push(Item::Message { body, end: ended && index + 2 == count });
        }
        items
    }
}

/// A message without its prefix, packed as it was sent.
fn kept(frame: &Bytes, encoding: Compression) -> Body<'static> {
    let (prefix, message) = frame.split_at(PREFIX_BYTES.min(frame.len()));
    let compressed = prefix.first() == Some(&1);
    let packing = (encoding != Compression::Identity).then_some(Packing { encoding, compressed });
    let compression = MessageCompression::Unsaid;
    Body::Kept(KeptBody { bytes: message.into(), encoding: Encoding::Protobuf, packing, compression })
}
