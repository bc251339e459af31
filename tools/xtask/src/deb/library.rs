//! The packages of the library for C and C++: `libtrunkline0`, what programs need to run, and `libtrunkline-dev`, what
//! they need to be built: headers, pkg-config, CMake, the plugin of protoc, examples.
//!
//! The digit is that of the soname `libtrunkline.so.0` (Debian Policy, section 8.1): a program built today depends on
//! the package that has its ABI.

use super::{Control, architecture, changelog, install, oldest_library, pack, run, stripped, write};
use crate::Tree;
use crate::suite::target;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

const RUNTIME: &str = "libtrunkline0";
const DEVELOPMENT: &str = "libtrunkline-dev";
/// Name of the shared object, which programs that are linked with it ask for.
const SONAME: &str = "libtrunkline.so.0";
/// What a program can be made of as it stands, beside the documentation.
const EXAMPLES: [&str; 4] = ["CMakeLists.txt", "hello.h", "client.c", "server.c"];

/// Makes both packages of the release build; returns where they are.
///
/// # Errors
/// What is missing, or what a tool says.
pub fn library(revision: &str) -> Result<[PathBuf; 2], String> {
    let release = target().join("release");
    let [shared, plugin] = ["libtrunkline_c.so", "protoc-gen-trunkline"].map(|name| release.join(name));
    for (file, package) in [(&shared, "trunkline-c"), (&plugin, "trunkline-protoc-gen")] {
        if !file.is_file() {
            return Err(format!(
                "{} is not there: cargo build --release --package {package}",
                file.display()
            ));
        }
    }
    let (root, version) = (Tree::root(), format!("{}{revision}", env!("CARGO_PKG_VERSION")));
    let text = |error: io::Error| error.to_string();
    let shared = stripped(&shared, "--strip-unneeded").map_err(text)?;
    let plugin = stripped(&plugin, "--strip-all").map_err(text)?;
    let control = |name, depends, section, further, description| {
        let (version, architecture) = (version.clone(), architecture()?);
        Ok::<_, String>(Control { name, version, architecture, depends, section, further, description })
    };
    let runtime = control(
        RUNTIME,
        format!("libc6 (>= {}), libgcc-s1", oldest_library(&shared)),
        "libs",
        "Multi-Arch: same\nRecommends: trunkline\n",
        "remote procedure calls as a managed service of the host: the library\n \
         What C and C++ programs that call by Trunkline need to run. The daemon of the host\n \
         carries their calls.",
    )?;
    let development = control(
        DEVELOPMENT,
        format!("{RUNTIME} (= {version}), libc6 (>= {})", oldest_library(&plugin)),
        "libdevel",
        "",
        "remote procedure calls as a managed service of the host: to build programs\n \
         The headers trunkline.h, trunkline.hpp and trunkline_linear.hpp, gRPC C++'s own below\n \
         /usr/include/trunkline, \
         what pkg-config and CMake look for, the plugin protoc-gen-trunkline, and examples.",
    )?;
    let laid_out = |tree: &Path| {
        let built = tree.join("DEBIAN/built.so");
        write(&built, &shared, 0o644)?;
        let mut all = Command::new(root.join("bindings/c/install"));
        run(all.arg(tree.join("usr")).arg(&built).env("LIBDIR", folder()))?;
        fs::remove_file(built)
    };
    Ok([
        pack(&runtime, |tree| laid_out(tree).and_then(|()| keep_runtime(&root, tree, &version)))?,
        pack(&development, |tree| laid_out(tree).and_then(|()| keep_development(&root, tree, &plugin)))?,
    ])
}

/// Where shared objects of this architecture are, below `/usr`.
fn folder() -> String {
    format!("lib/{}-linux-gnu", std::env::consts::ARCH)
}

/// Of all that is installed, only the shared object.
fn keep_runtime(root: &Path, tree: &Path, version: &str) -> io::Result<()> {
    let libraries = tree.join("usr").join(folder());
    fs::remove_dir_all(tree.join("usr/include"))?;
    for other in ["pkgconfig", "cmake"] {
        fs::remove_dir_all(libraries.join(other))?;
    }
    fs::remove_file(libraries.join("libtrunkline.so"))?;
    write(&tree.join("DEBIAN/triggers"), b"activate-noawait ldconfig\n", 0o644)?;
    let shlibs = format!("libtrunkline 0 {RUNTIME} (>= {version})\n");
    write(&tree.join("DEBIAN/shlibs"), shlibs.as_bytes(), 0o644)?;
    documents(root, tree, RUNTIME)
}

/// All but the shared object, to which the link leads that the linker looks for.
fn keep_development(root: &Path, tree: &Path, plugin: &[u8]) -> io::Result<()> {
    let libraries = tree.join("usr").join(folder());
    fs::remove_file(libraries.join(SONAME))?;
    let link = libraries.join("libtrunkline.so");
    fs::remove_file(&link)?;
    symlink(SONAME, &link)?;
    write(&tree.join("usr/bin/protoc-gen-trunkline"), plugin, 0o755)?;
    let own = tree.join("usr/share/doc").join(DEVELOPMENT);
    for name in EXAMPLES {
        install(&root.join("bindings/c/examples").join(name), &own.join("examples").join(name), 0o644)?;
    }
    for page in ["c.md", "grpc-cpp.md"] {
        install(&root.join("docs").join(page), &own.join(page), 0o644)?;
    }
    documents(root, tree, DEVELOPMENT)
}

fn documents(root: &Path, tree: &Path, name: &str) -> io::Result<()> {
    let own = tree.join("usr/share/doc").join(name);
    install(&root.join("packaging/debian/copyright"), &own.join("copyright"), 0o644)?;
    changelog(root, &own)
}
