//! Generates what the measures call, constants of the large messages, and an echo service for each message of the
//! split.

#[path = "build/echoes.rs"]
mod echoes;
#[path = "build/large.rs"]
mod large;
#[path = "src/peers/large_proto.rs"]
mod large_proto;

use std::path::{Path, PathBuf};
use trunkline_build::Builder;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    trunkline_build::compile_protos(&["proto/bench.proto", "proto/sleep.proto"], &["proto"])?;
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    large::generate(&out)?;
    for echo in echoes::echoes(&out, Path::new("../../tests/data/shapes"))? {
        let folder = out.join(echo.module);
        let builder = Builder::new().out_dir(&folder).includes(&[&folder, &echo.schemas]).client(false);
        builder.compile(&[echo.service(&out)])?;
    }
    Ok(())
}
