//! One request to a collector and its answer: HTTP/1.1, a connection each.

use crate::connection::{CollectorAddress, CollectorConnection};
use httparse::{EMPTY_HEADER, Status};
use std::io;
use std::time::{Duration, Instant};

/// Time of a whole exchange, the connection included; looking a name up is the system's, and has its own.
pub const TIME_MAX: Duration = Duration::from_secs(5);
/// So much of an answer is read. Those of collectors have a few hundred bytes.
pub const ANSWER_BYTES_MAX: usize = 64 * 1024;
const FIELDS_MAX: usize = 64;

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Posted {
    /// It was taken, but for so many of its items.
    Taken { but: u64 },
    /// It was refused, and will be again.
    Refused(u16),
    /// It may be taken later.
    Busy(u16),
}

/// Posts a body of JSON to `signal` (`metrics` or `traces`).
///
/// # Errors
/// The collector cannot be reached, does not answer in time, or does not speak HTTP.
pub(crate) fn post(address: &CollectorAddress, signal: &str, body: &str) -> io::Result<Posted> {
    let until = Instant::now() + TIME_MAX;
    let mut connection = CollectorConnection::open(address, until)?;
    let bracket = address.host.contains(':');
    let (open, close) = if bracket { ("[", "]") } else { ("", "") };
    let head = format!(
        "POST {}/v1/{signal} HTTP/1.1\r\nhost: {open}{}{close}:{}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nuser-agent: trunkline/{}\r\nconnection: close\r\n\r\n",
        address.path,
        address.host,
        address.port,
        body.len(),
        env!("CARGO_PKG_VERSION")
    );
    // A collector that answers before it has read all says why.
    let written = connection.write(head.as_bytes()).and_then(|()| connection.write(body.as_bytes()));
    match (answer(&mut connection), written) {
        (Ok(outcome), _) => Ok(outcome),
        // An alert of TLS says why nothing is taken any more.
        (Err(error), _) if error.kind() == io::ErrorKind::InvalidData => Err(error),
        (Err(_), Err(error)) | (Err(error), Ok(())) => Err(error),
    }
}

/// Reads until the answer is whole, or long enough.
fn answer(connection: &mut CollectorConnection) -> io::Result<Posted> {
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let head = Head::read(&bytes)?;
        let is_whole = head.as_ref().is_some_and(|head| head.is_whole(bytes.len()));
        if is_whole || bytes.len() >= ANSWER_BYTES_MAX {
            return head.map(|head| head.outcome(&bytes)).ok_or_else(malformed);
        }
        match connection.read(&mut piece)? {
            0 => return head.map(|head| head.outcome(&bytes)).ok_or_else(cut),
            count => bytes.extend_from_slice(&piece[..count]),
        }
    }
}

fn cut() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the connection ends before an answer")
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the answer is no answer of HTTP/1.1")
}

/// The head of an answer.
#[derive(Debug)]
struct Head {
    status: u16,
    bytes: usize,
    body_bytes: Option<usize>,
}

impl Head {
    /// `None` while it is not all there.
    fn read(bytes: &[u8]) -> io::Result<Option<Self>> {
        let mut fields = [EMPTY_HEADER; FIELDS_MAX];
        let mut parsed = httparse::Response::new(&mut fields);
        let Status::Complete(head_bytes) = parsed.parse(bytes).map_err(|_| malformed())? else {
            return Ok(None);
        };
        let length = parsed.headers.iter().find(|field| field.name.eq_ignore_ascii_case("content-length"));
        let body_bytes = length.and_then(|field| std::str::from_utf8(field.value).ok()?.trim().parse().ok());
        Ok(Some(Self { status: parsed.code.unwrap_or(0), bytes: head_bytes, body_bytes }))
    }

    /// Of what status alone decides, the body is not waited for.
    fn is_whole(&self, bytes: usize) -> bool {
        let has_body = (200..300).contains(&self.status);
        !has_body || self.body_bytes.is_some_and(|body| bytes - self.bytes >= body)
    }

    fn outcome(&self, bytes: &[u8]) -> Posted {
        match self.status {
            200..300 => Posted::Taken { but: rejected(bytes.get(self.bytes..).unwrap_or_default()) },
            // Those for which the protocol says that it may be tried again.
            status @ (429 | 502 | 503 | 504) => Posted::Busy(status),
            status => Posted::Refused(status),
        }
    }
}

/// Items of the request that were not taken (`partialSuccess`).
fn rejected(body: &[u8]) -> u64 {
    let answer: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let of = |key: &str| {
        let count = answer.get("partialSuccess")?.get(key)?;
        count.as_u64().or_else(|| count.as_str()?.parse().ok())
    };
    of("rejectedSpans").or_else(|| of("rejectedDataPoints")).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    //! Shows what answers mean, and that no bytes do harm.
    use super::*;
    use proptest::prelude::*;

    fn outcome(bytes: &[u8]) -> Option<Posted> {
        Head::read(bytes).ok().flatten().map(|head| head.outcome(bytes))
    }

    #[test]
    fn what_answers_mean() {
        let table: [(&str, Option<Posted>); 9] = [
            ("HTTP/1.1 200 OK\r\n\r\n{}", Some(Posted::Taken { but: 0 })),
            (
                "HTTP/1.1 200 OK\r\n\r\n{\"partialSuccess\":{\"rejectedSpans\":\"3\"}}",
                Some(Posted::Taken { but: 3 }),
            ),
            (
                "HTTP/1.1 200 OK\r\n\r\n{\"partialSuccess\":{\"rejectedDataPoints\":4}}",
                Some(Posted::Taken { but: 4 }),
            ),
            ("HTTP/1.1 200 OK\r\n\r\nno json", Some(Posted::Taken { but: 0 })),
            ("HTTP/1.1 400 Bad Request\r\n\r\n", Some(Posted::Refused(400))),
            ("HTTP/1.1 429 Too Many Requests\r\n\r\n", Some(Posted::Busy(429))),
            ("HTTP/1.1 503 x\r\n\r\n", Some(Posted::Busy(503))),
            ("HTTP/1.1 200", None),
            ("SSH-2.0-x\r\n", None),
        ];
        for (bytes, expected) in table {
            assert_eq!(outcome(bytes.as_bytes()), expected, "{bytes}");
        }
        let head = Head::read(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n").unwrap().unwrap();
        assert!(!head.is_whole(head.bytes + 4) && head.is_whole(head.bytes + 5));
        let endless = Head::read(b"HTTP/1.1 200 OK\r\n\r\n").unwrap().unwrap();
        assert!(!endless.is_whole(1000), "it ends with its connection, or its time");
    }

    proptest! {
        #[test]
        fn any_bytes_have_an_outcome(bytes in prop::collection::vec(any::<u8>(), 0..300), sound in any::<bool>()) {
            let head: &[u8] = if sound { b"HTTP/1.1 200 OK\r\n\r\n" } else { b"" };
            let _ = outcome(&[head, &bytes].concat());
        }
    }
}
