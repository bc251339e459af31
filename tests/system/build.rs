//! Generates the probe's stubs, and those of a service in two versions.

use std::path::PathBuf;
use trunkline_build::{BuildError, Builder};

fn main() -> Result<(), BuildError> {
    trunkline_build::compile_protos(&["proto/probe.proto"], &["proto"])?;
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo says where"));
    for version in ["older", "newer"] {
        let dir = out.join(version);
        std::fs::create_dir_all(&dir).expect("a folder in OUT_DIR");
        Builder::new().out_dir(dir).compile(&[format!("proto/{version}/skew.proto")])?;
    }
    Ok(())
}
