//! Generates tonic's stubs, without protoc.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let protos = "../../../../examples/search/proto";
    println!("cargo::rerun-if-changed={protos}");
    let files = protox::compile(["search/v1/search.proto"], [protos])?;
    Ok(tonic_prost_build::configure().build_server(false).compile_fds(files)?)
}
