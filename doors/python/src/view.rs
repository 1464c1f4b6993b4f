//! Views in device memory or host memory. `rockmill._view` checks what its users pass.

use std::ffi::c_void;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use rockmill_cli::database_dir;
use rockmill_cli::merge_args::MergeArgs;
use rockmill_cli::wal_dir::WalDirArgs;
use rockmill_core::ErrorKind;
use rockmill_scan::{Database, LogSource};
use rockmill_sql::ReadOnly;
use rockmill_terminal::outcome::Failure;
use rockmill_view::{CallerStream, Keys, Loaded, Rows, Target, View};

use crate::errors::{exception, renamed, usage};
use crate::runtime::run_blocking;

/// A view, for `rockmill.View`.
#[pyclass(frozen, module = "rockmill._rockmill")]
pub struct RawView {
    /// `None` once it is closed.
    view: Mutex<Option<Arc<View>>>,
    is_on_host: bool,
    /// Its process. Others have none of its threads, and no device.
    process: u32,
}

/// Where the arrays of a lookup lie, in the memory of the view's device.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Memory {
    keys: usize,
    key_bytes: u64,
    len: usize,
    rows: usize,
    row_bytes: usize,
    statuses: usize,
    /// 0 if there is none.
    sizes: usize,
    /// 0 if there is none.
    default: usize,
}

impl RawView {
    fn view(&self) -> PyResult<Arc<View>> {
        if self.process != std::process::id() {
            return Err(usage(
                "the view belongs to the process that was forked: open another one in this process",
            ));
        }
        // The lock ends before Python runs.
        let view = self
            .view
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        view.ok_or_else(|| usage("the view is closed"))
    }
}

impl Drop for RawView {
    fn drop(&mut self) {
        let view = self
            .view
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if self.process != std::process::id() {
            // Its threads are not here, and would be waited for.
            std::mem::forget(view);
        } else if let Some(view) = view {
            let mut view = Some(view);
            // Kernels that use it are waited for.
            let _ = Python::try_attach(|py| py.detach(|| drop(view.take())));
        }
    }
}

fn failed(error: rockmill_core::Error) -> Failure {
    match error.kind {
        ErrorKind::Invalid => Failure::Usage(error.what),
        _ => error.into(),
    }
}

#[pymethods]
impl RawView {
    #[new]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        family: String,
        device: Option<u32>,
        memory: Option<u64>,
        wal_dir: Option<PathBuf>,
        merge_operators: Vec<String>,
    ) -> PyResult<Self> {
        let opened = run_blocking(py, move || {
            rockmill_cli::raise_open_files();
            database_dir::require(&path)?;
            let of_database = |error| database_dir::failure(&path, error);
            let (database, told) = WalDirArgs::of(wal_dir).open(&path)?;
            let families = database.families().map_err(of_database)?;
            if let LogSource::Missing { .. } = database.log_folder().map_err(of_database)?.source {
                // A lookup would miss what is only there.
                return Err(Failure::Environment(told.unwrap_or_default()));
            }
            if !families.contains(&family) {
                let known = families.join(", ");
                return Err(Failure::Usage(format!(
                    "there is no column family {family:?}, but {known}"
                )));
            }
            let operators = MergeArgs::of(&merge_operators)?.operators(&path, &families)?;
            let database = database.with_iterators(Arc::new(ReadOnly::default()));
            let database = Arc::new(database.with_merge_operators(operators));
            let target = device.map_or(Target::Host, Target::Cuda);
            let mut builder = View::builder(database, &family).device(target);
            if let Some(bytes) = memory {
                builder = builder.memory_bytes(bytes);
            }
            Ok((builder.open().map_err(of_database)?, told))
        });
        let (view, told) = opened?;
        let warning = py.import("rockmill._errors")?.getattr("RockmillWarning")?;
        if let Some(sentence) = told {
            let sentence = std::ffi::CString::new(renamed(&sentence)).unwrap_or_default();
            PyErr::warn(py, &warning, &sentence, 2)?;
        }
        Ok(Self {
            view: Mutex::new(Some(Arc::new(view))),
            is_on_host: device.is_none(),
            process: std::process::id(),
        })
    }

    /// Queues a lookup of fixed-size keys on a stream of the view's device. On the host, it is done at once, and RocksDB is
    /// asked for what the view does not tell.
    fn lookup(&self, py: Python<'_>, memory: Memory, stream: usize) -> PyResult<()> {
        let view = self.view()?;
        let is_on_host = self.is_on_host;
        py.detach(move || {
            let at = |address: usize| std::ptr::with_exposed_provenance_mut::<u8>(address);
            // SAFETY: `rockmill._view` passes arrays of the view's device that have room, and that the stream uses in order.
            let (keys, rows, stream) = unsafe {
                let keys = Keys::fixed(at(memory.keys), memory.key_bytes, memory.len as u64);
                let rows = Rows::new(
                    at(memory.rows),
                    memory.row_bytes as u64,
                    at(memory.statuses),
                );
                let rows = rows
                    .with_sizes(at(memory.sizes).cast())
                    .with_default(at(memory.default));
                let stream = std::ptr::with_exposed_provenance_mut::<c_void>(stream);
                (keys, rows, CallerStream::new(stream))
            };
            view.lookup(&keys, &rows, stream).map_err(failed)?;
            match is_on_host {
                // SAFETY: as above; the lookup is done.
                true => unsafe { ask(&view, &memory) },
                false => Ok(()),
            }
        })
        .map_err(|failure| exception(&failure))
    }

    /// Values of keys; `None` for those that are not there.
    fn get(&self, py: Python<'_>, keys: Vec<Vec<u8>>) -> PyResult<Vec<Option<Vec<u8>>>> {
        let view = self.view()?;
        let got = py.detach(move || {
            let keys: Vec<_> = keys.iter().map(Vec::as_slice).collect();
            view.get(&keys)
        });
        got.map_err(|error| exception(&failed(error)))
    }

    /// Brings the view to what the database is now. Returns its sequence number, and what was loaded.
    fn refresh(&self, py: Python<'_>) -> PyResult<(u64, String, u64, u64)> {
        let view = self.view()?;
        run_blocking(py, move || {
            let refreshed = view.refresh().map_err(failed)?;
            let (how, keys, bytes) = match refreshed.how {
                Loaded::Nothing => ("nothing was written".to_owned(), 0, 0),
                Loaded::Added { keys, bytes } => ("what was written".to_owned(), keys, bytes),
                Loaded::Ranges {
                    reason,
                    keys,
                    bytes,
                } => (format!("ranges of keys: {reason}"), keys, bytes),
            };
            Ok((refreshed.sequence, how, keys, bytes))
        })
    }

    /// Sequence number, keys with values, keys without one, ranges that only RocksDB reads, bytes.
    fn contents(&self) -> PyResult<(u64, u64, u64, usize, u64)> {
        let view = self.view()?;
        let contents = view.contents();
        let bytes = contents.slot_bytes + contents.record_bytes;
        Ok((
            view.sequence(),
            contents.keys,
            contents.needs_host,
            view.asked().len(),
            bytes,
        ))
    }

    /// Gives its memory back, once kernels that use it are done.
    fn close(&self, py: Python<'_>) {
        if self.process == std::process::id() {
            let view = self
                .view
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            py.detach(|| drop(view));
        }
    }
}

/// Asks RocksDB for the values that the view does not tell.
///
/// # Safety
/// The arrays are in host memory. No other thread uses them.
unsafe fn ask(view: &View, memory: &Memory) -> Result<(), Failure> {
    let at = |address: usize| std::ptr::with_exposed_provenance_mut::<u8>(address);
    for number in 0..memory.len {
        // SAFETY: the caller says so; there is a status and a key for each number.
        let (status, key) = unsafe {
            let key = at(memory.keys).add(number * memory.key_bytes as usize);
            let key: &[u8] = std::slice::from_raw_parts(key, memory.key_bytes as usize);
            (&mut *at(memory.statuses).add(number), key)
        };
        if *status != Rows::NEEDS_HOST {
            continue;
        }
        let value = view.get(&[key]).map_err(failed)?.pop().flatten();
        let len = value.as_ref().map_or(0, Vec::len);
        *status = match &value {
            None => Rows::NOT_FOUND,
            Some(value) if value.len() > memory.row_bytes => Rows::TOO_SMALL,
            Some(_) => Rows::FOUND,
        };
        // SAFETY: as above; a row has room for the value, and the default row has a row's bytes.
        unsafe {
            let row = at(memory.rows).add(number * memory.row_bytes);
            match value {
                Some(value) if value.len() <= memory.row_bytes => {
                    row.copy_from(value.as_ptr(), value.len())
                }
                None if memory.default != 0 => row.copy_from(at(memory.default), memory.row_bytes),
                _ => {}
            }
            if memory.sizes != 0 {
                *at(memory.sizes).cast::<u32>().add(number) = len as u32;
            }
        }
    }
    Ok(())
}
