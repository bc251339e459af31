//! What a configuration says of this host: whether the files are there and can be used, whether this host can listen
//! where it says, and whether the policies can be put to work.
//!
//! A file that reads well may still name a certificate that was never copied here. Whoever checks a configuration
//! before it is used, and whoever begins with it, hears so with the place of the key. What another process may change
//! at any moment, such as who listens at a port, is not the configuration's fault and is not looked at here.

mod policies;
mod sockets;

use crate::config::{Breach, Config, ConfigError};
use crate::keys::of_files;
use rustix::fs::{Access, access};
use std::path::{Path, PathBuf};
use trunkline_net::{Endpoint, TlsClient, TlsError};

/// What is in files of TLS.
const CHAIN: &str = "a certificate chain";
const KEY: &str = "a private key that is not encrypted";
const ROOTS: &str = "the roots of servers' certificates";

/// Holds a configuration against this host. `text` is what it was read from, `origin` names that in errors. Modules
/// among the policies are loaded, asked for an instance, and unloaded again.
///
/// # Errors
/// [`ConfigError`] for the first thing that is not there or cannot be used, with the place of the key that names it.
pub fn check_host(config: &Config, text: &str, origin: &str) -> Result<(), ConfigError> {
    let checked = keys(config)
        .and_then(|()| collector_keys(config))
        .and_then(|()| shared_keys(config))
        .and_then(|()| folders(config))
        .and_then(|()| sockets::check(config));
    let checked = checked.and_then(|()| schemas(config));
    checked.map_err(|breach| ConfigError::of_rule(breach, text, origin))?;
    policies::check(config, text, origin)
}

/// Holds against this host what a relay beside the daemon needs of a configuration: where the daemon writes and listens
/// is nothing to the relay, which may be unable to write there.
///
/// # Errors
/// As those of [`check_host`].
pub fn check_relay(config: &Config, text: &str, origin: &str) -> Result<(), ConfigError> {
    let checked = keys(config).and_then(|()| sockets::check_relay(config));
    checked.map_err(|breach| ConfigError::of_rule(breach, text, origin))
}

/// Why a daemon does not listen at an address, with the place of the key that names it. `origin` is what the text of
/// the configuration is called.
pub fn cannot_listen(
    (key, address): (&str, &str),
    error: &std::io::Error,
    text: &str,
    origin: &str,
) -> ConfigError {
    ConfigError::of_rule(sockets::not_listening(key, address, error), text, origin)
}

fn keys(config: &Config) -> Result<(), Breach> {
    let tls = &config.tls;
    let named = FileKeys {
        certificate: ("tls.certificate", &tls.certificate, CHAIN),
        key: ("tls.key", &tls.key, KEY),
        client_ca: Some(("tls.client_ca", &tls.client_ca, "the roots of clients' certificates")),
        ca: ("tls.ca", &tls.ca, ROOTS),
        crl: Some(("tls.crl", &tls.crl, "lists of revoked certificates")),
    };
    of_files(tls).map(drop).map_err(|error| named.breach(&error))
}

/// Keys for the OpenTelemetry collector.
fn collector_keys(config: &Config) -> Result<(), Breach> {
    let Some(files) = config.otlp.files(&config.tls) else { return Ok(()) };
    let otlp = &config.otlp;
    let named = FileKeys {
        certificate: ("otlp.certificate", &otlp.certificate, CHAIN),
        key: ("otlp.key", &otlp.key, KEY),
        client_ca: None,
        ca: ("otlp.ca", &otlp.ca, ROOTS),
        crl: None,
    };
    TlsClient::load(&files).map(drop).map_err(|error| named.breach(&error))
}

/// A key of the configuration, the file it names, and what is in that file.
type FileKey<'a> = (&'static str, &'a Path, &'static str);

/// Which keys of the configuration name files of TLS.
struct FileKeys<'a> {
    certificate: FileKey<'a>,
    key: FileKey<'a>,
    client_ca: Option<FileKey<'a>>,
    ca: FileKey<'a>,
    crl: Option<FileKey<'a>>,
}

impl FileKeys<'_> {
    /// What is wrong with a file, under the key that names it.
    fn breach(&self, error: &TlsError) -> Breach {
        let Self { certificate, key, client_ca, ca, crl } = self;
        let certificates = [certificate].into_iter().chain(client_ca).chain([ca]);
        let found = match error {
            // One file may be named by several keys: what was looked for in it says which.
            TlsError::Content { what, .. } if what.contains("PRIVATE KEY") => Some(key),
            TlsError::Content { path, .. } => {
                crl.iter().chain(certificates).find(|(_, named, _)| *named == path)
            }
            TlsError::Unreadable { path, .. } => {
                certificates.chain([key]).chain(crl).find(|(_, named, _)| *named == path)
            }
            TlsError::Mismatch { .. } => Some(key),
            TlsError::NoRoots { .. } => None,
        };
        // The system's roots are named by no key.
        let (name, _, content) = found.unwrap_or(ca);
        let advice = match error {
            TlsError::Mismatch { .. } => {
                "write the certificate and the key that were made for each other".into()
            }
            _ => format!("write the path of a PEM file with {content}, which the daemon's user may read"),
        };
        Breach { key: (*name).into(), problem: error.to_string(), advice }
    }
}

/// Keys that hosts share.
fn shared_keys(config: &Config) -> Result<(), Breach> {
    let advice =
        "write the path of the cluster's file of keys, which the daemon's user may read and others may not";
    let unusable = |error: trunkline_net::KeyFileError| Breach {
        key: "r2p2.key_file".into(),
        problem: error.to_string(),
        advice: advice.into(),
    };
    config.r2p2.keys().map(drop).map_err(unusable)
}

/// Folders in which the daemon makes a file: the file is its own to make, the folder is not.
fn folders(config: &Config) -> Result<(), Breach> {
    let sockets = |key: &'static str, addresses: &[crate::Address]| {
        let paths = addresses.iter().filter_map(|address| match &address.0 {
            Endpoint::Unix(path) => Some(path.clone()),
            _ => None,
        });
        paths.map(|path| (key, path)).collect::<Vec<_>>()
    };
    let mut files = sockets("daemon.listen", &config.daemon.listen);
    files.extend(sockets("admin.listen", &config.admin.listen));
    files.extend(sockets("gateway.listen", &config.gateway.listen));
    let written = [
        ("admin.audit_log", &config.admin.audit_log),
        ("admin.policies_file", &config.admin.policies_file),
        ("samples.file", &config.samples.file),
    ];
    let written = written.into_iter().filter(|(_, path)| !path.as_os_str().is_empty());
    let written: Vec<_> = written.map(|(key, path)| (key, path.clone())).collect();
    files.extend(written.iter().cloned());
    for (key, path) in files {
        let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) else { continue };
        let problem = match std::fs::metadata(folder) {
            Ok(found) if found.is_dir() => continue,
            Ok(_) => format!("names {}, and {} is no folder", path.display(), folder.display()),
            Err(error) => format!("names {}, and its folder cannot be used: {error}", path.display()),
        };
        let advice = format!("make {}, or write a path in a folder that is there", folder.display());
        return Err(Breach { key: key.into(), problem, advice });
    }
    apart(&written)?;
    written.iter().try_for_each(|(key, path)| can_be_written(key, path))
}

/// Files that are written are files of their own, by whatever link they are named.
fn apart(written: &[(&'static str, PathBuf)]) -> Result<(), Breach> {
    let found = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    for (index, (key, path)) in written.iter().enumerate() {
        let same = written[..index].iter().find(|(_, before)| found(before) == found(path));
        if let Some((before, _)) = same {
            let problem = format!("names {}, the file of {before}", path.display());
            return Err(Breach { key: (*key).into(), problem, advice: "write a file of its own".into() });
        }
    }
    Ok(())
}

/// Whether the daemon's user may write a file, or make it where it is not there yet. Nothing is made.
fn can_be_written(key: &str, path: &Path) -> Result<(), Breach> {
    let breach =
        |problem: String, advice: &str| Err(Breach { key: key.into(), problem, advice: advice.into() });
    let shown = path.display();
    if path.is_dir() {
        return breach(format!("names {shown}, which is a folder"), "write the path of a file");
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Policies are written anew beside the file, which is then replaced: that needs the folder.
    let is_appended = path.exists() && key != "admin.policies_file";
    let (asked, rights) = match is_appended {
        true => (path, Access::WRITE_OK),
        false => (folder, Access::WRITE_OK | Access::EXEC_OK),
    };
    let Err(errno) = access(asked, rights) else { return Ok(()) };
    let why = std::io::Error::from(errno);
    let problem = format!("names {shown}, and {} cannot be written: {why}", asked.display());
    breach(problem, "let the daemon's user write there, or write a path where it may")
}

fn schemas(config: &Config) -> Result<(), Breach> {
    let advice =
        "write the path of a descriptor set, as protoc --include_imports --descriptor_set_out makes it";
    let unusable = |problem| Breach { key: "gateway.schemas".into(), problem, advice: advice.into() };
    config.gateway.settings().map(drop).map_err(unusable)
}
