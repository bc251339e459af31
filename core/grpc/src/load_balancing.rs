//! `loadBalancingConfig`: how endpoints are picked (gRFCs A48, A50, A58, A61, A62, A76).

use crate::json::{Place, ServiceConfigError, duration_ns, members, real};
use serde_json::Value;
use trunkline_balance::{FailureShare, Outliers, Pick, RING_MAX, Settings, SuccessRate, Weighting};
use trunkline_call::Metadata;

/// The policies there are, for whoever wrote another.
const KNOWN: &str = "one of pick_first, round_robin, least_request_experimental, weighted_round_robin, \
                     ring_hash_experimental, outlier_detection_experimental";
/// gRFC A48: more choices are treated as so many.
const CHOICES_MAX: u64 = 10;
/// gRFC A42.
const RING_MIN_DEFAULT: u64 = 1024;
/// gRFC A42: what implementations cap a ring at unless told otherwise.
const RING_MAX_DEFAULT: u64 = 4096;
/// gRFC A42: what may be written.
const RING_BOUND: u64 = 8 << 20;
/// gRFC A58: weights change no faster.
const NS_PER_SECOND: u64 = 1_000_000_000;

/// What `loadBalancingConfig` says, else the older `loadBalancingPolicy`. Of several policies the first one known here
/// holds; none known refuses the config.
pub fn load_balancing(value: &Value, at: &Place<'_>) -> Result<Option<Settings>, ServiceConfigError> {
    let top = members(value, at)?;
    let list = top.list("loadBalancingConfig")?;
    if list.is_empty() {
        let Some(name) = top.text("loadBalancingPolicy")? else { return Ok(None) };
        let none = Value::Object(serde_json::Map::new());
        return match policy(&name.to_ascii_lowercase(), &none, at)? {
            Some(settings) => Ok(Some(settings)),
            None => Err(at.wrong(format!("loadBalancingPolicy {name:?}"), KNOWN)),
        };
    }
    first_known(list, at)
}

fn first_known(
    list: Vec<(Place<'_>, &Value)>,
    at: &Place<'_>,
) -> Result<Option<Settings>, ServiceConfigError> {
    let mut names = Vec::new();
    for (at, entry) in list {
        let only = entry.as_object().filter(|entry| entry.len() == 1).and_then(|entry| entry.iter().next());
        let (name, config) = only.ok_or_else(|| {
            at.wrong("not one policy".into(), "one name with its config, as {\"round_robin\": {}}")
        })?;
        if let Some(settings) = policy(name, config, &at)? {
            return Ok(Some(settings));
        }
        names.push(name.as_str());
    }
    Err(at.wrong(format!("loadBalancingConfig of {}", names.join(", ")), KNOWN))
}

/// The settings of one policy, if it is known here.
fn policy(name: &str, config: &Value, at: &Place<'_>) -> Result<Option<Settings>, ServiceConfigError> {
    let keys = members(config, at)?;
    let pick = match name {
        "pick_first" => Pick::First { shuffle: keys.boolean("shuffleAddressList")?.unwrap_or(false) },
        "round_robin" => Pick::RoundRobin,
        "least_request_experimental" => {
            let choices = keys.number("choiceCount")?.unwrap_or(2);
            if choices < 2 {
                return Err(at.wrong(format!("choiceCount {choices}"), "a whole number from 2"));
            }
            Pick::LeastRequest { choices: choices.min(CHOICES_MAX) as u32 }
        }
        "weighted_round_robin" => Pick::Weighted(weighting(config, at)?),
        "ring_hash_experimental" => ring_hash(config, at)?,
        "outlier_detection_experimental" => {
            let children = keys.list("childPolicy")?;
            if children.is_empty() {
                return Err(at.wrong("no childPolicy".into(), "the policy it is to watch over"));
            }
            let child = first_known(children, at)?.unwrap_or_default();
            return Ok(Some(Settings { outliers: Some(outliers(config, at)?), ..child }));
        }
        _ => return Ok(None),
    };
    Ok(Some(Settings { pick, ..Settings::default() }))
}

fn weighting(config: &Value, at: &Place<'_>) -> Result<Weighting, ServiceConfigError> {
    let keys = members(config, at)?;
    let time = |key| keys.get(key).map(|(value, at)| duration_ns(value, &at)).transpose();
    let defaults = Weighting::default();
    let penalty = match keys.get("errorUtilizationPenalty") {
        None => defaults.error_penalty,
        Some((value, at)) => real(value)
            .filter(|penalty| *penalty >= 0.0)
            .ok_or_else(|| at.wrong(value.to_string(), "a number from 0"))?,
    };
    Ok(Weighting {
        blackout_ns: time("blackoutPeriod")?.unwrap_or(defaults.blackout_ns),
        expiry_ns: time("weightExpirationPeriod")?.unwrap_or(defaults.expiry_ns).max(NS_PER_SECOND),
        error_penalty: penalty,
    })
}

fn ring_hash(config: &Value, at: &Place<'_>) -> Result<Pick, ServiceConfigError> {
    let keys = members(config, at)?;
    let size = |key: &'static str, default: u64| {
        let size = keys.number(key)?.unwrap_or(default);
        match (1..=RING_BOUND).contains(&size) {
            true => Ok((size as u32).min(RING_MAX)),
            false => Err(at.wrong(format!("{key} {size}"), "a whole number from 1 to 8388608")),
        }
    };
    let (ring_min, ring_max) =
        (size("minRingSize", RING_MIN_DEFAULT)?, size("maxRingSize", RING_MAX_DEFAULT)?);
    if ring_min > ring_max {
        return Err(at.wrong(
            format!("minRingSize {ring_min}"),
            "no more than maxRingSize, which is 4096 if left out",
        ));
    }
    let key = |name: String| {
        let advice = "a metadata key: letters, digits, - _ . only";
        Metadata::key_of(&name).map_err(|_| at.wrong(format!("requestHashHeader {name:?}"), advice))
    };
    let header = keys.text("requestHashHeader")?.filter(|name| !name.is_empty()).map(key).transpose()?;
    if let Some(header) = header.as_ref().filter(|header| header.ends_with("-bin")) {
        return Err(at.wrong(format!("requestHashHeader {header:?}"), "metadata of text: a key without -bin"));
    }
    Ok(Pick::RingHash { ring_min, ring_max, header })
}

fn outliers(config: &Value, at: &Place<'_>) -> Result<Outliers, ServiceConfigError> {
    let keys = members(config, at)?;
    let time = |key| keys.get(key).map(|(value, at)| duration_ns(value, &at)).transpose();
    let defaults = Outliers::default();
    let ejection_ns = time("baseEjectionTime")?.unwrap_or(defaults.ejection_ns);
    let interval_ns = time("interval")?.unwrap_or(defaults.interval_ns);
    if interval_ns == 0 {
        return Err(at.wrong("interval 0s".into(), "more than nothing, such as \"10s\""));
    }
    let ejected_percent_max = percent(keys.number("maxEjectionPercent")?, defaults.ejected_percent_max, at)?;
    let success_rate =
        keys.get("successRateEjection").map(|(value, at)| success_rate(value, &at)).transpose()?;
    let failure_share =
        keys.get("failurePercentageEjection").map(|(value, at)| failure_share(value, &at)).transpose()?;
    Ok(Outliers {
        interval_ns,
        ejection_ns,
        ejection_ns_max: time("maxEjectionTime")?.unwrap_or(defaults.ejection_ns_max.max(ejection_ns)),
        ejected_percent_max,
        success_rate,
        failure_share,
        failures_in_a_row: 0,
    })
}

fn success_rate(value: &Value, at: &Place<'_>) -> Result<SuccessRate, ServiceConfigError> {
    let (keys, defaults) = (members(value, at)?, SuccessRate::default());
    Ok(SuccessRate {
        stdev_factor: count(keys.number("stdevFactor")?, defaults.stdev_factor),
        enforced_percent: percent(keys.number("enforcementPercentage")?, defaults.enforced_percent, at)?,
        hosts_min: count(keys.number("minimumHosts")?, defaults.hosts_min),
        volume_min: count(keys.number("requestVolume")?, defaults.volume_min),
    })
}

fn failure_share(value: &Value, at: &Place<'_>) -> Result<FailureShare, ServiceConfigError> {
    let (keys, defaults) = (members(value, at)?, FailureShare::default());
    Ok(FailureShare {
        threshold: percent(keys.number("threshold")?, defaults.threshold, at)?,
        enforced_percent: percent(keys.number("enforcementPercentage")?, defaults.enforced_percent, at)?,
        hosts_min: count(keys.number("minimumHosts")?, defaults.hosts_min),
        volume_min: count(keys.number("requestVolume")?, defaults.volume_min),
    })
}

fn count(value: Option<u64>, default: u32) -> u32 {
    value.map_or(default, |value| u32::try_from(value).unwrap_or(u32::MAX))
}

fn percent(value: Option<u64>, default: u32, at: &Place<'_>) -> Result<u32, ServiceConfigError> {
    match value.unwrap_or(default.into()) {
        percent @ 0..=100 => Ok(percent as u32),
        more => Err(at.wrong(format!("{more} percent"), "a whole number from 0 to 100")),
    }
}
