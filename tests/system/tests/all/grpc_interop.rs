//! Shows gRPC's own C++ interop client and server compiled unchanged against our headers, ours as the other end of
//! gRPC's and of ours, through a daemon. Runs where `TRUNKLINE_GRPC_SOURCES` names a tree of gRPC 1.51's sources (as
//! `apt-get source grpc` lays out); the stock pairs where gRPC C++ is installed, too.
//!
//! In place of gRPC's core and of its test utilities stand the files below `bindings/cpp/tests/interop`.

use crate::support::c_programs::{Prefix, Surface, ended_well, flags_of, root};
use crate::support::{Host, until};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// All that the client has but those that need Google's credentials.
const CASES: [&str; 24] = [
    "empty_unary",
    "large_unary",
    "client_streaming",
    "server_streaming",
    "slow_consumer",
    "ping_pong",
    "half_duplex",
    "empty_stream",
    "cancel_after_begin",
    "cancel_after_first_response",
    "timeout_on_sleeping_server",
    "status_code_and_message",
    "special_status_message",
    "custom_metadata",
    "pick_first_unary",
    "unimplemented_method",
    "unimplemented_service",
    "client_compressed_unary",
    "server_compressed_unary",
    "client_compressed_streaming",
    "server_compressed_streaming",
    "rpc_soak",
    "channel_soak",
    "long_lived_channel",
];
const NONE: [&str; 0] = [];
/// On one host nothing is compressed; and a service that nobody serves is UNAVAILABLE: a server may come.
const OURS_TO_OURS: [&str; 5] = [
    "unimplemented_service",
    "client_compressed_unary",
    "server_compressed_unary",
    "client_compressed_streaming",
    "server_compressed_streaming",
];

const PROTOS: [&str; 3] = ["empty", "messages", "test"];
const PROTO_FOLDER: &str = "src/proto/grpc/testing";
const CLIENT: [&str; 4] = [
    "test/cpp/interop/client.cc",
    "test/cpp/interop/interop_client.cc",
    "test/cpp/interop/client_helper.cc",
    "test/core/util/histogram.cc",
];
const SERVER: [&str; 3] = [
    "test/cpp/interop/interop_server.cc",
    "test/cpp/interop/interop_server_bootstrap.cc",
    "test/cpp/interop/server_helper.cc",
];
const ABSEIL: [&str; 5] =
    ["absl_flags", "absl_flags_parse", "absl_strings", "absl_str_format", "absl_synchronization"];

/// Client and server of one surface.
struct Programs {
    client: PathBuf,
    server: PathBuf,
}

/// A server. Killed when dropped.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn grpcs_own_interop_programs_call_and_serve_through_the_daemon() {
    let Some(sources) = std::env::var_os("TRUNKLINE_GRPC_SOURCES").map(PathBuf::from) else {
        eprintln!("skipped: gRPC's interop programs: TRUNKLINE_GRPC_SOURCES names no sources");
        return;
    };
    let prefix = Prefix::new();
    let ours = compiled(&prefix, &sources, Surface::Trunkline).expect("c++, protoc, protobuf and Abseil");
    let host = Host::over_tcp();
    let socket = host.socket();
    let _server = serving(&socket, &ours, 50051);
    until("the server of ours answers", || {
        passes(&socket, &ours, "empty_unary", &["--server_host=localhost", "--server_port=50051"])
            .then_some(())
    });
    let local = ["--server_host=localhost", "--server_port=50051"];
    let pair = |programs: &Programs, arguments: &[&str], differ: &[&str]| {
        for case in CASES {
            let has_passed = passes(&socket, programs, case, arguments);
            assert_eq!(has_passed, !differ.contains(&case), "{case} of {arguments:?}");
        }
    };
    let Some(stock) = compiled(&prefix, &sources, Surface::Stock) else {
        return pair(&ours, &local, &OURS_TO_OURS);
    };
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let _stock_server = serving(&socket, &stock, port);
    until("the stock server listens", || TcpStream::connect(("127.0.0.1", port)).ok());
    let address = format!("--server_host=ipv4:127.0.0.1:{port}");
    let daemon = format!("--server_host={}", host.endpoint().trim_start_matches("tcp://"));
    std::thread::scope(|scope| {
        scope.spawn(|| pair(&ours, &local, &OURS_TO_OURS));
        scope.spawn(|| pair(&ours, &[&address], &NONE));
        scope.spawn(|| pair(&stock, &[&daemon], &NONE));
    });
}

/// Compiles both programs. `None`, and a line that says what is missing, where the machine has no tools for it.
fn compiled(prefix: &Prefix, sources: &Path, surface: Surface) -> Option<Programs> {
    let mut libraries = flags_of(surface)?;
    libraries.extend(Command::new("pkg-config").arg("--libs").args(ABSEIL).output().ok().map(words)?);
    let generated = prefix.path().join(format!("interop-{surface:?}"));
    std::fs::create_dir_all(&generated).unwrap();
    let protos = PROTOS.map(|name| format!("{PROTO_FOLDER}/{name}.proto"));
    prefix.generate_from(surface, sources, &protos, &generated);
    let stand_ins = root().join("bindings/cpp/tests/interop");
    let program = |name: &str, files: &[&str]| {
        let program = generated.join(name);
        let mut cc = Command::new("c++");
        cc.args(["-std=c++17", "-I"]).arg(&generated);
        if surface == Surface::Trunkline {
            for folder in [stand_ins.join("core"), prefix.path().join("include/trunkline")] {
                cc.arg("-I").arg(folder);
            }
            cc.arg("-I").arg(prefix.path().join("include"));
        }
        cc.arg("-I").arg(stand_ins.join("util")).arg("-I").arg(sources);
        cc.args(files.iter().map(|file| sources.join(file)));
        cc.args([stand_ins.join("util/utilities.cc"), sources.join("test/cpp/util/test_config_cc.cc")]);
        for name in PROTOS {
            for end in ["pb.cc", "grpc.pb.cc"] {
                cc.arg(generated.join(format!("{PROTO_FOLDER}/{name}.{end}")));
            }
        }
        if surface == Surface::Trunkline {
            cc.arg("-L").arg(prefix.path().join("lib")).arg("-ltrunkline");
            cc.arg(format!("-Wl,-rpath,{}", prefix.path().join("lib").display()));
        }
        cc.args(&libraries).args(["-lpthread", "-o"]).arg(&program);
        ended_well(name, cc.output().unwrap());
        program
    };
    Some(Programs { client: program("client", &CLIENT), server: program("server", &SERVER) })
}

fn words(output: std::process::Output) -> Vec<String> {
    String::from_utf8_lossy(&output.stdout).split_whitespace().map(str::to_owned).collect()
}

fn on_host(socket: &Path, program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("TRUNKLINE_SOCKET", socket).env("TRUNKLINE_EMBEDDED", "0");
    command.env("GRPC_VERBOSITY", "DEBUG").stdin(Stdio::null()).stdout(Stdio::null());
    command
}

fn serving(socket: &Path, programs: &Programs, port: u16) -> Serving {
    let mut command = on_host(socket, &programs.server);
    Serving(command.arg(format!("--port={port}")).stderr(Stdio::null()).spawn().unwrap())
}

/// Whether a case passes: the client ends well, and has not left the case out for want of a server that looks.
fn passes(socket: &Path, programs: &Programs, case: &str, arguments: &[&str]) -> bool {
    let iterations = if case == "long_lived_channel" { 2 } else { 20 };
    let mut command = on_host(socket, &programs.client);
    command.args(arguments).arg(format!("--test_case={case}"));
    command.arg(format!("--soak_iterations={iterations}")).arg("--iteration_interval=1");
    // As long as it takes: this is not about time.
    command.args([
        "--soak_overall_timeout_seconds=600",
        "--soak_per_iteration_max_acceptable_latency_ms=600000",
    ]);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut told = child.stderr.take().unwrap();
    let heard = std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = std::io::Read::read_to_end(&mut told, &mut text);
        String::from_utf8_lossy(&text).into_owned()
    });
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let heard = heard.join().unwrap();
    status.success() && !heard.contains("probe failed")
}
