//! Generates what the measures call, constants of the large messages, and an echo service for each message of the
//! split.

#[path = "build/large.rs"]
mod large;
#[allow(dead_code, reason = "the program uses all of it")]
#[path = "src/peers/large_proto.rs"]
mod large_proto;
#[allow(dead_code, reason = "the program uses all of it")]
#[path = "src/peers/messages.rs"]
mod messages;

use std::path::{Path, PathBuf};
use trunkline_build::Builder;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    trunkline_build::compile_protos(&["proto/bench.proto", "proto/sleep.proto"], &["proto"])?;
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    large::generate(&out)?;
    println!("cargo:rerun-if-env-changed={}", messages::HYPERPROTOBENCH);
    println!("cargo:rustc-check-cfg=cfg(hyperprotobench)");
    if std::env::var_os(messages::HYPERPROTOBENCH).is_some() {
        println!("cargo:rustc-cfg=hyperprotobench");
    }
    for message in messages::messages(Path::new("../../tests/data/shapes")) {
        let folder = out.join(message.name);
        std::fs::create_dir_all(&folder)?;
        let service = folder.join("echo.proto");
        std::fs::write(&service, message.service())?;
        let builder = Builder::new().out_dir(&folder).includes(&[&folder, &message.schemas]).client(false);
        builder.compile(&[service])?;
    }
    Ok(())
}
