//! States of engines that were handed over.

use std::sync::{Arc, LazyLock};
use trunkline_engine::{BindRequest, BoundSchema, Engine, Exported, Limits, export_state, take_over};
use trunkline_schema::Schema;

const PROTO: &str = "syntax = \"proto3\"; package f; message M { string a = 1; } \
     service S { rpc C(M) returns (M); rpc D(stream M) returns (stream M); }";

/// An engine with a session that serves and calls.
static EXPORTED: LazyLock<Exported> = LazyLock::new(|| {
    let schema = Schema::from_proto_source("f.proto", PROTO).expect("it is good");
    let schema = Arc::new(BoundSchema::new(schema));
    let mut engine = fresh();
    let session = engine.attach("fuzz[1]".into(), 1 << 20);
    let calls = [("/f.S/C".to_owned(), Some("tcp://127.0.0.1:1".to_owned())), ("/f.S/D".to_owned(), None)];
    let request =
        BindRequest { schema: Some(&schema), serves: &["f.S".to_owned()], calls: &calls, permitted: &[] };
    engine.bind(session, &request).expect("it defines all of it");
    export_state(&engine).expect("it can be written")
});

fn fresh() -> Engine {
    Engine::new(Limits::default(), "fuzz", 1)
}

/// A state is read or refused; what is read can be looked at and written again.
pub fn state(bytes: &[u8]) {
    if let Ok(engine) = take_over(fresh(), bytes, &EXPORTED.schemas) {
        std::hint::black_box(engine.snapshot());
        export_state(&engine).expect("what was read can be written");
    }
}

pub fn state_seeds() -> Vec<Vec<u8>> {
    vec![EXPORTED.state.clone()]
}
