//! A connection to a collector, with TLS or without, that ends at a point in time.

use crate::tls::CollectorTls;
use std::io::{self, IoSlice};
use std::net::ToSocketAddrs;
use std::time::{Duration, Instant};
use trunkline_net::{Endpoint, Interest, Poller, Stream, Token, Transfer};

/// A collector, and where in it.
#[derive(Debug)]
pub(crate) struct CollectorAddress {
    pub host: String,
    pub port: u16,
    pub path: String,
    /// `None`: it is spoken to in the clear.
    pub tls: Option<CollectorTls>,
}

/// A connection until a point in time.
pub(crate) struct CollectorConnection {
    stream: Stream,
    poller: Poller,
    until: Instant,
}

impl CollectorConnection {
    /// Connects to the first of the name's addresses that answers, and agrees on TLS with it.
    ///
    /// # Errors
    /// The name has no address, nobody listens there, it is not who it must be, or the time is over.
    pub fn open(address: &CollectorAddress, until: Instant) -> io::Result<Self> {
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for at in (&*address.host, address.port).to_socket_addrs()? {
            let connection = Self::connected(&Endpoint::Tcp(at), until);
            match connection.and_then(|connection| connection.secured(address)) {
                Ok(connection) => return Ok(connection),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn connected(endpoint: &Endpoint, until: Instant) -> io::Result<Self> {
        let (stream, poller) = (Stream::connect(endpoint)?, Poller::new()?);
        poller.add(&stream, Token(0), Interest::Write)?;
        let connection = Self { stream, poller, until };
        loop {
            // Not before it is writable: the socket has no error until then, and no peer.
            connection.wait(Interest::Write)?;
            if connection.stream.finish_connect()? {
                return Ok(connection);
            }
        }
    }

    fn secured(mut self, address: &CollectorAddress) -> io::Result<Self> {
        let Some(tls) = &address.tls else { return Ok(self) };
        // Without ALPN, HTTP/1.1 is spoken (RFC 9112, section 9.7).
        self.stream.begin_tls_client(tls.client(), &address.host, &[])?;
        while !self.stream.handshake().map_err(|error| tls.told(&error))? {
            self.wait(if self.stream.wants_write() { Interest::ReadWrite } else { Interest::Read })?;
        }
        Ok(self)
    }

    /// Writes all of it, down to the socket.
    ///
    /// # Errors
    /// What the system or TLS says, or the time is over.
    pub fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.stream.write_vectored(&[IoSlice::new(bytes)])? {
                Transfer::Bytes(count) => bytes = &bytes[count..],
                Transfer::NotReady => self.wait(Interest::Write)?,
                Transfer::Ended => return Err(io::ErrorKind::WriteZero.into()),
            }
            // A collector that takes a byte now and then has its time, not more.
            left(self.until)?;
        }
        while !self.stream.flush()? {
            self.wait(Interest::Write)?;
        }
        Ok(())
    }

    /// Reads what comes next; 0 at the end.
    ///
    /// # Errors
    /// What the system or TLS says, or the time is over.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            left(self.until)?;
            match self.stream.read(buffer)? {
                Transfer::Bytes(count) => return Ok(count),
                Transfer::Ended => return Ok(0),
                Transfer::NotReady => self.wait(Interest::Read)?,
            }
        }
    }

    fn wait(&self, interest: Interest) -> io::Result<()> {
        self.poller.set_interest(&self.stream, Token(0), interest)?;
        let left = left(self.until)?;
        self.poller.wait(Some(u64::try_from(left.as_nanos()).unwrap_or(u64::MAX)), &mut Vec::new())
    }
}

fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}
