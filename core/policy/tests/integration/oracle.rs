//! Shows that random expressions mean over a linear message what they mean to another implementation of CEL (the `cel`
//! crate) over the same values: the same truth, or an error where it has an error.

use crate::support;

use cel::{Context, Program, Value as Cel};
use proptest::prelude::*;
use std::collections::HashMap;
use support::{build, compile, inputs};
use trunkline_message::{Value, View};

/// The fields expressions ask about.
#[derive(Clone, Debug)]
struct Order {
    urgent: bool,
    big: i64,
    wide: u64,
    weight: f64,
    tenant: String,
    numbers: Vec<i64>,
    names: Vec<String>,
    /// With keys that occur more than once.
    scores: Vec<(String, i64)>,
}

fn int() -> impl Strategy<Value = i64> {
    prop_oneof![
        -4i64..5,
        prop::sample::select(vec![i64::MIN, i64::MAX, i64::MIN + 1, 1 << 53, -(1 << 53) - 1])
    ]
}

fn uint() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..5, prop::sample::select(vec![u64::MAX, 1 << 63, (1 << 63) - 1, (1 << 53) + 1])]
}

fn double() -> impl Strategy<Value = f64> {
    prop::sample::select(vec![
        0.0,
        1.0,
        -1.5,
        2.5,
        3.0,
        9_007_199_254_740_992.0,
        9_223_372_036_854_775_808.0,
        1e300,
    ])
}

fn word() -> impl Strategy<Value = String> {
    let words = vec![
        "", "a", "ab", "abc", "b", "ba", "å", "åb", "Å", "a\u{30a}", "٣", "3", "ß", "日本", "🧭", "\u{ffff}",
    ];
    prop::sample::select(words).prop_map(str::to_owned)
}

fn an_order() -> impl Strategy<Value = Order> {
    let lists = (prop::collection::vec(-4i64..5, 0..4), prop::collection::vec(word(), 0..4));
    // Few keys and many, each of them more than once now and then.
    let numbered = (0u32..40).prop_map(|number| format!("n{number}"));
    let scores = prop_oneof![
        4 => prop::collection::vec((word(), -4i64..5), 0..4),
        1 => prop::collection::vec((prop_oneof![word(), numbered], -4i64..5), 0..40),
    ];
    (any::<bool>(), int(), uint(), double(), word(), lists, scores).prop_map(
        |(urgent, big, wide, weight, tenant, (numbers, names), scores)| Order {
            urgent,
            big,
            wide,
            weight,
            tenant,
            numbers,
            names,
            scores,
        },
    )
}

/// Numbers as CEL writes them.
fn written(value: f64) -> String {
    format!("{value:?}")
}

fn an_int(depth: u32) -> BoxedStrategy<String> {
    let leaf = prop_oneof![
        int().prop_map(|value| if value == i64::MIN {
            "(-9223372036854775807 - 1)".into()
        } else {
            format!("{value}")
        }),
        Just("request.big".to_owned()),
        (0usize..4).prop_map(|at| format!("request.numbers[{at}]")),
        word().prop_map(|key| format!("request.scores['{key}']")),
        Just("size(request.names)".to_owned()),
        Just("size(request.scores)".to_owned()),
        Just("size(request.tenant)".to_owned()),
    ];
    if depth == 0 {
        return leaf.boxed();
    }
    let operator = prop::sample::select(vec!["+", "-", "*", "/", "%"]);
    prop_oneof![
        2 => leaf,
        3 => (an_int(depth - 1), operator, an_int(depth - 1)).prop_map(|(a, op, b)| format!("({a} {op} {b})")),
        1 => (a_bool(depth - 1), an_int(depth - 1), an_int(depth - 1)).prop_map(|(c, a, b)| format!("({c} ? {a} : \
          {b})")),
        1 => a_uint(depth - 1).prop_map(|a| format!("int({a})")),
    ]
    .boxed()
}

fn a_uint(depth: u32) -> BoxedStrategy<String> {
    let leaf = prop_oneof![uint().prop_map(|value| format!("{value}u")), Just("request.wide".to_owned())];
    if depth == 0 {
        return leaf.boxed();
    }
    let operator = prop::sample::select(vec!["+", "-", "*", "/", "%"]);
    prop_oneof![
        2 => leaf,
        2 => (a_uint(depth - 1), operator, a_uint(depth - 1)).prop_map(|(a, op, b)| format!("({a} {op} {b})")),
        1 => an_int(depth - 1).prop_map(|a| format!("uint({a})")),
    ]
    .boxed()
}

fn a_double(depth: u32) -> BoxedStrategy<String> {
    let leaf = prop_oneof![double().prop_map(written), Just("request.weight".to_owned())];
    if depth == 0 {
        return leaf.boxed();
    }
    // Nothing that could be NaN: the other implementation refuses to compare it, IEEE and the specification do not.
    let operator = prop::sample::select(vec!["+", "-"]);
    prop_oneof![
        2 => leaf,
        2 => (a_double(depth - 1), operator, a_double(depth - 1)).prop_map(|(a, op, b)| format!("({a} {op} {b})")),
        1 => an_int(depth - 1).prop_map(|a| format!("double({a})")),
    ]
    .boxed()
}

fn a_string() -> impl Strategy<Value = String> {
    prop_oneof![
        word().prop_map(|word| format!("'{word}'")),
        Just("request.tenant".to_owned()),
        (0usize..4).prop_map(|at| format!("request.names[{at}]")),
    ]
}

fn a_bool(depth: u32) -> BoxedStrategy<String> {
    let leaf = prop_oneof![
        Just("request.urgent".to_owned()),
        Just("true".to_owned()),
        Just("false".to_owned()),
        (a_string(), prop::sample::select(vec!["startsWith", "endsWith", "contains", "matches"]), word())
            .prop_map(|(of, test, part)| format!("{of}.{test}('{part}')")),
        a_string().prop_map(|of| format!("({of} in request.names)")),
        a_string().prop_map(|of| format!("({of} in request.scores)")),
    ];
    if depth == 0 {
        return leaf.boxed();
    }
    let sign = || prop::sample::select(vec!["==", "!=", "<", "<=", ">", ">="]);
    let below = depth - 1;
    prop_oneof![
        2 => leaf,
        2 => (an_int(below), sign(), an_int(below)).prop_map(|(a, op, b)| format!("({a} {op} {b})")),
        1 => (a_uint(below), sign(), a_uint(below)).prop_map(|(a, op, b)| format!("({a} {op} {b})")),
        1 => (a_double(below), sign(), a_double(below)).prop_map(|(a, op, b)| format!("({a} {op} {b})")),
        1 => (a_string(), sign(), a_string()).prop_map(|(a, op, b)| format!("({a} {op} {b})")),
        2 => (a_bool(below), a_bool(below)).prop_map(|(a, b)| format!("({a} && {b})")),
        2 => (a_bool(below), a_bool(below)).prop_map(|(a, b)| format!("({a} || {b})")),
        1 => a_bool(below).prop_map(|a| format!("!{a}")),
        1 => (a_bool(below), a_bool(below), a_bool(below)).prop_map(|(c, a, b)| format!("({c} ? {a} : {b})")),
        1 => (an_int(below), prop::collection::vec(an_int(0), 0..4))
            .prop_map(|(a, list)| format!("({a} in [{}])", list.join(", "))),
        1 => (prop::sample::select(vec!["all", "exists", "exists_one"]), sign(), an_int(below), a_bool(below))
            .prop_map(|(q, op, a, b)| format!("request.numbers.{q}(n, n {op} {a} || {b})")),
        1 => (prop::sample::select(vec!["all", "exists", "exists_one"]), sign(), an_int(0))
            .prop_map(|(q, op, a)| format!("request.scores.{q}(k, request.scores[k] {op} {a})")),
        1 => (prop::sample::select(vec!["all", "exists"]), a_string())
            .prop_map(|(q, part)| format!("request.names.{q}(s, s.contains({part}))")),
    ]
    .boxed()
}

/// What the other implementation says; `None` for an error.
fn theirs(text: &str, order: &Order) -> Option<bool> {
    let mut request: HashMap<String, Cel> = HashMap::new();
    let text_value = |text: &String| Cel::String(text.clone().into());
    request.insert("urgent".into(), order.urgent.into());
    request.insert("big".into(), order.big.into());
    request.insert("wide".into(), order.wide.into());
    request.insert("weight".into(), order.weight.into());
    request.insert("tenant".into(), text_value(&order.tenant));
    request.insert(
        "numbers".into(),
        Cel::List(order.numbers.iter().map(|n| Cel::Int(*n)).collect::<Vec<_>>().into()),
    );
    request.insert("names".into(), Cel::List(order.names.iter().map(text_value).collect::<Vec<_>>().into()));
    let scores: HashMap<String, Cel> = order.scores.iter().map(|(k, v)| (k.clone(), Cel::Int(*v))).collect();
    request.insert("scores".into(), scores.into());
    let mut context = Context::default();
    context.add_variable_from_value("request", Cel::from(request));
    let program = Program::compile(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    match program.execute(&context) {
        Ok(Cel::Bool(value)) => Some(value),
        Ok(other) => panic!("{text} is {other:?}"),
        Err(_) => None,
    }
}

fn ours(text: &str, order: &Order) -> Option<bool> {
    let built = build(|message| {
        message.set_named("urgent", Value::Bool(order.urgent))?;
        message.set_named("big", Value::I64(order.big))?;
        message.set_named("wide", Value::U64(order.wide))?;
        message.set_named("weight", Value::F64(order.weight))?;
        message.set_named("tenant", Value::String(order.tenant.as_bytes()))?;
        let of = message.descriptor();
        let field = |name| of.field_named(name).expect("it is there");
        for number in &order.numbers {
            message.push(field("numbers"), Value::I64(*number))?;
        }
        for name in &order.names {
            message.push(field("names"), Value::String(name.as_bytes()))?;
        }
        for (key, value) in &order.scores {
            let mut entry = message.push_message(field("scores"))?;
            entry.set_named("key", Value::String(key.as_bytes()))?;
            entry.set_named("value", Value::I64(*value))?;
        }
        Ok(())
    });
    let program = compile(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    program.test(&inputs(View::root(built.bytes()), &[])).ok()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn two_implementations_agree(text in a_bool(3), order in an_order()) {
        prop_assert_eq!(ours(&text, &order), theirs(&text, &order), "{}", text);
    }
}
