//! Orders about random calls: `soak SEED SECONDS BYTES_MAX REFUSED_BYTES STREAMS LEDGER`, and `soak-look`.

use crate::soak::{Extent, Soak};
use std::path::Path;
use std::time::Duration;
use trunkline::Channel;

/// The calls that are being made, if any are.
#[derive(Debug, Default)]
pub(super) struct Soaks(Option<Soak>);

impl Soaks {
    /// `begun`, or why not.
    pub(super) fn begin(&mut self, channel: &Channel, order: &str) -> String {
        let words: Vec<&str> = order.splitn(6, ' ').collect();
        let Ok([seed, seconds, bytes_max, refused_bytes, streams]) = numbers(&words) else {
            return format!("no such soak: {order}");
        };
        let extent = Extent { bytes_max, refused_bytes, streams: streams != 0 };
        match Soak::begin(channel, extent, Path::new(words[5]), seed, Duration::from_secs(seconds)) {
            Ok(soak) => {
                self.0 = Some(soak);
                "begun".into()
            }
            Err(error) => error.to_string(),
        }
    }

    /// How they go.
    pub(super) fn look(&mut self) -> String {
        self.0.as_mut().map_or_else(|| "nothing was begun".into(), Soak::look)
    }
}

/// The five numbers of an order, which has a sixth word.
fn numbers(words: &[&str]) -> Result<[u64; 5], String> {
    let [numbers @ .., _] = words else { return Err("empty".into()) };
    let numbers: Vec<u64> =
        numbers.iter().map(|word| word.parse().map_err(|_| (*word).to_owned())).collect::<Result<_, _>>()?;
    numbers.try_into().map_err(|_| "not five".into())
}
