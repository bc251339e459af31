//! A token bucket as a policy module, version 2: a bucket per key, if it is told one.
//!
//! ```toml
//! [[policy]]
//! name = "fair-share"
//! kind = "module"
//! side = "server"
//! service = "shop.v1.Shop"
//! path = "/usr/lib/trunkline/libtrunkline_example_token_bucket_2.so"
//! config = { calls_per_second = 500.0, burst = 100, key = "request.tenant" }
//! ```
//!
//! It takes over what version 1 leaves: that one bucket becomes what every bucket here begins with, so that whoever had
//! spent half of it has spent half of it still.

use std::collections::HashMap;
use trunkline_policy_module::{Call, Code, Config, Field, Policy, State, Verdict, Wants};

/// Millionths of a token: whole numbers do not drift.
const TOKEN: u64 = 1_000_000;
/// Buckets remembered; calls beyond share the first one.
const KEYS_MAX: usize = 10_000;
/// The longest key that has a bucket of its own.
const KEY_BYTES_MAX: usize = 256;

/// The buckets.
struct TokenBuckets {
    rate: u64,
    burst: u64,
    key: Option<Field>,
    /// What a bucket begins with that nobody has taken from.
    fresh: Bucket,
    buckets: HashMap<String, Bucket>,
}

#[derive(Clone, Copy)]
struct Bucket {
    micros: u64,
    at_ns: u64,
}

impl Policy for TokenBuckets {
    const NAME: &'static str = "token-bucket";
    const VERSION: &'static str = "2";
    /// Entries of: u16 length of the key, the key, u64 millionths of a token, u64 clock; little endian. The first has
    /// no key: it is what fresh buckets begin with.
    const STATE_FORMAT: u32 = 2;

    fn create(config: &Config<'_>, wants: &mut Wants) -> Result<Self, String> {
        config.only(&["calls_per_second", "burst", "key"])?;
        let rate = config.number("calls_per_second").ok_or("calls_per_second is missing")?;
        let burst = config.number("burst").unwrap_or(rate.max(1.0));
        for (key, value) in [("calls_per_second", rate), ("burst", burst)] {
            if !(1e-6..=1e9).contains(&value) {
                return Err(format!("{key} is {value}; write a number above 0, up to 1e9"));
            }
        }
        let micros = |number: f64| (number * TOKEN as f64) as u64;
        let fresh = Bucket { micros: micros(burst), at_ns: 0 };
        let key = config.text("key").map(|expression| wants.text(expression));
        Ok(Self { rate: micros(rate), burst: micros(burst), key, fresh, buckets: HashMap::new() })
    }

    fn decide(&mut self, call: &Call<'_>) -> Verdict {
        let key = self.key.and_then(|field| call.text(field)).unwrap_or_default();
        let known = self.buckets.contains_key(key);
        let own = known || self.buckets.len() < KEYS_MAX && key.len() <= KEY_BYTES_MAX;
        let bucket = self.buckets.entry(if own { key } else { "" }.to_owned()).or_insert(self.fresh);
        let passed_ns = call.now_ns().saturating_sub(bucket.at_ns);
        let gained = u128::from(passed_ns) * u128::from(self.rate) / 1_000_000_000;
        let micros = u128::from(bucket.micros).saturating_add(gained).min(u128::from(self.burst)) as u64;
        *bucket = Bucket { micros, at_ns: call.now_ns() };
        if micros < TOKEN {
            return Verdict::deny(Code::ResourceExhausted, "rate limit reached");
        }
        bucket.micros -= TOKEN;
        Verdict::pass()
    }

    fn export(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let own = self.buckets.iter().map(|(key, bucket)| (key.as_str(), bucket));
        for (key, bucket) in std::iter::once(("", &self.fresh)).chain(own) {
            out.extend_from_slice(&(key.len() as u16).to_le_bytes());
            out.extend_from_slice(key.as_bytes());
            out.extend_from_slice(&bucket.micros.to_le_bytes());
            out.extend_from_slice(&bucket.at_ns.to_le_bytes());
        }
        out
    }

    fn import(&mut self, state: State<'_>) -> Result<(), String> {
        match state.format {
            1 => self.take_version_1(state.bytes),
            2 => self.take_own(state.bytes),
            other => Some(Err(format!("it reads state of formats 1 and 2, and this is {other}"))),
        }
        .unwrap_or_else(|| Err("the state ends early".into()))
    }
}

impl TokenBuckets {
    fn take_version_1(&mut self, bytes: &[u8]) -> Option<Result<(), String>> {
        let (tokens, at) = bytes.split_first_chunk()?;
        let (at, _) = at.split_first_chunk()?;
        // What is no number becomes none.
        let micros = (f64::from_le_bytes(*tokens) * TOKEN as f64) as u64;
        self.fresh = Bucket { micros: micros.min(self.burst), at_ns: u64::from_le_bytes(*at) };
        Some(Ok(()))
    }

    fn take_own(&mut self, mut bytes: &[u8]) -> Option<Result<(), String>> {
        let mut first = true;
        while !bytes.is_empty() {
            let (len, rest) = bytes.split_first_chunk()?;
            let (key, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*len)))?;
            let (micros, rest) = rest.split_first_chunk()?;
            let (at, rest) = rest.split_first_chunk()?;
            let micros = u64::from_le_bytes(*micros).min(self.burst);
            let bucket = Bucket { micros, at_ns: u64::from_le_bytes(*at) };
            if std::mem::take(&mut first) {
                self.fresh = bucket;
            } else {
                self.buckets.insert(String::from_utf8_lossy(key).into_owned(), bucket);
            }
            bytes = rest;
        }
        Some(Ok(()))
    }
}

trunkline_policy_module::export!(TokenBuckets);
