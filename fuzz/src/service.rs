//! What users write about services: their configs, and whom to call for them.

use trunkline_balance::{Balancer, LoadReport, Pick, Readiness, Report, Settings, Wanted, Weighting};
use trunkline_call::Instant;
use trunkline_grpc::service_config::ServiceConfig;
use trunkline_net::Target;

/// Service configs: read or refused with a place, and what is read answers for any path.
pub fn config(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match ServiceConfig::parse(text) {
        Ok(config) => drop(std::hint::black_box(config.method("/a.B/C").cloned())),
        Err(error) => assert!(error.to_string().len() < 1000, "{error}"),
    }
}

pub fn config_seeds() -> Vec<Vec<u8>> {
    let whole = r#"{"methodConfig":[{"name":[{"service":"a.B","method":"C"},{}],"timeout":"1.5s","waitForReady":true,
        "maxRequestMessageBytes":"1024","retryPolicy":{"maxAttempts":3,"initialBackoff":"0.1s","maxBackoff":"1s",
        "backoffMultiplier":2,"retryableStatusCodes":["UNAVAILABLE",8]}}],
        "retryThrottling":{"maxTokens":10,"tokenRatio":0.1},
        "loadBalancingConfig":[{"outlier_detection_experimental":{"interval":"1s",
        "failurePercentageEjection":{"threshold":5},
        "childPolicy":[{"ring_hash_experimental":{"requestHashHeader":"a"}}]}}]}"#;
    let hedging = r#"{"methodConfig":[{"name":[{"service":"a.B"}],"hedgingPolicy":{"maxAttempts":2,"hedgingDelay":"1s",
        "nonFatalStatusCodes":["ABORTED"]}}],"healthCheckConfig":{"serviceName":"a"}}"#;
    [whole, hedging].map(Vec::from).into()
}

/// Load reports of servers: read or not, and a balancer takes what was read.
pub fn load_report(bytes: &[u8]) {
    let load = LoadReport::decode(bytes);
    let pick = Pick::Weighted(Weighting { blackout_ns: 0, ..Weighting::default() });
    let mut balancer = Balancer::new(Settings { pick, ..Settings::default() }, 1);
    balancer.set_endpoints([(0, "a"), (1, "b")].into_iter());
    for endpoint in [0, 1] {
        balancer.finished(Instant(1), endpoint, &Report { load, ..Report::default() });
    }
    let wanted = Wanted { key: None, tried: &[] };
    assert!(matches!(balancer.pick(Instant(2), wanted, |_| Readiness::Reachable), Some(Ok(_))));
}

pub fn load_report_seeds() -> Vec<Vec<u8>> {
    let double = |tag: u8| [&[tag << 3 | 1][..], &0.5f64.to_le_bytes()].concat();
    vec![[1, 6, 7, 9].map(double).concat(), vec![0x42, 2, 1, 2, 0x18, 5]]
}

/// Targets: what is taken can be written, and is taken again.
pub fn target(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(target) = text.parse::<Target>() {
        assert_eq!(target.to_string().parse::<Target>().ok(), Some(target));
    }
}

pub fn target_seeds() -> Vec<Vec<u8>> {
    [
        "dns:///db.example:80",
        "dns://8.8.8.8/db:1",
        "ipv4:10.0.0.7:80,10.0.0.8",
        "ipv6:[::1]:80,::2",
        "db:80",
        "[::1]:80",
        "unix-abstract:a",
        "unix:///run/a",
        "tcp://db:1",
        "xds:///a",
    ]
    .map(Vec::from)
    .into()
}
