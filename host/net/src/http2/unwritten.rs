//! Requests that have not reached the socket: which of the bytes that leave are the last of one.
//!
//! h2 has frames wait for windows and puts those of many streams between each other, so where a request ends is known
//! only from the frames themselves, as they leave.

use std::collections::BTreeMap;
use trunkline_grpc::StreamTag;

/// The requests of a connection that have not left, by the stream's number. As many as there are streams at most.
#[derive(Debug, Default)]
pub(super) struct Unwritten {
    requests: BTreeMap<u32, Opening>,
    /// Those that have left since this was last asked.
    written: Vec<StreamTag>,
}

/// A request's head and first message.
#[derive(Debug)]
struct Opening {
    tag: StreamTag,
    is_head_left: bool,
    /// Bytes of the message that have not left; `None` before there is one.
    message_left: Option<usize>,
}

impl Unwritten {
    /// A stream was opened, and its head is about to leave.
    pub fn open(&mut self, stream: u32, tag: StreamTag) {
        self.requests.insert(stream, Opening { tag, is_head_left: false, message_left: None });
    }

    /// A stream was given a message. It is part of what opens the call if nothing has left yet.
    pub fn queue(&mut self, stream: u32, bytes: usize) {
        if let Some(opening) = self.requests.get_mut(&stream) {
            opening.message_left.get_or_insert(bytes);
        }
    }

    /// A stream is over, whether or not its request has left.
    pub fn close(&mut self, stream: u32) {
        self.requests.remove(&stream);
    }

    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// The last byte of a stream's head has left.
    pub fn handle_head(&mut self, stream: u32) {
        self.advance(stream, |opening| opening.is_head_left = true);
    }

    /// So many bytes of a stream's body have left.
    pub fn handle_body(&mut self, stream: u32, bytes: usize) {
        self.advance(stream, |opening| {
            opening.message_left = opening.message_left.map(|left| left.saturating_sub(bytes));
        });
    }

    /// A request that has left, each once.
    pub fn poll_written(&mut self) -> Option<StreamTag> {
        self.written.pop()
    }

    fn advance(&mut self, stream: u32, act: impl FnOnce(&mut Opening)) {
        if self.requests.is_empty() {
            return;
        }
        let Some(opening) = self.requests.get_mut(&stream) else { return };
        act(opening);
        if opening.is_head_left && opening.message_left.unwrap_or(0) == 0 {
            self.written.push(opening.tag);
            self.requests.remove(&stream);
        }
    }
}

#[cfg(test)]
mod tests {
    //! Shows which bytes are the last of a request.
    use super::*;

    fn tag(number: u64) -> StreamTag {
        StreamTag(StreamTag::OWN | number)
    }

    #[test]
    fn a_request_has_left_with_the_last_byte_of_its_message() {
        let mut unwritten = Unwritten::default();
        unwritten.open(1, tag(1));
        unwritten.queue(1, 10);
        unwritten.queue(1, 1000);
        unwritten.open(3, tag(2));
        unwritten.handle_head(1);
        unwritten.handle_body(1, 9);
        assert_eq!(unwritten.poll_written(), None);
        unwritten.handle_head(3);
        assert_eq!(unwritten.poll_written(), Some(tag(2)), "a head without a message");
        unwritten.handle_body(1, 1);
        assert_eq!((unwritten.poll_written(), unwritten.poll_written()), (Some(tag(1)), None), "each once");
        unwritten.handle_body(1, 1000);
        unwritten.queue(3, 5);
        unwritten.handle_body(3, 5);
        assert!(unwritten.poll_written().is_none() && unwritten.is_empty(), "later messages open nothing");
    }

    #[test]
    fn what_never_leaves_is_forgotten_with_its_stream() {
        let mut unwritten = Unwritten::default();
        unwritten.open(1, tag(1));
        unwritten.close(1);
        unwritten.handle_head(1);
        assert!(unwritten.poll_written().is_none() && unwritten.is_empty());
    }
}
