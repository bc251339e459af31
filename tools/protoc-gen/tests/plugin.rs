//! Shows what the plugin answers: code that is the build script's, errors in their place, and what it supports.

use std::io::Write as _;
use std::process::{Command, Stdio};

use prost::Message as _;
use prost_types::compiler::{CodeGeneratorRequest, CodeGeneratorResponse};
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet};
use trunkline_codegen::{Options, generate};
use trunkline_protoc_gen::respond;

const GREETER: &str = r#"
    syntax = "proto3";
    package greeter.v1;
    import "google/protobuf/timestamp.proto";
    message HelloRequest { optional string name = 1; google.protobuf.Timestamp at = 2; }
    service Greeter { rpc SayHello(HelloRequest) returns (HelloRequest); }
"#;

fn descriptor_set() -> Vec<u8> {
    trunkline_schema::compile_proto_source("greeter.proto", GREETER).unwrap()
}

fn request(parameter: &str) -> CodeGeneratorRequest {
    CodeGeneratorRequest {
        file_to_generate: vec!["greeter.proto".to_owned()],
        parameter: Some(parameter.to_owned()),
        proto_file: FileDescriptorSet::decode(descriptor_set().as_slice()).unwrap().file,
        compiler_version: None,
    }
}

fn answer(request: &CodeGeneratorRequest) -> CodeGeneratorResponse {
    CodeGeneratorResponse::decode(respond(&request.encode_to_vec()).unwrap().as_slice()).unwrap()
}

#[test]
fn the_code_is_that_of_a_build_script() {
    let expected = generate(&descriptor_set(), &["greeter.proto".to_owned()], &Options::default()).unwrap();
    let answered = answer(&request(""));
    assert_eq!(answered.error, None);
    let answered: Vec<_> =
        answered.file.iter().map(|f| (f.name().to_owned(), f.content().to_owned())).collect();
    assert_eq!(answered, expected.into_iter().map(|f| (f.name, f.text)).collect::<Vec<_>>());
    assert_eq!(answered.len(), 1, "imports are generated only when asked for");
}

#[test]
fn parameters_are_obeyed() {
    let with = |parameter: &str| answer(&request(parameter)).file;
    let files = with("include_file=mod.rs,client=false");
    assert_eq!(files.iter().map(|f| f.name()).collect::<Vec<_>>(), ["greeter.v1.rs", "mod.rs"]);
    assert!(files[1].content().contains("include!(\"greeter.v1.rs\");"));
    assert!(!files[0].content().contains("GreeterClient") && files[0].content().contains("GreeterServer"));
    let files = with("extern_path=.google.protobuf=::known,runtime=crate::rt_of_mine");
    assert!(files[0].content().contains("pub at: ::core::option::Option<::known::Timestamp>"));
    assert!(files[0].content().contains("crate::rt_of_mine"));
}

#[test]
fn cpp_is_another_language() {
    let files = answer(&request("lang=cpp")).file;
    assert_eq!(files.iter().map(|f| f.name()).collect::<Vec<_>>(), ["greeter.v1.trunkline.hpp"]);
    assert!(files[0].content().contains("class GreeterClient {"));
    assert!(files[0].content().contains("#include \"greeter.pb.h\""));
}

#[test]
fn cpp_has_messages_of_its_own_if_asked_for() {
    let files = answer(&request("lang=cpp,messages=linear")).file;
    assert_eq!(files.iter().map(|f| f.name()).collect::<Vec<_>>(), ["greeter.v1.linear.hpp"]);
    let text = files[0].content();
    assert!(
        text.contains("class HelloRequest :")
            && text.contains("class GreeterClient {")
            && !text.contains(".pb.h")
    );
}

#[test]
fn python_is_another_language() {
    let files = answer(&request("lang=python")).file;
    assert_eq!(files.iter().map(|f| f.name()).collect::<Vec<_>>(), ["greeter/v1_linear.py"]);
    let text = files[0].content();
    for part in [
        "class HelloRequest(",
        "class GreeterStub:",
        "def add_GreeterServicer_to_server(servicer, server):",
        "_tl_package.module(\"google.protobuf_linear\").Timestamp",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

#[test]
fn cpp_has_the_surface_of_grpc_if_asked_for() {
    let files = answer(&request("lang=cpp,surface=grpc")).file;
    assert_eq!(
        files.iter().map(|f| f.name()).collect::<Vec<_>>(),
        ["greeter.grpc.pb.h", "greeter.grpc.pb.cc"]
    );
    assert!(files[0].content().contains("class Greeter final {"));
    assert!(files[1].content().contains("#include \"greeter.grpc.pb.h\""));
}

#[test]
fn features_and_editions_are_declared() {
    let response = respond(&request("").encode_to_vec()).unwrap();
    let typed = CodeGeneratorResponse::decode(response.as_slice()).unwrap();
    assert_eq!(typed.supported_features, Some(1 | 2));
    // Fields 3 and 4, which the typed response does not know: editions from proto2 (998) to 2023 (1000).
    for field in [&[3 << 3, 0xe6, 0x07][..], &[4 << 3, 0xe8, 0x07]] {
        assert!(response.windows(3).any(|bytes| bytes == field));
    }
}

#[test]
fn mistakes_are_said_in_the_response() {
    let mut missing = request("");
    missing.file_to_generate = vec!["other.proto".to_owned()];
    let mut broken = request("");
    broken.proto_file[1].message_type[0].field[1].type_name = Some(".nowhere.Type".to_owned());
    for (request, expected) in [
        (request("colour=red"), "colour=red"),
        (missing, "other.proto"),
        (broken, "greeter.v1.HelloRequest.at"),
    ] {
        let answer = answer(&request);
        assert!(answer.error().contains(expected), "{:?}", answer.error);
        assert!(answer.file.is_empty());
    }
}

#[test]
fn a_part_of_a_package_is_refused_where_the_package_is_one_file() {
    let file = |name: &str, package: &str, imports: &[&str], messages: &[&str]| FileDescriptorProto {
        name: Some(name.to_owned()),
        package: Some(package.to_owned()),
        dependency: imports.iter().map(|name| (*name).to_owned()).collect(),
        message_type: messages
            .iter()
            .map(|name| DescriptorProto { name: Some((*name).to_owned()), ..Default::default() })
            .collect(),
        syntax: Some("proto3".to_owned()),
        ..Default::default()
    };
    let proto_file = vec![
        file("options.proto", "shop.v1", &[], &[]),
        file("money.proto", "common", &[], &["Money"]),
        file("price.proto", "shop.v1", &["money.proto"], &["Price"]),
        file("shop.proto", "shop.v1", &["price.proto", "options.proto"], &["Shop"]),
    ];
    let answered = |parameter: &str, files: &[&str]| {
        answer(&CodeGeneratorRequest {
            file_to_generate: files.iter().map(|name| (*name).to_owned()).collect(),
            parameter: Some(parameter.to_owned()),
            proto_file: proto_file.clone(),
            compiler_version: None,
        })
    };
    for parameter in ["", "lang=python", "lang=cpp,messages=linear"] {
        let refused = answered(parameter, &["shop.proto"]);
        assert!(refused.error().starts_with("\"shop.proto\" and \"price.proto\""), "{:?}", refused.error);
        assert!(refused.file.is_empty());
        let whole = answered(parameter, &["price.proto", "shop.proto"]);
        assert_eq!((whole.error.as_deref(), whole.file.len()), (None, 1), "{parameter}");
    }
    // Messages are protoc's there.
    for parameter in ["lang=cpp", "lang=cpp,surface=grpc"] {
        assert_eq!(answered(parameter, &["shop.proto"]).error, None);
    }
}

#[test]
fn what_is_no_request_is_refused() {
    assert!(respond(b"\x0a\xff").is_err());
    assert_eq!(answer(&CodeGeneratorRequest::default()).error, None);
}

/// The answer to a request with one more file, which ends with bytes the typed descriptor does not know.
fn answer_with(file: &FileDescriptorProto, unknown: &[u8]) -> CodeGeneratorResponse {
    let mut request = Request { file_to_generate: vec![file.name().to_owned()], proto_file: Vec::new() };
    request.proto_file.push([file.encode_to_vec(), unknown.to_vec()].concat());
    CodeGeneratorResponse::decode(respond(&request.encode_to_vec()).unwrap().as_slice()).unwrap()
}

#[derive(Clone, PartialEq, prost::Message)]
struct Request {
    #[prost(string, repeated, tag = "1")]
    file_to_generate: Vec<String>,
    #[prost(bytes = "vec", repeated, tag = "15")]
    proto_file: Vec<Vec<u8>>,
}

#[test]
fn unknown_parts_of_descriptors_are_embedded() {
    let file = FileDescriptorProto { name: Some("new.proto".to_owned()), ..Default::default() };
    let answer = answer_with(&file, b"\xfa\x7f\x04news");
    assert_eq!(answer.file[0].name(), "_.rs");
    assert!(answer.file[0].content().contains("\\xfa\\x7f\\x04news"));
}

#[test]
fn edition_2023_has_presence_unless_told_otherwise() {
    let number = FieldDescriptorProto {
        name: Some("number".to_owned()),
        number: Some(1),
        label: Some(Label::Optional as i32),
        r#type: Some(Type::Int32 as i32),
        ..Default::default()
    };
    let file = FileDescriptorProto {
        name: Some("edition.proto".to_owned()),
        syntax: Some("editions".to_owned()),
        message_type: vec![DescriptorProto {
            name: Some("Modern".to_owned()),
            field: vec![number],
            ..Default::default()
        }],
        ..Default::default()
    };
    // FileDescriptorProto.edition, field 14.
    let answer = answer_with(&file, &[14 << 3, 0xe8, 0x07]);
    assert_eq!(answer.error, None);
    assert!(answer.file[0].content().contains("pub number: ::core::option::Option<i32>,"));
}

#[test]
fn the_binary_speaks_through_its_pipes() {
    let mut plugin = Command::new(env!("CARGO_BIN_EXE_protoc-gen-trunkline"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    plugin.stdin.take().unwrap().write_all(&request("").encode_to_vec()).unwrap();
    let output = plugin.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(CodeGeneratorResponse::decode(output.stdout.as_slice()).unwrap(), answer(&request("")));
}

/// A person who runs it reads what it is, and not an answer for protoc.
#[test]
fn the_binary_says_what_it_is() {
    let run = |arguments: &[&str]| {
        let mut plugin = Command::new(env!("CARGO_BIN_EXE_protoc-gen-trunkline"));
        let output = plugin.args(arguments).stdin(Stdio::null()).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, help, _) = run(&["--help"]);
    assert!(code == Some(0) && help.starts_with("protoc-gen-trunkline: "), "{help}");
    for parameter in
        ["lang", "messages", "surface", "extern_path", "include_file", "btree_maps", "client", "server"]
    {
        assert!(help.contains(parameter), "{parameter}: {help}");
    }
    assert!(help.contains("shared_types") && help.contains("runtime"), "{help}");
    let version = format!("protoc-gen-trunkline {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(run(&["--version"]), (Some(0), version, String::new()));
    for wrong in [&["--halp"][..], &[]] {
        let (code, out, err) = run(wrong);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{err}");
        assert!(err.contains("write protoc --trunkline_out=FOLDER FILE.proto"), "{err}");
    }
}

/// With protoc where it is installed; where it is not, the test above has shown the same through the pipes.
#[test]
fn protoc_takes_the_answer() {
    if Command::new("protoc").arg("--version").stdout(Stdio::null()).status().is_err() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("greeter.proto"), GREETER).unwrap();
    let status = Command::new("protoc")
        .arg(concat!("--plugin=", env!("CARGO_BIN_EXE_protoc-gen-trunkline")))
        .args(["--trunkline_out=.", "--trunkline_opt=include_file=mod.rs", "greeter.proto"])
        .current_dir(dir.path())
        .status()
        .unwrap();
    assert!(status.success());
    let code = std::fs::read_to_string(dir.path().join("greeter.v1.rs")).unwrap();
    assert!(code.contains("pub struct HelloRequest {"));
    assert!(dir.path().join("mod.rs").exists());
}
