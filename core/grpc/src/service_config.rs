//! Service config: what the users of a service say about calls of it, as the JSON every gRPC library reads.
//!
//! The form is that of the gRPC project's `service_config.proto` and gRFCs A2 (name matching), A6 (retries, hedging,
//! throttling) and A26/A31 (load balancing). Keys nobody knows are ignored, as those documents ask; a key that is known
//! and wrong refuses the whole config, with its place in the document, and what to write instead.

use crate::json::{Place, check_size, duration_ns, members, real, whole};
use crate::load_balancing::load_balancing;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;
use trunkline_balance::Settings;
use trunkline_call::Code;

pub use crate::json::ServiceConfigError;

/// A whole service config.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServiceConfig {
    /// By `/package.Service/Method`, `/package.Service/`, or nothing at all for every other call.
    methods: HashMap<Box<str>, Arc<MethodConfig>>,
    /// What bounds retries and hedges of all methods together.
    pub retry_throttling: Option<RetryThrottling>,
    /// How endpoints are picked, if it says so.
    pub load_balancing: Option<Settings>,
    /// The service to watch in the peer's health service.
    pub health_service: Option<String>,
}

/// What is said about some methods. What is not said is left to others.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct MethodConfig {
    /// Whether calls wait for a connection until their deadline, instead of failing with the first failed attempt.
    pub wait_for_ready: Option<bool>,
    /// Longest a call may take; a shorter deadline of its own wins.
    pub timeout_ns: Option<u64>,
    /// Longest request message; a smaller limit of the host's own wins.
    pub request_bytes_max: Option<u32>,
    /// Longest response message, likewise.
    pub response_bytes_max: Option<u32>,
    /// What to do about calls that fail or are slow.
    pub attempts: Attempts,
}

/// More than one attempt.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub enum Attempts {
    /// Only what is certain not to have been executed is sent again.
    #[default]
    One,
    /// One after the other.
    Retry(RetryPolicy),
    /// At the same time.
    Hedge(HedgingPolicy),
}

/// Retries (gRFC A6).
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct RetryPolicy {
    /// The first included: 2 to [`ATTEMPTS_MAX`].
    pub attempts_max: u32,
    /// Before the first retry; each waits a random part of its back-off.
    pub initial_backoff_ns: u64,
    /// What the back-off grows to.
    pub max_backoff_ns: u64,
    /// What it grows by.
    pub backoff_multiplier: f64,
    /// Statuses that are worth another attempt.
    pub retryable: Codes,
}

/// Hedging (gRFC A6).
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct HedgingPolicy {
    /// The first included: 2 to [`ATTEMPTS_MAX`].
    pub attempts_max: u32,
    /// Between one attempt and the next.
    pub delay_ns: u64,
    /// Statuses that end one attempt and not the call.
    pub non_fatal: Codes,
}

/// A bucket of tokens: a failure takes one, a success gives `token_ratio_thousandths`; no retry at half or below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryThrottling {
    /// 1 to 1000.
    pub max_tokens: u32,
    /// At least one.
    pub token_ratio_thousandths: u32,
}

/// A set of status codes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Codes(u32);

/// gRFC A6: more are treated as so many.
pub const ATTEMPTS_MAX: u32 = 5;
/// gRFC A6.
const TOKENS_MAX: f64 = 1000.0;
/// Names of methods in one config. One has a few; a host's memory is not theirs to fill.
const NAMES_MAX: usize = 4096;

impl ServiceConfig {
    /// Longest text read. DNS, where others keep theirs, has 64 KiB.
    pub const BYTES_MAX: usize = 256 << 10;

    /// Reads the JSON form.
    ///
    /// # Errors
    /// [`ServiceConfigError`] names the place and what to write there.
    pub fn parse(text: &str) -> Result<Self, ServiceConfigError> {
        let place = Place::root();
        check_size(text, Self::BYTES_MAX)?;
        let value: Value =
            serde_json::from_str(text).map_err(|error| place.wrong(error.to_string(), "JSON"))?;
        let top = members(&value, &place)?;
        let mut config = Self::default();
        for (at, method) in top.list("methodConfig")? {
            config.add_methods(method, &at)?;
        }
        config.retry_throttling = top.get("retryThrottling").map(|(v, at)| throttling(v, &at)).transpose()?;
        config.load_balancing = load_balancing(&value, &place)?;
        if let Some((health, at)) = top.get("healthCheckConfig") {
            config.health_service = members(health, &at)?.text("serviceName")?;
        }
        Ok(config)
    }

    /// What is said about calls of `/package.Service/Method`: of the method, else of its service, else of everything.
    pub fn method(&self, path: &str) -> Option<&Arc<MethodConfig>> {
        let service = &path[..path.rfind('/').map_or(0, |slash| slash + 1)];
        [path, service, ""].into_iter().find_map(|name| self.methods.get(name))
    }

    fn add_methods(&mut self, value: &Value, at: &Place<'_>) -> Result<(), ServiceConfigError> {
        let config = Arc::new(method_config(value, at)?);
        for (at, name) in members(value, at)?.list("name")? {
            let name = method_name(name, &at)?;
            if self.methods.len() >= NAMES_MAX {
                return Err(at.wrong(format!("more than {NAMES_MAX} names"), "fewer"));
            }
            if self.methods.contains_key(&*name) {
                return Err(at.wrong(format!("{name:?} a second time"), "each name once in the whole config"));
            }
            self.methods.insert(name, Arc::clone(&config));
        }
        Ok(())
    }
}

impl Codes {
    /// Whether the code is among them.
    pub fn contains(self, code: Code) -> bool {
        self.0 & (1 << code.number()) != 0
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl FromIterator<Code> for Codes {
    fn from_iter<T: IntoIterator<Item = Code>>(codes: T) -> Self {
        Self(codes.into_iter().fold(0, |bits, code| bits | 1 << code.number()))
    }
}

/// gRFC A2: a method's name needs its service's; neither means every call. A name that no service or method can have
/// would be a policy for nothing.
fn method_name(value: &Value, at: &Place<'_>) -> Result<Box<str>, ServiceConfigError> {
    let name = members(value, at)?;
    let (service, method) =
        (name.text("service")?.unwrap_or_default(), name.text("method")?.unwrap_or_default());
    match (service.is_empty(), method.is_empty()) {
        (true, true) => Ok("".into()),
        (true, false) => Err(at.wrong("a method without its service".into(), "\"service\" beside it")),
        (false, _) if !is_name(&service) => {
            Err(at.wrong(format!("service {service:?}"), "its full name alone, as \"package.Service\""))
        }
        (false, false) if !is_name(&method) => {
            Err(at.wrong(format!("method {method:?}"), "its name alone, as \"Method\""))
        }
        (false, _) => Ok(format!("/{service}/{method}").into()),
    }
}

/// Longer than protobuf's rules, for services that other schema languages name; a path is what it will be part of.
fn is_name(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/' && byte != b'*')
}

fn method_config(value: &Value, at: &Place<'_>) -> Result<MethodConfig, ServiceConfigError> {
    let keys = members(value, at)?;
    let attempts = match (keys.get("retryPolicy"), keys.get("hedgingPolicy")) {
        (None, None) => Attempts::One,
        (Some((retry, at)), None) => Attempts::Retry(retry_policy(retry, &at)?),
        (None, Some((hedging, at))) => Attempts::Hedge(hedging_policy(hedging, &at)?),
        (Some(_), Some((_, at))) => return Err(at.wrong("beside a retryPolicy".into(), "one of the two")),
    };
    Ok(MethodConfig {
        wait_for_ready: keys.boolean("waitForReady")?,
        timeout_ns: keys.get("timeout").map(|(value, at)| duration_ns(value, &at)).transpose()?,
        request_bytes_max: keys.bytes("maxRequestMessageBytes")?,
        response_bytes_max: keys.bytes("maxResponseMessageBytes")?,
        attempts,
    })
}

fn retry_policy(value: &Value, at: &Place<'_>) -> Result<RetryPolicy, ServiceConfigError> {
    let keys = members(value, at)?;
    let positive = |key: &'static str| {
        let (value, at) = keys.required(key)?;
        match duration_ns(value, &at)? {
            0 => Err(at.wrong("0s".into(), "more than nothing, such as \"0.1s\"")),
            ns => Ok(ns),
        }
    };
    let (multiplier, multiplier_at) = keys.required("backoffMultiplier")?;
    let backoff_multiplier = real(multiplier)
        .filter(|factor| *factor > 0.0)
        .ok_or_else(|| multiplier_at.wrong(multiplier.to_string(), "a number above 0, such as 2"))?;
    let (statuses, statuses_at) = keys.required("retryableStatusCodes")?;
    let retryable = codes(statuses, &statuses_at)?;
    if retryable.is_empty() {
        return Err(statuses_at.wrong("[]".into(), "at least one status, such as [\"UNAVAILABLE\"]"));
    }
    Ok(RetryPolicy {
        attempts_max: attempts_max(keys.required("maxAttempts")?)?,
        initial_backoff_ns: positive("initialBackoff")?,
        max_backoff_ns: positive("maxBackoff")?,
        backoff_multiplier,
        retryable,
    })
}

fn hedging_policy(value: &Value, at: &Place<'_>) -> Result<HedgingPolicy, ServiceConfigError> {
    let keys = members(value, at)?;
    let delay = keys.get("hedgingDelay").map(|(value, at)| duration_ns(value, &at)).transpose()?;
    let non_fatal = keys.get("nonFatalStatusCodes").map(|(value, at)| codes(value, &at)).transpose()?;
    Ok(HedgingPolicy {
        attempts_max: attempts_max(keys.required("maxAttempts")?)?,
        delay_ns: delay.unwrap_or(0),
        non_fatal: non_fatal.unwrap_or_default(),
    })
}

fn attempts_max((value, at): (&Value, Place<'_>)) -> Result<u32, ServiceConfigError> {
    match whole(value) {
        Some(attempts) if attempts > 1 => Ok(attempts.min(ATTEMPTS_MAX.into()) as u32),
        _ => Err(at.wrong(value.to_string(), "a whole number from 2 to 5")),
    }
}

fn throttling(value: &Value, at: &Place<'_>) -> Result<RetryThrottling, ServiceConfigError> {
    let keys = members(value, at)?;
    let (tokens, tokens_at) = keys.required("maxTokens")?;
    let max_tokens = real(tokens)
        .filter(|tokens| *tokens >= 1.0 && *tokens <= TOKENS_MAX && tokens.fract() == 0.0)
        .ok_or_else(|| tokens_at.wrong(tokens.to_string(), "a whole number from 1 to 1000"))?;
    let (ratio, ratio_at) = keys.required("tokenRatio")?;
    // gRFC A6: decimal places beyond the third are ignored.
    let thousandths = real(ratio).map_or(0.0, |ratio| (ratio * 1000.0 + 1e-6).floor());
    if !(1.0..=f64::from(u32::MAX)).contains(&thousandths) {
        return Err(ratio_at.wrong(ratio.to_string(), "a number from 0.001, such as 0.1"));
    }
    Ok(RetryThrottling { max_tokens: max_tokens as u32, token_ratio_thousandths: thousandths as u32 })
}

/// Names in any case, or numbers.
fn codes(value: &Value, at: &Place<'_>) -> Result<Codes, ServiceConfigError> {
    let list = value.as_array().ok_or_else(|| at.wrong(value.to_string(), "a list of statuses"))?;
    let code = |(index, value): (usize, &Value)| {
        let known = match value {
            Value::String(name) => Code::ALL.into_iter().find(|code| code.name().eq_ignore_ascii_case(name)),
            Value::Number(number) => {
                let number = number.as_u64().and_then(|number| usize::try_from(number).ok());
                number.and_then(|number| Code::ALL.get(number).copied())
            }
            _ => None,
        };
        let advice = "a status name such as \"UNAVAILABLE\", or its number";
        known.ok_or_else(|| at.item(index).wrong(value.to_string(), advice))
    };
    list.iter().enumerate().map(code).collect()
}
