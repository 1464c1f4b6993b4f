//! Verification of a job's output before it is reported.
//!
//! | level | checks in addition to the sums that every subcompaction must satisfy |
//! |---|---|
//! | default | each file's tail is read back; data blocks too, unless the backend has verified them |
//! | sampled | for chosen subcompactions, all blocks are read back, and the CPU makes the same files again |
//! | full | as sampled, for all subcompactions |
//!
//! The choice depends only on the job, so a recorded job is verified in the same way wherever it is repeated.

mod again;
pub mod table;

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::sync::Arc;

use rockmill_core::{Error, OutputPlan, ReadTask, Result, TaskReport, open_table_in};
use twox_hash::XxHash3_64;

use crate::known_tables::Keeper;
use crate::staging::{StagingFiles, file_name};
use crate::verify::table::{verify_output, verify_tail};
use rockmill_storage::io::{JobInput, JobIo};

/// Default of `one_in`: one subcompaction in 16 is chosen.
const USUAL_SAMPLE: NonZeroU32 = NonZeroU32::new(16).expect("it is not zero");

/// How output is checked for faults of CPUs, devices, memory and Rockmill itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Verification {
    /// The written blocks are decoded and compared with the intended contents.
    #[default]
    Default,
    /// In addition, the CPU repeats some subcompactions, at least one of each job.
    Sampled {
        /// One subcompaction in this many.
        one_in: NonZeroU32,
    },
    /// In addition, the CPU repeats all subcompactions.
    Full,
}

impl Verification {
    /// One subcompaction in 16.
    pub const SAMPLED: Self = Self::Sampled {
        one_in: USUAL_SAMPLE,
    };

    /// Whether the given one of `subcompactions` subcompactions is repeated, in the attempt with that session id.
    fn chooses(self, session_id: &str, subcompaction: usize, subcompactions: usize) -> bool {
        let draw = |seed: u64| XxHash3_64::oneshot_with_seed(seed, session_id.as_bytes());
        match self {
            Self::Default => false,
            Self::Full => true,
            Self::Sampled { one_in } => {
                draw(subcompaction as u64).is_multiple_of(u64::from(one_in.get()))
                    || draw(u64::MAX) % subcompactions.max(1) as u64 == subcompaction as u64
            }
        }
    }
}

impl fmt::Display for Verification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Sampled { one_in } => write!(f, "sampled:{one_in}"),
            Self::Full => f.write_str("full"),
        }
    }
}

impl FromStr for Verification {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "default" => return Ok(Self::Default),
            "sampled" => return Ok(Self::SAMPLED),
            "full" => return Ok(Self::Full),
            _ => {}
        }
        let one_in = text.strip_prefix("sampled:").and_then(|n| n.parse().ok());
        one_in
            .map(|one_in| Self::Sampled { one_in })
            .ok_or_else(|| {
                format!(
                    "{text:?} is not a verification level; use default, sampled, sampled:N or full"
                )
            })
    }
}

/// Verifies the subcompactions of a job.
#[derive(Debug)]
pub struct Verifier {
    /// The level.
    pub level: Verification,
    /// Settings and limits for reading the files.
    pub files: Arc<JobIo>,
    /// Folder of the files.
    pub staging: StagingFiles,
    /// Session id of the attempt.
    pub session_id: String,
    /// Number of subcompactions of the job.
    pub subcompactions: usize,
    /// Whether a subcompaction can be made again ([`rockmill_core::Plan::is_repeatable`]).
    pub is_repeatable: bool,
    /// Keeps the tables of files that devices have cached.
    pub keeper: Option<Arc<Keeper>>,
}

impl Verifier {
    /// Whether that subcompaction is made again, so that its inputs are read again.
    pub fn is_made_again(&self, subcompaction: usize) -> bool {
        self.is_repeatable && self.is_chosen(subcompaction)
    }

    fn is_chosen(&self, subcompaction: usize) -> bool {
        self.level
            .chooses(&self.session_id, subcompaction, self.subcompactions)
    }

    /// Verifies the files of subcompaction number `subcompaction`, which are synced.
    ///
    /// # Errors
    /// Verification if a file differs from the intended one; Storage, Cancelled; errors of reading the inputs if the
    /// subcompaction is repeated.
    pub fn verify(
        &self,
        subcompaction: usize,
        task: ReadTask<'_>,
        plan: &OutputPlan,
        report: &TaskReport,
    ) -> Result<()> {
        let chosen = self.is_chosen(subcompaction);
        let layout = Some(&plan.table);
        let version = plan.properties.rocksdb_version;
        let ssts = report.output.ssts();
        let is_cached = ssts.is_some_and(|ssts| !ssts.cached.is_empty());
        for file in report.files() {
            let reader = self.open(file.number)?;
            let table = open_table_in(Box::new(reader), plan.order());
            let table = table.map_err(Error::as_verification)?;
            if report.is_verified() && !chosen {
                verify_tail(&table, file, version)?;
            } else {
                verify_output(&table, file, version, layout, task.cancel)?;
            }
            if let Some(keeper) = &self.keeper {
                keeper.keep(&table, is_cached);
            }
        }
        if self.is_made_again(subcompaction) {
            self.compare_with_another_run(subcompaction, task, plan, report)?;
        }
        Ok(())
    }

    /// Opens an output file to read it back, in the same way as inputs.
    ///
    /// # Errors
    /// Storage.
    pub fn open(&self, number: u64) -> Result<JobInput> {
        let opened = JobInput::open(&self.files, &self.staging.file(number));
        opened.map_err(|e| Error::storage(&file_name(number), "open it", &e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_read_as_they_are_shown() {
        let one_in = NonZeroU32::new(3).expect("it is not zero");
        let sampled = Verification::Sampled { one_in };
        for level in [Verification::Default, sampled, Verification::Full] {
            assert_eq!(level.to_string().parse(), Ok(level));
        }
        assert_eq!("sampled".parse(), Ok(Verification::SAMPLED));
        for wrong in ["", "Full", "sampled:", "sampled:0", "sampled:x"] {
            assert!(wrong.parse::<Verification>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_sample_has_its_size_and_is_never_empty() {
        const SUBCOMPACTIONS: usize = 16_000;
        let count = |level: Verification, session: &str, subcompactions| {
            let chosen = (0..subcompactions)
                .filter(|&subcompaction| level.chooses(session, subcompaction, subcompactions));
            chosen.count()
        };
        let share = count(Verification::SAMPLED, "SOME-SESSION", SUBCOMPACTIONS);
        assert!((900..1100).contains(&share), "{share} of {SUBCOMPACTIONS}");
        for session in ["A", "B", "C", "D"] {
            for subcompactions in 1..20 {
                assert!(count(Verification::SAMPLED, session, subcompactions) > 0);
                assert_eq!(count(Verification::Default, session, subcompactions), 0);
                assert_eq!(
                    count(Verification::Full, session, subcompactions),
                    subcompactions
                );
            }
        }
    }
}
