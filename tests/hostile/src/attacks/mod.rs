//! What an attacker does when it is ordered to: one order, one attack, one answer.

mod datagrams;
mod descriptors;
mod local;
mod native;
mod network;
mod rights;
mod sharing;

use crate::application::Application;
use crate::http2::Http2;
use crate::native::Native;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::net::{TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use trunkline_call::RouteIndex;
use trunkline_call::entry::Payload;
use trunkline_shm::{AppEnd, ControlSocket};
use trunkline_system_tests::program::converse;

/// What a request without an answer asks for: items of 60,000 bytes without end (`Wanted` of the probe's service).
const WITHOUT_END: &[u8] = &[0x08, 0xff, 0xff, 0xff, 0xff, 0x0f, 0x10, 0xe0, 0xd4, 0x03, 0x1a, 1, b'h'];

/// The same, of one byte.
const SMALL_WITHOUT_END: &[u8] = &[0x08, 0xff, 0xff, 0xff, 0xff, 0x0f, 0x10, 1, 0x1a, 1, b'h'];

/// What the attacker holds, until it is killed.
#[derive(Default)]
struct Attacker {
    socket: PathBuf,
    address: String,
    /// Where the daemon serves by datagrams.
    port: String,
    applications: Vec<Application>,
    /// Of sessions that are over.
    kept: Vec<AppEnd>,
    bare: Vec<ControlSocket>,
    streams: Vec<TcpStream>,
    connections: Vec<Http2>,
    natives: Vec<Native>,
    datagrams: Vec<UdpSocket>,
    answered: Arc<AtomicU64>,
    client: Option<(Application, RouteIndex, Payload)>,
}

/// An attack: how often, and in a line how far it came.
type Attack = fn(&mut Attacker, usize) -> Result<String, String>;

/// By the word that orders it.
const ATTACKS: &[(&str, Attack)] = &[
    ("paths", local::paths),
    ("drains", local::drains),
    ("names", local::names),
    ("refused", local::refused),
    ("untaken", local::untaken),
    ("untaken_small", local::untaken_small),
    ("targets", local::targets),
    ("bare", local::bare),
    ("flood", local::flood),
    ("flooding", local::flooding),
    ("waiting", local::waiting),
    ("heaps", local::heaps),
    ("heaps_kept", local::heaps_kept),
    ("give_up", local::give_up),
    ("hears", local::hears),
    ("leave", local::leave),
    ("bell", descriptors::bell),
    ("descriptors", descriptors::descriptors),
    ("sets", local::sets),
    ("dials", rights::dials),
    ("takes_a_name", rights::takes_a_name),
    ("calls", rights::calls),
    ("nested", rights::nested),
    ("client", sharing::client),
    ("fill", sharing::fill),
    ("busy", sharing::busy),
    ("idle", sharing::idle),
    ("answered", sharing::answered),
    ("greeted", native::greeted),
    ("leaving", native::leaving),
    ("stay", native::stay),
    ("native_unread", native::unread),
    ("native_begun", native::begun),
    ("native_halves", native::halves),
    ("native_metadata", native::metadata),
    ("announced", native::announced),
    ("datagrams_refused", datagrams::refused),
    ("datagrams_requests", datagrams::requests),
    ("datagrams_forged", datagrams::forged),
    ("silent", network::silent),
    ("unread", network::unread),
    ("overdue", network::overdue),
    ("slow", network::slow),
    ("halves", network::halves),
    ("large_halves", network::large_halves),
    ("references", network::references),
    ("bombs", network::bombs),
    ("learned", network::learned),
];

/// Attacks the daemon at this socket, address and port of datagrams, as often as it is told to.
///
/// # Errors
/// Its orders cannot be read.
pub fn play(socket: &Path, address: &str, port: &str) -> Result<(), String> {
    let all = getrlimit(Resource::Nofile).maximum;
    let _ = setrlimit(Resource::Nofile, Rlimit { current: all, maximum: all });
    let (socket, address, port) = (socket.to_owned(), address.to_owned(), port.to_owned());
    let mut attacker = Attacker { socket, address, port, ..Attacker::default() };
    converse("ready", |order| {
        let (name, times) = order.split_once(' ').unwrap_or((order, "1"));
        let attack = ATTACKS.iter().find(|(known, _)| *known == name);
        match (attack, times.parse()) {
            (Some((_, attack)), Ok(times)) => match attack(&mut attacker, times) {
                Ok(said) => format!("done: {said}"),
                Err(why) => format!("stopped: {why}"),
            },
            _ => format!("no such order: {order}"),
        }
    })
}
