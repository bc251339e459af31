//! Endpoints that are names: they stand for others, as long as whoever looks them up says so.
//!
//! A name is an endpoint without connections. Clusters that have it (`cluster.rs`) have those it stands for; while
//! nobody has looked it up, their calls wait in its line. The host looks names up, off the way of calls: it is asked
//! when a name is first used and whenever an endpoint of it fails, and may tell news at any time.

use crate::RemoteKey;
use http::uri::Authority;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// All names.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Names {
    table: HashMap<RemoteKey, Name>,
    /// To be looked up by the host.
    #[serde(skip)]
    pub(crate) wanted: VecDeque<Arc<str>>,
    /// Forgotten, and to be looked up no more.
    #[serde(skip)]
    pub(crate) forgotten: VecDeque<Arc<str>>,
}

#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
struct Name {
    /// `host:port`, unless it is a list of addresses.
    #[serde(skip)]
    authority: Option<Authority>,
    endpoints: Vec<RemoteKey>,
    /// The host has been asked and has not answered.
    #[serde(skip)]
    asked: bool,
    /// What the last lookup ended with, if it brought nothing.
    failure: Option<String>,
}

/// Ways to write several endpoints, or none yet. (An address and a path begin otherwise.)
const PREFIXES: [&str; 3] = ["dns:", "ipv4:", "ipv6:"];

impl Names {
    /// Whether this endpoint is a name.
    pub fn is_name(endpoint: &str) -> bool {
        PREFIXES.iter().any(|prefix| endpoint.starts_with(prefix))
    }

    pub fn add(&mut self, key: RemoteKey, text: &str) {
        self.table.insert(key, Name { authority: authority(text), ..Name::default() });
    }

    /// What requests to this name say they are for: a server may serve several names at one address.
    pub fn authority(&self, key: RemoteKey) -> Option<&Authority> {
        self.table.get(&key)?.authority.as_ref()
    }

    pub fn contains(&self, key: RemoteKey) -> bool {
        self.table.contains_key(&key)
    }

    /// What a name stands for; `None` if it is no name.
    pub fn endpoints(&self, key: RemoteKey) -> Option<&[RemoteKey]> {
        self.table.get(&key).map(|name| &name.endpoints[..])
    }

    /// Why nobody knows what a name stands for, if that has been found out.
    pub fn failure(&self, key: RemoteKey) -> Option<&str> {
        self.table.get(&key)?.failure.as_deref()
    }

    /// Every endpoint that some name stands for.
    pub fn all_endpoints(&self) -> HashSet<RemoteKey> {
        self.table.values().flat_map(|name| &name.endpoints).copied().collect()
    }

    /// An endpoint is forgotten that may be a name. What it stood for.
    pub fn remove(&mut self, key: RemoteKey, text: &Arc<str>) -> Vec<RemoteKey> {
        let Some(name) = self.table.remove(&key) else { return Vec::new() };
        self.wanted.retain(|wanted| wanted != text);
        self.forgotten.push_back(Arc::clone(text));
        name.endpoints
    }

    /// Names that were handed over: each is asked for anew, and stands for what it stood for until then.
    pub fn take_up(&mut self, text: impl Fn(RemoteKey) -> Option<Arc<str>>) {
        self.table.retain(|key, _| text(*key).is_some());
        for (key, name) in &mut self.table {
            let Some(text) = text(*key) else { continue };
            (name.authority, name.asked) = (authority(&text), true);
            self.wanted.push_back(text);
        }
    }

    /// What a name stands for by now, or why that is not known. What stood there before stays when nothing is known,
    /// and is given back otherwise.
    pub fn answer(&mut self, key: RemoteKey, known: Result<Vec<RemoteKey>, String>) -> Vec<RemoteKey> {
        let Some(name) = self.table.get_mut(&key) else { return Vec::new() };
        name.asked = false;
        match known {
            Ok(endpoints) => {
                name.failure = None;
                std::mem::replace(&mut name.endpoints, endpoints)
            }
            Err(why) => {
                name.failure = Some(why);
                Vec::new()
            }
        }
    }

    /// Names that stand for an endpoint.
    pub fn of(&self, endpoint: RemoteKey) -> Vec<RemoteKey> {
        let stands = |name: &Name| name.endpoints.contains(&endpoint);
        self.table.iter().filter(|(_, name)| stands(name)).map(|(key, _)| *key).collect()
    }

    /// Has the host asked for a name, unless it has been asked and has not answered.
    pub fn ask(&mut self, key: RemoteKey, text: &Arc<str>) {
        let Some(name) = self.table.get_mut(&key) else { return };
        if !std::mem::replace(&mut name.asked, true) {
            self.wanted.push_back(Arc::clone(text));
        }
    }
}

/// `host:port` of `dns:///host:port`.
fn authority(text: &str) -> Option<Authority> {
    let name = text.strip_prefix("dns:")?;
    name.trim_start_matches('/').parse().ok()
}
