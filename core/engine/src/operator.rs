//! Operators: processes that ask the daemon itself, over a socket of its own, as any gRPC client asks a server.
//!
//! Where applications and peers come in, the host's own services (package `trunkline`) are unknown, unless the
//! application is attached and may bind them. An operator's connection is the other way round: it reaches those
//! services and nothing else, and every request is held against what the host says its process may do.

use crate::registry::{Called, MethodKey, is_own_service, is_reading};
use std::collections::VecDeque;
use trunkline_call::{CALLER_KEY, Code, Fault, MetadataWriter, Pattern, Status};

/// A process that asks the daemon itself, and what it may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operator {
    /// Who it is, by the kernel's word; what the audit log says of it.
    pub identity: String,
    /// Whether it may look; else why not.
    pub reads: Result<(), String>,
    /// Whether it may change something; else why not.
    pub changes: Result<(), String>,
}

/// A change of the daemon that somebody asked for who may not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeniedChange {
    /// Who asked, by the kernel's word or a certificate's.
    pub identity: String,
    /// The path, or the service if it asked for all of that; its beginning, if it is long.
    pub change: String,
    /// Who says that it may not.
    pub why: String,
    /// Others before it that nobody was told of.
    pub left_out: u64,
}

/// Longest part of a path that is kept.
const PATH_BYTES_MAX: usize = 128;
/// Denied changes kept for the host; more are counted.
const DENIED_MAX: usize = 64;

impl DeniedChange {
    /// One that nobody was left out before.
    pub fn new(identity: &str, path: &str, why: &str) -> Self {
        let change = path.trim_start_matches('/');
        let change = &change[..change.floor_char_boundary(PATH_BYTES_MAX)];
        Self { identity: identity.to_owned(), change: change.to_owned(), why: why.to_owned(), left_out: 0 }
    }
}

/// Denied changes that the host has not taken yet.
#[derive(Debug, Default)]
pub(crate) struct DeniedChanges {
    waiting: VecDeque<DeniedChange>,
    left_out: u64,
}

impl DeniedChanges {
    pub fn push(&mut self, denied: DeniedChange) {
        if self.waiting.len() >= DENIED_MAX {
            self.left_out += 1;
            return;
        }
        self.waiting.push_back(DeniedChange { left_out: std::mem::take(&mut self.left_out), ..denied });
    }

    pub fn poll(&mut self) -> Option<DeniedChange> {
        self.waiting.pop_front()
    }
}

impl Operator {
    /// What it asks for there, if that is a change that it may not make.
    pub(crate) fn denied(&self, path: &str) -> Option<DeniedChange> {
        let is_change = is_own_service(path.trim_start_matches('/')) && !is_reading(path);
        let why = self.changes.as_ref().err().filter(|_| is_change)?;
        Some(DeniedChange::new(&self.identity, path, why))
    }

    /// The method it calls, if it may; and if anybody serves it.
    ///
    /// # Errors
    /// It may not, or there is none.
    pub(crate) fn asked(
        &self,
        path: &str,
        served: Option<(MethodKey, Pattern)>,
    ) -> Result<(Called, Pattern), Status> {
        if !is_own_service(path.trim_start_matches('/')) {
            return Err(Fault::NoMethod { path: path.to_owned() }.status());
        }
        let may = if is_reading(path) { &self.reads } else { &self.changes };
        if let Err(why) = may {
            return Err(Status::new(Code::PermissionDenied, format!("{path}: {why}")));
        }
        match served {
            Some((method, pattern)) => Ok((Called { method, path: None }, pattern)),
            _ => Err(Fault::NoMethod { path: path.to_owned() }.status()),
        }
    }
}

/// Metadata that says who calls, whatever it said before.
pub(crate) fn introduced(identity: &str, metadata: Vec<u8>) -> Vec<u8> {
    // What is malformed is refused with the call.
    let spare_bytes = CALLER_KEY.len() + identity.len() + 8;
    let others = MetadataWriter::behind_others(&metadata, spare_bytes, |key| key == CALLER_KEY);
    let Ok(mut introduced) = others else { return metadata };
    match introduced.insert(CALLER_KEY, identity.as_bytes()) {
        Ok(()) => introduced.into_bytes(),
        Err(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    //! Shows which refusals are told to the host, and how many of them wait for it.
    use super::*;

    #[test]
    fn changes_that_are_denied_are_told_of_and_counted_beyond_a_bound() {
        let operator =
            Operator { identity: "uid:7".into(), reads: Err("no".into()), changes: Err("no".into()) };
        assert_eq!(operator.denied("/trunkline.admin.v1.Admin/ListPolicies"), None, "that changes nothing");
        assert_eq!(operator.denied("/search.v1.Search/Query"), None, "that is nobody's here");
        let denied = operator.denied("/trunkline.admin.v1.Control/Upgrade").unwrap();
        assert_eq!(denied, DeniedChange::new("uid:7", "trunkline.admin.v1.Control/Upgrade", "no"));
        let long = operator.denied(&format!("/trunkline.{}", "\u{e4}".repeat(4000))).unwrap();
        assert!(long.change.len() <= PATH_BYTES_MAX, "{long:?}");
        assert_eq!(
            Operator { changes: Ok(()), ..operator }.denied("/trunkline.admin.v1.Control/Upgrade"),
            None
        );

        let mut waiting = DeniedChanges::default();
        (0..DENIED_MAX + 5).for_each(|_| waiting.push(denied.clone()));
        assert_eq!(waiting.poll(), Some(denied.clone()));
        waiting.push(denied);
        let left_out: Vec<_> = std::iter::from_fn(|| waiting.poll()).map(|denied| denied.left_out).collect();
        assert_eq!(
            (left_out.len(), left_out.iter().sum::<u64>(), left_out.last()),
            (DENIED_MAX, 5, Some(&5))
        );
    }
}
