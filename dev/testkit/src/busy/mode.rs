//! Ways in which RocksDB writes, flushes and keeps logs.

use std::path::Path;

use rust_rocksdb::{
    ColumnFamilyDescriptor, DB, Options, SingleThreaded, TransactionDB, TransactionDBOptions,
};

/// How a database is written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Usual,
    Pipelined,
    AtomicFlush,
    RecycledLogs,
    /// Two-phase commit, with a transaction that another session prepared and did not commit.
    TwoPhaseCommit,
    Unordered,
    ManualWalFlush,
}

pub const MODES: [Mode; 7] = [
    Mode::Usual,
    Mode::Pipelined,
    Mode::AtomicFlush,
    Mode::RecycledLogs,
    Mode::TwoPhaseCommit,
    Mode::Unordered,
    Mode::ManualWalFlush,
];

impl Mode {
    /// Makes a database, with the default column family and others.
    pub fn create(self, path: &Path, families: &[&str], options: impl Fn() -> Options) -> DB {
        let mut of_db = options();
        of_db.create_if_missing(true);
        of_db.create_missing_column_families(true);
        of_db.set_max_background_jobs(4);
        match self {
            Self::Usual => {}
            Self::Pipelined => of_db.set_enable_pipelined_write(true),
            Self::AtomicFlush => of_db.set_atomic_flush(true),
            Self::RecycledLogs => of_db.set_recycle_log_file_num(3),
            Self::TwoPhaseCommit => {
                of_db.set_allow_2pc(true);
                prepare_transaction(path, &of_db);
            }
            Self::Unordered => of_db.set_unordered_write(true),
            Self::ManualWalFlush => of_db.set_manual_wal_flush(true),
        }
        let families = families.iter();
        let families = families.map(|name| ColumnFamilyDescriptor::new(*name, options()));
        DB::open_cf_descriptors(&of_db, path, families).expect("it opens")
    }
}

fn prepare_transaction(path: &Path, options: &Options) {
    let settings = TransactionDBOptions::default();
    let db = TransactionDB::<SingleThreaded>::open(options, &settings, path).expect("it opens");
    let transaction = db.transaction();
    transaction.set_name(b"transaction").expect("named");
    transaction.put(b"prepared", b"value").expect("put");
    transaction.prepare().expect("prepared");
}
