//! What can be set about HTTP/2 connections, and why each default is what it is.

/// Nanoseconds of a second.
pub(super) const SECOND_NS: u64 = 1_000_000_000;

/// A header list of an answer that is so many times as large as what servers are told is still read, and refused here:
/// of trailers beyond its limit h2 leaves fields out, without a word, and a list cut over more frames than that limit
/// has ends the connection, with everybody's calls. Eight or more: see `left_out_bytes_min`.
const LIST_READ: u32 = 16;
/// The table that peers may fill with headers, as HTTP/2 has it where nothing is told (RFC 9113, section 6.5.2).
const TABLE_BYTES: usize = 4096;

/// Limits and intervals of HTTP/2 connections. One value serves every connection of a daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http2Settings {
    /// Streams a peer may have open at once on one connection (SETTINGS_MAX_CONCURRENT_STREAMS). A stream costs about
    /// 1 KiB here and a call in the engine.
    pub streams_max: u32,
    /// Bytes of one stream under way to us before we give credit. The delay-bandwidth product of 10 Gbit/s and 1 ms.
    pub stream_window_bytes: u32,
    /// The same for all streams of a connection. Many times the stream's, so that a stream nobody reads does not stop
    /// the others; it is also what one connection can make us hold.
    pub connection_window_bytes: u32,
    /// Bytes of one header list, as RFC 9113 section 6.5.2 counts them. Four times what other gRPC libraries take, so
    /// that what they let through is not refused here.
    pub header_list_bytes_max: u32,
    /// Bytes of one stream given to the connection ahead of the socket, and all of a connection have little more than a
    /// mebibyte there; the rest waits in the stream's own queue.
    pub send_ahead_bytes: usize,
    /// Streams a peer may reset: a client that opens and resets makes us work for nothing (CVE-2023-44487). Burst and
    /// rate are those of nghttp2.
    pub resets: Rate,
    /// Frames that bring nothing forward (SETTINGS, PING, PRIORITY, WINDOW_UPDATE, empty DATA and CONTINUATION, unknown
    /// types). (Of DATA that is all padding h2 takes a hundred in a connection's life, and nothing changes that.)
    /// Frames that do bring something, and bytes we send, earn more of them.
    pub idle_frames: Rate,
    /// Longest time a frame or a header block may stay unfinished, and the time for the preface.
    pub unfinished_ns_max: u64,
    /// Our own pings.
    pub keepalive: KeepaliveSettings,
    /// The pings a peer may send (server role).
    pub pings: PingSettings,
    /// How long a connection may live (server role).
    pub age: AgeSettings,
    /// Highest id of a stream opened here (client role). What HTTP/2 has, except where a test is to see the end.
    pub own_stream_max: u32,
}

/// So many at once, and so many more each second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// At once.
    pub burst: u32,
    /// Regained each second.
    pub per_second: u32,
}

/// When we ask whether the peer is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepaliveSettings {
    /// Silence after which we ask; `None` never asks.
    pub after_ns: Option<u64>,
    /// Time for the answer.
    pub timeout_ns: u64,
    /// Ask while no call is in flight, too.
    pub without_calls: bool,
}

/// What pings a server takes before it answers `too_many_pings`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PingSettings {
    /// Shortest time between two while calls are in flight.
    pub interval_ns_min: u64,
    /// The same interval holds without calls; otherwise it is [`PingSettings::IDLE_INTERVAL_NS`] then.
    pub without_calls: bool,
}

/// When a server asks clients to connect anew, so that load finds new servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgeSettings {
    /// Age at which it says GOAWAY, give or take a tenth; `None` never.
    pub age_ns_max: Option<u64>,
    /// Time for calls in flight after that; `None` waits for them.
    pub grace_ns: Option<u64>,
    /// Time without calls after which it says GOAWAY; `None` never.
    pub idle_ns_max: Option<u64>,
}

impl Http2Settings {
    /// What a server of gRPC starts with.
    pub fn server() -> Self {
        // Two hours of silence: what every gRPC server does.
        Self { keepalive: KeepaliveSettings::after(7200 * SECOND_NS), ..Self::client() }
    }

    /// What a client of gRPC starts with: it never asks, because a server may mind.
    pub fn client() -> Self {
        Self {
            streams_max: 1024,
            stream_window_bytes: 1 << 20,
            connection_window_bytes: 64 << 20,
            header_list_bytes_max: 64 << 10,
            send_ahead_bytes: 256 << 10,
            resets: Rate { burst: 1000, per_second: 33 },
            idle_frames: Rate { burst: 1000, per_second: 100 },
            unfinished_ns_max: 20 * SECOND_NS,
            keepalive: KeepaliveSettings { after_ns: None, ..KeepaliveSettings::after(0) },
            pings: PingSettings { interval_ns_min: 300 * SECOND_NS, without_calls: false },
            age: AgeSettings { age_ns_max: None, grace_ns: None, idle_ns_max: None },
            own_stream_max: (1 << 31) - 1,
        }
    }

    /// Bytes of a header list that h2 reads (client role).
    pub(super) fn list_read_bytes_max(&self) -> u32 {
        self.header_list_bytes_max.saturating_mul(LIST_READ)
    }

    /// Bytes, at least, of a block of whose list h2 has left fields out though what it tells is within the maximum: the
    /// first of them takes all between that and what h2 reads. Its name may be from the peer's table, and each byte of
    /// its text has five bits or more (RFC 7541, appendix B). One of a list within the maximum has 30 at most, so that
    /// no block of such a list is as large.
    pub(super) fn left_out_bytes_min(&self) -> usize {
        let field_bytes = (self.list_read_bytes_max() - self.header_list_bytes_max) as usize;
        field_bytes.saturating_sub(TABLE_BYTES) * 5 / 8
    }
}

impl KeepaliveSettings {
    /// Shortest silence after which a client may ask (gRFC A8).
    pub const CLIENT_AFTER_NS_MIN: u64 = 10 * SECOND_NS;

    /// Asks after so much silence, with the usual 20 s for the answer.
    pub fn after(after_ns: u64) -> Self {
        Self { after_ns: Some(after_ns), timeout_ns: 20 * SECOND_NS, without_calls: false }
    }
}

impl PingSettings {
    /// Shortest time between two pings without calls: what every gRPC server permits.
    pub const IDLE_INTERVAL_NS: u64 = 7200 * SECOND_NS;
}
