//! Policies of kind `balance`: what they say about endpoints, as the balancer takes it.

use crate::definition::{Definition, PickName, Side};
use crate::refused::Wrong;
use trunkline_balance::{Circuit, Outliers, Pick, Settings, Weighting};
use trunkline_call::Metadata;

/// gRFC A48.
const CHOICES_MAX: u32 = 10;
/// gRFC A42's defaults.
const RING_MIN: u32 = 1024;
const RING_MAX: u32 = 4096;
const MS: u64 = 1_000_000;
const HOUR_MS: u64 = 3_600_000;

/// Checks the keys of kind `balance`.
pub(crate) fn settings(definition: &Definition) -> Result<Settings, Wrong> {
    check_scope(definition)?;
    Ok(Settings { pick: pick(definition)?, outliers: outliers(definition)?, circuit: circuit(definition)? })
}

fn check_scope(d: &Definition) -> Result<(), Wrong> {
    if d.side != Side::Client {
        return Err(Wrong::new("side", "is \"server\"", "write \"client\": who calls picks an endpoint"));
    }
    let narrow = [
        ("application", d.application.is_some()),
        ("method", d.method.is_some()),
        ("when", d.when.is_some()),
    ];
    match narrow.iter().find(|(_, set)| *set) {
        Some((key, _)) => {
            let advice = "leave it out: endpoints are balanced by service, over all calls of this host";
            Err(Wrong::new(key, "does not belong to kind \"balance\"", advice))
        }
        None => Ok(()),
    }
}

fn pick(d: &Definition) -> Result<Pick, Wrong> {
    let name = d.pick.unwrap_or(PickName::RoundRobin);
    if d.choices.is_some() && name != PickName::LeastRequest {
        return Err(Wrong::new("choices", "belongs to pick = \"least-request\"", "leave it out"));
    }
    if d.hash_header.is_some() != (name == PickName::RingHash) {
        let advice = "write pick = \"ring-hash\" and hash_header = \"metadata-key\", both or neither";
        return Err(Wrong::new("hash_header", "and ring-hash mean nothing without each other", advice));
    }
    Ok(match name {
        PickName::First => Pick::First { shuffle: false },
        PickName::RoundRobin => Pick::RoundRobin,
        PickName::LeastRequest => match d.choices.unwrap_or(2) {
            choices @ 2..=CHOICES_MAX => Pick::LeastRequest { choices },
            other => return Err(Wrong::new("choices", format!("is {other}"), "write a number from 2 to 10")),
        },
        PickName::Weighted => Pick::Weighted(Weighting::default()),
        PickName::RingHash => {
            let header = d.hash_header.as_deref().map(hash_header).transpose()?;
            Pick::RingHash { ring_min: RING_MIN, ring_max: RING_MAX, header }
        }
    })
}

fn hash_header(name: &str) -> Result<String, Wrong> {
    match Metadata::key_of(name) {
        Ok(key) if key.ends_with("-bin") => Err(Wrong::new(
            "hash_header",
            format!("is {name:?}"),
            "name metadata of text: a key without -bin",
        )),
        Ok(key) => Ok(key),
        Err(error) => Err(Wrong::new("hash_header", "is no metadata key", error.to_string())),
    }
}

fn outliers(d: &Definition) -> Result<Option<Outliers>, Wrong> {
    let Some(failures_in_a_row) = d.eject_after else {
        return match (d.eject_ms, d.eject_percent_max) {
            (None, None) => Ok(None),
            _ => Err(Wrong::new("eject_after", "is missing", "add eject_after = 5, the failures in a row")),
        };
    };
    let eject_ms = d.eject_ms.unwrap_or(30_000);
    let ejected_percent_max = d.eject_percent_max.unwrap_or(50);
    if failures_in_a_row == 0 {
        return Err(Wrong::new("eject_after", "is 0", "write a number from 1, or leave it out"));
    }
    if !(1..=HOUR_MS).contains(&eject_ms) {
        return Err(Wrong::new("eject_ms", format!("is {eject_ms}"), "write a number from 1 to 3600000"));
    }
    if !(1..=100).contains(&ejected_percent_max) {
        let problem = format!("is {ejected_percent_max}");
        return Err(Wrong::new("eject_percent_max", problem, "write a number from 1 to 100"));
    }
    let ejection_ns = eject_ms * MS;
    let ejection_ns_max = ejection_ns.saturating_mul(10);
    let defaults = Outliers::default();
    Ok(Some(Outliers { ejection_ns, ejection_ns_max, ejected_percent_max, failures_in_a_row, ..defaults }))
}

fn circuit(d: &Definition) -> Result<Circuit, Wrong> {
    for (key, value) in [("outstanding_max", d.outstanding_max), ("pending_max", d.pending_max)] {
        if value == Some(0) {
            return Err(Wrong::new(key, "is 0: no call could ever go", "write a number from 1"));
        }
    }
    let open = Circuit::default();
    Ok(Circuit {
        outstanding_max: d.outstanding_max.unwrap_or(open.outstanding_max),
        pending_max: d.pending_max.unwrap_or(open.pending_max),
    })
}
