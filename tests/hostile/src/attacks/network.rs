//! Attacks from the network. They come from an address of their own, so that a source's share can be told.

use super::{Attacker, WITHOUT_END};
use crate::http2::Http2;
use socket2::{Domain, Protocol, Socket, Type};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::time::Duration;

/// Where attackers come from.
pub(super) const OWN_ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 66);
/// A server that takes nothing more for so long has stopped.
const FULL_FOR: Duration = Duration::from_secs(3);
/// Bytes of a message of which one is missing.
const HALF_BYTES: usize = 1 << 20;
/// The same of the largest there are.
const LARGE_BYTES: usize = 4 << 20;
/// A header so long that the table holds one of it, and how often a request of 150 bytes names it.
const HEADER_BYTES: usize = 3900;
const REFERENCES: usize = 15;
/// Blocks of 128 KiB in a message just below the limit of 4 MiB.
const BOMB_BLOCKS: usize = 31;

/// Connections that say nothing.
pub(super) fn silent(attacker: &mut Attacker, times: usize) -> Result<String, String> {
    for _ in 0..times {
        match connect(&attacker.address) {
            Ok(stream) => attacker.streams.push(stream),
            Err(why) => return Ok(format!("{} connections, {why}", attacker.streams.len())),
        }
    }
    Ok(format!("{} connections", attacker.streams.len()))
}

/// One connection whose streams ask for messages without end and take none.
pub(super) fn unread(attacker: &mut Attacker, times: usize) -> Result<String, String> {
    let mut http = begin(attacker, 0)?;
    let opened = (0..times).take_while(|_| http.call("/probe.v1.Probe/Count", WITHOUT_END).is_ok()).count();
    attacker.connections.push(http);
    Ok(format!("{opened} streams"))
}

/// So many connections, each with a hundred streams that ask for messages without end and take none.
pub(super) fn slow(attacker: &mut Attacker, times: usize) -> Result<String, String> {
    let mut streams = 0;
    for _ in 0..times {
        let mut http = begin(attacker, 0)?;
        streams += (0..100).take_while(|_| http.call("/probe.v1.Probe/Count", WITHOUT_END).is_ok()).count();
        attacker.connections.push(http);
    }
    Ok(format!("{streams} streams of {times} connections"))
}

/// One connection whose streams ask for messages that are of no use after two seconds, and take none.
pub(super) fn overdue(attacker: &mut Attacker, times: usize) -> Result<String, String> {
    let mut http = begin(attacker, 0)?;
    let mut call = || http.call_within("/probe.v1.Probe/Count", WITHOUT_END, "2S");
    let opened = (0..times).take_while(|_| call().is_ok()).count();
    attacker.connections.push(http);
    Ok(format!("{opened} streams"))
}

/// Connections each of whose streams has said all of a message but its last byte.
pub(super) fn halves(attacker: &mut Attacker, times: usize) -> Result<String, String> {
    by_halves(attacker, times, HALF_BYTES)
}

/// The same, of messages as large as they may be.
pub(super) fn large_halves(attacker: &mut Attacker, times: usize) -> Result<String, String> {
    by_halves(attacker, times, LARGE_BYTES)
}

fn by_halves(attacker: &mut Attacker, times: usize, bytes: usize) -> Result<String, String> {
    let mut streams = 0;
    for _ in 0..times {
        let mut http = begin(attacker, 0)?;
        let by_halves = |http: &mut Http2| http.call_by_halves("/probe.v1.Probe/Echo", bytes - 100);
        streams += (0..20).take_while(|_| by_halves(&mut http).is_ok()).count();
        attacker.connections.push(http);
    }
    Ok(format!("{streams} streams of {times} connections"))
}

/// Requests of 150 bytes whose headers are 60 KiB.
pub(super) fn references(attacker: &mut Attacker, times: usize) -> Result<String, String> {
    let mut http = begin(attacker, 1 << 16)?;
    http.plant("/probe.v1.Probe/Echo", HEADER_BYTES).map_err(|error| error.to_string())?;
    let mut sent = 0;
    while sent < times && http.refer("/probe.v1.Probe/Echo", REFERENCES).is_ok() {
        sent += 1;
        // What it has to say is taken now and then, so that it goes on.
        if sent.is_multiple_of(50) && http.read().is_err() {
            break;
        }
    }
    attacker.connections.push(http);
    Ok(format!("{sent} requests"))
}

/// Compressed requests of 150 bytes that become 4 MiB each.
pub(super) fn bombs(attacker: &mut Attacker, times: usize) -> Result<String, String> {
    let mut http = begin(attacker, 1 << 16)?;
    let mut sent = 0;
    while sent < times && http.call_packed("/probe.v1.Probe/Echo", BOMB_BLOCKS).is_ok() {
        sent += 1;
        if sent.is_multiple_of(50) && http.read().is_err() {
            break;
        }
    }
    attacker.connections.push(http);
    Ok(format!("{sent} requests"))
}

/// Calls of methods that do not exist, of a service that is there.
pub(super) fn learned(attacker: &mut Attacker, times: usize) -> Result<String, String> {
    let mut http = begin(attacker, 1 << 16)?;
    let mut made = 0;
    while made < times && http.call(&format!("/hostile.v1.N0/M{made}"), &[]).is_ok() {
        made += 1;
    }
    attacker.connections.push(http);
    Ok(format!("{made} calls"))
}

fn begin(attacker: &Attacker, window: u32) -> Result<Http2, String> {
    Http2::begin(patient(&attacker.address)?, window).map_err(|error| error.to_string())
}

/// A connection that waits for its daemon, and not for good.
pub(super) fn patient(address: &str) -> Result<TcpStream, String> {
    let stream = connect(address)?;
    stream.set_write_timeout(Some(FULL_FOR)).map_err(|error| error.to_string())?;
    stream.set_read_timeout(Some(FULL_FOR)).map_err(|error| error.to_string())?;
    Ok(stream)
}

/// A connection from where attackers are.
pub(super) fn connect(address: &str) -> Result<TcpStream, String> {
    let to: SocketAddr = address.parse().map_err(|_| format!("{address:?} is no address"))?;
    let dial = || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
        socket.bind(&SocketAddr::V4(SocketAddrV4::new(OWN_ADDRESS, 0)).into())?;
        socket.connect(&to.into())?;
        Ok(TcpStream::from(socket))
    };
    dial().map_err(|error: std::io::Error| error.to_string())
}
