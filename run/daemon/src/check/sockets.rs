//! Whether this host can listen where a configuration says.
//!
//! Addresses are tried: a socket is bound and let go, without ever listening, so that nobody can connect to it.

use crate::config::{Address, Breach, Config};
use rustix::fs::{Access, access};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with, sockopt};
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use trunkline_net::Endpoint;

/// Checks the control socket, the listeners, and the port of R2P2.
pub(super) fn check(config: &Config) -> Result<(), Breach> {
    if let Some(path) = config.socket() {
        folder_can_be_made(path)?;
        unix("daemon.socket", path)?;
    }
    listeners("daemon.listen", &config.daemon.listen)?;
    listeners("admin.listen", &config.admin.listen)?;
    listeners("gateway.listen", &config.gateway.listen)?;
    check_relay(config)?;
    listeners("metrics.listen", &config.metrics.listen)?;
    twice(config)?;
    let r2p2 = config.r2p2.listen.0.map(SocketAddr::V4);
    r2p2.map_or(Ok(()), |address| internet("r2p2.listen", address, SocketType::DGRAM))
}

/// Checks the relay's listeners.
pub(super) fn check_relay(config: &Config) -> Result<(), Breach> {
    listeners("relay.listen", &config.relay.listen)
}

fn listeners(key: &str, addresses: &[Address]) -> Result<(), Breach> {
    for (index, address) in addresses.iter().enumerate() {
        let key = format!("{key}[{index}]");
        match &address.0 {
            Endpoint::Tcp(address) => internet(&key, *address, SocketType::STREAM)?,
            Endpoint::Unix(path) => unix(&key, path)?,
            // The kernel makes a name for whoever asks first. The others are refused by the rules.
            Endpoint::Abstract(_) | Endpoint::Tls(..) | Endpoint::R2p2(_) => {}
        }
    }
    Ok(())
}

/// What a start that was refused an address says of it.
pub(super) fn not_listening(key: &str, address: &str, error: &std::io::Error) -> Breach {
    if error.kind() != std::io::ErrorKind::AddrInUse {
        let problem = format!("is {address}, where this host cannot listen: {error}");
        return breach(key, problem, "write an address this host can listen on".into());
    }
    let (flag, other) = match address {
        unix if unix.starts_with("unix") => ('x', "path"),
        _ if key == "r2p2.listen" => ('u', "port"),
        _ => ('t', "port"),
    };
    let advice = format!("end that program (`ss -l{flag}np` names it), or write another {other}");
    breach(key, format!("is {address}, where another program listens already"), advice)
}

/// One address twice, or part of another: the second listener would find the first.
fn twice(config: &Config) -> Result<(), Breach> {
    let control = config.socket().map(|path| ("daemon.socket".to_owned(), Endpoint::Unix(path.to_owned())));
    let named = |key: &'static str, addresses: &[Address]| {
        let named = addresses
            .iter()
            .enumerate()
            .map(move |(index, address)| (format!("{key}[{index}]"), address.0.clone()));
        named.collect::<Vec<_>>()
    };
    let mut seen: Vec<(String, Endpoint)> = control.into_iter().collect();
    let all = [
        named("daemon.listen", &config.daemon.listen),
        named("admin.listen", &config.admin.listen),
        named("gateway.listen", &config.gateway.listen),
        named("relay.listen", &config.relay.listen),
        named("metrics.listen", &config.metrics.listen),
    ];
    let all = all.concat();
    for (key, endpoint) in all {
        match seen.iter().find(|(_, other)| overlap(other, &endpoint)) {
            Some((other, same)) if *same == endpoint => {
                let problem = format!("is {endpoint}, as {other} is");
                return Err(breach(&key, problem, "write each address once".into()));
            }
            Some((other, wider)) => {
                let problem = format!("is {endpoint}, and {other} is {wider}: one contains the other");
                return Err(breach(&key, problem, "write another port for one of them".into()));
            }
            None => seen.push((key, endpoint)),
        }
    }
    Ok(())
}

/// Whether somebody who listens at one cannot listen at the other. All addresses of IPv6 are those of IPv4, too.
fn overlap(one: &Endpoint, other: &Endpoint) -> bool {
    let (Endpoint::Tcp(one), Endpoint::Tcp(other)) = (one, other) else { return one == other };
    let covers = |all: &SocketAddr, of: &SocketAddr| {
        all.ip().is_unspecified() && (all.is_ipv6() || of.is_ipv4()) || all.ip() == of.ip()
    };
    one.port() == other.port() && one.port() != 0 && (covers(one, other) || covers(other, one))
}

/// Whether an address is this host's, and its port one this user may have.
fn internet(key: &str, address: SocketAddr, kind: SocketType) -> Result<(), Breach> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let tried = socket_with(family, kind, SocketFlags::CLOEXEC, None).and_then(|socket| {
        sockopt::set_socket_reuseaddr(&socket, true)?;
        bind(&socket, &address)
    });
    let advice = match tried {
        // In use: by the very daemon this is the configuration of, for all that is known here.
        Ok(()) | Err(Errno::ADDRINUSE) => return Ok(()),
        Err(Errno::ADDRNOTAVAIL) => {
            let any = if address.is_ipv4() { "0.0.0.0" } else { "[::]" };
            format!("write an address of this host (`ip address` lists them), or {any} for all of them")
        }
        Err(Errno::ACCESS | Errno::PERM) => {
            let port = address.port();
            format!("write a port from 1024 on, or give the daemon CAP_NET_BIND_SERVICE for port {port}")
        }
        Err(_) => "write an address this host can listen on".to_owned(),
    };
    let why = tried.err().map_or_else(String::new, |errno| std::io::Error::from(errno).to_string());
    Err(breach(key, format!("is {address}, where this host cannot listen: {why}"), advice))
}

/// Whether a path is short enough, in a folder this user may write, and not taken by another kind of file.
fn unix(key: &str, path: &Path) -> Result<(), Breach> {
    let shown = path.display();
    if SocketAddrUnix::new(path).is_err() {
        let problem = format!("is {shown}, which is too long: the kernel takes 107 bytes");
        return Err(breach(key, problem, "write a shorter path".into()));
    }
    if std::fs::symlink_metadata(path).is_ok_and(|found| !found.file_type().is_socket()) {
        let problem = format!("is {shown}, which exists and is no socket");
        return Err(breach(key, problem, "write another path, or move that file away".into()));
    }
    let folder = existing(path.parent().unwrap_or(Path::new("/")));
    match access(folder, Access::WRITE_OK | Access::EXEC_OK) {
        Ok(()) => Ok(()),
        Err(errno) => {
            let why = std::io::Error::from(errno);
            let problem = format!("is {shown}, and {} cannot be written: {why}", folder.display());
            Err(breach(key, problem, "write a path in a folder the daemon's user may write".into()))
        }
    }
}

/// The control socket's folder is made if it is not there; what is in its way cannot be.
fn folder_can_be_made(path: &Path) -> Result<(), Breach> {
    let folder = existing(path.parent().unwrap_or(Path::new("/")));
    if folder.is_dir() {
        return Ok(());
    }
    let problem = format!("is {}, and {} is no folder", path.display(), folder.display());
    Err(breach("daemon.socket", problem, "write a path in a folder".into()))
}

/// The part of a path that is there.
fn existing(path: &Path) -> &Path {
    let there = path.ancestors().find(|path| path.symlink_metadata().is_ok());
    there.unwrap_or(Path::new(if path.is_absolute() { "/" } else { "." }))
}

fn breach(key: &str, problem: String, advice: String) -> Breach {
    Breach { key: key.to_owned(), problem, advice }
}
