//! What an endpoint is told at birth, with the reason of every number.

use core::net::SocketAddrV4;

/// What an endpoint may say beyond the authors' protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Nothing: every byte is as the authors' library would write it.
    #[default]
    Compatible,
    /// Shows a reserved flag bit, and speaks the extended mode with whoever shows it, too.
    Offer,
    /// Speaks the extended mode from the first datagram on: the other side is known to understand.
    Extended,
}

/// Settings of a client or a server.
#[derive(Clone, Debug)]
pub struct Config {
    /// What may be said.
    pub mode: Mode,
    /// Longest time a datagram may be on its way. Decides how long a compatible request's id is remembered, and how
    /// far back an endpoint that has just started cannot know what was executed. Ten times what a switch's full buffers
    /// hold a datagram for.
    pub lifetime_ns: u64,
    /// First retransmission after this time without a word; doubles. Above any service time it would be wasted on the
    /// short ones, below it repeats what is merely slow: a server answers a repetition at the cost of one small packet.
    pub rto_ns: u64,
    /// Longest pause between two repetitions of a request nobody has acknowledged.
    pub rto_ns_max: u64,
    /// A request nobody has acknowledged for so long, and so often repeated that anybody else would be taken for gone,
    /// puts its target under suspicion: whoever calls it next should ask first who is there. Longer than a router's
    /// queue holds anything.
    pub suspect_ns: u64,
    /// First question to a server that has the request and is silent; doubles.
    pub probe_ns: u64,
    /// Longest pause between two such questions.
    pub probe_ns_max: u64,
    /// Questions and retransmissions that must have gone unanswered in a row before the other side is taken for gone.
    /// Time alone does not tell: it also passes while this side gets no processor.
    pub silent_max: u32,
    /// And for how long. A host that runs ten times as much as it has cores for leaves a process without a processor
    /// for some seconds, and a call that fails then is one whose outcome nobody knows.
    pub silent_ns_max: u64,
    /// A compatible request without any deadline is given up after this time: nothing else ends it.
    pub answer_ns_max: u64,
    /// A message no packet of which came for so long is given up.
    pub partial_ns_max: u64,
    /// How long a server remembers a request after its end, and keeps its reply. More than `silent_ns_max` and
    /// `probe_ns_max`, so that no repetition comes later.
    pub remember_ns: u64,
    /// Calls in flight. Ids have 16 bits; half of them stay unused, so that none is used again soon.
    pub calls_max: usize,
    /// Longest message.
    pub message_bytes_max: usize,
    /// A message of several packets of which fewer than 32 come in this time, or are taken, is given up, however often
    /// one of them does: it holds memory. Zero: as long as it takes.
    pub stall_ns: u64,
    /// Bytes a port holds for one peer's address: of messages of which a part is here, and of replies of several
    /// packets until they have arrived. Some of the longest messages.
    pub held_bytes_per_peer_max: usize,
    /// The same for all.
    pub held_bytes_max: usize,
    /// Bytes of replies kept to be sent again. The oldest go first; their requests are then known as served.
    pub kept_bytes_max: usize,
    /// Requests remembered after their end. The oldest go first, and repetitions as old as they are refused.
    pub remembered_max: usize,
    /// Control ports of the routers this server takes requests from.
    pub routers: Vec<SocketAddrV4>,
    /// Requests the server works on at once: what it offers to routers.
    pub slots: u16,
    /// How often a worker says to its routers that it is there.
    pub heartbeat_ns: u64,
}

const MS: u64 = 1_000_000;

impl Default for Config {
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            lifetime_ns: 10 * MS,
            rto_ns: 20 * MS,
            rto_ns_max: 250 * MS,
            suspect_ns: 2000 * MS,
            probe_ns: 100 * MS,
            probe_ns_max: 1000 * MS,
            silent_max: 8,
            silent_ns_max: 8000 * MS,
            answer_ns_max: 60_000 * MS,
            partial_ns_max: 8000 * MS,
            remember_ns: 10_000 * MS,
            calls_max: 1 << 15,
            message_bytes_max: 64 << 20,
            stall_ns: 30_000 * MS,
            held_bytes_per_peer_max: 128 << 20,
            held_bytes_max: 256 << 20,
            kept_bytes_max: 64 << 20,
            remembered_max: 1 << 20,
            routers: Vec::new(),
            slots: 1,
            heartbeat_ns: 100 * MS,
        }
    }
}

impl Config {
    pub(crate) fn offers(&self) -> bool {
        self.mode != Mode::Compatible
    }

    /// Whether somebody who has left so many questions unanswered for so long is gone.
    pub(crate) fn is_gone(&self, unanswered: u32, silent_ns: u64) -> bool {
        unanswered >= self.silent_max && silent_ns >= self.silent_ns_max
    }

    /// Whether somebody who has said nothing at all yet is to be asked first, before the next call.
    pub(crate) fn is_suspect(&self, unanswered: u32, silent_ns: u64) -> bool {
        unanswered >= self.silent_max && silent_ns >= self.suspect_ns
    }
}
