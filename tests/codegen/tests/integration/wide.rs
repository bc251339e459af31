//! Shows that a message of 8192 fields is generated, compiled, built, read and checked like any other.

use trunkline_codegen_tests::wide::{FILE_DESCRIPTOR_SET, Wide};
use trunkline_message::{AlignedBuf, Message, check};
use trunkline_schema::Schema;

#[test]
fn a_wide_message_makes_the_round() {
    let mut owned = Wide::default();
    owned.member_1.push_str("first");
    owned.member_8189 = Some(Box::new(Wide { member_8192: 8192, ..Wide::default() }));
    owned.member_8186 = Some(-1);
    owned.member_8188 = vec![1, 2, 3];

    let linear = owned.to_linear().unwrap();
    let schema = Schema::from_descriptor_set(FILE_DESCRIPTOR_SET).unwrap();
    let root = schema.message_named(Wide::FULL_NAME).unwrap();
    assert_eq!(Wide::FINGERPRINT, schema.fingerprint(root));
    check(&schema, root, linear.bytes()).unwrap();

    let view = Wide::view(linear.bytes());
    assert_eq!((view.member_1(), view.member_8186(), view.member_8188()), ("first", -1, &[1, 2, 3][..]));
    assert!(!view.has_member_2());
    assert_eq!(Wide::from(view), owned);
    assert_ne!(Wide::from(view), Wide::default());
}

#[test]
fn the_last_field_is_set_in_place() {
    let built = Wide::build(AlignedBuf::new(), |b| {
        b.set_member_8192(7).member_8189().set_member_8185("inner");
    })
    .unwrap();
    let view = Wide::view(built.bytes());
    assert_eq!((view.member_8192(), view.member_8189().unwrap().member_8185()), (7, "inner"));
}
