//! `[[tenant]]`: how the programs of a host share a shard's time, and what may be held for them.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Largest weight: what one unit gets in a turn is this part of it at least.
pub(super) const WEIGHT_MAX: u32 = 1000;

/// The share of one user, one control group, or those who serve a service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Tenant {
    /// The user whose applications they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// The control group they run in, whole (`/system.slice/shop.service`) or up to a `*`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// A service they serve, by its full name, or all of a package (`pay.v1.*`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// How much they get beside others, whose weight is 1 if nothing is said.
    pub weight: u32,
}

/// An application that is to have a share.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TenantCandidate<'a> {
    /// Its user, as the engine knows it: `uid:1001`.
    pub identity: &'a str,
    /// Its control group; empty if nobody knows.
    pub cgroup: &'a str,
    /// What it serves.
    pub services: &'a [Box<str>],
}

impl Tenant {
    /// Whose share an application has part of, by a name, and its weight: as the first table says that fits, else its
    /// user's, of weight 1.
    pub(crate) fn of<'a>(tables: &'a [Self], applicant: &TenantCandidate<'a>) -> (Cow<'a, str>, u32) {
        match tables.iter().find(|table| table.fits(applicant)) {
            Some(table) => (table.name(), table.weight),
            None => (Cow::Borrowed(applicant.identity), 1),
        }
    }

    /// What it is about, as the engine knows users.
    pub(crate) fn name(&self) -> Cow<'_, str> {
        Cow::Owned(match (self.uid, &self.cgroup, &self.service) {
            (Some(uid), ..) => format!("uid:{uid}"),
            (None, Some(cgroup), _) => format!("cgroup:{cgroup}"),
            (None, None, service) => format!("service:{}", service.as_deref().unwrap_or_default()),
        })
    }

    fn fits(&self, applicant: &TenantCandidate<'_>) -> bool {
        if self.uid.is_some() {
            return *self.name() == *applicant.identity;
        }
        if let Some(cgroup) = &self.cgroup {
            return !applicant.cgroup.is_empty() && fits(cgroup, applicant.cgroup);
        }
        self.service.as_ref().is_some_and(|service| applicant.services.iter().any(|name| fits(service, name)))
    }
}

/// Whether a name is this one, or begins as it does up to a star.
fn fits(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => pattern == name,
    }
}
