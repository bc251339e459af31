//! The messages that go there and back where the split of application and infrastructure is measured. Each gets a
//! service of its own, `echo.Echo`, in a folder of its own, because HyperProtoBench's files use the same names for
//! different messages. The build script compiles this very file.

use std::path::{Path, PathBuf};

/// Where HyperProtoBench's schemas and payloads are. Without it our own shapes are all there is.
pub const HYPERPROTOBENCH: &str = "TRUNKLINE_HYPERPROTOBENCH";

/// Name, file of the bytes, file of the schema, full name.
type Words = [&'static str; 4];

const SHAPES: [Words; 4] = [
    ["small", "small.bin", "shapes.proto", "trunkline.shapes.Small"],
    ["medium", "medium.bin", "shapes.proto", "trunkline.shapes.Medium"],
    ["large", "large.bin", "shapes.proto", "trunkline.shapes.Large"],
    ["deep", "deep.bin", "shapes.proto", "trunkline.shapes.Deep"],
];
const OF_HYPERPROTOBENCH: [Words; 3] = [
    ["bench3_m3", "bench3_M3.bin", "bench3.proto", "hyperprotobench.M3"],
    ["bench4_m43", "bench4_M43.bin", "bench4.proto", "hyperprotobench.M43"],
    ["bench5_m34", "synth_bench5_M34.bin", "bench5.proto", "hyperprotobench.M34"],
];

/// One of them.
#[derive(Clone, Debug)]
pub struct SplitMessage {
    /// What it is called in reports, and its module.
    pub name: &'static str,
    /// Its bytes.
    pub wire: PathBuf,
    /// The folder of its schema, and the file there.
    pub schemas: PathBuf,
    pub file: &'static str,
    /// Its full name.
    pub of: &'static str,
}

impl SplitMessage {
    /// Its service, in protobuf's language.
    pub fn service(&self) -> String {
        let Self { file, of, .. } = self;
        format!(
            "syntax = \"proto3\"; package echo; import \"{file}\";\n\
             service Echo {{ rpc Call(.{of}) returns (.{of}); }}\n"
        )
    }
}

/// Those that are there; `shapes` is where our own are.
pub fn messages(shapes: &Path) -> Vec<SplitMessage> {
    let of = |folder: &Path, [name, wire, file, of]: Words| SplitMessage {
        name,
        wire: folder.join(wire),
        schemas: folder.to_owned(),
        file,
        of,
    };
    let mut all: Vec<SplitMessage> = SHAPES.map(|message| of(shapes, message)).into();
    match std::env::var_os(HYPERPROTOBENCH).map(PathBuf::from) {
        Some(folder) => all.extend(OF_HYPERPROTOBENCH.map(|message| of(&folder, message))),
        None => eprintln!("split: HyperProtoBench is absent: {HYPERPROTOBENCH} names its folder"),
    }
    all
}

/// What they are called, also where those of HyperProtoBench are absent.
pub fn message_names() -> impl Iterator<Item = &'static str> {
    SHAPES.into_iter().chain(OF_HYPERPROTOBENCH).map(|[name, ..]| name)
}
