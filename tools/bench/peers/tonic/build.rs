//! Generates what the measures call, and an echo service for each message of the split.

#[path = "../../build/echoes.rs"]
mod echoes;

use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    tonic_prost_build::configure().compile_protos(&["../../proto/bench.proto"], &["../../proto"])?;
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    for echo in echoes::echoes(&out, Path::new("../../../../tests/data/shapes"))? {
        let folder = out.join(echo.module);
        let builder = tonic_prost_build::configure().out_dir(&folder).include_file("mod.rs").build_client(false);
        builder.compile_protos(&[echo.service(&out)], &[folder, echo.schemas])?;
    }
    Ok(())
}
