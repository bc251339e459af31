//! A peer of the native protocol made of frames, which reads only if it is told to.

use std::io::{Read, Write};
use std::net::TcpStream;

const PREAMBLE: &[u8; 4] = b"TRK1";
const HEADER_BYTES: usize = 16;
/// Types of frames.
const HELLO: u8 = 1;
const CALL: u8 = 2;
const SCHEMA: u8 = 12;
const CLOSE: u8 = 15;
const SEGMENT: u8 = 16;
/// Flags.
const END: u8 = 0x01;
const PROTOBUF: u8 = 0x02;
const METADATA: u8 = 0x10;
const TOTAL: u8 = 0x20;
const MESSAGE: u8 = 0x40;
/// Parts of a message in one frame.
const SEGMENT_BYTES: usize = 64 << 10;

/// A connection.
pub struct Native {
    stream: TcpStream,
    methods: u16,
    next: u32,
}

impl Native {
    /// Says hello, and nothing else.
    ///
    /// # Errors
    /// The socket's.
    pub fn greet(stream: TcpStream) -> std::io::Result<Self> {
        let mut native = Self { stream, methods: 0, next: 1 };
        native.frame(HELLO, 0, 0, 0, &hello())?;
        Ok(native)
    }

    /// Says hello, and hears the other's.
    ///
    /// # Errors
    /// The socket's.
    pub fn begin(stream: TcpStream) -> std::io::Result<Self> {
        let mut native = Self::greet(stream)?;
        let mut header = [0; HEADER_BYTES];
        native.stream.read_exact(&mut header)?;
        let length = u32::from_le_bytes([header[12], header[13], header[14], header[15]]);
        if header[4] != HELLO {
            return Err(std::io::Error::other(format!("it says {header:?} first")));
        }
        native.stream.read_exact(&mut vec![0; length as usize])?;
        Ok(native)
    }

    /// Names a method, of whose types it knows protobuf only.
    ///
    /// # Errors
    /// The socket's.
    pub fn announce(&mut self, path: &str) -> std::io::Result<u16> {
        let method = self.methods;
        self.methods += 1;
        self.frame(SCHEMA, 0, method, 0, &[&[0; 16], path.as_bytes()].concat())?;
        Ok(method)
    }

    /// Calls a method, with its whole request.
    ///
    /// # Errors
    /// The socket's.
    pub fn call(&mut self, method: u16, message: &[u8]) -> std::io::Result<()> {
        let stream = self.next_stream();
        self.frame(CALL, END | PROTOBUF | MESSAGE, method, stream, message)
    }

    /// Calls a method with a request of `total` bytes, of which it says `came`.
    ///
    /// # Errors
    /// The socket's.
    pub fn call_by_parts(&mut self, method: u16, total: u32, came: usize) -> std::io::Result<()> {
        let stream = self.next_stream();
        self.frame(CALL, END | PROTOBUF | MESSAGE | TOTAL, method, stream, &total.to_le_bytes())?;
        vec![0; came].chunks(SEGMENT_BYTES).try_for_each(|part| self.frame(SEGMENT, 0, 0, stream, part))
    }

    /// Calls a method with so much metadata, and leaves its request open.
    ///
    /// # Errors
    /// The socket's.
    pub fn call_without_request(&mut self, method: u16, metadata_bytes: u16) -> std::io::Result<()> {
        let stream = self.next_stream();
        let mut metadata = vec![1, 0, 1, 0];
        metadata.extend(metadata_bytes.to_le_bytes());
        metadata.push(b'x');
        metadata.resize(metadata.len() + usize::from(metadata_bytes), b'y');
        let block = [&(metadata.len() as u32).to_le_bytes(), &*metadata].concat();
        self.frame(CALL, METADATA, method, stream, &block)
    }

    /// Says that it leaves, and stays.
    ///
    /// # Errors
    /// The socket's.
    pub fn say_close(&mut self) -> std::io::Result<()> {
        self.frame(CLOSE, 0, 0, 0, b"good bye")
    }

    /// Whether the other side has closed it. What it has said meanwhile is forgotten.
    pub fn is_closed(&mut self) -> bool {
        let mut buffer = [0; 4096];
        let _ = self.stream.set_nonblocking(true);
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() != std::io::ErrorKind::WouldBlock,
            }
        }
    }

    fn next_stream(&mut self) -> u32 {
        let stream = self.next;
        self.next += 2;
        stream
    }

    fn frame(&mut self, kind: u8, flags: u8, code: u16, stream: u32, body: &[u8]) -> std::io::Result<()> {
        let mut frame = Vec::with_capacity(HEADER_BYTES + body.len());
        frame.extend(PREAMBLE);
        frame.extend([kind, flags]);
        frame.extend(code.to_le_bytes());
        frame.extend(stream.to_le_bytes());
        frame.extend((body.len() as u32).to_le_bytes());
        frame.extend(body);
        self.stream.write_all(&frame)
    }
}

/// Version 1, no features, and windows of a usual daemon.
fn hello() -> Vec<u8> {
    let mut hello = vec![1, 0, 1, 0];
    hello.extend([0; 16]);
    let [window, connection_window, segment]: [u32; 3] = [1 << 20, 64 << 20, 1 << 20];
    let [message, metadata, streams, methods] = [i32::MAX as u32, 32 << 10, 4096, 4096];
    for limit in [window, connection_window, segment, message, metadata, streams, methods] {
        hello.extend(limit.to_le_bytes());
    }
    hello.extend([0, 0]);
    hello
}
