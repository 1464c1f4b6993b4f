//! Makes a job for every decline reason: a plain job with one change, or a database that cannot be compacted.
//! `crates/compaction/tests/recorded_jobs` names the reasons that no recorded job can have.

use std::fs;
use std::path::Path;

use rockmill_compaction::record::{self, JOB_FILE};
use rockmill_core::Job;
use rockmill_format::key::{self, ValueType};
use rockmill_format::range_tombstone::END_TAG;
use rockmill_storage::LocalStorage;
use rust_rocksdb::{DB, DBCompressionType, Options, SstFileWriter};

use super::quiet_options;
use super::recorder::{Recorder, Take};
use super::special::{
    flush, opened, put_some, rounds, scratch, single_delete_over_a_delete, table,
};
use crate::harness::{compact_everything, open};
use crate::{damage, reasons};

/// Options that make a job declined: the reason, the option, its value.
const OPTIONS: [(&str, &str, &str); 35] = [
    (reasons::COMPARATOR, "comparator", "SomebodysOwn"),
    (
        reasons::USER_TIMESTAMPS,
        "comparator",
        "leveldb.BytewiseComparator.u64ts",
    ),
    (
        reasons::COMPACTION_FILTER,
        "compaction_filter",
        "SomebodysOwn",
    ),
    (
        reasons::COMPACTION_FILTER,
        "compaction_filter_factory",
        "SomebodysOwn",
    ),
    (reasons::BLOB_FILES, "enable_blob_files", "true"),
    (
        reasons::BLOB_FILES,
        "enable_blob_garbage_collection",
        "true",
    ),
    (reasons::BLOB_FILES, "enable_blob_direct_write", "true"),
    (reasons::TIERING, "preserve_internal_time_seconds", "86400"),
    (
        reasons::TIERING,
        "preclude_last_level_data_seconds",
        "86400",
    ),
    (reasons::TEMPERATURE, "last_level_temperature", "kWarm"),
    (reasons::TEMPERATURE, "default_write_temperature", "kWarm"),
    (reasons::INGEST_BEHIND, "allow_ingest_behind", "true"),
    (reasons::INGEST_BEHIND, "cf_allow_ingest_behind", "true"),
    (reasons::ALLOW_2PC, "allow_2pc", "true"),
    (
        reasons::FILE_CHECKSUM,
        "file_checksum_gen_factory",
        "SomebodysOwn",
    ),
    (
        reasons::SST_PARTITIONER,
        "sst_partitioner_factory",
        "SomebodysOwn",
    ),
    (reasons::COMPRESSION, "compression", "kBZip2Compression"),
    (
        reasons::COMPRESSION,
        "bottommost_compression",
        "kXpressCompression",
    ),
    (
        reasons::COMPRESSION,
        "compression_opts",
        "{auto_skip=true;}",
    ),
    (
        reasons::COMPRESSION_DICTIONARY,
        "compression_opts",
        "{level=5;max_dict_bytes=4096;}",
    ),
    (
        reasons::COMPRESSION_MANAGER,
        "compression_manager",
        "SomebodysOwn",
    ),
    (
        reasons::INDEX_TYPE,
        "index_type",
        "kBinarySearchWithFirstKey",
    ),
    (
        reasons::USER_DEFINED_INDEX,
        "user_defined_index_factory",
        "trie_index",
    ),
    (
        reasons::SEPARATE_KEY_VALUE,
        "separate_key_value_in_data_block",
        "true",
    ),
    (reasons::BLOCK_ALIGN, "block_align", "true"),
    (reasons::BLOCK_ALIGN, "super_block_alignment_size", "65536"),
    (
        reasons::PREFIX_EXTRACTOR,
        "prefix_extractor",
        "SomebodysOwn",
    ),
    (reasons::FILTER_POLICY, "filter_policy", "SomebodysOwn"),
    (
        reasons::FLUSH_BLOCK_POLICY,
        "flush_block_policy_factory",
        "SomebodysOwn",
    ),
    (reasons::FORMAT_VERSION, "format_version", "1"),
    (reasons::FORMAT_VERSION, "format_version", "9"),
    (
        reasons::COMPACTION_STYLE,
        "compaction_style",
        "kCompactionStyleFIFO",
    ),
    (reasons::NEWER_ROCKSDB, "rocksdb_version", "12.0.0"),
    (reasons::OPTIONS_FILE, "block_size", "many"),
    (
        reasons::TABLE_PROPERTY_COLLECTORS,
        COLLECTORS,
        "{SomebodysOwn}",
    ),
];

/// RocksDB omits the line if there are none.
const COLLECTORS: &str = "table_properties_collectors";

type Change = fn(&mut Job);

/// Other changes that make a job declined: the reason, a name, the change.
const CHANGES: [(&str, &str, Change); 8] = [
    (reasons::TABLE_FACTORY, "plain-table", |job| {
        job.options = job
            .options
            .replace("TableOptions/BlockBasedTable", "TableOptions/PlainTable");
    }),
    (reasons::OPTIONS_FILE, "empty", |job| job.options.clear()),
    (reasons::OPTIONS_FILE, "cut-off", |job| {
        job.options.truncate(job.options.len() / 2)
    }),
    (reasons::INPUT_MESSAGE, "empty", |job| job.input.clear()),
    // The first byte is the version.
    (reasons::INPUT_MESSAGE, "version", |job| job.input[0] = 99),
    (reasons::INPUT_MESSAGE, "output-level", |job| {
        job.info.output_level = -1
    }),
    (reasons::COMPACTION_REASON, "fifo", |job| {
        job.info.reason = 6
    }),
    (reasons::MANIFEST, "no-epoch-number", |job| {
        job.info.output_level = 0;
        job.tree
            .inputs
            .iter_mut()
            .for_each(|file| file.epoch_number = 0);
    }),
];

/// Makes the jobs.
///
/// # Errors
///
/// The name of the first job that cannot be made, and the cause.
pub fn make(recorder: &Recorder) -> Result<(), String> {
    let directory = scratch()?;
    let plain = Plain::new(recorder, directory.path())?;
    for (code, key, value) in OPTIONS {
        let job = plain.with_option(key, value)?;
        let short = value.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        plain.keep(&format!("declined-{code}-{key}-{short}"), &job, code)?;
    }
    for (code, name, change) in CHANGES {
        let mut job = plain.job.clone();
        change(&mut job);
        plain.keep(&format!("declined-{code}-{name}"), &job, code)?;
    }
    plain.without_an_input()?;
    plain.with_a_newer_footer()?;
    entries(recorder)?;
    older_inputs(recorder)?;
    ingested(recorder)?;
    range_tombstones(recorder)?;
    large_blocks(recorder)
}

/// A job without a decline reason, and its inputs.
struct Plain<'a> {
    root: &'a Path,
    inputs: &'a Path,
    job: Job,
}

impl<'a> Plain<'a> {
    /// Makes the job in `inputs`.
    fn new(recorder: &'a Recorder, inputs: &'a Path) -> Result<Self, String> {
        const NAME: &str = "plain";
        let own = Recorder::new(inputs);
        let directory = scratch()?;
        let db = opened(&own, directory.path(), |options| {
            table(options, |t| t.set_bloom_filter(10.0, false));
        });
        rounds(&db);
        own.during(Take::one(NAME), || {
            compact_everything(&db);
            Ok(())
        })?;
        let kept = inputs.join(NAME);
        let job = record::load(&LocalStorage, &kept.join(JOB_FILE)).map_err(|e| e.to_string())?;
        for input in &job.tree.inputs {
            let (from, to) = (kept.join(&input.name), inputs.join(&input.name));
            fs::rename(from, to).map_err(|e| e.to_string())?;
        }
        let root = recorder.root();
        Ok(Self { root, inputs, job })
    }

    /// Returns the job with another value of an option, in any section.
    fn with_option(&self, key: &str, value: &str) -> Result<Job, String> {
        let mut found = 0;
        let mut text = String::new();
        for line in self.job.options.lines() {
            match line.trim().split_once('=') {
                Some((name, _)) if name == key => {
                    found += 1;
                    text += &format!("  {key}={value}\n");
                }
                Some(("comparator", _)) if key == COLLECTORS => {
                    found += 1;
                    text += &format!("{line}\n  {key}={value}\n");
                }
                _ => text += &format!("{line}\n"),
            }
        }
        match found {
            0 => Err(format!("the OPTIONS file has no {key}")),
            _ => Ok(Job {
                options: text,
                ..self.job.clone()
            }),
        }
    }

    fn keep(&self, name: &str, job: &Job, code: &str) -> Result<std::path::PathBuf, String> {
        let mut job = job.clone();
        job.identity = super::identity(name);
        super::keep(self.root, name, &job, self.inputs, Some(code))
    }

    fn without_an_input(&self) -> Result<(), String> {
        let dir = self.keep("declined-input-missing", &self.job, reasons::INPUT_MISSING)?;
        let input = dir.join(&self.job.tree.inputs[0].name);
        fs::remove_file(input).map_err(|e| e.to_string())
    }

    /// Makes an input with a future format version.
    fn with_a_newer_footer(&self) -> Result<(), String> {
        /// Offset from the end of the file.
        const VERSION_AT: usize = 12;
        const NEWER: u8 = 99;
        let name = "declined-unsupported-format";
        let dir = self.keep(name, &self.job, reasons::UNSUPPORTED_FORMAT)?;
        let input = dir.join(&self.job.tree.inputs[0].name);
        let mut bytes = fs::read(&input).map_err(|e| e.to_string())?;
        let at = bytes.len() - VERSION_AT;
        bytes[at] = NEWER;
        damage::replace(&input, &bytes).map_err(|e| e.to_string())
    }
}

/// Records the full compaction of a database.
fn full(
    recorder: &Recorder,
    code: &'static str,
    what: &str,
    path: &Path,
    configure: impl Fn(&mut Options),
    write: impl Fn(&DB),
) -> Result<(), String> {
    let db = opened(recorder, path, configure);
    write(&db);
    let take = Take::declined(&format!("declined-{code}-{what}"), code);
    recorder.during(take, || {
        compact_everything(&db);
        Ok(())
    })
}

/// Records jobs that are declined because of their entries.
fn entries(recorder: &Recorder) -> Result<(), String> {
    let merging = |options: &mut Options| {
        options.set_merge_operator_associative("first", |_, value, _| value.map(<[u8]>::to_vec));
    };
    full(
        recorder,
        reasons::MERGE_OPERANDS,
        "entries",
        scratch()?.path(),
        merging,
        |db| {
            rounds(db);
            db.merge(b"key000007", b"operand").expect("merge");
            flush(db);
        },
    )?;
    full(
        recorder,
        reasons::SINGLE_DELETE_CONTRACT,
        "entries",
        scratch()?.path(),
        |options| options.set_enforce_single_del_contracts(true),
        single_delete_over_a_delete,
    )
}

/// Records jobs whose files were written with earlier options.
fn older_inputs(recorder: &Recorder) -> Result<(), String> {
    for code in [reasons::TIERING, reasons::COMPRESSION] {
        let directory = scratch()?;
        let path = directory.path();
        let mut options = quiet_options();
        match code {
            reasons::TIERING => options.set_preserve_internal_time_seconds(1 << 30),
            _ => options.set_compression_type(DBCompressionType::Bz2),
        }
        rounds(&open(&options, path));
        full(
            recorder,
            code,
            "older-inputs",
            path,
            |_| {},
            |db| put_some(db, 20, 2),
        )?;
    }
    Ok(())
}

/// Records a job whose keys have a sequence number that is only in the MANIFEST, and derives another one in the form of
/// older versions: without the sequence number.
fn ingested(recorder: &Recorder) -> Result<(), String> {
    const NAME: &str = "ingested";
    let outside = scratch()?;
    let file = outside.path().join("ingested.sst");
    let directory = scratch()?;
    let db = opened(recorder, directory.path(), |_| {});
    rounds(&db);
    let options = Options::default();
    let mut writer = SstFileWriter::create(&options);
    writer.open(&file).expect("open");
    writer.put(b"key000007", b"ingested").expect("put");
    writer.finish().expect("finish");
    db.ingest_external_file(vec![&file]).expect("ingest");
    recorder.during(Take::one(NAME), || {
        compact_everything(&db);
        Ok(())
    })?;
    let kept = recorder.root().join(NAME);
    let job = record::load(&LocalStorage, &kept.join(JOB_FILE));
    let mut job = job.map_err(|e| e.to_string())?;
    let inputs = job.tree.inputs.iter_mut();
    inputs.for_each(|input| input.largest_seqno = None);
    let code = reasons::GLOBAL_SEQUENCE_NUMBER;
    let name = format!("declined-{code}-{NAME}");
    job.identity = super::identity(&name);
    super::keep(recorder.root(), &name, &job, &kept, Some(code)).map(drop)
}

/// Records a job with range tombstones, and derives another one, in which one is cut off within a key.
fn range_tombstones(recorder: &Recorder) -> Result<(), String> {
    const NAME: &str = "range-tombstones";
    let directory = scratch()?;
    let db = opened(recorder, directory.path(), |_| {});
    rounds(&db);
    let family = db.cf_handle("default").expect("open");
    db.delete_range_cf(family, b"key000010", b"key000020")
        .expect("delete a range");
    flush(&db);
    recorder.during(Take::one(NAME), || {
        compact_everything(&db);
        Ok(())
    })?;
    let kept = recorder.root().join(NAME);
    let job = record::load(&LocalStorage, &kept.join(JOB_FILE));
    let mut job = job.map_err(|e| e.to_string())?;
    for input in &mut job.tree.inputs {
        if input.largest.ends_with(&END_TAG.to_le_bytes()) {
            input.largest = key::join(b"key000015", key::pack_tag(1, ValueType::Value as u8));
        }
    }
    let code = reasons::RANGE_TOMBSTONES;
    let name = format!("declined-{code}-cut-off");
    job.identity = super::identity(&name);
    super::keep(recorder.root(), &name, &job, &kept, Some(code)).map(drop)
}

/// Makes blocks that are compressible but too large for the smallest memory budget.
fn large_blocks(recorder: &Recorder) -> Result<(), String> {
    const VALUE_BYTES: usize = 9 << 20;
    let zstd = |options: &mut Options| options.set_compression_type(DBCompressionType::Zstd);
    full(
        recorder,
        reasons::MEMORY_BUDGET,
        "large-blocks",
        scratch()?.path(),
        zstd,
        |db| {
            for number in 0..4_u8 {
                db.put(b"overwritten", vec![number; VALUE_BYTES])
                    .expect("put");
                db.put([number], b"value").expect("put");
                flush(db);
            }
        },
    )
}
