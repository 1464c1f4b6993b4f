//! What Rockmill's Python package is made of. `python/rockmill` has what its users import.
//!
//! | Module | Contents |
//! |---|---|
//! | `database` | A database that is open for statements |
//! | `result` | Rows that a statement returns |
//! | `table` | A column family as a table, and its items |
//! | `view` | Views in device memory or host memory |
//! | `foreign` | Tables for DataFusion of other libraries |
//! | `arrow_c` | Arrow's C data interface |
//! | `runtime` | Threads for statements, and waiting for them |
//! | `errors` | Exceptions |

mod arrow_c;
mod database;
mod errors;
mod foreign;
mod result;
mod runtime;
mod table;
mod view;

use std::ffi::OsString;
use std::io::Write;

use pyo3::prelude::*;

/// Runs the command with these arguments, of which the first names the program, and returns its exit code.
#[pyfunction]
fn main(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    py.detach(|| {
        let code = rockmill_cli::main(arguments);
        // Rust's own programs do this at their end.
        let _ = std::io::stdout().flush();
        code
    })
}

/// The extension module.
#[pymodule(name = "_rockmill", gil_used = false)]
fn rockmill_module(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("version", rockmill_cli::version())?;
    module.add_class::<database::Database>()?;
    module.add_class::<result::QueryResult>()?;
    module.add_class::<result::Batch>()?;
    module.add_class::<result::BatchReader>()?;
    module.add_class::<table::Table>()?;
    module.add_class::<table::Items>()?;
    module.add_class::<view::RawView>()?;
    module.add_function(wrap_pyfunction!(main, module)?)
}
