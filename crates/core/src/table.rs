//! An opened input file.

use rockmill_format::table::TableMeta;

use crate::error::{Error, Result};
use crate::io::ReadAt;

/// An SST file with all that its blocks' readers need.
#[derive(Debug)]
pub struct InputTable {
    /// The file.
    pub file: Box<dyn ReadAt>,
    /// Footer, properties, index, dictionary.
    pub meta: TableMeta,
}

/// Opens an SST: reads footer, metaindex, properties, index and dictionary, and verifies their
/// checksums.
///
/// # Errors
/// Storage if reading fails; Corruption or Declined if the file is damaged or not understood.
pub fn open_table(file: Box<dyn ReadAt>) -> Result<InputTable> {
    let mut read = |offset: u64, len: usize| -> std::result::Result<Vec<u8>, Error> {
        let mut bytes = vec![0; len];
        file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    };
    let meta = TableMeta::open(file.len(), &mut read, |e| Error::format(file.name(), e))?;
    Ok(InputTable { file, meta })
}
