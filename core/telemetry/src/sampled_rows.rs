//! Calls drawn from any number of them, no more than asked for.

use crate::recorder::Weighted;
use std::cmp::Reverse;
use trunkline_call::{Code, mix};

/// A sample of what was offered: failed calls, slow ones and the rest, each thinned for itself, and always what there
/// is most of. So the tail, which questions are about, keeps more calls than a twentieth.
#[derive(Debug)]
pub(crate) struct SampledRows {
    strata: [Thinned; 3],
    max: usize,
    offered: u64,
}

/// Of 2 to the power of `one_in_log2` calls one.
#[derive(Debug, Default)]
struct Thinned {
    /// With the draw of each: as many zeros as it has at its end.
    kept: Vec<(u32, Weighted)>,
    one_in_log2: u32,
}

impl SampledRows {
    pub fn new(max: usize) -> Self {
        Self { strata: Default::default(), max, offered: 0 }
    }

    /// Takes a call, or one of those it stands beside. Drawn, and not every so many: calls come in patterns.
    pub fn offer(&mut self, call: Weighted) {
        self.offered += 1;
        let stratum = match (call.row.code, call.row.slow) {
            (Code::Ok, false) => 0,
            (Code::Ok, true) => 1,
            _ => 2,
        };
        let drawn = mix(self.offered).trailing_zeros();
        let stratum = &mut self.strata[stratum];
        if drawn >= stratum.one_in_log2 {
            stratum.kept.push((drawn, call));
            self.thin();
        }
    }

    /// The calls that were drawn, newest first, and how many each stands for.
    pub fn rows(&self) -> Vec<Weighted> {
        let weighted = self.strata.iter().flat_map(|Thinned { kept, one_in_log2 }| {
            kept.iter().map(move |(_, call)| Weighted { weight: call.weight << one_in_log2, ..*call })
        });
        let mut rows: Vec<Weighted> = weighted.collect();
        rows.sort_by_key(|call| Reverse(call.row.at));
        rows
    }

    fn thin(&mut self) {
        while self.strata.iter().map(|stratum| stratum.kept.len()).sum::<usize>() > self.max {
            let Some(most) = self.strata.iter_mut().max_by_key(|stratum| stratum.kept.len()) else { return };
            most.one_in_log2 += 1;
            most.kept.retain(|(drawn, _)| *drawn >= most.one_in_log2);
        }
    }
}

#[cfg(test)]
mod tests {
    //! Shows that a sample stays within its size, stands for all there were, and follows no pattern in them.
    use super::*;
    use crate::MethodIndex;
    use crate::flight::Flight;

    #[test]
    fn a_sample_is_small_and_stands_for_all() {
        let mut sampled = SampledRows::new(1_000);
        for n in 0..200_000_u32 {
            let bits = if n % 20 == 7 { Flight::SLOW } else { 0 };
            let row = Flight { method: n % 2, bits, ..Flight::VACANT }.unpack();
            sampled.offer(Weighted { row, weight: 3 });
            assert!(n % 1_000 != 0 || sampled.rows().len() <= 1_000);
        }
        let weigh = |is_one: fn(&Weighted) -> bool| {
            sampled.rows().iter().filter(|call| is_one(call)).map(|call| call.weight).sum::<u64>() as f64
        };
        for (is_one, all) in [
            ((|_| true) as fn(&Weighted) -> bool, 600_000.0),
            (|call| call.row.slow, 30_000.0),
            (|call| call.row.method == MethodIndex(0), 300_000.0),
        ] {
            let stood_for = weigh(is_one);
            assert!((stood_for - all).abs() < all / 5.0, "{stood_for} for {all}");
        }
        assert!(sampled.rows().iter().filter(|call| call.row.slow).count() > 200, "the tail keeps more");
    }
}
