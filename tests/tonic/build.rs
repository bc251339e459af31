//! Generates the stubs twice from one file: tonic's, as any user of tonic has them, and ours.

use prost::Message;
use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let out: PathBuf = std::env::var_os("OUT_DIR").ok_or("OUT_DIR is set by cargo")?.into();
    let tonic = out.join("tonic");
    std::fs::create_dir_all(&tonic)?;
    // No protoc: protox makes the descriptors tonic's generator works from.
    let descriptors = protox::compile(["proto/exam.proto"], ["proto"])?;
    std::fs::write(out.join("exam.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure().out_dir(&tonic).compile_fds(descriptors)?;
    trunkline_build::compile_protos(&["proto/exam.proto"], &["proto"])?;
    Ok(())
}
