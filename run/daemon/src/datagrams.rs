//! The UDP ports of a shard: datagrams in to the engine, datagrams out of it.

use crate::clock::now;
use crate::seals::ShardSeals;
use crate::socket_work::SocketWork;
use crate::token::Token;
use rustix::fd::OwnedFd;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use trunkline_call::Instant;
use trunkline_engine::{R2p2Port, Turn};
use trunkline_net::{DatagramBatch, Datagrams, Outgoing, ReceivedDatagram};
use trunkline_net::{Interest, Poller};
use trunkline_r2p2::{SealKeys, Transmit};
use trunkline_telemetry::{TaxStage, tax_stage};

/// R2P2's ports.
pub(crate) struct UdpPorts {
    /// Where requests arrive, if they are served.
    server: Option<Datagrams>,
    /// Where replies arrive; opened with the first call.
    client: Option<Datagrams>,
    /// Where the cluster has a key.
    seals: Option<ShardSeals>,
    /// ReceivedDatagram and not handled, for a moment.
    batch: DatagramBatch,
    /// Waiting to be sent, for a moment.
    out: [Vec<Transmit>; 2],
}

/// Batches read from one port before the others get their turn.
const BATCHES_PER_TURN: usize = 8;

impl UdpPorts {
    /// Opens the server's port, if there is one. Sockets that were handed over, of the client and of the server, are
    /// gone on with; the server's if it still is where it listens. Else there may be one that was bound before.
    pub fn open(
        (listen, early): (Option<SocketAddrV4>, Option<Datagrams>),
        bound: [Option<OwnedFd>; 2],
        poller: &Poller,
        keys: Option<SealKeys>,
    ) -> io::Result<Self> {
        let [client, server] = bound.map(|socket| socket.map(Datagrams::inherit).transpose());
        let client = client?;
        let server = match (listen, server?) {
            (None, _) => None,
            (Some(listen), Some(bound)) if is_at(bound.address()?, listen) => Some(bound),
            (Some(listen), _) => Some(early.map_or_else(|| Datagrams::bind(listen), Ok)?),
        };
        for (socket, port) in [(&client, R2p2Port::Client), (&server, R2p2Port::Server)] {
            if let Some(socket) = socket {
                poller.add(socket, Token::Datagrams(port).to_poller(), Interest::Read)?;
            }
        }
        let seals = keys.map(ShardSeals::new);
        Ok(Self { server, client, seals, batch: DatagramBatch::new(), out: Default::default() })
    }

    /// Where requests arrive.
    pub fn address(&self) -> io::Result<Option<SocketAddrV4>> {
        self.server.as_ref().map(Datagrams::address).transpose()
    }

    /// The ports that are open.
    pub fn sockets(&self) -> impl Iterator<Item = (R2p2Port, &Datagrams)> {
        [R2p2Port::Client, R2p2Port::Server].into_iter().filter_map(|port| Some((port, self.of(port)?)))
    }

    // LIFE: 12 R2P2
    /// Hands the engine what has arrived at a port.
    pub fn take(&mut self, lent: &mut SocketWork<'_>, port: R2p2Port) {
        let mut batch = std::mem::take(&mut self.batch);
        for _ in 0..BATCHES_PER_TURN {
            let Some(socket) = self.of(port) else { break };
            let networking = tax_stage(TaxStage::Networking);
            if let Err(error) = socket.receive_batch(&mut batch) {
                tracing::error!(?port, %error, "cannot receive datagrams");
            }
            drop(networking);
            if batch.is_empty() {
                self.batch = batch;
                return;
            }
            let read = now();
            let own = self.own_address(port);
            for ReceivedDatagram { from, datagram, came_ns, is_told } in batch.received() {
                let came = Instant(came_ns);
                let datagram = match &mut self.seals {
                    None => datagram,
                    Some(seals) => match seals.open(own, from, datagram) {
                        Some(opened) => opened,
                        None => continue,
                    },
                };
                let mut turn = Turn { now: now(), heaps: &mut *lent.heaps };
                let arrived = if is_told { came } else { read };
                lent.engine.handle_datagram(&mut turn, port, (came, arrived), from, datagram);
            }
            if !batch.is_full() {
                self.batch = batch;
                return;
            }
        }
        self.batch = batch;
        // The poller tells again.
        lent.left.is_pressing = true;
    }

    // LIFE: 11 R2P2
    /// Sends what the engine wants sent. What the kernel does not take is lost, as datagrams may be.
    pub fn send(&mut self, lent: &mut SocketWork<'_>) {
        if lent.engine.datagrams().have_requests() {
            lent.engine.datagrams().set_ages(now());
        }
        while let Some((port, transmit)) = lent.engine.datagrams().poll() {
            self.out[port as usize].push(transmit);
        }
        for port in [R2p2Port::Client, R2p2Port::Server] {
            let mut out = std::mem::take(&mut self.out[port as usize]);
            if !out.is_empty() {
                self.send_from(lent.poller, port, &out);
                out.clear();
            }
            self.out[port as usize] = out;
        }
    }

    fn of(&self, port: R2p2Port) -> Option<&Datagrams> {
        match port {
            R2p2Port::Client => self.client.as_ref(),
            R2p2Port::Server => self.server.as_ref(),
        }
    }

    /// Datagrams without a good seal so far.
    pub fn refused(&self) -> u64 {
        self.seals.as_ref().map_or(0, ShardSeals::refused)
    }

    /// The address a port has, as far as it is known; asked for where seals say it.
    fn own_address(&self, port: R2p2Port) -> SocketAddrV4 {
        let address = self.seals.as_ref().and_then(|_| self.of(port)?.address().ok());
        address.unwrap_or(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0))
    }

    fn open_client(&mut self, poller: &Poller) -> io::Result<()> {
        if self.client.is_none() {
            let socket = Datagrams::bind(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0))?;
            poller.add(&socket, Token::Datagrams(R2p2Port::Client).to_poller(), Interest::Read)?;
            self.client = Some(socket);
        }
        Ok(())
    }

    fn send_from(&mut self, poller: &Poller, port: R2p2Port, out: &[Transmit]) {
        if port == R2p2Port::Client
            && let Err(error) = self.open_client(poller)
        {
            tracing::error!(%error, "cannot open a UDP port: calls over R2P2 are not sent");
            return;
        }
        let own = self.own_address(port);
        let UdpPorts { client, server, seals, .. } = self;
        let socket = match port {
            R2p2Port::Client => client.as_ref(),
            R2p2Port::Server => server.as_ref(),
        };
        let Some(socket) = socket else { return };
        let _networking = tax_stage(TaxStage::Networking);
        if let Some(seals) = seals {
            return seals.send(socket, own, out);
        }
        let batch: Vec<_> =
            out.iter().map(|one| Outgoing { to: one.to, pieces: [one.head.as_slice(), &one.body] }).collect();
        socket.send(&batch);
    }
}

/// Whether a socket is where it is configured to be: port 0 is any.
pub(crate) fn is_at(address: SocketAddrV4, listen: SocketAddrV4) -> bool {
    address.ip() == listen.ip() && (listen.port() == 0 || listen.port() == address.port())
}
