//! Proxy mode: a socket of the router's own for every client address.

use crate::settings::Settings;
use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use trunkline_call::Instant;
use trunkline_net::{Datagrams, Interest, Outgoing, Poller, Token};
use trunkline_r2p2::{FeedbackFor, Forward};

/// The clients, each by the port workers know it by.
#[derive(Debug)]
pub(crate) struct Proxy {
    ip: Ipv4Addr,
    flows: HashMap<SocketAddrV4, Flow>,
    clients: HashMap<u16, SocketAddrV4>,
}

#[derive(Debug)]
struct Flow {
    socket: Datagrams,
    port: u16,
    used: Instant,
}

/// After this time a client's socket may be given to another.
const IDLE_NS: u64 = 60_000_000_000;

impl Proxy {
    /// Sockets will be on `ip`, which workers must reach.
    pub fn new(ip: Ipv4Addr) -> Self {
        Self { ip, flows: HashMap::new(), clients: HashMap::new() }
    }

    /// Sends datagrams of one client to their workers, from the client's socket.
    pub fn send(&mut self, now: Instant, poller: &Poller, of_client: &[Forward]) {
        let Some(client) = of_client.first().map(|one| one.client) else { return };
        if !self.flows.contains_key(&client)
            && let Err(error) = self.open(now, poller, client)
        {
            tracing::warn!(%client, %error, "cannot open a socket for a client: its requests are lost");
            return;
        }
        let Some(flow) = self.flows.get_mut(&client) else { return };
        flow.used = now;
        let batch = of_client.iter().map(|one| Outgoing { to: one.to, pieces: [&one.datagram, &[]] });
        flow.socket.send(&batch.collect::<Vec<_>>());
    }

    /// A client's socket, where workers answer it, and the client.
    pub fn flow(&self, token: Token) -> Option<(&Datagrams, SocketAddrV4)> {
        let client = *self.clients.get(&u16::try_from(token.0).ok()?)?;
        Some((&self.flows.get(&client)?.socket, client))
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
        if let Some(client) = self.clients.get(&port) {
            datagram[at + 2..at + 4].copy_from_slice(&client.port().to_be_bytes());
            datagram[at + 4..].copy_from_slice(&client.ip().octets());
        }
    }

    fn open(&mut self, now: Instant, poller: &Poller, client: SocketAddrV4) -> io::Result<()> {
        if self.flows.len() >= Settings::FLOWS_MAX {
            self.close_idle(now)?;
        }
        let socket = Datagrams::bind(SocketAddrV4::new(self.ip, 0))?;
        let port = socket.address()?.port();
        poller.add(&socket, Token(port.into()), Interest::Read)?;
        self.clients.insert(port, client);
        self.flows.insert(client, Flow { socket, port, used: now });
        Ok(())
    }

    fn close_idle(&mut self, now: Instant) -> io::Result<()> {
        let idlest = self.flows.iter().min_by_key(|(_, flow)| flow.used);
        let idle = idlest.filter(|(_, flow)| now.since_ns(flow.used) >= IDLE_NS).map(|(client, _)| *client);
        match idle.and_then(|client| self.flows.remove(&client)) {
            Some(flow) => {
                self.clients.remove(&flow.port);
                Ok(())
            }
            None => {
                Err(io::Error::other(format!("{} clients are busy, which is the limit", Settings::FLOWS_MAX)))
            }
        }
    }
}
