//! What checks found, so that one list of checks serves whoever wants the first reason and whoever
//! wants all.

use rockmill_core::{Error, Result};

/// What rules a job out, in the order of the checks.
#[derive(Debug, Default)]
pub struct Findings(Vec<Error>);

impl Findings {
    /// Keeps what a check found, unless another check found the very same.
    pub fn note(&mut self, check: Result<()>) {
        if let Err(error) = check
            && !self.0.contains(&error)
        {
            self.0.push(error);
        }
    }

    /// What was found first, if anything.
    ///
    /// # Errors
    /// That.
    pub fn first(self) -> Result<()> {
        self.0.into_iter().next().map_or(Ok(()), Err)
    }

    /// Takes over what other checks found.
    pub fn append(&mut self, other: Self) {
        other.0.into_iter().for_each(|error| self.note(Err(error)));
    }

    /// All of it.
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
