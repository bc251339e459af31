//! Shows that descriptors from anybody are refused by name, in bounded time and space, and never panic.

use crate::support;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use support::random::{Tape, descriptor_set};
use support::wire::{Wire, field, file, message, set};
use trunkline_schema::{
    FINGERPRINT_FIELDS_MAX, NAME_BYTES_MAX, NESTING_MAX, ONEOF_MEMBERS_MAX, Schema, SchemaError,
};

const INT32: u64 = 5;
const MESSAGE: u64 = 11;

fn refused(file: Wire) -> SchemaError {
    Schema::from_descriptor_set(&set(file)).expect_err("must be refused")
}

fn words(file: Wire) -> String {
    refused(file).to_string()
}

#[test]
fn errors_name_file_message_and_field() {
    let with = |fields: Vec<Wire>| file("dir/a.proto").text(2, "p").message(4, message("M", fields));
    let cases = [
        (with(vec![field("f", 0, INT32)]), "dir/a.proto: p.M.f: the field number is out of range"),
        (with(vec![field("f", 1 << 29, INT32)]), "dir/a.proto: p.M.f: the field number is out of range"),
        (
            with(vec![field("f", 1, INT32), field("g", 1, INT32)]),
            "dir/a.proto: p.M.g: field number \"1\" is declared twice",
        ),
        (with(vec![field("f", 1, 19)]), "dir/a.proto: p.M.f: the field's type does not exist"),
        (
            with(vec![field("f", 1, MESSAGE).text(6, ".p.N")]),
            "dir/a.proto: p.M.f: type \".p.N\" is not declared in this set",
        ),
        (with(vec![field("a/b", 1, INT32)]), "dir/a.proto: p.M.a/b: the field's name is not an identifier"),
        (
            with(vec![field("f", 1, INT32).number(9, 0)]),
            "dir/a.proto: p.M.f: the field is in a oneof that its message does not declare",
        ),
        (
            with(vec![field("f", 1, INT32).text(7, "many")]),
            "dir/a.proto: p.M.f: the default is not a number of the field's type",
        ),
    ];
    for (file, expected) in cases {
        assert_eq!(words(file), expected);
    }
}

#[test]
fn names_are_identifiers_and_bounded() {
    let long = "x".repeat(NAME_BYTES_MAX + 1);
    assert!(matches!(refused(file("a").message(4, message(&long, []))), SchemaError::Limit { .. }));
    assert!(matches!(refused(file("a").message(4, message("a.b", []))), SchemaError::Invalid { .. }));
    assert!(matches!(refused(file("a").text(2, "a..b")), SchemaError::Invalid { .. }));
    let method = Wire::default().text(1, "../../etc").text(2, ".M").text(3, ".M");
    let service = Wire::default().text(1, "S").message(2, method);
    let file = file("a").message(4, message("M", [])).message(6, service);
    assert!(words(file).contains("the method's name is not an identifier"));
}

#[test]
fn names_are_declared_once() {
    let m = || message("M", []);
    assert!(words(file("a").message(4, m()).message(4, m())).contains("type \"M\" is declared twice"));
    let service = || Wire::default().text(1, "S");
    assert!(words(file("a").message(6, service()).message(6, service())).contains("\"S\" is declared twice"));
}

#[test]
fn nesting_is_bounded() {
    let nested =
        |depth: usize| (1..depth).fold(message("M", []), |inner, _| message("M", []).message(3, inner));
    assert!(Schema::from_descriptor_set(&set(file("a").message(4, nested(NESTING_MAX)))).is_ok());
    let refused = refused(file("a").message(4, nested(NESTING_MAX + 1)));
    assert!(matches!(refused, SchemaError::Limit { what: "nested declarations", limit: NESTING_MAX, .. }));
}

/// Two bytes each on the wire: without a count they would become gigabytes here.
#[test]
fn counts_are_bounded() {
    let many = |number: u8, count: usize| [number << 3 | 2, 0].repeat(count);
    let m = |number| Wire(many(number, 1 << 19));
    let cases = [
        (file("a").message(4, m(2)), "fields"),
        (file("a").message(4, m(3)), "messages"),
        (file("a").message(4, m(4)), "enum values"),
        (file("a").message(4, m(8)), "fields"),
        (file("a").message(6, m(2)), "services and methods"),
    ];
    for (file, what) in cases {
        assert!(words(file).contains(what));
    }
    let files = many(1, 1 << 15);
    assert!(matches!(Schema::from_descriptor_set(&files), Err(SchemaError::Limit { what: "files", .. })));
}

/// A message of `fields` ints, of which every one at a multiple of `step` is a member of one oneof.
fn with_oneof(fields: u64, step: u64) -> Vec<u8> {
    let of = |i| if i % step == 0 { field("f", i, INT32).number(9, 0) } else { field("f", i, INT32) };
    let m = message("M", (1..=fields).map(of)).message(8, Wire::default().text(1, "choice"));
    set(file("a").message(4, m))
}

#[test]
fn oneofs_are_bounded() {
    let of = |fields, step| Schema::from_descriptor_set(&with_oneof(fields, step)).map_err(|e| e.to_string());
    assert!(of(ONEOF_MEMBERS_MAX as u64, 1).is_ok());
    let refused = of(65_536, 1).unwrap_err();
    assert_eq!(refused, "a: M.choice: members of the oneof exceed the limit of 1024");
    assert!(of(65_536, 4096).is_ok(), "in 16 words");
    let refused = of(65_536, 64).unwrap_err();
    assert!(refused.contains("words of 32 fields with members of the oneof"), "{refused}");
}

#[test]
fn blocks_are_bounded() {
    let fields = (1..=65_536).map(|i| field("f", i, 9));
    let fits = message("M", fields.clone());
    assert!(
        Schema::from_descriptor_set(&set(file("a").message(4, fits))).is_ok(),
        "65536 strings are 532 KB"
    );
}

#[test]
fn map_entries_are_what_everyone_relies_on() {
    let entry = |fields: Vec<Wire>| message("E", fields).message(7, Wire::default().number(7, 1));
    let of = |fields: Vec<Wire>| words(file("a").message(4, entry(fields)));
    assert!(of(vec![field("key", 1, INT32)]).contains("other fields than key and value"));
    assert!(of(vec![field("key", 1, INT32), field("value", 3, INT32)]).contains("not {key = 1, value = 2}"));
    assert!(of(vec![field("key", 1, 1), field("value", 2, INT32)]).contains("map's key is neither"));
    let single = file("a")
        .message(4, entry(vec![field("key", 1, INT32), field("value", 2, INT32)]))
        .message(4, message("M", [field("m", 1, MESSAGE).text(6, ".E")]));
    assert!(words(single).contains("a map entry is the type of a field that is not repeated"));
}

#[test]
fn unknown_languages_are_refused() {
    let refused = "a: a syntax or edition this version does not know";
    assert_eq!(words(file("a").number(14, 9999)), refused);
    assert_eq!(words(file("a").text(12, "proto4")), refused);
    assert_eq!(words(file("a").text(12, "editions")), refused);
    assert_eq!(words(file("a").text(12, "proto3").number(14, 1000)), refused);
}

#[test]
fn names_are_absolute_with_or_without_the_dot() {
    let of = |name: &str| {
        let m = message("M", [field("a", 1, MESSAGE).text(6, name)]);
        Schema::from_descriptor_set(&set(file("a").text(2, "p").message(4, m)))
    };
    assert!(of(".p.M").is_ok() && of("p.M").is_ok());
    assert!(matches!(of("M"), Err(SchemaError::Unresolved { .. })));
}

/// Fields times what each refers to must not multiply: this would be 10^10 steps if they did.
#[test]
fn large_enums_shared_by_many_fields_stay_cheap() {
    let values = (0..100_000).map(|i| Wire::default().text(1, &format!("V{i}")).number(2, i));
    let e = values.fold(Wire::default().text(1, "E"), |e, value| e.message(2, value));
    let fields = (1..=50_000).map(|i| field("f", i, 14).text(6, ".E").text(7, "V99999"));
    let file = file("a").message(5, e).message(4, message("M", fields));
    let schema = Schema::from_descriptor_set(&set(file)).unwrap();
    schema.fingerprint(schema.message_named("M").unwrap());
}

/// A thousand roots that lead to one message of 8000 fields: 8 million fields in 100 KB.
#[test]
fn fingerprints_are_computed_within_bounds() {
    let hub = message("Hub", (1..=8000).map(|i| field("f", i, INT32)));
    let roots = (0..1000).map(|i| message(&format!("R{i}"), [field("hub", 1, MESSAGE).text(6, ".Hub")]));
    let file = roots.fold(file("a").message(4, hub), |file, root| file.message(4, root));
    let schema = Schema::from_descriptor_set(&set(file)).unwrap();
    let roots = (0..1000).map(|i| schema.message_named(&format!("R{i}")).unwrap()).collect::<Vec<_>>();
    let refused = schema.compute_fingerprints(roots.iter().copied()).unwrap_err().to_string();
    assert!(refused.contains("R524: fields that this and other methods' types lead to"), "{refused}");
    assert!(refused.contains(&FINGERPRINT_FIELDS_MAX.to_string()), "{refused}");
    let again = Schema::from_descriptor_set(schema.descriptor_set()).unwrap();
    assert_eq!(again.compute_fingerprints(roots[..500].iter().copied()), Ok(()));
    assert_eq!(schema.fingerprint(roots[7]), again.fingerprint(roots[7]));
    assert_eq!(again.fingerprint(roots[7]), again.fingerprint(roots[600]), "one by one as many as one likes");
}

#[test]
fn compiler_errors_say_where() {
    let error = Schema::from_proto_source("bad.proto", "syntax = \"proto3\";\nmessage M { int32 x = ; }")
        .unwrap_err();
    let words = error.to_string();
    assert!(words.contains("bad.proto:2:"), "{words}");
    let error =
        Schema::from_proto_source("a.proto", "syntax = \"proto3\"; import \"gone.proto\";").unwrap_err();
    assert!(error.to_string().contains("gone.proto"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::with_cases(512)
    })]

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Schema::from_descriptor_set(&bytes);
    }

    #[test]
    fn broken_descriptors_never_panic(
        tape in proptest::collection::vec(any::<u8>(), 0..300),
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut set = descriptor_set(&mut Tape::new(&tape));
        for (at, byte) in edits {
            let at = at.index(set.len());
            set[at] = byte;
        }
        if let Ok(schema) = Schema::from_descriptor_set(&set) {
            (0..schema.messages().len() as u32).for_each(|i| {
                schema.fingerprint(trunkline_schema::MessageIndex(i));
            });
        }
        set.truncate(cut.index(set.len()));
        let _ = Schema::from_descriptor_set(&set);
    }
}
