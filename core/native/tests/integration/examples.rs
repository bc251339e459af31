//! Shows that the worked examples of docs/native-protocol.md are what the code writes, and that it reads them.

use crate::pair;
use pair::*;
use std::collections::BTreeMap;
use trunkline_call::{Code, Deadline, Encoding, Execution, Instant, Metadata, ServerStamps};
use trunkline_native::*;

const PAGE: &str = include_str!("../../../../docs/native-protocol.md");

/// The fenced `hex` blocks of the page by name; `#` begins a comment.
fn examples() -> BTreeMap<&'static str, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut lines = PAGE.lines();
    while let Some(line) = lines.next() {
        let Some(name) = line.strip_prefix("```hex ") else { continue };
        let block: Vec<_> = lines.by_ref().take_while(|line| !line.starts_with("```")).collect();
        let digits: String =
            block.iter().flat_map(|line| line.split('#').next()).flat_map(str::split_whitespace).collect();
        let bytes = (0..digits.len()).step_by(2).map(|i| u8::from_str_radix(&digits[i..i + 2], 16).unwrap());
        assert!(found.insert(name, bytes.collect()).is_none(), "two examples named {name}");
    }
    found
}

fn protobuf(bytes: &[u8]) -> Payload<'_> {
    Payload { encoding: Encoding::Protobuf, body: Body::Inline(bytes) }
}

/// Everything both sides of the page's example write, by the example's name, in the order of the page.
fn written() -> Vec<(&'static str, Vec<u8>)> {
    let north = Config { node_name: "north".into(), clock_id: 0x1122_3344_5566_7788, ..Config::default() };
    let south = Config { node_name: "south".into(), ..north.clone() };
    let mut pair = Pair::new(north, south);
    let mut out = vec![("hello", pair.north.write(1000))];
    pair.south.read(&out[0].1).unwrap();
    pair.settle();

    let north = &mut pair.north.connection;
    let method =
        north.announce_schema("/greeter.v1.Greeter/SayHello", 0x0a0b_0c0d_0e0f_1011, 0x2122_2324_2526_2728);
    let method = method.unwrap();
    out.push(("schema", pair.north.write(1000)));
    pair.south.read(&out.last().unwrap().1).unwrap();
    let south = &mut pair.south.connection;
    south.answer_schema(method, true, 0x0a0b_0c0d_0e0f_1011, 0x2122_2324_2526_2728).unwrap();
    out.push(("schema-ack", pair.south.write(1000)));
    pair.north.read(&out.last().unwrap().1).unwrap();

    out.extend(unary_call(&mut pair));
    out.extend(stream(&mut pair));
    out.extend(long_message(&mut pair));
    out.extend(of_the_connection(&mut pair));
    let mut sealed = Pair::established(&checked());
    sealed.north.connection.ping(0x0807_0605_0403_0201);
    out.push(("ping-checksum", sealed.north.write(1000)));
    out.extend(caller());
    out
}

fn caller() -> Vec<(&'static str, Vec<u8>)> {
    let mut pair = Pair::established(&naming());
    let number = pair.north.connection.announce_caller(&till(), None).unwrap();
    let named = pair.north.write(1000);
    pair.south.read(&named).unwrap();
    let call = NewCall { caller: Some(number), ..unary(1) };
    pair.north.connection.open_call(NOW, &call, Some(protobuf(b"\x08\x01"))).unwrap();
    let call = pair.north.write(1000);
    pair.south.read(&call).unwrap();
    vec![("caller", named), ("call-of-a-caller", call)]
}

fn unary_call(pair: &mut Pair) -> Vec<(&'static str, Vec<u8>)> {
    let call = NewCall { deadline: Deadline::at(NOW.plus_ns(1_000_000_000)), stamps: true, ..unary(1) };
    let hello = Payload { encoding: Encoding::Protobuf, body: Body::Inline(b"\x0a\x05world") };
    let stream = pair.north.connection.open_call(NOW, &call, Some(hello)).unwrap();
    let call = pair.north.write(1000);
    pair.south.read(&call).unwrap();
    let at = |us: u64| Instant(5_000_000_000 + us * 1000);
    let stamps = ServerStamps {
        k7: at(0),
        d8: at(1),
        d9: at(3),
        a10: at(8),
        a11: at(58),
        d12: at(60),
        wait_ns: 0,
        k14: at(62),
        subtree: 1,
        cpu_ns: 45_000,
    };
    let outcome = Outcome { trailer: Some(&stamps.encode()), metadata: &[] };
    pair.south.connection.send_result(NOW, stream, &outcome, Some(protobuf(b"\x0a\x06hello!"))).unwrap();
    let result = pair.south.write_at(stamps.k14, 1000);
    pair.north.read(&result).unwrap();
    vec![("call", call), ("result", result)]
}

fn stream(pair: &mut Pair) -> Vec<(&'static str, Vec<u8>)> {
    let mut metadata = Vec::new();
    let mut pairs = Metadata::new();
    pairs.insert("tenant", "a").unwrap();
    pairs.encode(&mut metadata);
    let call = NewCall { end: false, metadata: &metadata, ..unary(2) };
    let stream = pair.north.connection.open_call(NOW, &call, None).unwrap();
    let opened = pair.north.write(1000);
    pair.north.connection.send_message(NOW, stream, protobuf(b"\x08\x01"), false).unwrap();
    let message = pair.north.write(1000);
    pair.north.connection.half_close(NOW, stream).unwrap();
    let half_close = pair.north.write(1000);
    pair.south.read(&[&opened[..], &message, &half_close].concat()).unwrap();
    let mut reason = Vec::new();
    let mut pairs = Metadata::new();
    pairs.insert("grpc-message", "no such user").unwrap();
    pairs.encode(&mut reason);
    let failure =
        Failure { code: Code::NotFound, execution: Execution::Executed, metadata: &reason, trailer: None };
    pair.south.connection.send_error(NOW, stream, &failure).unwrap();
    let error = pair.south.write(1000);
    pair.north.read(&error).unwrap();
    vec![("call-stream", opened), ("message", message), ("half-close", half_close), ("error", error)]
}

fn long_message(pair: &mut Pair) -> Vec<(&'static str, Vec<u8>)> {
    let body = pair.north.share(9, &pattern(70_000, 0));
    let long = Payload { encoding: Encoding::Protobuf, body };
    let stream = pair.north.connection.open_call(NOW, &unary(3), Some(long)).unwrap();
    let mut bytes = pair.north.write(1 << 20);
    let second = bytes.split_off(20 + 16 + 65_536);
    let first = bytes.split_off(20);
    pair.north.connection.cancel(NOW, stream, Code::Cancelled).unwrap();
    let cancel = pair.north.write(1000);
    pair.south.read(&[&bytes[..], &first, &second, &cancel].concat()).unwrap();
    pair.south.connection.grant(stream, 1);
    vec![
        ("cut-head", bytes),
        ("segment-1-header", first[..16].to_vec()),
        ("segment-2-header", second[..16].to_vec()),
        ("cancel", cancel),
    ]
}

fn of_the_connection(pair: &mut Pair) -> Vec<(&'static str, Vec<u8>)> {
    let call = NewCall { end: false, ..unary(4) };
    let stream = pair.north.connection.open_call(NOW, &call, None).unwrap();
    let opened = pair.north.write(1000);
    pair.south.read(&opened).unwrap();
    pair.south.connection.grant(stream, 262_144);
    let window = pair.south.write(1000);
    pair.south.connection.ping(0x0807_0605_0403_0201);
    let ping = pair.south.write(1000);
    pair.north.read(&[&window[..], &ping].concat()).unwrap();
    let pong = pair.north.write(1000);
    pair.south.connection.go_away(NOW, Code::Unavailable);
    let go_away = pair.south.write(1000);
    pair.south.connection.close(Code::Unavailable, "upgrade");
    let close = pair.south.write(1000);
    pair.south.read(&pong).unwrap_err();
    pair.north.read(&[&go_away[..], &close].concat()).unwrap_err();
    vec![("window", window), ("ping", ping), ("pong", pong), ("go-away", go_away), ("close", close)]
}

#[test]
fn the_page_shows_what_the_code_writes() {
    let mut examples = examples();
    for (name, bytes) in written() {
        let example = examples.remove(name).unwrap_or_default();
        assert_eq!(hex(&example), hex(&bytes), "example {name}");
    }
    assert!(examples.is_empty(), "examples nothing writes: {:?}", examples.keys());
}

#[test]
fn the_page_lists_the_types_and_flags_the_code_has() {
    const FLAGS: [&str; 8] =
        ["END", "PROTOBUF", "DEADLINE", "STAMPS", "METADATA", "TOTAL", "MESSAGE", "CHECKSUM"];
    for frame in FrameType::ALL {
        let is_allowed = |bit: &usize| frame.flags_allowed() & (1 << bit) != 0;
        // CHECKSUM is on every type but HELLO, so the page does not repeat it.
        let flags: Vec<_> = (0..7).filter(is_allowed).map(|bit| FLAGS[bit]).collect();
        let row = format!("| {} | {} | {}", frame as u8, frame.name(), flags.join(" "));
        let found = PAGE.lines().any(|line| line.starts_with(row.trim_end()));
        assert!(found, "the page has no row {row:?}");
    }
    for (bit, name) in FLAGS.iter().enumerate() {
        let row = format!("| 0x{:02x} | {name} |", 1 << bit);
        assert!(PAGE.lines().any(|line| line.starts_with(&row)), "the page has no row {row:?}");
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}
