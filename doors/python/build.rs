//! Lets the library run with old C and C++ libraries, as the command does.

#[path = "../../doors/cli/build/libraries.rs"]
mod libraries;

fn main() {
    libraries::link_for("cdylib");
    // Crates may export functions to C, which other libraries of the process must not find.
    println!("cargo:rustc-link-arg-cdylib=-Wl,--exclude-libs,ALL");
}
