//! Processes that end with their handles, hosts made of a daemon and a socket, and waiting under a watchdog.

mod barrage;
pub mod c_programs;
mod host;
mod network;
mod process;
mod relay;
mod router;

pub use barrage::{Barrage, Tally};
pub use host::{Host, Keys};
pub use network::{Network, Weather};
pub use process::Process;
pub use relay::Relay;
pub use router::Router;

use std::time::{Duration, Instant};
use trunkline::{Channel, Status, Wait};
use trunkline_system_tests::proto::probe::Text;
use trunkline_system_tests::proto::probe::probe_client::ProbeClient;
use trunkline_system_tests::scenario::WATCHDOG;

/// Waits until `condition` gives something.
///
/// # Panics
/// When the watchdog barks, with what was waited for.
pub fn until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(began.elapsed() < WATCHDOG, "waited in vain for: {what}");
        // Not to wait for something, but to leave the cores to those who make it happen.
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// Waits until an echo through `client` succeeds: whoever was away is back.
pub fn until_served(client: &ProbeClient) {
    let began = Instant::now();
    while let Err(status) = echo(client, "anybody?") {
        assert!(began.elapsed() < WATCHDOG, "nobody serves the probe: {status}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// Says a text and has it said back.
pub fn echo(client: &ProbeClient, text: &str) -> Result<String, Status> {
    client.echo(Text { text: text.to_owned() }).wait().map(|reply| reply.into_inner().text)
}

/// A client of this process through a host's daemon, to `target` or to whoever serves.
pub fn client(host: &Host, target: &str) -> ProbeClient {
    ProbeClient::new(channel(host, target))
}

/// A channel of this process through a host's daemon.
pub fn channel(host: &Host, target: &str) -> Channel {
    Channel::builder().socket(host.socket()).target(target).name("test").connect_lazy()
}
