//! Connections that are told why they are refused. What they have sent lies unread, and closing would reset them before
//! they have read why: they are [closed in time](LingeringClose).

use crate::output::LinkOutput;
use std::collections::BTreeMap;
use std::io;
use trunkline_call::Instant;
use trunkline_control::LinkFrame;
use trunkline_net::{Buffers, LingeringClose, Poller, Stream, Token};
use trunkline_shm::monotonic_ns;

/// Most at once. One more, and the one that has been told first is closed at once.
const LEAVING_MAX: usize = 64;
/// Tokens of these have this bit.
const LEAVES: u64 = 1 << 63;

/// Connections that leave, by token.
pub(crate) struct Refusals {
    closings: BTreeMap<u64, LingeringClose>,
    next: u64,
    buffers: Buffers,
}

impl Refusals {
    pub fn new() -> Self {
        Self { closings: BTreeMap::new(), next: LEAVES, buffers: Buffers::new() }
    }

    /// Tells a connection why it is refused, and closes it. Whoever has not agreed on TLS hears nothing.
    pub fn refuse(&mut self, poller: &Poller, stream: Stream, why: &str) {
        if !stream.is_secure() {
            return;
        }
        let mut output = LinkOutput::default();
        output.push(&LinkFrame::Close(why));
        self.close(poller, LingeringClose::new(stream, output.into_bytes(), now()));
    }

    /// Goes on with the one of this token, if it is one of these.
    pub fn go_on(&mut self, poller: &Poller, token: Token) {
        let Some(closing) = self.closings.get_mut(&token.0) else { return };
        let is_done = closing.turn(now(), &mut self.buffers);
        if is_done || poller.set_interest(closing.stream(), token, closing.interest()).is_err() {
            self.closings.remove(&token.0);
        }
    }

    /// Closes those whose time is over.
    pub fn sweep(&mut self) {
        let now = now();
        let Self { closings, buffers, .. } = self;
        closings.retain(|_, closing| closing.next_timeout() > now || !closing.turn(now, buffers));
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.closings.is_empty()
    }

    fn close(&mut self, poller: &Poller, mut closing: LingeringClose) {
        if closing.turn(now(), &mut self.buffers) {
            return;
        }
        let token = self.next;
        if poller.add(closing.stream(), Token(token), closing.interest()).is_ok() {
            self.next += 1;
            self.closings.insert(token, closing);
        }
        if self.closings.len() > LEAVING_MAX {
            self.closings.pop_first();
        }
    }
}

/// The same of one connection, on a thread of its own: a second at most.
///
/// # Errors
/// The kernel has no poller left.
pub(crate) fn refuse_alone(stream: Stream, why: &str) -> io::Result<()> {
    let (poller, mut refusals, mut ready) = (Poller::new()?, Refusals::new(), Vec::new());
    refusals.refuse(&poller, stream, why);
    while !refusals.is_empty() {
        ready.clear();
        poller.wait(Some(100_000_000), &mut ready)?;
        ready.iter().for_each(|event| refusals.go_on(&poller, event.token));
        refusals.sweep();
    }
    Ok(())
}

fn now() -> Instant {
    Instant(monotonic_ns())
}

#[cfg(test)]
mod tests {
    //! Shows that what lies unread resets nobody before it has read why, and that those who leave are bounded.
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    #[test]
    fn who_has_sent_much_reads_why() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(&[0; 100_000]).unwrap();
        let (poller, mut refusals) = (Poller::new().unwrap(), Refusals::new());
        let stream = Stream::inherit(ours.into(), false).unwrap();
        refusals.close(&poller, LingeringClose::new(stream, b"no place".to_vec(), now()));
        assert!(!refusals.is_empty(), "it may send more");
        theirs.write_all(&[0; 1000]).unwrap();
        let mut said = String::new();
        theirs.read_to_string(&mut said).unwrap();
        assert_eq!(said, "no place");
        drop(theirs);
        let mut ready = Vec::new();
        poller.wait(None, &mut ready).unwrap();
        ready.iter().for_each(|event| refusals.go_on(&poller, event.token));
        assert!(refusals.is_empty());
    }

    #[test]
    fn the_first_gives_way_where_many_leave() {
        let (poller, mut refusals) = (Poller::new().unwrap(), Refusals::new());
        let others: Vec<UnixStream> = (0..=LEAVING_MAX)
            .map(|_| {
                let (ours, theirs) = UnixStream::pair().unwrap();
                let stream = Stream::inherit(ours.into(), false).unwrap();
                refusals.close(&poller, LingeringClose::new(stream, b"no place".to_vec(), now()));
                theirs
            })
            .collect();
        assert_eq!((refusals.closings.len(), others.len()), (LEAVING_MAX, LEAVING_MAX + 1));
        assert!(!refusals.closings.contains_key(&LEAVES));
    }
}
