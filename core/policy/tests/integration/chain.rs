//! Shows what chains are refused for, what they decide, and that state outlives a change of the chain.

use crate::support;

use std::sync::Arc;
use support::{SCHEMA, inputs, metadata, order, sample};
use trunkline_balance::Pick;
use trunkline_call::{Code, Instant};
use trunkline_message::View;
use trunkline_policy::{Chain, Definition, Modules, Plan, Policies, Rejection, Side, Subject};
use trunkline_schema::Schema;

const NOW: Instant = Instant(1_000_000_000);

#[derive(serde::Deserialize)]
struct Document {
    #[serde(default)]
    policy: Vec<Definition>,
}

fn chain(text: &str) -> Result<Chain, String> {
    let document: Document = toml::from_str(text).map_err(|error| error.message().to_owned())?;
    Chain::build(&document.policy).map_err(|error| error.to_string())
}

fn subject(path: &'static str) -> Subject<'static> {
    let client_streams = path.ends_with("Stream");
    Subject {
        side: Side::Server,
        application: "till",
        path,
        request: Some((&SCHEMA, order())),
        client_streams,
    }
}

fn installed(policies: &mut Policies, text: &str) -> Arc<Plan> {
    let mut staged = policies.stage(chain(text).unwrap(), Modules::default()).unwrap();
    let (plan, misfit) = staged.chain_mut().plan(&subject("/shop.v1.Shop/Buy"));
    assert_eq!(misfit, None);
    policies.commit(staged);
    plan.expect("something applies")
}

fn ask(policies: &mut Policies, plan: &Plan, now: Instant) -> Result<trunkline_policy::Admission, Rejection> {
    let (order, metadata) = (sample(), metadata());
    let mut admission = trunkline_policy::Admission::default();
    policies.admit(plan, now, &inputs(View::root(order.bytes()), &metadata), true, &mut admission)?;
    Ok(admission)
}

fn policy(name: &str, rest: &str) -> String {
    format!("[[policy]]\nname = \"{name}\"\nside = \"server\"\n{rest}\n")
}

/// The same for calls that are made here.
fn caller(name: &str, rest: &str) -> String {
    policy(name, rest).replace("side = \"server\"", "side = \"client\"")
}

#[test]
fn chains_are_refused_with_policy_key_and_remedy() {
    #[rustfmt::skip]
    let table = [
        (policy("a", "kind = \"access\""),
         "policy \"a\": has neither allow nor deny; add deny = 'request.field == \"value\"'"),
        (policy("a", "kind = \"access\"\nallow = \"true\"\ndeny = \"false\""),
         "policy \"a\".deny: a policy has either allow or deny; write two policies; the first one that refuses \
           decides"),
        (policy("a", "kind = \"access\"\ndeny = \"request.x = 3\""),
         "policy \"a\".deny: 1:11: unexpected character '='; write == to compare"),
        (policy("a", "kind = \"access\"\ndeny = \"true\"\nburst = 3"),
         "policy \"a\".burst: does not belong to kind \"access\"; its keys: allow, deny, message"),
        (policy("a", "kind = \"rate-limit\""), "policy \"a\".calls_per_second: is missing; add calls_per_second = ..."),
        (policy("a", "kind = \"rate-limit\"\ncalls_per_second = 0.0"),
         "policy \"a\".calls_per_second: is 0; write a number above 0, up to 1e9"),
        (policy("a", "kind = \"timeout\"\ntimeout_ms = 0"), "policy \"a\".timeout_ms: is 0; write a number from 1 \
          to 3600000"),
        (policy("a", "kind = \"fault\"\npercent = 101.0\ndelay_ms = 1"), "policy \"a\".percent: is 101; write a \
          number from 0 to 100"),
        (policy("a", "kind = \"workers\""),
         "policy \"a\": has neither worker_class nor sticky; add worker_class = 1 or sticky = true"),
        (policy("a", "kind = \"workers\"\nworker_class = 32"),
         "policy \"a\".worker_class: is 32; write a number from 0 to 31"),
        (policy("a", "kind = \"workers\"\nsticky = true\nwhen = \"true\""),
         "policy \"a\".when: does not belong to kind \"workers\"; leave it out: a worker is found before anybody looks \
          at a call; name a service or a method"),
        (policy("a", "kind = \"workers\"\nworker_class = 1\nworkers_reserved = 2"),
         "policy \"a\".workers_reserved: says nothing by itself; add worker_class and service, and write side = \
          \"server\": they are workers of this host"),
        (policy("a", "kind = \"workers\"\nworker_class = 1\nservice = \"a.B\"\nworkers_reserved = 0"),
         "policy \"a\".workers_reserved: is 0; write a number from 1 to 1024"),
        (policy("a", "kind = \"fault\""), "policy \"a\": neither delays nor aborts; add delay_ms = 50 or abort = \
          \"UNAVAILABLE\""),
        (policy("a", "kind = \"timeout\"\ntimeout_ms = 5\nmethod = \"Buy\""),
         "policy \"a\".method: a method needs its service; add service = \"package.Service\""),
        (policy("a b", "kind = \"timeout\"\ntimeout_ms = 5"), "policy \"a b\".name: \"a b\" is no name; write 1 to \
          64 of a-z A-Z 0-9 - _ ."),
        (policy("a", "kind = \"timeout\"\ntimeout_ms = 5").repeat(2),
         "policy \"a\".name: there are two policies named \"a\"; give every policy a name of its own"),
        (policy("a", "kind = \"compress\"\nencoding = \"gzip\""), "policy \"a\".side: is \"server\"; write \
          \"client\": responses are compressed as grpc.response_encoding says"),
        (caller("a", "kind = \"priority\""), "policy \"a\".class: is missing; add class = ..."),
        (caller("a", "kind = \"priority\"\nclass = \"latency\"\nbytes_per_second = 5"), "policy \
          \"a\".bytes_per_second: does not belong to class \"latency\"; take it out, or write class = \"batch\""),
        (caller("a", "kind = \"priority\"\nclass = \"batch\"\nbytes_per_second = 0"), "policy \
          \"a\".bytes_per_second: is 0; write a number from 1; to refuse every call use kind \"access\""),
        (caller("a", "kind = \"compress\""), "policy \"a\".encoding: is missing; add encoding = ..."),
        (policy("a", "kind = \"queue\""), "policy \"a\".calls_max: is missing; add calls_max = ..."),
        (caller("a", "kind = \"queue\"\ncalls_max = 1"),
         "policy \"a\".side: is \"client\"; write \"server\": calls wait for those who serve them"),
        (policy("a", "kind = \"queue\"\ncalls_max = 1\ninterval_ms = 10\ntarget_ms = 11"),
         "policy \"a\".target_ms: is 11; write a number from 1 to interval_ms, which is 10"),
        (policy("a", "kind = \"balance\""),
         "policy \"a\".side: is \"server\"; write \"client\": who calls picks an endpoint"),
        (caller("a", "kind = \"balance\"\nchoices = 3"),
         "policy \"a\".choices: belongs to pick = \"least-request\"; leave it out"),
        (caller("a", "kind = \"balance\"\npick = \"ring-hash\""), "policy \"a\".hash_header: and ring-hash mean \
          nothing without each other; write pick = \"ring-hash\" and hash_header = \"metadata-key\", both or neither"),
        (caller("a", "kind = \"balance\"\npick = \"ring-hash\"\nhash_header = \"x user\""), "policy \
          \"a\".hash_header: is no metadata key; metadata key \"x user\": use 0-9 a-z - _ . only"),
        (caller("a", "kind = \"balance\"\npick = \"ring-hash\"\nhash_header = \"Key-Bin\""), "policy \
          \"a\".hash_header: is \"Key-Bin\"; name metadata of text: a key without -bin"),
        (caller("a", "kind = \"balance\"\neject_ms = 5"),
         "policy \"a\".eject_after: is missing; add eject_after = 5, the failures in a row"),
        (caller("a", "kind = \"balance\"\nwhen = \"true\""), "policy \"a\".when: does not belong to kind \
          \"balance\"; leave it out: endpoints are balanced by service, over all calls of this host"),
        (caller("a", "kind = \"balance\"") + &caller("b", "kind = \"balance\"\npick = \"first\""),
         "policy \"b\".service: \"a\" says already how these endpoints are picked; join the two, or name another \
           service"),
        (policy("wall", "kind = \"access\"\ndeny = \"true\"\nservice = \"shop.v1.Shop\"")
            + &policy("late", "kind = \"timeout\"\ntimeout_ms = 5\nservice = \"shop.v1.Shop\"\nmethod = \"Buy\""),
         "policy \"late\": can never be reached: \"wall\" refuses all of its calls; put it before that one, or take \
           one of the two out"),
    ];
    for (text, expected) in table {
        assert_eq!(chain(&text).expect_err(&text), expected, "{text}");
    }
    assert!(
        chain("[[policy]]\nname = \"a\"\nkind = \"access\"\ndeny = \"true\"").unwrap_err().contains("`side`")
    );
    assert!(chain(&policy("a", "kind = \"fault\"\nabort = \"OK\"")).unwrap_err().contains("no status code"));
    assert!(chain(&policy("a", "kind = \"acess\"")).unwrap_err().contains("unknown variant"));
}

#[test]
fn a_policy_for_a_method_that_cannot_exist_is_told() {
    let of = |method: &str| {
        let scope = format!("service = \"shop.v1.Shop\"\nmethod = \"{method}\"");
        chain(&policy("a", &format!("kind = \"access\"\ndeny = \"true\"\n{scope}"))).unwrap()
    };
    let named = |method: &str, schemas: &[&Schema]| {
        let services: Vec<_> = schemas.iter().flat_map(|schema| schema.services()).collect();
        let found = of(method).methods_named(&services);
        assert!(found.known.len() + found.misnamed.len() <= 1);
        found.misnamed.first().map(ToString::to_string)
    };
    let misnamed = |method: &str| named(method, &[&SCHEMA]);
    assert_eq!(misnamed("Buy"), None);
    let told = "policy \"a\".method: shop.v1.Shop has no method \"Buyy\"; did you mean \"Buy\"?";
    assert_eq!(misnamed("Buyy").as_deref(), Some(told));
    let told = "policy \"a\".method: shop.v1.Shop has no method \"Refund\"; its methods: Buy, Stream";
    assert_eq!(misnamed("Refund").as_deref(), Some(told));
    // Where another version has it, it exists; and of a service nobody knows nothing is known.
    let newer =
        "syntax = \"proto3\"; package shop.v1; message A {} service Shop { rpc Refund(A) returns (A); }";
    let newer = Schema::from_proto_source("shop.proto", newer).unwrap();
    assert_eq!(named("Refund", &[&SCHEMA, &newer]), None);
    assert_eq!(named("Refund", &[]), None);
}

/// A header's name is written in any case and sent in lower case.
#[test]
fn names_of_headers_are_taken_as_they_are_sent() {
    let balance = caller("a", "kind = \"balance\"\npick = \"ring-hash\"\nhash_header = \"X-User\"");
    let chain = chain(&balance).unwrap();
    let pick = &chain.balance("shop.v1.Shop").unwrap().pick;
    assert!(matches!(pick, Pick::RingHash { header: Some(header), .. } if header == "x-user"), "{pick:?}");
}

#[test]
fn what_does_not_fit_a_method_is_named_and_refuses_its_calls() {
    let mut chain = chain(&policy("a", "kind = \"access\"\ndeny = \"request.tenent == 'x'\"")).unwrap();
    let (plan, misfit) = chain.plan(&subject("/shop.v1.Shop/Buy"));
    let expected = "policy \"a\".deny: 1:9: shop.v1.Order has no field \"tenent\" (for /shop.v1.Shop/Buy); did you \
      mean \
                    \"tenant\"?";
    assert_eq!(misfit.unwrap().to_string(), expected);
    let mut policies = Policies::new(1);
    let mut staged = policies.stage(chain, Modules::default()).unwrap();
    let plan = staged.chain_mut().plan(&subject("/shop.v1.Shop/Buy")).0.or(plan).unwrap();
    policies.commit(staged);
    let rejection = ask(&mut policies, &plan, NOW).unwrap_err();
    assert_eq!(rejection.code, Code::Internal);
    assert!(rejection.why.contains("tenent"), "{rejection:?}");
}

#[test]
fn scope_is_side_application_service_and_method() {
    let applies = |rest: &str, path| {
        let text = policy("a", &format!("kind = \"timeout\"\ntimeout_ms = 5\n{rest}"));
        chain(&text).unwrap().plan(&subject(path)).0.is_some()
    };
    let buy = "/shop.v1.Shop/Buy";
    assert!(applies("", buy));
    assert!(applies("service = \"shop.v1.Shop\"", buy) && !applies("service = \"shop.v1.Sho\"", buy));
    assert!(applies("service = \"shop.v1.Shop\"\nmethod = \"Buy\"", buy));
    assert!(!applies("service = \"shop.v1.Shop\"\nmethod = \"Stream\"", buy));
    assert!(applies("application = \"till\"", buy) && !applies("application = \"till2\"", buy));
    let client = policy("a", "kind = \"timeout\"\ntimeout_ms = 5").replace("server", "client");
    assert!(chain(&client).unwrap().plan(&subject(buy)).0.is_none());
}

#[test]
fn the_first_refusal_decides_and_no_value_is_no_permission() {
    let mut policies = Policies::new(1);
    let text = policy("one", "kind = \"access\"\nallow = \"request.urgent\"")
        + &policy("two", "kind = \"access\"\ndeny = \"request.count > 4\"\nmessage = \"buy less\"")
        + &policy("three", "kind = \"access\"\ndeny = \"true\"");
    let plan = installed(&mut policies, &text);
    let expected =
        Rejection { policy: "two".into(), code: Code::PermissionDenied, why: "buy less".into(), log: false };
    assert_eq!(ask(&mut policies, &plan, NOW).unwrap_err(), expected);
    let seen: Vec<_> = policies.rows().iter().map(|row| (row.figures.seen, row.figures.refused)).collect();
    assert_eq!(seen, [(1, 0), (1, 1), (0, 0)]);
    for (condition, passes) in [
        ("deny = \"metadata['x'] == 'y'\"", false),
        ("allow = \"metadata['x'] == 'y'\"", false),
        ("deny = \"false\"\nwhen = \"metadata['x'] == 'y'\"", true),
        ("deny = \"true\"\nwhen = \"metadata['x'] == 'y'\"", false),
        ("deny = \"true\"\nwhen = \"metadata['tenant'] == 'red'\"", true),
        // It came twice, and the handler may read either.
        ("deny = \"metadata['two'] == 'red'\"", false),
        ("deny = \"metadata['two'] == 'blue'\"", false),
        ("allow = \"metadata['two'] == 'red'\"", false),
        ("deny = \"true\"\nwhen = \"metadata['two'] == 'green'\"", false),
    ] {
        let plan = installed(&mut policies, &policy("a", &format!("kind = \"access\"\n{condition}")));
        assert_eq!(ask(&mut policies, &plan, NOW).is_ok(), passes, "{condition}");
    }
}

#[test]
fn a_half_spent_bucket_is_half_spent_in_the_next_chain() {
    let mut policies = Policies::new(7);
    let limit = policy(
        "limit",
        "kind = \"rate-limit\"\ncalls_per_second = 1.0\nburst = 10\nkey = \"request.tenant\"",
    );
    let mut plan = installed(&mut policies, &limit);
    for _ in 0..5 {
        ask(&mut policies, &plan, NOW).unwrap();
    }
    plan = installed(&mut policies, &(policy("new", "kind = \"timeout\"\ntimeout_ms = 9") + &limit));
    let passed = (0..10).filter(|_| ask(&mut policies, &plan, NOW).is_ok()).count();
    assert_eq!(passed, 5);
    let staged = policies
        .stage(chain(&policy("limit", "kind = \"timeout\"\ntimeout_ms = 9")).unwrap(), Modules::default());
    let staged = staged.unwrap();
    policies.abandon(staged);
    assert!(ask(&mut policies, &plan, NOW).is_err(), "a chain that was given up changes nothing");
    let rejection = ask(&mut policies, &plan, NOW).unwrap_err();
    assert_eq!(
        (rejection.code, rejection.why.as_str()),
        (Code::ResourceExhausted, "rate limit reached; a call may pass in 1000 ms")
    );
}

#[test]
fn faults_timeouts_and_logs_add_up_as_often_as_they_say() {
    let mut policies = Policies::new(3);
    let text = policy("slow", "kind = \"fault\"\ndelay_ms = 20\npercent = 25.0")
        + &policy("bound", "kind = \"timeout\"\ntimeout_ms = 500")
        + &policy("tight", "kind = \"timeout\"\ntimeout_ms = 300")
        + &policy("log", "kind = \"access-log\"\npercent = 10.0")
        + &policy("break", "kind = \"fault\"\nabort = \"UNAVAILABLE\"\npercent = 5.0");
    let plan = installed(&mut policies, &text);
    let (mut delayed, mut logged, mut broken) = (0, 0, 0);
    for _ in 0..10_000 {
        match ask(&mut policies, &plan, NOW) {
            Ok(admission) => {
                assert_eq!(admission.timeout_ns, Some(300_000_000));
                delayed += u32::from(admission.delay_ns == 20_000_000);
                logged += u32::from(admission.log);
            }
            Err(rejection) => {
                assert_eq!(rejection.code, Code::Unavailable);
                broken += 1;
            }
        }
    }
    // Six standard deviations, and the seed is fixed.
    assert!((2100..2700).contains(&delayed), "{delayed}");
    assert!((760..1160).contains(&logged), "{logged}");
    assert!((370..640).contains(&broken), "{broken}");
}

/// A call that a fault holds and then ends reaches nobody behind it: it takes none of their tokens, places and turns.
#[test]
fn behind_a_fault_that_ends_a_call_only_logs_are_asked() {
    let mut policies = Policies::new(3);
    let behind = policy("rate", "kind = \"rate-limit\"\ncalls_per_second = 0.001\nburst = 1")
        + &policy("places", "kind = \"concurrency-limit\"\ncalls_max = 1")
        + &policy("turns", "kind = \"queue\"\ncalls_max = 1\nwaiting_max = 1")
        + &policy("broken", "kind = \"fault\"\nabort = \"INTERNAL\"")
        + &policy("log", "kind = \"access-log\"");
    let fault = policy("slow", "kind = \"fault\"\ndelay_ms = 20\nabort = \"UNAVAILABLE\"");
    let plan = installed(&mut policies, &(fault.clone() + &behind));
    for asked in 1..=3 {
        let mut admission = ask(&mut policies, &plan, NOW).unwrap();
        assert_eq!(
            admission.ends.take().map(|ends| (ends.policy, ends.code)),
            Some(("slow".into(), Code::Unavailable))
        );
        assert!(admission.log && admission.permits.is_empty() && admission.ticket.is_none());
        assert_eq!(admission.delay_ns, 20_000_000);
        let seen: Vec<u64> = policies.rows().iter().map(|row| row.figures.seen).collect();
        assert_eq!(seen, [asked, 0, 0, 0, 0, asked]);
    }
    let plan = installed(&mut policies, &behind.replace("abort = \"INTERNAL\"", "delay_ms = 1"));
    let admission = ask(&mut policies, &plan, NOW).unwrap();
    assert!(admission.ticket.is_none() && !admission.permits.is_empty(), "all was left for others");
}

#[test]
fn permits_are_given_back_even_by_calls_of_an_older_chain() {
    let mut policies = Policies::new(1);
    let limit = policy("limit", "kind = \"concurrency-limit\"\ncalls_max = 2");
    let plan = installed(&mut policies, &limit);
    let first = ask(&mut policies, &plan, NOW).unwrap();
    let _second = ask(&mut policies, &plan, NOW).unwrap();
    assert_eq!(ask(&mut policies, &plan, NOW).unwrap_err().code, Code::ResourceExhausted);
    let plan = installed(&mut policies, &(policy("new", "kind = \"timeout\"\ntimeout_ms = 9") + &limit));
    assert!(ask(&mut policies, &plan, NOW).is_err(), "calls under way count through a change");
    policies.release(first.permits);
    let third = ask(&mut policies, &plan, NOW).unwrap();
    let plan = installed(&mut policies, &limit.replace("limit\"\nside", "other\"\nside"));
    policies.release(third.permits);
    assert!(ask(&mut policies, &plan, NOW).is_ok());
}

#[test]
fn a_later_refusal_gives_back_what_an_earlier_policy_took() {
    let mut policies = Policies::new(1);
    let text = policy("limit", "kind = \"concurrency-limit\"\ncalls_max = 1")
        + &policy("no", "kind = \"access\"\ndeny = \"request.urgent\"");
    let plan = installed(&mut policies, &text);
    for _ in 0..3 {
        assert_eq!(ask(&mut policies, &plan, NOW).unwrap_err().policy, "no");
    }
}

#[test]
fn streams_are_looked_at_message_by_message_and_only_by_access() {
    let mut access = chain(&policy("a", "kind = \"access\"\ndeny = \"request.urgent\"")).unwrap();
    let (plan, misfit) = access.plan(&subject("/shop.v1.Shop/Stream"));
    assert!(misfit.is_none() && plan.is_some_and(|plan| plan.inspects_messages()));
    let limit = "kind = \"rate-limit\"\ncalls_per_second = 1.0\nkey = \"request.tenant\"";
    let misfit = chain(&policy("a", limit)).unwrap().plan(&subject("/shop.v1.Shop/Stream")).1.unwrap();
    assert!(misfit.to_string().contains("has a stream of them"), "{misfit}");
}

/// A call from one application of a host to another passes both sides' policies with one admission.
#[test]
fn what_the_first_side_gave_is_taken_back_when_the_second_refuses() {
    let mut policies = Policies::new(7);
    let text = caller("limit", "kind = \"concurrency-limit\"\ncalls_max = 1")
        + &policy("wall", "kind = \"access\"\ndeny = 'request.note != \"-\"'");
    let mut staged = policies.stage(chain(&text).unwrap(), Modules::default()).unwrap();
    let path = "/shop.v1.Shop/Buy";
    let [first, second] = [Side::Client, Side::Server].map(|side| {
        staged.chain_mut().plan(&Subject { side, ..subject(path) }).0.expect("something applies")
    });
    policies.commit(staged);
    let (order, metadata) = (sample(), metadata());
    let inputs = inputs(View::root(order.bytes()), &metadata);
    for _ in 0..3 {
        let mut admission = trunkline_policy::Admission::default();
        policies.admit(&first, Instant(0), &inputs, true, &mut admission).expect("the only place is free");
        assert!(!admission.permits.is_empty());
        let refused = policies.admit(&second, Instant(0), &inputs, true, &mut admission).unwrap_err();
        assert_eq!((refused.policy.as_str(), admission.permits.is_empty()), ("wall", true));
    }
}
