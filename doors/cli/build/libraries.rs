// What lets files run with old C and C++ libraries. The build scripts of the command and of Python's package include it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// For the executables (`bins`) or the shared library (`cdylib`) of a package.
pub fn link_for(what: &str) {
    if env::var("TARGET").is_ok_and(|target| target == "x86_64-unknown-linux-gnu") {
        avoid_new_glibc(what);
        link_cxx_statically();
    }
}

fn avoid_new_glibc(what: &str) {
    let package = env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it");
    // Both packages lie two folders deep.
    let native = Path::new(&package).join("../../doors/cli/native/glibc.c");
    println!("cargo:rerun-if-changed={}", native.display());
    cc::Build::new().file(native).compile("rockmill_glibc");
    for function in ["hypot", "hypotf", "arc4random"] {
        println!("cargo:rustc-link-arg-{what}=-Wl,--wrap={function}");
    }
}

/// The linker takes the C++ library from the first folder that has one: this has the static one alone.
fn link_cxx_statically() {
    let folder = Path::new(&env::var_os("OUT_DIR").expect("cargo sets it")).join("cxx");
    let said = Command::new("c++")
        .arg("-print-file-name=libstdc++.a")
        .output();
    let library = said
        .ok()
        .and_then(|said| String::from_utf8(said.stdout).ok());
    // A compiler that has no such file prints the name alone, and the shared library is linked.
    let library = library.map(|path| PathBuf::from(path.trim()));
    let Some(library) = library.filter(|path| path.is_absolute()) else {
        return;
    };
    let link = folder.join("libstdc++.a");
    let _ = fs::remove_file(&link);
    fs::create_dir_all(&folder)
        .and_then(|()| std::os::unix::fs::symlink(library, link))
        .expect("a link to the C++ library");
    println!("cargo:rustc-link-search=native={}", folder.display());
}
