//! One bare TCP stream: requests one way, eight bytes back for each, nothing else.
//!
//! With one outstanding this is the blocking ping-pong every linked RPC library stands on. With many it is what a
//! stream can move: the sender fills a region of `outstanding × request_bytes` round robin and writes from it, the
//! receiver reads into one of the same size. Those are the buffer habits of a caller that builds each request in place
//! and of a daemon that reads it into the place where it is used.

use crate::harness::children::{Failure, write_file};
use crate::harness::orders::{Answer, Caller, Order, Times};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;

const REPLY_BYTES: usize = 8;
/// Most bytes written or read at once.
const CHUNK_BYTES_MAX: usize = 1 << 20;

/// The calling end.
#[derive(Debug)]
pub struct StreamClient {
    port: u16,
    /// Every request is filled in, each in its own place: what a caller does. Else one buffer is sent again and again
    /// and received into one: the most the machine gives.
    filled: bool,
    /// Kept from order to order: the first touch of a page is not what is measured.
    region: Vec<u8>,
    /// What fills a request.
    payload: Vec<u8>,
}

impl StreamClient {
    /// A client of the sink at `port`.
    pub fn new(port: &str, habits: &str) -> Result<Self, Failure> {
        Ok(Self { port: port.parse()?, filled: habits == "filled", region: Vec::new(), payload: Vec::new() })
    }
}

impl Caller for StreamClient {
    fn carry_out(&mut self, order: Order) -> Result<Answer, Failure> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_nodelay(true)?;
        let places = if self.filled { order.outstanding } else { 1 };
        for number in [order.request_bytes, places] {
            stream.write_all(&u64::try_from(number)?.to_le_bytes())?;
        }
        self.region.resize(order.request_bytes * places, 0);
        self.payload.resize(order.request_bytes, 7);
        let (mut replies, mut place, mut half) = (vec![0; order.outstanding * REPLY_BYTES], 0, 0);
        let mut times = Times::start(order)?;
        while times.go_on() || times.under_way() > 0 {
            place = self.send(&mut stream, order, place, &mut times)?;
            half += read_some(&mut stream, &mut replies)?;
            for _ in 0..half / REPLY_BYTES {
                times.answered()?;
            }
            // Bytes of a reply of which the rest is still to come.
            half %= REPLY_BYTES;
        }
        Ok(times.answer())
    }
}

impl StreamClient {
    /// Sends as much as may be outstanding, from a place of the region on, as many requests in one write as lie side by
    /// side. With the next place, all counted in requests.
    fn send(
        &mut self,
        stream: &mut TcpStream,
        order: Order,
        mut place: usize,
        times: &mut Times,
    ) -> Result<usize, Failure> {
        let bytes = order.request_bytes;
        let places = self.region.len() / bytes;
        while times.go_on() && times.under_way() < order.outstanding {
            let free = (order.outstanding - times.under_way()).min(places - place);
            let batch = free.min((CHUNK_BYTES_MAX / bytes).max(1));
            let requests = &mut self.region[place * bytes..(place + batch) * bytes];
            for request in requests.chunks_exact_mut(bytes) {
                times.sent();
                if self.filled {
                    request.copy_from_slice(&self.payload);
                }
            }
            stream.write_all(requests)?;
            place = (place + batch) % places;
        }
        Ok(place)
    }
}

/// The answering process: serves one connection after the other.
pub fn sink(port_file: &Path) -> Result<(), Failure> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    write_file(port_file, &listener.local_addr()?.port().to_string())?;
    let mut region = Vec::new();
    loop {
        let (stream, _) = listener.accept()?;
        // A client that leaves between two orders is the normal end.
        let _ = swallow(stream, &mut region);
    }
}

fn swallow(mut stream: TcpStream, region: &mut Vec<u8>) -> Result<(), Failure> {
    stream.set_nodelay(true)?;
    let request_bytes = read_number(&mut stream)?;
    let places = read_number(&mut stream)?;
    region.resize(request_bytes * places, 0);
    // As many as one read can complete, and the one it begins with.
    let replies = vec![0; (CHUNK_BYTES_MAX / request_bytes + 1) * REPLY_BYTES];
    let (mut at, mut partial) = (0, 0);
    loop {
        let end = region.len().min(at + CHUNK_BYTES_MAX);
        let read = read_some(&mut stream, &mut region[at..end])?;
        at = (at + read) % region.len();
        partial += read;
        stream.write_all(&replies[..partial / request_bytes * REPLY_BYTES])?;
        partial %= request_bytes;
    }
}

fn read_number(stream: &mut TcpStream) -> Result<usize, Failure> {
    let mut bytes = [0; 8];
    stream.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes).try_into()?)
}

fn read_some(stream: &mut TcpStream, into: &mut [u8]) -> Result<usize, Failure> {
    match stream.read(into)? {
        0 => Err("the other end has gone".into()),
        read => Ok(read),
    }
}
