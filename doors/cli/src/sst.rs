//! SST reading that `inspect` and `verify` share.

use std::path::Path;

use indicatif::ProgressBar;
use rockmill_core::{Error, ErrorKind, InputTable, ReadAt, Result, open_known_table};
use rockmill_format::checksum::ChecksumType;
use rockmill_format::handle::BlockHandle;
use rockmill_storage::{InputFileReader, LocalStorage};

/// An opened SST file, and the reasons why parts of its index are not understood.
#[derive(Debug)]
pub struct Sst {
    pub table: InputTable,
    pub unknown: Vec<Error>,
}

impl Sst {
    /// Opens an SST file. The bar counts the bytes that are read, and errors name the file as `path` does.
    ///
    /// # Errors
    /// Storage if it cannot be read; Corruption or Declined if it is damaged or not understood.
    pub fn open(path: &Path, bar: &ProgressBar) -> Result<Self> {
        let name = path.display().to_string();
        let file = InputFileReader::try_open(&LocalStorage, path)
            .map_err(|e| Error::storage(&name, "open it", &e))?;
        let bar = bar.clone();
        bar.set_message(name.clone());
        let (table, unknown) = open_known_table(Box::new(Counted { file, name, bar }))?;
        Ok(Self { table, unknown })
    }
}

#[derive(Debug)]
struct Counted {
    file: InputFileReader,
    name: String,
    bar: ProgressBar,
}

impl ReadAt for Counted {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.bar.inc(buf.len() as u64);
        let read = self.file.read_exact_at(buf, offset);
        read.map_err(|error| Error {
            file: Some(self.name.clone()),
            ..error
        })
    }

    fn len(&self) -> u64 {
        self.file.len()
    }

    fn name(&self) -> &str {
        &self.name
    }
}

/// Separates parts that are not understood from errors.
///
/// # Errors
/// All errors except Declined.
pub fn understood<T>(read: Result<T>) -> Result<std::result::Result<T, Error>> {
    match read {
        Err(error) if matches!(error.kind, ErrorKind::Declined(_)) => Ok(Err(error)),
        read => read.map(Ok),
    }
}

/// Returns the offset behind a block and its trailer.
pub fn end_of(handle: BlockHandle) -> u64 {
    handle.checked_end().unwrap_or(u64::MAX)
}

/// Returns the option name of a checksum type, such as `kXXH3`.
pub fn checksum_name(checksum: ChecksumType) -> &'static str {
    ["kNoChecksum", "kCRC32c", "kxxHash", "kxxHash64", "kXXH3"]
        .into_iter()
        .find(|name| ChecksumType::from_option(name) == Some(checksum))
        .unwrap_or("unknown")
}
