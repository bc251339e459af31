//! `tests/data/shapes/shapes.proto` for prost, by hand: the peer that is always there.

/// As in shapes.proto.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Small {
    #[prost(message, optional, tag = "1")]
    route: Option<Route>,
    #[prost(message, optional, tag = "2")]
    window: Option<Window>,
    #[prost(message, optional, tag = "3")]
    health: Option<Health>,
    #[prost(int32, tag = "4")]
    phase: i32,
    #[prost(int32, tag = "5")]
    wanted: i32,
    #[prost(bool, tag = "6")]
    sticky: bool,
    #[prost(fixed64, tag = "7")]
    trace_id: u64,
    #[prost(fixed64, tag = "8")]
    span_id: u64,
    #[prost(string, tag = "9")]
    summary: String,
    #[prost(string, tag = "10")]
    detail: String,
    #[prost(string, tag = "11")]
    owner: String,
    #[prost(int32, tag = "16")]
    zone: i32,
    #[prost(int32, tag = "17")]
    rank: i32,
    #[prost(int64, tag = "18")]
    created: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Route {
    #[prost(uint64, tag = "1")]
    hop: u64,
    #[prost(int32, tag = "2")]
    cost: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Window {
    #[prost(int32, tag = "1")]
    width: i32,
    #[prost(int32, repeated, packed = "false", tag = "2")]
    mark: Vec<i32>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Health {
    #[prost(uint64, tag = "1")]
    seen: u64,
    #[prost(int64, tag = "2")]
    drift: i64,
    #[prost(int32, tag = "3")]
    misses: i32,
    #[prost(bool, tag = "4")]
    alive: bool,
    #[prost(bool, tag = "5")]
    fresh: bool,
}

/// As in shapes.proto.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Medium {
    #[prost(message, optional, tag = "1")]
    node: Option<Node>,
    #[prost(fixed64, tag = "2")]
    version: u64,
    #[prost(int32, tag = "3")]
    phase: i32,
    #[prost(bytes = "vec", tag = "4")]
    body: Vec<u8>,
    #[prost(double, tag = "5")]
    weight: f64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Node {
    #[prost(string, tag = "1")]
    title: String,
    #[prost(message, optional, tag = "2")]
    down: Option<Branch>,
    #[prost(int32, tag = "3")]
    left: i32,
    #[prost(int32, tag = "4")]
    right: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Branch {
    #[prost(message, optional, tag = "1")]
    tip: Option<Tip>,
    #[prost(bool, tag = "2")]
    open: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Tip {
    #[prost(int32, tag = "1")]
    size: i32,
    #[prost(string, tag = "2")]
    mark: String,
    #[prost(bool, tag = "3")]
    dirty: bool,
}

/// As in shapes.proto.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Large {
    #[prost(message, optional, tag = "1")]
    part: Option<Part>,
    #[prost(message, optional, tag = "2")]
    frame: Option<Frame>,
    #[prost(message, optional, tag = "3")]
    up: Option<Count>,
    #[prost(message, optional, tag = "4")]
    down: Option<Count>,
    #[prost(int32, tag = "5")]
    from: i32,
    #[prost(int32, tag = "6")]
    to: i32,
    #[prost(string, tag = "7")]
    path: String,
    #[prost(int32, tag = "8")]
    a: i32,
    #[prost(int32, tag = "9")]
    b: i32,
    #[prost(int32, tag = "10")]
    c: i32,
    #[prost(int32, tag = "16")]
    d: i32,
    #[prost(int32, tag = "17")]
    e: i32,
    #[prost(int64, tag = "18")]
    f: i64,
    #[prost(uint64, tag = "19")]
    g: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Count {
    #[prost(uint64, tag = "1")]
    n: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Part {
    #[prost(bytes = "vec", tag = "1")]
    data: Vec<u8>,
    #[prost(uint64, tag = "2")]
    crc: u64,
    #[prost(uint32, tag = "3")]
    flags: u32,
    #[prost(int32, tag = "4")]
    seq: i32,
    #[prost(int32, tag = "5")]
    total: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Frame {
    #[prost(message, optional, tag = "1")]
    layer: Option<Layer>,
    #[prost(float, tag = "2")]
    scale: f32,
    #[prost(float, tag = "3")]
    angle: f32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Layer {
    #[prost(message, optional, tag = "1")]
    group: Option<Group>,
    #[prost(int32, tag = "2")]
    phase: i32,
    #[prost(int64, tag = "3")]
    from: i64,
    #[prost(int64, tag = "4")]
    until: i64,
    #[prost(int32, tag = "5")]
    w: i32,
    #[prost(int32, tag = "6")]
    h: i32,
    #[prost(int32, tag = "7")]
    d: i32,
    #[prost(int32, tag = "8")]
    z: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Group {
    #[prost(message, optional, tag = "1")]
    cell: Option<Cell>,
    #[prost(string, tag = "2")]
    label: String,
    #[prost(int32, tag = "3")]
    order: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Cell {
    #[prost(message, optional, tag = "1")]
    leaf: Option<Leaf>,
    #[prost(int32, tag = "2")]
    slot: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Leaf {
    #[prost(bytes = "vec", tag = "1")]
    pixels: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    thumb: Vec<u8>,
    #[prost(string, repeated, tag = "3")]
    lines: Vec<String>,
    #[prost(string, tag = "4")]
    author: String,
    #[prost(string, tag = "5")]
    license: String,
    #[prost(uint64, tag = "6")]
    id: u64,
    #[prost(int32, tag = "7")]
    kind: i32,
    #[prost(int32, tag = "8")]
    depth: i32,
    #[prost(float, tag = "9")]
    gamma: f32,
    #[prost(float, tag = "10")]
    gain: f32,
}

/// As in shapes.proto.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Deep {
    #[prost(int32, tag = "1")]
    a: i32,
    #[prost(int64, tag = "2")]
    b: i64,
    #[prost(uint32, tag = "3")]
    c: u32,
    #[prost(bool, tag = "4")]
    d: bool,
    #[prost(float, tag = "5")]
    e: f32,
    #[prost(string, tag = "6")]
    s: String,
    #[prost(int32, repeated, packed = "false", tag = "7")]
    r: Vec<i32>,
    #[prost(message, optional, tag = "8")]
    side: Option<Side>,
    #[prost(message, optional, boxed, tag = "9")]
    next: Option<Box<Deep>>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Side {
    #[prost(int32, tag = "1")]
    a: i32,
    #[prost(uint64, tag = "2")]
    b: u64,
    #[prost(string, tag = "3")]
    s: String,
    #[prost(bool, tag = "4")]
    d: bool,
    #[prost(int32, repeated, packed = "false", tag = "5")]
    r: Vec<i32>,
}
