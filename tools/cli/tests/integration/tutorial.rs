//! Shows that the tutorial's commands do what its page says, in its order, against one daemon.

use crate::support;

use std::path::Path;
use std::process::Command;
use support::{Host, watched};
use trunkline::{Server, Wait};
use trunkline_example_greeter::MyGreeter;
use trunkline_example_greeter::proto::greeter_server::GreeterServer;

const PAGE: &str = include_str!("../../../../docs/tutorial.md");

/// A block of the page: its language line, and its text.
fn blocks() -> Vec<(&'static str, &'static str)> {
    let fences = PAGE.split("\n```").skip(1).step_by(2);
    fences.map(|block| block.split_once('\n').unwrap_or((block, ""))).collect()
}

/// A command, the exit code it is to have, and what is shown below it.
fn commands(block: &str) -> Vec<(&str, i32, String)> {
    let mut found: Vec<(&str, i32, String)> = Vec::new();
    for line in block.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            let (command, code) = command.split_once("   # exit ").unwrap_or((command, "0"));
            found.push((command, code.parse().unwrap(), String::new()));
        } else if let Some((_, _, shown)) = found.last_mut() {
            *shown += line;
            shown.push('\n');
        }
    }
    found
}

fn shell(command: &str, folder: &Path, socket: &Path) -> std::process::Output {
    let program = Path::new(env!("CARGO_BIN_EXE_trunkline")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap_or_default());
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).current_dir(folder).env("PATH", path).env("TRUNKLINE_SOCKET", socket);
    shell.output().unwrap()
}

#[test]
fn the_tutorial_works() {
    watched();
    let host = Host::start("");
    let folder = tempfile::tempdir().unwrap();
    let mut server = None;
    let mut ran = 0;
    for (language, block) in blocks() {
        if let Some((_, file)) = language.split_once(",file=") {
            std::fs::write(folder.path().join(file), block).unwrap();
            continue;
        }
        assert_eq!(language, "console", "every other block is commands");
        for (command, code, shown) in commands(block) {
            match command {
                // The host is there already, at a socket of its own, and the greeter is served from here.
                _ if command.starts_with("trunkline daemon ") || command.starts_with("export ") => {}
                "cargo run -p trunkline-example-greeter --bin greeter-server &" => {
                    let builder = Server::builder().name("greeter").socket(host.socket());
                    let greeter = builder.add_service(GreeterServer::new(MyGreeter)).spawn().unwrap();
                    greeter.ready().wait().unwrap();
                    server = Some(greeter);
                }
                _ => {
                    let output = shell(command, folder.path(), &host.socket());
                    let said = String::from_utf8_lossy(&output.stdout);
                    let why = format!("{command}\n{said}{}", String::from_utf8_lossy(&output.stderr));
                    assert_eq!(output.status.code(), Some(code), "{why}");
                    assert!(said.contains(&shown), "{why}\nwhere the page has\n{shown}");
                    ran += 1;
                }
            }
        }
    }
    assert!(server.is_some() && ran > 12, "{ran} commands ran");
}
