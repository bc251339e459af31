//! A body of HTTP, read as messages.

use crate::words::{StdError, of_error};
use bytes::Bytes;
use http::HeaderMap;
use http_body::Body;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use trunkline::Status;
use trunkline::opaque::Outcome;
use trunkline_grpc::compress::{self, Encoding};
use trunkline_grpc::framing::{Deframer, FramingFault};

/// Largest message once decompressed: the daemon's default limit on a message. What is not compressed is this process's
/// own already, and the daemon's limit is told by the daemon.
const INFLATED_BYTES_MAX: usize = 256 << 20;

/// Messages after which a stream that never has to wait lets other tasks of its thread run. Few enough that they wait
/// for tens of microseconds, enough that the detour does not show.
const MESSAGES_PER_TURN: u32 = 64;

/// The messages of a body, then its trailers.
#[derive(Debug)]
pub(crate) struct Messages<B> {
    body: B,
    /// Taken since others were let in.
    taken: u32,
    deframer: Deframer,
    encoding: Encoding,
    trailers: Option<HeaderMap>,
}

/// What comes next.
#[derive(Debug)]
pub(crate) enum Piece {
    Message(Bytes),
    /// The end, if the body has trailers with them.
    End(Option<HeaderMap>),
}

impl<B> Messages<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<StdError>,
{
    /// `encoding`: what the head says compressed messages are compressed with.
    pub(crate) fn new(body: B, encoding: Encoding) -> Self {
        Self { body, taken: 0, deframer: Deframer::new(u32::MAX as usize), encoding, trailers: None }
    }

    /// Waits for the next piece. Nothing is to be asked after the end.
    ///
    /// # Errors
    /// The status the body ended with instead; that of bytes that are no messages.
    pub(crate) async fn next(&mut self) -> Result<Piece, Outcome> {
        self.let_others_in().await;
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Of a long stream, once in a while: other tasks have their turn.
    pub(crate) async fn let_others_in(&mut self) {
        if self.taken >= MESSAGES_PER_TURN {
            self.taken = 0;
            tokio::task::yield_now().await;
        }
    }

    /// The next piece, if it is there.
    pub(crate) async fn next_if_ready(&mut self) -> Poll<Result<Piece, Outcome>> {
        poll_fn(|cx| Poll::Ready(self.poll_next(cx))).await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Piece, Outcome>> {
        loop {
            if let Some(framed) = self.deframer.next().map_err(|fault| broken(&fault))? {
                self.taken += 1;
                let message = if framed.compressed { self.inflate(&framed.bytes)? } else { framed.bytes };
                return Poll::Ready(Ok(Piece::Message(message)));
            }
            if self.trailers.is_some() {
                return Poll::Ready(self.end());
            }
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.deframer.push(data),
                    Err(frame) => self.trailers = frame.into_trailers().ok(),
                },
                Some(Err(error)) => return Poll::Ready(Err(of_error(error))),
                None => return Poll::Ready(self.end()),
            }
        }
    }

    fn end(&mut self) -> Result<Piece, Outcome> {
        self.deframer.finish().map_err(|fault| broken(&fault))?;
        Ok(Piece::End(self.trailers.take()))
    }

    fn inflate(&self, message: &[u8]) -> Result<Bytes, Outcome> {
        if self.encoding == Encoding::Identity && !message.is_empty() {
            return Err(broken(&FramingFault::NoEncoding));
        }
        let mut out = Vec::new();
        compress::decompress(self.encoding, message, INFLATED_BYTES_MAX, &mut out)
            .map_err(|fault| broken(&fault))?;
        Ok(out.into())
    }
}

fn broken(fault: &FramingFault) -> Outcome {
    Outcome::from(&Status::new(fault.code(), fault.to_string()))
}

#[cfg(test)]
mod tests {
    //! Shows that messages survive any cutting of the body, compressed ones too, and what broken bodies end as.
    use super::*;
    use http_body::Frame;
    use std::collections::VecDeque;
    use trunkline::{Code, Wait};

    struct Frames(VecDeque<Frame<Bytes>>);

    impl Body for Frames {
        type Data = Bytes;
        type Error = tonic::Status;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, tonic::Status>>> {
            Poll::Ready(self.0.pop_front().map(Ok))
        }
    }

    fn framed(message: &[u8], compressed: bool) -> Vec<u8> {
        let prefix = trunkline_grpc::framing::prefix(message.len() as u32, compressed);
        [&prefix[..], message].concat()
    }

    fn read(body: &[u8], cut: usize, encoding: Encoding) -> Result<Vec<Vec<u8>>, Code> {
        let mut frames: VecDeque<_> =
            body.chunks(cut).map(|piece| Frame::data(Bytes::copy_from_slice(piece))).collect();
        frames.push_back(Frame::trailers(HeaderMap::new()));
        let mut messages = Messages::new(Frames(frames), encoding);
        let mut out = Vec::new();
        loop {
            match messages.next().wait().map_err(|outcome| outcome.code)? {
                Piece::Message(message) => out.push(message.to_vec()),
                Piece::End(trailers) => {
                    assert!(trailers.is_some());
                    return Ok(out);
                }
            }
        }
    }

    #[test]
    fn any_cutting_reads_the_same() {
        let long = vec![7; 3000];
        let mut zipped = Vec::new();
        compress::compress(Encoding::Gzip, &long, &mut zipped).unwrap();
        let body = [framed(b"", false), framed(b"one", false), framed(&zipped, true), framed(&long, false)];
        for cut in [1, 4, 5, 6, 100, 10_000] {
            let read = read(&body.concat(), cut, Encoding::Gzip).unwrap();
            assert_eq!(read, [b"".to_vec(), b"one".to_vec(), long.clone(), long.clone()], "cut at {cut}");
        }
    }

    #[test]
    fn broken_bodies_have_a_status() {
        assert_eq!(read(&framed(b"one", false)[..7], 100, Encoding::Identity), Err(Code::Internal));
        assert_eq!(read(&framed(b"one", true), 100, Encoding::Identity), Err(Code::Internal));
        assert_eq!(read(&framed(b"one", true), 100, Encoding::Gzip), Err(Code::Internal));
    }
}
