//! What this program is when a run starts it again as one of the processes it measures.

use crate::harness::children::{Failure, become_program, end_with_parent};
use crate::harness::orders::obey;
use crate::harness::work::named;
use crate::peers::chain::{self, ChainClient};
use crate::peers::ours::{self, OurClient, Pourer};
use crate::peers::stream::{self, StreamClient};
use crate::peers::{echo, hosts, open, sleepers};
use crate::studies::{connections, interference, scaling};
use std::path::Path;

/// Plays the role named by the first word.
pub fn play(words: &[&str]) -> Result<(), Failure> {
    end_with_parent()?;
    let path = Path::new;
    match *words {
        ["become", program, ref arguments @ ..] => become_program(program, arguments),
        ["echo", far] => chain::echo(path(far)),
        ["relay-rings", near, far] => chain::relay_rings(path(near), path(far)),
        ["relay-connect", near, port] => chain::relay_connect(path(near), port),
        ["relay-listen", far, port_file] => chain::relay_listen(path(far), path(port_file)),
        ["drive-chain", near] => obey(ChainClient::join(path(near))?),
        ["daemon", config, endpoints_file] => hosts::daemon(path(config), path(endpoints_file)),
        ["serve", socket, work] => ours::serve(path(socket), named(work)?),
        ["routers", port_file, ref policies @ ..] => sleepers::routers(path(port_file), policies),
        ["sleeper", config, endpoints_file, socket, threads, slow_us] => {
            let paths = [config, endpoints_file, socket].map(path);
            sleepers::sleeper(paths, threads.parse()?, slow_us.parse()?)
        }
        ["drive-open", socket, target] => open::drive(path(socket), target, false),
        ["drive-open", socket, target, "in-turn"] => open::drive(path(socket), target, true),
        ["drive-ours", socket, target, work] => obey(OurClient::connect(path(socket), target, named(work)?)?),
        ["serve-echo", socket, message, wire, making] => {
            echo::serve(path(socket), message, path(wire), named(making)?)
        }
        ["serve-bulk", socket] => ours::serve_bulk(path(socket)),
        ["serve-raw", socket, methods, served] => {
            scaling::serve(path(socket), methods.parse()?, path(served))
        }
        ["pour", socket, target] => obey(Pourer::connect(path(socket), target)?),
        ["hold", address, count] => connections::hold(address, count.parse()?),
        ["disturb", how] => interference::disturb(how),
        ["idle", socket] => ours::idle(path(socket)),
        ["sink", port_file] => stream::sink(path(port_file)),
        ["drive-tcp", port, habits] => obey(StreamClient::new(port, habits)?),
        _ => Err(format!("no such role: {words:?}").into()),
    }
}
