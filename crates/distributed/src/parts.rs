//! Parts of statements on a worker, and its metrics as text for Prometheus.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::physical_plan::ExecutionPlan;
use rockmill_scan::ScanEngine;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use uuid::Uuid;

use crate::progress::{Read, total};

/// Maximum number of parts of statements that run or wait at a time. More are refused.
pub const MAX_PARTS: usize = 1024;

/// The parts of statements on a worker, and what they use.
#[derive(Debug)]
pub(crate) struct Parts {
    engine: Arc<ScanEngine>,
    runtime: Arc<RuntimeEnv>,
    free: Arc<Semaphore>,
    begun: AtomicU64,
    refused: AtomicU64,
    of_statements: Mutex<Vec<(Uuid, Weak<Part>)>>,
}

/// A part of a statement.
#[derive(Debug)]
pub(crate) struct Part {
    _permit: OwnedSemaphorePermit,
    plan: OnceLock<Arc<dyn ExecutionPlan>>,
}

impl Part {
    /// States the plan that it runs.
    pub fn runs(&self, plan: Arc<dyn ExecutionPlan>) {
        let _ = self.plan.set(plan);
    }
}

impl Parts {
    pub fn new(engine: Arc<ScanEngine>, runtime: Arc<RuntimeEnv>) -> Self {
        Self {
            engine,
            runtime,
            free: Arc::new(Semaphore::new(MAX_PARTS)),
            begun: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            of_statements: Mutex::default(),
        }
    }

    /// Begins a part of a statement. `None` if too many run.
    pub fn begin(&self, statement: Uuid) -> Option<Arc<Part>> {
        let Ok(permit) = Arc::clone(&self.free).try_acquire_owned() else {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        self.begun.fetch_add(1, Ordering::Relaxed);
        let part = Arc::new(Part {
            _permit: permit,
            plan: OnceLock::new(),
        });
        let mut of_statements = self.of_statements();
        of_statements.retain(|(_, part)| part.strong_count() > 0);
        of_statements.push((statement, Arc::downgrade(&part)));
        Some(part)
    }

    fn of_statements(&self) -> MutexGuard<'_, Vec<(Uuid, Weak<Part>)>> {
        let parts = self.of_statements.lock();
        parts.unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that scans of a statement have read here, and that they read in total.
    pub fn progress(&self, statement: Uuid) -> Read {
        // A part that ends now closes its files when the lock is free again.
        let parts: Vec<_> = self
            .of_statements()
            .iter()
            .filter(|(of, _)| *of == statement)
            .filter_map(|(_, part)| part.upgrade())
            .collect();
        let plans = parts.iter().filter_map(|part| part.plan.get());
        total(plans.map(rockmill_sql::progress))
    }

    /// Number of parts that run or wait.
    pub fn running(&self) -> usize {
        MAX_PARTS - self.free.available_permits()
    }

    /// The metrics in Prometheus' text format.
    pub fn text(&self) -> String {
        let scans = self.engine.totals();
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed) as f64;
        let values = [
            (
                "parts_total",
                "counter",
                "parts of statements that were begun",
                count(&self.begun),
            ),
            (
                "parts_refused_total",
                "counter",
                "parts of statements that were refused because too many ran",
                count(&self.refused),
            ),
            (
                "parts",
                "gauge",
                "parts of statements that run or wait",
                self.running() as f64,
            ),
            (
                "scan_pieces_total",
                "counter",
                "pieces of scans that were read",
                scans.pieces as f64,
            ),
            (
                "scan_read_bytes_total",
                "counter",
                "bytes that scans read from tables",
                scans.bytes as f64,
            ),
            (
                "scan_cached_bytes_total",
                "counter",
                "bytes of cached columns that scans used in place of tables",
                scans.cached_bytes as f64,
            ),
            (
                "scan_rows_total",
                "counter",
                "rows that scans found",
                scans.rows as f64,
            ),
            (
                "scan_seconds_total",
                "counter",
                "time of all pieces, with their wait for memory and for a thread",
                scans.time.as_secs_f64(),
            ),
            (
                "cache_bytes",
                "gauge",
                "bytes of the columns that are cached",
                self.engine.columns().accounts().bytes as f64,
            ),
            (
                "query_memory_bytes",
                "gauge",
                "memory that operators above scans have reserved",
                self.runtime.memory_pool.reserved() as f64,
            ),
        ];
        let mut text = String::new();
        for (name, kind, help, value) in values {
            let name = format!("rockmill_worker_{name}");
            // Writing to a String cannot fail.
            let _ = write!(
                text,
                "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n"
            );
        }
        text
    }
}
