//! Compilers and libraries for building the programs.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rockmill_testkit::machine::skipped;
use tempfile::TempDir;

pub const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Libraries that a static library needs, as rockmill.pc and the CMake package name them.
pub const STATIC_NEEDS: [&str; 6] = ["-lstdc++", "-lz", "-lgcc_s", "-lm", "-ldl", "-lpthread"];

/// Runs a command, which must succeed, and returns what it printed.
pub fn run(command: &mut Command) -> String {
    let output = command.output().expect("the command starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}\n{out}\n{err}");
    out
}

/// Whether all of these programs are installed; otherwise the test counts as skipped.
pub fn have(programs: &[&str]) -> bool {
    let is_there = |program: &&&str| {
        let output = Command::new(program).arg("--version").output();
        output.is_ok_and(|output| output.status.success())
    };
    let missing = programs.iter().find(|program| !is_there(program));
    if let Some(program) = missing {
        skipped(&format!("there is no {program}"));
    }
    missing.is_none()
}

/// The folder of a CUDA compiler: an installed one, or the one that the build has downloaded; otherwise the test counts
/// as skipped.
pub fn nvcc() -> Option<PathBuf> {
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
    let fetched = cache.or(home).map(|cache| cache.join("rockmill/nvcc"));
    let given = env::var_os("CUDA_HOME").map(PathBuf::from);
    let usual = Some(PathBuf::from("/usr/local/cuda"));
    let mut places = [given, usual, fetched].into_iter().flatten();
    let found = places.find(|place| place.join("bin/nvcc").exists());
    if found.is_none() {
        skipped("there is no nvcc");
    }
    found
}

/// The source of a test's program.
pub fn program(name: &str) -> PathBuf {
    let folder = Path::new(REPOSITORY).join("doors/capi/tests/doors/programs");
    folder.join(name)
}

/// The folder of this test's own program, in which cargo also builds the libraries.
pub fn built() -> PathBuf {
    let program = env::current_exe().expect("this program has a path");
    program.parent().expect("it is in a folder").to_owned()
}

/// A folder with the library as users install it.
pub struct Installed {
    folder: TempDir,
}

impl Installed {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let installed = Self { folder };
        let script = Path::new(REPOSITORY).join("scripts/install.sh");
        let prefix = installed.prefix();
        run(Command::new(script).arg(prefix).arg(built()));
        installed
    }

    /// A folder for the test.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn prefix(&self) -> PathBuf {
        self.folder().join("prefix")
    }

    pub fn headers(&self) -> PathBuf {
        self.prefix().join("include")
    }

    pub fn libraries(&self) -> PathBuf {
        self.prefix().join("lib")
    }

    /// Makes a program find the shared library.
    pub fn rpath(&self) -> String {
        format!("-Wl,-rpath,{}", self.libraries().display())
    }
}

/// The RocksDB that the workspace links.
pub struct RocksDb {
    pub headers: PathBuf,
    /// Libraries and objects, for a linker.
    pub libraries: Vec<String>,
}

/// That RocksDB is built with it.
pub const WITHOUT_RTTI: &str = "-fno-rtti";

impl RocksDb {
    /// Finds it, or the one that scripts/matrix.sh names, with objects in `folder`; otherwise the test counts as
    /// skipped.
    pub fn find(folder: &Path) -> Option<Self> {
        let other = env::var_os("ROCKMILL_TEST_ROCKSDB").map(PathBuf::from);
        let usual = |name| env::var_os(name).map(PathBuf::from);
        let headers = other.as_ref().map(|other| other.join("include"));
        let library = other.as_ref().map(|other| other.join("lib"));
        let headers = headers.or_else(|| usual("ROCKSDB_INCLUDE_DIR"));
        let library = library.or_else(|| usual("ROCKSDB_LIB_DIR"));
        let (Some(headers), Some(library)) = (headers, library) else {
            skipped("ROCKSDB_LIB_DIR names no RocksDB; see make env");
            return None;
        };
        let Some(codecs) = codecs() else {
            skipped("cargo has not built RocksDB's codecs yet");
            return None;
        };
        let bzip2 = folder.join("bzip2.o");
        let mut compiler = Command::new("cc");
        run(compiler
            .arg("-c")
            .arg(program("bzip2.c"))
            .arg("-o")
            .arg(&bzip2));
        let mut libraries = vec![Path::new(&library).join("librocksdb.a")];
        libraries.extend(codecs);
        libraries.push(bzip2);
        let libraries = libraries.iter().map(|path| path.display().to_string());
        Some(Self {
            headers,
            libraries: libraries.chain(STATIC_NEEDS.map(str::to_owned)).collect(),
        })
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect()
}

/// The codecs that the static RocksDB needs, which cargo has built for other crates of the workspace.
fn codecs() -> Option<Vec<PathBuf>> {
    let built = built();
    let profiles = entries(built.ancestors().nth(2)?);
    let builds = profiles
        .iter()
        .flat_map(|profile| entries(&profile.join("build")));
    let places: Vec<_> = builds
        .flat_map(|build| [build.join("out"), build.join("out/lib")])
        .collect();
    // Not every build of ZSTD has its dictionaries, so the linker gets all libraries and takes the missing symbols.
    let found = ["libzstd.a", "liblz4.a", "libbz2.a"].map(|library| {
        let paths = places.iter().map(|place| place.join(library));
        paths.filter(|path| path.exists()).collect::<Vec<_>>()
    });
    let are_all_there = found.iter().all(|paths| !paths.is_empty());
    are_all_there.then(|| found.concat())
}
