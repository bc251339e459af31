//! Shows what expressions mean over a message, where they have no value, and what is said about wrong ones.

use crate::support;

use proptest::prelude::*;
use support::{SCHEMA, compile, inputs, metadata, order, sample};
use trunkline_message::View;
use trunkline_policy::{EvalError, Expression, Inputs, Wanted};

fn test(text: &str) -> Result<bool, EvalError> {
    let program = compile(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let (order, metadata) = (sample(), metadata());
    program.test(&inputs(View::root(order.bytes()), &metadata))
}

#[test]
fn true_of_the_sample() {
    let all = [
        "request.urgent",
        "!request.urgent == false",
        "request.small == -3 && request.big > 1000000",
        "request.count == 5u && request.count == 5 && request.wide > 9223372036854775807",
        "request.weight * 2.0 == 5.0 && request.ratio == 0.0",
        "request.tenant == 'bl\\u00e5b\\u00E4r' && size(request.tenant) == 6 && request.tenant.size() == 6",
        "request.tenant.startsWith('bl') && request.tenant.endsWith(\"är\") && request.tenant.contains('åb')",
        "request.tenant.matches('^bl.b.r$') && !request.tenant.matches('x')",
        "request.token == b'\\x00\\xff' && size(request.token) == 2",
        "request.mood == shop.v1.Mood.WILD && request.mood == Mood.WILD && request.mood == 7",
        "request.item.name == 'lamp' && request.item.part.part.name == ''",
        "has(request.item) && !has(request.item.part) && has(request.maybe) && has(request.rail)",
        "!has(request.road) && has(request.tenant) && !has(request.ratio) && has(request.items)",
        "!has(request.names) && size(request.names) == 0 && size(request.items) == 2",
        "request.items[1].price == 200 && request.numbers[0] + request.numbers[2] == 10",
        "6 in request.numbers && !(7 in request.numbers) && request.tenant in ['a', 'blåbär']",
        "request.scores['x'] == 3 && request.scores.y == 2 && 'y' in request.scores && !('z' in request.scores)",
        "has(request.scores.x) && !has(request.scores.z) && !(1 in request.labels)",
        "request.items.exists(i, i.price > 100 && i.name == 'b') && request.items.all(i, i.price > 0)",
        "request.items.exists_one(i, i.name.startsWith('a')) && !request.items.all(i, i.price < 50)",
        "request.numbers.all(n, request.items.exists(i, i.price > n)) && request.scores.all(k, k in ['x', 'y'])",
        "['a', 'b'].exists(p, request.items[0].name == p)",
        "metadata['tenant'] == 'blue' && metadata.tenant == 'blue' && 'tenant' in metadata && !has(metadata.x)",
        "metadata['Tenant'] == 'blue' && metadata.TENANT == 'blue' && 'Tenant' in metadata && has(metadata.Tenant)",
        "int(metadata['retries']) + 1 == 4",
        "service == 'shop.v1.Shop' && method == 'Buy' && path == '/shop.v1.Shop/Buy'",
        "application == 'till' && peer.identity == 'uid:1000' && peer.address == ''",
        "caller.uid == 1000 && caller.identity == 'uid:1000' && caller.name == 'till' && has(caller.uid)",
        "caller.program.startsWith('/usr/') && 'shop.v1.Till' in caller.services && !('x' in caller.services)",
        "size(caller.services) == 2 && caller.services[1] == 'shop.v1.Till' && caller.services.all(s, s != '')",
        "(request.urgent ? request.small : request.small + 1) == -3",
        "-request.small == 3 && - -3 == 3 && -9223372036854775808 < 0 && 0x10 == 16 && 1e3 == 1000.0",
        "7 / 2 == 3 && -7 / 2 == -3 && -7 % 2 == -1 && 7u / 2u == 3u && 1.0 / 0.0 > 1e300",
        "int(2.9) == 2 && uint(3) == 3u && double(3) == 3.0 && string(b'a') == 'a' && bytes('a') == b'a'",
        "1 == 1.0 && 1u < 1.5 && 9223372036854775807 < 9223372036854775808.0 && !(1 > 1.0)",
        "r'\\d' == '\\\\d' && '''a\n''' == 'a\\n' && 'a' < 'b' && b'a' < b'b' && false < true",
        // Names of the chain's own do not hide members of the request.
        ".request.urgent // and a comment",
    ];
    for text in all {
        assert_eq!(test(text), Ok(true), "{text}");
    }
}

#[test]
fn a_caller_nobody_vouches_for_has_no_value() {
    let compiled = |text: &str| compile(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let inputs = Inputs { caller: None, ..inputs(View::EMPTY, &[]) };
    let table = [
        ("caller.uid == 0", Err(EvalError::NoSuchKey)),
        ("caller.uid != 0", Err(EvalError::NoSuchKey)),
        ("!has(caller.uid) && caller.identity == '' && caller.name == '' && caller.program == ''", Ok(true)),
        ("size(caller.services) == 0 && !('shop.v1.Shop' in caller.services)", Ok(true)),
        ("caller.services[0] == ''", Err(EvalError::OutOfRange)),
    ];
    for (text, expected) in table {
        assert_eq!(compiled(text).test(&inputs), expected, "{text}");
    }
}

#[test]
fn errors_and_what_hides_them() {
    let over = "request.big * request.big * request.big == 0";
    let table = [
        (over.to_owned(), Err(EvalError::Overflow)),
        (format!("{over} || true"), Ok(true)),
        (format!("true || {over}"), Ok(true)),
        (format!("{over} && false"), Ok(false)),
        (format!("{over} || false"), Err(EvalError::Overflow)),
        (format!("{over} && true"), Err(EvalError::Overflow)),
        ("request.count / 0u == 1u".into(), Err(EvalError::DivideByZero)),
        ("request.small % 0 == 1".into(), Err(EvalError::DivideByZero)),
        ("request.numbers[3] == 1".into(), Err(EvalError::OutOfRange)),
        ("request.numbers[-1] == 1".into(), Err(EvalError::OutOfRange)),
        ("request.scores['z'] == 1".into(), Err(EvalError::NoSuchKey)),
        ("metadata['z'] == ''".into(), Err(EvalError::NoSuchKey)),
        ("has(metadata.z) && metadata['z'] == ''".into(), Ok(false)),
        // Neither value is the one: a handler may read either.
        ("metadata['two'] == 'red'".into(), Err(EvalError::SeveralValues)),
        ("metadata['two'] == 'green'".into(), Err(EvalError::SeveralValues)),
        ("metadata['two'] != 'green'".into(), Err(EvalError::SeveralValues)),
        ("has(metadata.two) && 'two' in metadata".into(), Ok(true)),
        ("metadata['twice'] == 'same'".into(), Ok(true)),
        ("-(-9223372036854775807 - 1) == 0".into(), Err(EvalError::Overflow)),
        ("(-9223372036854775807 - 1) / -1 == 0".into(), Err(EvalError::Overflow)),
        ("int('12x') == 12".into(), Err(EvalError::Overflow)),
        ("uint(-1) == 0u".into(), Err(EvalError::Overflow)),
        ("int(1e19) == 0".into(), Err(EvalError::Overflow)),
        ("request.numbers.exists(n, 10 / (n - 5) == 10)".into(), Ok(true)),
        ("request.numbers.all(n, 10 / (n - 5) < 50)".into(), Err(EvalError::DivideByZero)),
        ("request.numbers.all(n, 10 / (n - 5) > 5)".into(), Ok(false)),
    ];
    for (text, expected) in table {
        assert_eq!(test(&text), expected, "{text}");
    }
}

#[test]
fn wrong_ones_are_refused_with_place_and_remedy() {
    #[rustfmt::skip]
    let table = [
        ("", "1:1: found the end of the expression; write a value here"),
        ("request.urgent &&", "1:18: found the end of the expression; write a value here"),
        ("request.urgent\n  = true", "2:3: unexpected character '='; write == to compare"),
        ("request.tenent == 'a'", "1:9: shop.v1.Order has no field \"tenent\"; did you mean \"tenant\"?"),
        ("requst.tenant == 'a'", "1:1: there is no \"requst\"; did you mean \"request\"?"),
        ("request.tenant == blue", "1:19: there is no \"blue\"; names here: request, metadata, method, service, path, \
          application, peer, caller; text stands in quotes"),
        ("request.tenant", "1:1: the expression must be true or false, and this is string; compare it with something"),
        ("request.tenant == 5", "1:16: == does not compare string and int; write the text in quotes"),
        ("request.count + 1 == 2", "1:15: + is not defined for uint and int; write a number with u (5u), or uint(...)"),
        ("request.item == null", "1:14: == does not compare a value of a type not known yet and null; ask for \
          presence with has(request.field)"),
        ("request.tenant + 'a' == 'b'", "1:16: + is not defined for a value of a type not known yet and string; \
          nothing is joined here: test the parts"),
        ("request.tenant.matches(request.item.name)", "1:37: the pattern of matches() must be known beforehand; \
          write it as \
          a literal: it is compiled once, when the policy is applied"),
        ("request.tenant.matches('(')", "1:24: bad pattern: missing ): (; patterns are those of RE2: no \
          look-around, no \
          back-references"),
        ("request.items.filter(i, true) == []", "1:15: there is no function value.filter of 2 arguments; nothing is \
          collected here: write list.exists(x, ...) or list.all(x, ...)"),
        ("request.tenant.startWith('a')", "1:16: there is no function value.startWith of 1 arguments; did you mean \
          \"startsWith\"?"),
        ("has(request)", "1:1: has() takes one member; write has(request.field) or has(metadata.key)"),
        ("request.numbers['a'] == 1", "1:17: a list index takes int, and this is string; write the number without \
          quotes, or int(...)"),
        ("request.labels['a'] == ''", "1:16: the map has keys of int, and this is string; write the number without \
          quotes, or int(...)"),
        ("5 in request.tenant", "1:3: in takes a list or a map, and this is string; write [a, b] or name a repeated \
          field"),
        ("request.tenant in ['a', 1]", "1:25: the list has elements of types string and int; give all the same type"),
        ("request.mood == shop.v1.Mood.WILT", "1:30: there is no \"shop.v1.Mood.WILT\"; names here: request, metadata, \
          method, service, path, application, peer, caller, and values of enums by their full name"),
        ("'abc", "1:1: literal is not closed; end it with '"),
        ("5 == 99999999999999999999", "1:6: integer does not fit 64 bits; write it with u if it is unsigned"),
        ("metadata['x user'] == 'a'", "1:10: no call has it: metadata key \"x user\": use 0-9 a-z - _ . only"),
        ("':path' in metadata", "1:9: no call has it: metadata key \":path\": use 0-9 a-z - _ . only"),
        ("caller.host == 'a'", "1:8: caller has no member \"host\"; write caller.uid, caller.identity, caller.name, \
          caller.program or caller.services"),
        ("has(caller.name)", "1:12: caller.name is always there; compare it with what is empty: '' or size() 0"),
        ("peer.name == 'a'", "1:6: peer has no member \"name\"; write peer.identity or peer.address"),
        ("{'a': 1}.a == 1", "1:1: map literals are not supported here; compare the keys one by one"),
        ("request.package == 1", "1:9: \"package\" is a reserved word of CEL; a field of that name cannot be named \
          here"),
        ("!request.tenant", "1:10: ! takes bool, and this is string"),
        ("request.urgent ? 1 : 'a'", "1:16: the two sides of : have types int and string; give both the same type"),
    ];
    let found: Vec<_> = table.iter().map(|(text, _)| (*text, compile(text).expect_err(text))).collect();
    let expected: Vec<_> = table.iter().map(|(text, error)| (*text, (*error).to_owned())).collect();
    for (found, expected) in found.iter().zip(&expected).filter(|(found, expected)| found != expected) {
        eprintln!("{found:?}\n{expected:?}\n");
    }
    assert!(found == expected);
}

#[test]
fn without_a_schema_the_rest_is_still_checked() {
    let parse = |text: &str| {
        Expression::parse(text, Wanted::Bool).map(|e| e.reads_request()).map_err(|e| e.to_string())
    };
    assert_eq!(parse("request.what.ever == 5 && request.list[3].startsWith('a')"), Ok(true));
    assert_eq!(parse("metadata['a'] == 'b'"), Ok(false));
    assert!(parse("request.a == 5 + 'a'").is_err());
    assert!(parse("request.a.matches('[')").is_err());
    let opaque = Expression::parse("metadata['a'] == 'b'", Wanted::Bool).unwrap().compile(None);
    assert!(opaque.is_ok(), "metadata needs no schema");
    assert!(Expression::parse("request.a", Wanted::Bool).unwrap().compile(None).is_err());
}

#[test]
fn a_program_says_whether_it_reads_anything_beside_the_message() {
    let reads_facts =
        |text: &str| compile(text).unwrap_or_else(|error| panic!("{text}: {error}")).reads_facts();
    let facts = [
        "application == 'till'",
        "path == '/a.B/C' || request.urgent",
        "service != ''",
        "method != ''",
        "peer.identity == 'x'",
        "peer.address != ''",
        "caller.uid == 0",
        "has(caller.uid)",
        "caller.identity == 'uid:0'",
        "caller.name == 'a'",
        "caller.program == 'a'",
        "size(caller.services) > 0",
        "'a' in caller.services",
        "metadata['a'] == 'b'",
        "has(metadata.a)",
        "'a' in metadata",
        "request.urgent ? metadata.a == 'b' : false",
        "request.items.exists(i, i.name == application)",
        "request.tenant.startsWith(application)",
        "!(request.tenant in ['a', application])",
    ];
    for text in facts {
        assert!(reads_facts(text), "{text}");
    }
    let nothing = ["true", "1 + 1 == 2", "request.urgent", "request.items.exists(path, path.price > 100)"];
    for text in nothing {
        assert!(!reads_facts(text), "{text}");
    }
}

#[test]
fn depth_length_and_work_are_bounded() {
    for deep in ["(".repeat(100_000), "!".repeat(60_000), "[".repeat(60_000), "-".repeat(60_000)] {
        assert!(Expression::parse(&deep, Wanted::Bool).is_err());
    }
    let sum = format!("0{} == 1", " + 1".repeat(100));
    assert!(Expression::parse(&sum, Wanted::Bool).unwrap_err().problem.contains("64 levels"));
    let names = (0..5000).map(|i| format!("request.tenant == '{i}'")).collect::<Vec<_>>().join("||");
    assert!(Expression::parse(&names, Wanted::Bool).unwrap_err().problem.contains("65536 bytes"));
    let wide = (0..1500).map(|i| format!("request.tenant == '{i}'")).collect::<Vec<_>>().join("||");
    assert_eq!(test(&wide), Ok(false), "a long list of conditions is one level");
    let numbers = format!("[{}]", (0..120).map(|i| i.to_string()).collect::<Vec<_>>().join(","));
    let cubic = format!("{numbers}.all(a, {numbers}.all(b, {numbers}.all(c, a + b + c >= 0)))");
    assert_eq!(test(&cubic), Err(EvalError::Steps));
}

/// What is done with long texts counts, too: reading numbers, and preparing to search for a part.
#[test]
fn work_on_long_texts_is_bounded() {
    let long = "0".repeat(8_000);
    let mut pairs = trunkline_call::Metadata::new();
    pairs.insert("long", &long).expect("legal");
    let mut metadata = Vec::new();
    pairs.encode(&mut metadata);
    let test = |times: usize, body: &str| {
        let numbers = (0..times).map(|i| i.to_string()).collect::<Vec<_>>().join(",");
        let program = compile(&format!("[{numbers}].exists(n, {body})")).unwrap();
        program.test(&inputs(View::EMPTY, &metadata))
    };
    assert_eq!(test(1, "int(metadata.long) == n"), Ok(true));
    for number in ["int(metadata.long) > n", "uint(metadata.long) > 1u", "double(metadata.long) > 1.0"] {
        assert_eq!(test(100, number), Err(EvalError::Steps), "{number}");
    }
    assert_eq!(test(1, "metadata.long.contains(metadata.long)"), Ok(true));
    assert_eq!(test(60, "!metadata.long.contains(metadata.long)"), Err(EvalError::Steps));
    assert_eq!(test(100, "'short'.contains(metadata.long)"), Ok(false), "longer than the text");
}

proptest! {
    #[test]
    fn no_text_panics(text in "[a-z0-9 .,()\\[\\]!&|=<>+*/%?:'\"\\\\-]{0,60}") {
        if let Ok(expression) = Expression::parse(&text, Wanted::Bool) {
            let _ = expression.compile(Some((&SCHEMA, order())));
        }
    }

    #[test]
    fn no_tokens_panic(words in prop::collection::vec(prop::sample::select(vec![
        "request", ".", "urgent", "small", "items", "[", "]", "(", ")", "0", "1", "2u", "'a'", "==", "&&", "||", "!",
        "-", "+", "in", "?", ":", "exists", "i", ",", "has", "size", "metadata", "9223372036854775808", "true",
    ]), 0..24)) {
        if let Ok(program) = compile(&words.join(" ")) {
            let (order, metadata) = (sample(), metadata());
            let _ = program.test(&inputs(View::root(order.bytes()), &metadata));
        }
    }

    /// A program over bytes that are no message at all: whatever it says, it says it.
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let buffer = trunkline_message::AlignedBuf::copied(&bytes).unwrap();
        for text in ["request.items.exists(i, i.part.name == 'a')", "request.scores['x'] == 1", "request.tenant != \
          ''"] {
            let view = View::root(trunkline_message::Extent::bytes(&buffer));
            let _ = compile(text).unwrap().test(&inputs(view, &bytes));
        }
    }
}
