//! Files in memory.

use std::sync::{Arc, Mutex};

use rockmill_core::{
    Cacheable, Error, FileIdentity, InputTable, ReadAt, Result, SstFile, SstSink, kv_hash,
    open_table,
};

/// Name of every file in memory.
pub const FILE_NAME: &str = "000007.sst";

/// An input file in memory.
#[derive(Debug, Clone)]
pub struct MemFile(pub Vec<u8>);

impl ReadAt for MemFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let found = usize::try_from(offset)
            .ok()
            .and_then(|start| self.0.get(start..start.checked_add(buf.len())?));
        match found {
            Some(bytes) => buf.copy_from_slice(bytes),
            None => return Err(Error::corruption(FILE_NAME, offset, "the file ends early")),
        }
        Ok(())
    }

    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn name(&self) -> &str {
        FILE_NAME
    }
}

/// An output file in memory.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct MemOutput {
    pub number: u64,
    pub bytes: Vec<u8>,
    pub finished: bool,
}

/// Output files in memory, numbered from `first`.
#[derive(Debug, Default)]
pub struct MemSink {
    files: Arc<Mutex<Vec<MemOutput>>>,
    first: u64,
}

impl MemSink {
    pub fn numbered_from(first: u64) -> Self {
        let files = Arc::default();
        Self { files, first }
    }

    pub fn into_files(self) -> Vec<MemOutput> {
        std::mem::take(&mut self.files.lock().expect("no writer panicked"))
    }
}

struct MemSstFile {
    files: Arc<Mutex<Vec<MemOutput>>>,
    at: usize,
}

impl SstFile for MemSstFile {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.files.lock().expect("no writer panicked")[self.at]
            .bytes
            .extend_from_slice(bytes);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.files.lock().expect("no writer panicked")[self.at].finished = true;
        Ok(())
    }
}

impl SstSink for MemSink {
    fn create(&mut self) -> Result<(u64, Box<dyn SstFile>)> {
        let mut files = self.files.lock().expect("no writer panicked");
        let number = self.first + files.len() as u64;
        files.push(MemOutput {
            number,
            ..MemOutput::default()
        });
        let file = MemSstFile {
            files: Arc::clone(&self.files),
            at: files.len() - 1,
        };
        Ok((number, Box::new(file)))
    }
}

/// Opens a table. Devices may cache it: its unique id is a hash of all of its bytes, since tests write different files under
/// one name.
pub fn open(bytes: Vec<u8>) -> Result<InputTable> {
    let unique_id = [kv_hash(&bytes, b""), 1];
    let table = open_table(Box::new(MemFile(bytes)))?;
    let cacheable = FileIdentity::of(&table, unique_id).map(|identity| Cacheable {
        identity,
        level: 3,
        database: 1,
    });
    Ok(table.with_cacheable(cacheable))
}
