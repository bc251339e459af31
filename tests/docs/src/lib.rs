//! The code that pages show, compiled as it stands there.
//!
//! Pages rot where nobody compiles them: a method gets another name, an example keeps the old one, and the first reader
//! pays. So the build script takes every block of Rust out of a page and makes a module of it here. A block that does
//! not compile is a build that fails, with the line in the generated file.
//!
//! * `README.md`: its build script, its service and its caller are modules of [`readme`].
//! * `docs/api.md`: each block is a module below [`api`], with the greeter's generated code in scope.
//! * `docs/getting-started.md`: its `.proto` is compiled, its build script is a module, its program is the binary
//!   `hello`, which `tests/pages.rs` runs.
//! * `docs/generated-code.md` has its own test (`tests/codegen`), `docs/tutorial.md` is played in `tools/cli/tests`.
//!
//! # Limits
//! Blocks marked `rust,ignore` are parts of programs that stand elsewhere. What a block does when it runs is shown only
//! where a test says so.
#![forbid(unsafe_code)]

/// Generated from the greeter example's `.proto`.
pub mod greeter {
    trunkline::include_proto!("greeter.v1");
}

/// The blocks of `docs/api.md`.
#[allow(dead_code, unused_imports, reason = "readers call what a page shows")]
pub mod api {
    include!(concat!(env!("OUT_DIR"), "/api.rs"));
}

/// The programs of `README.md`.
#[allow(dead_code, reason = "readers run them")]
pub mod readme {
    /// Its build script.
    pub mod build_script {
        include!(concat!(env!("OUT_DIR"), "/readme_build.rs"));
    }

    /// Its service.
    pub mod server {
        include!(concat!(env!("OUT_DIR"), "/readme_server.rs"));
    }

    /// Its caller.
    pub mod client {
        include!(concat!(env!("OUT_DIR"), "/readme_client.rs"));
    }
}

/// The build script of `docs/getting-started.md`.
#[allow(dead_code, reason = "readers' builds run it")]
pub mod build_script {
    include!(concat!(env!("OUT_DIR"), "/build_script.rs"));
}
