//! Predicts a manual compaction without writing anything.

use std::collections::BTreeMap;
use std::path::Path;

use rockmill_core::{CancelToken, Error, Job, LevelSummary, Result};
use rockmill_format::manifest::ColumnFamily;

use super::Engine;
use super::diagnosis::FileChecks;
use crate::eligibility::{self, EligibleJob};
use crate::prepare::{self, Prepared};
use rockmill_exec::budget::Priority;
use rockmill_snapshot::Findings;
use rockmill_snapshot::closed_database::ClosedDatabase;
use rockmill_snapshot::manual::{self, Step, UserKeys};

/// A predicted manual compaction of a column family: its steps from level to level.
#[derive(Debug)]
pub struct Forecast {
    /// The steps in order. There are none if no file contains these keys.
    pub steps: Vec<ForecastStep>,
    /// Whether the steps would only write the same entries again.
    pub is_compacted: bool,
}

/// The files that are merged into one level, in one or several jobs.
#[derive(Debug)]
pub struct ForecastStep {
    /// Existing files that are merged, by level.
    pub inputs: Vec<LevelSummary>,
    /// Bytes of earlier steps' results that are merged too, if no entry is dropped.
    pub earlier_bytes: u64,
    /// Level of the output.
    pub output_level: i32,
    /// Estimated number of jobs.
    pub jobs: u64,
    /// How the engine would do the step as one job over the existing files, or all reasons why it would decline.
    pub verdict: std::result::Result<Expected, Vec<Error>>,
}

impl Forecast {
    /// Whether the engine would do all steps.
    pub fn is_accepted(&self) -> bool {
        self.steps.iter().all(|step| step.verdict.is_ok())
    }

    /// Returns all reasons why steps are left to RocksDB, each once.
    pub fn found(&self) -> Vec<Error> {
        let mut all = Findings::default();
        let declined = self
            .steps
            .iter()
            .filter_map(|step| step.verdict.as_ref().err());
        declined
            .flatten()
            .for_each(|error| all.note(Err(error.clone())));
        all.into_vec()
    }

    /// Stored bytes of the data blocks that the engine would read, if no entry is dropped.
    pub fn bytes(&self) -> u64 {
        let accepted = self
            .steps
            .iter()
            .filter_map(|step| step.verdict.as_ref().ok());
        accepted.map(|expected| expected.bytes).sum()
    }
}

/// How the engine would do a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expected {
    /// Number of subcompactions.
    pub subcompactions: u64,
    /// Maximum number of parallel subcompactions.
    pub subcompactions_at_once: u64,
    /// Maximum memory of a subcompaction.
    pub subcompaction_memory_bytes: u64,
    /// Stored bytes of the data blocks to read.
    pub bytes: u64,
    /// Number of output files if no entry is dropped.
    pub output_files: u64,
    /// Size at which an output file ends.
    pub output_file_bytes: u64,
    /// Bits per key of the filters to write, in thousandths; `None` without filters.
    pub filter_millibits_per_key: Option<u32>,
}

impl Engine {
    /// Predicts the compaction of all files that contain some of the keys, for each of the column families. The steps are
    /// those of RocksDB over the current files of the database in `dir`.
    ///
    /// # Errors
    /// Declined or Storage if OPTIONS or MANIFEST cannot be read or there is no such column family. Other reasons are
    /// in the verdict of the step.
    pub fn forecast(
        &self,
        dir: &Path,
        cf_names: &[&[u8]],
        keys: &UserKeys,
    ) -> Result<Vec<Forecast>> {
        let database = ClosedDatabase::read(&*self.storage, dir)?;
        let forecast = |&name: &&[u8]| {
            let (_, family) = database.family(name)?;
            let steps = manual::steps(family, &database.shape(name)?, keys);
            let is_compacted = manual::is_compacted(family, &steps);
            let steps = steps.iter();
            let steps = steps.map(|step| self.forecast_step(dir, &database, name, step));
            Ok(Forecast {
                steps: steps.collect::<Result<_>>()?,
                is_compacted,
            })
        };
        cf_names.iter().map(forecast).collect()
    }

    fn forecast_step(
        &self,
        dir: &Path,
        database: &ClosedDatabase,
        cf_name: &[u8],
        step: &Step,
    ) -> Result<ForecastStep> {
        let output_level = i32::try_from(step.output_level).unwrap_or(i32::MAX);
        let (info, input) = database.request(dir, cf_name, &step.sources, output_level)?;
        let mut found = Findings::default();
        let tree = database.follower.examine(&input, info.cf_id, &mut found)?;
        let files = step.sources.iter().zip(&tree.inputs);
        let merged = files.filter(|(source, _)| step.files.contains(source));
        let inputs = by_level(merged.map(|(_, file)| (file.level, file.size)));
        let options = database.options_text.clone();
        let job = self.draft(info, &input, input.encode(), options, tree, None);
        let (_, family) = database.family(cf_name)?;
        self.check(&job, dir, family, &mut found)?;
        let found = found.into_vec();
        let verdict = match found.is_empty() {
            true => self.expect(job, dir).map_err(|error| vec![error]),
            false => Err(found),
        };
        Ok(ForecastStep {
            inputs,
            earlier_bytes: step.earlier_bytes,
            output_level,
            jobs: step.jobs,
            verdict,
        })
    }

    /// Finds all reasons for which the job would be declined.
    fn check(
        &self,
        job: &Job,
        dir: &Path,
        family: &ColumnFamily,
        found: &mut Findings,
    ) -> Result<()> {
        let eligible = EligibleJob::read(job.clone());
        let checks = FileChecks::new(eligible.as_ref(), false);
        match eligible {
            Ok(eligible) => {
                eligibility::check_db(eligible.options(), self.policy(), found);
                eligibility::check_family(&eligible, found);
            }
            Err(error) => found.note(Err(error)),
        }
        found.note(self.check_staging(dir));
        let inspected = self.inspect_files(dir, family, &job.tree.inputs, &checks)?;
        found.append(inspected.found);
        Ok(())
    }

    fn expect(&self, job: Job, dir: &Path) -> Result<Expected> {
        let eligible = self.eligible(job)?;
        let cancel = CancelToken::new();
        let settings = self.settings();
        let entry = prepare::entry(&eligible.job, dir);
        let budget = self.executor.budget();
        let share = budget.enter(entry, Priority::Normal, &cancel)?;
        let context = self.context(settings, &cancel);
        let files = context.files(&eligible)?;
        let prepared = prepare::prepare(&context, &files, &share, &eligible, dir)?;
        Ok(self.expected(&prepared))
    }

    fn expected(&self, prepared: &Prepared) -> Expected {
        let splitting = &prepared.plan.output.splitting;
        let file_bytes = splitting.max_output_file_size.max(1);
        let subcompactions = &prepared.subcompaction_bytes;
        let files = subcompactions
            .iter()
            .map(|bytes| bytes.div_ceil(file_bytes).max(1));
        let budget = self.executor.budget();
        let in_memory = budget.bytes() / prepared.admitted.task_bytes.max(1);
        let at_once = in_memory.min(budget.slots() as u64);
        Expected {
            subcompactions: subcompactions.len() as u64,
            subcompactions_at_once: at_once.min(subcompactions.len() as u64),
            subcompaction_memory_bytes: prepared.admitted.task_bytes,
            bytes: subcompactions.iter().sum(),
            output_files: if splitting.single_file {
                1
            } else {
                files.sum()
            },
            output_file_bytes: file_bytes,
            filter_millibits_per_key: prepared
                .plan
                .output
                .table
                .filter
                .as_ref()
                .map(|filter| filter.millibits_per_key),
        }
    }
}

/// Returns files and bytes of each level that has files, ascending.
fn by_level(files: impl Iterator<Item = (u32, u64)>) -> Vec<LevelSummary> {
    let mut levels = BTreeMap::new();
    for (level, size) in files {
        let sum = levels.entry(level).or_insert(LevelSummary {
            level,
            files: 0,
            bytes: 0,
        });
        sum.files += 1;
        sum.bytes = sum.bytes.saturating_add(size);
    }
    levels.into_values().collect()
}
