//! One request, one response.

use prost::{DecodeError, Message as _};
use trunkline_codegen::{
    generate, generate_cpp, generate_cpp_grpc, generate_cpp_linear, generate_python, module_tree,
};

use crate::parameters::{Parameters, TargetLanguage};
use crate::protocol::{
    DeclaredFile, EDITION_2023, EDITION_PROTO2, File, FileSet, PROTO3_OPTIONAL, Request, Response,
    SUPPORTS_EDITIONS,
};

/// Answers an encoded `CodeGeneratorRequest` with an encoded `CodeGeneratorResponse`.
///
/// # Errors
/// [`DecodeError`] if the bytes are not a request. Everything else that can be wrong is said in the response.
pub fn respond(request: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let request = Request::decode(request)?;
    let (file, error) = match generated(request) {
        Ok(files) => (files, None),
        Err(error) => (Vec::new(), Some(error)),
    };
    let response = Response {
        error,
        supported_features: Some(PROTO3_OPTIONAL | SUPPORTS_EDITIONS),
        minimum_edition: Some(EDITION_PROTO2),
        maximum_edition: Some(EDITION_2023),
        file,
    };
    Ok(response.encode_to_vec())
}

fn generated(request: Request) -> Result<Vec<File>, String> {
    let parameters = Parameters::read(&request.parameter)?;
    if request.file_to_generate.is_empty() {
        return Ok(Vec::new());
    }
    check_packages(&request, &parameters)?;
    let set = FileSet { file: request.proto_file }.encode_to_vec();
    let file = |(name, text)| File { name: Some(name), content: Some(text) };
    if parameters.language == TargetLanguage::Python {
        let modules = generate_python(&set, &request.file_to_generate).map_err(|error| error.to_string())?;
        return Ok(modules.into_iter().map(|module| file((module.name, module.text))).collect());
    }
    if parameters.language == TargetLanguage::Cpp {
        let made = match (parameters.is_linear, parameters.is_grpc) {
            (true, _) => generate_cpp_linear,
            (false, true) => generate_cpp_grpc,
            (false, false) => generate_cpp,
        };
        let headers = made(&set, &request.file_to_generate).map_err(|error| error.to_string())?;
        return Ok(headers.into_iter().map(|header| file((header.name, header.text))).collect());
    }
    let files = generate(&set, &request.file_to_generate, &parameters.options).map_err(|e| e.to_string())?;
    let tree = parameters.include_file.map(|name| (name, module_tree(&files)));
    if let Some((name, _)) = tree.as_ref().filter(|(name, _)| files.iter().any(|file| file.name == *name)) {
        return Err(format!("parameter \"include_file={name}\": a package's code is in a file of this name"));
    }
    let named = files.into_iter().map(|file| (file.name, file.text)).chain(tree);
    Ok(named.map(file).collect())
}

/// Packages whose types the library has itself: some of their files may be asked for without the others.
const KNOWN_PACKAGES: [&str; 2] = ["google.protobuf", "google.rpc"];

/// The code of a package is one file: a run for a part of it would lack the rest, and replace what the run for that
/// wrote. What is not imported is not seen here.
fn check_packages(request: &Request, parameters: &Parameters) -> Result<(), String> {
    let has_messages = parameters.language != TargetLanguage::Cpp || parameters.is_linear;
    if !has_messages && parameters.is_grpc {
        // One file for each, as gRPC's own plugin.
        return Ok(());
    }
    // What is malformed is said by who reads all of it.
    let files = request.proto_file.iter().filter_map(|file| DeclaredFile::decode(file.as_slice()).ok());
    let (asked, others): (Vec<_>, Vec<_>) =
        files.partition(|file| request.file_to_generate.contains(&file.name));
    let has_code = |file: &&DeclaredFile| {
        !file.services.is_empty() || has_messages && !(file.messages.is_empty() && file.enums.is_empty())
    };
    let apart = others.iter().filter(has_code).find_map(|other| {
        let one = asked.iter().find(|file| file.package == other.package)?;
        (!KNOWN_PACKAGES.contains(&other.package.as_str())).then_some((one, other))
    });
    let Some((one, other)) = apart else { return Ok(()) };
    Err(format!(
        "{:?} and {:?} are of one package, whose code is one file: name all files of a package in one run",
        one.name, other.name
    ))
}
