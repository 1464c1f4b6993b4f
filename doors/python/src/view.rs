//! Views in device memory or host memory. `rockmill._view` checks what its users pass.

use std::ffi::c_void;
use std::path::PathBuf;
use std::sync::Arc;

use pyo3::prelude::*;
use rockmill_cli::database_dir;
use rockmill_cli::merge_args::MergeArgs;
use rockmill_cli::wal_dir::{self, WalDirArgs};
use rockmill_core::{ErrorKind, Lock};
use rockmill_scan::Database;
use rockmill_sql::ReadOnly;
use rockmill_terminal::outcome::Failure;
use rockmill_view::{
    CallerStream, Hold, IdForm, Integer, Keys, Loaded, Rows, Target, Unanswered, View,
};

use crate::errors::{exception, renamed, usage};
use crate::runtime::run_blocking;

/// A view, for `rockmill.View`.
#[pyclass(frozen, module = "rockmill._rockmill")]
pub struct RawView {
    /// `None` once it is closed.
    open: Lock<Option<Arc<Open>>>,
    /// Key type, order of its bytes, and prefix; `None` if keys are rows of bytes.
    form: Option<(Integer, bool, Vec<u8>)>,
    is_on_host: bool,
    /// Its process. Others have none of its threads, and no device.
    process: u32,
}

/// An open view. It is dropped first: then no kernel runs that may leave a status.
struct Open {
    view: View,
    unanswered: Unanswered,
}

/// Where the arrays of a lookup lie, in the memory of the view's device.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Memory {
    /// Integers, or rows of bytes.
    ids: usize,
    /// Bytes of an id, and whether it has a sign.
    id_bytes: u64,
    is_signed: bool,
    len: usize,
    rows: usize,
    row_bytes: usize,
    /// 0 if there is none; then `found` is there.
    statuses: usize,
    /// 0 if there is none.
    found: usize,
    /// 0 if there is none.
    sizes: usize,
    /// 0 if there is none.
    default: usize,
    /// Whether what no value fills is zeroed.
    clears: bool,
    /// Whether values of another size than a row have no room.
    is_exact: bool,
    /// Whether `take_unanswered` tells of a key without an answer.
    notes: bool,
}

impl Memory {
    /// How its integers become keys.
    fn form(
        &self,
        (key, is_big_endian, prefix): &(Integer, bool, Vec<u8>),
    ) -> Result<IdForm, Failure> {
        let id = Integer {
            bytes: u8::try_from(self.id_bytes).unwrap_or(0),
            is_signed: self.is_signed,
        };
        IdForm::new(id, *key, *is_big_endian, prefix).map_err(failed)
    }
}

impl RawView {
    fn open(&self) -> PyResult<Arc<Open>> {
        if self.process != std::process::id() {
            return Err(usage(
                "the view belongs to the process that was forked: open another one in this process",
            ));
        }
        // The lock ends before Python runs.
        let open = self.open.lock().clone();
        open.ok_or_else(|| usage("the view is closed"))
    }
}

impl Drop for RawView {
    fn drop(&mut self) {
        let open = self.open.get_mut().take();
        if self.process != std::process::id() {
            // Its threads are not here, and would be waited for.
            std::mem::forget(open);
        } else if let Some(open) = open {
            let mut open = Some(open);
            // Kernels that use it are waited for.
            let _ = Python::try_attach(|py| py.detach(|| drop(open.take())));
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
    #[allow(clippy::too_many_arguments, reason = "rockmill.view has them by name")]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        family: String,
        device: Option<u32>,
        memory: Option<u64>,
        wal_dir: Option<PathBuf>,
        merge_operators: Vec<String>,
        // Bytes of integers in keys, or 0; whether they have a sign, and come in big-endian order; the prefix.
        form: (u8, bool, bool, Vec<u8>),
    ) -> PyResult<Self> {
        let (key_bytes, is_signed, is_big_endian, prefix) = form;
        let key = Integer {
            bytes: key_bytes,
            is_signed,
        };
        let form = (key_bytes > 0).then_some((key, is_big_endian, prefix));
        if let Some((key, is_big_endian, prefix)) = &form {
            IdForm::new(*key, *key, *is_big_endian, prefix)
                .map_err(|error| exception(&failed(error)))?;
        }
        let opened = run_blocking(py, move || {
            rockmill_cli::raise_open_files();
            database_dir::require_readable(&path)?;
            let of_database = |error| database_dir::failure(&path, error);
            let (database, logs) = WalDirArgs::of(wal_dir).directory(&path)?;
            let told = wal_dir::sentence(&path, &logs);
            let families = database.families().map_err(of_database)?;
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
            let view = builder.open().map_err(of_database)?;
            let unanswered = view.unanswered().map_err(failed)?;
            Ok((Open { view, unanswered }, told))
        });
        let (open, told) = opened?;
        let warning = py.import("rockmill._errors")?.getattr("RockmillWarning")?;
        if let Some(sentence) = told {
            let sentence = std::ffi::CString::new(renamed(&sentence)).unwrap_or_default();
            PyErr::warn(py, &warning, &sentence, 2)?;
        }
        Ok(Self {
            open: Lock::new(Some(Arc::new(open))),
            form,
            is_on_host: device.is_none(),
            process: std::process::id(),
        })
    }

    /// Queues a lookup on a stream of the view's device. On the host, it is done at once, and RocksDB is asked for what the
    /// view does not tell. Returns the highest status there, and 0 in device memory.
    fn lookup(&self, py: Python<'_>, memory: Memory, stream: usize) -> PyResult<u8> {
        let open = self.open()?;
        py.detach(move || {
            let form = self.form.as_ref().map(|form| memory.form(form));
            let form = form.transpose().map_err(|failure| exception(&failure))?;
            let at = |address: usize| std::ptr::with_exposed_provenance_mut::<u8>(address);
            let (ids, len) = (at(memory.ids), memory.len as u64);
            // SAFETY: `rockmill._view` passes arrays of the view's device that have room, and that the stream uses in order.
            // The view is dropped before the word.
            let (keys, mut rows, stream) = unsafe {
                let keys = match form {
                    Some(form) => Keys::ids(ids, form, len),
                    None => Keys::fixed(ids, memory.id_bytes, len),
                };
                let (values, statuses) = (at(memory.rows), at(memory.statuses));
                let mut rows = Rows::new(values, memory.row_bytes as u64, statuses)
                    .with_sizes(at(memory.sizes).cast())
                    .with_found(at(memory.found))
                    .with_default(at(memory.default));
                if memory.notes {
                    rows = rows.with_unanswered(&open.unanswered);
                }
                let stream = std::ptr::with_exposed_provenance_mut::<c_void>(stream);
                (keys, rows, CallerStream::new(stream))
            };
            if memory.clears {
                rows = rows.cleared();
            }
            if memory.is_exact {
                rows = rows.exact();
            }
            let raised = |error| exception(&failed(error));
            if !self.is_on_host {
                open.view.lookup(&keys, &rows, stream).map_err(raised)?;
                return Ok(0);
            }
            // A refresh meanwhile changes nothing for these keys.
            let hold = open.view.hold(stream).map_err(raised)?;
            hold.lookup(&keys, &rows, stream).map_err(raised)?;
            // SAFETY: as above; the lookup is done.
            unsafe { ask(&hold, &memory, form.as_ref()) }
        })
    }

    /// The status that lookups in device memory have left for a key without an answer; 0 if there is none.
    fn take_unanswered(&self, py: Python<'_>, waits: bool) -> PyResult<u8> {
        let open = self.open()?;
        if waits {
            let waited = Arc::clone(&open);
            run_blocking(py, move || waited.view.wait().map_err(failed))?;
        }
        Ok(open.unanswered.take())
    }

    /// Values of keys; `None` for those that are not there.
    fn get(&self, py: Python<'_>, keys: Vec<Vec<u8>>) -> PyResult<Vec<Option<Vec<u8>>>> {
        let open = self.open()?;
        let got = py.detach(move || {
            let keys: Vec<_> = keys.iter().map(Vec::as_slice).collect();
            open.view.get(&keys)
        });
        got.map_err(|error| exception(&failed(error)))
    }

    /// Brings the view to what the database is now. Returns its sequence number, and what was loaded.
    fn refresh(&self, py: Python<'_>) -> PyResult<(u64, String, u64, u64)> {
        let open = self.open()?;
        run_blocking(py, move || {
            let refreshed = open.view.refresh().map_err(failed)?;
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
        let open = self.open()?;
        let view = &open.view;
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
            let open = self.open.lock().take();
            py.detach(|| drop(open));
        }
    }
}

/// Asks RocksDB for the values that the view does not tell. Returns the highest status.
///
/// # Errors
/// RocksDB's; that of the handler of a signal.
///
/// # Safety
/// The arrays are in host memory, and have a status for each id. No other thread uses them.
unsafe fn ask(hold: &Hold, memory: &Memory, form: Option<&IdForm>) -> PyResult<u8> {
    /// Keys between two looks for signals.
    const KEYS: usize = 256;
    if memory.len == 0 {
        return Ok(Rows::NOT_FOUND);
    }
    let at = |address: usize| std::ptr::with_exposed_provenance_mut::<u8>(address);
    // SAFETY: the caller says so.
    let statuses = unsafe { std::slice::from_raw_parts_mut(at(memory.statuses), memory.len) };
    let key = |number: usize| {
        let len = memory.id_bytes as usize;
        let id: &[u8] = match len {
            0 => &[],
            // SAFETY: the caller says so.
            _ => unsafe { std::slice::from_raw_parts(at(memory.ids).add(number * len), len) },
        };
        form.map_or_else(|| id.to_vec(), |form| form.key(id))
    };
    let asked = |&number: &usize| statuses[number] == Rows::NEEDS_HOST;
    let asked: Vec<_> = (0..memory.len).filter(asked).collect();
    for numbers in asked.chunks(KEYS) {
        let keys: Vec<_> = numbers.iter().map(|&number| key(number)).collect();
        let keys: Vec<_> = keys.iter().map(Vec::as_slice).collect();
        let values = hold.get(&keys).map_err(|error| exception(&failed(error)))?;
        for (&number, value) in numbers.iter().zip(values) {
            // SAFETY: as above.
            statuses[number] = unsafe { answer(value, memory, number) };
        }
        Python::attach(|py| py.check_signals())?;
    }
    Ok(statuses.iter().copied().max().unwrap_or(Rows::NOT_FOUND))
}

/// Writes what RocksDB has found for a key, and returns its status.
///
/// # Safety
/// As for [`ask`].
unsafe fn answer(value: Option<Vec<u8>>, memory: &Memory, number: usize) -> u8 {
    let at = |address: usize| std::ptr::with_exposed_provenance_mut::<u8>(address);
    let fits = |len: usize| match memory.is_exact {
        true => len == memory.row_bytes,
        false => len <= memory.row_bytes,
    };
    let status = match &value {
        None => Rows::NOT_FOUND,
        Some(value) if fits(value.len()) => Rows::FOUND,
        Some(_) => Rows::TOO_SMALL,
    };
    // SAFETY: the caller says so; a row has room for the value, and the default row has a row's bytes.
    unsafe {
        let row = at(memory.rows).add(number * memory.row_bytes);
        match &value {
            Some(value) if status == Rows::FOUND => row.copy_from(value.as_ptr(), value.len()),
            None if memory.default != 0 => row.copy_from(at(memory.default), memory.row_bytes),
            _ => {}
        }
        if memory.sizes != 0 {
            *at(memory.sizes).cast::<u32>().add(number) = value.as_ref().map_or(0, Vec::len) as u32;
        }
        if memory.found != 0 {
            *at(memory.found).add(number) = u8::from(status == Rows::FOUND);
        }
    }
    status
}
