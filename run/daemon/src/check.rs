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
use std::path::Path;
use trunkline_net::{Endpoint, TlsError};

/// Holds a configuration against this host. `text` is what it was read from, `origin` names that in errors. Modules
/// among the policies are loaded, asked for an instance, and unloaded again.
///
/// # Errors
/// [`ConfigError`] for the first thing that is not there or cannot be used, with the place of the key that names it.
pub fn check_host(config: &Config, text: &str, origin: &str) -> Result<(), ConfigError> {
    let checked = keys(config)
        .and_then(|()| shared_keys(config))
        .and_then(|()| folders(config))
        .and_then(|()| sockets::check(config));
    let checked = checked.and_then(|()| schemas(config));
    checked.map_err(|breach| ConfigError::of_rule(breach, text, origin))?;
    policies::check(config, text, origin)
}

fn keys(config: &Config) -> Result<(), Breach> {
    let error = match of_files(&config.tls) {
        Ok(_) => return Ok(()),
        Err(error) => error,
    };
    let tls = &config.tls;
    let keys = [
        (&tls.certificate, "tls.certificate", "a certificate chain"),
        (&tls.key, "tls.key", "a private key that is not encrypted"),
        (&tls.client_ca, "tls.client_ca", "the roots of clients' certificates"),
        (&tls.ca, "tls.ca", "the roots of servers' certificates"),
        (&tls.crl, "tls.crl", "lists of revoked certificates"),
    ];
    let [certificate, key, client_ca, ca, crl] = &keys;
    let of_file = |path: &Path| keys.iter().find(|(named, ..)| *named == path);
    let found = match &error {
        // One file may be named by several keys: what was looked for in it says which.
        TlsError::Content { what, .. } if what.contains("PRIVATE KEY") => Some(key),
        TlsError::Content { path, .. } if *path == tls.crl => Some(crl),
        TlsError::Content { path, .. } => {
            [certificate, client_ca, ca].into_iter().find(|(named, ..)| *named == path)
        }
        TlsError::Unreadable { path, .. } => of_file(path),
        TlsError::Mismatch { .. } => Some(key),
        TlsError::NoRoots { .. } => None,
    };
    // The system's roots are named by no key.
    let (_, key, content) = found.unwrap_or(ca);
    let advice = match &error {
        TlsError::Mismatch { .. } => "write the certificate and the key that were made for each other".into(),
        _ => format!("write the path of a PEM file with {content}, which the daemon's user may read"),
    };
    Err(Breach { key: (*key).into(), problem: error.to_string(), advice })
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
    files.push(("admin.audit_log", config.admin.audit_log.clone()));
    files.push(("admin.policies_file", config.admin.policies_file.clone()));
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
    if config.admin.audit_log.is_dir() {
        let problem = format!("names {}, which is a folder", config.admin.audit_log.display());
        return Err(Breach {
            key: "admin.audit_log".into(),
            problem,
            advice: "write the path of a file".into(),
        });
    }
    Ok(())
}

fn schemas(config: &Config) -> Result<(), Breach> {
    let advice =
        "write the path of a descriptor set, as protoc --include_imports --descriptor_set_out makes it";
    let unusable = |problem| Breach { key: "gateway.schemas".into(), problem, advice: advice.into() };
    config.gateway.settings().map(drop).map_err(unusable)
}
