//! Objects of the application that a job calls.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rockmill_format::prefix::{CustomPrefixes, PrefixExtractor};

use crate::comparators::CustomComparator;
use crate::decline::DeclineReason;
use crate::error::{Error, Result};
use crate::merging::Merging;
use crate::row::Row;

/// An object of a column family, as far as it is known.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub enum Attached<T> {
    /// Nothing.
    #[default]
    Unknown,
    /// There is none.
    Nothing,
    /// It has this name in OPTIONS.
    Named(String, T),
}

/// The objects of a column family that the application has attached to one of its jobs.
#[derive(Debug, Default)]
pub struct Plugins {
    /// Why nothing is known of them, in a sentence.
    pub missing: Option<String>,
    /// Where the options place files, if they say so.
    pub path: Option<PathBuf>,
    /// The merge operator.
    pub merge_operator: Attached<Merging>,
    /// The comparator. Jobs call it if it is none of RocksDB's and its order is not stated.
    pub comparator: Attached<CustomComparator>,
    /// The compaction filter. If there is one, the factory makes none.
    pub compaction_filter: Attached<JobFilter>,
    /// The factory of compaction filters.
    pub compaction_filter_factory: Attached<JobFilter>,
    /// The prefix extractor.
    pub prefix_extractor: Attached<CustomPrefixes>,
    /// The factories of collectors of table properties with their names in OPTIONS, in order, if they are known; `None` for
    /// one of RocksDB's class.
    pub collectors: Option<Vec<(String, Option<CustomCollectors>)>>,
}

impl Plugins {
    /// Whether there are objects without which a job cannot be repeated.
    pub fn has_objects(&self) -> bool {
        let all = self.collectors.iter().flatten();
        let has_collectors = all.clone().any(|(_, factory)| factory.is_some());
        matches!(self.merge_operator, Attached::Named(..))
            || self.has_own_prefixes()
            || self.filter().is_some()
            || has_collectors
    }

    /// Whether the prefix extractor is not known by its name.
    fn has_own_prefixes(&self) -> bool {
        match &self.prefix_extractor {
            Attached::Named(name, _) => PrefixExtractor::parse(name).is_err(),
            Attached::Unknown | Attached::Nothing => false,
        }
    }

    /// The filter of the job, if there is one.
    pub fn filter(&self) -> Option<&JobFilter> {
        match (&self.compaction_filter, &self.compaction_filter_factory) {
            (Attached::Named(_, filter), _) | (_, Attached::Named(_, filter)) => Some(filter),
            _ => None,
        }
    }
}

/// That of the same job.
impl PartialEq for Plugins {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Plugins {}

/// A merge operator of the application. Several threads call it at once.
pub trait MergeFunctions: Debug + Send + Sync {
    /// Merges operands, oldest first, of which there is at least one, with `base`, if there is one (`FullMergeV3`). `None` if
    /// they have to stay operands (`OpFailureScope::kMustMerge`).
    ///
    /// # Errors
    /// Declined if the operator fails or makes too much.
    fn full(&self, key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Option<Vec<u8>>>;

    /// Makes one operand of several, oldest first; `None` if they have to stay (`PartialMergeMulti`).
    ///
    /// # Errors
    /// The errors of [`MergeFunctions::full`].
    fn partial(&self, key: &[u8], operands: &[&[u8]]) -> Result<Option<Vec<u8>>>;

    /// Whether [`MergeFunctions::partial`] is called for a single operand as well (`AllowSingleOperand`).
    fn takes_single_operand(&self) -> bool;
}

/// Merge functions of the application; equal if they are the same object.
#[derive(Debug, Clone)]
pub struct CustomMerge(pub Arc<dyn MergeFunctions>);

impl PartialEq for CustomMerge {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for CustomMerge {}

/// The decision of a compaction filter about an entry (`CompactionFilter::Decision`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// It stays.
    Keep,
    /// It becomes a Delete; a merge operand goes.
    Remove,
    /// It becomes a SingleDelete; a merge operand goes.
    Purge,
    /// It gets another value.
    ChangeValue(Vec<u8>),
    /// It goes, and all entries of its key and of later keys before this one.
    SkipUntil(Vec<u8>),
}

/// Kinds of entries that a filter is asked about (`CompactionFilter::ValueType`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilteredKind {
    /// A value.
    Value,
    /// A merge operand.
    MergeOperand,
}

/// A compaction filter of the application. One thread calls it, in the order of keys.
pub trait CompactionFilter: Debug {
    /// Decides about an entry of a user key.
    ///
    /// # Errors
    /// Declined if the filter fails.
    fn filter(&mut self, key: &[u8], kind: FilteredKind, value: &[u8]) -> Result<Decision>;
}

/// Makes the filter of a job.
pub trait CreateFilter: Debug + Send + Sync {
    /// The filter; `None` if the application wants none for this job.
    ///
    /// # Errors
    /// Declined if it fails.
    fn create(&self) -> Result<Option<Box<dyn CompactionFilter>>>;
}

/// The filter of a job, which sees each key of the job once.
#[derive(Debug, Clone)]
pub struct JobFilter {
    create: Arc<dyn CreateFilter>,
    has_begun: Arc<AtomicBool>,
    is_made: Arc<AtomicBool>,
}

/// That of the same job.
impl PartialEq for JobFilter {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.create, &other.create)
    }
}

impl JobFilter {
    /// A filter that nothing has asked for yet.
    pub fn new(create: Arc<dyn CreateFilter>) -> Self {
        Self {
            create,
            has_begun: Arc::default(),
            is_made: Arc::default(),
        }
    }

    /// Makes the filter.
    ///
    /// # Errors
    /// Declined if it was made before, or the application fails at it.
    pub fn begin(&self) -> Result<Option<Box<dyn CompactionFilter>>> {
        if self.has_begun.swap(true, Ordering::AcqRel) {
            let what = "the compaction filter of the job has seen the keys already";
            return Err(Error::declined(DeclineReason::PluginFailed, what));
        }
        let made = self.create.create()?;
        self.is_made.store(made.is_some(), Ordering::Release);
        Ok(made)
    }

    /// Whether the application has made a filter, which may have seen keys.
    pub fn is_made(&self) -> bool {
        self.is_made.load(Ordering::Acquire)
    }
}

/// Makes collectors of table properties (`TablePropertiesCollectorFactory`).
pub trait CollectorFactory: Debug + Send + Sync {
    /// The collector of a new file; `None` if the application wants none.
    ///
    /// # Errors
    /// Declined if it fails.
    fn create(&self, output_level: u32) -> Result<Option<Box<dyn Collector>>>;
}

/// A factory of collectors of the application; equal if it is the same object.
#[derive(Debug, Clone)]
pub struct CustomCollectors(pub Arc<dyn CollectorFactory>);

impl PartialEq for CustomCollectors {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for CustomCollectors {}

/// Collects properties of one file. One thread calls it. RocksDB passes over what goes wrong in one.
pub trait Collector: Debug {
    /// Shows the next entry: those of keys in their order, then the range tombstones, with their end as the value. `file_size`
    /// is the size of the data blocks before the entry's.
    ///
    /// # Errors
    /// Declined if the application fails.
    fn add(&mut self, entry: Row<'_>, file_size: u64) -> Result<()>;

    /// Tells the uncompressed size of a data block that is complete.
    ///
    /// # Errors
    /// The errors of [`Collector::add`].
    fn block(&mut self, uncompressed_bytes: u64) -> Result<()>;

    /// Ends the file.
    ///
    /// # Errors
    /// The errors of [`Collector::add`].
    fn finish(self: Box<Self>) -> Result<Collected>;
}

/// Maximum bytes of the properties of a file that collectors make. A job keeps those of all of its files.
pub const MAX_PROPERTY_BYTES: usize = 1 << 20;

impl Error {
    /// The error for a collector that makes more than [`MAX_PROPERTY_BYTES`].
    pub fn too_many_properties() -> Self {
        let what = "the collectors of table properties make more than 1 MiB of a file";
        Self::declined(DeclineReason::MemoryBudget, what)
    }
}

/// The results of a collector for a file.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Collected {
    /// Properties of the file (`user_collected_properties`).
    pub properties: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The same for people, which are in no file (`readable_properties`).
    pub readable: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Whether RocksDB is to compact the file again soon (`NeedCompact`).
    pub needs_compaction: bool,
}

impl Collected {
    /// Bytes of the properties.
    pub fn bytes(&self) -> usize {
        let all = self.properties.iter().chain(&self.readable);
        all.map(|(name, value)| name.len() + value.len()).sum()
    }
}
