//! Objects of the program that a job calls: `rm_plugins`.

use std::cmp;
use std::ffi::{c_char, c_int, c_void};
use std::fmt;
use std::mem::offset_of;
use std::path::PathBuf;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rockmill_core::{
    Attached, Collected, Collector, CollectorFactory, CompactionFilter, Compare, CreateFilter,
    CustomCollectors, CustomComparator, CustomMerge, CustomPrefixes, Decision, DeclineReason,
    Error, FilteredKind, JobFilter, MAX_MADE_BYTES, MAX_PROPERTY_BYTES, MergeFunctions,
    MergeOperator, Merging, Plugins, Prefixes, Result as CoreResult, Row,
};

use crate::memory;
use crate::refusal::Refusal;
use crate::views::CBytes;

/// `rm_take_bytes`.
type TakeBytes = unsafe extern "C" fn(*mut c_void, *const c_char, usize);

/// Type of `full_merge`.
type FullMerge = unsafe extern "C" fn(
    *mut c_void,
    CBytes,
    *const CBytes,
    *const CBytes,
    usize,
    TakeBytes,
    *mut c_void,
) -> c_int;

/// Type of `partial_merge`.
type PartialMerge = unsafe extern "C" fn(
    *mut c_void,
    CBytes,
    *const CBytes,
    usize,
    TakeBytes,
    *mut c_void,
) -> c_int;

/// Type of `filter`.
type Filter =
    unsafe extern "C" fn(*mut c_void, CBytes, c_int, CBytes, TakeBytes, *mut c_void) -> c_int;

/// `rm_take_property`.
type TakeProperty = unsafe extern "C" fn(*mut c_void, c_int, CBytes, CBytes);

/// Type of `collect_entry`.
type CollectEntry =
    unsafe extern "C" fn(*mut c_void, *mut c_void, CBytes, CBytes, c_int, u64, u64) -> c_int;

/// Type of `compare`.
type CompareKeys = unsafe extern "C" fn(*mut c_void, CBytes, CBytes, *mut c_int) -> c_int;

/// `rm_plugins`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
#[allow(missing_docs, reason = "the header has them")]
pub struct CPlugins {
    pub struct_size: usize,
    pub state: *mut c_void,
    pub release: Option<unsafe extern "C" fn(*mut c_void)>,
    pub missing: *const c_char,
    pub merge_operator: *const c_char,
    pub builtin_merge_operator: *const c_char,
    pub merge_delimiter: *const CBytes,
    pub merges_single_operand: u8,
    pub full_merge: Option<FullMerge>,
    pub partial_merge: Option<PartialMerge>,
    pub compaction_filter: *const c_char,
    pub compaction_filter_factory: *const c_char,
    pub create_filter: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
    pub filter: Option<Filter>,
    pub collector_factories: *const *const c_char,
    pub num_collector_factories: usize,
    pub create_collector:
        Option<unsafe extern "C" fn(*mut c_void, usize, c_int, *mut *mut c_void) -> c_int>,
    pub collect_entry: Option<CollectEntry>,
    pub collect_block: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, u64) -> c_int>,
    pub finish_collector:
        Option<unsafe extern "C" fn(*mut c_void, *mut c_void, TakeProperty, *mut c_void) -> c_int>,
    pub destroy_collector: Option<unsafe extern "C" fn(*mut c_void, *mut c_void)>,
    pub builtin_collector_factories: *const u8,
    pub path: *const c_char,
    pub prefix_extractor: *const c_char,
    pub prefix_len: Option<unsafe extern "C" fn(*mut c_void, CBytes) -> i64>,
    pub comparator: *const c_char,
    pub compare: Option<CompareKeys>,
}

/// Bytes of `rm_plugins` in the first version of the header.
const FIRST_PLUGINS: usize = offset_of!(CPlugins, destroy_collector) + size_of::<*const ()>();

/// `rm_merge_status`.
const MERGED: c_int = 0;
const KEEP: c_int = 1;

/// `rm_decision`.
const FILTER_KEEP: c_int = 0;
const FILTER_REMOVE: c_int = 1;
const FILTER_PURGE: c_int = 2;
const FILTER_CHANGE_VALUE: c_int = 3;
const FILTER_SKIP_UNTIL: c_int = 4;

/// `rm_filtered_kind`.
const VALUE: c_int = 0;
const MERGE_OPERAND: c_int = 1;

/// `rm_filter_made`.
const FILTER_MADE: c_int = 0;
const FILTER_NONE: c_int = 1;

/// The caller's functions and their state, which is released at the end.
struct Functions(CPlugins);

// SAFETY: the header lets threads of the library call the functions, several at once.
unsafe impl Send for Functions {}
// SAFETY: as above.
unsafe impl Sync for Functions {}

impl Drop for Functions {
    fn drop(&mut self) {
        if let Some(release) = self.0.release {
            // SAFETY: the caller says that it may be called once, and nothing uses the state any more.
            unsafe { release(self.0.state) };
        }
    }
}

impl fmt::Debug for Functions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("functions of the program")
    }
}

/// Takes the plug-ins of a job over.
///
/// # Safety
/// `given` is null, or a struct of the size that it begins with. Its strings and its delimiter are null or what they should
/// be, and its functions may be called with its state from any thread until `release` has been called.
pub unsafe fn read(given: *const CPlugins) -> Result<Option<Arc<Plugins>>, Refusal> {
    if given.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller says so.
    let copy = unsafe { memory::grown(given, FIRST_PLUGINS, "rm_plugins") }?;
    // SAFETY: all fields may be zero.
    let functions = Arc::new(Functions(unsafe { copy.assume_init() }));
    let given = &functions.0;
    let text = |text: *const c_char, name| {
        // SAFETY: the caller says so.
        let bytes = (!text.is_null()).then(|| unsafe { memory::bytes(text, name) });
        let bytes = bytes.transpose()?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
    };
    let missing = text(given.missing, "missing")?;
    let path = text(given.path, "path")?.map(PathBuf::from);
    if missing.is_some() {
        return Ok(Some(Arc::new(Plugins {
            missing,
            path,
            ..Plugins::default()
        })));
    }
    let merge_operator = match text(given.merge_operator, "merge_operator")? {
        Some(name) => {
            let own = text(given.builtin_merge_operator, "builtin_merge_operator")?;
            let delimiter = (!given.merge_delimiter.is_null()).then(|| {
                // SAFETY: the caller says so.
                let CBytes { data, size } = unsafe { *given.merge_delimiter };
                // SAFETY: the caller says so.
                unsafe { memory::buffer(data, size, "merge_delimiter") }
            });
            let delimiter = delimiter.transpose()?;
            let own = own.and_then(|own| MergeOperator::verified(&own, delimiter));
            let custom = || Merging::Custom(CustomMerge(Arc::new(Merge(Arc::clone(&functions)))));
            Attached::Named(name, own.unwrap_or_else(custom))
        }
        None => Attached::Nothing,
    };
    let filter = |name: Option<String>| match name {
        Some(name) => {
            let filters = Arc::new(Filters(Arc::clone(&functions)));
            Attached::Named(name, JobFilter::new(filters))
        }
        None => Attached::Nothing,
    };
    let prefix_extractor = match text(given.prefix_extractor, "prefix_extractor")? {
        Some(name) => {
            let extractor = Extractor {
                functions: Arc::clone(&functions),
                failed: AtomicBool::default(),
            };
            Attached::Named(name, CustomPrefixes(Arc::new(extractor)))
        }
        None => Attached::Nothing,
    };
    let comparator = match text(given.comparator, "comparator")? {
        Some(name) => {
            let own = Arc::new(Comparator(Arc::clone(&functions)));
            Attached::Named(name, CustomComparator(own))
        }
        None => Attached::Nothing,
    };
    let compaction_filter = filter(text(given.compaction_filter, "compaction_filter")?);
    let factory = text(given.compaction_filter_factory, "compaction_filter_factory")?;
    let mut collectors = Vec::new();
    let has_names = !given.collector_factories.is_null();
    if !has_names && given.num_collector_factories > 0 {
        return Err(Refusal::invalid("collector_factories is null"));
    }
    for at in 0..given.num_collector_factories {
        // SAFETY: the caller says that `num_collector_factories` are there.
        let name = unsafe { *given.collector_factories.add(at) };
        let name = text(name, "collector_factories")?.unwrap_or_default();
        let builtin = given.builtin_collector_factories;
        // SAFETY: the caller says so.
        let is_builtin = !builtin.is_null() && unsafe { *builtin.add(at) } != 0;
        let functions = Arc::clone(&functions);
        let own = || CustomCollectors(Arc::new(Collectors { functions, at }));
        collectors.push((name, (!is_builtin).then(own)));
    }
    Ok(Some(Arc::new(Plugins {
        missing,
        path,
        merge_operator,
        comparator,
        compaction_filter,
        compaction_filter_factory: filter(factory),
        prefix_extractor,
        collectors: Some(collectors),
    })))
}

/// The prefix extractor of a program.
#[derive(Debug)]
struct Extractor {
    functions: Arc<Functions>,
    failed: AtomicBool,
}

impl Prefixes for Extractor {
    fn prefix_len(&self, user_key: &[u8]) -> Option<usize> {
        const OUTSIDE: i64 = -1;
        let functions = &self.functions.0;
        // SAFETY: the program says so; the key lives during the call.
        let answer = functions
            .prefix_len
            .map(|prefix_len| unsafe { prefix_len(functions.state, borrowed(user_key)) });
        let len = answer.and_then(|len| usize::try_from(len).ok());
        let len = len.filter(|&len| len <= user_key.len());
        if len.is_none() && answer != Some(OUTSIDE) {
            self.failed.store(true, Ordering::Relaxed);
        }
        len
    }

    fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }
}

/// The comparator of a program.
#[derive(Debug)]
struct Comparator(Arc<Functions>);

impl Compare for Comparator {
    fn compare(&self, a: &[u8], b: &[u8]) -> CoreResult<cmp::Ordering> {
        let functions = &self.0.0;
        let mut order = 0;
        // SAFETY: the program says so; the keys live during the call.
        let answer = functions.compare.map(|compare| unsafe {
            compare(functions.state, borrowed(a), borrowed(b), &raw mut order)
        });
        match answer {
            Some(0) => Ok(order.cmp(&0)),
            _ => Err(failed("the comparator", "failed")),
        }
    }
}

/// A factory of collectors of a program.
#[derive(Debug)]
struct Collectors {
    functions: Arc<Functions>,
    at: usize,
}

const COLLECTOR: &str = "the collector of table properties";

impl CollectorFactory for Collectors {
    fn create(&self, output_level: u32) -> CoreResult<Option<Box<dyn Collector>>> {
        let functions = &self.functions.0;
        let level = c_int::try_from(output_level).unwrap_or(c_int::MAX);
        let mut collector = ptr::null_mut();
        // SAFETY: the program says so.
        let made = functions
            .create_collector
            .map(|create| unsafe { create(functions.state, self.at, level, &raw mut collector) });
        if made != Some(0) {
            return Err(failed(COLLECTOR, "was not made"));
        }
        let functions = Arc::clone(&self.functions);
        let own = OwnCollector {
            functions,
            collector,
        };
        Ok((!collector.is_null()).then(|| Box::new(own) as _))
    }
}

/// A collector of a program, which is destroyed at the end.
#[derive(Debug)]
struct OwnCollector {
    functions: Arc<Functions>,
    collector: *mut c_void,
}

impl Drop for OwnCollector {
    fn drop(&mut self) {
        let functions = &self.functions.0;
        if let Some(destroy) = functions
            .destroy_collector
            .filter(|_| !self.collector.is_null())
        {
            // SAFETY: the program has made it, and nothing uses it any more.
            unsafe { destroy(functions.state, self.collector) };
        }
    }
}

impl OwnCollector {
    /// Checks the status that a function has returned, if it was called.
    fn answered(answer: Option<c_int>) -> CoreResult<()> {
        match answer {
            Some(0) => Ok(()),
            _ => Err(failed(COLLECTOR, "failed")),
        }
    }
}

impl Collector for OwnCollector {
    fn add(&mut self, entry: Row<'_>, file_size: u64) -> CoreResult<()> {
        let CPlugins {
            state,
            collect_entry,
            ..
        } = self.functions.0;
        let kind = entry.kind() as c_int;
        let (key, value) = (borrowed(entry.user_key), borrowed(entry.value));
        // SAFETY: the program says so; all that it is given lives during the call.
        Self::answered(collect_entry.map(|add| unsafe {
            add(
                state,
                self.collector,
                key,
                value,
                kind,
                entry.sequence,
                file_size,
            )
        }))
    }

    fn block(&mut self, uncompressed_bytes: u64) -> CoreResult<()> {
        let CPlugins {
            state,
            collect_block,
            ..
        } = self.functions.0;
        // SAFETY: the program says so.
        Self::answered(
            collect_block.map(|add| unsafe { add(state, self.collector, uncompressed_bytes) }),
        )
    }

    fn finish(self: Box<Self>) -> CoreResult<Collected> {
        const COLLECTED: c_int = 0;
        const NEEDS_COMPACTION: c_int = 1;
        let functions = &self.functions.0;
        let mut taken = TakenProperties::default();
        let context = ptr::from_mut(&mut taken).cast();
        // SAFETY: the program says so; it gives what `take_property` takes.
        let answer = functions.finish_collector.map(|finish| unsafe {
            finish(functions.state, self.collector, take_property, context)
        });
        match answer {
            _ if taken.bytes > MAX_PROPERTY_BYTES => Err(Error::too_many_properties()),
            Some(answer @ (COLLECTED | NEEDS_COMPACTION)) => Ok(Collected {
                needs_compaction: answer == NEEDS_COMPACTION,
                ..taken.collected
            }),
            _ => Err(failed(COLLECTOR, "failed")),
        }
    }
}

/// What a collector gives.
#[derive(Default)]
struct TakenProperties {
    collected: Collected,
    bytes: usize,
}

/// # Safety
/// `context` is a [`TakenProperties`] that nothing else uses; `name` and `value` have the bytes that they say.
unsafe extern "C" fn take_property(
    context: *mut c_void,
    is_readable: c_int,
    name: CBytes,
    value: CBytes,
) {
    // SAFETY: the caller says so.
    let taken = unsafe { &mut *context.cast::<TakenProperties>() };
    taken.bytes = taken
        .bytes
        .saturating_add(name.size)
        .saturating_add(value.size);
    if taken.bytes > MAX_PROPERTY_BYTES {
        return;
    }
    // SAFETY: the caller says so.
    let [name, value] = [name, value].map(|bytes| unsafe { copied(bytes.data, bytes.size) });
    let properties = match is_readable {
        0 => &mut taken.collected.properties,
        _ => &mut taken.collected.readable,
    };
    properties.insert(name, value);
}

/// # Safety
/// `data` has `size` bytes.
unsafe fn copied(data: *const c_char, size: usize) -> Vec<u8> {
    match size {
        0 => Vec::new(),
        // SAFETY: the caller says so.
        _ => unsafe { std::slice::from_raw_parts(data.cast::<u8>(), size) }.to_vec(),
    }
}

/// The compaction filter of a program, and what makes it.
#[derive(Debug, Clone)]
struct Filters(Arc<Functions>);

impl CreateFilter for Filters {
    fn create(&self) -> CoreResult<Option<Box<dyn CompactionFilter>>> {
        let functions = &self.0.0;
        // SAFETY: the program says so.
        let made = functions
            .create_filter
            .map(|create| unsafe { create(functions.state) });
        match made {
            Some(FILTER_MADE) => Ok(Some(Box::new(self.clone()))),
            Some(FILTER_NONE) => Ok(None),
            _ => Err(failed("the compaction filter", "was not made")),
        }
    }
}

impl CompactionFilter for Filters {
    fn filter(&mut self, key: &[u8], kind: FilteredKind, value: &[u8]) -> CoreResult<Decision> {
        let functions = &self.0.0;
        let what = "the compaction filter";
        let Some(filter) = functions.filter else {
            return Err(failed(what, "is not there"));
        };
        let kind = match kind {
            FilteredKind::Value => VALUE,
            FilteredKind::MergeOperand => MERGE_OPERAND,
        };
        let mut made = FunctionOutput::default();
        let context = ptr::from_mut(&mut made).cast();
        // SAFETY: the program says so; all that it is given lives during the call.
        let decision = unsafe {
            let (key, value) = (borrowed(key), borrowed(value));
            filter(functions.state, key, kind, value, take, context)
        };
        if made.is_too_large {
            return Err(too_large("the compaction filter"));
        }
        match (decision, made.bytes) {
            (FILTER_KEEP, _) => Ok(Decision::Keep),
            (FILTER_REMOVE, _) => Ok(Decision::Remove),
            (FILTER_PURGE, _) => Ok(Decision::Purge),
            (FILTER_CHANGE_VALUE, Some(value)) => Ok(Decision::ChangeValue(value)),
            (FILTER_SKIP_UNTIL, Some(key)) => Ok(Decision::SkipUntil(key)),
            (FILTER_CHANGE_VALUE | FILTER_SKIP_UNTIL, None) => {
                Err(failed(what, "returned nothing"))
            }
            _ => Err(failed(what, "failed")),
        }
    }
}

/// The merge operator of a program.
#[derive(Debug)]
struct Merge(Arc<Functions>);

impl Merge {
    /// Calls a function of the operator, and returns what it makes.
    fn call(
        &self,
        what: &str,
        call: impl FnOnce(TakeBytes, *mut c_void) -> c_int,
    ) -> CoreResult<Option<Vec<u8>>> {
        let mut made = FunctionOutput::default();
        let status = call(take, ptr::from_mut(&mut made).cast());
        match (status, made) {
            (KEEP, _) => Ok(None),
            (_, FunctionOutput { is_too_large, .. }) if is_too_large => {
                Err(too_large("the merge operator"))
            }
            (
                MERGED,
                FunctionOutput {
                    bytes: Some(bytes), ..
                },
            ) => Ok(Some(bytes)),
            (MERGED, _) => Err(failed(what, "returned nothing")),
            _ => Err(failed(what, "failed")),
        }
    }
}

fn failed(what: &str, how: &str) -> Error {
    Error::declined(DeclineReason::PluginFailed, format!("{what} {how}"))
}

fn too_large(what: &str) -> Error {
    let what = format!("{what} makes more than 8 MiB of a key");
    Error::declined(DeclineReason::MemoryBudget, what)
}

/// The value that a function has made.
#[derive(Default)]
struct FunctionOutput {
    bytes: Option<Vec<u8>>,
    is_too_large: bool,
}

/// # Safety
/// `context` is a [`FunctionOutput`] that nothing else uses; `data` has `size` bytes.
unsafe extern "C" fn take(context: *mut c_void, data: *const c_char, size: usize) {
    // SAFETY: the caller says so.
    let made = unsafe { &mut *context.cast::<FunctionOutput>() };
    if size > MAX_MADE_BYTES {
        made.is_too_large = true;
        return;
    }
    // SAFETY: the caller says so.
    made.bytes = Some(unsafe { copied(data, size) });
}

fn borrowed(bytes: &[u8]) -> CBytes {
    CBytes {
        data: bytes.as_ptr().cast(),
        size: bytes.len(),
    }
}

impl MergeFunctions for Merge {
    fn full(
        &self,
        key: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> CoreResult<Option<Vec<u8>>> {
        let functions = &self.0.0;
        let what = "the merge operator's full merge";
        let Some(full) = functions.full_merge else {
            return Err(failed(what, "is not there"));
        };
        let base = base.map(borrowed);
        let base = base.as_ref().map_or(ptr::null(), ptr::from_ref);
        let operands: Vec<_> = operands.iter().map(|one| borrowed(one)).collect();
        self.call(what, |take, context| {
            // SAFETY: the program says so; all that it is given lives during the call.
            unsafe {
                let (key, first) = (borrowed(key), operands.as_ptr());
                full(
                    functions.state,
                    key,
                    base,
                    first,
                    operands.len(),
                    take,
                    context,
                )
            }
        })
    }

    fn partial(&self, key: &[u8], operands: &[&[u8]]) -> CoreResult<Option<Vec<u8>>> {
        let functions = &self.0.0;
        let Some(partial) = functions.partial_merge else {
            return Ok(None);
        };
        let operands: Vec<_> = operands.iter().map(|one| borrowed(one)).collect();
        self.call("the merge operator's partial merge", |take, context| {
            // SAFETY: as above.
            unsafe {
                let (key, first) = (borrowed(key), operands.as_ptr());
                partial(functions.state, key, first, operands.len(), take, context)
            }
        })
    }

    fn takes_single_operand(&self) -> bool {
        self.0.0.merges_single_operand != 0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    /// What the functions do: a status, and whether they make something.
    struct State {
        status: c_int,
        makes: Option<usize>,
        releases: AtomicU32,
    }

    unsafe extern "C" fn release(state: *mut c_void) {
        // SAFETY: the test has it.
        let state = unsafe { &*state.cast::<State>() };
        state.releases.fetch_add(1, Ordering::Relaxed);
    }

    /// # Safety
    /// `state` is a [`State`].
    unsafe fn answer(state: *mut c_void, take: TakeBytes, context: *mut c_void) -> c_int {
        // SAFETY: the test has it.
        let state = unsafe { &*state.cast::<State>() };
        let bytes = vec![b'x'; state.makes.unwrap_or(0)];
        if state.makes.is_some() {
            // SAFETY: the library says so.
            unsafe { take(context, bytes.as_ptr().cast(), bytes.len()) };
        }
        state.status
    }

    unsafe extern "C" fn full(
        state: *mut c_void,
        _: CBytes,
        _: *const CBytes,
        _: *const CBytes,
        _: usize,
        take: TakeBytes,
        context: *mut c_void,
    ) -> c_int {
        // SAFETY: the test has it.
        unsafe { answer(state, take, context) }
    }

    unsafe extern "C" fn partial(
        state: *mut c_void,
        _: CBytes,
        _: *const CBytes,
        _: usize,
        take: TakeBytes,
        context: *mut c_void,
    ) -> c_int {
        // SAFETY: the test has it.
        unsafe { answer(state, take, context) }
    }

    unsafe extern "C" fn create(_: *mut c_void) -> c_int {
        FILTER_MADE
    }

    unsafe extern "C" fn filter(
        state: *mut c_void,
        _: CBytes,
        _: c_int,
        _: CBytes,
        take: TakeBytes,
        context: *mut c_void,
    ) -> c_int {
        // SAFETY: the test has it.
        unsafe { answer(state, take, context) }
    }

    /// The order of the first bytes.
    unsafe extern "C" fn compare(
        state: *mut c_void,
        a: CBytes,
        b: CBytes,
        order: *mut c_int,
    ) -> c_int {
        // SAFETY: the test has it, and gives keys that are not empty.
        unsafe {
            *order = c_int::from(*a.data) - c_int::from(*b.data);
            (*state.cast::<State>()).status
        }
    }

    fn given(state: &State) -> CPlugins {
        CPlugins {
            struct_size: size_of::<CPlugins>(),
            state: ptr::from_ref(state).cast_mut().cast(),
            release: Some(release),
            missing: ptr::null(),
            merge_operator: c"Mine".as_ptr(),
            builtin_merge_operator: ptr::null(),
            merge_delimiter: ptr::null(),
            merges_single_operand: 0,
            full_merge: Some(full),
            partial_merge: Some(partial),
            compaction_filter: c"Sieve".as_ptr(),
            compaction_filter_factory: ptr::null(),
            create_filter: Some(create),
            filter: Some(filter),
            collector_factories: ptr::null(),
            num_collector_factories: 0,
            create_collector: None,
            collect_entry: None,
            collect_block: None,
            finish_collector: None,
            destroy_collector: None,
            builtin_collector_factories: ptr::null(),
            path: ptr::null(),
            prefix_extractor: ptr::null(),
            prefix_len: None,
            comparator: c"alias".as_ptr(),
            compare: Some(compare),
        }
    }

    fn taken_over(given: &CPlugins) -> Arc<Plugins> {
        // SAFETY: all of it lives as long as the test.
        let plugins = unsafe { read(given) }.expect("it is sound");
        plugins.expect("there are some")
    }

    #[test]
    fn what_an_operator_answers_is_a_value_or_a_decline() {
        let (failed, large) = (DeclineReason::PluginFailed, DeclineReason::MemoryBudget);
        for (status, makes, expected) in [
            (MERGED, Some(2), Ok(Some(b"xx".to_vec()))),
            (MERGED, Some(0), Ok(Some(Vec::new()))),
            (KEEP, None, Ok(None)),
            (MERGED, None, Err(failed)),
            (2, None, Err(failed)),
            (77, Some(1), Err(failed)),
            (MERGED, Some(MAX_MADE_BYTES + 1), Err(large)),
        ] {
            let state = State {
                status,
                makes,
                releases: AtomicU32::new(0),
            };
            let plugins = taken_over(&given(&state));
            let Attached::Named(name, merging) = &plugins.merge_operator else {
                panic!("an operator is attached");
            };
            assert_eq!(name, "Mine");
            let expected = expected.map_err(rockmill_core::ErrorKind::Declined);
            let full = merging.full(b"key", Some(b"base"), &[b"operand"]);
            assert_eq!(full.map_err(|error| error.kind), expected, "{status}");
            let partial = merging.partial(b"key", &[b"one", b"two"]);
            assert_eq!(partial.map_err(|error| error.kind), expected, "{status}");
            assert_eq!(state.releases.load(Ordering::Relaxed), 0);
            drop(plugins);
            assert_eq!(state.releases.load(Ordering::Relaxed), 1);
        }
    }

    #[test]
    fn what_a_filter_answers_is_a_decision_or_a_decline() {
        let (failed, large) = (DeclineReason::PluginFailed, DeclineReason::MemoryBudget);
        for (status, makes, expected) in [
            (FILTER_KEEP, None, Ok(Decision::Keep)),
            (FILTER_REMOVE, None, Ok(Decision::Remove)),
            (FILTER_PURGE, None, Ok(Decision::Purge)),
            (
                FILTER_CHANGE_VALUE,
                Some(1),
                Ok(Decision::ChangeValue(b"x".to_vec())),
            ),
            (
                FILTER_SKIP_UNTIL,
                Some(1),
                Ok(Decision::SkipUntil(b"x".to_vec())),
            ),
            (FILTER_CHANGE_VALUE, None, Err(failed)),
            (FILTER_SKIP_UNTIL, None, Err(failed)),
            (5, None, Err(failed)),
            (-1, Some(1), Err(failed)),
            (FILTER_CHANGE_VALUE, Some(MAX_MADE_BYTES + 1), Err(large)),
        ] {
            let state = State {
                status,
                makes,
                releases: AtomicU32::new(0),
            };
            let plugins = taken_over(&given(&state));
            let job = plugins.filter().expect("a filter is attached");
            let mut made = job.begin().expect("it is made").expect("there is one");
            let decision = made.filter(b"key", FilteredKind::Value, b"value");
            let expected = expected.map_err(rockmill_core::ErrorKind::Declined);
            assert_eq!(decision.map_err(|error| error.kind), expected, "{status}");
            // It sees each key once.
            assert!(job.is_made() && job.begin().is_err());
        }
    }

    #[test]
    fn what_a_comparator_answers_is_an_order_or_a_decline() {
        for (status, expected) in [(0, Some(cmp::Ordering::Less)), (1, None), (-1, None)] {
            let state = State {
                status,
                makes: None,
                releases: AtomicU32::new(0),
            };
            let plugins = taken_over(&given(&state));
            let Attached::Named(name, comparator) = &plugins.comparator else {
                panic!("a comparator is attached");
            };
            assert_eq!(name, "alias");
            let compared = comparator.0.compare(b"a", b"b");
            let failed = rockmill_core::ErrorKind::Declined(DeclineReason::PluginFailed);
            let compared = compared.map_err(|error| error.kind);
            assert_eq!(compared, expected.ok_or(failed), "{status}");
        }
    }

    #[test]
    fn a_header_without_a_comparator_is_read() {
        let state = State {
            status: 0,
            makes: None,
            releases: AtomicU32::new(0),
        };
        let given = CPlugins {
            struct_size: offset_of!(CPlugins, comparator),
            ..given(&state)
        };
        assert_eq!(taken_over(&given).comparator, Attached::Nothing);
    }

    #[test]
    fn plug_ins_whose_objects_are_missing_are_released_at_once() {
        let state = State {
            status: 0,
            makes: None,
            releases: AtomicU32::new(0),
        };
        let given = CPlugins {
            missing: c"why".as_ptr(),
            ..given(&state)
        };
        let plugins = taken_over(&given);
        assert_eq!(plugins.missing.as_deref(), Some("why"));
        assert_eq!(plugins.merge_operator, Attached::Unknown);
        assert_eq!(state.releases.load(Ordering::Relaxed), 1);
    }
}
