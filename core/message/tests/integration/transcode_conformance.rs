//! The binary cases of protobuf's conformance suite as a table of our own: what is read, what is kept as unknown, and
//! what is refused, for proto2 and proto3. Every case is decoded, then encoded, and compared with what a canonical
//! encoder writes; where prost-reflect has an opinion of its own it is asked too.

use crate::transcode_support;

use prost::Message as _;
use prost_reflect::{DynamicMessage, ReflectMessage as _};
use transcode_support::{Both, assert_same};
use trunkline_message::transcode::{DecodeErrorKind as Kind, DecodeLimits, Encoded};
use trunkline_message::{AlignedBuf, Extent};

const PROTO3: &str = r#"
syntax = "proto3";
package test;
enum Open { ZERO = 0; ONE = 1; MINUS = -1; }
message M {
  int32 int32 = 1; int64 int64 = 2; uint32 uint32 = 3; uint64 uint64 = 4; sint32 sint32 = 5; sint64 sint64 = 6;
  fixed32 fixed32 = 7; fixed64 fixed64 = 8; sfixed32 sfixed32 = 9; sfixed64 sfixed64 = 10; float float = 11;
  double double = 12; bool bool = 13; string string = 14; bytes bytes = 15; Open open = 16; M child = 17;
  optional int32 optional_int32 = 18; optional string optional_string = 19;
  repeated int32 r_int32 = 31; repeated bool r_bool = 32;
  repeated fixed32 r_fixed32 = 33; repeated double r_double = 34;
  repeated string r_string = 35; repeated M r_child = 36; repeated Open r_open = 37;
  repeated int32 loose_int32 = 38 [packed = false]; repeated fixed64 loose_fixed64 = 39 [packed = false];
  repeated sint64 r_sint64 = 40;
  map<int32, int32> m_int32 = 51; map<string, M> m_child = 52;
  map<bool, bytes> m_bytes = 53; map<string, Open> m_open = 54;
  oneof choice {
    uint32 o_uint32 = 61; M o_child = 62; string o_string = 63;
    bool o_bool = 64; Open o_open = 65; double o_double = 66;
  }
  int32 far = 536870911;
}
"#;

const PROTO2: &str = r#"
syntax = "proto2";
package test;
enum Closed { FIVE = 5; ONE = 1; BIG = 70000; MINUS = -2; }
message M {
  optional int32 int32 = 1; optional string string = 14; optional Closed closed = 16; optional M child = 17;
  optional int32 with_default = 18 [default = 7];
  optional group Group = 20 { optional int32 a = 1; repeated int32 b = 2; optional M child = 3; }
  repeated group Groups = 21 { optional int32 a = 1; }
  repeated Closed r_closed = 37; repeated Closed p_closed = 38 [packed = true];
  map<int32, Closed> m_closed = 51;
  oneof choice { Closed o_closed = 61; int32 o_int32 = 62; group O_Group = 63 { optional int32 a = 1; } }
  required int32 needed = 70;
}
"#;

/// What should become of some bytes.
enum Then<'a> {
    /// They come back as these.
    Is(&'a str),
    /// They are refused.
    Refused(Kind),
}
use Then::{Is, Refused};

/// Hex to bytes; spaces do not count.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

fn run(both: &Both, cases: &[(&str, &str, Then)]) {
    let (root, descriptor) = both.root("test.M");
    let mut extent = AlignedBuf::new();
    let mut encoded = Encoded::new();
    for (name, wire, then) in cases {
        let wire = hex(wire);
        let decoded = both.transcoder.decode(root, &wire, &mut extent, &DecodeLimits::default());
        match (decoded, then) {
            (Ok(len), Is(expected)) => {
                let back = both.transcoder.encode_into(root, &extent.bytes()[..len], &mut encoded).unwrap();
                assert_eq!(back, hex(expected), "{name}");
            }
            (Err(error), Refused(kind)) => assert_eq!(&error.kind, kind, "{name}"),
            (Ok(_), Refused(kind)) => panic!("{name}: accepted, not refused by {kind}"),
            (Err(error), Is(_)) => panic!("{name}: {}", error.describe(both.schema())),
        }
        // Bytes of one message twice over mean the message merged with itself.
        if let (Is(_), Ok(once)) = (then, DynamicMessage::decode(descriptor.clone(), wire.as_slice())) {
            let mut twice = once.clone();
            twice.merge(wire.as_slice()).unwrap();
            let wire = wire.repeat(2);
            let len = both.transcoder.decode(root, &wire, &mut extent, &DecodeLimits::default()).unwrap();
            let back = both.transcoder.encode_into(root, &extent.bytes()[..len], &mut encoded).unwrap();
            let back = DynamicMessage::decode(once.descriptor(), back).unwrap();
            // prost-reflect does not know closed enums, and NaN is not equal to itself.
            if !name.contains("closed") && !name.contains("NaN") {
                assert_same(&back, &twice, &wire);
            }
        }
    }
}

#[test]
fn scalars_of_every_type() {
    run(
        &Both::from_proto(PROTO3),
        &[
            ("empty", "", Is("")),
            ("int32 max", "08 ffffffff07", Is("08 ffffffff07")),
            ("int32 min", "08 80808080f8ffffffff01", Is("08 80808080f8ffffffff01")),
            ("int32 from 33 bits loses the top", "08 8180808010", Is("08 01")),
            ("int32 from 64 bits loses the top", "08 ffffffffffffffff7f", Is("08 ffffffffffffffffff01")),
            ("int32 from -1 in five bytes", "08 ffffffff0f", Is("08 ffffffffffffffffff01")),
            ("int64 min", "10 80808080808080808001", Is("10 80808080808080808001")),
            ("uint32 from 33 bits", "18 ffffffff1f", Is("18 ffffffff0f")),
            ("uint64 max", "20 ffffffffffffffffff01", Is("20 ffffffffffffffffff01")),
            ("sint32 min", "28 ffffffff0f", Is("28 ffffffff0f")),
            ("sint32 from 33 bits", "28 8280808010", Is("28 02")),
            ("sint64 min", "30 ffffffffffffffffff01", Is("30 ffffffffffffffffff01")),
            ("fixed32", "3d 78563412", Is("3d 78563412")),
            ("fixed64", "41 efcdab8967452301", Is("41 efcdab8967452301")),
            ("sfixed32", "4d ffffffff", Is("4d ffffffff")),
            ("sfixed64", "51 feffffffffffffff", Is("51 feffffffffffffff")),
            ("float", "5d 0000c03f", Is("5d 0000c03f")),
            ("minus zero is not zero", "5d 00000080", Is("5d 00000080")),
            ("a quiet NaN keeps its bits", "5d 0100c07f", Is("5d 0100c07f")),
            ("double", "61 182d4454fb210940", Is("61 182d4454fb210940")),
            ("bool", "68 01", Is("68 01")),
            ("a bool is any varint but zero", "68 82808080808080808001", Is("68 01")),
            ("a bool from bit 32 up", "68 8080808010", Is("68 01")),
            ("a bool zero in ten bytes", "68 80808080808080808000", Is("")),
            ("string", "72 03 616263", Is("72 03 616263")),
            ("bytes need not be UTF-8", "7a 02 fffe", Is("7a 02 fffe")),
            ("an open enum keeps what it does not know", "8001 8f4e", Is("8001 8f4e")),
            ("an enum is an int32", "8001 8180808010", Is("8001 01")),
            ("a negative enum", "8001 ffffffffffffffffff01", Is("8001 ffffffffffffffffff01")),
            ("the highest field number", "f8ffffff0f 05", Is("f8ffffff0f 05")),
        ],
    );
}

#[test]
fn presence() {
    run(
        &Both::from_proto(PROTO3),
        &[
            ("zeros without presence go", "0800 1000 3d00000000 6800 7200 7a00 8001 00", Is("")),
            ("zeros with presence stay", "900100 9a0100", Is("900100 9a0100")),
            ("an empty message stays", "8a0100", Is("8a0100")),
            ("the last of a scalar counts", "0801 0802 0803", Is("0803")),
            ("back to zero", "0801 0800", Is("")),
            ("the last of a string counts", "720161 720162", Is("720162")),
            ("messages are merged", "8a0102 0801 8a0102 1002", Is("8a0104 0801 1002")),
            (
                "lists in merged messages are joined",
                "8a0104 fa010101 8a0104 fa010102",
                Is("8a0105 fa01020102"),
            ),
        ],
    );
}

#[test]
fn oneofs() {
    run(
        &Both::from_proto(PROTO3),
        &[
            ("a zero member is sent", "e80300", Is("e80300")),
            ("the last member counts", "e80305 fa0301 61", Is("fa0301 61")),
            ("narrow after wide leaves nothing behind", "9104ffffffffffffffff e80301", Is("e80301")),
            ("there and back", "e80305 800401 e80300", Is("e80300")),
            ("messages in a oneof are merged", "f20302 0801 f20302 1002", Is("f20304 0801 1002")),
            ("but not across another member", "f20302 0801 e80301 f20302 1002", Is("f20302 1002")),
            ("an open enum in a oneof", "88048f4e", Is("88048f4e")),
        ],
    );
}

#[test]
fn oneofs_spread_over_many_presence_words() {
    let members: String = (1..=200).map(|i| format!("int32 m{i} = {i};")).collect();
    let proto = format!("syntax = \"proto3\"; package test; message M {{ oneof choice {{ {members} }} }}");
    run(
        &Both::from_proto(&proto),
        &[
            ("from the first word to the second", "0805 f80306", Is("f80306")),
            ("from the last bit of the register to the first behind it", "f80305 800406", Is("800406")),
            ("from the second word to the third", "800405 880406", Is("880406")),
            ("to a far one and back", "0805 a00606 0807", Is("0807")),
            ("from a far one to a far one", "a00605 c00c06", Is("c00c06")),
            ("the same again", "a00605 a00606", Is("a00606")),
        ],
    );
}

#[test]
fn lists() {
    run(
        &Both::from_proto(PROTO3),
        &[
            ("packed", "fa0103 010203", Is("fa0103 010203")),
            ("unpacked where packed is expected", "f80101 f80102 f80103", Is("fa0103 010203")),
            ("packed where unpacked is expected", "b20203 010203", Is("b00201 b00202 b00203")),
            ("both, mixed", "f80101 fa010202 03 f80104", Is("fa0104 01020304")),
            (
                "fixed packed where unpacked is expected",
                "ba0210 0100000000000000 0200000000000000",
                Is("b9020100000000000000 b9020200000000000000"),
            ),
            (
                "fixed unpacked where packed is expected",
                "8d0201000000 8d0202000000",
                Is("8a0208 01000000 02000000"),
            ),
            ("an empty packed list is no list", "fa0100 8a0200", Is("")),
            ("bools that are not 0 or 1", "820205 00 01 8002 02", Is("820204 00010101")),
            ("zigzag", "c20203 000102", Is("c20203 000102")),
            ("negative int32 in a list", "f801 ffffffffffffffffff01", Is("fa010a ffffffffffffffffff01")),
            ("strings", "9a020161 9a0200 9a020162", Is("9a020161 9a0200 9a020162")),
            ("messages are not merged", "a2020208 01 a202021002", Is("a202020801 a202021002")),
            ("two lists by turns", "f80101 9a020161 f80102 9a020162", Is("fa01020102 9a020161 9a020162")),
            ("open enums", "aa0204 008f4e01", Is("aa0204 008f4e01")),
        ],
    );
}

#[test]
fn maps() {
    run(
        &Both::from_proto(PROTO3),
        &[
            ("key and value", "9a0304 08011002", Is("9a0304 08011002")),
            ("value before key", "9a0304 10020801", Is("9a0304 08011002")),
            ("no key", "9a0302 1002", Is("9a0304 08001002")),
            ("no value", "9a0302 0801", Is("9a0304 08011000")),
            ("neither", "9a0300", Is("9a0304 08001000")),
            ("key twice, value twice: the last", "9a0308 08010803 10021004", Is("9a0304 08031004")),
            ("no message: an empty one", "a20303 0a0161", Is("a20305 0a0161 1200")),
            (
                "messages within one entry are merged",
                "a2030b 0a0161 12020801 12021002",
                Is("a20309 0a0161 120408011002"),
            ),
            ("no bytes", "aa0302 0801", Is("aa0304 0801 1200")),
            ("no bool key", "aa0303 120161", Is("aa0305 0800 120161")),
            ("no enum is the first", "b20303 0a0161", Is("b20305 0a0161 1000")),
            ("an unknown open enum", "b20306 0a0161 108f4e", Is("b20306 0a0161 108f4e")),
        ],
    );
}

#[test]
fn the_last_entry_of_a_key_counts_for_a_reader() {
    let both = Both::from_proto(PROTO3);
    let (root, descriptor) = both.root("test.M");
    let wire = hex("9a0304 08011002 9a0304 08021003 9a0304 08011004");
    let mut extent = AlignedBuf::new();
    let mut encoded = Encoded::new();
    let len = both.transcoder.decode(root, &wire, &mut extent, &DecodeLimits::default()).unwrap();
    let back = both.transcoder.encode_into(root, &extent.bytes()[..len], &mut encoded).unwrap();
    let expected = DynamicMessage::decode(descriptor.clone(), wire.as_slice()).unwrap();
    assert_same(&DynamicMessage::decode(descriptor, back).unwrap(), &expected, &wire);
}

#[test]
fn unknown_fields() {
    run(
        &Both::from_proto(PROTO3),
        &[
            ("varint", "a006 ffffffffffffffffff01", Is("a006 ffffffffffffffffff01")),
            ("an overlong varint is kept as it came", "a006 8180808000", Is("a006 8180808000")),
            ("fixed32", "a506 01020304", Is("a506 01020304")),
            ("fixed64", "a106 0102030405060708", Is("a106 0102030405060708")),
            ("bytes", "a206 03 010203", Is("a206 03 010203")),
            ("a group", "a306 0801 a406", Is("a306 0801 a406")),
            ("a group in a group", "a306 ab06 0801 ac06 a406", Is("a306 ab06 0801 ac06 a406")),
            ("in front of the known ones, in order", "a00601 0802 a80603", Is("a00601 a80603 0802")),
            ("in a child", "8a0105 0801 a00601", Is("8a0105 a006010801")),
            (
                "many pieces",
                "a00601 720161 a00602 720162 a00603 f80101 a00604",
                Is("a00601 a00602 a00603 a00604 720162 fa010101"),
            ),
            ("a known number with another wire type", "0d 01000000", Is("0d 01000000")),
            ("a string where a varint is expected", "0a 0161", Is("0a 0161")),
            ("a varint where a string is expected", "7001", Is("7001")),
            ("a list with a wire type that does not pack", "fd01 01000000", Is("fd01 01000000")),
            ("a group where a message is expected", "8b01 0801 8c01", Is("8b01 0801 8c01")),
            ("a oneof's member with another wire type", "e80305 fd0301000000", Is("fd0301000000 e80305")),
        ],
    );
}

#[test]
fn overlong_varints() {
    run(
        &Both::from_proto(PROTO3),
        &[
            ("a value in ten bytes", "08 81808080808080808000", Is("08 01")),
            ("a tag in five bytes", "8880808000 01", Is("08 01")),
            ("a tag of a far field in five bytes", "f8ffffff0f 01", Is("f8ffffff0f 01")),
            ("a length in five bytes", "72 8180808000 61", Is("72 01 61")),
            ("a length in six bytes", "72 818080808000 61", Refused(Kind::VarintTooLong)),
            ("a child's length in six bytes", "8a01 828080808000 0801", Refused(Kind::VarintTooLong)),
            ("an unknown length in six bytes", "a206 818080808000 61", Refused(Kind::VarintTooLong)),
            ("a value in eleven bytes", "08 8180808080808080808000", Refused(Kind::VarintTooLong)),
            ("beyond: a value of 65 bits", "20 ffffffffffffffffff02", Is("20 ffffffffffffffff7f")),
            (
                "beyond: an unknown value of 70 bits",
                "a006 ffffffffffffffffff7f",
                Is("a006 ffffffffffffffffff7f"),
            ),
            ("an unknown value in eleven bytes", "a006 8180808080808080808000", Refused(Kind::VarintTooLong)),
            ("a tag in six bytes", "888080808000 01", Refused(Kind::VarintTooLong)),
            ("a tag of 33 bits", "f8ffffff1f 01", Refused(Kind::VarintTooLong)),
            ("a length of 35 bits", "72 ffffffff7f 61", Refused(Kind::Truncated)),
            ("a packed value in eleven bytes", "fa010b 8180808080808080808000", Refused(Kind::VarintTooLong)),
        ],
    );
}

#[test]
fn impossible_tags() {
    let both = Both::from_proto(PROTO3);
    for wire_type in 0..8 {
        let case = format!("0{wire_type} 00000000 00000000");
        run(&both, &[("field number 0", &case, Refused(Kind::FieldNumberZero))]);
    }
    run(
        &both,
        &[
            ("field number 0 in two bytes", "8000 01", Refused(Kind::FieldNumberZero)),
            ("wire type 6", "0e 00", Refused(Kind::WireType(6))),
            ("wire type 7", "0f 00", Refused(Kind::WireType(7))),
            ("wire type 6 of an unknown field", "a606 00", Refused(Kind::WireType(6))),
            ("an end without a group", "0c", Refused(Kind::UnmatchedEndGroup)),
            ("an end without a group, in a child", "8a0101 0c", Refused(Kind::UnmatchedEndGroup)),
            ("an end without a group, after fields", "0801 a406", Refused(Kind::UnmatchedEndGroup)),
            ("the end of another group", "a306 ac06", Refused(Kind::UnmatchedEndGroup)),
            ("a group that ends outside its message", "8a0102 a306 a406", Refused(Kind::Truncated)),
            ("field number 0 in a group", "a306 0001 a406", Refused(Kind::FieldNumberZero)),
        ],
    );
}

/// Every prefix of a message that holds every kind of field is refused, unless it ends between two fields of the root.
#[test]
fn truncation_at_every_byte() {
    let both = Both::from_proto(PROTO3);
    let (root, _) = both.root("test.M");
    let fields = [
        "08 ffffffffffffffffff01",
        "3d 01020304",
        "41 0102030405060708",
        "5d 0000c03f",
        "72 03 616263",
        "7a 02 0102",
        "8001 8f4e",
        "8a01 04 0801 1002",
        "fa01 04 01020304",
        "8a02 08 0100000002000000",
        "92 02 08 0000000000000000",
        "9a02 02 6161",
        "a202 03 720161",
        "9a03 04 08011002",
        "e803 05",
        "a006 8101",
        "a106 0102030405060708",
        "a206 03 010203",
        "a306 0801 72016d a406",
        "a506 01020304",
        "f8ffffff0f 05",
    ];
    for field in fields {
        let field = hex(field);
        for len in 1..field.len() {
            for padding in [0, 1, 40] {
                let mut wire = hex("0801").repeat(padding);
                wire.extend_from_slice(&field[..len]);
                let mut extent = AlignedBuf::new();
                let decoded = both.transcoder.decode(root, &wire, &mut extent, &DecodeLimits::default());
                let error = decoded.expect_err("a prefix is no message");
                assert_eq!(error.kind, Kind::Truncated, "{wire:02x?}");
                // The same bytes in a child of right length, followed by more, end too early just as well.
                let child =
                    [&hex("8a01")[..], &[len as u8], &field[..len], &hex("1001 1001 1001 1001 1001 1001")]
                        .concat();
                let decoded = both.transcoder.decode(root, &child, &mut extent, &DecodeLimits::default());
                assert!(decoded.is_err(), "{child:02x?}");
            }
        }
    }
}

#[test]
fn lengths_beyond_the_message() {
    run(
        &Both::from_proto(PROTO3),
        &[
            ("a string", "72 04 616263", Refused(Kind::Truncated)),
            ("a child", "8a01 05 0801", Refused(Kind::Truncated)),
            ("a string in a child", "8a01 03 720261 08 01", Refused(Kind::Truncated)),
            ("a varint in a child", "8a01 02 0880 01", Refused(Kind::Truncated)),
            ("a packed varint", "fa01 02 0180 01", Refused(Kind::Truncated)),
            ("packed fixed32 of five bytes", "8a02 05 0000000000", Refused(Kind::PackedLength)),
            ("packed doubles of seven bytes", "9202 07 00000000000000", Refused(Kind::PackedLength)),
            ("a length of 2 GiB", "72 8080808008", Refused(Kind::Truncated)),
            ("a list's string", "9a020161 9a020561", Refused(Kind::Truncated)),
            ("a list's child", "a20200 a20207", Refused(Kind::Truncated)),
            ("an entry", "9a0309 08011002", Refused(Kind::Truncated)),
        ],
    );
}

#[test]
fn utf8() {
    let bad = ["80", "c0af", "e28280e282", "eda080", "f4908080", "ff", "616261c3", "f09f"];
    let proto3 = Both::from_proto(PROTO3);
    let proto2 = Both::from_proto(PROTO2);
    for bad in bad {
        // Behind no text, and behind enough for each of the ways in which strings are looked at.
        for prefix in [0, 20, 100, 20_000] {
            let text = ["61".repeat(prefix), bad.to_owned()].concat();
            let len = varint_hex(bad.len() / 2 + prefix);
            for tag in ["72", "9a01", "9a02", "fa03"] {
                let wire = format!("{tag} {len} {text}");
                run(&proto3, &[("proto3 verifies", &wire, Refused(Kind::Utf8))]);
            }
            let wire = format!("72 {len} {text} b004 01");
            run(&proto2, &[("proto2 does not", &wire, Is(&wire))]);
        }
    }
    let key = "a20303 0a01ff";
    run(&proto3, &[("a map's key", key, Refused(Kind::Utf8)), ("bytes", "7a01ff", Is("7a01ff"))]);
}

#[test]
fn closed_enums() {
    let kept = "closed: a map's value makes the whole entry unknown";
    run(
        &Both::from_proto(PROTO2),
        &[
            ("a value it has", "8001 f0a204", Is("8001 f0a204")),
            ("closed: a value it lacks", "8001 02", Is("8001 02")),
            (
                "closed: a value it lacks stands aside for one it has",
                "8001 02 8001 05",
                Is("8001 02 8001 05"),
            ),
            ("closed: and does not displace it", "8001 05 8001 02", Is("8001 02 8001 05")),
            ("a negative value", "8001 feffffffffffffffff01", Is("8001 feffffffffffffffff01")),
            ("an int32 in disguise", "8001 8580808010", Is("8001 05")),
            ("closed: in a list", "a80201 a80202 a80205 a80203", Is("a80202 a80203 a80201 a80205")),
            ("closed: packed", "b20204 01020503", Is("b00202 b00203 b202020105")),
            ("closed: unpacked where packed is expected", "b00201 b00202", Is("b00202 b2020101")),
            ("closed: none of a packed list", "b2020102", Is("b00202")),
            ("closed: a member of a oneof", "f00305 e80302", Is("e80302 f00305")),
            ("a member of a oneof", "f00305 e80301", Is("e80301")),
            ("a map's value", "9a0304 08011005", Is("9a0304 08011005")),
            (kept, "9a0304 08011002 9a0304 08021001", Is("9a0304 08011002 9a0304 08021001")),
            ("no value is the first", "9a0302 0801", Is("9a0304 08011005")),
        ],
    );
}

#[test]
fn groups() {
    run(
        &Both::from_proto(PROTO2),
        &[
            ("a group", "a301 0801 a401", Is("a301 0801 a401")),
            ("an empty group", "a301 a401", Is("a301 a401")),
            ("groups are merged", "a301 0801 a401 a301 1002 a401", Is("a301 0801 1002 a401")),
            ("a list of groups", "ab01 0801 ac01 ab01 ac01", Is("ab01 0801 ac01 ab01 ac01")),
            ("a group in a child", "8a0106 a3010801a401", Is("8a0106 a3010801a401")),
            ("a child in a group", "a301 1a020801 a401", Is("a301 1a020801 a401")),
            ("a group in a child in a group", "a301 1a06a3010801a401 a401", Is("a301 1a06a3010801a401 a401")),
            ("a group in a oneof", "fb03 0801 fc03", Is("fb03 0801 fc03")),
            ("unknown fields in a group", "a301 a00601 a401", Is("a301 a00601 a401")),
            ("an unknown group in a group", "a301 a306a406 a401", Is("a301 a306a406 a401")),
            ("no end", "a301 0801", Refused(Kind::Truncated)),
            ("the end of another", "a301 ac01", Refused(Kind::UnmatchedEndGroup)),
            ("ended by its child", "a301 1a02a401", Refused(Kind::UnmatchedEndGroup)),
            ("end in a child", "8a0104 a3010801 a401", Refused(Kind::Truncated)),
            ("an end tag in five bytes", "a301 a481808000", Is("a301 a401")),
            ("a message where a group is expected", "a201020801", Is("a201020801")),
            ("cut in the end tag", "a301 a4", Refused(Kind::Truncated)),
            ("a missing required field is not the transcoder's business", "0801", Is("0801")),
        ],
    );
}

#[test]
fn depth() {
    let proto3 = Both::from_proto(PROTO3);
    let nest = |levels| (0..levels).fold(String::new(), |inner, _| child_hex("8a01", &inner));
    let groups = |levels: usize| ["a306".repeat(levels), "a406".repeat(levels)].concat();
    run(
        &proto3,
        &[
            ("a hundred messages", &nest(100), Is(&nest(100))),
            ("one more", &nest(101), Refused(Kind::Depth)),
            ("a thousand", &nest(1000), Refused(Kind::Depth)),
            ("a hundred unknown groups", &groups(100), Is(&groups(100))),
            ("one unknown group more", &groups(101), Refused(Kind::Depth)),
            ("unknown groups that never end", &"a306".repeat(100_000), Refused(Kind::Depth)),
        ],
    );
    // In the group the child is field 3, in the child the group is field 20: both count.
    let pair = |inner: String, _| format!("a301{}a401", child_hex("1a", &inner));
    let mixed = (0..50).fold(String::new(), pair);
    let deeper = child_hex("8a01", &mixed);
    run(
        &Both::from_proto(PROTO2),
        &[
            ("fifty groups with a child each", &mixed, Is(&mixed)),
            ("in one message more", &deeper, Refused(Kind::Depth)),
        ],
    );
}

/// A length-delimited field in hex.
fn child_hex(tag: &str, body: &str) -> String {
    format!("{tag}{}{body}", varint_hex(body.len() / 2))
}

fn varint_hex(v: usize) -> String {
    let mut out = Vec::new();
    transcode_support::wires::put_varint(&mut out, v as u64);
    out.iter().map(|b| format!("{b:02x}")).collect()
}

#[test]
fn errors_name_the_field_and_the_place() {
    let both = Both::from_proto(PROTO3);
    let (root, _) = both.root("test.M");
    let decode = |wire: &str| {
        let mut extent = AlignedBuf::new();
        both.transcoder.decode(root, &hex(wire), &mut extent, &DecodeLimits::default()).unwrap_err()
    };
    for (wire, expected) in [
        ("0801 8a0104 7202 80ff", "string is not UTF-8 in test.M.string at byte 6"),
        ("0801 9a02 01 ff", "string is not UTF-8 in test.M.r_string at byte 4"),
        ("0801 a202 02 0880", "value goes past the end of its message in test.M.int32 at byte 6"),
        ("0801 720161 41 000000", "value goes past the end of its message in test.M.fixed64 at byte 6"),
        (
            "8a02 03 000000",
            "packed length is not a multiple of the element's size in test.M.r_fixed32 at byte 2",
        ),
        ("0801 0e", "wire type 6 does not exist in test.M.int32 at byte 3"),
        ("a306 0801", "value goes past the end of its message in test.M at byte 2"),
    ] {
        assert_eq!(decode(wire).describe(both.schema()), expected);
    }
    let entry = decode("a203 04 1202 0880");
    assert_eq!(both.schema().message(entry.message).full_name, "test.M");
    assert!(!entry.is_limit());
}
