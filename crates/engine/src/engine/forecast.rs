//! What a manual compaction would be, found without writing anything.

use std::collections::BTreeMap;
use std::path::Path;

use rockmill_core::{CancelToken, Error, Job, LevelSummary, Result};

use super::Engine;
use crate::admit;
use crate::at_rest::{AtRest, UserKeys};
use crate::findings::Findings;
use crate::prepare::{self, Prepared};

/// A manual compaction before it is made.
#[derive(Debug)]
pub struct Forecast {
    /// The files to merge, by level.
    pub inputs: Vec<LevelSummary>,
    /// Level of the output.
    pub output_level: i32,
    /// How the engine would do it, or why RocksDB would.
    pub verdict: std::result::Result<Expected, Error>,
}

/// How the engine would do a job; all zero if there are no files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Expected {
    /// Slices in all.
    pub slices: u64,
    /// Slices that run at the same time at most.
    pub slices_at_once: u64,
    /// Memory that each of them takes at most.
    pub slice_memory_bytes: u64,
    /// Stored bytes of the data blocks to read.
    pub bytes: u64,
    /// Output files if no entry is dropped.
    pub output_files: u64,
    /// Size at which an output file ends.
    pub output_file_bytes: u64,
    /// Thousandths of a bit a key of the filters to write, if there are to be any.
    pub filter_millibits_per_key: Option<u32>,
}

impl Engine {
    /// The compaction of all files that hold some of the keys of a column family, as one job to the last
    /// level, as the files of the database in `dir` are now.
    ///
    /// # Errors
    /// Declined or Storage if OPTIONS or MANIFEST cannot be read or there is no such column family; what
    /// else keeps the engine from the job is the forecast's verdict.
    pub fn forecast(&self, dir: &Path, cf_name: &[u8], keys: &UserKeys) -> Result<Forecast> {
        let database = AtRest::read(&*self.storage, dir)?;
        let (info, input) = database.request(dir, cf_name, keys)?;
        let output_level = info.output_level;
        let mut found = Findings::default();
        let tree = database.follower.examine(&input, info.cf_id, &mut found)?;
        let inputs = by_level(tree.inputs.iter().map(|file| (file.level, file.size)));
        let job = self.draft(info, input.encode(), database.options_text, tree, None);
        let verdict = if inputs.is_empty() {
            Ok(Expected::default())
        } else {
            found.first().and_then(|()| self.expect(&job, dir))
        };
        Ok(Forecast {
            inputs,
            output_level,
            verdict,
        })
    }

    fn expect(&self, job: &Job, dir: &Path) -> Result<Expected> {
        let admitted = admit::from_options(job, self.policy())?;
        let cancel = CancelToken::new();
        let settings = self.settings();
        let share = self.budget.enter(&cancel)?;
        match &self.devices.cuda {
            Some(backend) => {
                let context = self.context(settings, backend, &cancel);
                let prepared = prepare::prepare(&context, &share, job, &admitted, dir)?;
                Ok(self.expected(&prepared))
            }
            None => {
                let context = self.context(settings, &self.devices.cpu, &cancel);
                let prepared = prepare::prepare(&context, &share, job, &admitted, dir)?;
                Ok(self.expected(&prepared))
            }
        }
    }

    fn expected(&self, prepared: &Prepared) -> Expected {
        let cutting = &prepared.plan.cutting;
        let file_bytes = cutting.max_output_file_size.max(1);
        let slices = &prepared.slice_bytes;
        let files = slices.iter().map(|bytes| bytes.div_ceil(file_bytes).max(1));
        let in_memory = self.budget.bytes() / prepared.slice_memory_bytes.max(1);
        let at_once = in_memory.min(self.budget.slots() as u64);
        Expected {
            slices: slices.len() as u64,
            slices_at_once: at_once.min(slices.len() as u64),
            slice_memory_bytes: prepared.slice_memory_bytes,
            bytes: slices.iter().sum(),
            output_files: if cutting.single_file { 1 } else { files.sum() },
            output_file_bytes: file_bytes,
            filter_millibits_per_key: prepared
                .plan
                .table
                .filter
                .as_ref()
                .map(|filter| filter.millibits_per_key),
        }
    }
}

/// Files and bytes of each level that has any, ascending.
fn by_level(files: impl Iterator<Item = (u32, u64)>) -> Vec<LevelSummary> {
    let mut levels = BTreeMap::new();
    for (level, size) in files {
        let sum = levels.entry(level).or_insert(LevelSummary {
            level,
            files: 0,
            bytes: 0,
        });
        sum.files += 1;
        sum.bytes += size;
    }
    levels.into_values().collect()
}
