//! Shows what a fingerprint sees and what it does not, and pins its value.

use trunkline_schema::Schema;

fn fingerprint(text: &str) -> u64 {
    let schema = Schema::from_proto_source("test.proto", text).unwrap();
    schema.fingerprint(schema.message_named("M").unwrap())
}

fn proto3(body: &str) -> u64 {
    fingerprint(&format!(r#"syntax = "proto3"; {body}"#))
}

fn proto2(body: &str) -> u64 {
    fingerprint(&format!(r#"syntax = "proto2"; {body}"#))
}

/// These are ABI: a change here means that daemons of two versions no longer pass messages untouched. The values
/// were computed from the canonical form by hand, not by this code.
#[test]
fn pinned() {
    assert_eq!(proto3("message M {}"), 0xdb2f_a904_9861_3fdf);
    assert_eq!(proto3("message M { string s = 1; M m = 2; repeated int32 r = 3; }"), 0xfad3_df1e_13ba_dfec);
}

#[test]
fn names_order_and_place_do_not_matter() {
    let one = proto3("message M { string a = 1; N n = 2; } message N { int32 x = 1; }");
    let two = proto3("message M { message Inner { int32 y = 1; } Inner k = 2; string b = 1; }");
    assert_eq!(one, two);
}

#[test]
fn packedness_defaults_and_utf8_do_not_matter() {
    assert_eq!(
        proto3("message M { repeated int32 r = 1; }"),
        proto3("message M { repeated int32 r = 1 [packed = false]; }")
    );
    assert_eq!(
        proto2("message M { optional int32 i = 1; }"),
        proto2("message M { optional int32 i = 1 [default = 5]; }")
    );
    assert_eq!(
        proto2("message M { optional string s = 1; }"),
        proto3("message M { optional string s = 1; }")
    );
}

#[test]
fn everything_else_matters() {
    let base = proto3("message M { int32 a = 1; int32 b = 2; N n = 3; } message N { int32 x = 1; }");
    let others = [
        "message M { int32 a = 1; int32 b = 4; N n = 3; } message N { int32 x = 1; }",
        "message M { int32 a = 1; sint32 b = 2; N n = 3; } message N { int32 x = 1; }",
        "message M { int32 a = 1; optional int32 b = 2; N n = 3; } message N { int32 x = 1; }",
        "message M { int32 a = 1; repeated int32 b = 2; N n = 3; } message N { int32 x = 1; }",
        "message M { oneof o { int32 a = 1; int32 b = 2; } N n = 3; } message N { int32 x = 1; }",
        "message M { oneof o { int32 a = 1; } oneof p { int32 b = 2; } N n = 3; } message N { int32 x = 1; }",
        "message M { int32 a = 1; int32 b = 2; N n = 3; } message N { int32 x = 2; }",
        "message M { int32 a = 1; int32 b = 2; M n = 3; }",
        "message M { int32 a = 1; int32 b = 2; }",
    ];
    let mut all: Vec<_> = others.iter().map(|body| proto3(body)).chain([base]).collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), others.len() + 1, "all differ");
}

#[test]
fn a_closed_enum_counts_by_its_numbers_an_open_one_does_not() {
    let m = "message M { optional E e = 1; }";
    let closed = |values: &str| proto2(&format!("{m} enum E {{ {values} }}"));
    assert_eq!(closed("A = 0; B = 1;"), closed("X = 1; Y = 0;"), "order and names do not count");
    assert_ne!(closed("A = 0; B = 1;"), closed("A = 0; B = 2;"));
    let open = |values: &str| proto3(&format!("{m} enum E {{ {values} }}"));
    assert_eq!(open("A = 0; B = 1;"), open("A = 0; B = 2;"));
    assert_ne!(open("A = 0; B = 1;"), closed("A = 0; B = 1;"));
}

#[test]
fn recursion_is_told_from_repetition() {
    let direct = proto3("message M { M m = 1; }");
    let mutual = proto3("message M { N n = 1; } message N { M m = 1; }");
    let finite = proto3("message M { N n = 1; } message N { O o = 1; } message O {}");
    assert!(direct != mutual && mutual != finite && direct != finite);
}

#[test]
fn a_group_is_not_a_message() {
    assert_ne!(
        proto2("message M { optional group G = 1 { optional int32 x = 1; } }"),
        proto2("message M { optional G g = 1; } message G { optional int32 x = 1; }")
    );
}
