//! Random databases, and statements that are repeated while rows are written, flushed and compacted. What stays in the caches of
//! columns, of decoded groups and of files, is evicted or changes in memory does not change an answer: it is that of the rows which RocksDB's
//! iterators find at the same sequence number.
//!
//! Half of the databases are on the CPU, and half on the GPU's kernels on the host, or all on the device that
//! `ROCKMILL_TEST_DEVICE` names. `ROCKMILL_CASES=10000` draws more databases, and `ROCKMILL_SEED=N` the same ones again.

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use datafusion::arrow::array::{
    ArrayRef, BinaryArray, Date32Array, Decimal128Array, Float64Array, Int32Array, Int64Array,
    RecordBatch, StringArray, UInt32Array,
};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::datasource::MemTable;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::{SessionConfig, SessionContext};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rockmill::Service;
use rockmill_core::columns::Accounts;
use rockmill_live::LiveDatabase;
use rockmill_scan::{Database, Directory, ScanEngine, ScanSettings};
use rockmill_sql::{ReadOnly, Scans};
use rockmill_testkit::machine::{cases, seed};
use rust_rocksdb::{DB, DBCompressionType, IteratorMode, Options, WriteBatch};
use tokio::runtime::Runtime;

use crate::common;

const CASES: u64 = 200;

/// Rounds of a database. Each begins with an event.
const ROUNDS: usize = 6;

/// The sum of the other table's prices, which may exceed their type.
const WIDE_SUM: &str = "sum(cast(price as decimal(38, 0))) as \"sum(others.price)\"";

/// Stands for the rows of a statement whose sum exceeds its type.
const TOO_LARGE: &str = "a sum exceeds its type";

/// Maximum changes of the thread beside statements.
const CHANGES: usize = 100;

const COLUMNS: &str = "id int unsigned not null, price {PRICE}, day {DAY}, score double, time bigint not null, name varchar";

const TABLE: &str = "create external table items ({COLUMNS}) stored as rocksdb location '{DB}' options
    ('key' 'u32be id', 'value' 'nulls(1), i64le price, i32le day, f64le score, i64le time, varint name')";

/// The same rows with other columns at the same places, so that no column of the one may stand for that of the other.
const OTHER: &str = "create external table others ({COLUMNS}) stored as rocksdb location '{DB}' options
    ('key' 'u32be id', 'value' 'nulls(1), i64be price, i32be day, f64le score, i64le time, varint name')";

/// Name, command, and types of two columns.
const TABLES: [(&str, &str, [&str; 2]); 2] = [
    ("items", TABLE, ["decimal(12, 2)", "date"]),
    ("others", OTHER, ["bigint", "int"]),
];

/// The tables at `folder`, read by an engine.
fn session(
    runtime: &Runtime,
    folder: &Path,
    engine: &Arc<ScanEngine>,
    database: Arc<dyn Database>,
) -> SessionContext {
    let config = SessionConfig::new().with_target_partitions(2);
    let session = rockmill_sql::session(config, engine).unwrap();
    let scans = Scans::new(Arc::clone(engine), database);
    scans.register(&session).unwrap();
    for (_, create, [price, day]) in TABLES {
        let create = create
            .replace("{COLUMNS}", COLUMNS)
            .replace("{PRICE}", price)
            .replace("{DAY}", day)
            .replace("{DB}", &folder.display().to_string());
        runtime.block_on(scans.define(&session, &create)).unwrap();
    }
    session
}

fn directory(folder: &Path) -> Arc<dyn Database> {
    let database = Directory::open(folder).unwrap();
    Arc::new(database.with_iterators(Arc::new(ReadOnly::default())))
}

/// A statement of which the rows have an order, or are one.
fn statement(draw: &mut StdRng, keys: u32) -> String {
    let id = draw.random_range(0..keys);
    let to = id + draw.random_range(0..keys);
    let day = draw.random_range(-110..110);
    let price = draw.random_range(-100..100);
    // Times ascend with the keys.
    let (from, until) = (id * 10, to * 10);
    let score = ["-0.0", "1.5", "'NaN'"][draw.random_range(0..3)];
    let comparison = ["=", "<>", "<", "<=", ">", ">="][draw.random_range(0..6)];
    let table = ["items", "others"][draw.random_range(0..2)];
    match draw.random_range(0..10) {
        0 => format!("select count(*), sum(price), min(day), max(name) from {table}"),
        1 => format!(
            "select name, count(*), sum(price) from items where day {comparison} cast({day} as date)
             group by name order by name"
        ),
        2 => format!("select * from {table} where id between {id} and {to} order by id"),
        3 => format!(
            "select id, price * 2 from items where price {comparison} {price}.00 or name like 'b%' order by id"
        ),
        4 => format!(
            "select count(*), sum(price), min(id), max(day) from {table} where time between {from} and {until}"
        ),
        5 => format!(
            "select * from items where time >= {from} and time < {until} and price < {price}.00 order by id"
        ),
        6 => format!(
            "select id, score from {table} where score {comparison} cast({score} as double) order by id"
        ),
        7 => format!(
            "select id, name from others where score is null or time in ({from}, {until}) order by id limit 50"
        ),
        8 => format!("select count(*), max(value) from \"default\" where key > x'{id:08x}'"),
        _ => format!("select * from {table} where id = {id}"),
    }
}

const NAMES: [&str; 4] = ["", "apple", "banana", "cherry"];

const SCORES: [f64; 6] = [0.0, -0.0, 1.5, f64::NAN, -2.25, f64::NEG_INFINITY];

fn value(draw: &mut StdRng, id: u32) -> Vec<u8> {
    let name = NAMES.choose(draw).unwrap();
    let nulls: u8 = match draw.random_bool(0.3) {
        true => draw.random_range(0..16),
        false => 0,
    };
    let price: i64 = draw.random_range(-10_000..10_000);
    let day: i32 = draw.random_range(-100..100);
    let time = i64::from(id) * 10 + draw.random_range(0..30);
    [
        &[nulls][..],
        &price.to_le_bytes(),
        &day.to_le_bytes(),
        &SCORES.choose(draw).unwrap().to_le_bytes(),
        &time.to_le_bytes(),
        &[name.len() as u8],
        name.as_bytes(),
    ]
    .concat()
}

/// A key and a value.
type Row = (Box<[u8]>, Box<[u8]>);

/// The rows of a table in memory, from keys and values of RocksDB's iterators.
fn columns(rows: &[Row], is_big_endian: bool) -> Vec<ArrayRef> {
    fn at<const N: usize>(value: &[u8], at: usize) -> [u8; N] {
        value[at..at + N].try_into().unwrap()
    }
    let values = || rows.iter().map(|(_, value)| &**value);
    let unless_null = |bit: u8, value: &[u8]| (value[0] >> bit & 1 == 0).then_some(());
    let ids = rows
        .iter()
        .map(|(key, _)| Some(u32::from_be_bytes(at(key, 0))));
    let price = values().map(|value| {
        unless_null(0, value)?;
        Some(match is_big_endian {
            true => i64::from_be_bytes(at(value, 1)),
            false => i64::from_le_bytes(at(value, 1)),
        })
    });
    let day = values().map(|value| {
        unless_null(1, value)?;
        Some(match is_big_endian {
            true => i32::from_be_bytes(at(value, 9)),
            false => i32::from_le_bytes(at(value, 9)),
        })
    });
    let score = values().map(|value| {
        unless_null(2, value)?;
        Some(f64::from_le_bytes(at(value, 13)))
    });
    let time = values().map(|value| Some(i64::from_le_bytes(at(value, 21))));
    let name = values().map(|value| {
        unless_null(3, value)?;
        Some(std::str::from_utf8(&value[30..]).unwrap())
    });
    let (price, day): (ArrayRef, ArrayRef) = match is_big_endian {
        true => (
            Arc::new(price.collect::<Int64Array>()),
            Arc::new(day.collect::<Int32Array>()),
        ),
        false => {
            let price: Decimal128Array = price.map(|price| price.map(i128::from)).collect();
            let price = price.with_precision_and_scale(12, 2).unwrap();
            (Arc::new(price), Arc::new(day.collect::<Date32Array>()))
        }
    };
    vec![
        Arc::new(ids.collect::<UInt32Array>()),
        price,
        day,
        Arc::new(score.collect::<Float64Array>()),
        Arc::new(time.collect::<Int64Array>()),
        Arc::new(name.collect::<StringArray>()),
    ]
}

/// A random database, its service, and the statements over it.
struct Case<'a> {
    runtime: &'a Runtime,
    keys: u32,
    service: Service,
    engine: Arc<ScanEngine>,
    db: Arc<DB>,
    /// Held while rows are written, and while a statement is planned.
    writes: Mutex<()>,
    sessions: Vec<SessionContext>,
    /// Where DataFusion computes everything.
    memory: SessionContext,
    statements: Vec<String>,
}

impl<'a> Case<'a> {
    fn new(runtime: &'a Runtime, folder: &Path, device: &str, draw: &mut StdRng) -> Self {
        let service = Service::builder()
            .threads(2)
            .min_job_bytes(0)
            .device(common::devices(device))
            .device_cache_bytes(limit(draw))
            .change(|settings| settings.cuda.cache_chunk_bytes = 16 << 10)
            .build()
            .unwrap();
        service.wait_for_device().unwrap();
        let engine = ScanEngine::sharing(service.executor());
        engine.columns().set_limit(limit(draw));
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_compaction_service(service.clone());
        options.set_write_buffer_size(64 << 10);
        options.set_target_file_size_base(draw.random_range(4..64) << 10);
        options.set_max_bytes_for_level_base(128 << 10);
        options.set_level_zero_file_num_compaction_trigger(draw.random_range(2..100));
        options.set_compression_type(match draw.random_range(0..3) {
            0 => DBCompressionType::Lz4,
            1 => DBCompressionType::Zstd,
            _ => DBCompressionType::None,
        });
        let db = Arc::new(DB::open(&options, folder).unwrap());
        let live = Arc::new(LiveDatabase::new(Arc::clone(&db)));
        let sessions = [live as Arc<dyn Database>, directory(folder)];
        let sessions = sessions.map(|database| session(runtime, folder, &engine, database));
        let keys = draw.random_range(1..3000);
        Self {
            runtime,
            keys,
            service,
            engine,
            db,
            writes: Mutex::default(),
            sessions: sessions.into(),
            memory: SessionContext::new(),
            statements: (0..4).map(|_| statement(draw, keys)).collect(),
        }
    }

    /// Writes some keys of a range at once.
    fn write(&self, draw: &mut StdRng, keys: Range<u32>) {
        let mut batch = WriteBatch::default();
        for id in keys {
            let key = id.to_be_bytes();
            match draw.random_range(0..400) {
                0..300 => batch.put(key, value(draw, id)),
                // Rare, because it may delete 50 keys.
                300 if draw.random_ratio(1, 20) => {
                    batch.delete_range(key, (id + draw.random_range(0..50)).to_be_bytes());
                }
                300..360 => batch.delete(key),
                _ => {}
            }
        }
        let _held = self.writes.lock().unwrap();
        self.db.write(&batch).unwrap();
    }

    fn some_keys(&self, draw: &mut StdRng, most: u32) -> Range<u32> {
        let from = draw.random_range(0..self.keys);
        from..self.keys.min(from + draw.random_range(0..most))
    }

    /// Writes, flushes or compacts.
    fn change(&self, draw: &mut StdRng) -> &'static str {
        match draw.random_range(0..6) {
            0..=2 => {
                let keys = self.some_keys(draw, 200);
                self.write(draw, keys);
                "write"
            }
            3 => {
                self.db.flush().unwrap();
                "flush"
            }
            4 => {
                let keys = self.some_keys(draw, self.keys);
                let [from, to] = [keys.start, keys.end].map(u32::to_be_bytes);
                self.db.compact_range(Some(from), Some(to));
                "compact"
            }
            _ => "nothing",
        }
    }

    /// Changes what is cached.
    fn forget(&self, draw: &mut StdRng) -> &'static str {
        let columns = self.engine.columns();
        let caches = self.service.executor().registry().file_caches();
        let some = draw.random_range(0..200_000);
        match draw.random_range(0..8) {
            0 => {
                columns.set_limit(limit(draw));
                "limit of columns"
            }
            1 => {
                let bytes = limit(draw);
                let changed = self.service.change_settings(|settings| {
                    settings.device_cache_bytes = Some(bytes);
                });
                changed.unwrap();
                "limit of files"
            }
            2 => {
                columns.flip(some as usize);
                "flip columns"
            }
            3 => {
                columns.flip_keys(some as usize);
                "flip keys"
            }
            4 => {
                for cache in caches {
                    cache.flip(some).unwrap();
                }
                "flip files"
            }
            5 => {
                for cache in caches {
                    cache.give_back(some);
                }
                "evict files"
            }
            _ => "nothing",
        }
    }

    /// Runs a statement, and compares its rows with those of the iterators.
    fn check(&self, statement: &str, position: usize) {
        let session = &self.sessions[position % self.sessions.len()];
        let (snapshot, plan) = {
            let _held = self.writes.lock().unwrap();
            (self.db.snapshot(), self.plan(session, statement))
        };
        let found = self.rows(session, plan);
        let rows = snapshot.iterator(IteratorMode::Start);
        let rows: Vec<_> = rows.map(|row| row.unwrap()).collect();
        for (name, ..) in TABLES {
            self.remember(name, columns(&rows, name == "others"));
        }
        let all = rows.iter();
        let (keys, values) = (all.clone().map(|row| &row.0), all.map(|row| &row.1));
        let bytes: [BinaryArray; 2] = [keys.map(Some).collect(), values.map(Some).collect()];
        self.remember("default", bytes.map(|bytes| Arc::new(bytes) as _).into());
        // DataFusion's own sums of integers wrap.
        let wide = match statement.contains("from others") {
            true => statement.replace("sum(price)", WIDE_SUM),
            false => statement.to_owned(),
        };
        let [expected, wrapped] = [&*wide, statement]
            .map(|statement| self.rows(&self.memory, self.plan(&self.memory, statement)));
        match &*found {
            TOO_LARGE => assert_ne!(wrapped, expected, "{statement}"),
            found => assert_eq!(found, expected, "{statement}"),
        }
    }

    fn plan(&self, session: &SessionContext, statement: &str) -> Arc<dyn ExecutionPlan> {
        let plan = async { session.sql(statement).await?.create_physical_plan().await };
        let plan = self.runtime.block_on(plan);
        plan.unwrap_or_else(|error| panic!("{statement}: {error}"))
    }

    fn rows(&self, session: &SessionContext, plan: Arc<dyn ExecutionPlan>) -> String {
        let schema = plan.schema();
        let batches = match self.runtime.block_on(collect(plan, session.task_ctx())) {
            Ok(batches) => batches,
            // The other table takes bytes for other numbers, whose sums may be too large.
            Err(error) if error.to_string().contains("exceeds the range of its type") => {
                return TOO_LARGE.to_owned();
            }
            Err(error) => panic!("{error}"),
        };
        let rows = concat_batches(&schema, &batches).unwrap();
        pretty_format_batches(&[rows]).unwrap().to_string()
    }

    /// Keeps columns as a table in memory.
    fn remember(&self, table: &str, columns: Vec<ArrayRef>) {
        let quoted = format!("\"{table}\"");
        let schema = self
            .runtime
            .block_on(self.sessions[0].table_provider(&*quoted));
        let schema = schema.unwrap().schema();
        let batch = RecordBatch::try_new(Arc::clone(&schema), columns).unwrap();
        let rows = MemTable::try_new(schema, vec![vec![batch]]).unwrap();
        self.memory.deregister_table(&*quoted).unwrap();
        self.memory
            .register_table(&*quoted, Arc::new(rows))
            .unwrap();
    }

    fn run(&self, draw: &mut StdRng) {
        self.write(draw, 0..self.keys);
        for round in 0..ROUNDS {
            let changed = [self.forget(draw), self.change(draw)];
            println!("round {round}: {changed:?}");
            let statement = self.statements.choose(draw).unwrap();
            // The second one may find what the first one has read.
            for _ in 0..2 {
                self.check(statement, draw.random_range(0..2));
            }
        }
    }

    /// Does the same while another thread changes the database.
    fn run_beside_changes(&self, draw: &mut StdRng) {
        struct Stop<'a>(&'a AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let stop = AtomicBool::new(false);
        let mut other = StdRng::seed_from_u64(draw.random());
        std::thread::scope(|threads| {
            let _stop = Stop(&stop);
            threads.spawn(|| {
                for _ in 0..CHANGES {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    self.change(&mut other);
                }
            });
            self.run(draw);
        });
    }
}

/// Nothing, less than the data, or more.
fn limit(draw: &mut StdRng) -> u64 {
    [0, draw.random_range(0..200_000), 1 << 30][draw.random_range(0..3)]
}

#[test]
fn statements_find_the_rows_of_the_iterators_whatever_is_cached() {
    let (first, cases) = (seed(), cases(CASES));
    let device = std::env::var("ROCKMILL_TEST_DEVICE");
    let devices = match &device {
        Ok(device) => vec![&**device],
        Err(_) => vec!["cpu", common::KERNELS],
    };
    let runtime = Runtime::new().unwrap();
    let [mut columns, mut groups, mut files] = [Accounts::default(); 3];
    for seed in (0..cases).map(|number| first.wrapping_add(number)) {
        let device = devices[(seed % devices.len() as u64) as usize];
        println!("ROCKMILL_CASES=1 ROCKMILL_SEED={seed}: {device}");
        let draw = &mut StdRng::seed_from_u64(seed);
        let folder = tempfile::tempdir().unwrap();
        let case = Case::new(&runtime, folder.path(), device, draw);
        match draw.random() {
            true => case.run(draw),
            false => case.run_beside_changes(draw),
        }
        for cache in case.service.stats().caches {
            let all = match (&*cache.kind, &*cache.device) {
                ("columns", "cpu") => &mut columns,
                ("columns", _) => &mut groups,
                _ => &mut files,
            };
            all.hit_bytes += cache.hit_bytes;
            all.miss_bytes += cache.miss_bytes;
            all.evicted_bytes += cache.evicted_bytes;
            all.mismatches += cache.mismatches;
        }
    }
    println!("columns: {columns:?}\ngroups: {groups:?}\nfiles: {files:?}");
    if cases >= CASES {
        for cache in [columns, groups, files] {
            assert!(cache.hit_bytes > 0 && cache.evicted_bytes > 0 && cache.mismatches > 0);
        }
    }
}

#[test]
fn explain_analyze_shows_what_came_from_the_cache() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = Options::default();
    options.create_if_missing(true);
    let db = DB::open(&options, folder.path()).unwrap();
    let draw = &mut StdRng::seed_from_u64(1);
    for id in 0u32..4000 {
        db.put(id.to_be_bytes(), value(draw, id)).unwrap();
    }
    db.flush().unwrap();
    let runtime = Runtime::new().unwrap();
    let settings = ScanSettings {
        cache_bytes: 1 << 30,
        ..ScanSettings::default()
    };
    let engine = ScanEngine::new(settings).unwrap();
    let session = session(&runtime, folder.path(), &engine, directory(folder.path()));
    let analyzed = || {
        let statement = session.sql("explain analyze select sum(price) from items");
        let batches = runtime.block_on(async { statement.await?.collect().await });
        let batches = batches.unwrap();
        pretty_format_batches(&batches).unwrap().to_string()
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
