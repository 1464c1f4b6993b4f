//! Names the shared library as programs ask for it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // The number is RM_ABI_VERSION.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,librockmill.so.1");
}
