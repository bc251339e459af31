//! The messages that are echoed where the split of application and infrastructure is measured. Each gets a service of
//! its own, `echo.Echo`, in a folder of its own, because HyperProtoBench's files use the same names for different
//! messages.

use std::path::{Path, PathBuf};

/// Where HyperProtoBench's schemas and payloads are. Without it our own shapes are all there is.
pub const HYPERPROTOBENCH: &str = "TRUNKLINE_HYPERPROTOBENCH";

/// A message to be compiled.
pub struct Echo {
    /// Folder below `OUT_DIR`, and module.
    pub module: &'static str,
    file: &'static str,
    message: &'static str,
    /// Where the file is.
    pub schemas: PathBuf,
}

const SHAPES: [(&str, &str); 4] = [
    ("small", ".trunkline.shapes.Small"),
    ("medium", ".trunkline.shapes.Medium"),
    ("large", ".trunkline.shapes.Large"),
    ("deep", ".trunkline.shapes.Deep"),
];
const OF_HYPERPROTOBENCH: [(&str, &str, &str); 3] = [
    ("bench3_m3", "bench3.proto", ".hyperprotobench.M3"),
    ("bench4_m43", "bench4.proto", ".hyperprotobench.M43"),
    ("bench5_m34", "bench5.proto", ".hyperprotobench.M34"),
];

/// All that can be had, each with its service written to `out`; `shapes` is where our own are.
pub fn echoes(out: &Path, shapes: &Path) -> std::io::Result<Vec<Echo>> {
    println!("cargo:rerun-if-env-changed={HYPERPROTOBENCH}");
    println!("cargo:rustc-check-cfg=cfg(hyperprotobench)");
    let shape =
        |(module, message)| Echo { module, file: "shapes.proto", message, schemas: shapes.to_owned() };
    let mut all: Vec<Echo> = SHAPES.into_iter().map(shape).collect();
    if let Some(schemas) = std::env::var_os(HYPERPROTOBENCH).map(PathBuf::from) {
        println!("cargo:rustc-cfg=hyperprotobench");
        let of = |(module, file, message)| Echo { module, file, message, schemas: schemas.clone() };
        all.extend(OF_HYPERPROTOBENCH.into_iter().map(of));
    }
    for echo in &all {
        std::fs::create_dir_all(out.join(echo.module))?;
        std::fs::write(echo.service(out), echo.text())?;
    }
    Ok(all)
}

impl Echo {
    /// The file with its service.
    pub fn service(&self, out: &Path) -> PathBuf {
        out.join(self.module).join("echo.proto")
    }

    fn text(&self) -> String {
        let Self { file, message, .. } = self;
        format!(
            "syntax = \"proto3\"; package echo; import \"{file}\";\n\
             service Echo {{ rpc Call({message}) returns ({message}); }}\n"
        )
    }
}
