//! One TLS session between a socket and its reader.

use super::alpn::Alpn;
use super::portable::{Capture, First, Keys, Portable};
use super::records::{Records, has_record, record_bytes};
use super::{Identity, TlsClient, TlsServer};
use crate::Transfer;
use rustls::pki_types::ServerName;
use rustls::{
    ClientConfig, ClientConnection, Connection, ProtocolVersion, ServerConnection, SupportedCipherSuite,
};
use std::cell::RefCell;
use std::fmt;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Bytes of cipher text read at once: several of the largest records.
const READ_BYTES: usize = 64 << 10;
/// Cipher text that waits for the socket at most; beyond it, no more plain text is taken.
const UNSENT_BYTES_MAX: usize = 128 << 10;

/// A TLS session. The socket is lent with every call.
pub(crate) struct Session {
    tls: Tls,
    /// What its keys follow from, until it is known that nobody needs it.
    first: First,
    /// Cipher text that was read and not taken in: because the reader's buffer was full, or because the rest of the
    /// last record is not there. The library gets whole records, so that none is in two places when the session moves.
    unread: Vec<u8>,
    /// The reader's buffer was filled: there may be more plain text.
    was_full: bool,
    /// The peer ended its side, properly or not.
    has_ended: bool,
    /// It did behind the bytes of the last read: whoever read them has not heard of it.
    end_is_unread: bool,
}

/// Who makes the records.
enum Tls {
    /// The library, which made the handshake.
    Library(Box<Connection>),
    /// We do, because another process made it, or will go on with it.
    Records(Box<Records>),
    /// Nobody any more: the library gave something else away than it works with.
    Lost,
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

impl Session {
    /// A server's session; `first` is what the client has said already.
    pub fn server(tls: &TlsServer, first: &[u8]) -> io::Result<Self> {
        let session = ServerConnection::new(Arc::clone(&tls.config)).map_err(io::Error::other)?;
        Ok(Self::new(session.into(), first.to_vec()))
    }

    /// A client's session with a server of that name.
    pub fn client(tls: &TlsClient, name: ServerName<'static>, offer: &[Alpn]) -> io::Result<Self> {
        Self::client_with(Arc::clone(&tls.config), name, offer)
    }

    /// A client's session with a server that has this SPIFFE id. It is asked for by no name.
    pub fn client_of_spiffe_id(tls: &TlsClient, id: &str, offer: &[Alpn]) -> io::Result<Self> {
        let nameless = ServerName::IpAddress(Ipv4Addr::UNSPECIFIED.into());
        Self::client_with(tls.for_spiffe_id(id), nameless, offer)
    }

    fn client_with(config: Arc<ClientConfig>, name: ServerName<'static>, offer: &[Alpn]) -> io::Result<Self> {
        let offered = offer.iter().map(|alpn| alpn.name().to_vec()).collect();
        let session = ClientConnection::new_with_alpn(config, name, offered);
        Ok(Self::new(session.map_err(io::Error::other)?.into(), Vec::new()))
    }

    fn new(mut tls: Connection, unread: Vec<u8>) -> Self {
        tls.set_buffer_limit(Some(UNSENT_BYTES_MAX));
        let (tls, first) = (Tls::Library(Box::new(tls)), First::default());
        Self { tls, first, unread, was_full: false, has_ended: false, end_is_unread: false }
    }

    /// A session another process had.
    pub fn inherited(state: Portable) -> Self {
        let Portable { keys, plain, unread, unsent } = state;
        let was_full = !plain.is_empty();
        let tls = Tls::Records(Box::new(Records::new(keys, plain, unsent)));
        let first = First::default();
        Self { tls, first, unread, was_full, has_ended: false, end_is_unread: false }
    }

    /// Has its records made here from now on, so that another process can go on with it. `false` if that cannot be, and
    /// nothing has changed. (Were the library's keys not those it uses, the session would be lost; it then says so when
    /// it is read.)
    pub fn make_portable(&mut self) -> bool {
        let Tls::Library(tls) = &mut self.tls else { return self.portable().is_some() };
        let (
            Some(SupportedCipherSuite::Tls13(suite)),
            Some(ProtocolVersion::TLSv1_3),
            [Some(client), Some(server)],
        ) = (tls.negotiated_cipher_suite(), tls.protocol_version(), &self.first)
        else {
            return false;
        };
        if tls.is_handshaking() || self.has_ended || !Keys::can_be_of(suite) {
            return false;
        }
        let Some((plain, unsent)) = drained(tls) else { return false };
        let is_client = matches!(**tls, Connection::Client(_));
        let first = if is_client { [client, server] } else { [server, client] };
        let Tls::Library(tls) = std::mem::replace(&mut self.tls, Tls::Lost) else { return false };
        let Ok(secrets) = tls.dangerous_extract_secrets() else { return false };
        let at = [(secrets.tx.0, &secrets.tx.1), (secrets.rx.0, &secrets.rx.1)];
        let Some(keys) = Keys::find(suite, first, at) else { return false };
        self.was_full |= !plain.is_empty();
        self.tls = Tls::Records(Box::new(Records::new(keys, plain, unsent)));
        self.first = First::default();
        true
    }

    /// What another process needs to go on with it, if its records are made here.
    pub fn portable(&self) -> Option<Portable> {
        let Tls::Records(records) = &self.tls else { return None };
        let (keys, plain, unsent) = records.state();
        let is_well = records.is_well() && !self.has_ended;
        is_well.then(|| Portable { keys, plain, unread: self.unread.clone(), unsent })
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
        if buffer.is_empty() {
            return Ok(Transfer::NotReady);
        }
        let mut filled = 0;
        while filled < buffer.len() {
            match self.tls.read(&mut buffer[filled..]) {
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
            let has_enough = filled > 0 && !has_record(&self.unread);
            if self.has_ended || has_enough || !self.take_in(socket)? {
                break;
            }
        }
        self.was_full = filled == buffer.len();
        // A peer may end TLS and leave the socket open: nobody else would tell.
        self.end_is_unread = self.has_ended && filled > 0;
        Ok(match filled {
            0 if self.has_ended => Transfer::Ended,
            0 => Transfer::NotReady,
            bytes => Transfer::Bytes(bytes),
        })
    }

    /// Takes plain text and writes what comes of it, as far as the socket takes it.
    pub fn write(&mut self, socket: &impl Socket, pieces: &[IoSlice<'_>]) -> io::Result<Transfer> {
        if !self.flush(socket)? || self.tls.is_handshaking() {
            return Ok(Transfer::NotReady);
        }
        let taken = self.tls.write(pieces)?;
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

    /// Whether the next read has something to say that the poller does not know of.
    pub fn has_buffered(&self) -> bool {
        self.was_full || self.end_is_unread || has_record(&self.unread)
    }

    pub fn wants_write(&self) -> bool {
        self.tls.wants_write()
    }

    /// What was negotiated; `None` if the peer knows no ALPN.
    pub fn alpn(&self) -> Option<Alpn> {
        let name = self.tls.library()?.alpn_protocol()?;
        Alpn::ALL.into_iter().find(|alpn| alpn.name() == name)
    }

    /// Who the peer is; `None` without a certificate.
    pub fn identity(&self) -> Option<Identity> {
        self.tls.library()?.peer_certificates()?.first().map(Identity::of)
    }

    /// Takes in cipher text: what was left, or a read's worth. `false` if there was none.
    fn take_in(&mut self, socket: &impl Socket) -> io::Result<bool> {
        if has_record(&self.unread) {
            let mut unread = std::mem::take(&mut self.unread);
            return self.decipher(socket, &mut unread).map(|()| true);
        }
        CIPHER.with_borrow_mut(|cipher| {
            let begun = self.unread.len();
            cipher.resize(begun + READ_BYTES, 0);
            match socket.read(&mut cipher[begun..])? {
                Transfer::NotReady => Ok(false),
                Transfer::Ended => {
                    self.tls.end_of_input()?;
                    self.has_ended = true;
                    Ok(false)
                }
                Transfer::Bytes(bytes) => {
                    cipher[..begun].copy_from_slice(&self.unread);
                    self.decipher(socket, &mut cipher[..begun + bytes]).map(|()| true)
                }
            }
        })
    }

    /// Takes in whole records, as many as there is room for; the rest waits.
    fn decipher(&mut self, socket: &impl Socket, mut cipher: &mut [u8]) -> io::Result<()> {
        while let Some(bytes) = record_bytes(cipher).filter(|bytes| *bytes <= cipher.len()) {
            let taken = self.tls.open(&mut cipher[..bytes]);
            self.listen();
            match taken {
                Ok(true) => cipher = &mut cipher[bytes..],
                Ok(false) => break,
                Err(why) => {
                    // The alert says why, if it still gets through.
                    let _ = self.flush(socket);
                    return Err(why);
                }
            }
        }
        self.unread = cipher.to_vec();
        if self.tls.wants_write() {
            self.flush(socket)?;
        }
        Ok(())
    }

    /// What the library said of its secrets, if it did; kept for connections that can move.
    fn listen(&mut self) {
        let Some(tls) = self.tls.library().filter(|_| self.first.iter().any(Option::is_none)) else { return };
        let is_http = tls.alpn_protocol() == Some(Alpn::H2.name());
        for (known, said) in self.first.iter_mut().zip(Capture::take()) {
            *known = said.filter(|_| !is_http).or(known.take());
        }
    }
}

/// What the library has and has not handed out: plain text, and cipher text for the socket. `None` at the end of the
/// session.
fn drained(tls: &mut Connection) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut plain = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match tls.reader().read(&mut buffer) {
            Ok(0) => return None,
            Ok(count) => plain.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(_) => return None,
        }
    }
    // New keys that were asked for wait for the next write.
    let _ = tls.writer().write(&[]);
    let mut unsent = Vec::new();
    while tls.wants_write() {
        tls.write_tls(&mut unsent).ok()?;
    }
    Some((plain, unsent))
}

impl Tls {
    fn library(&self) -> Option<&Connection> {
        match self {
            Self::Library(tls) => Some(tls),
            Self::Records(_) | Self::Lost => None,
        }
    }

    fn is_handshaking(&self) -> bool {
        self.library().is_some_and(|tls| tls.is_handshaking())
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Library(tls) => tls.reader().read(buffer),
            Self::Records(records) => records.read(buffer),
            Self::Lost => Err(lost()),
        }
    }

    fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Library(tls) => tls.writer().write_vectored(pieces),
            Self::Records(records) => Ok(records.write(pieces, UNSENT_BYTES_MAX)),
            Self::Lost => Err(lost()),
        }
    }

    fn wants_write(&self) -> bool {
        match self {
            Self::Library(tls) => tls.wants_write(),
            Self::Records(records) => records.wants_write(),
            Self::Lost => false,
        }
    }

    fn write_tls(&mut self, socket: &mut dyn Write) -> io::Result<usize> {
        match self {
            Self::Library(tls) => tls.write_tls(socket),
            Self::Records(records) => records.write_tls(socket),
            Self::Lost => Err(lost()),
        }
    }

    fn send_close_notify(&mut self) {
        match self {
            Self::Library(tls) => tls.send_close_notify(),
            Self::Records(records) => records.send_close_notify(),
            Self::Lost => {}
        }
    }

    /// Takes one whole record in. `false` if plain text is to be read first.
    fn open(&mut self, record: &mut [u8]) -> io::Result<bool> {
        let tls = match self {
            Self::Library(tls) => tls,
            Self::Records(records) if records.is_full() => return Ok(false),
            Self::Records(records) => return records.open(record).map(|()| true),
            Self::Lost => return Err(lost()),
        };
        let mut rest: &[u8] = record;
        while !rest.is_empty() {
            match tls.read_tls(&mut rest) {
                Ok(0) => break,
                Ok(_) => {}
                // The library's word for a full buffer; its other errors come from the reader, which is a slice.
                Err(_) => return Ok(false),
            }
            tls.process_new_packets().map_err(|why| io::Error::new(ErrorKind::InvalidData, why))?;
        }
        Ok(true)
    }

    fn end_of_input(&mut self) -> io::Result<()> {
        match self {
            Self::Library(tls) => tls.read_tls(&mut io::empty()).map(drop),
            Self::Records(_) => Ok(()),
            Self::Lost => Err(lost()),
        }
    }
}

fn lost() -> io::Error {
    io::Error::other("a TLS session that could not be made portable")
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("has_ended", &self.has_ended).finish_non_exhaustive()
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

#[cfg(test)]
mod tests {
    //! Shows that a session goes on in other hands at any moment, with what was half read and half sent, through new
    //! keys, and that the other side cannot tell; and which sessions stay.
    use super::*;
    use crate::{ClientFiles, ServerFiles, TlsVersion, TlsVersions};
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use std::sync::LazyLock;

    const NAME: &str = "there.internal";

    /// A server; and a client that speaks TLS 1.3, and one that does not.
    static PARTIES: LazyLock<(TlsServer, [TlsClient; 2])> = LazyLock::new(|| {
        let folder = tempfile::tempdir().unwrap();
        let own = rcgen::generate_simple_self_signed(vec![NAME.to_owned()]).unwrap();
        let (certificate, key) = (folder.path().join("own.pem"), folder.path().join("own.key"));
        std::fs::write(&certificate, own.cert.pem()).unwrap();
        std::fs::write(&key, own.signing_key.serialize_pem()).unwrap();
        let client = ClientFiles { ca: Some(certificate.clone()), ..ClientFiles::default() };
        let server = ServerFiles { certificate, key, ..ServerFiles::default() };
        let clients = [TlsVersion::V1_3, TlsVersion::V1_2].map(|max| {
            let versions = TlsVersions { max, ..TlsVersions::default() };
            TlsClient::load(&ClientFiles { versions, ..client.clone() }).unwrap()
        });
        (TlsServer::load(&server).unwrap(), clients)
    });

    /// Bytes on their way, both ways; so many of them find room.
    struct Wire([RefCell<VecDeque<u8>>; 2]);

    const ROOM: usize = 30_000;

    struct End<'a>(&'a Wire, usize);

    impl Socket for End<'_> {
        fn read(&self, buffer: &mut [u8]) -> io::Result<Transfer> {
            let mut incoming = self.0.0[1 - self.1].borrow_mut();
            let count = incoming.len().min(buffer.len());
            buffer.iter_mut().zip(incoming.drain(..count)).for_each(|(byte, from)| *byte = from);
            Ok(if count == 0 { Transfer::NotReady } else { Transfer::Bytes(count) })
        }

        fn write(&self, pieces: &[IoSlice<'_>]) -> io::Result<Transfer> {
            let mut outgoing = self.0.0[self.1].borrow_mut();
            let room = ROOM.saturating_sub(outgoing.len());
            let before = outgoing.len();
            outgoing.extend(pieces.iter().flat_map(|piece| piece.iter().copied()).take(room));
            let count = outgoing.len() - before;
            Ok(if count == 0 { Transfer::NotReady } else { Transfer::Bytes(count) })
        }
    }

    /// A client, a server, and what each has said and heard so far: as numbers, for every byte says its place.
    struct Pair {
        wire: Wire,
        ends: [Session; 2],
        said: [usize; 2],
        heard: [usize; 2],
    }

    impl Pair {
        fn new(offer: &[Alpn]) -> Self {
            Self::of(&PARTIES.1[0], offer)
        }

        fn of(client: &TlsClient, offer: &[Alpn]) -> Self {
            let server = &PARTIES.0;
            let client = Session::client(client, NAME.to_owned().try_into().unwrap(), offer).unwrap();
            let ends = [client, Session::server(server, &[]).unwrap()];
            let mut pair = Self { wire: Wire(Default::default()), ends, said: [0; 2], heard: [0; 2] };
            for _ in 0..20 {
                for side in [0, 1] {
                    pair.ends[side].handshake(&End(&pair.wire, side)).unwrap();
                }
            }
            pair
        }

        fn say(&mut self, side: usize, count: usize) {
            let said = self.said[side];
            let bytes: Vec<u8> = (said..said + count).map(byte_at).collect();
            let halves = bytes.split_at(count / 3);
            let taken = self.ends[side]
                .write(&End(&self.wire, side), &[IoSlice::new(halves.0), IoSlice::new(halves.1)])
                .unwrap();
            if let Transfer::Bytes(taken) = taken {
                self.said[side] += taken;
            }
        }

        fn hear(&mut self, side: usize, room: usize) -> bool {
            let mut buffer = vec![0; room];
            let heard = self.ends[side].read(&End(&self.wire, side), &mut buffer).unwrap();
            let Transfer::Bytes(count) = heard else { return false };
            let at = self.heard[side];
            assert!(buffer[..count].iter().zip(at..).all(|(byte, at)| *byte == byte_at(at)));
            self.heard[side] += count;
            true
        }

        /// Another process goes on, or this one when that was in vain.
        fn move_on(&mut self, side: usize, in_vain: bool) {
            assert!(self.ends[side].make_portable());
            let Portable { keys, plain, unread, unsent } = self.ends[side].portable().unwrap();
            let keys = Keys::of_bytes(&keys.to_bytes()).unwrap();
            if !in_vain {
                self.ends[side] = Session::inherited(Portable { keys, plain, unread, unsent });
            }
        }

        fn new_keys(&mut self, side: usize) {
            match &mut self.ends[side].tls {
                Tls::Library(tls) => tls.refresh_traffic_keys().unwrap(),
                Tls::Records(records) => records.announce_keys(true),
                Tls::Lost => panic!("it is lost"),
            }
            self.ends[side].flush(&End(&self.wire, side)).unwrap();
        }

        /// Whether somebody would read: the poller tells of bytes of the socket, and the session of its own.
        fn is_told(&self, side: usize) -> bool {
            !self.wire.0[1 - side].borrow().is_empty() || self.ends[side].has_buffered()
        }

        /// Everything said arrives, and nobody reads who was not told.
        fn settle(&mut self) {
            loop {
                let mut was_told = false;
                for side in [0, 1] {
                    self.ends[side].flush(&End(&self.wire, side)).unwrap();
                    for (side, room) in [(1 - side, 5000), (side, 70_000)] {
                        if self.is_told(side) {
                            was_told = true;
                            self.hear(side, room);
                        }
                    }
                }
                if !was_told && self.ends.iter().all(|end| !end.wants_write()) {
                    break;
                }
            }
            assert_eq!(self.said, [self.heard[1], self.heard[0]]);
        }
    }

    fn byte_at(place: usize) -> u8 {
        (place * 31 + (place >> 8)) as u8
    }

    #[derive(Clone, Debug)]
    enum Step {
        Say(usize, usize),
        Hear(usize, usize),
        Move(usize, bool),
        NewKeys(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (0..2usize, 1..60_000usize).prop_map(|(side, count)| Step::Say(side, count)),
            4 => (0..2usize, 1..40_000usize).prop_map(|(side, room)| Step::Hear(side, room)),
            1 => (0..2usize, any::<bool>()).prop_map(|(side, in_vain)| Step::Move(side, in_vain)),
            1 => (0..2usize).prop_map(Step::NewKeys),
        ];
        proptest::collection::vec(step, 1..60)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

        #[test]
        fn sessions_go_on_elsewhere(steps in steps()) {
            let mut pair = Pair::new(&[Alpn::Trunkline]);
            for step in steps {
                match step {
                    Step::Say(side, count) => pair.say(side, count),
                    Step::Hear(side, room) => drop(pair.hear(side, room)),
                    Step::Move(side, in_vain) => pair.move_on(side, in_vain),
                    Step::NewKeys(side) => pair.new_keys(side),
                }
            }
            pair.settle();
            for side in [0, 1] {
                pair.say(side, 100);
            }
            pair.settle();
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

        /// A reader may stop anywhere: what it has not read is told of by the poller or by the session. Nothing comes
        /// behind it to remind anybody. That the peer has ended TLS, but not the connection, is told like a byte.
        #[test]
        fn nothing_is_forgotten_behind_a_reader_that_stops(
            version in 0..2usize,
            steps in proptest::collection::vec((0..2usize, any::<bool>(), 1..70_000usize), 1..60),
            ends in any::<bool>(),
        ) {
            let mut pair = Pair::of(&PARTIES.1[version], &[Alpn::Trunkline]);
            for (side, says, count) in steps {
                match says {
                    true => pair.say(side, count),
                    false => drop(pair.hear(side, count)),
                }
            }
            if ends {
                for side in [0, 1] {
                    while !pair.ends[side].flush(&End(&pair.wire, side)).unwrap() {
                        pair.hear(1 - side, 1000);
                    }
                    pair.ends[side].end(&End(&pair.wire, side)).unwrap();
                }
            }
            pair.settle();
            let ended = pair.ends.each_ref().map(|end| end.has_ended && !end.end_is_unread);
            prop_assert_eq!(ended, [ends; 2]);
        }
    }

    #[test]
    fn an_end_is_heard_and_stays() {
        for moved in [[true, false], [false, true], [true, true]] {
            let mut pair = Pair::new(&[Alpn::Trunkline]);
            (0..2).filter(|side| moved[*side]).for_each(|side| pair.move_on(side, false));
            pair.say(0, 100);
            pair.ends[0].end(&End(&pair.wire, 0)).unwrap();
            assert!(pair.hear(1, 100));
            let read = pair.ends[1].read(&End(&pair.wire, 1), &mut [0; 10]).unwrap();
            assert_eq!(read, Transfer::Ended, "{moved:?}");
            assert!(pair.ends[1].portable().is_none() && !pair.ends[1].make_portable());
        }
    }

    /// HTTP/2 is drained instead, and its secrets are not kept; a handshake is not over.
    #[test]
    fn what_stays() {
        let mut pair = Pair::new(&[Alpn::H2]);
        assert!(pair.ends.iter_mut().all(|end| !end.make_portable()));
        pair.say(0, 10);
        pair.settle();
        let client = &PARTIES.1[0];
        let mut begun = Session::client(client, NAME.to_owned().try_into().unwrap(), &[]).unwrap();
        assert!(!begun.make_portable() && begun.portable().is_none());
    }

    #[test]
    fn nothing_shows_secrets() {
        let mut pair = Pair::new(&[Alpn::Trunkline]);
        pair.move_on(0, false);
        let portable = pair.ends[0].portable().unwrap();
        let shown = format!("{portable:?} {:?}", pair.ends[0]);
        assert!(shown.contains("Keys { suite: TLS13_AES_256_GCM_SHA384, .. }"), "{shown}");
        let bytes = portable.keys.to_bytes();
        for cut in 0..bytes.len() {
            assert!(Keys::of_bytes(&bytes[..cut]).is_none());
        }
    }
}
