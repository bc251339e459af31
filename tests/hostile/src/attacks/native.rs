//! Attacks by what seems to be a daemon.

use super::network::{connect, patient};
use super::{Attacker, WITHOUT_END};
use crate::native::Native;

const ECHO: &str = "/probe.v1.Probe/Echo";
/// A message that takes of what the usual ones of a receive heap share.
const USUAL_BYTES: u32 = 1 << 20;
/// One of which most comes.
const LARGE_BYTES: u32 = 4 << 20;
/// As much metadata as a call may have, but for its frame.
const METADATA_BYTES: u16 = 30 << 10;
/// Calls of one connection.
const CALLS: usize = 100;
/// Those that have metadata.
const METADATA_CALLS: usize = 1000;
/// Methods of one connection, and the longest path but for its service.
const METHODS: usize = 4096;
const NAME_BYTES: usize = 1000;

/// Connections that say hello, and then nothing.
pub(super) fn greeted(attacker: &mut Attacker, times: usize) -> Result<String, String> {
    for _ in 0..times {
        match connect(&attacker.address) {
            // One that was refused has ended already.
            Ok(stream) => attacker.natives.extend(Native::greet(stream)),
            Err(why) => return Ok(format!("{} connections, {why}", attacker.natives.len())),
        }
    }
    Ok(format!("{} connections", attacker.natives.len()))
}

/// Connections that say that they leave, and stay.
pub(super) fn leaving(attacker: &mut Attacker, times: usize) -> Result<String, String> {
    for _ in 0..times {
        let mut native = begin(attacker)?;
        native.say_close().map_err(|error| error.to_string())?;
        attacker.natives.push(native);
    }
    Ok(format!("{times} connections"))
}

/// How many of its connections the daemon has not closed.
pub(super) fn stay(attacker: &mut Attacker, _: usize) -> Result<String, String> {
    attacker.natives.retain_mut(|native| !native.is_closed());
    Ok(format!("{}", attacker.natives.len()))
}

/// One connection whose streams ask for messages without end. It reads nothing any more.
pub(super) fn unread(attacker: &mut Attacker, times: usize) -> Result<String, String> {
    calls_of(attacker, 1, "/probe.v1.Probe/Count", times, |native, method| native.call(method, WITHOUT_END))
}

/// So many connections, each with calls whose requests begin, and of which nothing more comes.
pub(super) fn begun(attacker: &mut Attacker, times: usize) -> Result<String, String> {
    calls_of(attacker, times, ECHO, CALLS, |native, method| native.call_by_parts(method, USUAL_BYTES, 0))
}

/// So many connections, each with calls of whose requests all comes but the last byte.
pub(super) fn halves(attacker: &mut Attacker, times: usize) -> Result<String, String> {
    let came = LARGE_BYTES as usize - 1;
    calls_of(attacker, times, ECHO, CALLS / 5, |native, method| {
        native.call_by_parts(method, LARGE_BYTES, came)
    })
}

/// So many connections, each with calls that have long metadata, and whose one request never comes.
pub(super) fn metadata(attacker: &mut Attacker, times: usize) -> Result<String, String> {
    calls_of(attacker, times, ECHO, METADATA_CALLS, |native, method| {
        native.call_without_request(method, METADATA_BYTES)
    })
}

/// So many connections, each of which names as many methods as it may, by the longest names there are.
pub(super) fn announced(attacker: &mut Attacker, times: usize) -> Result<String, String> {
    let mut named = 0;
    for _ in 0..times {
        let mut native = begin(attacker)?;
        let mut name = |number: usize| native.announce(&format!("/hostile.v1.S/{number:0NAME_BYTES$}"));
        named += (0..METHODS).take_while(|number| name(*number).is_ok()).count();
        attacker.natives.push(native);
    }
    Ok(format!("{named} methods of {times} connections"))
}

fn calls_of(
    attacker: &mut Attacker,
    connections: usize,
    path: &str,
    calls: usize,
    mut call: impl FnMut(&mut Native, u16) -> std::io::Result<()>,
) -> Result<String, String> {
    let mut made = 0;
    for _ in 0..connections {
        let mut native = begin(attacker)?;
        let method = native.announce(path).map_err(|error| error.to_string())?;
        made += (0..calls).take_while(|_| call(&mut native, method).is_ok()).count();
        attacker.natives.push(native);
    }
    Ok(format!("{made} streams of {connections} connections"))
}

fn begin(attacker: &Attacker) -> Result<Native, String> {
    Native::begin(patient(&attacker.address)?).map_err(|error| error.to_string())
}
