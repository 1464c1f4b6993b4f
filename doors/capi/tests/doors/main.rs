//! Programs in C and C++ that use the installed library.

mod kernels;
mod scripts;
mod tools;

use std::collections::BTreeSet;
use std::fs;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::Command;

use rockmill_capi::{
    ABI_VERSION, CBytes, CJobInfo, CLookup, CPlugins, CResult, CServiceOptions, CStore,
    CViewOptions, CWrite, Status,
};
use rockmill_testkit::machine::promtool;
use tools::{
    Installed, REPOSITORY, RocksDb, STATIC_NEEDS, WITHOUT_RTTI, built, have, program, run,
};

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

/// The defined symbols of a library as pairs of kind and name.
fn symbols(library: &Path, which: &[&str]) -> BTreeSet<(char, String)> {
    let mut nm = Command::new("nm");
    nm.args(which).args(["--defined-only", "--format=posix"]);
    let listed = run(nm.arg(library));
    let symbols = listed.lines().filter_map(|line| {
        let mut fields = line.split(' ');
        let (name, kind) = (fields.next()?, fields.next()?);
        Some((kind.chars().next()?, name.to_owned()))
    });
    symbols.collect()
}

#[test]
fn the_libraries_export_what_the_header_declares_and_nothing_else() {
    if !have(&["nm", "ld", "objcopy", "readelf"]) {
        return;
    }
    let installed = Installed::new();
    let functions: BTreeSet<_> = declared().into_iter().map(|name| ('T', name)).collect();
    let libraries = installed.libraries();
    let mut dynamic = Command::new("readelf");
    let dynamic = run(dynamic.arg("-dW").arg(libraries.join("librockmill.so")));
    // RocksDB may still have pointers to its functions when a program unloads it.
    for entry in ["NODELETE", &format!("[librockmill.so.{ABI_VERSION}]")] {
        assert!(dynamic.contains(entry), "{entry}: {dynamic}");
    }
    assert_eq!(
        symbols(&libraries.join("librockmill.so"), &["--dynamic"]),
        functions
    );
    let mut of_archive = symbols(&libraries.join("librockmill.a"), &["--extern-only"]);
    // Templates' data in the GPU backend, which the linker merges with the program's.
    of_archive.retain(|(kind, _)| *kind != 'u');
    assert_eq!(of_archive, functions);
    // A crate that links RocksDB becomes a dependency easily: cargo turns on the features of a crate for all its users.
    // The shared library is installed without the names of unexported symbols.
    for library in [
        built().join("librockmill_capi.so"),
        libraries.join("librockmill.a"),
    ] {
        let mut symbols = symbols(&library, &[]);
        assert!(symbols.len() > functions.len(), "{}", library.display());
        symbols.retain(|(_, name)| name.contains("rocksdb"));
        assert!(symbols.is_empty(), "{}: {symbols:?}", library.display());
    }
}

/// The first output of `abi.c`.
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
        is_full_compaction is_manual_compaction is_bottommost_level is_bottom_priority rocksdb_version
        plugins picked_compression
    );
    let plugins = fields!(
        "rm_plugins", CPlugins,
        struct_size state release missing merge_operator builtin_merge_operator merge_delimiter
        merges_single_operand full_merge partial_merge compaction_filter compaction_filter_factory
        create_filter filter collector_factories num_collector_factories create_collector collect_entry
        collect_block finish_collector destroy_collector builtin_collector_factories path
        prefix_extractor prefix_len comparator compare
    );
    let info = info + &plugins;
    let result = fields!("rm_result", CResult, struct_size message message_size);
    let statuses = [
        Status::Success,
        Status::Failure,
        Status::Aborted,
        Status::UseLocal,
        Status::Invalid,
    ];
    let statuses: String = statuses.map(|status| (status as i32).to_string()).concat();
    let options = fields!(
        "rm_service_options", CServiceOptions,
        struct_size settings log log_state log_level
    );
    let views = [
        fields!("rm_bytes", CBytes, data size),
        fields!("rm_write", CWrite, key value is_delete),
        fields!("rm_store", CStore, struct_size state get write),
        fields!(
            "rm_view_options", CViewOptions,
            struct_size path family device memory_bytes store threads request_slots request_slot_bytes timeout_ms
            wal_dir
        ),
        fields!(
            "rm_lookup", CLookup,
            struct_size keys key_offsets key_size num_keys rows row_size default_row statuses sizes
        ),
    ];
    let views = views.concat();
    format!("{status}{info}{result}{options}{views}statuses {statuses}\n")
}

/// Checks a text of metrics with promtool, if it is installed.
fn check_metrics(text: &Path) {
    let Some(mut promtool) = promtool() else {
        return;
    };
    let text = fs::File::open(text).expect("the program has written it");
    run(promtool.args(["check", "metrics"]).stdin(text));
}

#[test]
fn a_c_program_is_answered_whatever_it_passes() {
    if !have(&["cc", "ld", "objcopy"]) {
        return;
    }
    let installed = Installed::new();
    let binary = installed.folder().join("abi");
    let mut compiler = Command::new("cc");
    compiler.args([
        "-std=c11",
        "-D_DEFAULT_SOURCE",
        "-g",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-pedantic",
    ]);
    compiler.args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]);
    compiler
        .arg("-I")
        .arg(installed.headers())
        .arg(program("abi.c"));
    compiler
        .arg(installed.libraries().join("librockmill.a"))
        .args(STATIC_NEEDS);
    run(compiler.arg("-o").arg(&binary));
    let printed = run(Command::new(binary).arg(installed.folder()));
    assert_eq!(printed, format!("{}done\n", layout()));
    check_metrics(&installed.folder().join("metrics.txt"));
}

#[test]
fn a_cpp_program_has_its_database_compacted() {
    if !have(&["cc", "g++", "ld", "objcopy"]) {
        return;
    }
    let installed = Installed::new();
    let Some(rocksdb) = RocksDb::find(installed.folder()) else {
        return;
    };
    let binary = compile(&installed, &rocksdb, "database");
    let printed = run(Command::new(binary).arg(installed.folder()));
    assert!(printed.ends_with("done\n"), "{printed}");
    check_metrics(&installed.folder().join("metrics.txt"));
    // The header of a later version.
    let header = installed.headers().join("rockmill.h");
    let text = fs::read_to_string(&header).expect("it is installed");
    let [own, next] = [ABI_VERSION, ABI_VERSION + 1];
    let define = |abi| format!("#define RM_ABI_VERSION {abi}\n");
    let later = text.replace(&define(own), &define(next));
    fs::write(&header, later).expect("it is ours");
    let printed = run(&mut Command::new(compile(&installed, &rocksdb, "mismatch")));
    assert!(
        printed.contains(&format!(
            "rockmill.h has ABI {next} and the library has ABI {own}"
        )),
        "{printed}"
    );
}

/// `ROCKMILL_SEED` and `ROCKMILL_CASES` choose the histories. scripts/matrix.sh reads the line of JSON.
#[test]
fn a_cpp_program_reads_the_same_with_and_without_after_random_histories() {
    if !have(&["cc", "g++", "ld", "objcopy"]) {
        return;
    }
    let installed = Installed::new();
    let Some(rocksdb) = RocksDb::find(installed.folder()) else {
        return;
    };
    let binary = compile(&installed, &rocksdb, "differential");
    // In memory, since thousands of small files are synced.
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let folder = folder.expect("a folder");
    let printed = run(Command::new(binary).arg(folder.path()));
    println!("\n{printed}");
    assert!(printed.starts_with("{\"rocksdb\":"), "{printed}");
}

/// `ROCKMILL_SEED` and `ROCKMILL_CASES` choose the histories.
#[test]
fn the_objects_that_a_cpp_program_attaches_are_called_as_rocksdb_calls_them() {
    if !have(&["cc", "g++", "ld", "objcopy"]) {
        return;
    }
    let installed = Installed::new();
    let Some(rocksdb) = RocksDb::find(installed.folder()) else {
        return;
    };
    let binary = compile(&installed, &rocksdb, "attached");
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let folder = folder.expect("a folder");
    let printed = run(Command::new(binary).arg(folder.path()));
    println!("\n{printed}");
    assert!(printed.ends_with("done\n"), "{printed}");
}

/// The profiles of tests/profiles, and the reasons for which jobs of them are declined.
const PROFILES: [(&str, &[&str]); 12] = [
    ("kvrocks", &[]),
    ("myrocks", &[]),
    ("arangodb", &["comparator"]),
    ("nebula", &[]),
    ("foundationdb", &[]),
    ("aptos", &[]),
    ("agave", &[]),
    ("stalwart", &[]),
    ("restate", &[]),
    ("tuwunel", &[]),
    ("oxigraph", &[]),
    ("flink", &[]),
];

/// A program of tests/profiles, and what it is linked with. `None` without compilers or RocksDB.
fn compiled_profiles(name: &str) -> Option<(Installed, PathBuf)> {
    if !have(&["cc", "g++", "ld", "objcopy"]) {
        return None;
    }
    let installed = Installed::new();
    let rocksdb = RocksDb::find(installed.folder())?;
    let source = Path::new(REPOSITORY).join("tests/profiles").join(name);
    let source = source.display().to_string();
    let binary = compile_with(&installed, &rocksdb, &source, &["-O2"]);
    Some((installed, binary))
}

/// `ROCKMILL_PROFILE_MIB` is what is written to each database, and `ROCKMILL_SETTINGS` are settings of Rockmill.
#[test]
fn the_compactions_of_twelve_programs_are_done() {
    let Some((_installed, binary)) = compiled_profiles("profiles.cpp") else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let given = |name, default: &str| std::env::var(name).unwrap_or_else(|_| default.to_owned());
    let settings = given("ROCKMILL_SETTINGS", "min_job_bytes=0;threads=2");
    let mib = given("ROCKMILL_PROFILE_MIB", "12");
    let mut profiles = Command::new(binary);
    let printed = run(profiles.arg(folder.path()).arg(mib).arg(settings));
    println!("\n{printed}");
    let rows = printed.lines().skip(2).map(|row| {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let percent: u64 = cells[4].trim_end_matches(" %").parse().expect("a number");
        let reasons = cells[5].split(", ").filter(|reason| !reason.is_empty());
        let reasons = reasons.filter_map(|reason| Some(reason.split_once(':')?.0));
        // The default settings leave small jobs to RocksDB, and those that are too large for the machine's memory.
        let reasons = reasons.filter(|reason| !["small-job", "memory-budget"].contains(reason));
        (cells[1], percent, reasons.collect::<Vec<_>>())
    });
    let rows: Vec<_> = rows.collect();
    for ((name, declined), (found, percent, reasons)) in PROFILES.iter().zip(&rows) {
        assert_eq!(name, found);
        assert!(
            reasons.iter().all(|reason| declined.contains(reason)),
            "{name}: {reasons:?}"
        );
        assert!(*percent > 0, "{name}");
    }
    assert_eq!(rows.len(), PROFILES.len());
}

/// `ROCKMILL_PROFILE_KILLS` is how often each profile is killed.
#[test]
fn what_killed_programs_with_attached_objects_have_written_is_there() {
    let Some((_installed, binary)) = compiled_profiles("killed.cpp") else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let mut killed = Command::new(binary);
    killed.arg(folder.path());
    let printed = run(match std::env::var("ROCKMILL_PROFILE_KILLS") {
        Ok(kills) => killed.arg(kills),
        // All profiles take minutes.
        Err(_) => killed.args(["1", "kvrocks", "flink"]),
    });
    println!("\n{printed}");
    assert!(printed.ends_with("done\n"), "{printed}");
}

/// For scripts/matrix.sh --messages.
#[test]
#[ignore = "it writes test data of the format crate"]
fn messages_are_captured() {
    let folder = std::env::var("ROCKMILL_TEST_MESSAGES").expect("it names a folder");
    let installed = Installed::new();
    let rocksdb = RocksDb::find(installed.folder()).expect("it is there");
    run(Command::new(compile(&installed, &rocksdb, "messages")).arg(folder));
}

#[test]
fn what_a_killed_cpp_program_has_written_is_there() {
    if !have(&["cc", "g++", "ld", "objcopy"]) {
        return;
    }
    let installed = Installed::new();
    let Some(rocksdb) = RocksDb::find(installed.folder()) else {
        return;
    };
    let binary = compile(&installed, &rocksdb, "killed");
    let folder = tempfile::tempdir().expect("a folder");
    let printed = run(Command::new(binary).arg(folder.path()));
    assert!(printed.ends_with("done\n"), "{printed}");
}

#[test]
fn files_go_when_memory_runs_out_behind_a_job_of_a_cpp_program() {
    if !have(&["cc", "g++", "ld", "objcopy"]) {
        return;
    }
    let installed = Installed::new();
    let Some(rocksdb) = RocksDb::find(installed.folder()) else {
        return;
    };
    let binary = compile(&installed, &rocksdb, "memory");
    let folder = tempfile::tempdir().expect("a folder");
    let printed = run(Command::new(binary).arg(folder.path()));
    assert!(printed.ends_with("done\n"), "{printed}");
}

#[test]
fn threads_of_a_cpp_program_may_be_late_or_wrong() {
    if !have(&["cc", "g++", "ld", "objcopy"]) {
        return;
    }
    let installed = Installed::new();
    let Some(rocksdb) = RocksDb::find(installed.folder()) else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let printed = run(Command::new(compile(&installed, &rocksdb, "kv")).arg(folder.path()));
    assert!(printed.ends_with("wrong calls\n"), "{printed}");
}

/// `ROCKMILL_SEED` chooses the operations, `ROCKMILL_SECONDS` the duration.
#[test]
fn threads_of_a_cpp_program_get_and_put_through_a_view() {
    if !have(&["cc", "g++", "ld", "objcopy"]) {
        return;
    }
    let installed = Installed::new();
    let Some(rocksdb) = RocksDb::find(installed.folder()) else {
        return;
    };
    let given = |name, default: &str| std::env::var(name).unwrap_or_else(|_| default.to_owned());
    let (seed, seconds) = (given("ROCKMILL_SEED", "1"), given("ROCKMILL_SECONDS", "5"));
    println!("ROCKMILL_SEED={seed}");
    for sanitizer in ["-O2", "-fsanitize=thread"] {
        let sources = [sanitizer, "-x", "c++"];
        let binary = compile_with(&installed, &rocksdb, "stress.cu", &sources);
        let folder = tempfile::tempdir().expect("a folder");
        let mut stress = Command::new(binary);
        stress.arg("cpu").arg(folder.path()).args([&seconds, &seed]);
        let printed = run(&mut stress);
        assert!(printed.ends_with("done\n"), "{printed}");
    }
}

/// Compiles a program in C++ and returns its path.
fn compile(installed: &Installed, rocksdb: &RocksDb, name: &str) -> PathBuf {
    compile_with(installed, rocksdb, &format!("{name}.cpp"), &[])
}

fn compile_with(installed: &Installed, rocksdb: &RocksDb, name: &str, flags: &[&str]) -> PathBuf {
    let stem = Path::new(name).file_stem().expect("a name");
    let binary = installed.folder().join(stem);
    let mut compiler = Command::new("g++");
    // RocksDB 11 needs C++20; C++17 suffices for Rockmill's header.
    compiler.args(["-std=c++20", "-Wall", "-Wextra", "-Werror", WITHOUT_RTTI]);
    compiler.arg("-I").arg(installed.headers());
    compiler.arg("-isystem").arg(&rocksdb.headers);
    compiler.args(flags).arg(program(name)).args(["-x", "none"]);
    compiler
        .arg("-L")
        .arg(installed.libraries())
        .arg("-lrockmill");
    compiler.args(&rocksdb.libraries).arg(installed.rpath());
    run(compiler.arg("-o").arg(&binary));
    binary
}

/// Runs an example and checks that Rockmill did a job.
fn run_example(binary: &Path, folder: &Path) {
    let printed = run(Command::new(binary).arg(folder.join("database")));
    assert!(
        printed.contains("\"jobs_failed\":0,") && !printed.contains("\"jobs_done\":0,"),
        "{printed}"
    );
}

#[test]
fn the_example_in_c_runs() {
    if !have(&["cc", "ld", "objcopy", "make", "pkg-config"]) {
        return;
    }
    let installed = Installed::new();
    let Some(rocksdb) = RocksDb::find(installed.folder()) else {
        return;
    };
    let mut make = Command::new("make");
    make.arg("-C").arg(Path::new(REPOSITORY).join("examples/c"));
    make.arg(format!("BUILD={}", installed.folder().display()));
    make.arg("CFLAGS=-Wall -Wextra -Werror");
    make.arg(format!("LDFLAGS={}", installed.rpath()));
    make.arg(format!(
        "ROCKSDB_CFLAGS=-isystem {}",
        rocksdb.headers.display()
    ));
    make.arg(format!("ROCKSDB_LIBS={}", rocksdb.libraries.join(" ")));
    run(make.env("PKG_CONFIG_PATH", installed.libraries().join("pkgconfig")));
    run_example(&installed.folder().join("example"), installed.folder());
}

#[test]
fn the_example_in_cpp_runs() {
    if !have(&["cc", "g++", "ld", "objcopy", "cmake"]) {
        return;
    }
    let installed = Installed::new();
    let Some(rocksdb) = RocksDb::find(installed.folder()) else {
        return;
    };
    let build = installed.folder().join("build");
    let mut configure = Command::new("cmake");
    configure
        .arg("-S")
        .arg(Path::new(REPOSITORY).join("examples/cpp"))
        .arg("-B")
        .arg(&build);
    configure.arg(format!(
        "-DCMAKE_PREFIX_PATH={}",
        installed.prefix().display()
    ));
    configure.arg(format!(
        "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror {WITHOUT_RTTI}"
    ));
    configure.arg(format!(
        "-DROCKSDB_INCLUDE_DIR={}",
        rocksdb.headers.display()
    ));
    configure.arg(format!(
        "-DROCKSDB_LIBRARIES={}",
        rocksdb.libraries.join(";")
    ));
    run(&mut configure);
    run(Command::new("cmake").arg("--build").arg(&build));
    run_example(&build.join("example"), installed.folder());
}
