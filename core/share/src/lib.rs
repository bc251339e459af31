//! Limits that the shards of one host hold together.
//!
//! An operator writes one number for a host, and calls come by several shards, each a thread that shares nothing with
//! the others. So what is left of a limit lies in one word for all, and a shard takes more of it than it needs: the
//! next calls then touch nothing but the shard's own part. This crate knows counts, rates, and who waits for a place.
//! It does not know what is counted, and has no clock: time is an argument, in nanoseconds.
//!
//! * `count.rs`: so many at once. A shard keeps a spare part when something ends, and gives back what is more than
//!   that.
//! * `rate.rs`: so many per second, for each of many keys; `slices.rs` is what a shard has taken of them.
//! * `line.rs`: which shards have calls that wait for a place, and how many wait in all.
//! * `savings.rs`: what all calls may spend on further attempts.
//! * `host.rs`: all limits of one host, by name.
//!
//! # Bounds
//! * A count is never exceeded. Something is refused only when more than 7/8 of the count are in use: each of `n`
//!   shards keeps no more than 1/8n of it in spare, and nothing where that is less than one.
//! * Of a rate with a burst of `b`, no more than its rate and 17/16 b pass in any time, and no less than its rate and
//!   15/16 b if so many come: each of `n` shards takes no more than b/16n in advance, one by one where that is less
//!   than two. What it has taken is its own for as long as it takes the bucket to fill up by as much.
//! * Beside what all may, as many more may wait as there are shards less one.
//!
//! # Invariants
//! * No function waits for another thread: what is lost against one is tried again, and the other has then gone on.
//! * What a shard has taken goes back when its part is dropped.
//! * Whoever gives something back sees who waits for it, or whoever begins to wait sees what was given back
//!   (`tests/loom_share.rs` runs both).
#![forbid(unsafe_code)]

mod count;
mod host;
mod line;
mod rate;
mod savings;
mod slices;
mod sync;

pub use count::{CountShare, SharedCount};
pub use host::HostLimits;
pub use line::{PlaceShare, SharedPlaces};
pub use rate::{RateLimits, SharedRate};
pub use savings::{SharedSavings, SharedTokens};
pub use slices::RateShare;
