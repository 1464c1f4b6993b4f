//! The scripts that install and pack the libraries, and the one that builds RocksDB for them.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::tools::{REPOSITORY, built, have, run};

fn script(name: &str) -> PathBuf {
    Path::new(REPOSITORY).join("scripts").join(name)
}

fn shell(text: &str) -> Command {
    let mut shell = Command::new("bash");
    shell.args(["-euo", "pipefail", "-c", text]);
    shell
}

/// Makes a command find `text` as the program `name` before all others.
fn replace_program(command: &mut Command, name: &str, text: &str, folder: &Path) {
    fs::create_dir_all(folder).expect("room");
    let program = folder.join(name);
    fs::write(&program, format!("#!/bin/bash\n{text}\n")).expect("room");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let rest = env::var("PATH").expect("programs are found");
    command.env("PATH", format!("{}:{rest}", folder.display()));
}

#[test]
fn relative_folders_begin_where_the_user_is() {
    if !have(&["ld", "objcopy", "make"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    // The built libraries have the same names.
    let there = folder.path().join("release");
    std::os::unix::fs::symlink(built(), there).expect("room");
    let mut install = Command::new(script("install.sh"));
    run((install.args(["a prefix", "release"])).current_dir(folder.path()));
    let mut make = Command::new("make");
    make.arg("-C")
        .arg(REPOSITORY)
        .args(["install", "PREFIX=made"]);
    make.current_dir(folder.path()).env("PWD", folder.path());
    run(make.env("CARGO_TARGET_DIR", folder.path()));
    for prefix in ["a prefix", "made"] {
        let header = folder.path().join(prefix).join("include/rockmill.h");
        assert!(header.exists(), "{prefix}");
    }
}

#[test]
fn the_tarball_has_the_tracked_examples_and_the_licences_of_what_is_inside() {
    if !have(&["ld", "objcopy", "readelf", "tar", "git", "python3"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let checkout = folder.path().join("checkout");
    let mut copy = shell(
        "git ls-files -z | xargs -0 cp --parents -t \"$0\" && cd \"$0\" && git init -q && git add . &&
         touch examples/c/stray && git ls-files examples/c examples/cpp examples/gpukv",
    );
    fs::create_dir(&checkout).expect("room");
    let tracked = run(copy.arg(&checkout).current_dir(REPOSITORY));
    let release = || {
        let mut release = Command::new(checkout.join("scripts/release.sh"));
        release.arg("packed").arg(built());
        release.current_dir(folder.path());
        release
    };
    let packed = run(&mut release());
    let (tarball, package) = packed.trim_end().split_once('\n').unwrap_or((&packed, ""));
    let tarball = Path::new(tarball.trim_end());
    assert_eq!(tarball.parent(), Some(&*folder.path().join("packed")));
    let listed = run(Command::new("tar").arg("-tzf").arg(tarball));
    let files = listed.lines().filter(|line| !line.ends_with('/'));
    let sums = fs::read_to_string(tarball.with_file_name("SHA256SUMS")).expect("sums");
    let names: Vec<_> = sums.lines().map(|line| line.split_at(66).1).collect();
    let expected = packed
        .lines()
        .map(|path| path.rsplit_once('/').expect("a path").1);
    assert_eq!(names, expected.collect::<Vec<_>>());
    assert_eq!(run(&mut release()), packed);
    let again = fs::read_to_string(tarball.with_file_name("SHA256SUMS"));
    assert_eq!(again.expect("sums"), sums, "packed twice");
    let unpacked = folder.path().join("unpacked");
    let mut check = shell(
        "mkdir \"$1\" && tar -C \"$1\" --strip-components=1 -xzf \"$0\" && cd \"$1\" &&
         sha256sum --quiet -c SHA256SUMS && head -n 1 README.md CHANGELOG.md docs/guide/install.md",
    );
    let documents = run(check.arg(tarball).arg(&unpacked));
    assert!(documents.contains("# Changelog"), "{documents}");
    if have(&["dpkg-deb"]) {
        let contents = run(Command::new("dpkg-deb").arg("-c").arg(package));
        for file in [
            "./usr/lib/librockmill.so.2 ->",
            "./usr/include/rockmill.h",
            "./usr/share/doc/rockmill/copyright",
        ] {
            assert!(contents.contains(file), "{file}: {contents}");
        }
    }
    let mut examples: Vec<_> = files
        .filter_map(|line| line.split_once('/').map(|(_, file)| file))
        .filter(|file| file.starts_with("examples/"))
        .collect();
    examples.sort_unstable();
    assert_eq!(examples, tracked.lines().collect::<Vec<_>>());

    let licences = |of: &str| {
        let mut tar = Command::new("tar");
        tar.arg("-xzOf").arg(tarball).arg("--wildcards");
        run(tar.arg(format!("*/THIRD-PARTY-{of}.txt")))
    };
    let of_library = licences("librockmill");
    for inside in ["lz4-sys", "snap", "zstd-sys", "Meta Platforms"] {
        assert!(of_library.contains(inside), "{inside}");
    }
    assert!(!of_library.contains("rocksdb"));
    fs::remove_file(tarball).expect("it is ours");
    let mut without = release();
    let programs = folder.path().join("programs");
    replace_program(&mut without, "readelf", "exit 127", &programs);
    let output = without.output().expect("bash starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("readelf cannot tell"), "{said}");
    assert!(!output.status.success() && !tarball.exists(), "{said}");
}

/// The command, the wheel and the jar are built elsewhere, so their lists are made here without them.
#[test]
fn what_is_shipped_has_the_licences_of_what_is_inside() {
    if !have(&["python3"]) {
        return;
    }
    let library = built().join("librockmill_capi.so");
    let all = [
        "rust-librocksdb-sys",
        "datafusion ",
        "Apache Arrow",
        "bzip2-sys",
        "zstd-sys",
    ];
    for (shipped, package, inside) in [
        ("rockmill", "rockmill-cli", &all[..]),
        ("the wheel", "rockmill-python", &all[..]),
        ("the jar", "rockmill-capi", &["lz4-sys", "zstd-sys"]),
    ] {
        let mut list = Command::new(script("licences.sh"));
        let listed = run(list.args([shipped, package]).arg(&library));
        for name in inside {
            assert!(
                listed.contains(name),
                "{name} is not in the list of {shipped}"
            );
        }
    }
}

/// With another licence of a crate, no tarball is made.
#[test]
fn a_licence_that_is_not_allowed_is_refused() {
    if !have(&["python3"]) {
        return;
    }
    let mut check = shell(
        "cargo metadata --locked --format-version 1 --filter-platform $(rustc -vV | sed -n 's/^host: //p') |
         sed 's/BSD-3-Clause/GPL-2.0-only/g' | python3 scripts/licences.py library rockmill-capi 2>&1",
    );
    let output = check.current_dir(REPOSITORY).output();
    let output = output.expect("the shell starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success(), "{said}");
    assert!(
        said.contains("zstd-sys") && said.contains("GPL-2.0-only"),
        "{said}"
    );
}

#[test]
fn plain_cargo_is_told_of_the_built_rocksdb_unless_it_has_a_configuration() {
    let folder = tempfile::tempdir().expect("a folder");
    let checkout = folder.path().join("checkout");
    let copied = checkout.join("scripts/cargo-config.sh");
    fs::create_dir_all(checkout.join("scripts")).expect("room");
    fs::copy(script("cargo-config.sh"), &copied).expect("room");
    let write = || run(Command::new(&copied).args(["/a cache/0.49.0", "/a target"]));
    let file = checkout.join(".cargo/config.toml");
    write();
    let mut cargo = Command::new("cargo");
    cargo.current_dir(&checkout).env_remove("CARGO_TARGET_DIR");
    let found = run(cargo
        .args(["-Zunstable-options", "config", "get"])
        .env("RUSTC_BOOTSTRAP", "1"));
    for line in [
        "build.target-dir = \"/a target\"",
        "env.ROCKSDB_LIB_DIR = \"/a cache/0.49.0/lib\"",
        "env.ROCKSDB_STATIC = \"1\"",
        "env.PYO3_NO_PYTHON = \"1\"",
    ] {
        assert!(found.contains(line), "{found}");
    }
    fs::write(&file, "[net]\n").expect("room");
    write();
    assert_eq!(fs::read_to_string(&file).expect("a file"), "[net]\n");
}

/// With a program that has the name of a part of CUDA's compiler.
#[test]
fn the_time_of_kernels_is_told_and_the_exit_code_stays() {
    const LONGER_THAN_A_PAUSE: &str = "6";
    let folder = tempfile::tempdir().expect("a folder");
    let mut build = Command::new(script("tell_kernels.sh"));
    replace_program(&mut build, "cicc", "sleep $1", folder.path());
    let told = build.args(["cicc", LONGER_THAN_A_PAUSE]).output();
    let told = told.expect("the script starts");
    assert!(told.status.success(), "{told:?}");
    let said = String::from_utf8_lossy(&told.stderr);
    assert!(said.starts_with("kernels for GPUs: "), "{said}");
    let failed = Command::new(script("tell_kernels.sh"))
        .args(["sh", "-c", "exit 7"])
        .status();
    assert_eq!(failed.expect("the script starts").code(), Some(7));
}

/// With a cargo that makes RocksDB be built at once.
#[test]
fn rocksdb_is_built_into_a_folder_with_a_space() {
    if !have(&["cc", "ar", "ranlib"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let into = folder.path().join("a cache");
    let mut build = Command::new(script("rocksdb.sh"));
    build.arg("a cache").arg(folder.path().join("target"));
    build.current_dir(folder.path());
    let cargo = r#"
        crate=$CRATE/rust-librocksdb-sys-1
        if [ "$1" = metadata ]; then
            mkdir -p "$crate"
            echo a.cc >"$crate/rocksdb_lib_sources.txt"
            echo "{\"manifest_path\":\"$crate/Cargo.toml\"}"
            exit
        fi
        while [ "$1" != --target-dir ]; do shift; done
        mkdir -p "$2" "$crate/rocksdb/include"
        for name in rocksdb snappy c_api_extensions; do
            echo "int $name;" | cc -c -x c -o "$2/$name.o" -
        done
        ar rcs "$2/librocksdb.a" "$2/rocksdb.o" "$2/c_api_extensions.o"
        ar rcs "$2/libsnappy.a" "$2/snappy.o"
        echo "{\"reason\":\"build-script-executed\",\"package_id\":\"rust-librocksdb-sys\",\"out_dir\":\"$2\"}""#;
    build.env("CRATE", folder.path().join("a crate"));
    replace_program(&mut build, "cargo", cargo, &folder.path().join("programs"));
    run(&mut build);
    let members = run(Command::new("ar")
        .arg("t")
        .arg(into.join("lib/librocksdb.a")));
    assert_eq!(members, "snappy.o\nrocksdb.o\n");
    assert!(into.join("include").exists());
}
