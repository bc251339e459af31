//! Shows what a service config says about calls, and what its writer is told when it is wrong: the place, what is
//! there, and what to write instead.

use proptest::prelude::*;
use serde_json::{Value, json};
use trunkline_balance::{FailureShare, Outliers, Pick, Settings, SuccessRate, Weighting};
use trunkline_call::Code;
use trunkline_grpc::service_config::{Attempts, HedgingPolicy, RetryPolicy, RetryThrottling, ServiceConfig};

fn parsed(config: &Value) -> Result<ServiceConfig, String> {
    ServiceConfig::parse(&config.to_string()).map_err(|error| error.to_string())
}

/// One method's config, for every call.
fn of_method(config: Value) -> Value {
    let mut config = config;
    config["name"] = json!([{}]);
    json!({ "methodConfig": [config] })
}

#[test]
fn what_can_be_said() {
    let config = parsed(&json!({
        "methodConfig": [
            { "name": [{"service": "a.B", "method": "C"}, {"service": "a.B", "method": "D"}], "timeout": "1.5s" },
            { "name": [{"service": "a.B"}], "waitForReady": true, "maxRequestMessageBytes": "1024",
              "maxResponseMessageBytes": 2048, "somethingNew": [] },
            { "name": [{}], "timeout": "0.000000001s" },
        ],
        "retryThrottling": { "maxTokens": 10, "tokenRatio": 0.1004 },
        "loadBalancingConfig": [{"grpclb": {}}, {"weighted_round_robin": {"blackoutPeriod": "1s"}}],
        "healthCheckConfig": { "serviceName": "a.B" },
    }))
    .unwrap();
    let timeout = |path| config.method(path).and_then(|method| method.timeout_ns);
    assert_eq!((timeout("/a.B/C"), timeout("/a.B/D")), (Some(1_500_000_000), Some(1_500_000_000)));
    assert_eq!((timeout("/a.B/E"), timeout("/x.Y/Z"), timeout("odd")), (None, Some(1), Some(1)));
    let service = config.method("/a.B/E").unwrap();
    assert_eq!(service.wait_for_ready, Some(true));
    assert_eq!((service.request_bytes_max, service.response_bytes_max), (Some(1024), Some(2048)));
    let throttling = RetryThrottling { max_tokens: 10, token_ratio_thousandths: 100 };
    assert_eq!(config.retry_throttling, Some(throttling));
    let weighting = Weighting { blackout_ns: 1_000_000_000, ..Weighting::default() };
    assert_eq!(config.load_balancing.unwrap().pick, Pick::Weighted(weighting), "the first one that is known");
    assert_eq!(config.health_service.as_deref(), Some("a.B"));
}

#[test]
fn nothing_says_nothing() {
    let config = parsed(&json!({"methodConfig": null})).unwrap();
    assert_eq!(config, ServiceConfig::default());
    assert_eq!(config.method("/a.B/C"), None);
    let older = parsed(&json!({"loadBalancingPolicy": "ROUND_ROBIN"})).unwrap();
    assert_eq!(older.load_balancing, Some(Settings::default()));
}

#[test]
fn balancing() {
    let settings = |config: serde_json::Value| {
        parsed(&json!({"loadBalancingConfig": [config]})).unwrap().load_balancing.unwrap()
    };
    let pick = |config| settings(config).pick;
    assert_eq!(pick(json!({"pick_first": {"shuffleAddressList": true}})), Pick::First { shuffle: true });
    let least = json!({"least_request_experimental": {"choiceCount": 99}});
    assert_eq!(pick(least), Pick::LeastRequest { choices: 10 });
    let ring = json!({"ring_hash_experimental": {"maxRingSize": "8388608", "requestHashHeader": "X-Key"}});
    let expected = Pick::RingHash { ring_min: 1024, ring_max: 65536, header: Some("x-key".into()) };
    assert_eq!(pick(ring), expected);
    let watched = settings(json!({"outlier_detection_experimental": {
        "interval": "2s", "baseEjectionTime": "5s", "maxEjectionPercent": 20,
        "successRateEjection": {}, "failurePercentageEjection": {"threshold": 40, "requestVolume": 7},
        "childPolicy": [{"unheard_of": {}}, {"pick_first": {}}],
    }}));
    let outliers = Outliers {
        interval_ns: 2_000_000_000,
        ejection_ns: 5_000_000_000,
        ejected_percent_max: 20,
        success_rate: Some(SuccessRate::default()),
        failure_share: Some(FailureShare { threshold: 40, volume_min: 7, ..FailureShare::default() }),
        ..Outliers::default()
    };
    assert_eq!(
        watched,
        Settings { pick: Pick::First { shuffle: false }, outliers: Some(outliers), ..Settings::default() }
    );
}

#[test]
fn attempts() {
    let retry = json!({ "maxAttempts": 9, "initialBackoff": "0.1s", "maxBackoff": "1s", "backoffMultiplier": 2,
        "retryableStatusCodes": ["unavailable", 8] });
    let config = parsed(&of_method(json!({ "retryPolicy": retry }))).unwrap();
    let expected = RetryPolicy {
        attempts_max: 5,
        initial_backoff_ns: 100_000_000,
        max_backoff_ns: 1_000_000_000,
        backoff_multiplier: 2.0,
        retryable: [Code::Unavailable, Code::ResourceExhausted].into_iter().collect(),
    };
    assert_eq!(config.method("/a.B/C").unwrap().attempts, Attempts::Retry(expected));
    let config = parsed(&of_method(json!({ "hedgingPolicy": { "maxAttempts": 2 } }))).unwrap();
    let expected = HedgingPolicy { attempts_max: 2, delay_ns: 0, non_fatal: [].into_iter().collect() };
    assert_eq!(config.method("/a.B/C").unwrap().attempts, Attempts::Hedge(expected));
}

/// gRPC's own parsers take a number of any type in quotes, as proto3's JSON mapping has it, and whole ones as 3.0.
#[test]
fn numbers_may_stand_in_quotes() {
    let plain = json!({
        "methodConfig": [{ "name": [{}], "maxRequestMessageBytes": 1024, "retryPolicy": {
            "maxAttempts": 3, "initialBackoff": "0.1s", "maxBackoff": "1s", "backoffMultiplier": 1.5,
            "retryableStatusCodes": ["UNAVAILABLE"] } }],
        "retryThrottling": { "maxTokens": 10, "tokenRatio": 0.1 },
        "loadBalancingConfig": [{"outlier_detection_experimental": { "maxEjectionPercent": 20,
            "failurePercentageEjection": {"threshold": 40},
            "childPolicy": [{"weighted_round_robin": {"errorUtilizationPenalty": 0.5}}] }}],
    });
    let text = plain.to_string();
    let numbers = ["1024", "3", "1.5", "10", "0.1", "20", "40", "0.5"];
    let quoted = numbers.iter().fold(text.clone(), |text, number| {
        text.replace(&format!(":{number}}}"), &format!(":\"{number}\"}}"))
            .replace(&format!(":{number},"), &format!(":\"{number}\","))
    });
    assert_eq!(quoted.len(), text.len() + 2 * numbers.len(), "{quoted}");
    assert_eq!(ServiceConfig::parse(&quoted), ServiceConfig::parse(&text));
    assert!(ServiceConfig::parse(&text).is_ok());
    let pointed = text.replace("\"maxAttempts\":3", "\"maxAttempts\":3.0").replace(":1024", ":\"1.024e3\"");
    assert_eq!(ServiceConfig::parse(&pointed), ServiceConfig::parse(&text));
    for bad in ["", " 3", "3 ", "+3", "0x3", "three", "inf", "NaN", "3.5", "-3"] {
        let config = of_method(json!({ "maxRequestMessageBytes": bad }));
        assert!(parsed(&config).unwrap_err().contains("a whole number of bytes"), "{bad:?}");
    }
}

#[test]
fn what_the_writer_is_told() {
    let retry = |key: &str, value: Value| {
        let mut retry = json!({ "maxAttempts": 2, "initialBackoff": "1s", "maxBackoff": "1s", "backoffMultiplier": 1,
            "retryableStatusCodes": ["UNAVAILABLE"] });
        retry[key] = value;
        of_method(json!({ "retryPolicy": retry }))
    };
    let throttling = |tokens: Value, ratio: Value| {
        let throttling = json!({ "maxTokens": tokens, "tokenRatio": ratio });
        json!({ "retryThrottling": throttling })
    };
    let twice = json!([{ "name": [{"service": "a.B"}] }, { "name": [{"service": "x"}, {"service": "a.B"}] }]);
    for (config, told) in [
        (json!([]), "service config: []; write an object"),
        (json!({"methodConfig": {}}), "methodConfig: {}; write a list"),
        (json!({"methodConfig": [1]}), "methodConfig[0]: 1; write an object"),
        (
            json!({"methodConfig": [{"name": [{"method": "C"}]}]}),
            "methodConfig[0].name[0]: a method without its service",
        ),
        (
            json!({"methodConfig": [{"name": [{"service": "/a.B"}]}]}),
            "methodConfig[0].name[0]: service \"/a.B\"; write its full name alone, as \"package.Service\"",
        ),
        (
            json!({"methodConfig": [{"name": [{"service": "a.B", "method": "C/"}]}]}),
            "methodConfig[0].name[0]: method \"C/\"; write its name alone, as \"Method\"",
        ),
        (
            json!({"loadBalancingConfig": [{"ring_hash_experimental": {"requestHashHeader": "x user"}}]}),
            "requestHashHeader \"x user\"; write a metadata key",
        ),
        (json!({ "methodConfig": twice }), "methodConfig[1].name[1]: \"/a.B/\" a second time"),
        (of_method(json!({"timeout": 5})), "methodConfig[0].timeout: 5; write seconds in quotes"),
        (of_method(json!({"timeout": "5"})), "seconds in quotes, such as \"0.25s\""),
        (of_method(json!({"timeout": "-1s"})), "seconds in quotes"),
        (of_method(json!({"timeout": ".5s"})), "seconds in quotes"),
        (of_method(json!({"timeout": "1.0000000001s"})), "seconds in quotes"),
        (of_method(json!({"timeout": "999999999999s"})), "seconds in quotes"),
        (
            of_method(json!({"waitForReady": "yes"})),
            "methodConfig[0].waitForReady: \"yes\"; write true or false",
        ),
        (of_method(json!({"maxRequestMessageBytes": -1})), "a whole number of bytes"),
        (
            retry("maxAttempts", json!(1)),
            "methodConfig[0].retryPolicy.maxAttempts: 1; write a whole number from 2 to 5",
        ),
        (retry("maxAttempts", json!(null)), "methodConfig[0].retryPolicy.maxAttempts: missing"),
        (retry("initialBackoff", json!("0s")), "methodConfig[0].retryPolicy.initialBackoff: 0s; write more"),
        (retry("backoffMultiplier", json!(0)), "a number above 0"),
        (retry("retryableStatusCodes", json!([])), "at least one status"),
        (
            retry("retryableStatusCodes", json!(["OK", "NO"])),
            "retryableStatusCodes[1]: \"NO\"; write a status name",
        ),
        (retry("retryableStatusCodes", json!([17])), "retryableStatusCodes[0]: 17; write a status name"),
        (
            of_method(json!({"retryPolicy": {}, "hedgingPolicy": {}})),
            "beside a retryPolicy; write one of the two",
        ),
        (throttling(json!(0), json!(1)), "retryThrottling.maxTokens: 0; write a whole number from 1 to 1000"),
        (throttling(json!(1001), json!(1)), "retryThrottling.maxTokens: 1001"),
        (
            throttling(json!(10), json!(0.0001)),
            "retryThrottling.tokenRatio: 0.0001; write a number from 0.001",
        ),
        (json!({"loadBalancingConfig": [{"a": {}, "b": {}}]}), "loadBalancingConfig[0]: not one policy"),
        (
            json!({"loadBalancingConfig": [{"a": {}}, {"b": {}}]}),
            "loadBalancingConfig of a, b; write one of pick_first",
        ),
        (
            json!({"loadBalancingConfig": [{"least_request_experimental": {"choiceCount": 1}}]}),
            "choiceCount 1; write a whole number from 2",
        ),
        (
            json!({"loadBalancingConfig": [{"outlier_detection_experimental": {"maxEjectionPercent": 101}}]}),
            "no childPolicy",
        ),
        (
            json!({"healthCheckConfig": {"serviceName": 1}}),
            "healthCheckConfig.serviceName: 1; write text in quotes",
        ),
    ] {
        let error = parsed(&config).unwrap_err();
        assert!(error.contains(told), "{error}\nis not: {told}");
        assert!(error.len() < 300, "{error}");
    }
    let error = ServiceConfig::parse("{\"methodConfig\": [}").unwrap_err().to_string();
    assert!(error.contains("column 19"), "{error}");
    let large = format!("\"{}\"", "x".repeat(ServiceConfig::BYTES_MAX));
    assert!(ServiceConfig::parse(&large).unwrap_err().to_string().contains("at most 256 KiB"));
    let names: Vec<Value> = (0..5000).map(|n| json!({ "service": format!("a{n}") })).collect();
    let error = parsed(&json!({"methodConfig": [{ "name": names }]})).unwrap_err();
    assert!(error.contains("methodConfig[0].name[4096]: more than 4096 names"), "{error}");
}

/// Values that are often right, so that reading goes deep.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-2i64..2000).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[0-9]{1,3}(\\.[0-9]{1,3})?s".prop_map(Value::from),
        prop::sample::select(vec!["UNAVAILABLE", "a.B", "", "\u{1f600}"]).prop_map(Value::from),
    ];
    let keys = vec![
        "methodConfig",
        "name",
        "service",
        "method",
        "timeout",
        "retryPolicy",
        "hedgingPolicy",
        "maxAttempts",
        "initialBackoff",
        "maxBackoff",
        "backoffMultiplier",
        "retryableStatusCodes",
        "nonFatalStatusCodes",
        "hedgingDelay",
        "retryThrottling",
        "maxTokens",
        "tokenRatio",
        "loadBalancingConfig",
        "outlier_detection_experimental",
        "ring_hash_experimental",
        "least_request_experimental",
        "childPolicy",
        "failurePercentageEjection",
        "choiceCount",
        "minRingSize",
        "healthCheckConfig",
    ];
    leaf.prop_recursive(6, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((prop::sample::select(keys.clone()), inner), 0..6).prop_map(|members| {
                Value::Object(members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
            }),
        ]
    })
}

proptest! {
    #[test]
    fn anything_is_read_or_refused(config in value(), text in any::<String>()) {
        let _ = ServiceConfig::parse(&text);
        if let Err(error) = parsed(&config) {
            prop_assert!(error.contains("; write "), "{}", error);
        }
    }

    #[test]
    fn durations_are_exact(seconds in 0u64..315_576_000_000, nanos in 0u32..1_000_000_000) {
        let config = parsed(&of_method(json!({ "timeout": format!("{seconds}.{nanos:09}s") }))).unwrap();
        let expected = seconds.saturating_mul(1_000_000_000).saturating_add(nanos.into());
        prop_assert_eq!(config.method("/a/b").unwrap().timeout_ns, Some(expected));
    }
}
