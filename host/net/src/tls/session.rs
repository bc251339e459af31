//! One TLS session between a socket and its reader.

use super::{Identity, TlsClient, TlsServer};
use crate::Transfer;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ServerConnection};
use std::cell::RefCell;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::sync::Arc;

/// Bytes of cipher text read at once: several of the largest records.
const READ_BYTES: usize = 64 << 10;
/// Cipher text that waits for the socket at most; beyond it, no more plain text is taken.
const UNSENT_BYTES_MAX: usize = 128 << 10;

/// What is spoken inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Alpn {
    /// The native protocol.
    Trunkline,
    /// HTTP/2.
    H2,
}

/// A TLS session. The socket is lent with every call.
#[derive(Debug)]
pub(crate) struct Session {
    tls: Connection,
    /// Cipher text that was read and not taken in, because the reader's buffer was full.
    unread: Vec<u8>,
    /// The reader's buffer was filled: there may be more plain text.
    was_full: bool,
    /// The peer ended its side, properly or not.
    has_ended: bool,
}

/// A socket's side: reads and writes as [`crate::Stream`] does without TLS.
pub(crate) trait Socket {
    fn read(&self, buffer: &mut [u8]) -> io::Result<Transfer>;
    fn write(&self, pieces: &[IoSlice<'_>]) -> io::Result<Transfer>;
}

thread_local! {
    /// Cipher text passes through here on its way in; a session at rest has no buffer of its own.
    static CIPHER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Alpn {
    pub(crate) const ALL: [Self; 2] = [Self::Trunkline, Self::H2];

    /// As it is negotiated.
    pub fn name(self) -> &'static [u8] {
        match self {
            Self::Trunkline => b"trunkline",
            Self::H2 => b"h2",
        }
    }
}

impl Session {
    /// A server's session; `first` is what the client has said already.
    pub fn server(tls: &TlsServer, first: &[u8]) -> io::Result<Self> {
        let session = ServerConnection::new(Arc::clone(&tls.config)).map_err(io::Error::other)?;
        Ok(Self::new(session.into(), first.to_vec()))
    }

    /// A client's session with a server of that name.
    pub fn client(tls: &TlsClient, name: ServerName<'static>, offer: &[Alpn]) -> io::Result<Self> {
        let offered = offer.iter().map(|alpn| alpn.name().to_vec()).collect();
        let session = ClientConnection::new_with_alpn(Arc::clone(&tls.config), name, offered);
        Ok(Self::new(session.map_err(io::Error::other)?.into(), Vec::new()))
    }

    fn new(mut tls: Connection, unread: Vec<u8>) -> Self {
        tls.set_buffer_limit(Some(UNSENT_BYTES_MAX));
        Self { tls, unread, was_full: false, has_ended: false }
    }

    /// Goes on with the handshake. `true` when it is done.
    pub fn handshake(&mut self, socket: &impl Socket) -> io::Result<bool> {
        while self.tls.is_handshaking() {
            let is_flushed = self.flush(socket)?;
            if !self.tls.is_handshaking() {
                break;
            }
            if !is_flushed || !self.take_in(socket)? {
                return if self.has_ended { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(false) };
            }
        }
        self.flush(socket)?;
        Ok(true)
    }

    /// Reads plain text.
    pub fn read(&mut self, socket: &impl Socket, buffer: &mut [u8]) -> io::Result<Transfer> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.tls.reader().read(&mut buffer[filled..]) {
                Ok(0) => self.has_ended = true,
                Ok(count) => {
                    filled += count;
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // An end without close_notify: a cut, or a peer in a hurry. What came before it is whole.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => self.has_ended = true,
                Err(error) => return Err(error),
            }
            let has_enough = filled > 0 && self.unread.is_empty();
            if self.has_ended || has_enough || !self.take_in(socket)? {
                break;
            }
        }
        self.was_full = filled == buffer.len();
        Ok(match filled {
            0 if self.has_ended && !buffer.is_empty() => Transfer::Ended,
            0 => Transfer::NotReady,
            bytes => Transfer::Bytes(bytes),
        })
    }

    /// Takes plain text and writes what comes of it, as far as the socket takes it.
    pub fn write(&mut self, socket: &impl Socket, pieces: &[IoSlice<'_>]) -> io::Result<Transfer> {
        if !self.flush(socket)? || self.tls.is_handshaking() {
            return Ok(Transfer::NotReady);
        }
        let taken = self.tls.writer().write_vectored(pieces)?;
        self.flush(socket)?;
        Ok(if taken == 0 { Transfer::NotReady } else { Transfer::Bytes(taken) })
    }

    /// Writes waiting cipher text. `true` if nothing waits any more.
    pub fn flush(&mut self, socket: &impl Socket) -> io::Result<bool> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut Outlet(socket)) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Says that nothing more will be said.
    pub fn end(&mut self, socket: &impl Socket) -> io::Result<()> {
        self.tls.send_close_notify();
        self.flush(socket).map(drop)
    }

    pub fn has_buffered(&self) -> bool {
        self.was_full || !self.unread.is_empty()
    }

    pub fn wants_write(&self) -> bool {
        self.tls.wants_write()
    }

    /// What was negotiated; `None` if the peer knows no ALPN.
    pub fn alpn(&self) -> Option<Alpn> {
        let name = self.tls.alpn_protocol()?;
        Alpn::ALL.into_iter().find(|alpn| alpn.name() == name)
    }

    /// Who the peer is; `None` without a certificate.
    pub fn identity(&self) -> Option<Identity> {
        self.tls.peer_certificates()?.first().map(Identity::of)
    }

    /// Takes in cipher text: what was left, or a read's worth. `false` if there was none.
    fn take_in(&mut self, socket: &impl Socket) -> io::Result<bool> {
        if !self.unread.is_empty() {
            let unread = std::mem::take(&mut self.unread);
            return self.decipher(socket, &unread).map(|()| true);
        }
        CIPHER.with_borrow_mut(|cipher| {
            cipher.resize(READ_BYTES, 0);
            match socket.read(cipher)? {
                Transfer::NotReady => Ok(false),
                Transfer::Ended => {
                    self.tls.read_tls(&mut io::empty())?;
                    self.has_ended = true;
                    Ok(false)
                }
                Transfer::Bytes(bytes) => self.decipher(socket, &cipher[..bytes]).map(|()| true),
            }
        })
    }

    /// Takes in as much as there is room for; the rest waits.
    fn decipher(&mut self, socket: &impl Socket, mut cipher: &[u8]) -> io::Result<()> {
        while !cipher.is_empty() {
            let taken = match self.tls.read_tls(&mut cipher) {
                Ok(taken) => taken,
                // The library's word for a full buffer; its other errors come from the reader, which is a slice.
                Err(_) => 0,
            };
            if taken == 0 {
                break;
            }
            if let Err(why) = self.tls.process_new_packets() {
                // The alert says why, if it still gets through.
                let _ = self.flush(socket);
                return Err(io::Error::new(ErrorKind::InvalidData, why));
            }
        }
        self.unread = cipher.to_vec();
        if self.tls.wants_write() {
            self.flush(socket)?;
        }
        Ok(())
    }
}

/// The socket as the library wants it.
struct Outlet<'a, S>(&'a S);

impl<S: Socket> Write for Outlet<'_, S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match self.0.write(pieces)? {
            Transfer::Bytes(bytes) => Ok(bytes),
            Transfer::NotReady | Transfer::Ended => Err(ErrorKind::WouldBlock.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
