//! The attempts of one call.

use crate::cluster::ClusterKey;
use crate::item::{Body, Item, KeptBody};
use crate::{CallKey, RemoteKey};
use std::borrow::Cow;
use std::sync::Arc;
use trunkline_call::{Instant, TimerKey};
use trunkline_grpc::Outcome;
use trunkline_grpc::retry::with_previous_attempts;
use trunkline_grpc::service_config::{Attempts as Policy, MethodConfig};

/// The attempts of one call.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct CallAttempts {
    pub config: Arc<MethodConfig>,
    pub cluster: ClusterKey,
    pub service: Box<str>,
    /// The request so far.
    pub kept: Vec<KeptItem>,
    pub kept_bytes: usize,
    /// Those under way.
    pub live: Vec<CallKey>,
    /// When the first began.
    #[serde(default)]
    pub first_began: Option<Instant>,
    /// Those made, and those made because a server said it had not seen the one before.
    pub made: u32,
    pub transparent: u32,
    /// Retries since the server last named a time.
    pub backed_off: u32,
    /// When there will be another.
    pub timer: Option<TimerKey>,
    /// A server wants no more.
    pub is_stopped: bool,
    /// Endpoints that were tried.
    pub tried: Vec<RemoteKey>,
    /// How the last one ended, should there be no other.
    pub last: Option<Outcome<'static>>,
}

/// An item of a request that can be sent again.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) enum KeptItem {
    Open {
        #[serde(with = "trunkline_call::octets")]
        metadata: Arc<[u8]>,
        body: Option<KeptBody>,
        end: bool,
    },
    Message {
        body: KeptBody,
        end: bool,
    },
    HalfClose,
}

impl CallAttempts {
    pub fn new(config: Arc<MethodConfig>, cluster: ClusterKey, service: Box<str>) -> Self {
        Self {
            config,
            cluster,
            service,
            kept: Vec::new(),
            kept_bytes: 0,
            live: Vec::new(),
            first_began: None,
            made: 0,
            transparent: 0,
            backed_off: 0,
            timer: None,
            is_stopped: false,
            tried: Vec::new(),
            last: None,
        }
    }

    /// Whether its counts can be those of attempts.
    pub fn is_sound(&self) -> bool {
        // A hundred times what gRFC A6 allows.
        const ATTEMPTS: u32 = 500;
        let counts = [self.made, self.transparent, self.backed_off];
        counts.iter().all(|count| *count <= ATTEMPTS) && self.kept_bytes <= 1 << 40
    }

    /// Whether attempts are made beside one another, and not one after another.
    pub fn hedges(&self) -> bool {
        matches!(self.config.attempts, Policy::Hedge(_))
    }

    /// In how many nanoseconds the next attempt beside those under way is due, if there may be one and none is booked.
    pub fn hedge_delay_ns(&self) -> Option<u64> {
        let Policy::Hedge(policy) = &self.config.attempts else { return None };
        let wanted = self.made < policy.attempts_max && !self.is_stopped && self.timer.is_none();
        wanted.then_some(policy.delay_ns)
    }

    /// One more is under way, after so many others: what the server is told. One that is not counted is the same
    /// attempt, sent again.
    pub fn begin(&mut self, now: Instant, attempt: CallKey, counted: bool) -> u32 {
        self.live.push(attempt);
        self.first_began.get_or_insert(now);
        let before = if counted { self.made } else { self.made.saturating_sub(1) };
        self.made += u32::from(counted);
        before
    }

    pub fn attempts_max(&self) -> u32 {
        match &self.config.attempts {
            Policy::One => 1,
            Policy::Retry(policy) => policy.attempts_max,
            Policy::Hedge(policy) => policy.attempts_max,
        }
    }
}

impl KeptItem {
    /// An item of a request, with a private copy of its body.
    pub fn of(item: &Item<'_>, body: Option<KeptBody>) -> Self {
        match (item, body) {
            (Item::Open { metadata, end, .. }, body) => {
                Self::Open { metadata: (**metadata).into(), body, end: *end }
            }
            (Item::Message { end, .. }, Some(body)) => Self::Message { body, end: *end },
            _ => Self::HalfClose,
        }
    }

    /// The item as an attempt sends it that has so many before it.
    pub fn item(&self, attempts_before: u32) -> Item<'static> {
        match self {
            Self::Open { metadata, body, end } => {
                // Metadata that is full goes without the count: a call is worth more.
                let counted = (attempts_before > 0)
                    .then(|| with_previous_attempts(metadata, attempts_before).ok())
                    .flatten();
                let metadata = Cow::Owned(counted.unwrap_or_else(|| metadata.to_vec()));
                Item::Open { metadata, body: body.clone().map(Body::Kept), end: *end }
            }
            Self::Message { body, end } => Item::Message { body: Body::Kept(body.clone()), end: *end },
            Self::HalfClose => Item::HalfClose,
        }
    }
}
