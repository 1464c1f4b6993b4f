//! Reasons for which a database is left alone.

use std::path::Path;

use rockmill_format::names;
use rockmill_terminal::outcome::Failure;
use serde::Serialize;

/// Advice for objects that only the application has.
pub const FROM_APPLICATION: &str = "compact it from its application";

/// A reason for which a database is left alone.
#[derive(Debug, Serialize)]
pub struct Refusal {
    /// `null` for the whole database.
    pub column_family: Option<String>,
    /// What was found.
    pub what: String,
    /// The change that resolves it.
    pub change: String,
    #[serde(skip)]
    ends: fn(String) -> Failure,
    /// Whether only its column family is left alone, and others are compacted.
    #[serde(skip)]
    pub is_of_one_family: bool,
}

impl Refusal {
    /// Makes a refusal because of something in the database.
    pub fn data(what: impl Into<String>, change: impl Into<String>) -> Self {
        Self {
            column_family: None,
            what: what.into(),
            change: change.into(),
            ends: Failure::Data,
            is_of_one_family: false,
        }
    }

    /// Makes a refusal that further arguments can resolve.
    pub fn usage(what: impl Into<String>, change: impl Into<String>) -> Self {
        Self {
            ends: Failure::Usage,
            ..Self::data(what, change)
        }
    }

    /// Makes a refusal because of the system.
    pub fn environment(what: impl Into<String>, change: impl Into<String>) -> Self {
        Self {
            ends: Failure::Environment,
            ..Self::data(what, change)
        }
    }

    /// Makes a refusal because RocksDB cannot open the database.
    pub fn of_failure(failure: &Failure) -> Self {
        let refuse = match failure {
            Failure::Data(_) => Self::data,
            _ => Self::environment,
        };
        refuse(failure.to_string(), FROM_APPLICATION)
    }

    /// Attributes the refusal to a column family, which keeps the whole database from being compacted.
    pub fn of_family(self, name: &[u8]) -> Self {
        Self {
            column_family: Some(names::escape(name)),
            ..self
        }
    }

    /// Attributes the refusal to a column family, which alone is not compacted.
    pub fn of_family_alone(self, name: &[u8]) -> Self {
        Self {
            is_of_one_family: true,
            ..self.of_family(name)
        }
    }

    /// Returns the finding and the change, as one line.
    pub fn line(&self) -> String {
        let family = self.column_family.as_ref();
        let of = family.map(|name| format!("column family {name}: "));
        format!("{}{}: {}", of.unwrap_or_default(), self.what, self.change)
    }

    /// Returns the failure with which the command ends. `refusals` is not empty.
    pub fn failure(dir: &Path, refusals: &[Self]) -> Failure {
        let dir = dir.display();
        let text = match refusals {
            [only] => format!("{dir}: {}", only.line()),
            _ => {
                let lines = refusals
                    .iter()
                    .map(|refusal| format!("\n  {}", refusal.line()));
                let lines: String = lines.collect();
                let left = match refusals.iter().all(|refusal| refusal.is_of_one_family) {
                    true => "column families are left alone",
                    false => "left alone",
                };
                format!("{dir}: {left} for {} reasons{lines}", refusals.len())
            }
        };
        Self::end(refusals, text)
    }

    /// The first refusal decides the exit code.
    fn end(refusals: &[Self], text: String) -> Failure {
        match refusals.first() {
            Some(first) => (first.ends)(text),
            None => Failure::Data(text),
        }
    }

    /// Returns the failure of a dry run that has listed the refusals, if there is one. `what` names the parts that
    /// would be left alone.
    pub fn foretold(dir: &Path, what: &str, refusals: &[Self]) -> Option<Failure> {
        let text = format!("{}: {what} would be left alone", dir.display());
        (!refusals.is_empty()).then(|| Self::end(refusals, text))
    }
}
