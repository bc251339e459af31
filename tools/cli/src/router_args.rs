//! The command line of `trunkline router`.

use crate::times::duration;
use clap::Args;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::time::Duration;
use trunkline_daemon::Metrics;
use trunkline_router::Forwarding;

/// `trunkline router`
#[derive(Debug, Args)]
#[command(after_help = "\
Workers with r2p2.mode = \"extended\" join by themselves from the networks of --join-from; others are named by --worker.

Example:
  trunkline router --listen 10.0.0.9:8000 --control 10.0.0.9:9000 --join-from 10.0.0.0/24 --key-file cluster.keys")]
pub struct RouterArgs {
    /// Address clients send requests to
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:8000")]
    pub listen: SocketAddrV4,
    /// Address workers send FEEDBACK to, as they reach it
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub control: SocketAddrV4,
    /// How a worker is picked: random, round-robin, power-of-two, jsq, jbsq, jbsq(N)
    #[arg(long, default_value = "jbsq")]
    pub policy: trunkline_dispatch::Policy,
    /// A worker, and what it works on at once [default of SLOTS: 1]; may be repeated
    #[arg(long, value_name = "ADDRESS:PORT[*SLOTS]", value_parser = worker)]
    pub worker: Vec<(SocketAddrV4, u16)>,
    /// Network whose hosts may join as workers; may be repeated
    #[arg(long, value_name = "ADDRESS/BITS", value_parser = network)]
    pub join_from: Vec<(Ipv4Addr, u8)>,
    /// File of the keys the cluster's hosts share, one a line; what is not sealed with one of them is refused
    #[arg(long, value_name = "FILE", conflicts_with_all = ["without_authentication", "compatible"])]
    pub key_file: Option<PathBuf>,
    /// Let hosts of --join-from join that prove nothing
    #[arg(long)]
    pub without_authentication: bool,
    /// Workers kept for one class of requests; may be repeated
    #[arg(long, value_name = "CLASS:WORKERS", value_parser = reservation)]
    pub reserve: Vec<(u8, usize)>,
    /// Requests that may wait; more are dropped
    #[arg(long, value_name = "REQUESTS", default_value_t = 65_536)]
    pub queue: usize,
    /// Longest time a request waits before it is dropped
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    pub delay: Duration,
    /// Longest time a request occupies its worker without FEEDBACK
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    pub lease: Duration,
    /// How requests are sent on: preserve (needs CAP_NET_RAW, answers go past the router), on-behalf, proxy, auto
    #[arg(long, default_value = "auto")]
    pub forwarding: Forwarding,
    /// Treat every datagram as the authors' library does: no extended mode
    #[arg(long)]
    pub compatible: bool,
    /// Address to serve metrics for Prometheus at
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub metrics: Option<SocketAddr>,
    /// Name metrics are served under, beside addresses, localhost and the host's own; `*.NAME`: those below it, `*`:
    /// any; may be repeated
    #[arg(long, value_name = "NAME", value_parser = metrics_host, requires = "metrics")]
    pub metrics_host: Vec<String>,
    /// Show queue, workers, delays and drops every second
    #[arg(long)]
    pub live: bool,
}

/// Reads `10.0.0.1:8000` and `10.0.0.1:8000*16`.
fn worker(text: &str) -> Result<(SocketAddrV4, u16), String> {
    let wrong = || {
        format!("{text:?} is no worker: write 10.0.0.1:8000, or 10.0.0.1:8000*16 if it works on 16 at once")
    };
    let (address, slots) = text.split_once('*').unwrap_or((text, "1"));
    let slots = slots.parse().ok().filter(|slots| *slots > 0).ok_or_else(wrong)?;
    Ok((address.parse().map_err(|_| wrong())?, slots))
}

/// Reads `*.example.org`.
fn metrics_host(text: &str) -> Result<String, String> {
    let wrong =
        || format!("{text:?} is no name of a host: write it without a port, such as rack3-host7.example");
    Metrics::can_be_host(text).then(|| text.to_owned()).ok_or_else(wrong)
}

/// Reads `10.0.0.0/24`.
fn network(text: &str) -> Result<(Ipv4Addr, u8), String> {
    let wrong = || format!("{text:?} is no network: write 10.0.0.0/24");
    let (address, bits) = text.split_once('/').ok_or_else(wrong)?;
    let bits = bits.parse().ok().filter(|bits| *bits <= 32).ok_or_else(wrong)?;
    Ok((address.parse().map_err(|_| wrong())?, bits))
}

/// Reads `2:4`.
fn reservation(text: &str) -> Result<(u8, usize), String> {
    let wrong = || {
        format!("{text:?} is no reservation: write 2:4 for four workers kept for class 2; classes go to 31")
    };
    let (class, workers) = text.split_once(':').ok_or_else(wrong)?;
    let known = |class: &u8| usize::from(*class) < trunkline_dispatch::CLASSES_MAX;
    let class = class.parse().ok().filter(known).ok_or_else(wrong)?;
    Ok((class, workers.parse().map_err(|_| wrong())?))
}
