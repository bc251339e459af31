//! Endpoints that are names: they stand for others, as long as whoever looks them up says so.
//!
//! A name is an endpoint without connections. Calls for it go on to those it stands for, in turn, those that are not
//! being left alone after a failure first; while nobody has looked it up, they wait in its line. The host looks names
//! up, off the way of calls: it is asked when a name is first used and whenever an endpoint of it fails, and may tell
//! news at any time.

use crate::call::Item;
use crate::engine::{Engine, Turn};
use crate::pass::{Blocker, Refusal};
use crate::{CallKey, RemoteKey};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use trunkline_call::Fault;

/// All names.
#[derive(Debug, Default)]
pub(crate) struct Names {
    table: HashMap<RemoteKey, Name>,
    /// To be looked up by the host.
    wanted: VecDeque<Arc<str>>,
}

#[derive(Debug, Default)]
struct Name {
    endpoints: Vec<RemoteKey>,
    next: usize,
    /// The host has been asked and has not answered.
    asked: bool,
    /// What the last lookup ended with, if it brought nothing.
    failure: Option<String>,
}

/// Where a call for a name goes.
enum Way {
    To(RemoteKey),
    Wait,
    Nowhere(String),
}

/// Ways to write several endpoints, or none yet. (An address and a path begin otherwise.)
const PREFIXES: [&str; 3] = ["dns:", "ipv4:", "ipv6:"];

impl Names {
    /// Whether this endpoint is a name.
    pub fn is_name(endpoint: &str) -> bool {
        PREFIXES.iter().any(|prefix| endpoint.starts_with(prefix))
    }

    pub fn add(&mut self, key: RemoteKey) {
        self.table.insert(key, Name::default());
    }

    pub fn contains(&self, key: RemoteKey) -> bool {
        self.table.contains_key(&key)
    }

    /// Whether some name stands for this endpoint.
    pub fn stand_for(&self, endpoint: RemoteKey) -> bool {
        self.table.values().any(|name| name.endpoints.contains(&endpoint))
    }

    fn ask(&mut self, key: RemoteKey, text: &Arc<str>) {
        let Some(name) = self.table.get_mut(&key) else { return };
        if !std::mem::replace(&mut name.asked, true) {
            self.wanted.push_back(Arc::clone(text));
        }
    }
}

impl Engine {
    /// The next name to look up. Every one is to be answered with [`Engine::handle_looked_up`], sooner or later.
    pub fn poll_lookup(&mut self) -> Option<Arc<str>> {
        self.remotes.names.wanted.pop_front()
    }

    /// What a name stands for by now, or why that is not known. What stood there before stays when nothing is known.
    pub fn handle_looked_up(&mut self, turn: &mut Turn<'_>, name: &str, found: Result<&[String], &str>) {
        let Some(key) = self.remotes.named(name) else { return };
        let known = match found {
            Ok([]) => Err("the name has no addresses".to_owned()),
            Ok(endpoints) => self.intern_all(endpoints),
            Err(why) => Err(why.to_owned()),
        };
        let Some(entry) = self.remotes.names.table.get_mut(&key) else { return };
        entry.asked = false;
        match known {
            Ok(endpoints) => (entry.endpoints, entry.failure) = (endpoints, None),
            Err(why) => entry.failure = Some(why),
        }
        self.remotes.forget_unnamed();
        self.serve_line(turn, key);
    }

    /// A call for a name: on to what it stands for.
    pub(crate) fn hand_to_name<'a>(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        name: RemoteKey,
        item: Item<'a>,
    ) -> Result<(), Refusal<'a>> {
        let Some(remote) = self.remotes.find(name) else {
            self.drop_item(item);
            return Err(Refusal::Fault(Fault::NoRoute { what: "endpoint".into() }));
        };
        let (text, waiting) = (Arc::clone(&remote.endpoint), remote.waiting.len());
        let limit = self.limits.calls_waiting_per_endpoint;
        let waits = self.calls.find(key).is_some_and(|call| call.waits_for_ready);
        match self.way_of(turn, name) {
            Way::To(endpoint) => self.hand_to_remote(turn, key, endpoint, item),
            Way::Wait if waiting < limit => {
                self.remotes.names.ask(name, &text);
                Err(Refusal::Blocked(item, Blocker::Remote(name)))
            }
            Way::Wait => {
                self.drop_item(item);
                let limit = limit as u64;
                Err(Refusal::Fault(Fault::Limit { name: "calls waiting for a connection", limit }))
            }
            // Ready to wait: the next answer is asked for, and may be better.
            Way::Nowhere(_) if waits && waiting < limit => {
                self.remotes.names.ask(name, &text);
                Err(Refusal::Blocked(item, Blocker::Remote(name)))
            }
            Way::Nowhere(why) => {
                self.remotes.names.ask(name, &text);
                self.drop_item(item);
                Err(Refusal::Fault(Fault::Unreachable { endpoint: text.to_string(), why }))
            }
        }
    }

    /// An endpoint could not be reached, or was lost: those that know it by a name look again.
    pub(crate) fn ask_names_of(&mut self, endpoint: RemoteKey) {
        let stands = |name: &Name| name.endpoints.contains(&endpoint);
        let names: Vec<_> =
            self.remotes.names.table.iter().filter(|(_, name)| stands(name)).map(|(key, _)| *key).collect();
        for key in names {
            if let Some(text) = self.remotes.find(key).map(|remote| Arc::clone(&remote.endpoint)) {
                self.remotes.names.ask(key, &text);
            }
        }
    }

    fn way_of(&mut self, turn: &Turn<'_>, key: RemoteKey) -> Way {
        let Some(name) = self.remotes.names.table.get_mut(&key) else { return Way::Wait };
        let count = name.endpoints.len();
        if count == 0 {
            return name.failure.clone().map_or(Way::Wait, Way::Nowhere);
        }
        let first = name.next;
        name.next = (first + 1) % count;
        let in_turn: Vec<RemoteKey> = (0..count).map(|step| name.endpoints[(first + step) % count]).collect();
        let rested =
            |key: &&RemoteKey| self.remotes.find(**key).is_some_and(|remote| remote.not_before <= turn.now);
        Way::To(*in_turn.iter().find(rested).unwrap_or(&in_turn[0]))
    }

    fn intern_all(&mut self, endpoints: &[String]) -> Result<Vec<RemoteKey>, String> {
        let limit = self.limits.endpoints;
        let intern = |endpoint: &String| self.remotes.intern_named(endpoint, limit);
        let known: Vec<RemoteKey> = endpoints.iter().filter_map(intern).collect();
        if known.is_empty() { Err(format!("endpoints limit of {limit} reached")) } else { Ok(known) }
    }
}
