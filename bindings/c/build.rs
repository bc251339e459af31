//! The name programs find the shared object by: that of the ABI's first version, which only a break would change.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libtrunkline.so.0");
    println!("cargo:rerun-if-changed=build.rs");
}
