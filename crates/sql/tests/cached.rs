//! Statements that find columns in the cache return the rows of statements that read the files, whatever was written,
//! flushed, compacted, evicted or changed in memory meanwhile.
//!
//! `ROCKMILL_SEED=N` draws another history, and `ROCKMILL_CASES=N` more steps.

use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::prelude::{SessionConfig, SessionContext};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rockmill_scan::{Directory, ScanEngine, ScanSettings};
use rockmill_sql::{ReadOnly, Scans};
use rockmill_testkit::machine::{cases, seed};
use rust_rocksdb::{DB, Options};
use tokio::runtime::Runtime;

const KEYS: u32 = 4000;

const TABLE: &str = "create external table items (id int unsigned not null, price decimal(12, 2), day date, name varchar)
    stored as rocksdb location '$DB' options
    ('key' 'u32be id', 'value' 'nulls(1), i64le price, i32le day, varint name')";

/// The same rows with other columns at the same places, so that no column of the one may stand for that of the other.
const OTHER: &str =
    "create external table others (id int unsigned not null, price bigint, day int, name varchar)
    stored as rocksdb location '$DB' options
    ('key' 'u32be id', 'value' 'nulls(1), i64be price, i32be day, varint name')";

const STATEMENTS: [&str; 8] = [
    "select count(*), sum(price), min(day), max(name) from items",
    "select name, count(*), sum(price) from items where day < date '1970-03-01' group by name order by name",
    "select * from items where id between 1000 and 1100 order by id",
    "select id, price * 2 from items where price > 50.00 or name like 'b%' order by id",
    "select sum(price), min(day) from others where name is not null",
    "select * from others where day > 0 order by id limit 50",
    "select count(*), max(value) from \"default\" where key > x'00000500'",
    "select * from items where id = 77",
];

fn session(runtime: &Runtime, folder: &Path, engine: &Arc<ScanEngine>) -> SessionContext {
    let config = SessionConfig::new().with_target_partitions(2);
    let session = rockmill_sql::session(config, engine).unwrap();
    let database = Directory::open(folder).unwrap();
    let database = database.with_iterators(Arc::new(ReadOnly::default()));
    let scans = Scans::new(Arc::clone(engine), Arc::new(database));
    scans.register(&session).unwrap();
    for table in [TABLE, OTHER] {
        let table = table.replace("$DB", &folder.display().to_string());
        runtime.block_on(session.sql(&table)).unwrap();
    }
    session
}

fn answer(runtime: &Runtime, session: &SessionContext, statement: &str) -> String {
    let batches = runtime.block_on(async { session.sql(statement).await?.collect().await });
    let batches = batches.unwrap_or_else(|error| panic!("{statement}: {error}"));
    pretty_format_batches(&batches).unwrap().to_string()
}

fn value(draw: &mut StdRng) -> Vec<u8> {
    let name = ["", "apple", "banana", "cherry"][draw.random_range(0..4)];
    let nulls: u8 = if draw.random_bool(0.3) {
        draw.random_range(0..8)
    } else {
        0
    };
    let price: i64 = draw.random_range(-10_000..10_000);
    let day: i32 = draw.random_range(-100..100);
    [
        &[nulls][..],
        &price.to_le_bytes(),
        &day.to_le_bytes(),
        &[name.len() as u8],
        name.as_bytes(),
    ]
    .concat()
}

#[test]
fn statements_over_cached_columns_return_the_rows_of_the_files() {
    let (seed, steps) = (seed(), cases(60));
    let draw = &mut StdRng::seed_from_u64(seed);
    let folder = tempfile::tempdir().unwrap();
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_write_buffer_size(64 << 10);
    options.set_target_file_size_base(32 << 10);
    options.set_level_zero_file_num_compaction_trigger(100);
    let db = DB::open(&options, folder.path()).unwrap();
    for id in 0..KEYS {
        db.put(id.to_be_bytes(), value(draw)).unwrap();
    }
    db.compact_range(None::<&[u8]>, None::<&[u8]>);
    let runtime = Runtime::new().unwrap();
    let caching = ScanSettings {
        cache_bytes: 1 << 30,
        ..ScanSettings::default()
    };
    let cached = ScanEngine::new(caching).unwrap();
    let plain = ScanEngine::new(ScanSettings::default()).unwrap();
    let sessions = [&cached, &plain].map(|engine| session(&runtime, folder.path(), engine));
    for step in 0..steps {
        let what = match draw.random_range(0..12) {
            0..=3 => {
                for _ in 0..draw.random_range(1..200) {
                    let key = draw.random_range(0..KEYS).to_be_bytes();
                    match draw.random_range(0..4) {
                        0 => db.delete(key).unwrap(),
                        _ => db.put(key, value(draw)).unwrap(),
                    }
                }
                "write"
            }
            4 => {
                db.flush().unwrap();
                "flush"
            }
            5 => {
                let from = draw.random_range(0..KEYS);
                db.compact_range(Some(from.to_be_bytes()), Some((from + 500).to_be_bytes()));
                "compact"
            }
            6 => {
                cached.columns().set_limit(draw.random_range(0..200_000));
                "limit"
            }
            7 => {
                cached.columns().set_limit(1 << 30);
                "no limit"
            }
            8 => {
                cached.columns().flip(draw.random_range(0..10_000));
                "flip columns"
            }
            9 => {
                cached.columns().flip_keys(draw.random_range(0..10_000));
                "flip keys"
            }
            _ => "nothing",
        };
        for _ in 0..3 {
            let statement = STATEMENTS[draw.random_range(0..STATEMENTS.len())];
            let [found, expected] =
                [&sessions[0], &sessions[1]].map(|session| answer(&runtime, session, statement));
            assert_eq!(
                found, expected,
                "step {step} of ROCKMILL_SEED={seed}, {what}: {statement}"
            );
        }
    }
    let accounts = cached.columns().accounts();
    println!("{accounts:?}");
    assert!(accounts.hit_bytes > 0 && accounts.miss_bytes > 0);
    assert_eq!(plain.columns().accounts().miss_bytes, 0);
}

#[test]
fn explain_analyze_shows_what_came_from_the_cache() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = Options::default();
    options.create_if_missing(true);
    let db = DB::open(&options, folder.path()).unwrap();
    let draw = &mut StdRng::seed_from_u64(1);
    for id in 0..KEYS {
        db.put(id.to_be_bytes(), value(draw)).unwrap();
    }
    db.flush().unwrap();
    let runtime = Runtime::new().unwrap();
    let settings = ScanSettings {
        cache_bytes: 1 << 30,
        ..ScanSettings::default()
    };
    let engine = ScanEngine::new(settings).unwrap();
    let session = session(&runtime, folder.path(), &engine);
    let analyzed = || {
        answer(
            &runtime,
            &session,
            "explain analyze select sum(price) from items",
        )
    };
    let first = analyzed();
    assert!(
        first.contains("bytes_cached=0") && !first.contains("bytes_read=0"),
        "{first}"
    );
    let second = analyzed();
    assert!(
        second.contains("bytes_read=0") && !second.contains("bytes_cached=0"),
        "{second}"
    );
    assert!(!second.contains("columns_cached=0"), "{second}");
    engine.columns().set_limit(0);
    assert!(!analyzed().contains("bytes_cached"));
    assert_eq!(engine.columns().accounts().bytes, 0);
}
