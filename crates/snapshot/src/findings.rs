//! Results of checks, for callers that want the first reason and for callers that want all of them.

use rockmill_core::{Error, Result};

/// Errors that rule a job out, in the order of the checks.
#[derive(Debug, Default)]
pub struct Findings(Vec<Error>);

impl Findings {
    /// Records a failed check, unless an equal error is recorded already.
    pub fn note(&mut self, check: Result<()>) {
        if let Err(error) = check
            && !self.0.contains(&error)
        {
            self.0.push(error);
        }
    }

    /// Fails with the first error, if there is one.
    ///
    /// # Errors
    /// The first error.
    pub fn first(self) -> Result<()> {
        self.0.into_iter().next().map_or(Ok(()), Err)
    }

    /// Adds the findings of other checks.
    pub fn append(&mut self, other: Self) {
        other.0.into_iter().for_each(|error| self.note(Err(error)));
    }

    /// Returns all errors.
    pub fn into_vec(self) -> Vec<Error> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rockmill_core::DeclineReason;

    #[test]
    fn each_finding_is_kept_once_and_the_first_comes_first() {
        let mut found = Findings::default();
        found.note(Ok(()));
        for what in ["a", "b", "a"] {
            found.note(Err(Error::declined(DeclineReason::Manifest, what)));
        }
        let mut all = Findings::default();
        all.append(found);
        let texts: Vec<_> = all.0.iter().map(|error| error.what.as_str()).collect();
        assert_eq!(texts, ["a", "b"]);
        assert_eq!(all.first().expect_err("two").what, "a");
        assert_eq!(Findings::default().first(), Ok(()));
    }
}
