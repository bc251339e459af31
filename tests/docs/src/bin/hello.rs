//! The program of `docs/getting-started.md`.

include!(concat!(env!("OUT_DIR"), "/main.rs"));
