//! Runs a case on RocksDB alone and on RocksDB with Rockmill, and compares.
//!
//! Allowed comparisons, and why they are sound:
//!
//! * Both databases get the same writes from one thread, so their sequence numbers are equal. While Rockmill is
//!   switched off, every flush is explicit, and RocksDB does flushes and manual compactions on both sides. So the trees
//!   are equal, which is asserted file by file.
//! * [`Step::Measure`] runs *one* `CompactFiles` job on equal trees, with Rockmill on one side. Input files and
//!   snapshots are the same, so the entries of every level must be the same; only file boundaries may differ. This is
//!   the strictest comparison.
//! * After that, the trees differ in their file boundaries, which decide the files that a later partial compaction
//!   picks. So from then on only reads are compared, at every live snapshot, until the end.
//! * At the end each family is compacted fully several times: once more than there are stripes (snapshots + 1), because
//!   each pass may drop only the oldest tombstone of a key. The result depends only on the writes and the live
//!   snapshots, not on the trees. It is the newest entry of each stripe, with sequence number 0 if no snapshot is
//!   older, and no tombstone without an older entry. So the entries must be the same again, except Deletes and
//!   operands in ranges of range tombstones: see [`internal::settle_by_range_tombstones`].
//!
//! Single-deleted keys are compared only by reads, see [`internal::entries`].
//!
//! Rockmill compacts on the device that the caller names. Kernels of a GPU, on the host or not, must do each measured
//! job that they can do.

mod ingest;
mod measure;
mod pick;
mod view;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime};

use rockmill::DeviceList;
use rockmill_core::MergeOperator;
use rockmill_format::key::KeyOrder;
use rust_rocksdb::{
    AsColumnFamilyRef, BottommostLevelCompaction, ColumnFamily, ColumnFamilyDescriptor,
    CompactOptions, DB, ErrorKind, Options, Snapshot, WaitForCompactOptions,
};

use crate::batches;
use crate::content;
use crate::internal;
use crate::switch::{Switch, Switched};
use crate::table::{Index, TableShape};
use crate::tree::TreeShape;
use crate::workload::{Case, Change, Compaction, Family, Step, TTL_SECONDS};
pub use measure::{FEATURES, Measures};
use pick::Pick;
use view::View;

/// Maximum number of parallel subcompactions, in each database.
const THREADS: usize = 2;
/// A GPU's kernels count some 35 MB for each input.
const MEMORY_BUDGET_BYTES: u64 = 4 << 30;
const BACKGROUND_JOBS: i32 = 4;
/// A write buffer that no case fills. An automatic flush takes all memtables that wait at that moment, so the trees
/// would depend on timing.
const NEVER_FULL_BYTES: usize = 256 << 20;

/// Maximum waits for background work: where it may continue afterwards, and where it has to end.
const MAY_GO_ON: Duration = Duration::from_mins(1);
const HAS_TO_END: Duration = Duration::from_mins(10);

/// Results of a case without differences.
#[derive(Debug)]
pub struct Outcome {
    /// Rockmill's counters.
    pub stats: rockmill::Stats,
    /// Results of the measured steps.
    pub measures: Measures,
}

/// The two databases of a case.
struct Pair<'a> {
    case: &'a Case,
    service: &'a rockmill::Service,
    /// Folder of both databases.
    directory: &'a Path,
    reopened: bool,
    device: DeviceList,
    measures: &'a RefCell<Measures>,
    rocksdb: DB,
    rockmill: DB,
    switch: Switch,
}

/// Runs `case` in two new databases under `directory`, with Rockmill on `device`, and returns its results.
///
/// # Errors
///
/// The first difference, with the step and the seed.
pub fn run(case: &Case, directory: &Path, device: DeviceList) -> Result<Outcome, String> {
    let service = service(case, device).map_err(|e| format!("seed {}: {e}", case.seed))?;
    let switch = Switch::default();
    let mut reopened = false;
    let mut done = 0;
    let measures = RefCell::default();
    for steps in case.steps.split(|step| matches!(step, Step::Reopen)) {
        let switched = Switched::new(service.clone(), switch.clone());
        let run = || -> Result<(), String> {
            let pair = Pair {
                case,
                service: &service,
                directory,
                reopened,
                device,
                measures: &measures,
                rocksdb: open(case, &directory.join("rocksdb"), reopened, None)?,
                rockmill: open(case, &directory.join("rockmill"), reopened, Some(switched))?,
                switch: switch.clone(),
            };
            let mut snapshots = Vec::new();
            for (index, &step) in steps.iter().enumerate() {
                pair.step(step, &mut snapshots)
                    .map_err(|e| format!("step {} {step:?}: {e}", done + index))?;
            }
            if reopened {
                pair.finish(&mut snapshots)?;
            }
            check_jobs(case, &service.stats())
        };
        run().map_err(|e| format!("seed {}: {e}\n{}", case.seed, case.in_brief()))?;
        done += steps.len() + 1;
        reopened = true;
    }
    Ok(Outcome {
        stats: service.stats(),
        measures: measures.into_inner(),
    })
}

/// Creates the service of a case on `device`, which is open afterwards.
fn service(case: &Case, device: DeviceList) -> Result<rockmill::Service, String> {
    let mut builder = rockmill::Service::builder()
        .min_job_bytes(0)
        .threads(THREADS)
        .memory_budget_bytes(MEMORY_BUDGET_BYTES)
        .device(device);
    if let Some(bits) = case.filter_bits_per_key {
        builder = builder.filter_bits_per_key(bits);
    }
    for family in &case.families {
        if let Some(operator) = family.merge_operator {
            builder = builder.merge_operator(&format!("{}={operator}", family.name));
        }
    }
    let built = builder.build();
    let service = built.map_err(|e| format!("cannot build the service: {e}"))?;
    service.wait_for_device().map_err(|e| e.to_string())?;
    Ok(service)
}

/// Checks that no job failed or was declined for a reason that the case does not allow.
fn check_jobs(case: &Case, stats: &rockmill::Stats) -> Result<(), String> {
    let expected = case.may_be_declined_for();
    let mut declines = stats.jobs_declined_by_reason.keys();
    match declines.find(|reason| !expected.contains(&reason.as_str())) {
        Some(reason) => Err(format!("jobs were declined for {reason}: {stats}")),
        None if stats.jobs_failed > 0 => Err(format!("jobs failed: {stats}")),
        None if stats.verification_failures > 0 => Err(format!("wrong files: {stats}")),
        None => Ok(()),
    }
}

impl Case {
    /// Describes the case and the shapes of the families, without their keys.
    fn in_brief(&self) -> String {
        let family = |f: &Family| {
            let (name, tree, style) = (&f.name, &f.tree, f.changes_style);
            let (order, before, after) = (f.order, &f.before, &f.after);
            format!("{name}: {order:?} {tree:?} changes style: {style} {before:?} {after:?}")
        };
        let families: Vec<String> = self.families.iter().map(family).collect();
        let automatic = self.auto_compactions;
        let extras = self.extras;
        format!("automatic: {automatic} {extras:?}\n{}", families.join("\n"))
    }
}

impl Family {
    /// Shape of its files before or after [`Step::Reopen`].
    fn table(&self, reopened: bool) -> &TableShape {
        if reopened { &self.after } else { &self.before }
    }

    /// Sets RocksDB's comparator of its order.
    fn set_comparator(&self, options: &mut Options) {
        if self.order != KeyOrder::Bytewise {
            let name = String::from_utf8_lossy(self.order.comparator());
            *options = options
                .get_options_from_string(format!("comparator={name}"))
                .expect("RocksDB has the comparator");
        }
    }

    /// Shape of its tree before or after [`Step::Reopen`].
    fn tree(&self, reopened: bool) -> TreeShape {
        TreeShape {
            universal: self.tree.universal != (reopened && self.changes_style),
            ..self.tree.clone()
        }
    }
}

fn open(case: &Case, path: &Path, reopened: bool, service: Option<Switched>) -> Result<DB, String> {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options.set_max_subcompactions(case.subcompactions);
    options.set_max_background_jobs(BACKGROUND_JOBS);
    if let Some(service) = service {
        options.set_compaction_service(service);
    }
    let families = case.families.iter().map(|family| {
        let mut options = Options::default();
        family.tree(reopened).apply(&mut options);
        if case.extras.ages {
            options.set_ttl(TTL_SECONDS);
        }
        options.set_disable_auto_compactions(!case.auto_compactions);
        if !case.auto_compactions {
            options.set_write_buffer_size(NEVER_FULL_BYTES);
        }
        family.set_comparator(&mut options);
        if let Some(operator) = family.merge_operator {
            let operator: MergeOperator = operator.parse().expect("an operator");
            options = options
                .get_options_from_string(format!("merge_operator={}", operator.option_value()))
                .expect("RocksDB has the operator");
        }
        ColumnFamilyDescriptor::new(family.name.clone(), family.table(reopened).apply(options))
    });
    DB::open_cf_descriptors(&options, path, families).map_err(|e| format!("open: {e}"))
}

/// A snapshot of each database, taken at the same sequence number.
type SnapshotPair<'db> = (Snapshot<'db>, Snapshot<'db>);

/// Returns the sequence numbers of the snapshots, ascending, without repetitions.
fn sequences(snapshots: &[SnapshotPair<'_>]) -> Result<Vec<u64>, String> {
    let sequences = snapshots
        .iter()
        .map(|(snapshot, _)| snapshot.sequence_number());
    let sequences: Option<BTreeSet<u64>> = sequences.collect();
    let sequences = sequences.ok_or("a snapshot without a sequence number")?;
    Ok(sequences.into_iter().collect())
}

fn handle<'db>(db: &'db DB, family: &Family) -> &'db ColumnFamily {
    db.cf_handle(&family.name)
        .expect("opened with all families")
}

impl Pair<'_> {
    fn sides(&self) -> [&DB; 2] {
        [&self.rocksdb, &self.rockmill]
    }

    /// Runs `act` on both databases.
    fn both(
        &self,
        mut act: impl FnMut(&DB) -> Result<(), rust_rocksdb::Error>,
    ) -> Result<(), String> {
        for db in self.sides() {
            act(db).map_err(|e| format!("{}: {e}", db.path().display()))?;
        }
        Ok(())
    }

    fn step<'db>(
        &'db self,
        step: Step,
        snapshots: &mut Vec<SnapshotPair<'db>>,
    ) -> Result<(), String> {
        let family = |index: usize| &self.case.families[index];
        match step {
            Step::Put(f, key, value) => {
                let (family, value) = (family(f), value.bytes());
                self.both(|db| db.put_cf(handle(db, family), &family.keys[key], &value))
            }
            Step::PutEntity(f, key, value) => {
                let (family, value) = (family(f), value.bytes());
                self.both(|db| {
                    let cf = handle(db, family);
                    db.write(&batches::entity_of(cf.id(), &family.keys[key], &value))
                })
            }
            Step::Merge(f, key, value) => {
                let family = family(f);
                let operand = family.operand(value.bytes());
                self.both(|db| db.merge_cf(handle(db, family), &family.keys[key], &operand))
            }
            Step::Delete(f, key) => {
                let family = family(f);
                self.both(|db| db.delete_cf(handle(db, family), &family.keys[key]))
            }
            Step::SingleDelete(f, key) => {
                let family = family(f);
                self.both(|db| db.single_delete_cf(handle(db, family), &family.keys[key]))
            }
            Step::DeleteRange(f, start, end) => {
                let family = family(f);
                let (start, end) = (&family.keys[start], &family.keys[end]);
                self.both(|db| db.delete_range_cf(handle(db, family), start, end))
            }
            Step::Ingest {
                family: f,
                roll,
                holds_snapshot,
            } => {
                let _held = holds_snapshot.then(|| self.sides().map(DB::snapshot));
                self.ingest(family(f), roll)
            }
            Step::SetOptions(f, change) => self.set_options(family(f), change),
            Step::Age => {
                // Ages are differences of whole seconds, so the wait ends when a second begins.
                let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
                let older = Duration::from_secs(now.as_secs() + TTL_SECONDS + 1);
                thread::sleep(older.saturating_sub(now));
                Ok(())
            }
            Step::Snapshot => {
                snapshots.push((self.rocksdb.snapshot(), self.rockmill.snapshot()));
                let (theirs, ours) = &snapshots[snapshots.len() - 1];
                if theirs.sequence_number() == ours.sequence_number() {
                    Ok(())
                } else {
                    Err("the sequence numbers have parted".to_owned())
                }
            }
            Step::Release(position) => {
                snapshots.remove(position);
                Ok(())
            }
            Step::Flush(f) => self.both(|db| db.flush_cf(handle(db, family(f)))),
            Step::Compact(f, how) => self.compact(family(f), how),
            Step::Measure(f, roll) => {
                self.measure(family(f), roll, &sequences(snapshots)?)?;
                self.compare_reads(snapshots)
            }
            Step::Offload => {
                self.switch.set(true);
                Ok(())
            }
            Step::Reopen => unreachable!("steps are split at reopens"),
        }
    }

    fn set_options(&self, family: &Family, change: Change) -> Result<(), String> {
        let mut options = change.options();
        let table = family.table(self.reopened);
        if table.block_align {
            // RocksDB accepts the combination, and then fails to write files.
            options.retain(|(name, _)| !name.ends_with("compression"));
        }
        if table.index == Index::Hash {
            // Without a prefix extractor RocksDB's flush crashes (`HashIndexBuilder::OnKeyAdded`).
            options.retain(|(name, _)| *name != "prefix_extractor");
        }
        let options: Vec<_> = options.iter().map(|(name, v)| (*name, &**v)).collect();
        if options.is_empty() {
            return Ok(());
        }
        self.both(|db| db.set_options_cf(handle(db, family), &options))
    }

    fn compact(&self, family: &Family, how: Compaction) -> Result<(), String> {
        for db in self.sides() {
            let cf = handle(db, family);
            match how {
                Compaction::Full => {
                    db.compact_range_cf_opt(cf, None::<&[u8]>, None::<&[u8]>, &whole_tree());
                }
                Compaction::Range(start, end) => {
                    db.compact_range_cf(cf, Some(&family.keys[start]), Some(&family.keys[end]));
                }
                // With Rockmill on, the trees differ, and so do the picks; the test is still valid.
                Compaction::Files(roll) => {
                    if let Some(pick) = Pick::roll(db, family, roll)? {
                        pick.compact(db, family)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Without snapshots the rule for SingleDelete has only one result, as long as its contract holds.
    fn compares_single_deletes(&self, no_snapshots: bool) -> bool {
        no_snapshots && !self.case.extras.breaks_single_delete
    }

    /// Compacts everything until the result no longer changes and compares. Then repeats this once without snapshots.
    fn finish(&self, snapshots: &mut Vec<SnapshotPair<'_>>) -> Result<(), String> {
        self.switch.set(true);
        // RocksDB compacts a file at the bottom again and again while a snapshot is held, if other files of the same
        // compaction have keys further down: then no sequence number becomes 0, which it compacts the file for.
        self.both(|db| match wait_for_compact(db, MAY_GO_ON) {
            Err(error) if error.kind() == ErrorKind::TimedOut => Ok(()),
            waited => waited,
        })?;
        self.compare_reads(snapshots)?;
        self.compact_to_the_end(&sequences(snapshots)?)?;
        self.compare_reads(snapshots)?;
        snapshots.clear();
        self.compact_to_the_end(&[])?;
        self.compare_reads(snapshots)
    }

    fn compact_to_the_end(&self, snapshots: &[u64]) -> Result<(), String> {
        let stripes = snapshots.len() + 1;
        for family in &self.case.families {
            for _ in 0..=stripes {
                self.compact(family, Compaction::Full)?;
            }
        }
        self.both(|db| wait_for_compact(db, HAS_TO_END))?;
        for family in &self.case.families {
            let all = self.compares_single_deletes(snapshots.is_empty());
            let entries = |db| -> Result<Vec<internal::Entry>, String> {
                let mut entries = internal::entries(db, &family.name, None, all)?;
                let tombstones = internal::range_tombstones(db, &family.name)?;
                internal::settle_by_range_tombstones(
                    &mut entries,
                    &tombstones,
                    family.order,
                    snapshots,
                );
                Ok(entries)
            };
            let (theirs, ours) = (entries(&self.rocksdb)?, entries(&self.rockmill)?);
            internal::compare(&theirs, &ours)
                .map_err(|e| format!("family {}, compacted to the end: {e}", family.name))?;
        }
        Ok(())
    }

    fn compare_reads(&self, snapshots: &[SnapshotPair<'_>]) -> Result<(), String> {
        let latest = (self.rocksdb.snapshot(), self.rockmill.snapshot());
        for (number, pair) in snapshots.iter().chain([&latest]).enumerate() {
            for family in &self.case.families {
                self.compare_view(family, pair).map_err(|e| {
                    format!(
                        "family {}, snapshot {number} of {}: {e}",
                        family.name,
                        snapshots.len()
                    )
                })?;
            }
        }
        Ok(())
    }

    fn compare_view(&self, family: &Family, pair: &SnapshotPair<'_>) -> Result<(), String> {
        let (theirs, ours) = (
            View::new(&self.rocksdb, &pair.0, self.case, family),
            View::new(&self.rockmill, &pair.1, self.case, family),
        );
        content::check_pairs("forward scan", &theirs.forward()?, &ours.forward()?)?;
        content::check_pairs("backward scan", &theirs.backward()?, &ours.backward()?)?;
        for key in &family.keys {
            for key in [key.clone(), [key.as_slice(), b"\0"].concat()] {
                if theirs.get(&key)? != ours.get(&key)? {
                    return Err(format!("lookups of \"{}\" differ", key.escape_ascii()));
                }
            }
        }
        Ok(())
    }
}

fn wait_for_compact(db: &DB, most: Duration) -> Result<(), rust_rocksdb::Error> {
    let mut options = WaitForCompactOptions::default();
    options.set_timeout(most.as_micros() as u64);
    db.wait_for_compact(&options)
}

fn whole_tree() -> CompactOptions {
    let mut options = CompactOptions::default();
    options.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
    options
}
