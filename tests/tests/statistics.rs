//! The counts of a job that Rockmill did equal those of the same job by RocksDB. Excluded are tombstones and bytes of
//! the input, which RocksDB does not count completely.

use std::path::Path;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rockmill_tests::harness::{assert_done, local_options, open, options, service};
use rockmill_tests::seed::{cases, first_seed};
use rust_rocksdb::{CompactionOptions, DB, Options, Snapshot};

const CASES: u64 = 50;
const KEYS: u32 = 24;
const WRITES: u32 = 60;
const LAST_LEVEL: i32 = 6;

/// Fields of a job in `CompactionJobInfo::stats` that an application reads.
#[derive(Debug, PartialEq)]
struct Counts {
    records_in: u64,
    records_out: u64,
    replaced: u64,
    expired_deletions: u64,
}

/// Two databases whose writes have equal sequence numbers.
struct Sides {
    rocksdb: DB,
    rockmill: DB,
}

type SnapshotPair<'db> = [Snapshot<'db>; 2];

impl Sides {
    fn each(&self, act: impl Fn(&DB) -> Result<(), rust_rocksdb::Error>) {
        for db in [&self.rocksdb, &self.rockmill] {
            act(db).expect("RocksDB does it");
        }
    }

    /// Makes some writes, snapshots and flushes.
    fn write<'db>(
        &'db self,
        rng: &mut StdRng,
        with_snapshots: bool,
        snapshots: &mut Vec<SnapshotPair<'db>>,
    ) {
        for _ in 0..WRITES {
            let key = format!("key{:03}", rng.random_range(0..KEYS));
            match rng.random_range(0..16) {
                0..7 => self.each(|db| db.put(&key, b"value")),
                7..13 => self.each(|db| db.delete(&key)),
                13 if with_snapshots => {
                    snapshots.push([self.rocksdb.snapshot(), self.rockmill.snapshot()]);
                }
                14 if !snapshots.is_empty() => {
                    snapshots.swap_remove(rng.random_range(0..snapshots.len()));
                }
                _ => self.each(DB::flush),
            }
        }
        self.each(DB::flush);
    }

    /// Runs one job on each side with all files down to a level.
    fn compact(&self, level: i32) -> [Counts; 2] {
        [&self.rocksdb, &self.rockmill].map(|db| {
            let files = db.live_files().expect("files");
            let files = files.iter().filter(|file| file.level <= level);
            let result = db.compact_files(
                &CompactionOptions::default(),
                files.map(|file| file.name.as_str()),
                level,
            );
            let job = result.expect("compacts").job_info.expect("no trivial move");
            let stats = job.info().stats();
            Counts {
                records_in: stats.num_input_records(),
                records_out: stats.num_output_records(),
                replaced: stats.num_records_replaced(),
                expired_deletions: stats.num_expired_deletion_records(),
            }
        })
    }
}

fn opened(dir: &Path, options: &Options) -> DB {
    let mut options = options.clone();
    options.set_num_levels(LAST_LEVEL + 1);
    open(&options, dir)
}

#[test]
fn jobs_are_counted_as_rocksdb_counts_its_own() {
    let first = first_seed();
    let service = service();
    let mut expired = 0;
    for seed in first..first + cases(CASES) {
        let mut rng = StdRng::seed_from_u64(seed);
        let directory = tempfile::tempdir().expect("a temporary directory");
        let sides = Sides {
            rocksdb: opened(&directory.path().join("rocksdb"), &local_options()),
            rockmill: opened(&directory.path().join("rockmill"), &options(&service)),
        };
        let with_snapshots = rng.random_bool(0.7);
        let mut snapshots = Vec::new();
        for level in [LAST_LEVEL, 3, LAST_LEVEL] {
            sides.write(&mut rng, with_snapshots, &mut snapshots);
            let [theirs, ours] = sides.compact(level);
            assert_eq!(theirs, ours, "seed {seed}, into level {level}");
            expired += theirs.expired_deletions;
        }
    }
    assert!(expired > 0, "no case drops a Delete");
    assert_done(&service.stats());
}
