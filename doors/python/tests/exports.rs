//! What the library of Python's package shows to other libraries of the process.

use std::path::Path;
use std::process::Command;

#[test]
fn nothing_but_the_function_that_python_calls_is_exported() {
    let programs = std::env::current_exe().expect("this program has a path");
    let library = programs.with_file_name("librockmill_python.so");
    assert!(
        Path::new(&library).exists(),
        "{} is built",
        library.display()
    );
    let listed = Command::new("nm")
        .args(["--dynamic", "--defined-only", "--extern-only"])
        .arg(&library)
        .output()
        .expect("binutils are there, as for every linker");
    assert!(listed.status.success(), "{listed:?}");
    let listed = String::from_utf8_lossy(&listed.stdout);
    let names = listed
        .lines()
        .filter_map(|line| line.split_whitespace().last());
    let names: Vec<_> = names.collect();
    assert_eq!(names, ["PyInit__rockmill"]);
}
