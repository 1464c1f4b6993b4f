//! Threads on which statements run, and a thread that waits for signals.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rockmill_terminal::outcome::Failure;
use tokio::runtime::{Builder, Runtime};

use super::RUNNING_STACK_BYTES;

/// Time in which a statement must end after Control-C, and at the end of the command.
pub const TIMEOUT: Duration = Duration::from_secs(2);

/// Interval at which the tasks of a stopped statement are counted.
const INTERVAL: Duration = Duration::from_millis(5);

/// Runtimes for statements, and one for signals and times, which no statement can keep busy.
#[derive(Debug)]
pub struct Threads {
    /// The last one runs statements. Each of the others is still used by a statement that did not end.
    statements: Mutex<Vec<Arc<Runtime>>>,
    /// Waits for signals and times.
    pub waiting: Runtime,
}

impl Threads {
    /// Starts the threads.
    ///
    /// # Errors
    /// Environment if the system refuses.
    pub fn new() -> Result<Self, Failure> {
        let waiting = Builder::new_current_thread().enable_all().build();
        Ok(Self {
            statements: Mutex::new(vec![for_statements()?]),
            waiting: waiting.map_err(refused)?,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Runtime>>> {
        self.statements
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The runtime of the next statement.
    pub fn statements(&self) -> Arc<Runtime> {
        let runtimes = self.lock();
        Arc::clone(runtimes.last().expect("there is always one"))
    }

    /// Gives other threads to later statements, because a statement does not end.
    ///
    /// # Errors
    /// Environment if the system refuses.
    pub fn replace(&self) -> Result<(), Failure> {
        let others = for_statements()?;
        self.lock().push(others);
        Ok(())
    }
}

impl Drop for Threads {
    /// Waits for tasks that end soon. Operators of DataFusion may compute for long before they check whether they are
    /// stopped.
    fn drop(&mut self) {
        let mut runtimes = std::mem::take(&mut *self.lock()).into_iter().rev();
        let shared = |runtime: Arc<Runtime>| Arc::into_inner(runtime);
        if let Some(current) = runtimes.next().and_then(shared) {
            current.shutdown_timeout(TIMEOUT);
        }
        for busy in runtimes.filter_map(shared) {
            busy.shutdown_background();
        }
    }
}

/// Waits until a runtime has at most `most` tasks.
pub async fn wait_for_tasks(runtime: &Runtime, most: usize) {
    while runtime.metrics().num_alive_tasks() > most {
        tokio::time::sleep(INTERVAL).await;
    }
}

fn for_statements() -> Result<Arc<Runtime>, Failure> {
    let runtime = Builder::new_multi_thread()
        .enable_all()
        .thread_stack_size(RUNNING_STACK_BYTES)
        .build();
    Ok(Arc::new(runtime.map_err(refused)?))
}

fn refused(error: std::io::Error) -> Failure {
    Failure::Environment(format!("no threads: {error}"))
}
