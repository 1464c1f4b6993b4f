//! From a job to its plan, or to the reason for which it is left to RocksDB.
//!
//! What can be told from OPTIONS and MANIFEST is told by [`from_options`], before anything is opened;
//! [`with_inputs`] then looks at the input files.

mod compression;
mod cutting;
mod filter;
mod inputs;
mod options;
mod table;

use rockmill_core::{
    DeclineReason, Error, InputTable, Job, KeyRange, Plan, PropertiesPlan, RangesBeneath, Result,
    Rules,
};
use rockmill_format::options_file::{ColumnFamilyOptions, Options, OptionsFile};
use rockmill_format::wire::CompactionServiceInput;

pub use filter::LearnedFilter;

/// Newest RocksDB whose options are known here; an OPTIONS file of a newer one may hold keys whose
/// meaning is not.
const NEWEST_ROCKSDB: [u32; 2] = [11, 12];

/// A job whose options allow it.
#[derive(Debug)]
pub struct Admitted<'j> {
    job: &'j Job,
    /// The job's message.
    pub input: CompactionServiceInput,
    file: OptionsFile,
}

/// Settings that widen what is admitted.
#[derive(Debug, Clone, Copy, Default)]
pub struct Policy {
    /// The user says that transactions are WriteCommitted.
    pub write_committed: bool,
}

/// A plan, and what it had to learn from the inputs.
#[derive(Debug)]
pub struct Planned {
    /// The plan.
    pub plan: Plan,
    /// How the filter's size was found.
    pub learned_filter: LearnedFilter,
}

/// Looks at the job's message, options and tree.
///
/// # Errors
/// Declined.
pub fn from_options(job: &Job, policy: Policy) -> Result<Admitted<'_>> {
    let input = CompactionServiceInput::decode(&job.input)
        .map_err(|e| Error::declined(DeclineReason::InputMessage, e.to_string()))?;
    let file = OptionsFile::parse(&job.options).map_err(malformed)?;
    if file.rocksdb_version[..2] > NEWEST_ROCKSDB[..] {
        return Err(Error::declined(
            DeclineReason::OptionsFile,
            format!(
                "written by RocksDB {:?}, newer than 11.12",
                file.rocksdb_version
            ),
        ));
    }
    let admitted = Admitted { job, input, file };
    options::check_db(&admitted.file.db, policy)?;
    let family = admitted.family()?;
    options::check_family(family)?;
    options::check_job(job)?;
    table::check(&family.table_options)?;
    table::plan(&admitted, family)?;
    Ok(admitted)
}

/// Looks at the opened inputs, given in the order of the message, and completes the plan.
///
/// # Errors
/// Declined, or Corruption or Storage if an input's filter cannot be read.
pub fn with_inputs(admitted: &Admitted<'_>, tables: &[InputTable]) -> Result<Planned> {
    tables.iter().try_for_each(inputs::check)?;
    let family = admitted.family()?;
    let job = admitted.job;
    let mut table = table::plan(admitted, family)?;
    let (filter, learned_filter) = filter::plan(admitted, family, tables, table.format_version)?;
    table.filter = filter.options;
    let cutting = cutting::plan(job, family, tables)?;
    let plan = Plan {
        range: KeyRange {
            begin: admitted.input.begin.clone(),
            end: admitted.input.end.clone(),
        },
        rules: Rules {
            snapshots: admitted.input.snapshots.clone(),
            bottommost: job.info.is_bottommost_level,
            beneath: beneath(job, cutting.level_style),
            enforce_single_del_contracts: admitted
                .file
                .db
                .bool("enforce_single_del_contracts", true)
                .map_err(malformed)?,
        },
        properties: properties(admitted, family, tables, filter.policy_name)?,
        table,
        cutting,
        paranoid_hash: options::wants_paranoid_hash(&family.options)?,
        file_checksum: !admitted.file.db.is_null("file_checksum_gen_factory"),
    };
    Ok(Planned {
        plan,
        learned_filter,
    })
}

impl Admitted<'_> {
    fn family(&self) -> Result<&ColumnFamilyOptions> {
        self.file.cf(&self.input.cf_name).ok_or_else(|| {
            Error::declined(
                DeclineReason::OptionsFile,
                "the column family is not in the OPTIONS file",
            )
        })
    }
}

/// An OPTIONS file that cannot be read.
fn malformed(error: rockmill_format::Error) -> Error {
    Error::declined(DeclineReason::OptionsFile, error.to_string())
}

/// Declines unless `key` has one of the values in `fine`; absent is fine.
fn require(options: &Options, key: &str, fine: &[&str], reason: DeclineReason) -> Result<()> {
    match options.str(key) {
        Some(value) if !fine.contains(&value) => {
            Err(Error::declined(reason, format!("{key} is {value}")))
        }
        _ => Ok(()),
    }
}

/// Declines unless the object that `key` names is one in `fine`. An object that has no name of its own
/// leaves no line in the OPTIONS file, so absent is not fine.
fn require_object(
    options: &Options,
    key: &str,
    fine: &[&str],
    reason: DeclineReason,
) -> Result<()> {
    match options.str(key) {
        Some(value) if fine.contains(&value) => Ok(()),
        value => {
            let value = value.unwrap_or("an object without a name");
            Err(Error::declined(reason, format!("{key} is {value}")))
        }
    }
}

/// What RocksDB writes for an object that is not configured.
const NULL: &str = "nullptr";

/// What lies deeper than the output, for tombstones.
fn beneath(job: &Job, level_style: bool) -> RangesBeneath {
    if job.info.is_bottommost_level {
        return RangesBeneath::Nothing;
    }
    if !level_style || job.info.output_level == 0 {
        return RangesBeneath::Unknown;
    }
    let levels = job.tree.beneath.iter().map(|(_, files)| {
        let ranges = files
            .iter()
            .map(|f| (f.smallest.clone(), f.largest.clone()));
        ranges.collect()
    });
    RangesBeneath::Files(levels.collect())
}

fn properties(
    admitted: &Admitted<'_>,
    family: &ColumnFamilyOptions,
    tables: &[InputTable],
    filter_policy_name: Option<String>,
) -> Result<PropertiesPlan> {
    let (job, input) = (admitted.job, &admitted.input);
    let name = |key: &str| -> Result<Option<String>> {
        if family.options.is_null(key) {
            return Ok(None);
        }
        let value = family.options.nested(key).map_err(malformed)?;
        Ok(value.id().map(str::to_owned))
    };
    let (_, compression) = compression::choose(job, family)?;
    let host = match admitted.file.db.str("db_host_id") {
        None | Some("__hostname__") => job.identity.host.clone(),
        Some(host) => host.to_owned(),
    };
    Ok(PropertiesPlan {
        db_id: input.db_id.clone(),
        session_id: job.identity.session_id.clone(),
        host,
        checksum_seed: job.identity.checksum_seed,
        column_family_id: job.info.cf_id,
        column_family_name: input.cf_name.clone(),
        output_level: job.info.output_level.max(0) as u32,
        filter_policy_name,
        prefix_extractor_name: name("prefix_extractor")?,
        whole_key_filtering: family
            .table_options
            .bool("whole_key_filtering", true)
            .map_err(malformed)?,
        decouple_partitioned_filters: family
            .table_options
            .bool("decouple_partitioned_filters", true)
            .map_err(malformed)?,
        merge_operator_name: name("merge_operator")?,
        compression_options: compression,
        now: job.unix_time,
        ancestors: job
            .tree
            .inputs
            .iter()
            .map(|f| {
                (
                    f.smallest.clone(),
                    f.largest.clone(),
                    f.oldest_ancester_time,
                )
            })
            .collect(),
        newest_key_time: tables
            .iter()
            .map(|table| table.meta.properties.newest_key_time)
            .max()
            .unwrap_or(0),
    })
}
