//! Reads of whole files by name.

use std::io;
use std::path::{Path, PathBuf};

use rockmill_core::{CancelToken, Error, ReadAt, Result};

use super::{ReadableFile, Storage, shared_path};

/// A file with a name that is read at any offset. Backends read inputs through it.
#[derive(Debug)]
pub struct InputFileReader {
    file: Box<dyn ReadableFile>,
    len: u64,
    name: String,
}

impl InputFileReader {
    /// Opens `path`; errors name it by its base name.
    ///
    /// # Errors
    /// Storage.
    pub fn open(storage: &dyn Storage, path: &Path) -> Result<Self> {
        Self::try_open(storage, path).map_err(|e| Error::storage(&base_name(path), "open it", &e))
    }

    /// Returns the open file.
    pub fn inner(&self) -> &dyn ReadableFile {
        &*self.file
    }

    /// Like [`InputFileReader::open`], but returns the system's own error.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn try_open(storage: &dyn Storage, path: &Path) -> io::Result<Self> {
        let file = storage.open(path)?;
        Ok(Self {
            len: file.size()?,
            name: base_name(path),
            file,
        })
    }
}

impl ReadAt for InputFileReader {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            match self.file.read_at(&mut buf[done..], at) {
                Ok(0) => return Err(Error::corruption(&self.name, at, "file ends too early")),
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    let error = Error::storage(&self.name, "read it", &e);
                    return Err(Error {
                        offset: Some(at),
                        ..error
                    });
                }
            }
        }
        Ok(())
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn name(&self) -> &str {
        &self.name
    }
}

/// Reads a file from `offset` to its end, at most `limit` bytes.
///
/// # Errors
/// Storage, also if there are more than `limit` bytes.
pub fn read_from(storage: &dyn Storage, path: &Path, offset: u64, limit: u64) -> Result<Vec<u8>> {
    let reader = InputFileReader::open(storage, path)?;
    let len = reader.len().saturating_sub(offset);
    if len > limit {
        let why = io::Error::other(format!("{len} bytes are more than {limit}"));
        return Err(Error::storage(reader.name(), "read it", &why));
    }
    let mut bytes = vec![0; len as usize];
    reader.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

/// Calls `each` with consecutive pieces of a file.
///
/// # Errors
/// Storage; Corruption if the file ends too early; Cancelled.
pub fn for_each_piece(
    reader: &dyn ReadAt,
    cancel: &CancelToken,
    mut each: impl FnMut(&[u8]),
) -> Result<()> {
    const PIECE_BYTES: usize = 1 << 20;
    let mut piece = Vec::new();
    let mut at = 0;
    while at < reader.len() {
        cancel.check()?;
        piece.resize(PIECE_BYTES.min((reader.len() - at) as usize), 0);
        reader.read_exact_at(&mut piece, at)?;
        each(&piece);
        at += piece.len() as u64;
    }
    Ok(())
}

/// Path of a database's table, which LevelDB names differently (`db/table_cache.cc:GetTableReader`). Tables of a backup
/// may be in a folder that backups share.
pub fn table_path(dir: &Path, number: u64) -> PathBuf {
    let path = dir.join(format!("{number:06}.sst"));
    let of_leveldb = path.with_extension("ldb");
    match !path.exists() && of_leveldb.exists() {
        true => of_leveldb,
        false => shared_path(path),
    }
}

/// Last component of a path, for messages.
pub fn base_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}
