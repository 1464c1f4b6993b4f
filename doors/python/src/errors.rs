//! Failures as exceptions, whose classes `rockmill._errors` has.

use pyo3::prelude::*;
use pyo3::types::PyString;
use rockmill_terminal::outcome::Failure;

/// Arguments of the command that its sentences name, and their names here.
const ARGUMENTS: [(&str, &str); 8] = [
    ("--memory-mib", "memory="),
    ("--merge-operator", "merge_operators="),
    ("--spill-dir", "spill_dir="),
    ("--threads", "threads="),
    ("--wal-dir", "wal_dir="),
    ("--device", "device="),
    ("--force replaces it", "force=True replaces it"),
    ("say NOT NULL", "make them columns with nullable=False"),
];

/// A sentence of the command with the names that arguments have here.
pub fn renamed(sentence: &str) -> String {
    let mut sentence = sentence.to_owned();
    for (of_command, here) in ARGUMENTS {
        sentence = sentence.replace(of_command, here);
    }
    sentence
}

/// The exception of a failure.
pub fn exception(failure: &Failure) -> PyErr {
    let class = match failure {
        Failure::Data(_) => "DataError",
        Failure::Incomplete(_) => "NotReadError",
        Failure::Usage(_) => "UsageError",
        Failure::Environment(_) => "RefusedError",
        Failure::Stopped { .. } => return pyo3::exceptions::PyKeyboardInterrupt::new_err(()),
    };
    let sentence = renamed(&failure.to_string());
    Python::attach(|py| {
        let made = py.import("rockmill._errors").and_then(|errors| {
            let class = errors.getattr(class)?;
            class.call1((PyString::new(py, &sentence),))
        });
        made.map_or_else(|trouble| trouble, PyErr::from_value)
    })
}

/// The exception of a wrong argument.
pub fn usage(what: impl Into<String>) -> PyErr {
    exception(&Failure::Usage(what.into()))
}
