//! Turns a job into a plan, or into the reason why it is left to RocksDB.
//!
//! [`from_options`] checks OPTIONS and MANIFEST before any file is opened. [`check_input`] checks the properties of an
//! input file, and [`with_inputs`] checks the opened inputs. The checks add to [`Findings`]: a job is declined with the
//! first finding, a diagnosis lists all.

mod compression;
mod filter;
mod inputs;
mod keys;
mod options;
mod output_splitting;
mod plugins;
mod table;
mod tombstones;

use std::sync::Arc;

use rockmill_core::{
    CancelToken, CheckedOrder, CompactionRules, DeclineReason, DeeperLevels, Error, FileSummary,
    InputFile, InputTable, Job, KeyRange, OutputPlan, Plan, PropertiesPlan, Result,
};
use rockmill_format::key::KeyOrder;
use rockmill_format::options_file::{ColumnFamilyOptions, Options, OptionsFile};
use rockmill_format::versions;
use rockmill_format::wire::CompactionServiceInput;

pub use filter::{FilterSamples, LearnedFilter, filter_policy_without_bits, learn};
pub use inputs::{Merges, check as check_input};
pub use keys::attached as attached_comparator;
pub use options::wants_paranoid_hash;
pub use plugins::named;
pub use tombstones::{check_file as check_tombstones, check_neighbours};

use rockmill_snapshot::Findings;
use rockmill_snapshot::tree::user_key;
use rockmill_storage::io::IoOptions;

/// A job whose options are acceptable, with its message decoded and its OPTIONS file parsed.
#[derive(Debug)]
pub struct EligibleJob {
    /// The job.
    pub job: Job,
    /// Its decoded message.
    pub input: CompactionServiceInput,
    file: OptionsFile,
    /// The order of keys, if the attached comparator tells it.
    checked_order: Option<CheckedOrder>,
}

/// Settings that make more jobs eligible.
#[derive(Debug, Clone, Copy, Default)]
pub struct Policy {
    /// The user states that transactions are WriteCommitted.
    pub write_committed: bool,
}

/// A plan, and what was learned from the inputs.
#[derive(Debug)]
pub struct Planned {
    /// The plan.
    pub plan: Plan,
    /// How the filter's size was found.
    pub learned_filter: LearnedFilter,
}

/// Checks the job's message, options and tree.
///
/// # Errors
/// Declined.
pub fn from_options(mut eligible: EligibleJob, policy: Policy) -> Result<EligibleJob> {
    eligible.checked_order = keys::ask(&eligible, &eligible.family()?.options)?;
    let mut found = Findings::default();
    check_db(&eligible.file, policy, &mut found);
    check_family(&eligible, &mut found);
    found.first()?;
    Ok(eligible)
}

/// Finds options of the database that rule out every job.
pub fn check_db(file: &OptionsFile, policy: Policy, found: &mut Findings) {
    let [major, minor, patch] = file.rocksdb_version;
    if [major, minor] > versions::NEWEST {
        let [newest, of] = versions::NEWEST;
        let what = format!("written by RocksDB {major}.{minor}.{patch}, newer than {newest}.{of}");
        found.note(Err(Error::declined(DeclineReason::NewerRocksDb, what)));
    }
    options::check_db(file, policy, found);
}

/// Finds options of the column family, and properties of the job, that rule the job out.
pub fn check_family(eligible: &EligibleJob, found: &mut Findings) {
    let family = match eligible.family() {
        Ok(family) => family,
        Err(error) => return found.note(Err(error)),
    };
    let written_by = eligible.file.rocksdb_version;
    found.note(
        eligible
            .order()
            .and_then(|order| eligible.check_stated_order(order)),
    );
    options::check_family(family, written_by, found);
    options::check_job(eligible, found);
    plugins::check(&eligible.job.info, &family.options, written_by, found);
    table::check(&family.table_options, written_by, found);
    compression::check(&eligible.job, family, found);
    found.note(table::plan(eligible, family).map(drop));
    found.note(filter::configured(eligible, family).map(drop));
}

/// Checks the opened inputs, in the order of the message, and completes the plan. Its fragments of range tombstones may
/// take `most_bytes`.
///
/// # Errors
/// Declined; Corruption or Storage if an input's filter cannot be read; Cancelled if `cancel` is set.
pub fn with_inputs(
    eligible: &EligibleJob,
    tables: &[InputTable],
    most_bytes: u64,
    cancel: &CancelToken,
) -> Result<Planned> {
    let mut found = Findings::default();
    let merges = eligible.merges();
    for table in tables {
        let (name, comparator) = (table.file.name(), eligible.comparator());
        check_input(name, &table.meta, comparator, &merges, &mut found);
    }
    found.first()?;
    let family = eligible.family()?;
    let order = eligible.order()?;
    let job = &eligible.job;
    let mut table = table::plan(eligible, family)?;
    let (filter, learned_filter) = filter::plan(eligible, family, tables, &table, cancel)?;
    table.filter = filter.options;
    table.prefixes = filter.prefixes;
    let written_by = eligible.file.rocksdb_version;
    let splitting = output_splitting::plan(job, family, order, tables, written_by)?;
    let collectors = options::collectors(&family.options, plugins::collectors(&job.info))?;
    let snapshots = eligible.input.snapshots.clone();
    let tombstones = tombstones::fragments(
        job,
        order,
        tables,
        &snapshots,
        splitting.level_style,
        most_bytes,
    )?;
    let checked_order = (eligible.checked_order.as_ref())
        .map(|checked| keys::ask_about_tombstones(checked, tables))
        .transpose()?;
    let plan = Plan {
        range: KeyRange {
            begin: eligible.input.begin.clone(),
            end: eligible.input.end.clone(),
        },
        rules: CompactionRules {
            order,
            checked_order: checked_order.map(Arc::new),
            snapshots,
            tombstones: Arc::new(tombstones),
            merging: merges.ok().filter(|_| may_have_operands(tables)),
            filter: plugins::filter(&job.info),
            filters_beneath_operands: versions::filters_beneath_operands(written_by),
            bottommost: job.info.is_bottommost_level,
            deeper: deeper(job, order, splitting.level_style),
            enforce_single_del_contracts: eligible
                .file
                .db
                .bool("enforce_single_del_contracts", true)
                .map_err(malformed)?,
        },
        output: OutputPlan {
            properties: PropertiesPlan {
                collector_names: collectors.names,
                ..properties(eligible, family, tables, filter.policy_name)?
            },
            compact_on_deletion: collectors.compact_on_deletion,
            collectors: collectors.custom,
            table,
            splitting,
            paranoid_hash: wants_paranoid_hash(&family.options)?,
            file_checksum: !eligible.file.db.is_null("file_checksum_gen_factory"),
        },
    };
    Ok(Planned {
        plan,
        learned_filter,
    })
}

impl EligibleJob {
    /// Returns the options for reading and writing the database's files.
    ///
    /// # Errors
    /// Declined if an option is malformed.
    pub fn io(&self) -> Result<IoOptions> {
        IoOptions::read(&self.file.db)
    }

    /// Parses the job's message and options without checking them.
    ///
    /// # Errors
    /// Declined if they are malformed.
    pub fn read(job: Job) -> Result<Self> {
        let input = CompactionServiceInput::decode(&job.input)
            .map_err(|e| Error::declined(DeclineReason::InputMessage, e.to_string()))?;
        Self::of(job, input)
    }

    /// The same with the decoded message.
    ///
    /// # Errors
    /// Declined if the options are malformed.
    pub fn of(job: Job, input: CompactionServiceInput) -> Result<Self> {
        let file = OptionsFile::parse_for(&job.options, &input.cf_name).map_err(malformed)?;
        Ok(Self {
            job,
            input,
            file,
            checked_order: None,
        })
    }

    /// The job's OPTIONS file, with the options of its column family only.
    pub fn options(&self) -> &OptionsFile {
        &self.file
    }

    /// The operator for merge operands, or the reason to decline them.
    pub fn merges(&self) -> Merges {
        let family = self.family().map_err(|error| error.what)?;
        plugins::merges(&self.job.info)
            .unwrap_or_else(|why| inputs::merges(&self.job.hints, &family.options, why))
    }

    /// The order of user keys.
    ///
    /// # Errors
    /// Declined if it is not known.
    pub fn order(&self) -> Result<KeyOrder> {
        if let Some(checked) = &self.checked_order {
            return Ok(checked.order());
        }
        let options = &self.family()?.options;
        keys::order(&self.job, options, self.file.rocksdb_version)
    }

    /// Whether the attached comparator has to agree to the order.
    pub fn asks_comparator(&self) -> bool {
        self.checked_order.is_some()
    }

    /// Requires that the bounds of files have the order that the user states, or that was found.
    fn check_stated_order(&self, order: KeyOrder) -> Result<()> {
        if KeyOrder::from_comparator(self.comparator()).is_some() {
            return Ok(());
        }
        let tree = &self.job.tree;
        let is_behind = |first: &[u8], last: &[u8]| order.is_before(last, first);
        let mut inputs = tree.inputs.iter();
        let is_wrong = inputs.any(|f| is_behind(user_key(&f.smallest), user_key(&f.largest)))
            || tree.deeper.iter().any(|(_, files)| {
                let files = in_order(files, order);
                files.iter().any(|f| is_behind(&f.smallest, &f.largest))
                    || (files.windows(2)).any(|f| is_behind(&f[0].largest, &f[1].smallest))
            });
        match is_wrong {
            false => Ok(()),
            true => {
                let what =
                    "the bounds of files do not have the order that is stated for the comparator";
                Err(Error::declined(DeclineReason::Comparator, what))
            }
        }
    }

    /// The name of the column family's comparator.
    pub fn comparator(&self) -> &[u8] {
        let family = self.family().ok();
        let named = family.and_then(|family| family.options.str(keys::COMPARATOR));
        named.map_or(KeyOrder::Bytewise.comparator(), str::as_bytes)
    }

    fn family(&self) -> Result<&ColumnFamilyOptions> {
        self.file.cf(&self.input.cf_name).ok_or_else(|| {
            Error::declined(
                DeclineReason::OptionsFile,
                "the column family is not in the OPTIONS file",
            )
        })
    }
}

/// Returns the error for an OPTIONS file that cannot be read.
fn malformed(error: rockmill_format::Error) -> Error {
    Error::declined(DeclineReason::OptionsFile, error.to_string())
}

/// Declines unless `key` is absent or has one of the values in `fine`.
fn require(options: &Options, key: &str, fine: &[&str], reason: DeclineReason) -> Result<()> {
    match options.str(key) {
        Some(value) if !fine.contains(&value) => {
            Err(Error::declined(reason, format!("{key} is {value}")))
        }
        _ => Ok(()),
    }
}

/// Declines unless the object `key` is one in `fine`. An object without a name leaves no line in the OPTIONS file. So
/// an absent line is only accepted if the RocksDB version that wrote the file did not know the option.
fn require_object(
    options: &Options,
    key: &str,
    fine: &[&str],
    written_by: [u32; 3],
    reason: DeclineReason,
) -> Result<()> {
    match options.str(key) {
        Some(value) if fine.contains(&value) => Ok(()),
        None if !versions::may_hold(key, written_by) => Ok(()),
        value => {
            let value = value.unwrap_or("an object without a name");
            Err(Error::declined(reason, format!("{key} is {value}")))
        }
    }
}

/// RocksDB's text for an object that is not configured.
const NULL: &str = "nullptr";

/// Whether inputs may have merge operands. Files of LevelDB and the oldest versions do not count them.
fn may_have_operands(tables: &[InputTable]) -> bool {
    let mut all = tables.iter().map(|table| &table.meta.properties);
    all.any(|properties| properties.num_merge_operands > 0 || properties.comparator_name.is_empty())
}

/// Returns the files of a level, which are ordered by bytes, in the order of their keys.
fn in_order(files: &[FileSummary], order: KeyOrder) -> Vec<&FileSummary> {
    let mut files: Vec<_> = files.iter().collect();
    files.sort_by(|a, b| {
        let by_first = order.compare(&a.smallest, &b.smallest);
        by_first.then_with(|| order.compare(&a.largest, &b.largest))
    });
    files
}

/// Returns the files in deeper levels than the output's, which tombstones need.
fn deeper(job: &Job, order: KeyOrder, level_style: bool) -> DeeperLevels {
    if job.info.is_bottommost_level {
        return DeeperLevels::Nothing;
    }
    if !level_style || job.info.output_level == 0 {
        return DeeperLevels::Unknown;
    }
    let levels = job.tree.deeper.iter().map(|(_, files)| {
        let ranges = in_order(files, order).into_iter();
        ranges
            .map(|file| (file.smallest.clone(), file.largest.clone()))
            .collect()
    });
    DeeperLevels::Files(levels.collect())
}

/// Returns an input's oldest ancestor time, 0 if unknown. If an older version's MANIFEST lacks it, it is in the file,
/// where RocksDB looks if the file is open (`version_edit.h:FileMetaData::TryGetOldestAncestorTime`).
fn oldest_ancestor_time(file: &InputFile, table: &InputTable) -> u64 {
    match file.oldest_ancester_time {
        0 => table.meta.properties.oldest_ancestor_time,
        time => time,
    }
}

fn properties(
    eligible: &EligibleJob,
    family: &ColumnFamilyOptions,
    tables: &[InputTable],
    filter_policy_name: Option<String>,
) -> Result<PropertiesPlan> {
    let (job, input) = (&eligible.job, &eligible.input);
    let name = |key: &str| -> Result<Option<String>> {
        if family.options.is_null(key) {
            return Ok(None);
        }
        let value = family.options.nested(key).map_err(malformed)?;
        Ok(value.id().map(str::to_owned))
    };
    let rocksdb_version = eligible.file.rocksdb_version;
    let (_, compression_options) = compression::choose(job, family, rocksdb_version)?;
    let host = match eligible.file.db.str("db_host_id") {
        None | Some("__hostname__") => job.identity.host.clone(),
        Some(host) => host.to_owned(),
    };
    Ok(PropertiesPlan {
        rocksdb_version,
        db_id: input.db_id.clone(),
        session_id: job.identity.session_id.clone(),
        host,
        checksum_seed: job.identity.checksum_seed,
        column_family_id: job.info.cf_id,
        column_family_name: input.cf_name.clone(),
        output_level: job.info.output_level.max(0) as u32,
        bottommost: job.info.is_bottommost_level,
        filter_policy_name,
        prefix_extractor_name: name("prefix_extractor")?,
        whole_key_filtering: family
            .table_options
            .bool("whole_key_filtering", true)
            .map_err(malformed)?,
        decouple_partitioned_filters: family
            .table_options
            // Versions without the option do not write the property either.
            .bool(
                "decouple_partitioned_filters",
                versions::writes(
                    |release| release.options,
                    "decouple_partitioned_filters",
                    rocksdb_version,
                ),
            )
            .map_err(malformed)?,
        merge_operator_name: name("merge_operator")?,
        comparator_name: (family.options.str(keys::COMPARATOR))
            .filter(|name| KeyOrder::from_comparator(name.as_bytes()).is_none())
            .map(str::to_owned),
        collector_names: Vec::new(),
        compression_options,
        now: job.unix_time,
        ancestors: (job.tree.inputs.iter().zip(tables))
            .map(|(file, table)| {
                let (smallest, largest) = (file.smallest.clone(), file.largest.clone());
                (smallest, largest, oldest_ancestor_time(file, table))
            })
            .collect(),
        newest_key_time: tables
            .iter()
            .map(|table| table.meta.properties.newest_key_time)
            .max()
            .unwrap_or(0),
    })
}
