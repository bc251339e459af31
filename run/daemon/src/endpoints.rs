//! Where a daemon listens: by shard, and as others are told.

use crate::config::Config;
use crate::datagrams::{UdpPorts, is_at};
use crate::handover::InheritedShard;
use crate::listening::{Listening, admit_mode, listen};
use crate::purpose::Purpose;
use crate::start_error::StartError;
use rustix::fd::OwnedFd;
use std::collections::BTreeMap;
use std::io;
use trunkline_net::{Datagrams, Endpoint, Listener, Poller};

/// Endpoints with the ports the kernel chose.
#[derive(Debug, Default)]
pub(crate) struct Endpoints {
    /// Of other daemons.
    pub peers: Vec<String>,
    /// Of operators.
    pub operators: Vec<String>,
    /// Of gRPC clients whose calls are forwarded.
    pub gateways: Vec<String>,
    /// Where the first shard listens, by what the configuration says of it.
    bound: BTreeMap<String, String>,
    /// Bound by a successor while the daemon before it serves: what that one does not listen at.
    early: BTreeMap<String, Listener>,
    early_udp: Option<Datagrams>,
}

impl Endpoints {
    /// Binds what a configuration has beyond where the running daemon listens; nothing if that one does not say.
    ///
    /// # Errors
    /// [`StartError::Listen`]: nothing has been taken over yet.
    pub fn bind_new(config: &Config, running: Option<&[String]>) -> Result<Self, StartError> {
        let mut this = Self::default();
        let Some(running) = running else { return Ok(this) };
        for (key, endpoint, purpose) in Purpose::of_all(config) {
            let configured = purpose.name_of(endpoint);
            if running.contains(&configured) || this.early.contains_key(&configured) {
                continue;
            }
            let bound = listen(&endpoint.to_string(), 0, config.daemon.shards.most()).and_then(|listener| {
                let mode = purpose.socket_mode(config);
                mode.map_or(Ok(()), |mode| admit_mode(endpoint, mode)).map(|()| listener)
            });
            let failed = |error| StartError::Listen { key, endpoint: endpoint.to_string(), error };
            this.early.insert(configured, bound.map_err(failed)?);
        }
        let own =
            |listen| move |at: &String| matches!(at.parse(), Ok(Endpoint::R2p2(at)) if is_at(at, listen));
        if let Some(listen) = config.r2p2.listen.0.filter(|listen| !running.iter().any(own(*listen))) {
            this.early_udp = Some(Datagrams::bind(listen).map_err(|error| udp_failed(config, error))?);
        }
        Ok(this)
    }

    /// What a successor is told of where this daemon listens.
    pub fn names(&self) -> Vec<String> {
        let udp = self.peers.iter().filter(|at| at.starts_with("r2p2://"));
        self.bound.keys().chain(udp).cloned().collect()
    }

    /// The listeners of a shard. A port is shared by all, and the kernel spreads connections over them; a socket file
    /// is the first one's, whose calls go to the others. A shard that is left over has none.
    pub fn listen_for(
        &mut self,
        (index, count): (usize, usize),
        config: &Config,
        poller: &Poller,
        mut inherited: Option<&mut InheritedShard>,
    ) -> Result<Vec<Listening>, StartError> {
        let mut listening = Vec::new();
        for (key, endpoint, purpose) in Purpose::of_all(config) {
            let configured = purpose.name_of(endpoint);
            if index >= count || index > 0 && matches!(endpoint, Endpoint::Unix(_)) {
                continue;
            }
            // More than one, where there are fewer shards than before.
            let next = || inherited.as_deref_mut().and_then(|inherited| inherited.listener(&configured));
            let mut open: Vec<Listener> = std::iter::from_fn(next).collect();
            open.extend(self.early.remove(&configured).filter(|_| open.is_empty()));
            if open.is_empty() {
                let address = self.bound.get(&configured).cloned().unwrap_or_else(|| endpoint.to_string());
                let failed =
                    |error| StartError::Listen { key: key.clone(), endpoint: address.clone(), error };
                open.push(listen(&address, index, count).map_err(failed)?);
                // That of a socket that came is the old daemon's until the word to go.
                let mode = purpose.socket_mode(config);
                mode.map_or(Ok(()), |mode| admit_mode(endpoint, mode)).map_err(failed)?;
            }
            for listener in open {
                let (place, purpose) = (listening.len(), purpose.clone());
                let one = self.watch_listener(configured.clone(), listener, poller, place, purpose)?;
                self.bound.entry(one.configured.clone()).or_insert_with(|| one.endpoint.clone());
                listening.push(one);
            }
        }
        Ok(listening)
    }

    fn watch_listener(
        &mut self,
        configured: String,
        listener: Listener,
        poller: &Poller,
        index: usize,
        purpose: Purpose,
    ) -> Result<Listening, StartError> {
        let mut listening = Listening::new(listener, configured, purpose);
        listening.watch(poller, index)?;
        let (endpoint, purpose) = (&listening.endpoint, &listening.purpose);
        let known = match purpose {
            Purpose::Peers => &mut self.peers,
            Purpose::Operators(_) => &mut self.operators,
            Purpose::Gateway(_) => &mut self.gateways,
        };
        if !known.contains(endpoint) {
            known.push(endpoint.clone());
        }
        Ok(listening)
    }

    pub fn open_udp(
        &mut self,
        index: usize,
        config: &Config,
        bound: [Option<OwnedFd>; 2],
        poller: &Poller,
    ) -> Result<UdpPorts, StartError> {
        // Requests that are sent twice must arrive where the first is known.
        let listen = config.r2p2.listen.0.filter(|_| index == 0);
        let keys = config.r2p2.keys()?;
        let early = self.early_udp.take_if(|_| index == 0);
        let udp = UdpPorts::open((listen, early), bound, poller, keys);
        let udp = udp.map_err(|error| udp_failed(config, error))?;
        if let Some(address) = udp.address().map_err(|error| udp_failed(config, error))? {
            self.peers.push(Endpoint::R2p2(address).to_string());
        }
        Ok(udp)
    }
}

fn udp_failed(config: &Config, error: io::Error) -> StartError {
    StartError::Listen { key: "r2p2.listen".into(), endpoint: config.r2p2.listen.to_string(), error }
}
