//! The targets, and the seeds of each.

use crate::{handover, r2p2, routed, samples, service, tls};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use std::sync::{Arc, LazyLock};
use trunkline_call::entry::{Completion, Entry, Submission};
use trunkline_call::{Instant, Metadata, ServerStamps, TraceParent};
use trunkline_daemon::Config;
use trunkline_grpc::compress::{Encoding, compress, decompress};
use trunkline_grpc::framing::Deframer;
use trunkline_grpc::{request, response};
use trunkline_insight::{BlockHead, BlockReader, Fleet, RecordBlock, WholeTree, count_ancestors};
use trunkline_message::{AlignedBuf, DynamicView, Extent, Transcoder, Value, View, check};
use trunkline_native::{Connection, Features, INPUT_BYTES_MIN, Input, Side};
use trunkline_net::{Buffers, Endpoint, First, Http2, Http2Settings, Listener, State, Stream};
use trunkline_policy::{Expression, Inputs, Wanted};
use trunkline_schema::{MessageIndex, Schema};
use trunkline_services::Files;
use trunkline_telemetry::{CallTrace, RecordedCall, RecordedTrace};

/// A parser of hostile bytes.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// What it is called on command lines.
    pub name: &'static str,
    /// Runs it.
    pub run: fn(&[u8]),
    /// Inputs that lead it past the first check.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// Every target.
pub const TARGETS: &[Target] = &[
    Target { name: "control", run: control, seeds: control_seeds },
    Target { name: "relayed", run: relayed, seeds: relayed_seeds },
    Target { name: "descriptors", run: descriptors, seeds: || vec![SCHEMA.descriptor_set().to_vec()] },
    Target { name: "linear", run: linear, seeds: linear_seeds },
    Target { name: "transcode", run: transcode, seeds: wire_seeds },
    Target { name: "native", run: native, seeds: native_seeds },
    Target { name: "r2p2", run: r2p2::datagrams, seeds: r2p2::seeds },
    Target { name: "r2p2_seal", run: r2p2::seals, seeds: r2p2::seal_seeds },
    Target { name: "r2p2_envelope", run: r2p2::envelopes, seeds: r2p2::envelope_seeds },
    Target { name: "r2p2_events", run: r2p2::events, seeds: r2p2::event_seeds },
    Target { name: "r2p2_routed", run: routed::events, seeds: routed::event_seeds },
    Target { name: "entries", run: entries, seeds: || vec![vec![0; 64], vec![1; 64], vec![3; 128]] },
    Target { name: "metadata", run: metadata, seeds: metadata_seeds },
    Target { name: "config", run: config, seeds: || vec![Config::default().to_toml().into_bytes()] },
    Target { name: "policies", run: policies, seeds: policy_seeds },
    Target { name: "expression", run: expression, seeds: expression_seeds },
    Target { name: "modules", run: modules, seeds: module_seeds },
    Target { name: "endpoint", run: endpoint, seeds: endpoint_seeds },
    Target { name: "first", run: first, seeds: first_seeds },
    Target { name: "http2", run: http2, seeds: http2_seeds },
    Target { name: "http2_unix", run: http2_unix, seeds: http2_unix_seeds },
    Target { name: "grpc", run: grpc, seeds: grpc_seeds },
    Target { name: "service_config", run: service::config, seeds: service::config_seeds },
    Target { name: "load_report", run: service::load_report, seeds: service::load_report_seeds },
    Target { name: "target", run: service::target, seeds: service::target_seeds },
    Target { name: "r2p2_state", run: r2p2::states, seeds: r2p2::state_seeds },
    Target { name: "tls_records", run: tls::records, seeds: tls::seeds },
    Target { name: "tls_svid", run: tls::svid, seeds: tls::svid_seeds },
    Target { name: "engine_state", run: handover::state, seeds: handover::state_seeds },
    Target { name: "records", run: records, seeds: record_seeds },
    Target { name: "samples", run: samples::file, seeds: samples::file_seeds },
    Target { name: "sampled", run: sampled, seeds: wire_seeds },
    Target { name: "reflection", run: reflection, seeds: || vec![SCHEMA.descriptor_set().to_vec()] },
];

/// States of modules, which survive what they were read from; and files that claim to be modules.
fn modules(bytes: &[u8]) {
    if let Ok(exported) = trunkline_policy::decode_modules(bytes) {
        assert_eq!(trunkline_policy::encode_modules(&exported), bytes);
    }
    let _ = trunkline_module::check_elf(bytes);
}

fn module_seeds() -> Vec<Vec<u8>> {
    let state = trunkline_policy::ModuleState { format: 1, bytes: vec![7; 16] };
    let one = trunkline_policy::ExportedModule { policy: "limit".into(), module: "bucket".into(), state };
    let mut elf = b"\x7fELF\x02\x01\x01".to_vec();
    elf.resize(200, 0);
    (elf[16], elf[18], elf[32], elf[54], elf[56]) = (3, 62, 64, 56, 2);
    vec![trunkline_policy::encode_modules(&[one.clone(), one]), elf]
}

/// Files of records: what is read can be written, and is read again as it was.
fn records(bytes: &[u8]) {
    let mut reader = BlockReader::new(bytes);
    for block in reader.by_ref() {
        let written = block.encode();
        let mut again = BlockReader::new(&written);
        let counts = again.next().map(|block| (block.rows.len(), block.traces.len()));
        assert_eq!(counts, Some((block.rows.len(), block.traces.len())));
    }
    let mut fleet = Fleet::default();
    fleet.read(bytes);
    assert_eq!(fleet.faults, reader.faults);
    count_ancestors(&mut fleet);
    assert!(WholeTree::all(&fleet).len() <= fleet.traces.len());
}

fn record_seeds() -> Vec<Vec<u8>> {
    let head = BlockHead {
        ended_ns: 1 << 40,
        row_bytes: RecordedCall::BYTES,
        methods: vec![(0, "/a.B/C".into())],
        peers: vec![(0, "p".into())],
        ..BlockHead::default()
    };
    let mut row = vec![0; RecordedCall::BYTES];
    row[108..112].copy_from_slice(&1.0_f32.to_le_bytes());
    let rows: Vec<_> = RecordedCall::decode(&row).into_iter().collect();
    let ids = CallTrace { trace: 1, span: 2, attempt: 3, ..CallTrace::default() };
    let traces = vec![(0, RecordedTrace { ids, weight: 1.0, ..RecordedTrace::default() })];
    let block = RecordBlock { head, rows, traces }.encode();
    vec![block.clone(), [block.clone(), block].concat()]
}

/// Descriptor sets as reflection indexes them: whatever is found can be sent, and finds itself.
fn reflection(bytes: &[u8]) {
    let files = Files::of(bytes);
    let _ = files.by_symbol("fuzz.All.Mood");
    let Some(at) = files.by_symbol("fuzz.All").or_else(|| files.by_name("fuzz.proto")) else { return };
    let all = files.with_imports(at);
    assert!(all.iter().map(|file| file.bytes.len()).sum::<usize>() <= bytes.len(), "more than came");
}

/// A message of every kind of field, itself included.
static SCHEMA: LazyLock<Arc<Schema>> = LazyLock::new(|| {
    let text = r#"
        syntax = "proto3";
        package fuzz;
        enum Mood { CALM = 0; WILD = 7; }
        message All {
            bool a = 1; int32 b = 2; sint64 c = 3; fixed32 d = 4; double e = 5; string f = 6; bytes g = 7; Mood h = 8;
            All i = 9; repeated All j = 10; repeated string k = 11; repeated sint32 l = 12; map<string, All> m = 13;
            optional uint64 n = 14; oneof o { float p = 15; All q = 16; string r = 17; } repeated fixed64 s = 2000;
        }
        service Any { rpc One(All) returns (All); rpc Many(stream All) returns (stream All); }
    "#;
    Arc::new(Schema::from_proto_source("fuzz.proto", text).expect("the schema is sound"))
});

static TRANSCODER: LazyLock<Transcoder> = LazyLock::new(|| Transcoder::new(Arc::clone(&SCHEMA)));

fn root() -> MessageIndex {
    SCHEMA.message_named("fuzz.All").expect("it is there")
}

/// Files of policies.
fn policies(bytes: &[u8]) {
    let _ = Config::policies_from_toml(&String::from_utf8_lossy(bytes), "fuzz.toml");
}

fn policy_seeds() -> Vec<Vec<u8>> {
    let seeds = [
        "[[policy]]\nname = 'a'\nkind = 'access'\nside = 'client'\ndeny = 'request.f == \"x\"'\n",
        "[[policy]]\nname = 'b'\nkind = 'rate-limit'\nside = 'server'\ncalls_per_second = 5.0\nkey = 'request.f'\n",
        "[[policy]]\nname = 'c'\nkind = 'fault'\nside = 'server'\nservice = 'fuzz.Any'\npercent = 1.5\nabort = \
          'ABORTED'\n",
    ];
    seeds.iter().map(|seed| seed.as_bytes().to_vec()).collect()
}

/// An expression up to the first line break, then a message it is evaluated over, checked or not.
fn expression(bytes: &[u8]) {
    let (text, message) = bytes.split_at(bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len()));
    let message = message.get(1..).unwrap_or_default();
    let Ok(parsed) = Expression::parse(&String::from_utf8_lossy(text), Wanted::Bool) else { return };
    let Ok(program) = parsed.compile(Some((&SCHEMA, root()))) else { return };
    let Ok(buffer) = AlignedBuf::copied(message) else { return };
    let inputs = Inputs {
        request: View::root(buffer.bytes()),
        metadata: message,
        path: "/fuzz.Any/One",
        application: "fuzz",
        peer_identity: "",
        caller: None,
        peer_address: "",
        deadline: trunkline_call::Deadline::NONE,
        request_bytes: 0,
    };
    let _ = program.test(&inputs);
}

fn expression_seeds() -> Vec<Vec<u8>> {
    let seeds = [
        "request.f.startsWith('a') && request.l.exists(x, x > 3) || has(request.i.q)\n",
        "request.m['k'].b + 1 == 2 ? metadata['a'] == 'b' : request.h == Mood.WILD\n",
        "!(request.n in [1u, 2u]) && request.g != b'\\x00' && request.f.matches('^a+$')\n",
    ];
    linear_seeds()
        .into_iter()
        .zip(seeds.iter().cycle())
        .map(|(tail, seed)| [seed.as_bytes(), &tail].concat())
        .collect()
}

/// Frames of a relayed session, one after the other.
fn relayed(mut bytes: &[u8]) {
    while let Ok(Some((frame, length))) = trunkline_control::LinkFrame::parse(bytes) {
        let mut again = Vec::new();
        frame.encode(&mut again);
        assert_eq!(trunkline_control::LinkFrame::parse(&again).unwrap().unwrap().0, frame);
        bytes = &bytes[length..];
    }
}

fn relayed_seeds() -> Vec<Vec<u8>> {
    use trunkline_control::{LinkFrame, RelayHello};
    let mut bytes = Vec::new();
    for frame in [
        LinkFrame::Hello(RelayHello::new(7)),
        LinkFrame::Ping { sent_ns: 1 },
        LinkFrame::Packet { packet: b"packet", heap: true },
        LinkFrame::Blob(b"set"),
        LinkFrame::Bytes { offset: 64, bytes: b"message" },
        LinkFrame::Entry([1; 8]),
        LinkFrame::Pong { sent_ns: 1, clock_ns: 2 },
        LinkFrame::Close("over"),
    ] {
        frame.encode(&mut bytes);
    }
    vec![bytes]
}

/// Packets of the control socket, from either side.
fn control(bytes: &[u8]) {
    let _ = trunkline_control::decode_request(bytes);
    let _ = trunkline_control::decode_reply(bytes);
}

fn control_seeds() -> Vec<Vec<u8>> {
    vec![b"\x08\x01\x12\x04\x0a\x02ab".to_vec(), b"\x08\x01\x1a\x08\x0a\x02ab\x12\x02cd".to_vec()]
}

/// Descriptor sets of applications.
fn descriptors(bytes: &[u8]) {
    let Ok(schema) = Schema::from_descriptor_set(bytes) else { return };
    for index in 0..schema.messages().len() {
        let _ = schema.fingerprint(MessageIndex(index as u32));
    }
}

/// Linear extents: views of anything must not panic, and what passes the check can be read and encoded, and says to who
/// reads it as protobuf what it said before.
fn linear(bytes: &[u8]) {
    let mut buffer = AlignedBuf::default();
    if buffer.grow(bytes.len()).is_err() {
        return;
    }
    buffer.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
    let extent = &buffer.bytes()[..bytes.len()];
    let mut budget = 10_000;
    walk(DynamicView::root(&SCHEMA, root(), extent), &mut budget, 0);
    let mut wire = Vec::new();
    let encoded = TRANSCODER.encode(root(), extent, &mut wire);
    if check(&SCHEMA, root(), extent).is_ok() {
        encoded.expect("what passes the check can be encoded");
        let read = decoded(&wire).expect("what is encoded can be decoded");
        let mut again = Vec::new();
        TRANSCODER.encode(root(), &read, &mut again).expect("what is decoded can be encoded");
        assert_eq!(wire, again, "a reader finds in it what was there");
    }
}

fn linear_seeds() -> Vec<Vec<u8>> {
    let plain: Vec<_> = wire_seeds().iter().filter_map(|wire| decoded(wire)).collect();
    // Among the unknown fields: one that is, text that is declared, another member of the oneof, half a field.
    let runs = [&b"\xc0\x3e\x05"[..], b"\x32\x03red", b"\x8a\x01\x01x", b"\xca\x3e\x09a"];
    let with_runs = plain.iter().zip(runs.iter().cycle()).map(|(linear, run)| with_unknown(linear, run));
    plain.iter().cloned().chain(with_runs).collect()
}

/// The message with `run` for its root's unknown bytes.
fn with_unknown(linear: &[u8], run: &[u8]) -> Vec<u8> {
    let mut out = linear.to_vec();
    out.resize(out.len().next_multiple_of(4), 0);
    let at = out.len() as u32;
    out.extend_from_slice(&(run.len() as u32).to_le_bytes());
    out.extend_from_slice(run);
    let total = out.len() as u32;
    out[4..8].copy_from_slice(&total.to_le_bytes());
    out[24..28].copy_from_slice(&at.to_le_bytes());
    out
}

fn decoded(wire: &[u8]) -> Option<Vec<u8>> {
    let mut buffer = AlignedBuf::default();
    let len = TRANSCODER.decode(root(), wire, &mut buffer, &Default::default()).ok()?;
    Some(buffer.bytes()[..len].to_vec())
}

fn walk(view: DynamicView<'_>, budget: &mut u32, depth: u32) {
    for (_, value) in view.fields() {
        visit(value, budget, depth);
    }
    std::hint::black_box(view.unknown().len());
}

fn visit(value: Value<'_>, budget: &mut u32, depth: u32) {
    if *budget == 0 || depth > 200 {
        return;
    }
    *budget -= 1;
    match value {
        Value::Message(view) => walk(view, budget, depth + 1),
        Value::List(list) => {
            for value in list.iter().take(*budget as usize) {
                visit(value, budget, depth + 1);
            }
        }
        Value::String(bytes) | Value::Bytes(bytes) => drop(std::hint::black_box(bytes.last().copied())),
        _ => {}
    }
}

/// Protobuf: what is decoded passes the check, is encoded, and decodes to the same again.
fn transcode(wire: &[u8]) {
    let Some(first) = decoded(wire) else { return };
    let mut aligned = AlignedBuf::default();
    aligned.grow(first.len()).expect("it fitted before");
    aligned.bytes_mut()[..first.len()].copy_from_slice(&first);
    let extent = &aligned.bytes()[..first.len()];
    check(&SCHEMA, root(), extent).expect("what is decoded is sound");
    let mut again = Vec::new();
    TRANSCODER.encode(root(), extent, &mut again).expect("what is decoded can be encoded");
    let second = decoded(&again).expect("what is encoded can be decoded");
    let mut third = Vec::new();
    TRANSCODER.decode(root(), &again, &mut aligned, &Default::default()).expect("as before");
    TRANSCODER.encode(root(), &aligned.bytes()[..second.len()], &mut third).expect("as before");
    assert_eq!(again, third, "encoding settles after one round");
}

fn wire_seeds() -> Vec<Vec<u8>> {
    let inner = b"\x08\x01\x10\x96\x01\x18\x03\x32\x05hello\x3a\x03\x00\x01\x02\x40\x07".to_vec();
    let nested = [&[0x4a, inner.len() as u8][..], &inner, &[0x52, inner.len() as u8], &inner].concat();
    let lists =
        b"\x5a\x01a\x5a\x00\x62\x03\x01\x02\x03\x60\x05\x82\x7d\x08\x01\x02\x03\x04\x05\x06\x07\x08".to_vec();
    let map = [&[0x6a, inner.len() as u8 + 5][..], b"\x0a\x01k\x12", &[inner.len() as u8], &inner].concat();
    let choice = b"\x7d\x00\x00\x80\x3f\x8a\x01\x02hi\x70\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01".to_vec();
    let unknown = b"\xc0\x3e\x05\xca\x3e\x02ab\xd3\x3e\x08\x01\xd4\x3e".to_vec();
    vec![Vec::new(), inner, nested, lists, map, choice, unknown]
}

/// Messages of calls that are kept.
fn sampled(message: &[u8]) {
    samples::messages_of(&SCHEMA, root(), message);
}

/// The native protocol, with a peer that at least said hello, and offers callers or not.
fn native(bytes: &[u8]) {
    native_with(Features::default(), bytes);
    native_with(Features::CALLERS, bytes);
}

fn native_with(features: Features, bytes: &[u8]) {
    let now = Instant(1_000);
    let config = Arc::new(trunkline_native::Config { features, ..trunkline_native::Config::default() });
    let mut server = Connection::new(Side::Acceptor, Arc::clone(&config), now);
    let mut rest = bytes;
    for piece in [hello(config), announced()] {
        feed(&mut server, &piece, now);
    }
    // In two pieces, so that frames are cut as well.
    let (head, tail) = rest.split_at(rest.len() / 2);
    if feed(&mut server, head, now) {
        rest = tail;
        feed(&mut server, rest, now);
    }
    let _ = server.handle_timeout(Instant(u64::MAX / 2));
    let sent: usize = server.poll_transmit(now, 1 << 20).count();
    std::hint::black_box(sent);
}

/// Whether the connection goes on.
fn feed(connection: &mut Connection, bytes: &[u8], now: Instant) -> bool {
    let mut buffer = vec![0; INPUT_BYTES_MIN + bytes.len()];
    let start = connection.resume(&mut buffer);
    buffer[start..start + bytes.len()].copy_from_slice(bytes);
    let mut input = Input::new(&buffer[..start + bytes.len()]);
    loop {
        match connection.handle_bytes(now, &mut input) {
            Ok(Some(_)) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

/// What a client says first.
fn hello(config: Arc<trunkline_native::Config>) -> Vec<u8> {
    let mut client = Connection::new(Side::Initiator, config, Instant(1_000));
    let mut out = Vec::new();
    for chunk in client.poll_transmit(Instant(1_000), 1 << 20) {
        if let trunkline_native::Chunk::Bytes(bytes) = chunk {
            out.extend_from_slice(bytes);
        }
    }
    out
}

fn frame(kind: u8, flags: u8, code: u16, stream: u32, body: &[u8]) -> Vec<u8> {
    let mut out = b"TRK1".to_vec();
    out.extend([kind, flags]);
    out.extend(code.to_le_bytes());
    out.extend(stream.to_le_bytes());
    out.extend((body.len() as u32).to_le_bytes());
    out.extend(body);
    out
}

/// A method announced, so that calls can be made.
fn announced() -> Vec<u8> {
    frame(trunkline_native::FrameType::Schema as u8, 0, 0, 0, &[&[1; 16][..], b"/fuzz.Any/One"].concat())
}

fn native_seeds() -> Vec<Vec<u8>> {
    let every = (0..24).flat_map(|kind| frame(kind, 0, 0, 1, &[0; 8]));
    let call = frame(trunkline_native::FrameType::Call as u8, 0x43, 0, 1, b"\x08\x01");
    let ping = frame(trunkline_native::FrameType::Ping as u8, 0, 0, 0, &[7; 8]);
    let named = [&4_u16.to_le_bytes()[..], &[2, 0, 0, 0, 1, 0], b"uid:ab\x03\0a.B"].concat();
    let caller = frame(trunkline_native::FrameType::Caller as u8, 0, 1, 0, &named);
    let by_caller = frame(trunkline_native::FrameType::Call as u8, 0x43, 0, 1, b"\x01\0\0\0\x08\x01");
    vec![every.collect(), [call.clone(), ping.clone(), call].concat(), ping, [caller, by_caller].concat()]
}

/// Ring entries, 64 bytes each: what decodes encodes to something that decodes to the same.
fn entries(bytes: &[u8]) {
    for chunk in bytes.chunks_exact(64) {
        let mut entry: Entry = [0; 8];
        for (word, bytes) in entry.iter_mut().zip(chunk.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().expect("eight"));
        }
        if let Ok(submission) = Submission::decode(&entry) {
            assert_eq!(Submission::decode(&submission.encode()), Ok(submission));
        }
        if let Ok(completion) = Completion::decode(&entry) {
            assert_eq!(Completion::decode(&completion.encode()), Ok(completion));
        }
    }
}

/// Metadata: what decodes encodes to the same bytes. What names a trace is read as it is written.
fn metadata(bytes: &[u8]) {
    if let Some(parent) = std::str::from_utf8(bytes).ok().and_then(TraceParent::parse) {
        assert_eq!(TraceParent::parse(&parent.to_string()), Some(parent));
    }
    if let Ok(metadata) = Metadata::decode(bytes) {
        let mut again = Vec::new();
        metadata.encode(&mut again);
        assert_eq!(Metadata::decode(&again).as_ref(), Ok(&metadata));
    }
    if let Some(trailer) = bytes.first_chunk() {
        std::hint::black_box(ServerStamps::decode(trailer));
    }
}

fn metadata_seeds() -> Vec<Vec<u8>> {
    let mut metadata = Metadata::new();
    for (key, value) in [("grpc-message", &b"100%25 gone"[..]), ("a-bin", &[0, 255]), ("tenant", b"blue")] {
        metadata.insert(key, value).expect("it is sound");
    }
    let mut bytes = Vec::new();
    metadata.encode(&mut bytes);
    vec![bytes, b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_vec()]
}

/// Configuration files: what is taken can be written, and is taken again.
fn config(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match Config::from_toml(text, "fuzz") {
        Ok(config) => assert_eq!(Config::from_toml(&config.to_toml(), "again").ok(), Some(config)),
        Err(error) => assert!(error.to_string().starts_with("fuzz")),
    }
}

/// Addresses: what is taken can be written, and is taken again.
fn endpoint(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(endpoint) = text.parse::<Endpoint>() {
        assert_eq!(endpoint.to_string().parse::<Endpoint>().ok(), Some(endpoint));
    }
}

/// What an accepted connection says first.
fn first(bytes: &[u8]) {
    let _ = First::of(bytes, b"TRK1");
}

fn first_seeds() -> Vec<Vec<u8>> {
    ["TRK1", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\u{16}\u{3}\u{1}", "GET / HTTP/1.1\r\n"]
        .map(Vec::from)
        .into()
}

static LISTENER: LazyLock<Listener> = LazyLock::new(|| {
    let endpoint = "tcp://127.0.0.1:0".parse().expect("an address");
    Listener::bind(&endpoint, false).expect("a free port")
});

static UNIX_LISTENER: LazyLock<Listener> = LazyLock::new(|| {
    let endpoint =
        format!("unix-abstract:trunkline-fuzz-{}", std::process::id()).parse().expect("an address");
    Listener::bind(&endpoint, false).expect("nobody else has it")
});

/// What a client says on an HTTP/2 connection: read until it is over, or all of it is.
fn http2(bytes: &[u8]) {
    http2_at(&LISTENER, bytes);
}

/// The same where a path is taken for an authority.
fn http2_unix(bytes: &[u8]) {
    http2_at(&UNIX_LISTENER, bytes);
}

fn http2_at(listener: &Listener, bytes: &[u8]) {
    let Ok(stream) = Stream::connect(listener.endpoint()) else { return };
    // Taken off the queue and closed: the bytes come from here.
    let _ = listener.accept();
    let settings = Http2Settings { unfinished_ns_max: 1, ..Http2Settings::server() };
    let mut said = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    said.extend_from_slice(bytes);
    let mut connection = Http2::server(stream, Arc::new(settings), Instant(0), &said, 0);
    let (mut buffers, mut events) = (Buffers::new(), Vec::new());
    for at in 0..16 {
        if !matches!(connection.turn(Instant(at), &mut buffers, &mut events), State::More) {
            break;
        }
    }
}

/// SETTINGS; a request with a body; a window, a ping, a reset.
fn http2_seeds() -> Vec<Vec<u8>> {
    let mut call = b"\0\0\0\x04\0\0\0\0\0".to_vec();
    call.extend(b"\0\0\x15\x01\x04\0\0\0\x01\x83\x86\x44\x06/a.B/C\x41\x09localhost");
    call.extend(b"\0\0\x05\0\x01\0\0\0\x01\0\0\0\0\0");
    let mut rest = call.clone();
    rest.extend(b"\0\0\x04\x08\0\0\0\0\0\0\0\0\x01\0\0\x08\x06\0\0\0\0\0pingping");
    rest.extend(b"\0\0\x04\x03\0\0\0\0\x01\0\0\0\x08");
    vec![call, rest]
}

/// The same call to a path, as it is and in Huffman's code, in one frame and in two.
fn http2_unix_seeds() -> Vec<Vec<u8>> {
    let plain = b"\0\0\0\x04\0\0\0\0\0\0\0\x14\x01\x05\0\0\0\x01\x83\x86\x44\x06/a.B/C\x41\x08tmp%2Fx.";
    let mut coded = b"\0\0\0\x04\0\0\0\0\0\0\0\x19\x01\x0d\0\0\0\x01\x01\x83\x86\x44\x06/a.B/C".to_vec();
    coded.extend(b"\x40\x88\xb8\x3b\x53\x39\xec\x32\x7d\x7f\x82\x54\x7f%");
    let mut cut = b"\0\0\0\x04\0\0\0\0\0\0\0\x0d\x01\x01\0\0\0\x01\x83\x86\x44\x06/a.B/C\x41\x08t".to_vec();
    cut.extend(b"\0\0\x07\x09\x04\0\0\0\x01%2Fx/y ");
    vec![plain.to_vec(), coded, cut]
}

fn endpoint_seeds() -> Vec<Vec<u8>> {
    [
        "tcp://127.0.0.1:80",
        "tcp://[::1]:7878",
        "tcp://host.example:1",
        "unix:/run/x.sock",
        "tls://a.b@[::1]:1",
    ]
    .map(Vec::from)
    .into()
}

/// gRPC's heads and bodies: lines of a head, an empty line, a body that comes in two pieces.
fn grpc(bytes: &[u8]) {
    let end = bytes.windows(2).position(|pair| pair == b"\n\n").map_or(bytes.len(), |at| at + 1);
    let (head, body) = (&bytes[..end], bytes.get(end + 1..).unwrap_or_default());
    let headers: HeaderMap = head.split(|byte| *byte == b'\n').filter_map(header).take(64).collect();
    let limits = trunkline_grpc::Limits::default();
    let encoding = grpc_heads(&headers, &limits);
    std::hint::black_box(response::parse_trailers(&headers, &limits));
    let mut deframer = Deframer::new(1 << 16);
    for piece in [&body[..body.len() / 3], &body[body.len() / 3..]] {
        deframer.push(Bytes::copy_from_slice(piece));
        while let Ok(Some(framed)) = deframer.next() {
            let mut out = Vec::new();
            let sound = decompress(encoding, &framed.bytes, 1 << 16, &mut out).is_ok();
            assert!(out.len() <= 1 << 16 && (sound || out.is_empty()));
        }
        assert!(deframer.held() <= body.len());
    }
    let _ = deframer.finish();
}

/// What is read of a head is metadata that can be written, and written metadata can be read.
fn grpc_heads(headers: &HeaderMap, limits: &trunkline_grpc::Limits) -> Encoding {
    let (mut asked, ()) = http::Request::post("/a.B/C").body(()).expect("it is sound").into_parts();
    asked.headers = headers.clone();
    let (mut answer, ()) = http::Response::new(()).into_parts();
    answer.headers = headers.clone();
    if let response::ResponseHead::Ended(outcome) = response::parse(&answer, true, limits) {
        let again = response::parse_trailers(&response::trailers(&outcome), limits);
        assert_eq!(again.code, outcome.code);
    }
    let Ok(read) = request::parse(&asked, limits) else { return Encoding::Gzip };
    Metadata::decode(&read.metadata).expect("what is read can be read again");
    read.encoding
}

fn header(line: &[u8]) -> Option<(HeaderName, HeaderValue)> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let name = HeaderName::from_bytes(&line[..colon]).ok()?;
    Some((name, HeaderValue::from_bytes(&line[colon + 1..]).ok()?))
}

fn grpc_seeds() -> Vec<Vec<u8>> {
    let call = "content-type:application/grpc+proto\nte:trailers\ngrpc-timeout:12345678u\n\
                grpc-accept-encoding:identity,zstd\nuser-agent:x\nk-bin:AAEC,Aw==\ntenant:blue\n\
                grpc-trace-bin:AABAQUJDREVGR0hJSktMTU5PAWFiY2RlZmdoAgE\n";
    let end = "content-type:application/grpc\ngrpc-status:13\ngrpc-message:50%25 %C3%A4\n\
               grpc-status-details-bin:CA0SAQ\nendpoint-load-metrics-bin:CQA\ngrpc-retry-pushback-ms:10\n";
    let seed = |encoding: Encoding| {
        let mut message = Vec::new();
        compress(encoding, &b"eleven bytes".repeat(20), &mut message).expect("there is memory");
        let flag = u8::from(encoding != Encoding::Identity);
        let prefix = [&[flag][..], &(message.len() as u32).to_be_bytes()].concat();
        let name = format!("{call}grpc-encoding:{}\n\n", encoding.name());
        [name.as_bytes(), &prefix, &message, &prefix, &message].concat()
    };
    Encoding::ALL.into_iter().map(seed).chain([end.into()]).collect()
}
