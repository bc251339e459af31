//! Proxy mode: a socket of the router's own for every client address.

use crate::flows::Flows;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use trunkline_call::Instant;
use trunkline_net::{Datagrams, Interest, Outgoing, Poller, Token};
use trunkline_r2p2::{FeedbackFor, Forward, RequestKey, Sending};

/// The clients, each by the port workers know it by.
#[derive(Debug)]
pub(crate) struct Proxy {
    ip: Ipv4Addr,
    flows: Flows<Datagrams>,
    /// Clients that had no socket since that was told last, and when.
    untold: u64,
    told: Instant,
}

/// Clients without a socket are told of once in this time: there may be as many as somebody wants.
const TOLD_EVERY_NS: u64 = 1_000_000_000;

impl Proxy {
    /// Sockets will be on `ip`, which workers must reach, and so many at the most.
    pub fn new(ip: Ipv4Addr, flows_max: usize) -> Self {
        Self { ip, flows: Flows::new(flows_max), untold: 0, told: Instant::default() }
    }

    /// Sends datagrams of one client to their workers, from the client's socket. `false`: it has none. Repetitions of
    /// requests that may have gone out from another socket of the client's stay here, and are told of; so does what
    /// follows a request of a client that has no socket any more.
    pub fn send(
        &mut self,
        now: Instant,
        poller: &Poller,
        of_client: &[Forward],
        mut moved: impl FnMut(RequestKey),
    ) -> bool {
        let Some(client) = of_client.first().map(|one| one.client) else { return true };
        let goes = |one: &&Forward| match one.of {
            Sending::Repeats { key, since } if !self.flows.are_one(client, since) => {
                moved(key);
                false
            }
            _ => true,
        };
        // First: nobody gives way for what goes nowhere.
        let mut going: Vec<&Forward> = of_client.iter().filter(goes).collect();
        let has_none = self.flows.use_of(now, client).is_none();
        if has_none {
            // What a worker knows by a port that is closed says nothing to it from another.
            going.retain(|one| !matches!(one.of, Sending::Follows));
        }
        if going.is_empty() {
            return true;
        }
        if has_none && let Err(error) = self.open(now, poller, client) {
            self.tell(now, client, &error);
            return false;
        }
        let Some(socket) = self.flows.use_of(now, client) else { return false };
        let batch = going.iter().map(|one| Outgoing { to: one.to, pieces: [&one.datagram, &[]] });
        socket.send(&batch.collect::<Vec<_>>());
        true
    }

    /// Closes the sockets of clients that send nothing any more.
    pub fn close_idle(&mut self, now: Instant) {
        self.flows.close_idle(now);
    }

    /// A client's socket, where workers answer it, and the client.
    pub fn flow(&self, token: Token) -> Option<(&Datagrams, SocketAddrV4)> {
        self.flows.at(u16::try_from(token.0).ok()?)
    }

    /// The address of the socket a token names.
    pub fn address(&self, token: Token) -> SocketAddrV4 {
        SocketAddrV4::new(self.ip, token.0 as u16)
    }

    /// A FEEDBACK names the client by the router's own socket: names the client instead.
    pub fn translate(&self, datagram: &mut [u8]) {
        let Some(at) = datagram.len().checked_sub(FeedbackFor::BYTES) else { return };
        let port = u16::from_be_bytes([datagram[at + 2], datagram[at + 3]]);
        if datagram[at + 4..] != self.ip.octets() {
            return;
        }
        if let Some((_, client)) = self.flows.at(port) {
            datagram[at + 2..at + 4].copy_from_slice(&client.port().to_be_bytes());
            datagram[at + 4..].copy_from_slice(&client.ip().octets());
        }
    }

    fn open(&mut self, now: Instant, poller: &Poller, client: SocketAddrV4) -> io::Result<()> {
        if !self.flows.make_room(now, *client.ip()) {
            let why = format!("{} addresses have one each, which is the limit", self.flows.most());
            return Err(io::Error::other(why));
        }
        let bound = match self.bind(poller) {
            // No descriptor is left, or no port: somebody else has to do with fewer.
            Err(_) if self.flows.give_way(now, *client.ip()) => self.bind(poller),
            bound => bound,
        };
        let (socket, port) = bound?;
        self.flows.insert(now, client, port, socket);
        Ok(())
    }

    fn bind(&self, poller: &Poller) -> io::Result<(Datagrams, u16)> {
        let socket = Datagrams::bind(SocketAddrV4::new(self.ip, 0))?;
        let port = socket.address()?.port();
        poller.add(&socket, Token(port.into()), Interest::Read)?;
        Ok((socket, port))
    }

    fn tell(&mut self, now: Instant, client: SocketAddrV4, error: &io::Error) {
        self.untold += 1;
        if now.since_ns(self.told) >= TOLD_EVERY_NS {
            let clients = std::mem::take(&mut self.untold);
            tracing::warn!(%client, clients, %error, "cannot open a socket for a client: its requests are refused");
            self.told = now;
        }
    }
}
