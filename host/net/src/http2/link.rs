//! The h2 connection in either role, behind one face.

use super::settings::Http2Settings;
use super::wire::Wire;
use bytes::Bytes;
use h2::{Ping, PingPong, RecvStream, client, server};
use http::Request;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Streams we reset, or answered before they had ended, that h2 remembers: what still comes on them is passed over. Two
/// of each that may be open at once, of half a KiB.
const RESET_STREAMS_MAX: usize = 2048;
/// How long it remembers them: what is under way arrives within that.
const RESET_STREAM_TIME: Duration = Duration::from_secs(5);

/// An h2 connection.
pub(super) enum Link {
    /// Server: the client's preface is awaited.
    Shaking {
        handshake: Box<server::Handshake<Wire, Bytes>>,
        /// It is to leave as soon as there is a connection.
        is_leaving: bool,
    },
    Server {
        connection: Box<server::Connection<Wire, Bytes>>,
        pings: Option<PingPong>,
    },
    Client {
        connection: Box<client::Connection<Wire, Bytes>>,
        /// `None` once no more requests are to be made.
        requests: Option<client::SendRequest<Bytes>>,
        pings: Option<PingPong>,
    },
    Over {
        is_server: bool,
    },
}

/// What a look at it brought.
pub(super) enum Polled {
    /// The peer opened a stream.
    Incoming(Box<Request<RecvStream>>, server::SendResponse<Bytes>),
    /// All that could be done was done.
    Pending,
    /// It has ended.
    Over(Result<(), h2::Error>),
}

impl Link {
    pub fn server(wire: Wire, settings: &Http2Settings) -> Self {
        let mut builder = server::Builder::new();
        builder
            .max_concurrent_streams(settings.streams_max)
            .initial_window_size(settings.stream_window_bytes)
            .initial_connection_window_size(settings.connection_window_bytes)
            .max_header_list_size(settings.header_list_bytes_max)
            .max_send_buffer_size(settings.send_ahead_bytes)
            // Streams are accepted in the turn that brings them, so a reset rarely meets one that is not. What a turn
            // may bring is bounded by the read buffer, and the meter counts resets.
            .max_pending_accept_reset_streams(2 * settings.resets.burst as usize)
            .max_concurrent_reset_streams(RESET_STREAMS_MAX)
            .reset_stream_duration(RESET_STREAM_TIME)
            // h2 counts over a connection's whole life, and among the rest what we cause ourselves by ending streams
            // early. What a peer causes is counted as its own resets are, and what waits to be said by the meter.
            .max_local_error_reset_streams(None)
            // The same: of small frames that come on streams we have reset h2 gives nothing back. Those of others are
            // taken in the turn that brings them, and all are bounded by the windows and the meter.
            .data_frame_budget(usize::MAX);
        Self::Shaking { handshake: Box::new(builder.handshake(wire)), is_leaving: false }
    }

    pub fn client(wire: Wire, settings: &Http2Settings) -> Self {
        let mut builder = client::Builder::new();
        wire.boxes().tell_list_max(settings.header_list_bytes_max);
        builder
            .enable_push(false)
            .initial_window_size(settings.stream_window_bytes)
            .initial_connection_window_size(settings.connection_window_bytes)
            .max_header_list_size(settings.list_read_bytes_max())
            .max_send_buffer_size(settings.send_ahead_bytes)
            .max_concurrent_reset_streams(RESET_STREAMS_MAX)
            .reset_stream_duration(RESET_STREAM_TIME)
            .max_local_error_reset_streams(None)
            .data_frame_budget(usize::MAX);
        let handshake = pin!(builder.handshake(wire));
        let Poll::Ready(Ok((requests, mut connection))) =
            handshake.poll(&mut Context::from_waker(Waker::noop()))
        else {
            unreachable!("a client's handshake only writes, and a fresh wire takes it")
        };
        let pings = connection.ping_pong();
        Self::Client { connection: Box::new(connection), requests: Some(requests), pings }
    }

    /// Goes on until something is to be told.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Polled {
        if let Self::Shaking { handshake, is_leaving } = self {
            match Pin::new(handshake).poll(cx) {
                Poll::Pending => return Polled::Pending,
                Poll::Ready(Err(error)) => return Polled::Over(Err(error)),
                Poll::Ready(Ok(mut connection)) => {
                    let pings = connection.ping_pong();
                    if *is_leaving {
                        connection.graceful_shutdown();
                    }
                    *self = Self::Server { connection: Box::new(connection), pings };
                }
            }
        }
        match self {
            Self::Server { connection, .. } => match connection.poll_accept(cx) {
                Poll::Pending => Polled::Pending,
                Poll::Ready(None) => Polled::Over(Ok(())),
                Poll::Ready(Some(Ok((request, respond)))) => Polled::Incoming(Box::new(request), respond),
                Poll::Ready(Some(Err(error))) => Polled::Over(Err(error)),
            },
            Self::Client { connection, .. } => match Pin::new(connection).poll(cx) {
                Poll::Pending => Polled::Pending,
                Poll::Ready(ended) => Polled::Over(ended),
            },
            Self::Shaking { .. } | Self::Over { .. } => Polled::Pending,
        }
    }

    /// Opens a stream (client role); `None` if no more are to be opened.
    pub fn request(
        &self,
        request: Request<()>,
        end: bool,
    ) -> Option<Result<(client::ResponseFuture, h2::SendStream<Bytes>), h2::Error>> {
        let Self::Client { requests: Some(requests), .. } = self else { return None };
        // h2 queues one request per handle beyond what the peer takes at once; so each gets a handle.
        Some(requests.clone().send_request(request, end))
    }

    /// Ends when the streams in flight have.
    pub fn leave(&mut self) {
        match self {
            Self::Server { connection, .. } => connection.graceful_shutdown(),
            Self::Client { requests, .. } => *requests = None,
            Self::Shaking { is_leaving, .. } => *is_leaving = true,
            Self::Over { .. } => {}
        }
    }

    /// Ends it here and now, without a word.
    pub fn forget(&mut self) {
        let is_server = self.is_server();
        *self = Self::Over { is_server };
    }

    /// Sends a ping, unless one is under way.
    pub fn ping(&mut self) {
        let (Self::Server { pings, .. } | Self::Client { pings, .. }) = self else { return };
        let Some(pings) = pings else { return };
        // The last answer must be taken before the next question is taken.
        let _ = pings.poll_pong(&mut Context::from_waker(Waker::noop()));
        let _ = pings.send_ping(Ping::opaque());
    }

    /// Streams the peer takes at once (client role).
    pub fn streams_max(&self) -> Option<u32> {
        let Self::Client { connection, .. } = self else { return None };
        Some(u32::try_from(connection.max_concurrent_send_streams()).unwrap_or(u32::MAX))
    }

    pub fn is_server(&self) -> bool {
        match self {
            Self::Shaking { .. } | Self::Server { .. } => true,
            Self::Client { .. } => false,
            Self::Over { is_server } => *is_server,
        }
    }
}
