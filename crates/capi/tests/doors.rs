//! Programs in C and C++ that use the library as it is installed.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::Command;

use rockmill_capi::{ABI_VERSION, CJobInfo, CResult, Status};
use rockmill_testing::skipped;

const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Of a static library, as rockmill.pc and the CMake package name them.
const STATIC_NEEDS: [&str; 6] = ["-lstdc++", "-lz", "-lgcc_s", "-lm", "-ldl", "-lpthread"];

fn run(command: &mut Command) -> String {
    let output = command.output().expect("the command starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}\n{out}\n{err}");
    out
}

fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output();
    let found = found.is_ok_and(|output| output.status.success());
    if !found {
        skipped(&format!("there is no {program}"));
    }
    found
}

/// The folder of this test's own program, which cargo also builds the libraries into.
fn built() -> PathBuf {
    let program = env::current_exe().expect("this program has a path");
    program.parent().expect("it is in a folder").to_owned()
}

/// Installs the library below `folder` and returns the prefix.
fn install(folder: &Path) -> PathBuf {
    let prefix = folder.join("prefix");
    let script = Path::new(REPOSITORY).join("scripts/install.sh");
    run(Command::new(script).arg(&prefix).arg(built()));
    prefix
}

fn program(name: &str) -> PathBuf {
    Path::new(REPOSITORY)
        .join("crates/capi/tests/programs")
        .join(name)
}

/// The functions that the header declares.
fn declared() -> BTreeSet<String> {
    let header = fs::read_to_string(Path::new(REPOSITORY).join("include/rockmill.h"));
    let header = header.expect("the header is there");
    assert!(header.contains(&format!("#define RM_ABI_VERSION {ABI_VERSION}\n")));
    let lines = header
        .lines()
        .filter(|line| line.starts_with(|c: char| c.is_alphabetic()));
    let names = lines.filter_map(|line| line.split_once('(')?.0.rsplit([' ', '*']).next());
    names
        .filter(|name| name.starts_with("rm_"))
        .map(str::to_owned)
        .collect()
}

/// The names that `nm` lists as `kind`.
fn symbols(kind: &str, nm: &mut Command) -> BTreeSet<String> {
    let listed = run(nm);
    let fields = listed
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let symbols = fields.filter(|fields| fields.len() == 3 && fields[1] == kind);
    symbols.map(|fields| fields[2].to_owned()).collect()
}

#[test]
fn the_libraries_export_what_the_header_declares_and_nothing_else() {
    if !has("nm") || !has("ld") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let libraries = install(folder.path()).join("lib");
    let shared = libraries.join("librockmill.so");
    let nm = |arguments: &[&str], library: &Path| {
        let mut nm = Command::new("nm");
        nm.args(arguments).arg("--defined-only").arg(library);
        nm
    };
    let exported = run(&mut nm(&["-D"], &shared));
    assert_eq!(exported.lines().count(), declared().len(), "{exported}");
    assert_eq!(symbols("T", &mut nm(&["-D"], &shared)), declared());
    let archive = libraries.join("librockmill.a");
    assert_eq!(symbols("T", &mut nm(&["-g"], &archive)), declared());
    for data in ["D", "B", "W", "V", "R"] {
        assert_eq!(
            symbols(data, &mut nm(&["-g"], &archive)),
            BTreeSet::new(),
            "{data}"
        );
    }
}

/// What `abi.c` prints first.
fn layout() -> String {
    macro_rules! fields {
        ($name:literal, $type:ty, $($field:ident)+) => {{
            let lines = [$(format!("{}.{} {}\n", $name, stringify!($field), offset_of!($type, $field))),+];
            format!("{} {}\n{}", $name, size_of::<$type>(), lines.concat())
        }};
    }
    let status = format!("rm_status {}\n", size_of::<Status>());
    let info = fields!(
        "rm_job_info", CJobInfo,
        struct_size db_name db_session_id job_id cf_id compaction_reason base_input_level output_level
        is_full_compaction is_manual_compaction is_bottommost_level is_bottom_priority
    );
    let result = fields!("rm_result", CResult, struct_size message message_size);
    let statuses = [
        Status::Success,
        Status::Failure,
        Status::Aborted,
        Status::UseLocal,
        Status::Invalid,
    ];
    let statuses: String = statuses.map(|status| (status as i32).to_string()).concat();
    format!("{status}{info}{result}statuses {statuses}\n")
}

#[test]
fn a_c_program_is_answered_whatever_it_passes() {
    if !has("cc") || !has("ld") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let prefix = install(folder.path());
    let binary = folder.path().join("abi");
    let mut compiler = Command::new("cc");
    compiler
        .args([
            "-std=c11",
            "-D_DEFAULT_SOURCE",
            "-g",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-pedantic",
        ])
        .args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all"])
        .arg("-I")
        .arg(prefix.join("include"))
        .arg(program("abi.c"))
        .arg(prefix.join("lib/librockmill.a"))
        .args(STATIC_NEEDS)
        .arg("-o")
        .arg(&binary);
    run(&mut compiler);
    let printed = run(Command::new(binary).arg(folder.path()));
    assert_eq!(printed, format!("{}done\n", layout()));
}

/// The codecs that the static RocksDB needs, from where cargo has built them for other crates of the workspace.
fn codecs() -> Option<Vec<PathBuf>> {
    let target = built().ancestors().nth(2)?.to_owned();
    let entries = |folder: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).into_iter().flatten();
        entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .collect()
    };
    let profiles = entries(&target).into_iter();
    let builds: Vec<_> = profiles
        .flat_map(|profile| entries(&profile.join("build")))
        .collect();
    let places = || {
        builds
            .iter()
            .flat_map(|build| [build.join("out"), build.join("out/lib")])
    };
    let find = |library: &str| {
        places()
            .map(|place| place.join(library))
            .filter(|path| path.exists())
            .collect::<Vec<_>>()
    };
    // Not every build of ZSTD has its dictionaries, so all are given to the linker, which takes what is missing.
    let found = ["libzstd.a", "liblz4.a", "libbz2.a"].map(find);
    found
        .iter()
        .all(|builds| !builds.is_empty())
        .then(|| found.concat())
}

/// Compiles a program against RocksDB and Rockmill, or says why that is not possible.
fn with_rocksdb(source: &Path, prefix: &Path, binary: &Path) -> bool {
    let [headers, library] = ["ROCKSDB_INCLUDE_DIR", "ROCKSDB_LIB_DIR"].map(env::var_os);
    let (Some(headers), Some(library)) = (headers, library) else {
        skipped("ROCKSDB_LIB_DIR names no RocksDB; see make env");
        return false;
    };
    let Some(codecs) = codecs() else {
        skipped("cargo has not built RocksDB's codecs yet");
        return false;
    };
    let libraries = prefix.join("lib");
    let mut compiler = Command::new("g++");
    compiler
        // RocksDB 11 needs it; rocksdb.hpp is content with C++17.
        .args([
            "-std=c++20",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-pthread",
            "-isystem",
        ])
        .arg(headers)
        // As this RocksDB is built.
        .arg("-fno-rtti")
        .arg("-I")
        .arg(prefix.join("include"))
        .arg(source)
        .arg("-L")
        .arg(&libraries)
        .arg("-lrockmill")
        .arg(Path::new(&library).join("librocksdb.a"))
        .args(codecs)
        .args(["-lz", "-ldl"])
        .arg(join("-Wl,-rpath,", &libraries))
        .arg("-o")
        .arg(binary);
    run(&mut compiler);
    true
}

fn join(before: &str, path: &Path) -> std::ffi::OsString {
    let mut joined = OsStr::new(before).to_owned();
    joined.push(path);
    joined
}

#[test]
fn a_cpp_program_has_its_database_compacted() {
    if !has("g++") || !has("ld") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let prefix = install(folder.path());
    let binary = folder.path().join("database");
    if with_rocksdb(&program("database.cpp"), &prefix, &binary) {
        let printed = run(Command::new(binary).arg(folder.path()));
        assert!(printed.ends_with("done\n"), "{printed}");
    }
}
