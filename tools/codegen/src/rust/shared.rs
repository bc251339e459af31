//! Types the library has for everybody, so that those of two crates are the same.

use crate::model::TypeOrigin;

/// Packages with the module of the library that has their types.
const MODULES: [(&str, &str); 2] = [("google.protobuf", "wkt"), ("google.rpc", "rpc")];

/// Messages with the identity of the shape they have in the library. A file may declare another one, such as one of a
/// newer version with more fields: its own type is generated then, as the daemon is told of its own shape.
const MESSAGES: &[(&str, u64)] = &[
    ("google.protobuf.Any", 0x6b91_8468_8b80_c070),
    ("google.protobuf.Duration", 0x8225_d900_6d51_d0cd),
    ("google.protobuf.Empty", 0xdb2f_a904_9861_3fdf),
    ("google.protobuf.FieldMask", 0x1a8f_3f10_f6d3_8cde),
    ("google.protobuf.Struct", 0x2564_4420_a350_a1a1),
    ("google.protobuf.Value", 0x0ffb_df05_d265_05bf),
    ("google.protobuf.ListValue", 0xc0aa_2d7b_1590_4249),
    ("google.protobuf.Timestamp", 0x8225_d900_6d51_d0cd),
    ("google.protobuf.DoubleValue", 0x95da_4bdb_dc25_31b0),
    ("google.protobuf.FloatValue", 0xeb30_e19d_4c13_7f07),
    ("google.protobuf.Int64Value", 0x87f8_8560_8671_22cc),
    ("google.protobuf.UInt64Value", 0x8b1f_a0b5_2580_15db),
    ("google.protobuf.Int32Value", 0xb283_da21_a858_9897),
    ("google.protobuf.UInt32Value", 0xdfa6_4ced_c3e4_7b43),
    ("google.protobuf.BoolValue", 0xd640_aa55_8389_0561),
    ("google.protobuf.StringValue", 0xf148_4137_84a6_3b8c),
    ("google.protobuf.BytesValue", 0x961c_d813_494f_ff71),
    ("google.rpc.ErrorInfo", 0x1344_0e48_e5bf_e90b),
    ("google.rpc.RetryInfo", 0xc993_b7b8_487e_2c54),
    ("google.rpc.DebugInfo", 0x7736_fa9e_2fcc_45e4),
    ("google.rpc.QuotaFailure", 0x7c4c_2f4f_147d_39c6),
    ("google.rpc.QuotaFailure.Violation", 0xbde6_3742_093d_6af8),
    ("google.rpc.PreconditionFailure", 0x9051_5a7e_b03e_e606),
    ("google.rpc.PreconditionFailure.Violation", 0x0614_d866_9468_badc),
    ("google.rpc.BadRequest", 0x9c22_c9a7_1319_09b9),
    ("google.rpc.BadRequest.FieldViolation", 0x1f4f_b8a2_4f84_1032),
    ("google.rpc.RequestInfo", 0x8113_9451_e8de_d29c),
    ("google.rpc.ResourceInfo", 0xe797_85b1_7eea_0549),
    ("google.rpc.Help", 0x6a0d_65d5_9442_20b6),
    ("google.rpc.Help.Link", 0x8113_9451_e8de_d29c),
    ("google.rpc.LocalizedMessage", 0x8113_9451_e8de_d29c),
    ("google.rpc.Status", 0xe090_58fb_ff62_5da8),
];

/// Enums that the library has.
const ENUMS: [&str; 1] = ["google.protobuf.NullValue"];

/// The module of the library that has a type of this name and shape.
pub(super) fn module(full_name: &str, origin: &TypeOrigin) -> Option<&'static str> {
    let has = match origin.is_enum {
        true => ENUMS.contains(&full_name),
        false => MESSAGES.contains(&(full_name, origin.fingerprint)),
    };
    let (_, module) = MODULES.iter().find(|(package, _)| *package == origin.package)?;
    has.then_some(module)
}
