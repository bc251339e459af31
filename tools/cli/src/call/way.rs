//! Whom to call, as the command line has it: through the host's daemon, or, where TLS is asked for on the command line,
//! through an engine of this process's own. A daemon's keys are its operator's to choose, not those of whoever may
//! attach to it.

use crate::args::{TlsArgs, WayArgs, Whom};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;
use trunkline::Channel;
use trunkline_call::Metadata;
use trunkline_daemon::{Config, Daemon};
use trunkline_net::{Endpoint, Target};

/// Time one of several addresses of a name has to answer before the next is tried.
const ADDRESS_PATIENCE: Duration = Duration::from_secs(2);

/// How the one who is called is reached.
#[derive(Default)]
pub struct Way {
    /// The daemon's socket, if it was named.
    pub socket: Option<PathBuf>,
    /// Whom to call; empty for whoever serves it on this host.
    pub target: String,
    /// Sent with every request, those that ask for types included.
    pub metadata: Metadata,
    /// Time a call may take.
    pub timeout: Option<Duration>,
    /// Kept running as long as it is called through.
    _engine: Option<OwnEngine>,
}

/// Why there is no way.
#[derive(Debug, thiserror::Error)]
pub enum WayError {
    /// TLS to whoever serves it.
    #[error(
        "TLS options need a target: write --target HOST:PORT; what this host serves is called without TLS"
    )]
    NoTarget,
    /// TLS to several, or to a socket.
    #[error("{0}: TLS is spoken to one TCP address here; write HOST:PORT")]
    Target(String),
    /// A name that stands for nothing.
    #[error("{name}: {why}")]
    Name {
        /// As it was written.
        name: String,
        /// What the system says.
        why: String,
    },
    /// A name for the server that no certificate can have.
    #[error(transparent)]
    ServerName(#[from] trunkline_net::EndpointError),
    /// The pairs of the command line.
    #[error(transparent)]
    Metadata(#[from] trunkline_call::MetadataError),
    /// An engine of our own did not start.
    #[error("{0}")]
    Engine(String),
}

/// A daemon inside this process, with a socket only this user can reach. The daemon ends before its folder does.
struct OwnEngine {
    _daemon: Daemon,
    _folder: TempDir,
}

impl Way {
    /// As the command line has it; `target` if it was written before the method.
    ///
    /// # Errors
    /// [`WayError`].
    pub fn new(args: WayArgs, target: Option<Whom>, socket: Option<PathBuf>) -> Result<Self, WayError> {
        let mut metadata = Metadata::new();
        for (key, value) in &args.metadata {
            metadata.insert(key, value)?;
        }
        if let Some(authority) = &args.tls.authority {
            metadata.insert("host", authority)?;
        }
        let target = target.or(args.target);
        let mut way = Self { socket, metadata, timeout: args.timeout, ..Self::default() };
        if args.tls.is_asked_for() {
            way.target = secured(target.as_ref(), &args.tls)?.to_string();
            let (engine, socket) = OwnEngine::start(&args.tls)?;
            (way._engine, way.socket) = (Some(engine), Some(socket));
        } else {
            way.target = target.map_or_else(String::new, |whom| whom.target.to_string());
        }
        Ok(way)
    }

    /// A channel there.
    pub fn channel(&self) -> Channel {
        let channel = Channel::builder().name("trunkline call").target(&self.target);
        let channel = match &self.socket {
            Some(path) => channel.socket(path),
            None => channel,
        };
        channel.connect_lazy()
    }
}

impl OwnEngine {
    fn start(tls: &TlsArgs) -> Result<(Self, PathBuf), WayError> {
        let failed = |error: &dyn std::fmt::Display| WayError::Engine(error.to_string());
        let folder =
            tempfile::Builder::new().prefix("trunkline-").tempdir().map_err(|error| failed(&error))?;
        let socket = folder.path().join("sock");
        let mut config = Config::default();
        config.daemon.socket.clone_from(&socket);
        let path = |path: &Option<PathBuf>| path.clone().unwrap_or_default();
        (config.tls.ca, config.tls.certificate, config.tls.key) =
            (path(&tls.cacert), path(&tls.cert), path(&tls.key));
        config.tls.trusts_anyone = tls.insecure;
        let daemon = Daemon::start(config).map_err(|error| failed(&error))?;
        Ok((Self { _daemon: daemon, _folder: folder }, socket))
    }
}

/// The endpoint TLS is spoken to, with the name its certificate must have.
fn secured(whom: Option<&Whom>, tls: &TlsArgs) -> Result<Endpoint, WayError> {
    let Whom { target, is_localhost } = whom.ok_or(WayError::NoTarget)?;
    let (address, name) = match target {
        Target::Name(name) => {
            let addresses = (name.host.as_str(), name.port).to_socket_addrs();
            let addresses =
                addresses.map_err(|error| WayError::Name { name: name.host.clone(), why: error.to_string() });
            (answering(&name.host, &addresses?.collect::<Vec<_>>())?, Some(name.host.clone()))
        }
        Target::Endpoints(endpoints) => match &endpoints[..] {
            [Endpoint::Tcp(address)] => (*address, is_localhost.then(|| "localhost".to_owned())),
            [Endpoint::Tls(address, name)] => (*address, name.clone()),
            _ => return Err(WayError::Target(target.to_string())),
        },
    };
    let said = tls.servername.clone().or_else(|| tls.authority.as_deref().map(host_of));
    match said.or(name) {
        // Written and read, so that it is checked.
        Some(name) => Ok(format!("tls://{name}@{address}").parse()?),
        None => Ok(Endpoint::Tls(address, None)),
    }
}

/// An authority without its port.
fn host_of(authority: &str) -> String {
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    host.to_owned()
}

/// The first address that takes a connection; the only one is not asked.
fn answering(name: &str, addresses: &[SocketAddr]) -> Result<SocketAddr, WayError> {
    let takes = |address: &&SocketAddr| TcpStream::connect_timeout(address, ADDRESS_PATIENCE).is_ok();
    let found = match addresses {
        [_, _, ..] => addresses.iter().find(takes),
        _ => None,
    };
    let none = || WayError::Name { name: name.to_owned(), why: "the name has no address".into() };
    found.or(addresses.first()).copied().ok_or_else(none)
}

#[cfg(test)]
mod tests {
    //! Shows which endpoint TLS is spoken to, and under which name.
    use super::*;

    fn said(target: &str, servername: Option<&str>, authority: Option<&str>) -> Result<String, String> {
        let own = |text: Option<&str>| text.map(str::to_owned);
        let tls = TlsArgs { servername: own(servername), authority: own(authority), ..TlsArgs::default() };
        let target: Option<Whom> = (!target.is_empty()).then(|| target.parse().unwrap());
        secured(target.as_ref(), &tls).map(|endpoint| endpoint.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn names_are_those_of_the_command_line() {
        for (target, servername, authority, endpoint) in [
            ("127.0.0.1:1", None, None, "tls://127.0.0.1:1"),
            ("localhost:1", None, None, "tls://localhost@127.0.0.1:1"),
            ("dns:///localhost:1", None, None, "tls://localhost@127.0.0.1:1"),
            ("127.0.0.1:1", Some("db.example"), None, "tls://db.example@127.0.0.1:1"),
            ("127.0.0.1:1", None, Some("db.example:8"), "tls://db.example@127.0.0.1:1"),
            ("127.0.0.1:1", Some("a.example"), Some("b.example"), "tls://a.example@127.0.0.1:1"),
            ("tls://a.example@127.0.0.1:1", None, None, "tls://a.example@127.0.0.1:1"),
            ("tls://a.example@127.0.0.1:1", Some("b.example"), None, "tls://b.example@127.0.0.1:1"),
        ] {
            assert_eq!(said(target, servername, authority).as_deref(), Ok(endpoint), "{target}");
        }
    }

    #[test]
    fn what_the_user_is_told() {
        for (target, servername, told) in [
            ("", None, "--target HOST:PORT"),
            ("unix:/a", None, "unix:///a: TLS is spoken to one TCP address"),
            ("ipv4:10.0.0.1,10.0.0.2", None, "write HOST:PORT"),
            ("127.0.0.1:1", Some("a b"), "\"a b\" is not a server name"),
        ] {
            let error = said(target, servername, None).unwrap_err();
            assert!(error.contains(told), "{target}: {error}");
        }
    }
}
