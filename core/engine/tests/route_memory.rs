//! Shows that policies cost a route no memory of its own: what a chain is compiled to is there once, however many
//! methods a session binds, and whether they are bound before the chain is applied or after.

mod world;

use std::sync::Arc;
use trunkline_engine::{BindRequest, BoundSchema, Limits};
use trunkline_policy::{Chain, Definition, Kind, Side};
use trunkline_schema::Schema;
use world::World;

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

const METHODS: usize = 2000;
/// What ten policies are compiled to, once for each side, with the places of their names in tables.
const CHAIN_BYTES: usize = 100 << 10;

/// Ordinary conditions, one in five with a pattern.
fn policies() -> Chain {
    let policy = |index: usize| {
        let side = if index.is_multiple_of(2) { Side::Client } else { Side::Server };
        let deny = match index % 5 {
            0 => format!("metadata.tenant.matches('^test-[0-9]+{index}$')"),
            _ => format!("has(metadata.tenant) && metadata.tenant == 't{index}' && method != 'M{index}'"),
        };
        Definition {
            name: format!("p{index}"),
            kind: Kind::Access,
            side,
            deny: Some(deny),
            ..Definition::default()
        }
    };
    Chain::build(&(0..10).map(policy).collect::<Vec<_>>()).unwrap()
}

#[test]
fn policies_take_no_memory_for_each_route() {
    let methods: String = (0..METHODS).map(|i| format!("rpc M{i}(M) returns (M);")).collect();
    let text =
        format!("syntax = \"proto3\"; package s; message M {{ string a = 1; }} service S {{ {methods} }}");
    let schema = Arc::new(BoundSchema::new(Schema::from_proto_source("s.proto", &text).unwrap()));
    let calls: Vec<_> = (0..METHODS).map(|i| (format!("/s.S/M{i}"), None)).collect();
    let (serves, none) = ([String::from("s.S")], []);

    let profiler = dhat::Profiler::builder().testing().build();
    let bytes = || dhat::HeapStats::get().curr_bytes;
    let limits = || Limits { routes_per_session: 2 * METHODS, ..Limits::default() };
    let mut taken = Vec::new();
    for [before, after] in [[false, false], [true, false], [false, true]] {
        let mut world = World::with_limits(limits());
        let engine = &mut world.hosts[0].engine;
        let from = bytes();
        if before {
            engine.apply_policies(policies()).unwrap();
        }
        let session = engine.attach("a[1]".into(), 0);
        let request = BindRequest { schema: Some(&schema), serves: &serves, calls: &calls, permitted: &none };
        engine.bind(session, &request).unwrap();
        if after {
            engine.apply_policies(policies()).unwrap();
        }
        taken.push(bytes() - from);
    }
    drop(profiler);
    println!(
        "bytes for {METHODS} methods called and served, without policies, with them before, and after: {taken:?}"
    );
    assert!(taken[1..].iter().all(|bytes| *bytes < taken[0] + CHAIN_BYTES), "{taken:?}");
}
