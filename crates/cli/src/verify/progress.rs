//! A progress bar over the bytes read.

use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};
use rockmill_core::{InputTable, ReadAt, Result, open_table};
use rockmill_engine::storage::{InputFileReader, LocalStorage};

/// A bar on standard error, if that is a terminal; it goes away when dropped.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar over so many bytes.
    pub fn over(bytes: u64) -> Self {
        const TEMPLATE: &str = "{bar:40} {bytes}/{total_bytes} {bytes_per_sec} {eta} {msg}";
        let bar = ProgressBar::new(bytes);
        if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
            bar.set_style(style);
        }
        Self { bar }
    }

    /// Opens an SST whose bytes the bar counts as they are read.
    ///
    /// # Errors
    /// Storage if it cannot be read; Corruption or Declined if it is damaged or not understood.
    pub fn open(&self, path: &Path) -> Result<InputTable> {
        let file = InputFileReader::open(&LocalStorage, path)?;
        self.bar.set_message(file.name().to_owned());
        open_table(Box::new(Counted {
            file,
            bar: self.bar.clone(),
        }))
    }

    /// Puts the bar where it belongs behind a file, however much of that was read.
    pub fn reached(&self, bytes: u64) {
        self.bar.set_position(bytes);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[derive(Debug)]
struct Counted {
    file: InputFileReader,
    bar: ProgressBar,
}

impl ReadAt for Counted {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.bar.inc(buf.len() as u64);
        self.file.read_exact_at(buf, offset)
    }

    fn len(&self) -> u64 {
        self.file.len()
    }

    fn name(&self) -> &str {
        self.file.name()
    }
}
