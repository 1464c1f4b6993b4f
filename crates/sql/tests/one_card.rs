//! Compactions, statements and views of one process share one GPU: none fails for memory, none waits forever.
//!
//! The GPU is simulated: the kernels run on the host, with a memory size that the test sets. With
//! `ROCKMILL_TEST_DEVICE=cuda:N`, the ignored test measures how the three share that GPU.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use datafusion::common::ScalarValue;
use datafusion::prelude::{SessionConfig, SessionContext};
use rockmill::{Device, Service};
use rockmill_cuda::Target;
use rockmill_cuda::faults::{DeviceUsage, Faults};
use rockmill_live::LiveDatabase;
use rockmill_scan::{Database, ScanEngine, ScanSettings};
use rockmill_sql::Scans;
use rockmill_view::View;
use rust_rocksdb::{BottommostLevelCompaction, CompactOptions, DB, Options};
use tokio::runtime::Runtime;

/// Rows of the databases.
#[derive(Debug, Clone, Copy)]
struct Rows {
    compacted: u64,
    scanned: u64,
    viewed: u64,
}

const VALUE_BYTES: usize = 100;

const FLUSHES: u64 = 4;

/// Number of compactions, statements, and loads and refreshes of views.
#[derive(Debug, Default)]
struct Done([AtomicU64; 3]);

const NAMES: [&str; 3] = ["compactions", "statements", "views"];

/// A database with numbered rows in several files.
fn database(path: &Path, options: &mut Options, rows: u64) -> Arc<DB> {
    options.create_if_missing(true);
    options.set_disable_auto_compactions(true);
    let db = DB::open(options, path).unwrap();
    for part in 0..FLUSHES {
        for row in (part..rows).step_by(FLUSHES as usize) {
            let mut value = [0; VALUE_BYTES];
            value[..8].copy_from_slice(&row.to_be_bytes());
            db.put(row.to_be_bytes(), value).unwrap();
        }
        db.flush().unwrap();
    }
    Arc::new(db)
}

/// The three users of a device.
struct Users {
    service: Service,
    compacted: Arc<DB>,
    session: SessionContext,
    scanned_rows: u64,
    viewed: Arc<DB>,
    viewed_rows: u64,
    engine: Arc<ScanEngine>,
    target: Target,
    runtime: Runtime,
}

impl Users {
    fn new(folder: &Path, target: Target, rows: Rows) -> Self {
        let device = match target {
            Target::Cuda(number) => Device::Cuda(number),
            other => Device::Kernels(other),
        };
        let service = Service::builder()
            .device(device)
            .min_job_bytes(0)
            .build()
            .unwrap();
        service.wait_for_device().unwrap();
        let mut options = Options::default();
        options.set_target_file_size_base(match target {
            Target::Cuda(_) => 64 << 20,
            _ => 256 << 10,
        });
        options.set_compaction_service(service.clone());
        let compacted = database(&folder.join("compacted"), &mut options, rows.compacted);
        let open = |name, rows| database(&folder.join(name), &mut Options::default(), rows);
        let (scanned, viewed) = (open("scanned", rows.scanned), open("viewed", rows.viewed));
        let settings = ScanSettings {
            devices: device.into(),
            ..ScanSettings::default()
        };
        let engine = ScanEngine::new(settings).unwrap();
        engine.wait_for_device().unwrap();
        let session = rockmill_sql::session(SessionConfig::new(), &engine).unwrap();
        let database = Arc::new(LiveDatabase::new(scanned));
        Scans::new(engine, database).register(&session).unwrap();
        Self {
            service,
            compacted,
            session,
            scanned_rows: rows.scanned,
            viewed,
            viewed_rows: rows.viewed,
            // Views have their own engine, which knows no device.
            engine: ScanEngine::new(ScanSettings::default()).unwrap(),
            target,
            runtime: Runtime::new().unwrap(),
        }
    }

    /// Compacts all of a database.
    fn compact(&self) {
        let mut options = CompactOptions::default();
        options.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
        (self.compacted).compact_range_opt(None::<&[u8]>, None::<&[u8]>, &options);
    }

    /// Sums the numbers of all rows.
    fn sum(&self) {
        let query = "select sum(u64be(value, 0)) from \"default\"";
        let batches = self.runtime.block_on(async {
            let rows = self.session.sql(query).await.unwrap();
            rows.collect().await.unwrap()
        });
        let found = ScalarValue::try_from_array(batches[0].column(0), 0).unwrap();
        let sum = self.scanned_rows * (self.scanned_rows - 1) / 2;
        assert_eq!(found, ScalarValue::UInt64(Some(sum)));
    }

    /// Loads a view, and refreshes it after a write.
    fn view(&self, times: u64) {
        let database: Arc<dyn Database> = Arc::new(LiveDatabase::new(Arc::clone(&self.viewed)));
        let builder = View::builder(database, "default").device(self.target);
        let view = builder.engine(Arc::clone(&self.engine)).open().unwrap();
        let row = self.viewed_rows / 2;
        let value = |view: &View| view.get(&[&row.to_be_bytes()]).unwrap().remove(0).unwrap();
        assert_eq!(value(&view)[..8], row.to_be_bytes());
        let new = [times as u8; VALUE_BYTES];
        self.viewed.put(row.to_be_bytes(), new).unwrap();
        view.refresh().unwrap();
        assert_eq!(value(&view), new);
        let mut old = [0; VALUE_BYTES];
        old[..8].copy_from_slice(&row.to_be_bytes());
        self.viewed.put(row.to_be_bytes(), old).unwrap();
    }

    /// Lets some of the users, by their number, work at the same time until `is_done`.
    fn work(&self, users: &[usize], is_done: impl Fn(&Done) -> bool + Sync) -> Done {
        let (done, stop) = (Done::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for &user in users {
                let (done, stop, is_done) = (&done, &stop, &is_done);
                scope.spawn(move || {
                    // A user that fails ends the others.
                    let stopping = Stopping(stop);
                    while !stop.load(Ordering::Relaxed) {
                        let times = done.0[user].load(Ordering::Relaxed);
                        match user {
                            0 => self.compact(),
                            1 => self.sum(),
                            _ => self.view(times),
                        }
                        done.0[user].fetch_add(1, Ordering::Relaxed);
                        if is_done(done) {
                            break;
                        }
                    }
                    drop(stopping);
                });
            }
        });
        done
    }
}

/// Sets a flag when dropped.
struct Stopping<'a>(&'a AtomicBool);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn compactions_statements_and_views_of_one_process_share_a_card() {
    /// Memory of the device.
    const CARD: u64 = 160 << 20;
    /// Minimum number of times that each user works.
    const TIMES: u64 = 5;
    let faults = Faults::none();
    faults.simulate_memory(CARD);
    let folder = tempfile::tempdir().unwrap();
    let rows = Rows {
        compacted: 20_000,
        scanned: 20_000,
        viewed: 400_000,
    };
    let users = Users::new(folder.path(), Target::Faulty, rows);
    let is_done = |done: &Done| {
        done.0
            .iter()
            .all(|times| times.load(Ordering::Relaxed) >= TIMES)
    };
    let done = users.work(&[0, 1, 2], is_done);
    let stats = users.service.stats();
    assert!(is_done(&done));
    // More would have been refused.
    assert!(
        faults.peak_bytes() > CARD / 2,
        "the card is large enough for all at once"
    );
    assert_eq!(
        (stats.jobs_failed, stats.subcompactions_redone_by_cpu),
        (0, 0)
    );
    drop(users);
    assert_eq!(faults.usage(), DeviceUsage::default());
}

#[test]
#[ignore = "takes a minute and a half on a GPU that nothing else uses"]
fn each_user_of_a_gpu_keeps_a_quarter_of_its_rate() {
    const TIME: Duration = Duration::from_secs(20);
    let named = std::env::var("ROCKMILL_TEST_DEVICE").unwrap_or_default();
    let number = named
        .strip_prefix("cuda:")
        .expect("ROCKMILL_TEST_DEVICE=cuda:N");
    let folder = tempfile::tempdir().unwrap();
    let rows = Rows {
        compacted: 2_000_000,
        scanned: 4_000_000,
        viewed: 4_000_000,
    };
    let target = Target::Cuda(number.parse().unwrap());
    let users = Users::new(folder.path(), target, rows);
    let rates = |names: &[usize]| {
        let began = Instant::now();
        let done = users.work(names, |_| began.elapsed() >= TIME);
        let seconds = began.elapsed().as_secs_f64();
        done.0.map(|times| times.into_inner() as f64 / seconds)
    };
    let alone = [0, 1, 2].map(|user| rates(&[user])[user]);
    let together = rates(&[0, 1, 2]);
    for ((name, alone), together) in NAMES.iter().zip(alone).zip(together) {
        println!("{name}: {alone:.2} per second alone, {together:.2} beside the others");
    }
    let stats = users.service.stats();
    assert_eq!(
        (stats.jobs_failed, stats.subcompactions_redone_by_cpu),
        (0, 0)
    );
    assert!(
        alone
            .iter()
            .zip(together)
            .all(|(alone, together)| together >= alone / 4.0)
    );
}
