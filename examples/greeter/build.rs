//! Generates messages and stubs.

fn main() -> Result<(), trunkline_build::BuildError> {
    trunkline_build::compile_protos(&["proto/greeter.proto"], &["proto"])
}
