//! A daemon of one's own: started with a configuration, ended when the handle is dropped.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use trunkline::{Channel, Wait};
use trunkline_measure::Child;

/// Names the daemon's binary; without it, `trunkline` beside this program is run.
const PROGRAM: &str = "TRUNKLINE_PROGRAM";
/// Where a daemon listens for applications, when there is one to be used.
const SOCKET: &str = "TRUNKLINE_SOCKET";
/// A folder for the logs of daemons, for those who look at them when this program has ended.
const LOGS: &str = "TRUNKLINE_INTEROP_LOGS";
/// Time a daemon has to answer.
const READY_LIMIT: Duration = Duration::from_secs(30);

/// The daemon a program uses.
#[derive(Debug)]
pub struct Host {
    socket: PathBuf,
    /// The process and its folder, unless the daemon is somebody else's.
    own: Option<Own>,
}

#[derive(Debug)]
struct Own {
    process: Child,
    log: PathBuf,
    _folder: TempDir,
}

/// How a server's daemon listens.
#[derive(Clone, Debug, Default)]
pub struct Listen {
    /// On every address of this host.
    pub port: u16,
    /// Speak TLS.
    pub tls: bool,
    /// Certificate chain and key, as PEM files.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Roots of clients' certificates, if clients must show one.
    pub client_ca: Option<PathBuf>,
    /// Largest message taken, if not the daemon's own default (0).
    pub message_bytes_max: u32,
    /// Streams of a connection, if not the daemon's own default (0).
    pub streams_max: u32,
}

/// Where a client's daemon calls.
#[derive(Clone, Debug, Default)]
pub struct Dial {
    /// The server's host.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Speak TLS.
    pub tls: bool,
    /// The name its certificate must have, if not the host's.
    pub server_name: Option<String>,
    /// Certificates trusted, as a PEM file.
    pub ca: Option<PathBuf>,
    /// How requests are compressed; empty: not at all.
    pub encoding: &'static str,
    /// Largest message taken, if not the daemon's own default (0).
    pub message_bytes_max: u32,
}

/// Why there is no daemon.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// It could not be started.
    #[error("{}: {error}", program.display())]
    Start {
        /// The binary.
        program: PathBuf,
        /// What the kernel says.
        error: io::Error,
    },
    /// It ended, or does not answer.
    #[error("the daemon is not ready; it said:\n{log}")]
    NotReady {
        /// Its log.
        log: String,
    },
    /// TLS is wanted without a certificate.
    #[error("TLS needs a certificate and its key")]
    NoCertificate,
    /// There is no folder or port to be had.
    #[error(transparent)]
    System(#[from] io::Error),
}

impl Host {
    /// The daemon at `TRUNKLINE_SOCKET`, or a new one with this configuration (TOML).
    ///
    /// # Errors
    /// [`HostError`]
    pub fn find_or_start(config: &str) -> Result<Self, HostError> {
        match std::env::var_os(SOCKET) {
            Some(socket) => Ok(Self { socket: socket.into(), own: None }),
            None => Self::start(config),
        }
    }

    /// A new daemon with this configuration, ready.
    ///
    /// # Errors
    /// [`HostError`]
    pub fn start(config: &str) -> Result<Self, HostError> {
        let folder = tempfile::Builder::new().prefix("trunkline-interop-").tempdir()?;
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("daemon.toml"), config)?;
        let log = match (std::env::var_os(LOGS), folder.path().file_name()) {
            (Some(logs), Some(name)) => Path::new(&logs).join(name).with_extension("log"),
            _ => path("log"),
        };
        let program = program()?;
        let mut command = Command::new(&program);
        command.arg("--socket").arg(path("sock")).arg("daemon").arg("--until-stdin-closes");
        command.arg("--config").arg(path("daemon.toml")).env_remove("TRUNKLINE_CONFIG");
        // The pipe's other end is this process's: however it ends, the daemon does too.
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(File::create(&log)?);
        let child = command.spawn().map_err(|error| HostError::Start { program, error })?;
        let socket = path("sock");
        let own = Own { process: child.into(), log, _folder: folder };
        Self { socket, own: Some(own) }.ready()
    }

    /// Where applications attach.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// A channel of this host to `target`; the empty target is whoever serves here.
    pub fn channel(&self, target: &str) -> Channel {
        Channel::builder().socket(&self.socket).target(target).wait_for_ready(true).connect_lazy()
    }

    /// What the daemon logged; empty for one that is not ours.
    pub fn log(&self) -> String {
        let own = self.own.as_ref();
        own.and_then(|own| std::fs::read_to_string(&own.log).ok()).unwrap_or_default()
    }

    /// Waits until it answers.
    fn ready(mut self) -> Result<Self, HostError> {
        let until = Instant::now() + READY_LIMIT;
        loop {
            let ended = match &mut self.own {
                Some(own) => own.process.ended().is_some(),
                None => false,
            };
            if Channel::builder().socket(&self.socket).embedded(false).connect().wait().is_ok() {
                return Ok(self);
            }
            if ended || Instant::now() > until {
                return Err(HostError::NotReady { log: self.log() });
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Listen {
    /// The daemon's configuration.
    ///
    /// # Errors
    /// If TLS is wanted without a certificate.
    pub fn config(&self) -> Result<String, HostError> {
        let mut config = format!("[daemon]\nlisten = [\"tcp://0.0.0.0:{}\"]\n", self.port);
        if self.tls {
            let (certificate, key) = self.certificate.as_ref().ok_or(HostError::NoCertificate)?;
            config += &format!("[tls]\nrequired = true\ncertificate = {certificate:?}\nkey = {key:?}\n");
            if let Some(ca) = &self.client_ca {
                config += &format!("client_ca = {ca:?}\n");
            }
        }
        if self.message_bytes_max > 0 {
            config += &format!("[limits]\ngrpc_message_bytes = {}\n", self.message_bytes_max);
        }
        if self.streams_max > 0 {
            config += &format!("[http2]\nstreams_max = {}\n", self.streams_max);
        }
        Ok(config)
    }
}

impl Dial {
    /// The daemon's configuration.
    pub fn config(&self) -> String {
        let mut config = String::new();
        if let Some(ca) = &self.ca {
            config += &format!("[tls]\nca = {ca:?}\n");
        }
        if !self.encoding.is_empty() {
            config += &format!("[grpc]\nrequest_encoding = {:?}\n", self.encoding);
        }
        if self.message_bytes_max > 0 {
            config += &format!("[limits]\ngrpc_message_bytes = {}\n", self.message_bytes_max);
        }
        config
    }

    /// The target calls name.
    pub fn target(&self) -> String {
        let Self { host, port, .. } = self;
        match &self.server_name {
            Some(name) if self.tls => format!("tls://{name}@{host}:{port}"),
            _ if self.tls => format!("tls://{host}:{port}"),
            _ => format!("tcp://{host}:{port}"),
        }
    }
}

/// A port nobody listened at a moment ago.
///
/// # Errors
/// If there is none.
pub fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

fn program() -> io::Result<PathBuf> {
    if let Some(program) = std::env::var_os(PROGRAM) {
        return Ok(program.into());
    }
    Ok(std::env::current_exe()?.with_file_name("trunkline"))
}
