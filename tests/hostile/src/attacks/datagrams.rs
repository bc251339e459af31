//! Attacks by datagrams of R2P2, in the mode of its authors: who sends them proves nothing.

use super::Attacker;
use super::network::OWN_ADDRESS;
use std::net::UdpSocket;
use std::time::Duration;

/// Types of datagrams, with their policy.
const REQUEST: u8 = 0x00;
const REPLY: u8 = 0x11;
const FEEDBACK: u8 = 0x20;
const ACK: u8 = 0x31;
const DROP: u8 = 0x41;
/// Flags.
const FIRST: u8 = 0x80;
const LAST: u8 = 0x40;
const HEADER_BYTES: usize = 8;
/// Bytes of one behind its header.
const PACKET_BYTES: usize = 1464;
/// An answer is waited for so long, and then asked for again, so often.
const PATIENCE: Duration = Duration::from_millis(500);
const TRIES: usize = 100;
/// gRPC's PERMISSION_DENIED, in the third byte of a reply.
const PERMISSION_DENIED: u8 = 7;

/// Requests of a service that no stranger may call. All that are answered are refused.
pub(super) fn refused(attacker: &mut Attacker, times: usize) -> Result<String, String> {
    let socket = socket(attacker)?;
    socket.set_read_timeout(Some(PATIENCE)).map_err(|error| error.to_string())?;
    let mut answer = [0; HEADER_BYTES + PACKET_BYTES];
    for number in 0..times as u16 {
        let mut answered = false;
        for _ in 0..TRIES {
            socket.send(&request(number)).map_err(|error| error.to_string())?;
            if let Ok(bytes) = socket.recv(&mut answer) {
                answered = bytes > HEADER_BYTES + 2 && answer[2] == REPLY;
                break;
            }
        }
        match (answered, answer[HEADER_BYTES + 2]) {
            (true, PERMISSION_DENIED) => {}
            (true, code) => return Err(format!("request {number} ended with {code}")),
            (false, _) => return Err(format!("request {number} was not answered")),
        }
    }
    Ok(format!("{times} times PERMISSION_DENIED"))
}

/// Requests whose replies are not read.
pub(super) fn requests(attacker: &mut Attacker, times: usize) -> Result<String, String> {
    send(attacker, times, |number| request(number as u16))
}

/// Words about requests that nobody has made: feedback, acknowledgements, drops and replies.
pub(super) fn forged(attacker: &mut Attacker, times: usize) -> Result<String, String> {
    send(attacker, times, |number| {
        let id = number as u16;
        match number % 4 {
            0 => packet(
                FEEDBACK,
                FIRST | LAST,
                id,
                1,
                &[&id.to_be_bytes(), &[0x80, 0xe8, 127, 0, 0, 1][..]].concat(),
            ),
            1 => packet(ACK, FIRST | LAST, id, 1, b"ACK"),
            2 => packet(DROP, FIRST | LAST, id, 1, b"DROP"),
            _ => packet(REPLY, FIRST | LAST, id, 1, &[0; 100]),
        }
    })
}

fn send(attacker: &mut Attacker, times: usize, said: impl Fn(usize) -> Vec<u8>) -> Result<String, String> {
    let socket = socket(attacker)?;
    // One that finds no room is lost, as on a network.
    let sent = (0..times).filter(|number| socket.send(&said(*number)).is_ok()).count();
    attacker.datagrams.push(socket);
    Ok(format!("{sent} datagrams"))
}

fn socket(attacker: &Attacker) -> Result<UdpSocket, String> {
    let socket = UdpSocket::bind((OWN_ADDRESS, 0)).map_err(|error| error.to_string())?;
    socket.connect(&attacker.port).map_err(|error| format!("{:?}: {error}", attacker.port))?;
    Ok(socket)
}

/// A whole call of an echo.
fn request(id: u16) -> Vec<u8> {
    packet(REQUEST, FIRST | LAST, id, 1, &envelope("/probe.v1.Probe/Echo"))
}

/// What a request says: a method, and a message with a text.
fn envelope(path: &str) -> Vec<u8> {
    let mut envelope = vec![1, 0];
    envelope.extend((path.len() as u16).to_be_bytes());
    envelope.extend([0; 20]);
    envelope.extend(path.as_bytes());
    envelope.extend(b"\x0a\x05hello");
    envelope
}

fn packet(kind: u8, flags: u8, id: u16, order: u16, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0xcc, HEADER_BYTES as u8, kind, flags];
    packet.extend(id.to_be_bytes());
    packet.extend(order.to_be_bytes());
    packet.extend(payload);
    packet
}
