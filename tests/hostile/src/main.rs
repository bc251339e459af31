//! An attacker, or a part of the system tests; see the library.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .init();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let played = match arguments.as_slice() {
        [part, at, rest @ ..] if part == "attacker" => {
            let word = |index: usize| rest.get(index).map_or("", |word| word);
            trunkline_hostile_tests::attacks::play(at.as_ref(), word(0), word(1))
        }
        _ => trunkline_system_tests::program::play(&arguments),
    };
    match played {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("hostile: {why}");
            ExitCode::FAILURE
        }
    }
}
