fn main() -> Result<(), trunkline_build::BuildError> {
    trunkline_build::compile_protos(&["proto/bench.proto", "proto/sleep.proto"], &["proto"])
}
