//! The pipes of `protoc-gen-trunkline`, and what it says to a person who runs it.
#![forbid(unsafe_code)]

use std::io::{ErrorKind, IsTerminal, Read, Write, stdin, stdout};
use std::process::ExitCode;

/// What it is, and how it is used.
const HELP: &str = "\
protoc-gen-trunkline: the generator of Trunkline's code, as a plugin of protoc and buf. They start it, write a
CodeGeneratorRequest to its standard input, and take the answer from its standard output.

Usage:
  protoc --trunkline_out=FOLDER [--trunkline_opt=PARAMETER[,PARAMETER ...]] FILE.proto ...

Parameters:
  lang=cpp             C++ clients and services over trunkline.hpp, one header per package
  lang=python          messages, stubs and services over trunkline.linear, one module per package
  surface=grpc         in C++, gRPC C++'s own surface: x.grpc.pb.h and x.grpc.pb.cc
  messages=linear      in C++, messages are classes over linear messages, not protobuf's

  extern_path=.proto.path=::rust::path
                       declared elsewhere, not generated
  include_file=NAME    one more file that includes all others as nested modules
  btree_maps           maps are BTreeMap
  client=false, server=false
                       no stubs of that side
  shared_types=false   protobuf's well-known types and google.rpc's are generated, not the library's
  runtime=PATH         where generated code finds the library, instead of ::trunkline::codegen

Without lang the code is Rust; extern_path and those below it are Rust's alone.

Options:
  -h, --help           print this
  -V, --version        print the version
";
/// Exit code of a command line that is wrong.
const EXIT_MISUSED: u8 = 2;
/// What is wrong where nothing is asked.
const ALONE: &str = "it is a plugin, which protoc and buf start, and got no request";

fn main() -> ExitCode {
    let said = match std::env::args_os().nth(1) {
        Some(argument) if argument == "--help" || argument == "-h" => stdout().write_all(HELP.as_bytes()),
        Some(argument) if argument == "--version" || argument == "-V" => {
            writeln!(stdout(), "protoc-gen-trunkline {}", env!("CARGO_PKG_VERSION"))
        }
        Some(argument) => return misused(&format!("it has no option {argument:?}")),
        None if stdin().is_terminal() => return misused(ALONE),
        None => return answer(),
    };
    match said {
        // A reader that has seen enough is no failure.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => failed(&error),
        _ => ExitCode::SUCCESS,
    }
}

/// Answers the request at standard input.
fn answer() -> ExitCode {
    let mut request = Vec::new();
    if let Err(error) = stdin().lock().read_to_end(&mut request) {
        return failed(&error);
    }
    if request.is_empty() {
        return misused(ALONE);
    }
    let written =
        trunkline_protoc_gen::respond(&request).map(|response| stdout().lock().write_all(&response));
    match written {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => failed(&error),
        Err(error) => failed(&error),
    }
}

fn misused(problem: &str) -> ExitCode {
    eprintln!(
        "protoc-gen-trunkline: {problem}: write protoc --trunkline_out=FOLDER FILE.proto, or see --help"
    );
    ExitCode::from(EXIT_MISUSED)
}

fn failed(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("protoc-gen-trunkline: {error}");
    ExitCode::FAILURE
}
