//! Sets the name of the shared library by which programs load it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // The number is RM_ABI_VERSION.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,librockmill.so.2");
    // RocksDB stores pointers to its functions, and a JVM unloads the libraries of a class loader that is collected.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
