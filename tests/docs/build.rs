//! Takes the code out of the pages, so that it is compiled as readers have it, and generates what it includes.

use std::error::Error;
use std::fmt::Write;
use std::path::{Path, PathBuf};

const PAGES: &str = "../../docs";
const README: &str = "../../README.md";

fn main() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    println!("cargo:rerun-if-changed={PAGES}");
    println!("cargo:rerun-if-changed={README}");
    let readme = std::fs::read_to_string(README)?;
    for file in ["build.rs", "server.rs", "client.rs"] {
        let block = one(&readme, &format!("rust,file={file}"))?;
        std::fs::write(out.join(format!("readme_{file}")), block)?;
    }
    let start = std::fs::read_to_string(format!("{PAGES}/getting-started.md"))?;
    let only = |language: &str| one(&start, language).map(|text| text.replace("//!", "//"));
    for (language, file) in [("rust,file=build.rs", "build_script.rs"), ("rust,file=src/main.rs", "main.rs")]
    {
        std::fs::write(out.join(file), only(language)?)?;
    }
    if one(&readme, "proto")? != only("proto")? {
        return Err("README.md and docs/getting-started.md show different .proto files".into());
    }
    std::fs::create_dir_all(out.join("proto"))?;
    std::fs::write(out.join("proto/hello.proto"), only("proto")?)?;
    trunkline_build::compile_protos(&[out.join("proto/hello.proto")], &[out.join("proto")])?;
    let greeter = Path::new("../../examples/greeter/proto");
    trunkline_build::compile_protos(&[greeter.join("greeter.proto")], &[greeter])?;
    std::fs::write(out.join("api.rs"), modules(&std::fs::read_to_string(format!("{PAGES}/api.md"))?))?;
    Ok(())
}

/// Each block of a page as a module of its own.
fn modules(page: &str) -> String {
    let mut text = String::new();
    for (number, block) in blocks(page, "rust").enumerate() {
        // Writing to a string does not fail.
        let _ = writeln!(text, "mod block_{number} {{\nuse crate::greeter;\n{block}\n}}");
    }
    text
}

fn one<'a>(page: &'a str, language: &str) -> Result<&'a str, String> {
    blocks(page, language).next().ok_or_else(|| format!("a page has no block of {language}"))
}

/// The fenced blocks of a language.
fn blocks<'a>(page: &'a str, language: &str) -> impl Iterator<Item = &'a str> {
    let begin = format!("\n```{language}\n");
    let starts: Vec<usize> = page.match_indices(&begin).map(|(at, found)| at + found.len()).collect();
    starts.into_iter().filter_map(|at| page[at..].split("\n```").next())
}
