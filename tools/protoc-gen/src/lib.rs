//! `protoc-gen-trunkline`: the generator as a plugin of protoc and buf.
//!
//! ```text
//! protoc --trunkline_out=src/gen --trunkline_opt=include_file=mod.rs proto/greeter.proto
//! ```
//!
//! protoc parses the `.proto` files and writes a `CodeGeneratorRequest` to the plugin's standard input; the plugin
//! answers with a `CodeGeneratorResponse`. [`respond`] is that function, bytes to bytes; the binary adds the pipes.
//! What the code looks like is `tools/codegen`'s business: a build script and protoc get the same.
//!
//! # Parameters
//! Separated by commas, as in `--trunkline_opt=client=false,extern_path=.a.b=::crate_b`:
//! * `lang=cpp`: C++ clients and services over `trunkline.hpp`, one header per package; `lang=python`: messages, stubs
//!   and services over `trunkline.linear`, one module per package. The others are Rust's, but the next two.
//! * `surface=grpc`: in C++, gRPC C++'s own surface instead, as `x.grpc.pb.h` and `x.grpc.pb.cc` (`grpcpp/grpcpp.h`).
//! * `messages=linear`: in C++, messages are classes over linear messages (`trunkline_linear.hpp`), not protobuf's.
//! * `extern_path=.proto.path=::rust::path`: declared elsewhere, not generated.
//! * `include_file=NAME`: one more file that includes all others as nested modules.
//! * `btree_maps`: maps are `BTreeMap`.
//! * `client=false`, `server=false`: no stubs of that side.
//! * `shared_types=false`: protobuf's well-known types and `google.rpc`'s are generated, not the library's.
//! * `runtime=PATH`: where generated code finds the library, instead of `::trunkline::codegen`.
//!
//! # Invariants
//! * Descriptors are passed on as the bytes they came in, so that nothing a newer protoc puts into them is lost.
//! * What is wrong with files or parameters is said in the response, where protoc shows it; only a request that is none
//!   ends the plugin with an error of its own (plugin.proto, `CodeGeneratorResponse.error`).
//! * proto2, proto3 and edition 2023 are supported, `optional` in proto3 included.
#![forbid(unsafe_code)]

mod parameters;
mod plugin;
mod protocol;

pub use plugin::respond;
