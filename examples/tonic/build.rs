//! Generates tonic's stubs, as any user of tonic does. No protoc: protox makes the descriptors.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let descriptors = protox::compile(["proto/guestbook.proto"], ["proto"])?;
    Ok(tonic_prost_build::compile_fds(descriptors)?)
}
