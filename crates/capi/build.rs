//! Names the shared library as programs ask for it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // The number is RM_ABI_VERSION.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,librockmill.so.2");
    // RocksDB holds its functions, and a JVM unloads the libraries of a class loader that goes.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
