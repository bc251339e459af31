//! Shows that `--check-config` refuses what a daemon that starts would refuse, in the same words: place, key, problem
//! and remedy.

use crate::support;

use std::path::Path;
use support::{Ended, end, trunkline, watched};

fn daemon(folder: &Path, more: &[&str]) -> Ended {
    let path = folder.join("d.toml");
    // A daemon that starts after all ends with its input.
    let mut command = trunkline(&["daemon", "--until-stdin-closes", "--drain", "0s", "--config"]);
    end(command.arg(path).args(more).env("XDG_RUNTIME_DIR", folder), "")
}

/// What is refused: a file, and the sentence about it. `FOLDER` is that of the test.
const TABLE: [(&str, &str); 19] = [
    (
        "[daemon]\nconnections_max = 10\nconnections_per_source_max = 11",
        ":3:30: daemon.connections_per_source_max: is 11, and daemon.connections_max is 10: one source never has so \
         many; write at most 10, or leave it out",
    ),
    (
        "[limits]\nmessage_bytes = \"1 GiB\"",
        ":2:17: limits.message_bytes: is 1 GiB, and limits.assembling_bytes_per_peer is 257 MiB, sessions.heap_bytes \
         is 512 MiB: the smallest one decides; write limits.assembling_bytes_per_peer = \"1 GiB\", sessions.heap_bytes \
         = \"1 GiB\", too, or at most 257 MiB here",
    ),
    (
        "[daemon]\nlisten = [\"tcp://127.0.0.1:0\", \"tcp://203.0.113.1:7878\"]",
        ":2:32: daemon.listen[1]: is 203.0.113.1:7878, where this host cannot listen: Cannot assign requested address \
         (os error 99); write an address of this host (`ip address` lists them), or 0.0.0.0 for all of them",
    ),
    (
        "[daemon]\nlisten = [\"tcp://127.0.0.1:7878\", \"tcp://127.0.0.1:7878\"]",
        ":2:35: daemon.listen[1]: is tcp://127.0.0.1:7878, as daemon.listen[0] is; write each address once",
    ),
    (
        "[daemon]\nlisten = [\"tcp://127.0.0.1:7878\"]\n[metrics]\nlisten = [\"tcp://0.0.0.0:7878\"]",
        ":4:11: metrics.listen[0]: is tcp://0.0.0.0:7878, and daemon.listen[0] is tcp://127.0.0.1:7878: one contains \
         the other; write another port for one of them",
    ),
    (
        "[gateway]\nlisten = [\"tcp://127.0.0.1:9464\"]\n[metrics]\nlisten = [\"tcp://127.0.0.1:9464\"]",
        ":4:11: metrics.listen[0]: is tcp://127.0.0.1:9464, as gateway.listen[0] is; write each address once",
    ),
    (
        "[daemon]\nsocket = \"FOLDER/a\"\n[admin]\nlisten = [\"unix:FOLDER/a\"]",
        ":4:11: admin.listen[0]: is unix://FOLDER/a, as daemon.socket is; write each address once",
    ),
    (
        "[daemon]\nsocket = \"FOLDER\"",
        ":2:10: daemon.socket: is FOLDER, which exists and is no socket; write another path, or move that file away",
    ),
    (
        "[daemon]\nsocket = \"FOLDER/file/a/d.sock\"",
        ":2:10: daemon.socket: is FOLDER/file/a/d.sock, and FOLDER/file is no folder; write a path in a folder",
    ),
    (
        "[daemon]\nlisten = [\"unix:FOLDER/file\"]",
        ":2:11: daemon.listen[0]: is FOLDER/file, which exists and is no socket; write another path, or move that \
         file away",
    ),
    (
        "[daemon]\nsocket = \"FOLDER/LONG\"",
        ":2:10: daemon.socket: is FOLDER/LONG, which is too long: the kernel takes 107 bytes; write a shorter path",
    ),
    (
        "[r2p2]\nlisten = \"203.0.113.1:8000\"",
        ":2:10: r2p2.listen: is 203.0.113.1:8000, where this host cannot listen: Cannot assign requested address (os \
         error 99); write an address of this host (`ip address` lists them), or 0.0.0.0 for all of them",
    ),
    (
        "[metrics]\nlisten = [\"tcp://203.0.113.1:9464\"]",
        ":2:11: metrics.listen[0]: is 203.0.113.1:9464, where this host cannot listen: Cannot assign requested",
    ),
    (
        "[log]\nlevel = \"trunkline_daemon=debug\"",
        ":2:9: log.level: is \"trunkline_daemon=debug\", and everything else would not be logged at all; write off, \
         error, warn, info, debug or trace, and more for single modules behind a comma: \
         \"info,trunkline_daemon=debug\"",
    ),
    (
        "[log]\nlevel = \"info,trunkline_deamon=debug\"",
        ":2:9: log.level: has \"trunkline_deamon=debug\", and there is no crate \"trunkline_deamon\" (there \
         is \"trunkline_daemon\"); write off, error, warn, info, debug or trace, and more for single modules behind a \
         comma: \"info,trunkline_daemon=debug\"",
    ),
    (
        "[[policy]]\nname = \"own\"\nkind = \"module\"\nside = \"server\"\npath = \"FOLDER/none.so\"",
        ":5:8: policy[0].path: (policy \"own\") cannot open FOLDER/none.so: No such file or \
         directory (os error 2); look at the path",
    ),
    (
        "[[policy]]\nname = \"own\"\nkind = \"module\"\nside = \"server\"\npath = \"FOLDER/file\"",
        ":5:8: policy[0].path: (policy \"own\") FOLDER/file",
    ),
    (
        "[admin]\npolicies_file = \"FOLDER/file\"",
        ":2:17: admin.policies_file: FOLDER/file (admin.policies_file) is empty: it was cut short; mend it or restore \
         a copy, or remove it to begin with the [[policy]] tables of the configuration",
    ),
    (
        "[admin]\npolicies_file = \"FOLDER/chain.toml\"",
        "FOLDER/chain.toml:5:8: policy[0].path: (policy \"own\") cannot open FOLDER/none.so: No such file or \
         directory (os error 2); look at the path",
    ),
];

#[test]
fn what_a_start_would_refuse_is_refused_in_the_same_words() {
    watched();
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().to_str().unwrap();
    let filled = |text: &str| text.replace("FOLDER", own).replace("LONG", &"long".repeat(30));
    std::fs::write(folder.path().join("file"), "").unwrap();
    std::fs::write(folder.path().join("chain.toml"), filled(TABLE[15].0)).unwrap();
    let mut wrong = Vec::new();
    for (text, sentence) in TABLE {
        let text = filled(text);
        std::fs::write(folder.path().join("d.toml"), &text).unwrap();
        let [checked, started] = [&["--check-config"][..], &[]].map(|more| daemon(folder.path(), more));
        assert_eq!(checked.code, Some(1), "{text}\n{checked:?}");
        let wanted = filled(sentence);
        if !checked.err.contains(&wanted) {
            wrong.push(format!("{text}\n{}wanted {wanted}", checked.err));
        }
        assert_eq!((started.code, started.err), (Some(1), checked.err), "{text}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// Files that could not be written when they are needed: nobody would hear of a change, or of a call that was kept. The
/// daemon runs as a user that is not root, to whom everything is open.
#[test]
fn files_that_cannot_be_written_are_refused() {
    watched();
    let folder = tempfile::tempdir().unwrap();
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    };
    let path = |name: &str| folder.path().join(name);
    std::fs::create_dir(path("shut")).unwrap();
    std::fs::write(path("file"), "").unwrap();
    std::fs::create_dir(path("open")).unwrap();
    let root = rustix::process::geteuid().is_root();
    let check = |text: String| {
        std::fs::write(path("d.toml"), text).unwrap();
        let mut command = trunkline(&["daemon", "--check-config", "--config"]);
        command.arg(path("d.toml")).env("XDG_RUNTIME_DIR", folder.path());
        if root {
            std::os::unix::process::CommandExt::uid(&mut command, 65_534);
        }
        end(&mut command, "")
    };
    for (name, bits) in [("shut", 0o555), ("file", 0o444), ("open", 0o777), ("", 0o755)] {
        mode(&path(name), bits);
    }
    let remedy = "let the daemon's user write there, or write a path where it may";
    for (table, key, more) in [
        ("admin", "audit_log", ""),
        ("admin", "policies_file", ""),
        ("samples", "file", "[[sample]]\nservice = \"a.B\"\n"),
    ] {
        let text = |name: &str| format!("[{table}]\n{key} = {:?}\n{more}", path(name));
        let shut = check(text("shut/x"));
        let wanted = format!(
            ":2:{}: {table}.{key}: names {}, and {} cannot be written: Permission denied (os error 13); {remedy}",
            key.len() + 4,
            path("shut/x").display(),
            path("shut").display()
        );
        assert!(shut.code == Some(1) && shut.err.contains(&wanted), "{shut:?}\nwanted {wanted}");
        let good = check(text("open/x"));
        assert_eq!(good.code, Some(0), "{key}: {good:?}");
    }
    let there = check(format!("[admin]\naudit_log = {:?}\n", path("file")));
    assert!(
        there.code == Some(1) && there.err.contains("/file cannot be written: Permission denied"),
        "{there:?}"
    );
    let one = path("open/x");
    let one = check(format!("[admin]\naudit_log = {one:?}\npolicies_file = {one:?}\n"));
    let says = ":3:17: admin.policies_file: names ";
    assert!(
        one.code == Some(1) && one.err.contains(says) && one.err.contains("the file of admin.audit_log"),
        "{one:?}"
    );
    let none = check("[samples]\nfile = \"/nonexistent/x\"\n[[sample]]\nservice = \"a.B\"\n".into());
    assert!(none.code == Some(1) && none.err.contains("its folder cannot be used: No such file"), "{none:?}");
    mode(&path("shut"), 0o755);
}

/// The daemon that runs holds its addresses, and its configuration is good all the same.
#[test]
fn a_configuration_in_use_is_good() {
    watched();
    let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let address = holder.local_addr().unwrap();
    std::fs::write(folder.path().join("d.toml"), format!("[daemon]\nlisten = [\"tcp://{address}\"]"))
        .unwrap();
    let checked = daemon(folder.path(), &["--check-config"]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
}

/// It is found out by the start, which names the place all the same.
#[test]
fn an_address_in_use_is_named_with_its_place_and_a_remedy() {
    watched();
    let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let taken = format!("tcp://{}", holder.local_addr().unwrap());
    let unix = format!("unix://{}/taken", folder.path().display());
    let _unix = std::os::unix::net::UnixListener::bind(folder.path().join("taken")).unwrap();
    for (text, place, address, remedy) in [
        (
            "[daemon]\nlisten = [",
            ":2:32: daemon.listen[1]",
            &taken,
            "`ss -ltnp` names it), or write another port",
        ),
        (
            "[gateway]\nlisten = [",
            ":2:32: gateway.listen[1]",
            &taken,
            "`ss -ltnp` names it), or write another port",
        ),
        (
            "[admin]\nlisten = [",
            ":2:11: admin.listen[0]",
            &unix,
            "`ss -lxnp` names it), or write another path",
        ),
    ] {
        let before = if text.starts_with("[admin]") { "" } else { "\"tcp://127.0.0.1:0\", " };
        std::fs::write(folder.path().join("d.toml"), format!("{text}{before}{address:?}]")).unwrap();
        let started = daemon(folder.path(), &[]);
        let wanted = format!(
            "{place}: is {address}, where another program listens already; end that program ({remedy}"
        );
        assert!(started.code == Some(1) && started.err.contains(&wanted), "{started:?}\nwanted {wanted}");
    }
}

/// A daemon starts with a certificate that has expired, and every peer refuses it.
#[test]
fn a_certificate_out_of_its_time_is_named() {
    watched();
    let folder = tempfile::tempdir().unwrap();
    let of_folder = |name: &str| folder.path().join(name).display().to_string();
    for (from, until, words) in
        [(1999, 2001, "has expired"), (2999, 3001, "is valid only in"), (1999, 3001, "")]
    {
        let mut params = rcgen::CertificateParams::new(vec!["a".to_owned()]).unwrap();
        (params.not_before, params.not_after) =
            (rcgen::date_time_ymd(from, 1, 1), rcgen::date_time_ymd(until, 1, 1));
        let key = rcgen::KeyPair::generate().unwrap();
        std::fs::write(of_folder("a.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        std::fs::write(of_folder("a.key"), key.serialize_pem()).unwrap();
        let text = format!("[tls]\ncertificate = {:?}\nkey = {:?}", of_folder("a.pem"), of_folder("a.key"));
        std::fs::write(of_folder("d.toml"), text).unwrap();
        let checked = daemon(folder.path(), &["--check-config"]);
        assert!(checked.code == Some(0) && checked.out.contains("d.toml: good"), "{checked:?}");
        let told = checked.err.contains(&format!("d.toml: tls.certificate: {} {words}", of_folder("a.pem")));
        assert_eq!((told, checked.err.is_empty()), (!words.is_empty(), words.is_empty()), "{checked:?}");
    }
}

/// What the command line says has no place in the file.
#[test]
fn what_the_command_line_says_is_checked_without_a_place() {
    watched();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("d.toml"), "").unwrap();
    let checked = daemon(folder.path(), &["--check-config", "--listen", "tcp://203.0.113.1:1"]);
    assert_eq!(checked.code, Some(1), "{checked:?}");
    assert!(checked.err.contains("d.toml: daemon.listen[0]: is 203.0.113.1:1"), "{checked:?}");
}
