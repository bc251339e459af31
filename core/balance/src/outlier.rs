//! Endpoints that fail more than they may, or more than others do, are left out for a while (gRFC A50).

use crate::member::Member;
use crate::random::Random;
use crate::settings::{FailureShare, Outliers, SuccessRate};
use crate::tally::Tally;
use trunkline_call::Instant;

/// Ejects `endpoint` if it has failed too often in a row.
pub(crate) fn judge_row<E: Copy + Eq>(
    now: Instant,
    outliers: &Outliers,
    members: &mut [Member<E>],
    endpoint: E,
) {
    let Some(at) = members.iter().position(|member| member.endpoint == endpoint) else { return };
    let too_many = outliers.failures_in_a_row > 0
        && members[at].tally.failures_in_a_row >= outliers.failures_in_a_row
        && !members[at].tally.is_ejected(now);
    if too_many && has_room(now, outliers, members) {
        members[at].tally.eject(now, outliers);
    }
}

/// One look at all: who is too bad is ejected, who was good is on the way to forgiveness, and counting begins anew.
pub(crate) fn sweep<E>(now: Instant, outliers: &Outliers, members: &mut [Member<E>], random: &mut Random) {
    let mut bad = Vec::new();
    if let Some(rule) = &outliers.success_rate {
        bad.extend(below_the_others(members, rule).into_iter().map(|at| (at, rule.enforced_percent)));
    }
    if let Some(rule) = &outliers.failure_share {
        bad.extend(above_the_threshold(members, rule).into_iter().map(|at| (at, rule.enforced_percent)));
    }
    for (at, percent) in bad {
        let is_out = members[at].tally.is_ejected(now);
        if !is_out && has_room(now, outliers, members) && random.happens(f64::from(percent)) {
            members[at].tally.eject(now, outliers);
        }
    }
    for member in members {
        let tally = &mut member.tally;
        (tally.successes, tally.failures) = (0, 0);
        match tally.ejected {
            Some(_) if tally.is_ejected(now) => {}
            Some(_) => tally.ejected = None,
            None => tally.ejections = tally.ejections.saturating_sub(1),
        }
    }
}

/// Whether one more may be out, so that with it no more are than may be.
fn has_room<E>(now: Instant, outliers: &Outliers, members: &[Member<E>]) -> bool {
    let out = members.iter().filter(|member| member.tally.is_ejected(now)).count() as u64;
    let percent_max = u64::from(outliers.ejected_percent_max);
    // The first one always may, or a limit of less than one of a few would be none at all.
    percent_max > 0 && (out == 0 || (out + 1) * 100 <= percent_max * members.len() as u64)
}

fn below_the_others<E>(members: &[Member<E>], rule: &SuccessRate) -> Vec<usize> {
    let judged: Vec<(usize, f64)> =
        of_volume(members, rule.volume_min).map(|(at, tally)| (at, tally.success_rate())).collect();
    if judged.is_empty() || judged.len() < rule.hosts_min as usize {
        return Vec::new();
    }
    let count = judged.len() as f64;
    let mean = judged.iter().map(|(_, rate)| rate).sum::<f64>() / count;
    let variance = judged.iter().map(|(_, rate)| (rate - mean).powi(2)).sum::<f64>() / count;
    let least = mean - variance.sqrt() * f64::from(rule.stdev_factor) / 1000.0;
    judged.into_iter().filter(|(_, rate)| *rate < least).map(|(at, _)| at).collect()
}

fn above_the_threshold<E>(members: &[Member<E>], rule: &FailureShare) -> Vec<usize> {
    let judged: Vec<(usize, f64)> = of_volume(members, rule.volume_min)
        .map(|(at, tally)| (at, (1.0 - tally.success_rate()) * 100.0))
        .collect();
    if judged.len() < rule.hosts_min as usize {
        return Vec::new();
    }
    judged.into_iter().filter(|(_, share)| *share > f64::from(rule.threshold)).map(|(at, _)| at).collect()
}

fn of_volume<E>(members: &[Member<E>], least: u32) -> impl Iterator<Item = (usize, &Tally)> {
    let tallies = members.iter().map(|member| &member.tally).enumerate();
    tallies.filter(move |(_, tally)| tally.volume() >= least.max(1))
}
