//! Shows that what is packaged fits this binary: command lines, configurations, and the socket all of them speak of.

use crate::args::{Trunkline, Verb};
use clap::Parser;
use std::path::Path;
use trunkline_daemon::Config;

const UNIT: &str = include_str!("../../../packaging/trunkline.service");
const RELAY_UNIT: &str = include_str!("../../../packaging/trunkline-relay.service");
const TMPFILES: &str = include_str!("../../../packaging/trunkline.tmpfiles");
const CONFIG: &str = include_str!("../../../packaging/daemon.toml");
const CONTAINERFILE: &str = include_str!("../../../packaging/Containerfile");
const DAEMON_SET: &str = include_str!("../../../packaging/kubernetes/daemonset.yaml");
const APPLICATION: &str = include_str!("../../../packaging/kubernetes/application.yaml");
const INSTALL: &str = include_str!("../../../docs/install.md");
const SOCKET: &str = "/run/trunkline/trunkline.sock";

fn verb(line: &str) -> Verb {
    Trunkline::try_parse_from(line.split_whitespace()).unwrap_or_else(|error| panic!("{line}: {error}")).verb
}

fn of_unit(key: &str) -> &str {
    said_by(UNIT, key)
}

fn said_by<'a>(unit: &'a str, key: &str) -> &'a str {
    let line = unit.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    line.unwrap_or_else(|| panic!("{key} in the unit"))
}

/// A block of YAML behind `key: |`, without its indentation.
fn block<'a>(yaml: &'a str, key: &str) -> String {
    let (_, rest) = yaml.split_once(&format!("{key}: |\n")).unwrap();
    let indent = rest.len() - rest.trim_start().len();
    let lines = rest.lines().take_while(|line| line.is_empty() || line.starts_with(&" ".repeat(indent)));
    lines.map(|line: &'a str| format!("{}\n", line.get(indent..).unwrap_or_default())).collect()
}

#[test]
fn the_units_commands_are_commands() {
    assert!(matches!(verb(of_unit("ExecStart")), Verb::Daemon(args) if !args.check_config));
    assert!(matches!(verb(of_unit("ExecStartPre")), Verb::Daemon(args) if args.check_config));
    assert!(matches!(verb(of_unit("ExecReload")), Verb::Upgrade(_)));
    assert!(of_unit("ExecReload").ends_with(SOCKET));
    assert_eq!((of_unit("Type"), of_unit("NotifyAccess")), ("notify", "all"));
}

/// Descriptors pass between users of one namespace, and applications are known by theirs.
#[test]
fn the_units_sandbox_lets_applications_in() {
    for closed in ["PrivateUsers=", "PrivateNetwork=", "RuntimeDirectory=", "DynamicUser="] {
        assert!(!UNIT.lines().any(|line| line.starts_with(closed)), "{closed}");
    }
    for part in ["AF_UNIX", "AF_INET", "AF_INET6"] {
        assert!(of_unit("RestrictAddressFamilies").split(' ').any(|family| family == part), "{part}");
    }
    // The folders of docs/security.md's audit log, and of policies and samples.
    assert_eq!((of_unit("LogsDirectory"), of_unit("StateDirectory")), ("trunkline", "trunkline"));
    let folder = Path::new(SOCKET).parent().unwrap().to_str().unwrap();
    assert_eq!(of_unit("ReadWritePaths"), folder);
    assert!(TMPFILES.contains(&format!("d {folder} 0755 trunkline trunkline")));
    assert!(TMPFILES.contains("/run/trunkline.sock - - - - trunkline/trunkline.sock"));
}

/// The relay may write nowhere, and so nothing that its unit runs may need to: the packaged configuration has a file of
/// policies, which the daemon's check wants to be writable.
#[test]
fn the_relays_unit_writes_nothing_and_checks_nothing_of_the_daemons() {
    assert_eq!(said_by(RELAY_UNIT, "ProtectSystem"), "strict");
    for folder in
        ["ReadWritePaths=", "StateDirectory=", "LogsDirectory=", "CacheDirectory=", "RuntimeDirectory="]
    {
        assert!(!RELAY_UNIT.lines().any(|line| line.starts_with(folder)), "{folder}");
    }
    let commands: Vec<_> = RELAY_UNIT.lines().filter(|line| line.starts_with("Exec")).collect();
    let [only] = commands[..] else { panic!("{commands:?}") };
    let Verb::Relay(relay) = verb(only.strip_prefix("ExecStart=").unwrap()) else { panic!("{only}") };
    assert_eq!(of_unit("ExecStart").rsplit_once(' ').unwrap().1, relay.config.unwrap().to_str().unwrap());
    for key in ["Type", "User", "Group", "RestrictAddressFamilies"] {
        assert_eq!(said_by(RELAY_UNIT, key), of_unit(key), "{key}");
    }
}

#[test]
fn configurations_are_good_and_speak_of_one_socket() {
    let packaged = Config::from_toml(CONFIG, "daemon.toml").unwrap();
    assert_eq!(packaged.socket(), Some(Path::new(SOCKET)));
    let of_set = Config::from_toml(&block(DAEMON_SET, "daemon.toml"), "daemonset.yaml").unwrap();
    assert_eq!(of_set.socket(), Some(Path::new(SOCKET)));
    for text in [DAEMON_SET, APPLICATION] {
        assert!(text.contains(&format!("value: {SOCKET}")), "{text}");
        assert!(
            text.contains("mountPath: /run/trunkline") && text.contains("path: /run/trunkline\n"),
            "{text}"
        );
    }
    assert!(CONTAINERFILE.contains(&format!("TRUNKLINE_SOCKET={SOCKET}")));
    let ports: Vec<String> = of_set.listen().map(|at| at.to_string()).collect();
    assert!(
        ports.iter().all(|at| at.ends_with(":7878")) && DAEMON_SET.contains("containerPort: 7878"),
        "{ports:?}"
    );
}

/// What follows `key:` in a line of YAML.
fn values<'a>(yaml: &'a str, key: &str) -> Vec<&'a str> {
    yaml.lines().filter_map(|line| line.trim().strip_prefix(key)?.strip_prefix(": ")).collect()
}

/// What applications and peers can make the daemon hold is less than its container may have: else the kernel ends it,
/// and all calls of the node.
#[test]
fn the_daemon_set_leaves_memory_for_what_its_configuration_allows() {
    const MIB: u64 = 1 << 20;
    /// Of each connection and application so much is not counted among what is held (docs/configuration.md).
    const UNCOUNTED: usize = 256 << 10;
    let config = Config::from_toml(&block(DAEMON_SET, "daemon.toml"), "daemonset.yaml").unwrap();
    let (sessions, limits) = (&config.sessions, config.limits());
    let heaps = sessions.count_max as u64 * (sessions.heap_bytes.0 + sessions.heap_bytes_max.0);
    let uncounted = (config.connections().in_all + sessions.count_max) * UNCOUNTED;
    let most = heaps + sessions.descriptor_bytes_max.0 + (limits.held_bytes + uncounted) as u64;
    let limit =
        values(DAEMON_SET, "memory").last().unwrap().strip_suffix("Mi").unwrap().parse::<u64>().unwrap();
    assert!(most <= limit * MIB / 8 * 7, "{} MiB of {limit}", most / MIB);
    assert!(limits.held_bytes_per_source * 3 <= limits.held_bytes, "one source has what all have");
}

/// Pods have few sessions to share; what is said of how many fit is so.
#[test]
fn there_are_sessions_for_as_many_pods_as_is_said() {
    let config = Config::from_toml(&block(DAEMON_SET, "daemon.toml"), "daemonset.yaml").unwrap();
    let (_, variable) = APPLICATION.split_once("name: TRUNKLINE_TASK_SESSIONS\n").unwrap();
    let for_tasks: usize = values(variable, "value")[0].trim_matches('"').parse().unwrap();
    let of_pod = 1 + for_tasks;
    let (pods, of_user) = (config.sessions.count_max / of_pod, config.sessions.per_user_max / of_pod);
    for text in [INSTALL, DAEMON_SET] {
        let words = text.replace('#', " ").split_whitespace().collect::<Vec<_>>().join(" ");
        let said = format!("room for {pods} pods on a node, and for {of_user} that run as one user");
        assert!(words.contains(&said), "{said}");
    }
}

/// A container that may write in the folder could take the socket's place, and one that fills the daemon's sessions is
/// not to have it ended.
#[test]
fn applications_of_the_cluster_cannot_end_or_replace_the_daemon() {
    let (_, mount) = APPLICATION.split_once("mountPath: /run/trunkline\n").unwrap();
    assert_eq!(mount.lines().next().map(str::trim), Some("readOnly: true"));
    let commands = values(DAEMON_SET, "command");
    let probes: Vec<_> = commands.into_iter().filter(|command| command.contains("\"list\"")).collect();
    assert_eq!(probes.len(), 2, "{probes:?}");
    for probe in probes {
        let line = probe.trim_matches(['[', ']']).replace(['"', ','], "");
        let args = Trunkline::try_parse_from(line.split_whitespace()).unwrap();
        let socket = args.admin_socket.unwrap();
        assert!(block(DAEMON_SET, "daemon.toml").contains(&format!("unix:{}", socket.display())), "{line}");
        assert!(!socket.starts_with("/run/trunkline"), "applications have that folder mounted");
    }
}

#[test]
fn what_the_container_copies_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for line in CONTAINERFILE.lines().filter(|line| line.starts_with("COPY packaging/")) {
        let from = line.split(' ').nth(1).unwrap();
        assert!(root.join(from).is_file(), "{line}");
    }
}
