//! Parts of statements on a worker, and its metrics as text for Prometheus.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::physical_plan::ExecutionPlan;
use rockmill_core::Lock;
use rockmill_scan::ScanEngine;
use rockmill_sql::ScanProgress;
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
    statements: Lock<Vec<(Uuid, Weak<Scans>)>>,
}

/// The scans of a statement here, also those of parts that have ended. They are forgotten with the last part.
type Scans = Lock<Vec<ScanProgress>>;

/// A part of a statement. Its session keeps it, and its plan may keep the session. So it keeps no plan.
#[derive(Debug)]
pub(crate) struct Part {
    _permit: OwnedSemaphorePermit,
    scans: Arc<Scans>,
}

impl Part {
    /// States the plan that it runs.
    pub fn runs(&self, plan: &Arc<dyn ExecutionPlan>) {
        self.scans.lock().push(ScanProgress::of(plan));
    }
}

/// The scans of a statement that has parts here.
fn scans_of(statements: &[(Uuid, Weak<Scans>)], statement: Uuid) -> Option<Arc<Scans>> {
    let mut of_statement = statements.iter().filter(|(of, _)| *of == statement);
    of_statement.find_map(|(_, scans)| scans.upgrade())
}

impl Parts {
    pub fn new(engine: Arc<ScanEngine>, runtime: Arc<RuntimeEnv>) -> Self {
        Self {
            engine,
            runtime,
            free: Arc::new(Semaphore::new(MAX_PARTS)),
            begun: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            statements: Lock::default(),
        }
    }

    /// Begins a part of a statement. `None` if too many run.
    pub fn begin(&self, statement: Uuid) -> Option<Part> {
        let Ok(permit) = Arc::clone(&self.free).try_acquire_owned() else {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        self.begun.fetch_add(1, Ordering::Relaxed);
        let mut statements = self.statements.lock();
        statements.retain(|(_, scans)| scans.strong_count() > 0);
        // Requests without a number may belong to different statements.
        let known = scans_of(&statements, statement).filter(|_| !statement.is_nil());
        let scans = known.unwrap_or_else(|| {
            let scans = Arc::default();
            statements.push((statement, Arc::downgrade(&scans)));
            scans
        });
        Some(Part {
            _permit: permit,
            scans,
        })
    }

    /// Bytes that scans of a statement have read here, and that they read in total.
    pub fn progress(&self, statement: Uuid) -> Read {
        let scans = scans_of(&self.statements.lock(), statement).unwrap_or_default();
        total(scans.lock().iter().map(ScanProgress::read))
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

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::Schema;
    use datafusion::physical_plan::empty::EmptyExec;

    use super::*;

    #[test]
    fn the_scans_of_parts_that_have_ended_count_until_the_last_part_ends() {
        let engine = ScanEngine::new(Default::default()).expect("an engine");
        let parts = Parts::new(engine, Arc::default());
        let plan: Arc<dyn ExecutionPlan> = Arc::new(EmptyExec::new(Arc::new(Schema::empty())));
        let of = |part: &Part| part.scans.lock().len();
        let two = |statement| [(); 2].map(|()| parts.begin(statement).expect("few run"));
        let statement = Uuid::from_u128(1);
        let ([first, last], [one, other]) = (two(statement), two(Uuid::nil()));
        one.runs(&plan);
        assert_eq!(of(&other), 0);
        drop((one, other));
        first.runs(&plan);
        drop(first);
        last.runs(&plan);
        assert_eq!(of(&last), 2);
        // The plan may keep the part.
        let kept = Arc::downgrade(&plan);
        drop(plan);
        assert!(kept.upgrade().is_none());
        assert_eq!(parts.running(), 1);
        drop(last);
        assert_eq!(of(&parts.begin(statement).expect("none runs")), 0);
    }
}
