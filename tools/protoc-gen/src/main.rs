//! The pipes of `protoc-gen-trunkline`.
#![forbid(unsafe_code)]

use std::io::{Read, Write, stdin, stdout};
use std::process::ExitCode;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("protoc-gen-trunkline: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let mut request = Vec::new();
    stdin().lock().read_to_end(&mut request)?;
    let response = trunkline_protoc_gen::respond(&request)?;
    Ok(stdout().lock().write_all(&response)?)
}
