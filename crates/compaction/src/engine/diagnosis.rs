//! Finds all reasons why a database's compactions would be declined.

use std::path::Path;

use rockmill_core::{
    CancelToken, DeclineReason, Error, ErrorKind, InputFile, Lock, Result, open_table,
    open_table_in,
};
use rockmill_format::key::KeyOrder;
use rockmill_format::manifest::ColumnFamily;
use rockmill_format::options_file::OptionsFile;

use super::Engine;
use crate::eligibility::{self, EligibleJob, FilterSamples, Merges};
use crate::prepare::tombstones_in;
use rockmill_exec::parallel;
use rockmill_format::names;
use rockmill_format::table::{has_bytewise_keys, key_order, names as table_names};
use rockmill_snapshot::Findings;
use rockmill_snapshot::closed_database::{self, ClosedDatabase};
use rockmill_snapshot::tree::{TreeFollower, bounds_in_bytes, total_bytes, user_key};
use rockmill_storage::{InputFileReader, shared_path};

/// Facts about a column family that the checks of its files need.
pub(super) struct FileChecks {
    /// The name of the comparator in OPTIONS.
    comparator: Option<Vec<u8>>,
    /// The order of the keys, if jobs know it.
    order: Option<KeyOrder>,
    /// Its merge operator.
    merges: Merges,
    /// Whether filters are read.
    filters: bool,
    /// Held while range tombstones are read: those of each file may take the memory of a job.
    one_by_one: Lock<()>,
}

impl FileChecks {
    /// The checks for a job, or for one whose options cannot be read.
    pub(super) fn new(job: std::result::Result<&EligibleJob, &Error>, filters: bool) -> Self {
        Self {
            comparator: job.ok().map(|job| job.comparator().to_vec()),
            order: job.ok().and_then(|job| job.order().ok()),
            merges: job.map_or_else(|error| Err(error.what.clone()), EligibleJob::merges),
            filters,
            one_by_one: Lock::default(),
        }
    }
}

/// Findings about a database.
#[derive(Debug)]
pub struct Diagnosis {
    /// Number of the OPTIONS file.
    pub options_number: u64,
    /// Its contents.
    pub options: OptionsFile,
    /// Number of a newer OPTIONS file that is truncated.
    pub cut_options: Option<u64>,
    /// Reasons why the jobs of all column families are declined.
    pub database: Vec<Error>,
    /// The column families, by id.
    pub families: Vec<FamilyDiagnosis>,
}

/// Findings about a column family.
#[derive(Debug)]
pub struct FamilyDiagnosis {
    /// Its name.
    pub name: Vec<u8>,
    /// Number of its SST files.
    pub files: u64,
    /// Size of these files.
    pub bytes: u64,
    /// Reasons why some or all of its jobs are declined, in addition to those of the database.
    pub found: Vec<Error>,
    /// Whether a file contains merge operands, or this is unknown.
    pub may_hold_operands: bool,
    /// Filter bits per key, in thousandths, that the files' filters imply if the OPTIONS file lacks the number.
    pub learned_millibits_per_key: Option<u32>,
}

/// Properties of files that matter for jobs.
#[derive(Debug, Default)]
pub(super) struct FilesFound {
    /// Reasons why jobs with these files are declined.
    pub(super) found: Findings,
    samples: FilterSamples,
    may_hold_operands: bool,
    has_tombstones: bool,
}

impl Engine {
    /// Checks the OPTIONS, the MANIFEST and the properties of all files of the database in `dir`, which may be open.
    /// The checks are those of its jobs.
    ///
    /// # Errors
    /// Declined if OPTIONS or MANIFEST cannot be read; Storage if the system cannot read a file.
    pub fn diagnose(&self, dir: &Path) -> Result<Diagnosis> {
        let database = ClosedDatabase::read(&*self.storage, dir)?;
        let mut found = Findings::default();
        eligibility::check_db(&database.options, self.policy(), &mut found);
        let families = database.follower.tree().column_families.values();
        let families = families.map(|family| self.diagnose_family(dir, &database, &family.name));
        Ok(Diagnosis {
            families: families.collect::<Result<_>>()?,
            options_number: database.options_number,
            database: found.into_vec(),
            options: database.options,
            cut_options: database.cut_options,
        })
    }

    fn diagnose_family(
        &self,
        dir: &Path,
        database: &ClosedDatabase,
        name: &[u8],
    ) -> Result<FamilyDiagnosis> {
        let (info, input) = database.full_request(dir, name)?;
        let mut found = Findings::default();
        let tree = database.follower.examine(&input, info.cf_id, &mut found)?;
        let last_level = info.output_level;
        let options = database.options_text.clone();
        let mut job = self.draft(info, &input, input.encode(), options, tree, None);
        let inputs = std::mem::take(&mut job.tree.inputs);
        // Jobs with output in level 0 only have inputs in level 0. The checks use the inputs for that case.
        let of_level_0 = inputs.iter().filter(|file| file.level == 0);
        job.tree.inputs = of_level_0.cloned().collect();
        let deepest = job.tree.levels.last().map_or(0, |level| level.level as i32);
        // Compression and filters depend on the level.
        for level in 0..=last_level {
            job.info.output_level = level;
            job.info.is_bottommost_level = level >= deepest;
            eligibility::check_family(&EligibleJob::read(job.clone())?, &mut found);
        }
        let bare = database
            .options
            .cf(name)
            .and_then(eligibility::filter_policy_without_bits);
        let bare = bare.filter(|_| job.hints.filter_millibits_per_key.is_none());
        self.descriptors.job_begins(&*self.storage);
        found.note(self.descriptors.require(overlapping(&inputs)));
        let (_, family) = database.family(name)?;
        let checks = FileChecks::new(Ok(&EligibleJob::read(job)?), bare.is_some());
        let inspected = self.inspect_files(dir, family, &inputs, &checks)?;
        found.append(inspected.found);
        let mut learned_millibits_per_key = None;
        if let Some(policy) = bare
            && !inputs.is_empty()
        {
            match eligibility::learn(&inspected.samples, policy) {
                Ok((millibits, _)) => learned_millibits_per_key = Some(millibits),
                Err(error) => found.note(Err(error)),
            }
        }
        Ok(FamilyDiagnosis {
            name: name.to_vec(),
            files: inputs.len() as u64,
            bytes: total_bytes(inputs.iter().map(|file| file.size)),
            found: found.into_vec(),
            may_hold_operands: inspected.may_hold_operands,
            learned_millibits_per_key,
        })
    }

    /// Checks the properties of a column family's files. Files with another comparator are not opened, because their jobs
    /// are declined anyway.
    pub(super) fn inspect_files(
        &self,
        dir: &Path,
        family: &ColumnFamily,
        inputs: &[InputFile],
        checks: &FileChecks,
    ) -> Result<FilesFound> {
        let comparator = match closed_database::comparator(family, checks.comparator.as_deref()) {
            [] => KeyOrder::Bytewise.comparator(),
            name => name,
        };
        let is_read = key_order(comparator).is_some() || has_bytewise_keys(comparator);
        if checks.order.is_none() && !is_read {
            let what = format!("comparator is {}", names::escape(comparator));
            let mut unknown = FilesFound {
                may_hold_operands: !inputs.is_empty(),
                ..FilesFound::default()
            };
            let error = Error::declined(DeclineReason::Comparator, what);
            unknown.found.note(Err(error));
            return Ok(unknown);
        }
        let path = |input: &InputFile| shared_path(dir.join(&input.name));
        let inspect =
            |input: &InputFile| match self.inspect_file(input, &path(input), comparator, checks) {
                Err(error) if error.kind != ErrorKind::Storage => {
                    let mut unknown = FilesFound {
                        may_hold_operands: true,
                        ..FilesFound::default()
                    };
                    unknown.found.note(Err(error));
                    Ok(unknown)
                }
                Err(_) if self.is_elsewhere(dir, input)? => Ok(FilesFound {
                    may_hold_operands: true,
                    ..FilesFound::default()
                }),
                inspected => inspected,
            };
        let (inspected, _) = parallel::map(inputs, self.executor.budget().slots(), inspect)?;
        let mut all = FilesFound::default();
        if let Some(order) = checks.order {
            let have = inspected.iter().map(|of_file| of_file.has_tombstones);
            let have: Vec<_> = have.collect();
            eligibility::check_neighbours(inputs, order, &have, &mut all.found);
        }
        for of_file in inspected {
            all.found.append(of_file.found);
            all.samples.append(of_file.samples);
            all.may_hold_operands |= of_file.may_hold_operands;
        }
        Ok(all)
    }

    fn inspect_file(
        &self,
        input: &InputFile,
        path: &Path,
        comparator: &[u8],
        checks: &FileChecks,
    ) -> Result<FilesFound> {
        let mut inspected = FilesFound::default();
        let file = Box::new(InputFileReader::open(&*self.storage, path)?);
        let table = match checks.order {
            Some(order) => open_table_in(file, order)?,
            None => open_table(file)?,
        };
        let properties = &table.meta.properties;
        // Files that do not name their comparator may be so old that they do not count operands.
        let counts_operands = !properties.comparator_name.is_empty();
        inspected.may_hold_operands = properties.num_merge_operands > 0 || !counts_operands;
        let (name, found) = (table.file.name(), &mut inspected.found);
        eligibility::check_input(name, &table.meta, comparator, &checks.merges, found);
        if table
            .meta
            .metaindex
            .contains_key(table_names::RANGE_DELETIONS)
        {
            let _alone = checks.one_by_one.lock();
            let tombstones = tombstones_in(&table, self.executor.budget().all_bytes());
            inspected.has_tombstones = !tombstones.as_ref().is_ok_and(Vec::is_empty);
            found.note(match (tombstones, checks.order) {
                (Ok(own), Some(order)) => eligibility::check_tombstones(input, order, &own),
                (Ok(_), None) => Ok(()),
                (Err(error), _) if error.kind.is_out_of_memory() => Err(error),
                (Err(error), _) => return Err(error),
            });
        }
        if checks.filters {
            inspected.samples.take(&table)?;
        }
        Ok(inspected)
    }

    /// Whether a file that cannot be read is rightly missing in `dir`: the database is open and has compacted it
    /// meanwhile, or it has several paths.
    fn is_elsewhere(&self, dir: &Path, input: &InputFile) -> Result<bool> {
        let mut follower = TreeFollower::default();
        follower.refresh(&*self.storage, dir, (0, 0), &CancelToken::new())?;
        let families = follower.tree().column_families.values();
        let number = input.name.trim_end_matches(".sst").parse();
        let found = number.ok().and_then(|number| {
            let mut files = families.filter_map(|family| family.file(number));
            files.next().map(|(_, file)| file.path_id)
        });
        Ok(found != Some(0) || follower.tree().has_other_paths())
    }
}

fn bounds_of(file: &InputFile) -> (&[u8], &[u8]) {
    bounds_in_bytes(user_key(&file.smallest), user_key(&file.largest))
}

/// Returns the maximum number of files that contain the same key. A job over all of them has that many open at once.
fn overlapping(files: &[InputFile]) -> u64 {
    let bounds = files.iter().map(bounds_of);
    let (mut begins, mut ends): (Vec<_>, Vec<_>) = bounds.unzip();
    begins.sort_unstable();
    ends.sort_unstable();
    let open = begins.iter().zip(1..).map(|(begin, begun)| {
        let ended = ends.partition_point(|end| end < begin);
        begun - ended.min(begun)
    });
    open.max().unwrap_or(0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_overlap_where_one_begins_before_others_end() {
        let file = |smallest: &str, largest: &str| {
            let key = |text: &str| [text.as_bytes(), &[0; 8]].concat();
            InputFile {
                name: String::new(),
                size: 0,
                level: 0,
                smallest: key(smallest),
                largest: key(largest),
                epoch_number: 0,
                oldest_ancester_time: 0,
                unique_id: None,
                largest_seqno: None,
            }
        };
        assert_eq!(overlapping(&[]), 0);
        let level = [file("a", "b"), file("c", "d"), file("e", "f")];
        assert_eq!(overlapping(&level), 1);
        assert_eq!(overlapping(&[&level[..], &[file("b", "c")]].concat()), 2);
        assert_eq!(overlapping(&[&level[..], &[file("a", "z")]].concat()), 2);
        let same = [file("a", "a"), file("a", "a"), file("a", "b")];
        assert_eq!(overlapping(&same), 3);
    }
}
