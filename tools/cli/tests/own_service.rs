//! Shows that the page about a service of one's own holds: its files, in a crate outside this workspace, build without
//! a warning, call with 200 MiB, and end without loss at SIGTERM.

mod support;

use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use support::Host;

const PAGE: &str = include_str!("../../../docs/own-service.md");
/// Where the page has this repository.
const BESIDE: &str = "../trunkline/";
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../");

/// Writes the page's files.
fn write_crate(folder: &Path) {
    let mut count = 0;
    for block in PAGE.split("\n```").skip(1).step_by(2) {
        let Some((_, file)) = block.split_once('\n').and_then(|(first, _)| first.split_once(",file=")) else {
            continue;
        };
        let (_, text) = block.split_once('\n').unwrap();
        let path = folder.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text.replace(BESIDE, ROOT) + "\n").unwrap();
        count += 1;
    }
    assert_eq!(count, 6, "files of the page");
    // The versions that are on this machine already.
    std::fs::copy(Path::new(ROOT).join("Cargo.lock"), folder.join("Cargo.lock")).unwrap();
}

/// Builds it, and says where its programs are.
fn build(folder: &Path) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("own-service");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--offline", "--quiet"]).current_dir(folder).env("CARGO_TARGET_DIR", &target);
    // Nobody looks at it with a debugger, and it is a quarter of the work.
    cargo.env("CARGO_PROFILE_DEV_DEBUG", "0").env("CARGO_INCREMENTAL", "0");
    let built = cargo.output().unwrap();
    let said = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success() && said.is_empty(), "{said}");
    target.join("debug")
}

fn start(programs: &Path, name: &str, arguments: &[&str], host: &Host) -> Child {
    let mut command = Command::new(programs.join(name));
    command.args(arguments).env("TRUNKLINE_SOCKET", host.socket()).stdout(Stdio::piped());
    command.spawn().unwrap()
}

/// The lines the page shows below a command.
fn shown(command: &str) -> String {
    let (_, rest) = PAGE.split_once(&format!("$ {command}\n")).unwrap();
    rest.split("```").next().unwrap().to_owned()
}

#[test]
fn the_page_about_a_service_of_ones_own_holds() {
    let folder = tempfile::tempdir().unwrap();
    write_crate(folder.path());
    let programs = build(folder.path());

    let host = Host::start("");
    let mut server = start(&programs, "server", &[], &host);
    let mut says = BufReader::new(server.stdout.take().unwrap()).lines().map_while(Result::ok);
    let client = start(&programs, "client", &[], &host).wait_with_output().unwrap();
    let said = String::from_utf8(client.stdout).unwrap();
    // Only how long ago it was depends on the machine.
    let (before, _) = said.split_once(", written ").expect(&said);
    let (_, after) = said.split_once(" s ago").unwrap();
    assert_eq!(format!("{before}, written 0 s ago{after}"), shown("cargo run --bin client"));

    let waiting = start(&programs, "client", &["wait"], &host);
    assert_eq!(says.next().as_deref(), Some("waiting"));
    kill_process(Pid::from_raw(server.id().cast_signed()).unwrap(), Signal::TERM).unwrap();
    let answered = waiting.wait_with_output().unwrap();
    let ended: String = says.map(|line| line + "\n").collect();
    assert!(server.wait().unwrap().success());
    assert_eq!(String::from_utf8(answered.stdout).unwrap() + &ended, shown("kill -TERM %2"));
}
