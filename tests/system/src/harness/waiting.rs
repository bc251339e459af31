//! Waiting under a watchdog, and clients of the test's own process.

use super::host::Host;
use crate::proto::probe::Text;
use crate::proto::probe::probe_client::ProbeClient;
use crate::scenario::WATCHDOG;
use std::time::{Duration, Instant};
use trunkline::{Channel, Status, Wait};

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
