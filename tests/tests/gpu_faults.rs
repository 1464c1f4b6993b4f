//! Faults of the device never reach the database: the CPU does the work that the device could not.

use rockmill::{Device, Service};
use rockmill_cuda::Target;
use rockmill_cuda::faults::{BitAddress, Call, DeviceUsage, Faults, Moment, Region};
use rockmill_tests::content::{Content, assert_content};
use rockmill_tests::harness::{
    assert_done, assert_jobs_add_up, assert_nothing_staged, compact_everything, fill,
    local_options, open, options,
};
use rust_rocksdb::{BlockBasedOptions, DBCompressionType, Options};
use tempfile::TempDir;

const WRITES: usize = 4_000;

/// A closed database that a GPU compacts.
struct Fixture {
    directory: TempDir,
    content: Content,
}

fn shaped(mut options: Options) -> Options {
    let mut table = BlockBasedOptions::default();
    table.set_bloom_filter(10.0, false);
    options.set_block_based_table_factory(&table);
    options.set_compression_type(DBCompressionType::None);
    options.set_target_file_size_base(64 << 10);
    options
}

fn service() -> Service {
    let service = Service::builder()
        .min_job_bytes(0)
        .threads(2)
        .memory_budget_bytes(1 << 30)
        .filter_bits_per_key(10.0)
        .device(Device::Kernels(Target::Faulty))
        .build()
        .expect("sound settings");
    // Before that, the CPU does all jobs.
    service.wait_for_device().expect("the device opens");
    service
}

impl Fixture {
    fn new(seed: u64) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let db = open(&shaped(local_options()), &directory.path().join("db"));
        let content = fill(&db, WRITES, seed);
        Self { directory, content }
    }

    /// Compacts everything with a planned fault, checks the database, and returns the statistics.
    fn compact(&self, service: &Service) -> rockmill::Stats {
        let path = self.directory.path().join("db");
        let db = open(&shaped(options(service)), &path);
        compact_everything(&db);
        assert_content(&db, &self.content);
        drop(db);
        assert_nothing_staged(&path);
        let stats = service.stats();
        assert_jobs_add_up(&stats);
        assert_done(&stats);
        stats
    }
}

#[test]
fn a_device_that_is_sound_does_all_of_it() {
    let _faults = Faults::none();
    let stats = Fixture::new(1).compact(&service());
    assert_eq!(stats.last_error, None);
    assert!(stats.stages.iter().any(|stage| stage.stage == "merge"));
}

#[test]
fn whatever_fails_the_database_is_right_and_the_error_is_told() {
    let faults = Faults::none();
    for call in [Call::Allocate, Call::Stage, Call::Copy, Call::Wait] {
        for nth in [0, 19] {
            let fixture = Fixture::new(nth + 2);
            // An open device has allocated memory already.
            if call == Call::Allocate {
                faults.break_down(call, 0);
            }
            let service = service();
            if call != Call::Allocate {
                faults.break_down(call, nth);
            }
            let stats = fixture.compact(&service);
            assert!(faults.struck() > 0, "{call:?} {nth}");
            let error = stats.last_error.unwrap_or_default();
            assert!(error.contains("planned to fail"), "{call:?} {nth}: {error}");
            faults.end();
            drop(service);
            assert_eq!(faults.usage(), DeviceUsage::default());
        }
    }
}

#[test]
fn altered_files_are_made_again() {
    let faults = Faults::none();
    for moment in [Moment::Finished, Moment::CopiedBack] {
        for region in [Region::Entries, Region::Trailer, Region::Filter] {
            let (fixture, service) = (Fixture::new(9), service());
            faults.flip(
                moment,
                BitAddress {
                    region,
                    byte: 3,
                    bit: 4,
                },
            );
            let stats = fixture.compact(&service);
            assert_eq!(faults.struck(), 1, "{moment:?} {region:?}");
            let error = stats.last_error.unwrap_or_default();
            assert!(!error.is_empty(), "{moment:?} {region:?}");
        }
    }
}

#[test]
fn a_job_larger_than_the_devices_memory_is_the_cpus() {
    let faults = Faults::none();
    let fixture = Fixture::new(11);
    faults.limit_memory(64 << 10);
    let service = service();
    let error = fixture.compact(&service).last_error.unwrap_or_default();
    assert!(error.contains("device memory"), "{error}");
}
