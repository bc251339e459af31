//! What protoc and its plugins say to each other (google/protobuf/compiler/plugin.proto).

/// `CodeGeneratorRequest`, with the descriptors left as they came.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Request {
    #[prost(string, repeated, tag = "1")]
    pub(crate) file_to_generate: Vec<String>,
    #[prost(string, tag = "2")]
    pub(crate) parameter: String,
    /// Encoded `FileDescriptorProto`s, imports first.
    #[prost(bytes = "vec", repeated, tag = "15")]
    pub(crate) proto_file: Vec<Vec<u8>>,
}

/// What of a `FileDescriptorProto` tells whose code it is in.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct DeclaredFile {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) package: String,
    #[prost(bytes = "vec", repeated, tag = "4")]
    pub(crate) messages: Vec<Vec<u8>>,
    #[prost(bytes = "vec", repeated, tag = "5")]
    pub(crate) enums: Vec<Vec<u8>>,
    #[prost(bytes = "vec", repeated, tag = "6")]
    pub(crate) services: Vec<Vec<u8>>,
}

/// `CodeGeneratorResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Response {
    #[prost(string, optional, tag = "1")]
    pub(crate) error: Option<String>,
    #[prost(uint64, optional, tag = "2")]
    pub(crate) supported_features: Option<u64>,
    #[prost(int32, optional, tag = "3")]
    pub(crate) minimum_edition: Option<i32>,
    #[prost(int32, optional, tag = "4")]
    pub(crate) maximum_edition: Option<i32>,
    #[prost(message, repeated, tag = "15")]
    pub(crate) file: Vec<File>,
}

/// `CodeGeneratorResponse.File`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct File {
    #[prost(string, optional, tag = "1")]
    pub(crate) name: Option<String>,
    #[prost(string, optional, tag = "15")]
    pub(crate) content: Option<String>,
}

/// `FEATURE_PROTO3_OPTIONAL`.
pub(crate) const PROTO3_OPTIONAL: u64 = 1;
/// `FEATURE_SUPPORTS_EDITIONS`.
pub(crate) const SUPPORTS_EDITIONS: u64 = 2;
/// `EDITION_PROTO2`: the syntaxes before editions count as editions of their own.
pub(crate) const EDITION_PROTO2: i32 = 998;
/// `EDITION_2023`.
pub(crate) const EDITION_2023: i32 = 1000;

/// `FileDescriptorSet`, of files left as they came.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct FileSet {
    #[prost(bytes = "vec", repeated, tag = "1")]
    pub(crate) file: Vec<Vec<u8>>,
}
