//! Generates code from every schema in `proto/`, and from one with a message as wide as HPRPC's.

use std::path::{Path, PathBuf};

use trunkline_build::{BuildError, Builder};

const PROTOS: &[&str] = &[
    "proto/shapes.proto",
    "proto/legacy.proto",
    "proto/names.proto",
    "proto/shadows.proto",
    "proto/known.proto",
    "proto/library.proto",
    "proto/library_shelf.proto",
    "proto/bare.proto",
    "proto/guide.proto",
];

/// Members of the message LargeData-8192.
const WIDE_FIELDS: u32 = 8192;

fn main() -> Result<(), BuildError> {
    // Before the others, which write `trunkline_protos.rs` anew.
    Builder::new().include("proto").include("../../proto").compile(&["proto/first.proto"])?;
    let wide = write_wide();
    let protos = PROTOS.iter().map(PathBuf::from).chain([wide.clone()]).collect::<Vec<_>>();
    let out_dir = wide.parent().expect("a file has a directory");
    let messages = Builder::new().include("proto").include(out_dir).runtime("::trunkline_message");
    messages.shared_types(false).client(false).server(false).compile(&protos)?;
    services(out_dir)
}

/// Services need the library itself, messages only its lower layers.
fn services(out_dir: &Path) -> Result<(), BuildError> {
    let services = out_dir.join("services");
    std::fs::create_dir_all(&services).expect("OUT_DIR can be written to");
    let shelf = Builder::new().extern_path(".library.v1.shelf", "crate::library::v1::shelf");
    shelf.include("proto").out_dir(services).compile(&["proto/services.proto"])
}

/// A message of thousands of fields, of every kind of slot.
fn write_wide() -> PathBuf {
    let kinds =
        ["int32", "string", "optional int64", "bool", "repeated int32", "optional Wide", "double", "bytes"];
    let fields = (1..=WIDE_FIELDS).map(|number| {
        let kind = kinds[number as usize % kinds.len()];
        format!("  {kind} member_{number} = {number};\n")
    });
    // Fields that have the names of the functions a message of so many fields is divided into.
    let parts = ["write_part_0", "read_part_0"].iter().zip(WIDE_FIELDS + 1..);
    let parts = parts.map(|(name, number)| format!("  optional int32 {name} = {number};\n"));
    let fields: String = fields.chain(parts).collect();
    let text = format!("syntax = \"proto3\";\npackage wide;\nmessage Wide {{\n{fields}}}\n");
    let path = PathBuf::from(std::env::var_os("OUT_DIR").expect("set by Cargo")).join("wide.proto");
    std::fs::write(&path, text).expect("OUT_DIR can be written to");
    path
}
