//! A client of HTTP/2 made of frames, which reads only if it is told to.

use std::io::{Read, Write};
use std::net::TcpStream;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const FRAME_BYTES_MAX: usize = 16 << 10;
/// The newest entry of the peer's table of headers, in a header block.
const NEWEST: u8 = 0x80 | 62;

/// A connection.
pub struct Http2 {
    stream: TcpStream,
    next: u32,
}

impl Http2 {
    /// Begins; streams of the server's may send `window` bytes each before they are read.
    ///
    /// # Errors
    /// The socket's.
    pub fn begin(mut stream: TcpStream, window: u32) -> std::io::Result<Self> {
        stream.write_all(PREFACE)?;
        let mut setting = vec![0, 4];
        setting.extend(window.to_be_bytes());
        let mut http = Self { stream, next: 1 };
        http.frame(SETTINGS, 0, 0, &setting)?;
        // The server's settings hold once they are acknowledged; they are the first it says.
        http.read()?;
        http.frame(SETTINGS, ACK, 0, &[])?;
        Ok(http)
    }

    /// Opens a stream that calls `path`, and says its whole request.
    ///
    /// # Errors
    /// The socket's.
    pub fn call(&mut self, path: &str, message: &[u8]) -> std::io::Result<()> {
        let stream = self.open(&request(path))?;
        self.frame(DATA, END_STREAM, stream, &framed(message.len() as u32, message))
    }

    /// Opens a stream and says `bytes` of a message that is to be a byte longer.
    ///
    /// # Errors
    /// The socket's.
    pub fn call_by_halves(&mut self, path: &str, bytes: usize) -> std::io::Result<()> {
        let stream = self.open(&request(path))?;
        let said = framed(bytes as u32 + 1, &vec![0; bytes]);
        said.chunks(FRAME_BYTES_MAX).try_for_each(|part| self.frame(DATA, 0, stream, part))
    }

    /// The same call, with a time by which its answer is of no use any more.
    ///
    /// # Errors
    /// The socket's.
    pub fn call_within(&mut self, path: &str, message: &[u8], timeout: &str) -> std::io::Result<()> {
        let mut block = request(path);
        block.push(0x00);
        string(&mut block, "grpc-timeout");
        string(&mut block, timeout);
        let stream = self.open(&block)?;
        self.frame(DATA, END_STREAM, stream, &framed(message.len() as u32, message))
    }

    /// Opens a stream and says a message that zstd has made so many times 128 KiB of zeros into four bytes each.
    ///
    /// # Errors
    /// The socket's.
    pub fn call_packed(&mut self, path: &str, blocks: usize) -> std::io::Result<()> {
        let mut block = request(path);
        block.push(0x00);
        string(&mut block, "grpc-encoding");
        string(&mut block, "zstd");
        let stream = self.open(&block)?;
        let message = zstd_zeros(blocks);
        let mut said = framed(message.len() as u32, &message);
        said[0] = 1;
        self.frame(DATA, END_STREAM, stream, &said)
    }

    /// Puts one long header into the server's table: those who name it later say as much in a byte.
    ///
    /// # Errors
    /// The socket's.
    pub fn plant(&mut self, path: &str, bytes: usize) -> std::io::Result<()> {
        let mut block = request(path);
        block.push(0x40);
        string(&mut block, "x");
        string(&mut block, &"y".repeat(bytes));
        self.open(&block).map(drop)
    }

    /// Opens a stream whose header block names that header `times` times.
    ///
    /// # Errors
    /// The socket's.
    pub fn refer(&mut self, path: &str, times: usize) -> std::io::Result<()> {
        let mut block = request(path);
        block.extend(std::iter::repeat_n(NEWEST, times));
        let stream = self.open(&block)?;
        self.frame(DATA, END_STREAM, stream, &framed(0, &[]))
    }

    /// Takes what the server says next, or nothing if it says nothing for as long as the socket waits, and forgets it.
    ///
    /// # Errors
    /// The socket's, its end among them.
    pub fn read(&mut self) -> std::io::Result<usize> {
        match self.stream.read(&mut [0; 64 << 10]) {
            Ok(0) => Err(std::io::ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(0),
            read => read,
        }
    }

    fn open(&mut self, block: &[u8]) -> std::io::Result<u32> {
        let stream = self.next;
        self.next += 2;
        self.frame(HEADERS, END_HEADERS, stream, block)?;
        Ok(stream)
    }

    fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> std::io::Result<()> {
        let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        self.stream.write_all(&frame)
    }
}

/// The header block of a gRPC request: POST, http, the path, and what must be there.
fn request(path: &str) -> Vec<u8> {
    let mut block = vec![0x83, 0x86, 0x04];
    string(&mut block, path);
    block.push(0x01);
    string(&mut block, "host");
    for (name, value) in [("content-type", "application/grpc"), ("te", "trailers")] {
        block.push(0x00);
        string(&mut block, name);
        string(&mut block, value);
    }
    block
}

/// A frame of zstd (RFC 8878): its head names a window of 4 MiB, and each block is one byte, repeated.
fn zstd_zeros(blocks: usize) -> Vec<u8> {
    const BLOCK_BYTES: u32 = 128 << 10;
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x60];
    for number in 1..=blocks {
        let head = BLOCK_BYTES << 3 | 1 << 1 | u32::from(number == blocks);
        frame.extend(&head.to_le_bytes()[..3]);
        frame.push(0);
    }
    frame
}

/// A string as HPACK writes it, without Huffman's code.
fn string(block: &mut Vec<u8>, text: &str) {
    match text.len() {
        short @ 0..127 => block.push(short as u8),
        long => {
            block.push(127);
            let mut rest = long - 127;
            while rest >= 128 {
                block.push(rest as u8 | 128);
                rest >>= 7;
            }
            block.push(rest as u8);
        }
    }
    block.extend(text.as_bytes());
}

fn framed(says: u32, message: &[u8]) -> Vec<u8> {
    let mut framed = vec![0];
    framed.extend(says.to_be_bytes());
    framed.extend(message);
    framed
}
