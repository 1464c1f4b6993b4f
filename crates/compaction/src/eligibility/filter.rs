//! The filter of output files.

use rockmill_core::{
    Attached, CancelToken, DeclineReason, Error, FilterPlan, InputTable, Result, TablePlan,
    filter_parts,
};
use rockmill_format::filter::{FilterFormat, FilterPolicy, PolicyKind};
use rockmill_format::options_file::ColumnFamilyOptions;
use rockmill_format::prefix::{CustomPrefixes, PrefixExtractor};

use super::{EligibleJob, malformed, named};
use rockmill_snapshot::filter_bits::{self, FilterSample, Inferred};

/// Name of the table option.
const FILTER_POLICY: &str = "filter_policy";

/// The C API's names for policies, without the number of bits.
const BARE_BLOOM: &str = "bloomfilter";
const BARE_RIBBON: &str = "ribbonfilter";

/// With small filters, several numbers of bits are possible. Up to this number of keys one is guessed, which costs at
/// most a kilobyte. With more keys the job is left to RocksDB, whose output then determines the number.
const MAX_KEYS_TO_GUESS_FOR: u64 = 1000;

/// Whether the number of bits per key was learned from the inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LearnedFilter {
    /// The number was configured, or no filter is written.
    No,
    /// Learned, and certain: also used for later jobs of the column family.
    Certain(u32),
    /// Learned from filters too small to be sure.
    Likely(u32),
}

/// The filter of output files.
#[derive(Debug, Default)]
pub struct FilterChoice {
    /// The filter, if one is written.
    pub options: Option<FilterPlan>,
    /// The application's prefix extractor, if the filter needs one.
    pub prefixes: Option<CustomPrefixes>,
    /// `Name()` of the configured policy, which is written to the properties in any case.
    pub policy_name: Option<String>,
}

/// A policy as the OPTIONS file describes it.
struct Configured {
    name: String,
    kind: PolicyKind,
    /// `None` if the file lacks it.
    millibits_per_key: Option<u32>,
}

impl Configured {
    fn parse(text: &str) -> Result<Self> {
        let bare = |kind| Self {
            name: text.to_owned(),
            kind,
            millibits_per_key: None,
        };
        let unknown = |what: String| Error::declined(DeclineReason::FilterPolicy, what);
        match text {
            BARE_BLOOM => Ok(bare(PolicyKind::Bloom)),
            BARE_RIBBON => Ok(bare(PolicyKind::Ribbon {
                bloom_before_level: 0,
            })),
            _ => {
                let policy = FilterPolicy::parse(text)
                    .map_err(|e| unknown(e.what.into_owned()))?
                    .ok_or_else(|| unknown(format!("filter_policy is {text}")))?;
                Ok(Self {
                    name: policy.name().to_owned(),
                    kind: policy.kind,
                    millibits_per_key: Some(policy.millibits_per_key),
                })
            }
        }
    }
}

/// The configured filter.
pub struct ConfiguredFilter<'a> {
    /// Text of the option.
    text: &'a str,
    policy: Configured,
    /// The keys in the filter; `None` if no filter is written with any policy.
    keys: Option<FilterKeys>,
}

/// The keys in a filter.
struct FilterKeys {
    whole: bool,
    prefix_extractor: Option<PrefixExtractor>,
    custom_prefixes: Option<CustomPrefixes>,
}

/// Returns the configured filter; `None` without a policy.
///
/// # Errors
/// Declined if the policy or the prefix extractor is unknown.
pub fn configured<'a>(
    eligible: &EligibleJob,
    family: &'a ColumnFamilyOptions,
) -> Result<Option<ConfiguredFilter<'a>>> {
    let table = &family.table_options;
    if table.is_null(FILTER_POLICY) {
        return Ok(None);
    }
    let text = table.str(FILTER_POLICY).unwrap_or_default();
    let policy = Configured::parse(text)?;
    let for_hits = family
        .options
        .bool("optimize_filters_for_hits", false)
        .map_err(malformed)?;
    let skipped = for_hits && eligible.job.info.is_bottommost_level;
    let whole = table.bool("whole_key_filtering", true).map_err(malformed)?;
    // Without whole keys and prefixes, a filter would be empty.
    let empty = !whole && family.options.is_null("prefix_extractor");
    let keys = if policy.millibits_per_key == Some(0) || skipped || empty {
        None
    } else {
        let (prefix_extractor, custom_prefixes) = prefix_extractor(eligible, family)?;
        Some(FilterKeys {
            whole,
            prefix_extractor,
            custom_prefixes,
        })
    };
    Ok(Some(ConfiguredFilter { text, policy, keys }))
}

/// Chooses the filter of files with this layout.
pub fn plan(
    eligible: &EligibleJob,
    family: &ColumnFamilyOptions,
    tables: &[InputTable],
    table: &TablePlan,
    cancel: &CancelToken,
) -> Result<(FilterChoice, LearnedFilter)> {
    let Some(ConfiguredFilter { text, policy, keys }) = configured(eligible, family)? else {
        return Ok((FilterChoice::default(), LearnedFilter::No));
    };
    let mut choice = FilterChoice {
        options: None,
        prefixes: None,
        policy_name: Some(policy.name),
    };
    let Some(keys) = keys else {
        return Ok((choice, LearnedFilter::No));
    };
    let known = policy
        .millibits_per_key
        .or(eligible.job.hints.filter_millibits_per_key);
    let (millibits_per_key, learned) = match known {
        Some(millibits) => (millibits, LearnedFilter::No),
        None => learn(&FilterSamples::of(tables, cancel)?, text)?,
    };
    let options = FilterPlan {
        format: FilterFormat::of(policy.kind, table.format_version),
        millibits_per_key,
        whole_key_filtering: keys.whole,
        prefix_extractor: keys.prefix_extractor,
        optimize_filters_for_memory: family
            .table_options
            .bool("optimize_filters_for_memory", true)
            .map_err(malformed)?,
        hashes_per_partition: None,
    };
    let is_partitioned = family
        .table_options
        .bool("partition_filters", false)
        .map_err(malformed)?;
    // RocksDB has no partitions of filters without those of the index.
    choice.options = Some(match table.index.partitions {
        Some(partitions) if is_partitioned => {
            let has_prefixes = keys.prefix_extractor.is_some() || keys.custom_prefixes.is_some();
            options.in_partitions_of(partitions.least_bytes(), has_prefixes)
        }
        _ => options,
    });
    choice.prefixes = keys.custom_prefixes;
    Ok((choice, learned))
}

/// Returns the column family's filter policy if it is one without the number of bits.
pub fn filter_policy_without_bits(family: &ColumnFamilyOptions) -> Option<&str> {
    let text = family.table_options.str(FILTER_POLICY)?;
    [BARE_BLOOM, BARE_RIBBON].contains(&text).then_some(text)
}

/// Samples of files' filters, which imply the number of bits per key.
#[derive(Debug, Default)]
pub struct FilterSamples(Vec<FilterSample>);

impl FilterSamples {
    /// Reads the files' filters.
    ///
    /// # Errors
    /// The errors of `take`; Cancelled if `cancel` is set.
    fn of(tables: &[InputTable], cancel: &CancelToken) -> Result<Self> {
        let mut samples = Self::default();
        for table in tables {
            cancel.check()?;
            samples.take(table)?;
        }
        Ok(samples)
    }

    /// Reads a file's filter, if it has one.
    ///
    /// # Errors
    /// Corruption or Storage if it cannot be read.
    pub fn take(&mut self, table: &InputTable) -> Result<()> {
        let parts = filter_parts(table)?;
        self.0.extend(filter_bits::sample(table, &parts));
        Ok(())
    }

    /// Adds the samples of other files.
    pub fn append(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }
}

/// Infers the bits per key of existing filters, in thousandths.
///
/// # Errors
/// Declined if they do not determine the number.
pub fn learn(samples: &FilterSamples, policy: &str) -> Result<(u32, LearnedFilter)> {
    let keys: u64 = samples.0.iter().map(|sample| sample.keys).sum();
    match filter_bits::infer(&samples.0) {
        Inferred::Certain(millibits) => Ok((millibits, LearnedFilter::Certain(millibits))),
        Inferred::Likely(millibits) if keys <= MAX_KEYS_TO_GUESS_FOR => {
            Ok((millibits, LearnedFilter::Likely(millibits)))
        }
        Inferred::Likely(_) | Inferred::Unknown => Err(Error::declined(
            DeclineReason::FilterPolicy,
            format!(
                "the OPTIONS file names {policy} without its bits per key and the input files' \
                 filters do not imply them; build the service with filter_bits_per_key(..)"
            ),
        )),
    }
}

/// The prefix extractor: one of RocksDB's, or the attached one. A program may change the option while a database is open.
fn prefix_extractor(
    eligible: &EligibleJob,
    family: &ColumnFamilyOptions,
) -> Result<(Option<PrefixExtractor>, Option<CustomPrefixes>)> {
    const KEY: &str = "prefix_extractor";
    let text = family.options.str(KEY).unwrap_or_default();
    let unknown = match PrefixExtractor::parse(text) {
        Ok(known) => return Ok((known, None)),
        Err(error) => error,
    };
    let plugins = eligible.job.info.plugins.as_ref();
    match plugins.map(|plugins| &plugins.prefix_extractor) {
        Some(Attached::Named(name, custom)) => {
            let named = named(&family.options, KEY)?;
            if named.as_ref() == Some(name) {
                return Ok((None, Some(custom.clone())));
            }
            let named = named.as_deref().unwrap_or("none");
            let what = format!("{KEY} is {named} in OPTIONS, and {name} was attached");
            Err(Error::declined(DeclineReason::PluginMismatch, what))
        }
        _ => Err(Error::declined(
            DeclineReason::PrefixExtractor,
            unknown.what,
        )),
    }
}

#[cfg(test)]
mod tests {
    use rockmill_core::ErrorKind;
    use rockmill_format::compression::CompressionType;

    use super::*;
    use crate::made::{Inputs, Workload};

    #[test]
    fn filters_tell_their_bits_unless_the_job_is_cancelled() {
        let dir = tempfile::tempdir().expect("a folder");
        let workload = Workload {
            key_bytes: 16,
            value_bytes: 16,
            runs: 3,
            versions: 1,
            compression: CompressionType::None,
            raw_bytes: 300_000,
        };
        let cancel = CancelToken::new();
        let made = Inputs::new(&workload, dir.path(), "made", &cancel).expect("there is room");
        let samples = FilterSamples::of(made.tables(), &cancel).expect("they are sound");
        assert_eq!(samples.0.len(), 3);
        let (millibits, _) = learn(&samples, BARE_BLOOM).expect("they are large enough");
        assert_eq!(millibits, 10_000);
        cancel.cancel();
        let error = FilterSamples::of(made.tables(), &cancel).expect_err("it was cancelled");
        assert_eq!(error.kind, ErrorKind::Cancelled);
    }
}
