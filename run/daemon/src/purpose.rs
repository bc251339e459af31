//! What a listener is for, and who has connected to it: peers, operators, or clients of the gateway.

use crate::config::{Address, Admin, Config, OpenTo, ServiceRule};
use std::io;
use std::sync::Arc;
use trunkline_engine::{CallRights, CallRule, Engine, GrpcKey, Operator, PeerIdentity, PeerKey};
use trunkline_net::{Endpoint, PeerCredentials, Stream};

/// What a listener is for.
#[derive(Clone)]
pub(crate) enum Purpose {
    /// Daemons, and gRPC clients of what applications of this host serve.
    Peers,
    /// Operators: who may do what.
    Operators(Arc<Admin>),
    /// Clients of the gateway.
    Gateway(Arc<GatewayListener>),
}

/// A listener of the gateway.
pub(crate) struct GatewayListener {
    /// `[[call]]`, held against the user of each connection over a Unix socket.
    rules: Vec<ServiceRule>,
    /// The same for clients that came by a port, and so are no user of this host.
    rules_by_port: Arc<[CallRule]>,
    needs_tls: bool,
}

/// Who connected to a listener that is for operators or for clients of the gateway.
pub(crate) enum RestrictedClient {
    Operator(Operator),
    Gateway(GatewayConnection),
}

/// A connection of a gateway's client.
pub(crate) struct GatewayConnection {
    client: CallRights,
    /// Its user over a Unix socket (SO_PEERCRED).
    uid: Option<u32>,
    needs_tls: bool,
}

impl Purpose {
    /// Every address a configuration listens at, with the key that names it and what it is for.
    pub fn of_all(config: &Config) -> Vec<(String, &Endpoint, Self)> {
        let admin = Arc::new(config.admin.clone());
        let peers = named("daemon.listen", &config.daemon.listen).map(|(key, at)| (key, at, Self::Peers));
        let operators = named("admin.listen", &config.admin.listen)
            .map(|(key, at)| (key, at, Self::Operators(Arc::clone(&admin))));
        let gateway = named("gateway.listen", &config.gateway.listen)
            .map(|(key, at)| (key, at, Self::Gateway(Arc::new(GatewayListener::of(config, at)))));
        peers.chain(operators).chain(gateway).collect()
    }

    /// What a listener at this address is called when it is handed over: two of them may have any port, and what came
    /// to one is not for the other.
    pub fn name_of(&self, endpoint: &Endpoint) -> String {
        match self {
            Self::Peers | Self::Operators(_) => endpoint.to_string(),
            Self::Gateway(_) => format!("gateway {endpoint}"),
        }
    }

    /// Permissions of the listener's socket file, if they are not left to the process.
    pub fn socket_mode(&self, config: &Config) -> Option<u32> {
        match self {
            Self::Peers => None,
            Self::Operators(_) => Some(config.admin.socket_mode.0),
            Self::Gateway(_) => Some(config.gateway.socket_mode.0),
        }
    }

    /// Who a connection accepted there is; `None` if it may be anybody.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn client(&self, stream: &Stream) -> io::Result<Option<RestrictedClient>> {
        Ok(match self {
            Self::Peers => None,
            Self::Operators(admin) => Some(RestrictedClient::Operator(operator(stream, admin)?)),
            Self::Gateway(listener) => Some(RestrictedClient::Gateway(listener.client(stream)?)),
        })
    }
}

impl GatewayListener {
    fn of(config: &Config, endpoint: &Endpoint) -> Self {
        let by_port = |rule: &ServiceRule| CallRule {
            service: rule.service.as_str().into(),
            permits: rule.who.contains(&crate::config::Principal::Anyone),
        };
        Self {
            rules: config.call.clone(),
            rules_by_port: config.call.iter().map(by_port).collect(),
            needs_tls: config.gateway.open_to == OpenTo::Tls && endpoint.is_beyond_host(),
        }
    }

    fn client(&self, stream: &Stream) -> io::Result<GatewayConnection> {
        let needs_tls = self.needs_tls;
        let Some(user) = stream.peer_credentials()? else {
            let client =
                CallRights { who: "a client at a port".into(), rules: Arc::clone(&self.rules_by_port) };
            return Ok(GatewayConnection { client, uid: None, needs_tls });
        };
        Ok(GatewayConnection { client: rights_of(&self.rules, &user), uid: Some(user.uid), needs_tls })
    }
}

/// The addresses of a list, and what each is called.
fn named<'a>(key: &str, addresses: &'a [Address]) -> impl Iterator<Item = (String, &'a Endpoint)> {
    addresses.iter().enumerate().map(move |(index, address)| (format!("{key}[{index}]"), &address.0))
}

/// What a user of this host may call by `[[call]]`.
fn rights_of(rules: &[ServiceRule], user: &PeerCredentials) -> CallRights {
    let PeerCredentials { uid, gid, .. } = *user;
    let rule = |rule: &ServiceRule| CallRule {
        service: rule.service.as_str().into(),
        permits: rule.covers(uid, gid),
    };
    CallRights { who: format!("uid {uid}, gid {gid}").into(), rules: rules.iter().map(rule).collect() }
}

/// May call nothing.
fn nobody() -> CallRights {
    CallRights { who: "nobody".into(), rules: [CallRule { service: "*".into(), permits: false }].into() }
}

/// A user of this host, as policies know its applications.
fn of_user(uid: u32) -> (String, PeerIdentity) {
    let names = vec![format!("uid:{uid}")];
    (format!("unix (uid {uid})"), PeerIdentity { names, ..PeerIdentity::default() })
}

impl RestrictedClient {
    /// Whether it must speak TLS.
    pub fn needs_tls(&self) -> bool {
        matches!(self, Self::Gateway(GatewayConnection { needs_tls: true, .. }))
    }

    /// Why it is refused when it speaks the native protocol.
    pub fn why_not_native(&self) -> &'static str {
        match self {
            Self::Operator(_) => "speaks the native protocol where operators speak gRPC",
            Self::Gateway(_) => "speaks the native protocol at the gateway, where gRPC is spoken",
        }
    }
}

impl GatewayConnection {
    /// What the engine takes it in as: its address, who it proved to be, what it may call.
    pub fn into_parts(self, stream: &Stream) -> (String, PeerIdentity, CallRights) {
        match self.uid {
            Some(uid) => {
                let (label, identity) = of_user(uid);
                (label, identity, self.client)
            }
            None => (label(stream), identity(stream), self.client),
        }
    }
}

/// Hands a connection of HTTP/2 to the engine. Whoever connected to a Unix socket of `daemon.listen` is a user of this
/// host, for whom `[[call]]` holds.
pub(crate) fn take_in(
    engine: &mut Engine,
    stream: &Stream,
    client: Option<RestrictedClient>,
    rules: &[ServiceRule],
) -> GrpcKey {
    match client {
        None => match stream.peer_credentials() {
            Ok(None) => engine.http().accept(label(stream), identity(stream)),
            Ok(Some(user)) => {
                let (label, identity) = of_user(user.uid);
                engine.http().accept_user(label, identity, rights_of(rules, &user))
            }
            // The kernel does not say who it is, and it has gone.
            Err(_) => engine.http().accept_user(label(stream), identity(stream), nobody()),
        },
        Some(RestrictedClient::Operator(operator)) => engine.http().accept_operator(operator),
        Some(RestrictedClient::Gateway(client)) => {
            let (label, identity, client) = client.into_parts(stream);
            engine.http().accept_at_gateway(label, identity, client)
        }
    }
}

/// Has the engine hold a native connection over a Unix socket against `[[call]]`, as whoever else is a user of this
/// host. Over the network it is nobody's.
pub(crate) fn give_rights(engine: &mut Engine, peer: PeerKey, stream: &Stream, rules: &[ServiceRule]) {
    match stream.peer_credentials() {
        Ok(None) => {}
        Ok(Some(user)) => engine.native().has_rights(peer, rights_of(rules, &user)),
        // The kernel does not say who it is, and it has gone.
        Err(_) => engine.native().has_rights(peer, nobody()),
    }
}

/// A connection's address as operators see it.
pub(crate) fn label(stream: &Stream) -> String {
    let address = stream.peer_address().ok().flatten();
    let scheme = if stream.is_secure() { "tls" } else { "tcp" };
    address.map_or("unix".into(), |address| format!("{scheme}://{address}"))
}

/// Who the peer proved to be.
pub(crate) fn identity(stream: &Stream) -> PeerIdentity {
    let known = stream.identity().unwrap_or_default();
    let spiffe_id = known.spiffe_id().map(str::to_owned);
    let names = known.dns.into_iter().chain(known.uris).collect();
    PeerIdentity { encrypted: stream.is_secure(), names, spiffe_id }
}

/// Who another daemon's connection proved to be: by its certificate, or over a Unix socket by the kernel's word.
pub(crate) fn identity_of_daemon(stream: &Stream) -> PeerIdentity {
    match stream.peer_credentials() {
        Ok(Some(user)) => of_user(user.uid).1,
        _ => identity(stream),
    }
}

/// Who connected to the operators' listener, and what they may do.
fn operator(stream: &Stream, admin: &Admin) -> io::Result<Operator> {
    let process = stream.peer_credentials()?.ok_or(io::ErrorKind::Unsupported)?;
    let (uid, gid) = (process.uid, process.gid);
    let [reads, changes] = [true, false].map(|reads| admin.permit(reads, uid, gid));
    Ok(Operator { identity: format!("uid:{uid}"), reads, changes })
}
