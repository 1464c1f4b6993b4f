//! Reasons for which a database is left alone.

use std::path::Path;

use rockmill_terminal::outcome::Failure;
use rockmill_terminal::output;
use serde::Serialize;

/// What to do about that which this process cannot have.
pub const FROM_APPLICATION: &str = "compact it from its application";

/// A reason for which a database is left alone.
#[derive(Debug, Serialize)]
pub struct Refusal {
    /// `null` for the whole database.
    pub column_family: Option<String>,
    /// What was found.
    pub what: String,
    /// What to do about it.
    pub change: String,
    #[serde(skip)]
    ends: fn(String) -> Failure,
}

impl Refusal {
    /// Something of the database stands against it.
    pub fn data(what: impl Into<String>, change: impl Into<String>) -> Self {
        Self {
            column_family: None,
            what: what.into(),
            change: change.into(),
            ends: Failure::Data,
        }
    }

    /// The user can say what is missing.
    pub fn usage(what: impl Into<String>, change: impl Into<String>) -> Self {
        Self {
            ends: Failure::Usage,
            ..Self::data(what, change)
        }
    }

    /// The system stands against it.
    pub fn environment(what: impl Into<String>, change: impl Into<String>) -> Self {
        Self {
            ends: Failure::Environment,
            ..Self::data(what, change)
        }
    }

    /// RocksDB cannot open it.
    pub fn of_failure(failure: &Failure) -> Self {
        let refuse = match failure {
            Failure::Data(_) => Self::data,
            _ => Self::environment,
        };
        refuse(failure.to_string(), FROM_APPLICATION)
    }

    /// The same of one column family.
    pub fn of_family(self, name: &[u8]) -> Self {
        Self {
            column_family: Some(output::escape(name)),
            ..self
        }
    }

    /// What was found and what to do about it, in a line.
    pub fn line(&self) -> String {
        let family = self.column_family.as_ref();
        let of = family.map(|name| format!("column family {name}: "));
        format!("{}{}: {}", of.unwrap_or_default(), self.what, self.change)
    }

    /// How the command ends that meets the reasons, of which there is one or more.
    pub fn failure(dir: &Path, refusals: &[Self]) -> Failure {
        let dir = dir.display();
        let text = match refusals {
            [only] => format!("{dir}: {}", only.line()),
            _ => {
                let lines = refusals
                    .iter()
                    .map(|refusal| format!("\n  {}", refusal.line()));
                let lines: String = lines.collect();
                format!("{dir}: left alone for {} reasons{lines}", refusals.len())
            }
        };
        Self::end(refusals, text)
    }

    /// The first reason decides upon the exit code.
    fn end(refusals: &[Self], text: String) -> Failure {
        match refusals.first() {
            Some(first) => (first.ends)(text),
            None => Failure::Data(text),
        }
    }

    /// How a dry run ends that has listed the reasons; nothing if there is none.
    pub fn foretold(dir: &Path, refusals: &[Self]) -> Option<Failure> {
        let text = format!("{}: would be left alone", dir.display());
        (!refusals.is_empty()).then(|| Self::end(refusals, text))
    }
}
