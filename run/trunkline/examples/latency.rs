//! Round trips of a small unary call through an embedded daemon, and through a stand-in that only carries entries.
#[path = "../tests/support/mod.rs"]
mod support;

use std::time::Instant;
use support::text::{EchoServer, Parrot};
use support::{EchoClient, Place, Text};
use trunkline::{Channel, Server, ServerBuilder, Unary, Wait};

fn main() {
    let relay = Place::new().relay();
    measure("stand-in", support::channel(&relay.path()), Server::builder().socket(relay.path()));
    measure("embedded", Channel::builder().embedded(true).connect_lazy(), Server::builder().embedded(true));
}

fn measure(name: &str, channel: Channel, server: ServerBuilder) {
    measure_by(&format!("{name}, by wait"), &channel, server.clone(), |call| drop(call.wait().unwrap()));
    measure_by(&format!("{name}, by task"), &channel, server, |call| drop(support::foreign(call).unwrap()));
}

fn measure_by(name: &str, channel: &Channel, server: ServerBuilder, make: impl Fn(Unary<Text, Text>)) {
    let server = server.add_service(EchoServer::new(Parrot)).spawn().unwrap();
    server.ready().wait().unwrap();
    let client = EchoClient::new(channel.clone());
    let text = Text::new("x".repeat(64));
    let mut ns: Vec<u64> = Vec::new();
    for _ in 0..50_000 {
        let began = Instant::now();
        make(client.say(text.clone()));
        ns.push(began.elapsed().as_nanos() as u64);
    }
    server.shutdown(std::time::Duration::from_secs(1)).wait().unwrap();
    ns.drain(..5_000);
    ns.sort_unstable();
    let at = |share: f64| ns[(ns.len() as f64 * share) as usize];
    println!("{name}: min {} p50 {} p90 {} p99 {} p99.9 {} ns", ns[0], at(0.5), at(0.9), at(0.99), at(0.999));
}
