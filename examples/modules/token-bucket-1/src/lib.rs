//! A token bucket as a policy module, version 1: one bucket for all calls.
//!
//! ```toml
//! [[policy]]
//! name = "fair-share"
//! kind = "module"
//! side = "server"
//! path = "/usr/lib/trunkline/libtrunkline_example_token_bucket_1.so"
//! config = { calls_per_second = 500.0, burst = 100 }
//! ```
//!
//! Its state is the bucket: how many tokens there were, and when. Version 2 lies beside it and goes on with that.

use trunkline_policy_module::{Call, Code, Config, Policy, State, Verdict, Wants};

/// The bucket. It gains `rate` tokens a second up to `burst`; a call takes one.
struct TokenBucket {
    rate: f64,
    burst: f64,
    tokens: f64,
    at_ns: u64,
}

impl Policy for TokenBucket {
    const NAME: &'static str = "token-bucket";
    const VERSION: &'static str = "1";
    /// 16 bytes: the tokens as a double, the clock in nanoseconds; little endian.
    const STATE_FORMAT: u32 = 1;

    fn create(config: &Config<'_>, _: &mut Wants) -> Result<Self, String> {
        config.only(&["calls_per_second", "burst"])?;
        let rate = config.number("calls_per_second").ok_or("calls_per_second is missing")?;
        if !(rate > 0.0 && rate <= 1e9) {
            return Err(format!("calls_per_second is {rate}; write a number above 0, up to 1e9"));
        }
        let burst = config.number("burst").unwrap_or(rate.max(1.0));
        if !(1.0..=1e9).contains(&burst) {
            return Err(format!("burst is {burst}; write a number from 1 to 1e9"));
        }
        Ok(Self { rate, burst, tokens: burst, at_ns: 0 })
    }

    fn decide(&mut self, call: &Call<'_>) -> Verdict {
        let passed_ns = call.now_ns().saturating_sub(self.at_ns);
        self.at_ns = call.now_ns();
        self.tokens = self.burst.min(self.tokens + passed_ns as f64 / 1e9 * self.rate);
        if self.tokens < 1.0 {
            return Verdict::deny(Code::ResourceExhausted, "rate limit reached");
        }
        self.tokens -= 1.0;
        Verdict::pass()
    }

    fn export(&self) -> Vec<u8> {
        [self.tokens.to_le_bytes(), self.at_ns.to_le_bytes()].concat()
    }

    fn import(&mut self, state: State<'_>) -> Result<(), String> {
        let parts = state.bytes.split_first_chunk::<8>().filter(|_| state.format == 1);
        let Some((tokens, at_ns)) = parts.and_then(|(tokens, at)| Some((tokens, at.try_into().ok()?))) else {
            return Err(format!("it reads state of format 1, and this is {}", state.format));
        };
        let tokens = f64::from_le_bytes(*tokens);
        if !tokens.is_finite() {
            return Err("the number of tokens is none".into());
        }
        (self.tokens, self.at_ns) = (tokens.clamp(0.0, self.burst), u64::from_le_bytes(at_ns));
        Ok(())
    }
}

trunkline_policy_module::export!(TokenBucket);
