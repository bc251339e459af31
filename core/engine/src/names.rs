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
    /// Which of them stand for an endpoint, by that: what changes for one name is found without the others.
    #[serde(skip)]
    standing: HashMap<RemoteKey, HashSet<RemoteKey>>,
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

    /// Whether some name stands for an endpoint.
    pub fn stand_for(&self, endpoint: RemoteKey) -> bool {
        self.standing.contains_key(&endpoint)
    }

    /// Whether this name stands for an endpoint.
    pub fn stands_for(&self, name: RemoteKey, endpoint: RemoteKey) -> bool {
        self.standing.get(&endpoint).is_some_and(|names| names.contains(&name))
    }

    /// An endpoint is forgotten that may be a name. What it stood for.
    pub fn remove(&mut self, key: RemoteKey, text: &Arc<str>) -> Vec<RemoteKey> {
        let Some(name) = self.table.remove(&key) else { return Vec::new() };
        self.wanted.retain(|wanted| wanted != text);
        self.forgotten.push_back(Arc::clone(text));
        name.endpoints.iter().for_each(|endpoint| self.stands_no_more(key, *endpoint));
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
        self.standing.clear();
        for (key, name) in &self.table {
            name.endpoints
                .iter()
                .for_each(|endpoint| _ = self.standing.entry(*endpoint).or_default().insert(*key));
        }
    }

    /// What a name stands for by now, or why that is not known: then what stood there before stays. Whether it stands
    /// for others than before, and for which no more.
    pub fn answer(
        &mut self,
        key: RemoteKey,
        known: Result<Vec<RemoteKey>, String>,
    ) -> Option<Vec<RemoteKey>> {
        let name = self.table.get_mut(&key)?;
        name.asked = false;
        let endpoints = match known {
            Ok(endpoints) => endpoints,
            Err(why) => {
                name.failure = Some(why);
                return None;
            }
        };
        name.failure = None;
        if name.endpoints == endpoints {
            return None;
        }
        let mut before = std::mem::replace(&mut name.endpoints, endpoints.clone());
        for endpoint in &endpoints {
            self.standing.entry(*endpoint).or_default().insert(key);
        }
        let now: HashSet<RemoteKey> = endpoints.into_iter().collect();
        before.retain(|endpoint| !now.contains(endpoint));
        before.iter().for_each(|endpoint| self.stands_no_more(key, *endpoint));
        Some(before)
    }

    fn stands_no_more(&mut self, name: RemoteKey, endpoint: RemoteKey) {
        let Some(names) = self.standing.get_mut(&endpoint) else { return };
        names.remove(&name);
        if names.is_empty() {
            self.standing.remove(&endpoint);
        }
    }

    /// Names that stand for an endpoint.
    pub fn of(&self, endpoint: RemoteKey) -> Vec<RemoteKey> {
        self.standing.get(&endpoint).into_iter().flatten().copied().collect()
    }

    /// Has the host asked for a name, unless it has been asked and has not answered.
    pub fn ask(&mut self, key: RemoteKey, text: &Arc<str>) {
        let Some(name) = self.table.get_mut(&key) else { return };
        if !std::mem::replace(&mut name.asked, true) {
            self.wanted.push_back(Arc::clone(text));
        }
    }

    /// Another user has bound a name of which the host has been asked and has not answered: it is asked again, because
    /// the name is that user's by now, too.
    pub fn ask_for_another(&mut self, key: RemoteKey, text: &str) {
        let waits = self.table.get(&key).is_some_and(|name| name.asked);
        if waits && !self.wanted.iter().any(|wanted| **wanted == *text) {
            self.wanted.push_back(text.into());
        }
    }
}

/// `host:port` of `dns:///host:port`.
fn authority(text: &str) -> Option<Authority> {
    let name = text.strip_prefix("dns:")?;
    name.trim_start_matches('/').parse().ok()
}

#[cfg(test)]
mod tests {
    //! Shows that what stands for what is known from both sides, and that nothing is left of names that are forgotten.
    use super::*;

    #[test]
    fn what_changes_for_one_name_is_all_that_is_told() {
        let [a, b, x, y, z] = [1, 2, 11, 12, 13].map(RemoteKey::from_bits);
        let mut names = Names::default();
        names.add(a, "dns:///a:1");
        names.add(b, "dns:///b:1");
        assert_eq!(names.answer(a, Ok(vec![x, y, y])), Some(vec![]));
        assert_eq!(names.answer(b, Ok(vec![y])), Some(vec![]));
        assert_eq!(names.answer(a, Ok(vec![x, y, y])), None, "no news");
        assert_eq!(names.answer(a, Err("gone".into())), None, "what is not known stays");
        assert_eq!(names.answer(a, Ok(vec![z, y])), Some(vec![x]));
        assert!(
            !names.stand_for(x) && names.stand_for(y) && names.stands_for(a, z) && !names.stands_for(b, z)
        );
        let mut of = names.of(y);
        of.sort_unstable_by_key(|name| name.to_bits());
        assert_eq!(of, [a, b]);
        names.ask_for_another(b, "dns:///b:1");
        assert_eq!(names.wanted.len(), 0, "nobody has asked");
        names.ask(a, &"dns:///a:1".into());
        names.wanted.clear();
        (0..2).for_each(|_| names.ask_for_another(a, "dns:///a:1"));
        assert_eq!(names.wanted.len(), 1);
        assert_eq!(names.remove(a, &"dns:///a:1".into()), [z, y]);
        assert_eq!((names.of(y), names.stand_for(z)), (vec![b], false));
        assert_eq!(names.remove(b, &"dns:///b:1".into()), [y]);
        assert!(names.standing.is_empty() && names.table.is_empty());
    }
}
