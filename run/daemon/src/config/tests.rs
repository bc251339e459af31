//! Shows that no file is a good configuration, that every key is documented with its default, that errors say where,
//! what and what instead, and that no text makes the reader panic.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use trunkline_shm::RING_ENTRIES_MIN;

const DOCUMENT: &str = include_str!("../../../../docs/configuration.md");

const POLICIES: &str = r#"
[[policy]]
name = "tenants"
kind = "access"
side = "server"
deny = 'request.tenant == "blue"'

[[policy]]
name = "broken"
kind = "fault"
side = "client"
percent = 0.5
abort = "UNAVAILABLE"
"#;

fn refusal(text: &str) -> String {
    Config::from_toml(text, "d.toml").expect_err("must be refused").to_string()
}

#[test]
fn no_file_is_a_good_configuration() {
    let config = Config::from_toml("", "nothing").unwrap();
    assert_eq!(config, Config::default());
    assert!(!config.node().is_empty());
    assert_eq!(config.socket(), None);
    let limits = config.limits();
    assert_eq!(
        format!("{limits:?}"),
        format!("{:?}", Limits::default()),
        "the engine's defaults are the file's"
    );
    let heap_bytes = 512 << 20;
    let geometry = SessionConfig {
        send_heap_bytes: heap_bytes,
        receive_heap_bytes: heap_bytes,
        ..SessionConfig::default()
    };
    assert_eq!(config.session_geometry(&Attach::default()), geometry);
    assert_eq!(*config.http2.server(), trunkline_net::Http2Settings::server());
    assert_eq!(*config.http2.client(), trunkline_net::Http2Settings::client());
    assert_eq!(config.tls.server(), None);
}

#[test]
fn what_is_written_is_read_again() {
    let policy = Config::policies_from_toml(POLICIES, "p").unwrap();
    let mut config = Config { policy, ..Config::default() };
    config.daemon.listen.push(Address("tcp://[::1]:0".parse().unwrap()));
    config.services.insert(
        "a.v1.B".into(),
        Service {
            endpoints: ["unix:/run/b.sock", "dns:///b.example:80", "ipv4:10.0.0.7:1,10.0.0.8:2"]
                .map(|text| Whom(text.parse().unwrap()))
                .into(),
            service_config: r#"{"methodConfig": [{"name": [{}], "timeout": "1s"}]}"#.into(),
        },
    );
    assert_eq!(Config::from_toml(&config.to_toml(), "round").unwrap(), config);
}

/// What is written, and what is said of it.
const MISTAKES: &[(&str, &str)] = &[
    (
        "[daemon]\nlisen = []",
        "d.toml:2:1: daemon.lisen: there is no key \"lisen\" here; did you mean \"listen\"?",
    ),
    ("[deamon]", "d.toml:1:2: deamon: there is no key \"deamon\" here; did you mean \"daemon\"?"),
    (
        "[waiting]\n zebra = 1",
        "d.toml:2:2: waiting.zebra: there is no key \"zebra\" here; keys here: patience_us_max",
    ),
    (
        "[r2p2]\nlisten = \"10.0.0.7\"",
        "d.toml:2:10: r2p2.listen: invalid value: string \"10.0.0.7\", expected an IPv4 address and a port, such \
         as \"10.0.0.7:8000\", or \"\" for none",
    ),
    (
        "[r2p2]\nrouters = [\"10.0.0.9:9000\"]",
        "d.toml:2:11: r2p2.routers: mean nothing where R2P2 is not served; write r2p2.listen, the port requests \
         are to come to, or leave the routers out",
    ),
    (
        "[daemon]\nlisten = [\"r2p2://10.0.0.7:1\"]",
        "d.toml:2:10: daemon.listen: says r2p2://, which has a port of its own; write r2p2.listen instead",
    ),
    (
        "[gateway]\nlisten = [\"tcp://127.0.0.1:1\", \"tcp://0.0.0.0:50051\"]",
        "d.toml:2:10: gateway.listen: has \"tcp://0.0.0.0:50051\", which others than this host's programs reach; \
         write gateway.open_to = \"tls\" (with tls.certificate and tls.key), or \"anyone\" for all who reach it in \
         the clear, or a loopback address",
    ),
    (
        "[gateway]\nlisten = [\"tcp://[::]:1\"]\nopen_to = \"tls\"",
        "d.toml:3:11: gateway.open_to: would refuse every connection: TLS is not served; write tls.certificate \
         and tls.key, too",
    ),
    (
        "[gateway]\nlisten = [\"r2p2://10.0.0.7:1\"]",
        "d.toml:2:10: gateway.listen: has \"r2p2://10.0.0.7:1\", which is no place to listen at for gRPC; write \
         tcp://, or unix: and a path",
    ),
    (
        "[relay]\nlisten = [\"unix:/run/relay.sock\"]",
        "d.toml:2:10: relay.listen: has \"unix:///run/relay.sock\", which is no TCP port; write tcp://ADDRESS:PORT; \
         TLS is spoken there always",
    ),
    (
        "[relay]\nlisten = [\"tcp://0.0.0.0:7979\"]\n[tls]\ncertificate = \"/a\"\nkey = \"/b\"",
        "d.toml:2:10: relay.listen: would attach nobody: who an application is, its certificate says; write \
         tls.certificate, tls.key and tls.client_ca, too, or tls.workload_api",
    ),
    (
        "relay.connections_per_identity_max = 0",
        "d.toml:1:38: relay.connections_per_identity_max: is 0; write a number from 1 to 4096",
    ),
    (
        "relay.heap_bytes = \"1 KiB\"",
        "d.toml:1:20: relay.heap_bytes: is 1024; write a multiple of 64 KiB, from 64 KiB to 2 GiB",
    ),
    (
        "relay.handshakes_max = 5000",
        "d.toml:1:24: relay.handshakes_max: is 5000; write a number from 1 to 4096",
    ),
    (
        "relay.held_bytes_per_identity_max = \"1 MiB\"",
        "d.toml:1:37: relay.held_bytes_per_identity_max: is 1048576, and relay.heap_bytes is 67108864; write at \
         least as much as relay.heap_bytes says",
    ),
    (
        "relay.held_bytes_max = \"1 MiB\"",
        "d.toml:1:24: relay.held_bytes_max: is 1048576, and relay.held_bytes_per_identity_max is 1073741824; \
         write at least as much as relay.held_bytes_per_identity_max says",
    ),
    ("gateway.hops_max = 0", "d.toml:1:20: gateway.hops_max: is 0; write a number from 1 to 16"),
    (
        "[gateway]\nschemas = [\"a.binpb\"]",
        "d.toml:2:11: gateway.schemas: has \"a.binpb\"; write the absolute path of a descriptor set, as protoc \
         --descriptor_set_out makes it",
    ),
    (
        "[admin]\npolicies_file = \"p.toml\"",
        "d.toml:2:17: admin.policies_file: is \"p.toml\"; write an absolute path to a file, such as \
         \"/var/lib/trunkline/policies.toml\"",
    ),
    (
        "[sessions]\nring_entries = 500",
        "d.toml:2:16: sessions.ring_entries: is 500; write a power of two from 16 to 16384",
    ),
    (
        "[tls]\ncertificate = \"a.pem\"",
        "d.toml:1:1: tls.key: is missing beside tls.certificate; write the path of its private key: a PEM file, \
         not encrypted",
    ),
    (
        "[tls]\nworkload_api = \"unix:agent.sock\"",
        "d.toml:2:16: tls.workload_api: invalid value: string \"unix:agent.sock\", expected an absolute path, \
         such as \"unix:/run/spire/agent.sock\", or \"\" for none",
    ),
    (
        "[tls]\nworkload_api = \"unix:/a.sock\"\nca = \"a.pem\"",
        "d.toml:3:6: tls.ca: is said beside tls.workload_api, which tells the same; leave it out, or \
         tls.workload_api: one of them says who this host is",
    ),
    (
        "[tls]\nversion_min = \"1.3\"\nversion_max = \"1.2\"",
        "d.toml:3:15: tls.version_max: is older than tls.version_min; write the same version for both, or leave \
         one of them out",
    ),
    (
        "[daemon]\nlisten = [\"tls://[::]:1\"]",
        "d.toml:2:10: daemon.listen: says tls://, but a listener takes connections with TLS and without; write \
         tcp://, and set tls.certificate and tls.key",
    ),
    (
        "http2.client_keepalive_s = 5",
        "d.toml:1:28: http2.client_keepalive_s: is 5: servers answer such clients with too_many_pings; write 0 \
         for never, or at least 10",
    ),
    (
        "[log]\nlevel = \"chatty\"",
        "d.toml:2:9: log.level: has \"chatty\", which is no level; write off, error, warn, info, debug or trace, \
         and more for single modules behind a comma: \"info,trunkline_daemon=debug\"",
    ),
    (
        "[limits]\ngrpc_message_bytes = \"300 MiB\"",
        "d.toml:2:22: limits.grpc_message_bytes: is 300 MiB, and limits.message_bytes is 257 MiB, \
         limits.assembling_bytes_per_peer is 257 MiB: the smallest one decides; write limits.message_bytes = \
         \"300 MiB\", limits.assembling_bytes_per_peer = \"300 MiB\", too, or at most 257 MiB here",
    ),
    (
        "[limits]\nmessage_bytes = 2000000000\n[sessions]\nheap_bytes = \"1 GiB\"",
        "d.toml:2:17: limits.message_bytes: is 1953125 KiB, and limits.assembling_bytes_per_peer is 257 MiB, \
         sessions.heap_bytes is 1 GiB, sessions.heap_bytes_max is 1 GiB: the smallest one decides; write \
         limits.assembling_bytes_per_peer = \"1953152 KiB\", sessions.heap_bytes = \"1953152 KiB\", \
         sessions.heap_bytes_max = \"1953152 KiB\", too, or at most 257 MiB here",
    ),
    (
        "[limits]\ngrpc_replay_bytes_per_call = \"17 MiB\"",
        "d.toml:2:30: limits.grpc_replay_bytes_per_call: is 17 MiB, and limits.grpc_replay_bytes_per_peer is \
         16 MiB: the smallest one decides; write limits.grpc_replay_bytes_per_peer = \"17 MiB\", too, or at most \
         16 MiB here",
    ),
    (
        "[limits]\nheld_bytes_per_source = \"2 GiB\"\nheld_bytes = \"1 GiB\"",
        "d.toml:2:25: limits.held_bytes_per_source: is 2 GiB, and limits.held_bytes is 1 GiB: the smallest one \
         decides; write limits.held_bytes = \"2 GiB\", too, or at most 1 GiB here",
    ),
    (
        "sessions.heap_bytes = 65537",
        "d.toml:1:23: sessions.heap_bytes: is 65537 B; write a multiple of 64 KiB up to 1 GiB",
    ),
    (
        "[limits]\nmessage_bytes = \"3 GiB\"",
        "d.toml:2:17: limits.message_bytes: is 3 GiB; write a size from 4 KiB to 2147483647 B",
    ),
    (
        "[services.\"a.B\"]\nendpoints = [\n  \"tcp://127.0.0.1:1\",\n  \"http://h\",\n]",
        "d.toml:2:13: services.\"a.B\".endpoints: \"http://h\": scheme \"http\" is not offered; write \
         dns:///HOST:PORT, tcp://HOST:PORT or unix:PATH",
    ),
    (
        "[services.\"a.B\"]\nservice_config = '{\"methodConfig\": 1}'",
        "d.toml:2:18: services.\"a.B\".service_config: is no service config: methodConfig: 1; write a list",
    ),
    (
        "[services.\"a-B\"]\nendpoints = []",
        "d.toml:1:2: services.a-B: is not the full name of a service; write it as in the .proto, with its \
         package, in quotes: \"search.v1.Search\"",
    ),
    (
        "[daemon]\nsocket_mode = \"0999\"",
        "d.toml:2:15: daemon.socket_mode: invalid value: string \"0999\", expected octal permissions as \
         text, such as \"0660\"",
    ),
    (
        "[[policy]]\nname = \"a\"\nkind = \"timeout\"\nside = \"client\"\ntimeout_ms = 5\n\n\
             [[policy]]\nname = \"b\"\nkind = \"access\"\nside = \"client\"\ndeny = 'request.a = 3'",
        "d.toml:11:8: policy[1].deny: (policy \"b\") 1:11: unexpected character '='; write == to compare",
    ),
    (
        "[[policy]]\nname = \"a\"\nkind = \"fault\"\nside = \"client\"",
        "d.toml:1:1: policy[0]: (policy \"a\") neither delays nor aborts; add delay_ms = 50 or abort = \
         \"UNAVAILABLE\"",
    ),
    (
        "[[policy]]\nname = \"a\"\nkind = \"fault\"\nside = \"client\"\ndelay_m = 5",
        "d.toml:5:1: policy[0].delay_m: there is no key \"delay_m\" here; did you mean \"delay_ms\"?",
    ),
    (
        "[admin]\nread = [\"*\", \"root\"]",
        "d.toml:2:8: admin.read: invalid value: string \"root\", expected \"*\", \"owner\", \"uid:1000\" or \
         \"gid:1000\"",
    ),
    (
        "[egress]\nallow = [\"10.0.0.0/33\"]",
        "d.toml:2:9: egress.allow: invalid value: string \"10.0.0.0/33\", expected an address, network or name \
         with ports or without, such as \"10.0.0.0/8:8000-8999\", \"[2001:db8::]/32\", \"db.example:80\", \
         \"*.example\", or \"unix:/run/a.sock\"",
    ),
    (
        "[[serve]]\nservice = \"a*\"\nwho = []",
        "d.toml:2:11: serve[0].service: is \"a*\"; write \"search.v1.Search\", \"search.v1.*\" or \"*\"",
    ),
    (
        "[[call]]\nservice = \"*\"\nwho = [\"*\"]\n[[call]]\nservice = \"a.B\"\nwho = []",
        "d.toml:5:11: call[1].service: is \"a.B\", and is never asked: call[0] (\"*\") decides first; put it before \
         call[0], or leave it out",
    ),
    (
        "[[serve]]\nservice = \"a.*\"\nwho = []\npeers = []\n[[serve]]\nservice = \"a.*\"\nwho = []\npeers = [\"b\"]",
        "d.toml:6:11: serve[1].service: is \"a.*\", and is never asked: serve[0] (\"a.*\") decides first; put it \
         before serve[0], or leave it out",
    ),
    (
        "[[call]]\nservice = \"trunkline.admin.v1.Admin\"\nwho = []",
        "d.toml:2:11: call[0].service: is \"trunkline.admin.v1.Admin\": such services are the daemon's own; write \
         admin.read and admin.change to say who may call them",
    ),
    (
        "[[call]]\nservice = \"a.B\"\nwho = []\nserver_identity = [\"spiffe://corp/*\"]",
        "d.toml:4:19: call[0].server_identity: has \"spiffe://corp/*\", which no target can name; write whole \
         SPIFFE ids or names of certificates",
    ),
    (
        "[[tenant]]\nservice = \"a.*\"\nweight = 2\n[[serve]]\nservice = \"a.b.*\"\nwho = []",
        "d.toml:2:11: tenant[0].service: is \"a.*\", whose share anybody would have who serves a free name of it; \
         write a [[serve]] rule for \"a.*\" that says who may",
    ),
    (
        "[[serve]]\nservice = \"a.B\"\nwho = []\nserver_identity = [\"b\"]",
        "d.toml:4:19: serve[0].server_identity: means nothing: it is about the targets of calls; write it in \
         [[call]], or leave it out",
    ),
    (
        "otlp.endpoint = \"grpc://h\"",
        "d.toml:1:17: otlp.endpoint: is \"grpc://h\"; write \"http://HOST:PORT\" or \"https://HOST:PORT\" of a \
         collector that takes OTLP over HTTP, such as one on this host: \"http://127.0.0.1:4318\"",
    ),
    (
        "[otlp]\nendpoint = \"http://h\"\nca = \"ca.pem\"",
        "d.toml:3:6: otlp.ca: means nothing where otlp.endpoint is without TLS; write an otlp.endpoint that begins \
         with https://, or leave it out",
    ),
    (
        "[otlp]\nendpoint = \"https://h\"\ncertificate = \"a.pem\"",
        "d.toml:1:1: otlp.key: is missing beside otlp.certificate; write the path of the private key of that \
         certificate: a PEM file",
    ),
    (
        "[otlp]\nendpoint = \"https://h\"\nkey = \"a.key\"",
        "d.toml:1:1: otlp.certificate: is missing beside otlp.key; write the path of the certificate chain made for \
         that key: a PEM file",
    ),
    (
        "[[sample]]\nservice = \"a.B\"",
        "d.toml: samples.file: is empty; name the file that the calls of [[sample]] go to, or leave those tables \
         out",
    ),
    (
        "recorder.sample = 0.5",
        "d.toml:1:19: recorder.sample: means nothing without recorder.traces; write recorder.traces, too, or leave \
         it out",
    ),
    (
        "[samples]\nfile = \"/s\"",
        "d.toml:2:8: samples.file: means nothing without a [[sample]] table; write a [[sample]] table, too, or leave \
         it out",
    ),
    (
        "gateway.open_to = \"anyone\"",
        "d.toml:1:19: gateway.open_to: means nothing without gateway.listen; write gateway.listen, too, or leave it \
         out",
    ),
    ("recorder.sample = -0.1", "d.toml:1:19: recorder.sample: is -0.1; write a share from 0.0 to 1.0"),
    ("otlp.sample = 1.5", "d.toml:1:15: otlp.sample: is 1.5; write a share from 0.0 to 1.0"),
    (
        "otlp.attributes = [\"a\"]",
        "d.toml:1:19: otlp.attributes: has \"a\"; write key=value, such as \"deployment.environment.name=test\", \
         in at most 1024 bytes",
    ),
    (
        "[otlp]\nsample = 0.5",
        "d.toml:2:10: otlp.sample: is 0.5, and there is no collector that traces are sent to; write otlp.endpoint, \
         too, or leave it out; traces that are recorded have recorder.sample",
    ),
    (
        "[[call]]\nservice = \"a.B\"\nwho = []\nserver_identity = [\"foo bar\"]",
        "d.toml:4:19: call[0].server_identity: has \"foo bar\", which no target can name; write whole SPIFFE ids or \
         names of certificates",
    ),
    (
        "[samples]\nfile = \"/s\"\n[[sample]]\nservice = \"a.B\"\nredact = [\"a..b\"]",
        "d.toml:5:10: sample[0].redact: has \"a..b\"; write names as they stand in the .proto file",
    ),
    (
        "[services.a.B]\nendpoints = []",
        "d.toml:1:13: services.a.B: there is no key \"B\" here; quote the name: [services.\"a.B\"]",
    ),
    (
        "[services.a.b.C]\nendpoints = []",
        "d.toml:1:13: services.a.b.C: there is no key \"b\" here; quote the name: [services.\"a.b.C\"]",
    ),
    (
        "[services.a]\nendpoint = []",
        "d.toml:2:1: services.a.endpoint: there is no key \"endpoint\" here; did you mean \"endpoints\"?",
    ),
    ("[daemon]\nnode = \"a\"\nnode = \"b\"", "d.toml:3:1: the key \"node\" is there twice"),
    (
        "[[policy]]\nname = \"a\"\nkind = \"access\"\nside = \"server\"\ndeny = \"true\"\n[[policy]]\nname = \"b\"\n\
         kind = \"access\"\ndeny = \"true\"",
        "d.toml:6:1: policy[1]: `side` is missing",
    ),
    (
        "daemon.listen = \"x\"",
        "d.toml:1:17: daemon.listen: invalid type: string \"x\", expected a list in brackets",
    ),
    ("otlp.sample = \"x\"", "d.toml:1:15: otlp.sample: invalid type: string \"x\", expected a number"),
    (
        "daemon.integrity = 1",
        "d.toml:1:20: daemon.integrity: invalid type: integer `1`, expected true or false",
    ),
    ("daemon.node = []", "d.toml:1:15: daemon.node: invalid type: a list, expected text in quotes"),
    ("daemon = 3", "d.toml:1:10: daemon: invalid type: integer `3`, expected a table"),
    (
        "limits.attempts_percent = \"x\"",
        "d.toml:1:27: limits.attempts_percent: invalid type: string \"x\", expected a whole number",
    ),
    (
        "limits.attempts_percent = 4294967296",
        "d.toml:1:27: limits.attempts_percent: invalid value: integer `4294967296`, expected a whole number from 0 to \
         4294967295",
    ),
    (
        "[[daemon]]\nnode = \"a\"",
        "d.toml:1:1: daemon[0]: it is a table, not a list of tables; write [daemon], in single brackets",
    ),
    ("[log]\nformat = \"xml\"", "d.toml:2:10: log.format: unknown variant `xml`, expected `text` or `json`"),
];

#[test]
fn errors_say_where_what_and_what_instead() {
    for &(text, expected) in MISTAKES {
        assert_eq!(refusal(text), expected, "{text}");
    }
}

#[test]
fn types_and_syntax_have_places_too() {
    for (text, start, part) in [
        ("[daemon]\nshards = \"two\"", "d.toml:2:10: daemon.shards: ", "a number from 1 to 32, or \"auto\""),
        ("[daemon]\nshards = 0", "d.toml:2:10: daemon.shards: ", "a number from 1 to 32, or \"auto\""),
        ("[daemon]\nshards = 2.5", "d.toml:2:10: daemon.shards: ", "invalid type"),
        ("[daemon]\nshards = ", "d.toml:2:10: ", ""),
        ("[limits]\nmessage_bytes = \"64 MB\"", "d.toml:2:17: limits.message_bytes: ", "units: B, KiB, MiB"),
        ("[daemon]\nnode = \"ä\" x", "d.toml:2:12: ", ""),
    ] {
        let error = refusal(text);
        assert!(error.starts_with(start) && error.contains(part), "{text}: {error}");
    }
}

#[test]
fn sizes_have_units() {
    let table = [
        ("0", Some(0)),
        ("4096", Some(4096)),
        ("64 KiB", Some(64 << 10)),
        ("64MiB", Some(64 << 20)),
        ("1.5 GiB", Some(3 << 29)),
        ("1.5 B", None),
        ("1. KiB", None),
        ("64 MB", None),
        ("-1", None),
        ("", None),
        ("99999999 TiB", None),
        ("1.00000000000000000000000001 KiB", None),
    ];
    for (text, bytes) in table {
        assert_eq!(Bytes::parse(text), bytes.map(Bytes), "{text}");
    }
    for bytes in [0, 1, 1023, 1024, 1536, 64 << 20, u64::MAX] {
        assert_eq!(Bytes::parse(&Bytes(bytes).to_string()), Some(Bytes(bytes)));
    }
}

#[test]
fn wishes_are_rounded_and_capped() {
    let config = Config::default();
    let wish = Attach {
        submission_entries: 1,
        completion_entries: u32::MAX,
        send_heap_bytes: 100_000,
        receive_heap_bytes: u64::MAX,
        ..Attach::default()
    };
    let geometry = config.session_geometry(&wish);
    assert_eq!(geometry.submission_entries, RING_ENTRIES_MIN);
    assert_eq!(geometry.completion_entries, 16_384);
    assert_eq!(geometry.send_heap_bytes, 128 << 10);
    assert_eq!(geometry.receive_heap_bytes, 1 << 30);
    geometry.check().unwrap();
}

/// Every key with its default, as a table of the document shows them: ``| `daemon.shards` | `1` | …``.
fn documented() -> BTreeMap<String, String> {
    let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let rows = DOCUMENT.lines().filter(|line| line.starts_with("| `")).map(cells);
    rows.map(|row| (row[1].trim_matches('`').to_owned(), row[2].trim_matches('`').to_owned())).collect()
}

fn flatten(path: &str, value: &toml::Value, keys: &mut BTreeMap<String, String>) {
    match value {
        toml::Value::Table(table) => {
            for (key, value) in table {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                flatten(&path, value, keys);
            }
        }
        leaf => drop(keys.insert(path.to_owned(), leaf.to_string())),
    }
}

#[test]
fn the_document_lists_exactly_the_keys_that_exist() {
    let mut config = Config::default();
    config.services.insert("NAME".into(), Service::default());
    let mut keys = BTreeMap::new();
    flatten("", &toml::Value::try_from(&config).unwrap(), &mut keys);
    assert_eq!(documented(), keys, "docs/configuration.md (left) differs from the code (right)");
}

#[test]
fn the_documents_example_is_valid() {
    let example = DOCUMENT.split("```toml").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let config = Config::from_toml(example, "docs/configuration.md").unwrap();
    assert!(!config.services.is_empty());
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "[\\[\\]a-z_.=\"\n0-9 ä]{0,60}") {
        let _ = Config::from_toml(&text, "x").map_err(|error| error.to_string());
    }

    #[test]
    fn any_value_of_a_known_key_is_read_or_refused(value in "[\\[\\]{}=\"a-z0-9:/. -]{0,20}", key in 0..4usize) {
        let key = ["daemon.shards", "limits.message_bytes", "services.x", "daemon.listen"][key];
        let _ = Config::from_toml(&format!("{key} = {value}"), "x").map_err(|error| error.to_string());
    }
}

#[test]
fn the_policy_pages_examples_are_valid() {
    let page = include_str!("../../../../docs/policy.md");
    let example = page.split("```toml").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    assert_eq!(Config::policies_from_toml(example, "docs/policy.md").unwrap().len(), 2);
    for kind in
        ["access", "rate-limit", "concurrency-limit", "timeout", "fault", "access-log", "module", "mirror"]
    {
        assert!(page.contains(&format!("### `{kind}`")), "{kind} has no section in docs/policy.md");
    }
}

/// A page's file may name certificates and folders that are not here: what is said of itself is looked at.
#[test]
fn every_configuration_in_the_documents_is_valid() {
    let pages = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs")).unwrap();
    let mut seen = 0;
    for page in
        pages.map(|page| page.unwrap().path()).filter(|path| path.extension().is_some_and(|e| e == "md"))
    {
        let text = std::fs::read_to_string(&page).unwrap();
        for block in text.split("\n```toml").skip(1).filter_map(|rest| rest.split("\n```").next()) {
            let block = block.split_once('\n').map_or("", |(_, block)| block);
            if block.contains("[package]") || block.contains("[dependencies]") {
                continue;
            }
            let read = Config::from_toml(block, &page.display().to_string());
            assert!(read.is_ok(), "{}\n{block}", read.unwrap_err());
            seen += 1;
        }
    }
    assert!(seen >= 6, "only {seen} configurations were found: does this test still read the pages?");
}

#[test]
fn targets_of_mirrors_have_one_form() {
    let text = |target: &str| {
        format!("[[policy]]\nname = \"a\"\nkind = \"mirror\"\nside = \"client\"\ntarget = {target:?}")
    };
    let read = |target: &str| Config::policies_from_toml(&text(target), "p.toml");
    let settled = read("127.0.0.1:80").unwrap();
    assert_eq!(settled[0].target.as_deref(), Some("tcp://127.0.0.1:80"));
    assert_eq!(Config::from_toml(&text("127.0.0.1:80"), "d.toml").unwrap().policy, settled);
    let error = read("tcp://nowhere").unwrap_err().to_string();
    assert!(
        error.starts_with("p.toml:5:10: policy[0].target: (policy \"a\") is \"tcp://nowhere\": "),
        "{error}"
    );
}

#[test]
fn a_file_of_policies_has_nothing_else() {
    let error = Config::policies_from_toml("[daemon]\nnode = \"a\"", "p.toml").unwrap_err().to_string();
    assert!(error.starts_with("p.toml:1:2: daemon: there is no key \"daemon\" here"), "{error}");
    assert_eq!(Config::policies_from_toml("", "p.toml").unwrap(), []);
}

#[test]
fn sizes_that_hold_each_other_pass() {
    for good in [
        "[limits]\nmessage_bytes = \"64 MiB\"",
        "[limits]\nmessage_bytes = \"257 MiB\"\ngrpc_message_bytes = \"64 MiB\"",
        "[sessions]\nheap_bytes = \"128 MiB\"\n[limits]\ngrpc_message_bytes = \"100 MiB\"\n\
         assembling_bytes_per_peer = \"100 MiB\"",
    ] {
        assert_eq!(Config::from_toml(good, "d").map(drop), Ok(()), "{good}");
    }
}

/// Every status that tells of a limit says in brackets what sets it, and keys it names exist.
#[test]
fn limits_in_statuses_name_keys_that_exist() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let documented = documented();
    let mut names = Vec::new();
    for folder in ["core/engine/src", "run/trunkline/src/message"] {
        for file in std::fs::read_dir(format!("{root}/{folder}")).unwrap() {
            let path = file.unwrap().path();
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            let written = text
                .split("Fault::Limit {")
                .skip(1)
                .filter_map(|rest| rest.trim_start().strip_prefix("name: \""));
            let consts =
                text.split(": &str =").skip(1).filter_map(|rest| rest.trim_start().strip_prefix('"'));
            let consts = consts.filter(|rest| {
                rest.split('"')
                    .next()
                    .is_some_and(|name| name.contains("limits.") || name.contains("sessions."))
            });
            let both =
                written.chain(consts).map(|rest| rest.split('"').next().unwrap_or_default().to_owned());
            names.extend(both.map(|name| (path.clone(), name)));
        }
    }
    assert!(names.len() > 10, "the statuses are written otherwise by now: {names:?}");
    for (path, name) in names {
        let sets = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
        let sets = sets.unwrap_or_else(|| panic!("{}: {name:?} does not say what sets it", path.display()));
        for word in sets.split([' ', ',', ';']).filter(|word| word.contains('.')) {
            assert!(documented.contains_key(word), "{}: there is no key {word:?}", path.display());
        }
    }
}

/// Who says how much all have says nothing of a source, and one is not to have all of it.
#[test]
fn one_source_has_a_third_of_what_is_held_in_all_at_most() {
    let limits = |text: &str| Config::from_toml(text, "d.toml").unwrap().limits();
    let said = limits("[limits]\nheld_bytes = \"255 MiB\"");
    assert_eq!(said.held_bytes_per_source, 85 << 20);
    let usual = limits("");
    assert_eq!(usual.held_bytes, 3 * usual.held_bytes_per_source);
    let much = limits("[limits]\nheld_bytes = \"64 GiB\"");
    assert_eq!(much.held_bytes_per_source, usual.held_bytes_per_source);
}
