//! Messages from shared memory, as data of an HTTP body.

use bytes::{BufMut, Bytes, BytesMut};
use http_body::Frame;
use trunkline::opaque::Message;
use trunkline_grpc::framing::{PREFIX_BYTES, prefix};

/// Messages up to this size are copied behind their prefix; a larger one is a frame of its own that lies where the
/// daemon put it. tonic's decoder copies either into its buffer, and a second frame costs more than copying so much.
const COPIED_BYTES_MAX: usize = 4096;

/// Cuts messages into frames.
#[derive(Debug, Default)]
pub(crate) struct Framed {
    /// A message whose prefix was given out.
    rest: Option<Message>,
}

impl Framed {
    /// The first frame of a message: all of it, or its prefix.
    pub(crate) fn begin(&mut self, message: Message) -> Frame<Bytes> {
        let bytes = message.as_ref();
        let prefix = prefix(u32::try_from(bytes.len()).unwrap_or(u32::MAX), false);
        if bytes.len() > COPIED_BYTES_MAX {
            self.rest = Some(message);
            return Frame::data(Bytes::copy_from_slice(&prefix));
        }
        let mut whole = BytesMut::with_capacity(PREFIX_BYTES + bytes.len());
        whole.put_slice(&prefix);
        whole.put_slice(bytes);
        Frame::data(whole.freeze())
    }

    /// What is left of the message before. Its block goes back to the daemon when the bytes are dropped.
    pub(crate) fn take_rest(&mut self) -> Option<Frame<Bytes>> {
        self.rest.take().map(|message| Frame::data(Bytes::from_owner(message)))
    }

    /// Whether nothing is left of the messages so far.
    pub(crate) fn is_done(&self) -> bool {
        self.rest.is_none()
    }
}
