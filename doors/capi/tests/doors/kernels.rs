//! Programs with kernels, compiled by each available compiler. Without a GPU, threads of the host do the work of
//! kernels.

use std::path::Path;
use std::process::Command;

use rockmill_testkit::machine::skipped;

use crate::tools::{Installed, REPOSITORY, RocksDb, WITHOUT_RTTI, have, nvcc, program, run};

/// The example without a GPU.
fn run_rank(rank: &Path, installed: &Installed) {
    let mut rank = Command::new(rank);
    rank.arg(installed.folder().join("database")).arg("cpu");
    let printed = run(rank.env("LD_LIBRARY_PATH", installed.libraries()));
    let expected = "20000 items were ranked, 20000 scores are in RocksDB\n";
    assert_eq!(printed, expected);
}

#[test]
fn programs_with_kernels_are_compiled_by_nvcc_and_the_example_runs_without_a_gpu() {
    if !have(&["cc", "g++", "ld", "objcopy"]) {
        return;
    }
    let Some(nvcc) = nvcc() else {
        return;
    };
    let installed = Installed::new();
    let Some(rocksdb) = RocksDb::find(installed.folder()) else {
        return;
    };
    let example = Path::new(REPOSITORY).join("examples/gpukv/rank.cu");
    for (name, source) in [("rank", example), ("lost", program("lost.cu"))] {
        let mut compiler = Command::new(nvcc.join("bin/nvcc"));
        compiler.args(["-std=c++20", "-arch=sm_80", "-Xcompiler", WITHOUT_RTTI]);
        compiler.arg("-I").arg(installed.headers());
        compiler.arg("-isystem").arg(&rocksdb.headers).arg(source);
        compiler
            .arg("-L")
            .arg(installed.libraries())
            .arg("-lrockmill");
        // The wheels of CUDA have its runtime here.
        compiler.arg("-L").arg(nvcc.join("lib"));
        compiler.args(&rocksdb.libraries);
        run(compiler.arg("-o").arg(installed.folder().join(name)));
    }
    run_rank(&installed.folder().join("rank"), &installed);
}

#[test]
fn the_example_with_kernels_is_built_by_cmake() {
    if !have(&["cc", "g++", "ld", "objcopy", "cmake"]) {
        return;
    }
    let Some(nvcc) = nvcc() else {
        return;
    };
    let installed = Installed::new();
    let Some(rocksdb) = RocksDb::find(installed.folder()) else {
        return;
    };
    let build = installed.folder().join("build");
    let prefix = installed.prefix();
    let mut configure = Command::new("cmake");
    let source = Path::new(REPOSITORY).join("examples/gpukv");
    configure.arg("-S").arg(source).arg("-B").arg(&build);
    let definitions = [
        ("CMAKE_PREFIX_PATH", prefix.display().to_string()),
        ("ROCKSDB_INCLUDE_DIR", rocksdb.headers.display().to_string()),
        ("ROCKSDB_LIBRARIES", rocksdb.libraries.join(";")),
    ];
    for (name, value) in definitions {
        configure.arg(format!("-D{name}={value}"));
    }
    // The wheels of CUDA have no folder lib64, where nvcc looks for its runtime.
    let (compiler, libraries) = (nvcc.join("bin/nvcc"), nvcc.join("lib"));
    configure.env("CUDACXX", compiler);
    run(configure.env("LIBRARY_PATH", &libraries));
    let mut make = Command::new("cmake");
    run(make
        .arg("--build")
        .arg(&build)
        .env("LIBRARY_PATH", &libraries));
    run_rank(&build.join("rank"), &installed);
}

/// The newest clang, and its major version; otherwise the test counts as skipped.
fn clang() -> Option<(String, u32)> {
    const NEWEST: u32 = 30;
    const OLDEST: u32 = 14;
    let numbered = (OLDEST..=NEWEST).rev().map(|n| format!("clang++-{n}"));
    let found = numbered.chain(["clang++".to_owned()]).find_map(|name| {
        let version = Command::new(&name).arg("-dumpversion").output().ok()?;
        let version = String::from_utf8(version.stdout).ok()?;
        let major = version.split('.').next()?.parse().ok()?;
        Some((name, major))
    });
    if found.is_none() {
        skipped("there is no clang++");
    }
    found
}

#[test]
fn the_header_for_kernels_is_compiled_by_clang() {
    /// The first clang that supports CUDA 13.
    const CUDA_13: u32 = 22;
    if !have(&["cc", "ld", "objcopy"]) {
        return;
    }
    let Some((clang, version)) = clang() else {
        return;
    };
    let installed = Installed::new();
    let Some(rocksdb) = RocksDb::find(installed.folder()) else {
        return;
    };
    let compiler = || {
        let mut compiler = Command::new(&clang);
        compiler.args(["-std=c++17", "-Wall", "-Wextra", "-Werror", "-c"]);
        compiler.arg("-o").arg(installed.folder().join("object"));
        compiler.arg("-I").arg(installed.headers());
        compiler.arg("-isystem").arg(&rocksdb.headers);
        compiler
    };
    run(compiler().arg(program("kv.cpp")));
    let Some(nvcc) = nvcc() else {
        return;
    };
    if version < CUDA_13 {
        skipped(&format!("{clang} does not take CUDA 13"));
        return;
    }
    // clang includes a header of cuRAND, which the wheels of CUDA's compiler do not have.
    let curand = installed.folder().join("curand");
    std::fs::create_dir(&curand).expect("a folder");
    std::fs::write(curand.join("curand_mtgp32_kernel.h"), "").expect("written");
    let mut cuda = compiler();
    cuda.args(["-x", "cuda", "--cuda-gpu-arch=sm_80"]);
    cuda.arg("-Wno-unknown-cuda-version");
    cuda.arg(format!("--cuda-path={}", nvcc.display()));
    cuda.arg("-isystem").arg(nvcc.join("include/cccl"));
    cuda.arg("-idirafter").arg(&curand);
    run(cuda.arg(Path::new(REPOSITORY).join("examples/gpukv/rank.cu")));
}
