//! Messages with their length before them, on a pipe.

use std::io::{self, Read, Write};

/// Longest message read; the suites' own stay below a few MiB, and a length is not a reason to allocate.
const BYTES_MAX: u32 = 256 << 20;

/// Whose first byte a length begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteOrder {
    /// protobuf's runner.
    Little,
    /// connectrpc's runner.
    Big,
}

/// The next message; `None` where the pipe ends between two.
///
/// # Errors
/// If it ends elsewhere, or says an absurd length.
pub fn read(from: &mut impl Read, order: ByteOrder) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    if from.read(&mut length[..1])? == 0 {
        return Ok(None);
    }
    from.read_exact(&mut length[1..])?;
    let bytes = match order {
        ByteOrder::Little => u32::from_le_bytes(length),
        ByteOrder::Big => u32::from_be_bytes(length),
    };
    if bytes > BYTES_MAX {
        return Err(io::Error::other(format!("a message of {bytes} bytes; at most {BYTES_MAX} are read")));
    }
    let mut message = vec![0; bytes as usize];
    from.read_exact(&mut message)?;
    Ok(Some(message))
}

/// Writes a message, and all of it.
///
/// # Errors
/// If the pipe is closed.
pub fn write(to: &mut impl Write, order: ByteOrder, message: &[u8]) -> io::Result<()> {
    let length = u32::try_from(message.len()).map_err(io::Error::other)?;
    let length = match order {
        ByteOrder::Little => length.to_le_bytes(),
        ByteOrder::Big => length.to_be_bytes(),
    };
    to.write_all(&length)?;
    to.write_all(message)?;
    to.flush()
}

#[cfg(test)]
mod tests {
    //! What is written is read, and a pipe that ends in the middle is no message.
    use super::*;

    #[test]
    fn messages_survive_a_pipe() {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let mut pipe = Vec::new();
            for message in [&b"one"[..], b"", b"three"] {
                write(&mut pipe, order, message).unwrap();
            }
            let mut rest = pipe.as_slice();
            assert_eq!(read(&mut rest, order).unwrap().as_deref(), Some(&b"one"[..]));
            assert_eq!(read(&mut rest, order).unwrap().as_deref(), Some(&b""[..]));
            assert_eq!(read(&mut rest, order).unwrap().as_deref(), Some(&b"three"[..]));
            assert_eq!(read(&mut rest, order).unwrap(), None);
            assert!(read(&mut &pipe[..2], order).is_err());
            assert!(read(&mut &pipe[..6], order).is_err());
        }
        assert!(read(&mut &[0xff; 8][..], ByteOrder::Big).is_err());
    }
}
