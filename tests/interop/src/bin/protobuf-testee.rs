//! The program protobuf's conformance runner runs: `protobuf-testee DESCRIPTOR_SET`.

use std::io;
use std::process::ExitCode;
use trunkline_interop::testee::{Testee, TesteeError};

fn main() -> ExitCode {
    let Some(path) = std::env::args_os().nth(1) else {
        eprintln!("usage: protobuf-testee DESCRIPTOR_SET");
        return ExitCode::from(2);
    };
    let set = std::fs::read(&path).map_err(TesteeError::from);
    let served =
        set.and_then(|set| Testee::new(&set)?.serve(&mut io::stdin().lock(), &mut io::stdout().lock()));
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("protobuf-testee: {error}");
            ExitCode::FAILURE
        }
    }
}
