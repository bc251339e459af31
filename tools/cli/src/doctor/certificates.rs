//! Certificates: from when to when they are valid. Whether they can be loaded is the configuration's check.

use super::finding::{Finding, State};
use crate::table::count;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use trunkline_daemon::Config;
use trunkline_net::{Endpoint, Stream, Validity};

const AREA: &str = "certificates";
const DAY_S: i64 = 24 * 3600;
/// Renewal by ACME begins a third of a certificate's life before its end, a month for most.
const SOON_S: i64 = 14 * DAY_S;

/// Looks at every file of certificates a configuration names, and at who else gives them.
pub fn look(config: &Config) -> Vec<Finding> {
    let mut findings: Vec<_> = config.tls.workload_api.0.iter().map(ask).collect();
    findings.extend(of_files(config));
    if findings.is_empty() {
        findings.push(Finding::good(AREA, "none: TLS is not served"));
    }
    findings
}

/// Certificates with which no connection comes about today, though they can be loaded: each in a line.
pub fn out_of_time(config: &Config) -> Vec<String> {
    let problems = of_files(config).into_iter().filter(|finding| finding.state == State::Problem);
    problems.map(|Finding { found, remedy, .. }| format!("{found}; {remedy}")).collect()
}

fn of_files(config: &Config) -> Vec<Finding> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now_s = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    let (tls, otlp) = (&config.tls, &config.otlp);
    let named = [
        ("tls.certificate", &tls.certificate),
        ("tls.client_ca", &tls.client_ca),
        ("tls.ca", &tls.ca),
        ("otlp.certificate", &otlp.certificate),
        ("otlp.ca", &otlp.ca),
    ];
    let named = named.into_iter().filter(|(_, path)| !path.as_os_str().is_empty());
    let of_file = |(key, path): (&str, &PathBuf)| match Validity::of_file(path) {
        Ok(validities) if key.ends_with("ca") => judge_roots(key, path, &validities, now_s),
        Ok(validities) => judge(key, path, &validities, now_s),
        // Said with the configuration.
        Err(error) => Finding::problem(AREA, format!("{key}: {error}"), "see configuration"),
    };
    named.map(of_file).collect()
}

/// Whether the agent is there that gives certificates. What it gives is between it and the daemon: it tells callers
/// apart.
fn ask(agent: &Endpoint) -> Finding {
    match Stream::connect(agent) {
        Ok(_) => Finding::good(AREA, format!("from the Workload API at {agent}, which takes connections")),
        Err(error) => Finding::problem(
            AREA,
            format!("tls.workload_api: {agent} cannot be reached: {error}"),
            "start the agent, or let the daemon's user open its socket; until then there is no TLS",
        ),
    }
}

/// The first that is out of its time speaks for the file: a chain is as good as its weakest part.
fn judge(key: &str, path: &Path, validities: &[Validity], now_s: i64) -> Finding {
    let file = path.display();
    let days = |seconds: i64| count((seconds / DAY_S).unsigned_abs(), "day");
    if let Some(early) = validities.iter().find(|validity| validity.not_before_s > now_s) {
        let found =
            format!("{key}: {file} is valid only in {}", days(early.not_before_s - now_s + DAY_S - 1));
        return Finding::problem(
            AREA,
            found,
            "compare the clock (`date`) with the certificate, and mend the wrong one",
        );
    }
    let Some(end_s) = validities.iter().map(|validity| validity.not_after_s).min() else {
        return Finding::advice(
            AREA,
            format!("{key}: {file} does not say until when it is valid"),
            "look at it with openssl",
        );
    };
    if end_s < now_s {
        let found = format!("{key}: {file} has expired {} ago: peers refuse it", days(now_s - end_s));
        return Finding::problem(
            AREA,
            found,
            "put a new one in its place; the daemon reads it within seconds",
        );
    }
    if end_s < now_s + SOON_S {
        let found = format!("{key}: {file} expires in {}", days(end_s - now_s));
        return Finding::advice(AREA, found, "renew it; the daemon reads the new one within seconds");
    }
    Finding::good(AREA, format!("{key}: valid for {}", days(end_s - now_s)))
}

/// Each root is for itself: one of them that is out of its time, the old one of a rotation, say, disturbs nobody.
fn judge_roots(key: &str, path: &Path, validities: &[Validity], now_s: i64) -> Finding {
    let is_valid = |root: &&Validity| root.not_before_s <= now_s && now_s <= root.not_after_s;
    let valid: Vec<Validity> = validities.iter().filter(is_valid).copied().collect();
    let Some(end_s) = valid.iter().map(|root| root.not_after_s).max() else {
        return judge(key, path, validities, now_s);
    };
    let expired = validities.iter().filter(|root| root.not_after_s < now_s).count();
    if expired > 0 {
        let found =
            format!("{key}: {expired} of {} roots in {} have expired", validities.len(), path.display());
        return Finding::advice(
            AREA,
            found,
            "take out what has expired, if nothing is signed by it any more",
        );
    }
    judge(key, path, &[Validity { not_after_s: end_s, ..valid[0] }], now_s)
}

#[cfg(test)]
mod tests {
    //! Shows what is said of a certificate by its times.
    use super::super::finding::State;
    use super::*;

    #[test]
    fn times_are_judged() {
        let valid = |from, to| Validity { not_before_s: from * DAY_S, not_after_s: to * DAY_S };
        let ca = valid(0, 10_000);
        for (own, state, words) in [
            (valid(99, 300), State::Good, "valid for 200 days"),
            (valid(99, 110), State::Advice, "expires in 10 days"),
            (valid(9, 90), State::Problem, "has expired 10 days ago"),
            (valid(110, 300), State::Problem, "is valid only in 10 days"),
        ] {
            let found = judge("tls.certificate", Path::new("a.pem"), &[own, ca], 100 * DAY_S);
            assert!(found.state == state && found.found.contains(words), "{found:?}");
        }
        assert_eq!(judge("tls.ca", Path::new("a.pem"), &[], 0).state, State::Advice);
    }

    #[test]
    fn one_root_that_is_out_of_its_time_is_no_problem() {
        let valid = |from, to| Validity { not_before_s: from * DAY_S, not_after_s: to * DAY_S };
        let (old, now, later) = (valid(0, 99), valid(50, 300), valid(110, 400));
        for (roots, state, words) in [
            (vec![old, now], State::Advice, "1 of 2 roots in a.pem have expired"),
            (vec![now, later], State::Good, "valid for 200 days"),
            (vec![valid(0, 110), now], State::Good, "valid for 200 days"),
            (vec![valid(0, 110)], State::Advice, "expires in 10 days"),
            (vec![old], State::Problem, "has expired 1 day ago"),
            (vec![later], State::Problem, "is valid only in 10 days"),
            (vec![], State::Advice, "does not say"),
        ] {
            let found = judge_roots("tls.client_ca", Path::new("a.pem"), &roots, 100 * DAY_S);
            assert!(found.state == state && found.found.contains(words), "{found:?}");
        }
    }

    #[test]
    fn an_agent_is_there_or_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agent.sock");
        let agent = Endpoint::unix(&path).unwrap();
        let found = ask(&agent);
        assert!(found.state == State::Problem && found.found.contains("cannot be reached"), "{found:?}");
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert_eq!(ask(&agent).state, State::Good);
    }
}
