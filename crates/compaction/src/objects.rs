//! Objects of an application in Rust, by their names in OPTIONS.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rockmill_core::{
    Attached, CompactionFilter, CreateFilter, CustomMerge, Decision, DeclineReason, Error,
    FilteredKind, JobFilter, JobInfo, MAX_MADE_BYTES, MergeFunctions, Merging, Plugins, Result,
};
use rockmill_format::prefix::{CustomPrefixes, Prefixes};

use crate::eligibility::{EligibleJob, named};
use crate::engine::guarded;

/// Merges operands, oldest first, with the value beneath them, if there is one; `None` if that is not possible.
pub type FullMerge = dyn Fn(&[u8], Option<&[u8]>, &[&[u8]]) -> Option<Vec<u8>> + Send + Sync;

/// Makes one operand of several, oldest first; `None` if they have to stay.
pub type PartialMerge = dyn Fn(&[u8], &[&[u8]]) -> Option<Vec<u8>> + Send + Sync;

/// Decides about a key and its value. It is called in the order of keys.
pub type Filter = dyn FnMut(&[u8], &[u8]) -> Decision;

/// Makes the filter of a job; `None` if the job needs none.
pub type MakeFilter = dyn Fn(&FilterContext) -> Option<Box<Filter>> + Send + Sync;

/// Bytes of the prefix with which a key begins; `None` if the key has none.
pub type PrefixLen = dyn Fn(&[u8]) -> Option<usize> + Send + Sync;

/// For what job a filter is made (`CompactionFilter::Context`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterContext {
    /// Whether the compaction covers the whole column family.
    pub is_full_compaction: bool,
    /// Whether the application asked for it.
    pub is_manual_compaction: bool,
    /// Lowest input level.
    pub level: i32,
    /// Column family.
    pub column_family_id: u32,
}

/// Objects of the application by their names in OPTIONS.
#[derive(Default, Clone)]
pub struct NamedObjects {
    merge_operators: BTreeMap<String, Merging>,
    filters: BTreeMap<String, Arc<MakeFilter>>,
    prefix_extractors: BTreeMap<String, Arc<PrefixLen>>,
}

impl fmt::Debug for NamedObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.merge_operators.keys().chain(self.filters.keys());
        let names = names.chain(self.prefix_extractors.keys());
        f.debug_list().entries(names).finish()
    }
}

impl NamedObjects {
    /// Adds the merge operator of this name.
    pub fn merge_operator(&mut self, name: &str, full: Box<FullMerge>, partial: Box<PartialMerge>) {
        let functions = CustomMerge(Arc::new(Closures { full, partial }));
        (self.merge_operators).insert(name.to_owned(), Merging::Custom(functions));
    }

    /// Adds the compaction filter, or the factory of filters, of this name.
    pub fn compaction_filter(&mut self, name: &str, make: Arc<MakeFilter>) {
        self.filters.insert(name.to_owned(), make);
    }

    /// Adds the prefix extractor of this name.
    pub fn prefix_extractor(&mut self, name: &str, prefix_len: Arc<PrefixLen>) {
        self.prefix_extractors.insert(name.to_owned(), prefix_len);
    }

    /// The objects that a job's options name, if some are registered.
    ///
    /// # Errors
    /// Declined if the options are malformed.
    pub(crate) fn plugins(&self, eligible: &EligibleJob) -> Result<Option<Arc<Plugins>>> {
        if self.merge_operators.is_empty()
            && self.filters.is_empty()
            && self.prefix_extractors.is_empty()
        {
            return Ok(None);
        }
        let (info, input) = (&eligible.job.info, &eligible.input);
        let Some(family) = eligible.options().cf(&input.cf_name) else {
            return Ok(None);
        };
        let name = |key| named(&family.options, key);
        let merging = |name: &String| self.merge_operators.get(name).cloned();
        let filter = |name: &String| {
            let make = Arc::clone(self.filters.get(name)?);
            let context = FilterContext::of(info);
            Some(JobFilter::new(Arc::new(FilterMaker { make, context })))
        };
        let extractor = |name: &String| {
            let prefix_len = Arc::clone(self.prefix_extractors.get(name)?);
            let failed = AtomicBool::default();
            Some(CustomPrefixes(Arc::new(Extractor { prefix_len, failed })))
        };
        Ok(Some(Arc::new(Plugins {
            missing: None,
            path: None,
            merge_operator: found(name("merge_operator")?, merging),
            comparator: Attached::Unknown,
            compaction_filter: found(name("compaction_filter")?, filter),
            compaction_filter_factory: found(name("compaction_filter_factory")?, filter),
            prefix_extractor: found(name("prefix_extractor")?, extractor),
            collectors: None,
        })))
    }
}

/// A registered prefix extractor.
struct Extractor {
    prefix_len: Arc<PrefixLen>,
    failed: AtomicBool,
}

impl fmt::Debug for Extractor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a prefix extractor")
    }
}

impl Prefixes for Extractor {
    fn prefix_len(&self, user_key: &[u8]) -> Option<usize> {
        match called("the prefix extractor", || (self.prefix_len)(user_key)) {
            Ok(len) if len.is_none_or(|len| len <= user_key.len()) => len,
            _ => {
                self.failed.store(true, Ordering::Relaxed);
                None
            }
        }
    }

    fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }
}

/// The object that is registered under a name.
fn found<T>(name: Option<String>, find: impl Fn(&String) -> Option<T>) -> Attached<T> {
    let Some(name) = name else {
        return Attached::Unknown;
    };
    match find(&name) {
        Some(object) => Attached::Named(name, object),
        None => Attached::Unknown,
    }
}

impl FilterContext {
    fn of(info: &JobInfo) -> Self {
        Self {
            is_full_compaction: info.is_full_compaction,
            is_manual_compaction: info.is_manual_compaction,
            level: info.base_input_level,
            column_family_id: info.cf_id,
        }
    }
}

/// A panic of the application is a decline: RocksDB's own call shows it.
fn called<T>(what: &str, call: impl FnOnce() -> T) -> Result<T> {
    guarded(|| Ok(call())).map_err(|panic| {
        let what = format!("{what} failed: {}", panic.what);
        Error::declined(DeclineReason::PluginFailed, what)
    })
}

/// Returns what an operator or a filter has made, unless it is too large.
fn limited(made: Vec<u8>) -> Result<Vec<u8>> {
    if made.len() <= MAX_MADE_BYTES {
        return Ok(made);
    }
    let what = "an operator or a filter makes more than 8 MiB of a key";
    Err(Error::declined(DeclineReason::MemoryBudget, what))
}

struct Closures {
    full: Box<FullMerge>,
    partial: Box<PartialMerge>,
}

impl fmt::Debug for Closures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("merge functions")
    }
}

impl MergeFunctions for Closures {
    fn full(&self, key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Option<Vec<u8>>> {
        let what = "the merge operator's full merge";
        let made = called(what, || (self.full)(key, base, operands))?;
        let failed = || Error::declined(DeclineReason::PluginFailed, format!("{what} failed"));
        made.ok_or_else(failed).and_then(limited).map(Some)
    }

    fn partial(&self, key: &[u8], operands: &[&[u8]]) -> Result<Option<Vec<u8>>> {
        let made = called("the merge operator's partial merge", || {
            (self.partial)(key, operands)
        })?;
        made.map(limited).transpose()
    }

    fn takes_single_operand(&self) -> bool {
        false
    }
}

/// The maker of a job's filter.
struct FilterMaker {
    make: Arc<MakeFilter>,
    context: FilterContext,
}

impl fmt::Debug for FilterMaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a filter for {:?}", self.context)
    }
}

impl CreateFilter for FilterMaker {
    fn create(&self) -> Result<Option<Box<dyn CompactionFilter>>> {
        let made = called("the compaction filter", || (self.make)(&self.context))?;
        Ok(made.map(|filter| Box::new(Called(filter)) as _))
    }
}

/// A filter of values. RocksDB's C API shows operands to no filter either.
struct Called(Box<Filter>);

impl fmt::Debug for Called {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a filter")
    }
}

impl CompactionFilter for Called {
    fn filter(&mut self, key: &[u8], kind: FilteredKind, value: &[u8]) -> Result<Decision> {
        match kind {
            FilteredKind::Value => {
                match called("the compaction filter", || (self.0)(key, value))? {
                    Decision::ChangeValue(value) => limited(value).map(Decision::ChangeValue),
                    Decision::SkipUntil(end) => limited(end).map(Decision::SkipUntil),
                    decision => Ok(decision),
                }
            }
            FilteredKind::MergeOperand => Ok(Decision::Keep),
        }
    }
}

#[cfg(test)]
mod tests {
    use rockmill_core::ErrorKind;

    use super::*;

    #[test]
    fn what_is_too_large_is_declined() {
        let makes = |bytes: usize| Closures {
            full: Box::new(move |_, _, _| Some(vec![0; bytes])),
            partial: Box::new(move |_, _| Some(vec![0; bytes])),
        };
        let most = makes(MAX_MADE_BYTES);
        assert!(most.full(b"key", None, &[]).is_ok() && most.partial(b"key", &[]).is_ok());
        let more = makes(MAX_MADE_BYTES + 1);
        let mut filter = Called(Box::new(|_, _| {
            Decision::ChangeValue(vec![0; MAX_MADE_BYTES + 1])
        }));
        for declined in [
            more.full(b"key", None, &[]).map(drop),
            more.partial(b"key", &[]).map(drop),
            filter.filter(b"key", FilteredKind::Value, b"").map(drop),
        ] {
            let kind = declined.expect_err("too large").kind;
            assert_eq!(kind, ErrorKind::Declined(DeclineReason::MemoryBudget));
        }
    }
}
