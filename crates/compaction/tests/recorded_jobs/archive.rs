//! The archive of the recorded jobs, with a folder for each.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use rockmill_compaction::record::JOB_FILE;
use tempfile::TempDir;

/// Compiled in, so that the program runs without a checkout.
const ARCHIVE: &[u8] = include_bytes!("jobs.tar.zst");

/// Path of the archive in the checkout.
const PATH: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/recorded_jobs/jobs.tar.zst"
);

/// zstd's highest level, because the archive is rarely created.
const LEVEL: i32 = 22;

/// Jobs repeat each other's options and inputs, so the window covers the whole archive.
const WINDOW_LOG: u32 = 27;

/// Maximum size, because every checkout contains the archive.
const MAX_BYTES: usize = 3 << 20;

/// The unpacked jobs of a test.
#[derive(Debug)]
pub struct Jobs {
    /// Removes the folders when it is dropped.
    _scratch: TempDir,
    /// The folders of all jobs, by name.
    pub dirs: Vec<PathBuf>,
}

impl Jobs {
    /// Unpacks the archive.
    pub fn unpack() -> Self {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let tar = zstd::decode_all(ARCHIVE).expect("the archive is sound");
        let unpacked = tar::Archive::new(&*tar).unpack(scratch.path());
        unpacked.expect("the archive can be unpacked");
        Self {
            dirs: folders(scratch.path()),
            _scratch: scratch,
        }
    }
}

/// Returns the folders in `root`, by name.
pub fn folders(root: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(root).expect("the folder can be listed");
    let mut dirs: Vec<_> = entries.map(|entry| entry.expect("listed").path()).collect();
    dirs.sort();
    dirs
}

/// Creates the archive of the jobs in `dirs`.
pub fn pack(dirs: &[PathBuf]) {
    let mut files: Vec<_> = dirs.iter().flat_map(|dir| folders(dir)).collect();
    // Similar files are adjacent.
    let is_job = |path: &PathBuf| path.ends_with(JOB_FILE);
    files.sort_by_key(|path| {
        (
            !is_job(path),
            path.extension().map(ToOwned::to_owned),
            path.clone(),
        )
    });
    let packed = write(&files).expect("the jobs can be packed");
    assert!(
        packed.len() <= MAX_BYTES,
        "the archive has {} bytes, more than {MAX_BYTES}",
        packed.len()
    );
    fs::write(PATH, &packed).expect("the archive can be written");
    println!("{PATH}: {} bytes", packed.len());
}

/// Packs files, each under the name of its folder.
fn write(files: &[PathBuf]) -> io::Result<Vec<u8>> {
    const MODE: u32 = 0o644;
    let mut tar = tar::Builder::new(Vec::new());
    for path in files {
        let mut bytes = Vec::new();
        fs::File::open(path)?.read_to_end(&mut bytes)?;
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(MODE);
        let folder = path.parent().and_then(Path::file_name).unwrap_or_default();
        let name = Path::new(folder).join(path.file_name().unwrap_or_default());
        tar.append_data(&mut header, name, &*bytes)?;
    }
    let mut packed = zstd::Encoder::new(Vec::new(), LEVEL)?;
    packed.window_log(WINDOW_LOG)?;
    packed.long_distance_matching(true)?;
    packed.write_all(&tar.into_inner()?)?;
    packed.finish()
}
