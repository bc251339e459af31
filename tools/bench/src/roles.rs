//! What this program is when a run starts it again as one of the processes it measures.

use crate::chain::{self, ChainClient};
use crate::children::{Failure, become_program};
use crate::connections;
use crate::echo;
use crate::open;
use crate::orders::obey;
use crate::ours::{self, OurClient, Pourer};
use crate::scaling;
use crate::sleepers;
use crate::stream::{self, Habits, StreamClient};
use std::path::Path;

/// Plays the role named by the first word.
pub fn play(words: &[&str]) -> Result<(), Failure> {
    match *words {
        ["become", program, ref arguments @ ..] => become_program(program, arguments),
        ["echo", far] => chain::echo(Path::new(far)),
        ["relay-rings", near, far] => chain::relay_rings(Path::new(near), Path::new(far)),
        ["relay-connect", near, port] => chain::relay_connect(Path::new(near), port),
        ["relay-listen", far, port_file] => chain::relay_listen(Path::new(far), Path::new(port_file)),
        ["drive-chain", near] => obey(ChainClient::join(Path::new(near))?),
        ["daemon", socket, port_file, heap, speaks, policing] => {
            ours::daemon(Path::new(socket), Path::new(port_file), heap, speaks, policing)
        }
        ["gateway", socket, listens_at, address] => ours::gateway(Path::new(socket), listens_at, address),
        ["serve", socket, work] => ours::serve(Path::new(socket), work.parse()?),
        ["routers", port_file, ref policies @ ..] => sleepers::routers(Path::new(port_file), policies),
        ["sleeper", dir, name, routers] => sleepers::sleeper(Path::new(dir), name, routers),
        ["counted-sleeper", dir, name, slow_us] => {
            sleepers::counted_sleeper(Path::new(dir), name, slow_us.parse()?)
        }
        ["configured-daemon", config] => sleepers::configured_daemon(Path::new(config)),
        ["sleepers-here", socket, threads] => sleepers::sleepers_here(Path::new(socket), threads.parse()?),
        ["drive-open", socket, target] => open::drive(Path::new(socket), target, false),
        ["drive-open", socket, target, "in-turn"] => open::drive(Path::new(socket), target, true),
        ["drive-ours", socket, target, work] => {
            obey(OurClient::connect(Path::new(socket), target, work.parse()?)?)
        }
        ["serve-echo", socket, message, wire, making] => {
            echo::serve(Path::new(socket), message, Path::new(wire), making.parse()?)
        }
        ["serve-bulk", socket] => ours::serve_bulk(Path::new(socket)),
        ["serve-raw", socket, methods, served] => {
            scaling::serve(Path::new(socket), methods.parse()?, Path::new(served))
        }
        ["far-daemon", socket, port_file, addresses] => {
            ours::far_daemon(Path::new(socket), Path::new(port_file), addresses.parse()?)
        }
        ["pour", socket, target] => obey(Pourer::connect(Path::new(socket), target)?),
        ["hold", address, count] => connections::hold(address, count.parse()?),
        ["idle", socket] => ours::idle(Path::new(socket)),
        ["sink", port_file] => stream::sink(Path::new(port_file)),
        ["drive-tcp", port, "filled"] => obey(StreamClient::new(port, Habits::Filled)?),
        ["drive-tcp", port, "one-buffer"] => obey(StreamClient::new(port, Habits::OneBuffer)?),
        _ => Err(format!("no such role: {words:?}").into()),
    }
}
