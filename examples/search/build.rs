//! Generates messages and stubs from the service's definition.

fn main() -> Result<(), trunkline_build::BuildError> {
    trunkline_build::compile_protos(&["proto/search/v1/search.proto"], &["proto"])
}
