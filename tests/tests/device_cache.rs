//! Databases hold the same whether a device finds the files of compactions in its cache, has to read them, or finds other bytes
//! there than it has stored.

use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};
use rockmill::{Device, Service, Stats};
use rockmill_cuda::Target;
use rockmill_tests::content::{Content, assert_content};
use rockmill_tests::harness::{compact_everything, open, options, put};
use rockmill_tests::seed;
use rockmill_tests::tree::TreeShape;
use rust_rocksdb::DB;

const CASES: u64 = 6;
const ROUNDS: usize = 12;
const WRITES: usize = 1500;
/// Less than the data, or all of it.
const LIMITS: [u64; 3] = [0, 100 << 10, 64 << 20];

fn caching_service() -> Service {
    let built = Service::builder()
        .min_job_bytes(0)
        .device(Device::Kernels(Target::Host))
        .device_cache_bytes(LIMITS[2])
        .change(|settings| settings.cuda.cache_chunk_bytes = 16 << 10)
        .build();
    let service = built.expect("valid settings");
    service.wait_for_device().expect("kernels on the host");
    service
}

fn database(service: &Service, path: &std::path::Path) -> DB {
    let mut options = options(service);
    let shape = TreeShape {
        target_file_size: 64 << 10,
        write_buffer_size: 256 << 10,
        ..TreeShape::default()
    };
    shape.apply(&mut options);
    open(&options, path)
}

/// Puts and deletes keys, and flushes.
fn write(db: &DB, content: &mut Content, rng: &mut StdRng) {
    const KEYS: u32 = 4000;
    const DELETE_EVERY: u32 = 8;
    for _ in 0..WRITES {
        let key = format!("key{:08}", rng.random_range(0..KEYS)).into_bytes();
        if rng.random_ratio(1, DELETE_EVERY) {
            db.delete(&key).expect("RocksDB deletes");
            content.remove(&key);
        } else {
            let mut value = vec![0; rng.random_range(0..200)];
            rng.fill_bytes(&mut value);
            put(db, content, &key, &value);
        }
    }
    db.flush().expect("RocksDB flushes");
}

fn of_files(stats: &Stats, of: fn(&rockmill::CacheStats) -> u64) -> u64 {
    let caches = stats.caches.iter();
    caches.filter(|cache| cache.kind == "files").map(of).sum()
}

#[test]
fn databases_hold_the_same_whatever_is_cached() {
    let (mut hits, mut mismatches, mut evicted) = (0, 0, 0);
    for seed in seed::first_seed()..seed::first_seed() + seed::cases(CASES) {
        println!("seed {seed}");
        let mut rng = StdRng::seed_from_u64(seed);
        let directory = tempfile::tempdir().expect("a temporary directory");
        let service = caching_service();
        // Two databases share the cache of one device, and their files have equal numbers.
        let databases = ["a", "b"].map(|name| database(&service, &directory.path().join(name)));
        let mut contents = [Content::new(), Content::new()];
        for _ in 0..ROUNDS {
            for (db, content) in databases.iter().zip(&mut contents) {
                write(db, content, &mut rng);
                let executor = service.executor();
                for cache in executor.registry().file_caches() {
                    match rng.random_range(0..6) {
                        0 => drop(cache.give_back(u64::MAX)),
                        1 => drop(cache.flip(rng.random_range(0..100_000)).expect("it works")),
                        2 => drop(cache.give_back(rng.random_range(0..200_000))),
                        _ => {}
                    }
                }
                if rng.random_ratio(1, 4) {
                    let limit = LIMITS[rng.random_range(0..LIMITS.len())];
                    let changed = service.change_settings(|settings| {
                        settings.device_cache_bytes = Some(limit);
                    });
                    changed.expect("valid settings");
                }
                compact_everything(db);
                assert_content(db, content);
            }
        }
        let stats = service.stats();
        assert!(stats.jobs_done > 0 && stats.jobs_failed == 0, "{stats:?}");
        assert!(of_files(&stats, |cache| cache.bytes) <= LIMITS[2]);
        hits += of_files(&stats, |cache| cache.hit_bytes);
        mismatches += of_files(&stats, |cache| cache.mismatches);
        evicted += of_files(&stats, |cache| cache.evicted_bytes);
    }
    assert!(
        hits > 0 && evicted > 0 && mismatches > 0,
        "{hits} {evicted} {mismatches}"
    );
}

#[test]
fn files_leave_the_cache_when_they_leave_the_database() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let service = caching_service();
    let db = database(&service, &directory.path().join("db"));
    let mut content = Content::new();
    let mut rng = StdRng::seed_from_u64(7);
    let mut read = 0;
    for round in 0..4 {
        write(&db, &mut content, &mut rng);
        compact_everything(&db);
        let stats = service.stats();
        let live = db.live_files().expect("it lists them");
        let live: u64 = live.iter().map(|file| file.size as u64).sum();
        let cached = of_files(&stats, |cache| cache.bytes);
        assert!(cached > 0, "{round}");
        // Each file has a chunk that is used in part.
        assert!(
            cached <= 2 * live + (256 << 10),
            "{round}: {cached} of {live}"
        );
        read = stats.read_bytes;
    }
    assert_content(&db, &content);
    let stats = service.stats();
    let (hits, misses) = (
        of_files(&stats, |cache| cache.hit_bytes),
        of_files(&stats, |cache| cache.miss_bytes),
    );
    assert!(hits > 0 && misses > 0, "{hits} {misses}");
    assert_eq!(hits + misses, read, "all input was found or read");
    service
        .change_settings(|settings| settings.device_cache_bytes = Some(0))
        .expect("valid settings");
    // Another thread frees it, since the device waits for kernels meanwhile.
    while of_files(&service.stats(), |cache| cache.bytes) > 0 {
        std::thread::yield_now();
    }
}
