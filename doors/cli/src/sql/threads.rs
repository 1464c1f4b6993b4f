//! Threads on which statements run, and a thread that waits for signals.

use std::sync::Arc;
use std::time::Duration;

use rockmill_core::Lock;
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
    statements: Lock<Statements>,
    /// Waits for signals and times.
    pub waiting: Runtime,
}

/// Runtimes of statements.
#[derive(Debug, Default)]
struct Statements {
    /// Runs the next statement. It is made for the first one, and again after one that did not end in time.
    current: Option<Arc<Runtime>>,
    /// Run statements that did not end in time.
    left: Vec<Arc<Runtime>>,
}

impl Threads {
    /// Starts the threads.
    ///
    /// # Errors
    /// Environment if the system refuses.
    pub fn new() -> Result<Self, Failure> {
        let waiting = Builder::new_current_thread().enable_all().build();
        Ok(Self {
            statements: Lock::default(),
            waiting: waiting.map_err(refused)?,
        })
    }

    /// The runtime of the next statement.
    ///
    /// # Errors
    /// Environment if the system refuses.
    pub fn statements(&self) -> Result<Arc<Runtime>, Failure> {
        let mut statements = self.statements.lock();
        statements.end_idle();
        let runtime = match statements.current.take() {
            Some(runtime) => runtime,
            None => for_statements()?,
        };
        statements.current = Some(Arc::clone(&runtime));
        Ok(runtime)
    }

    /// Gives other threads to later statements, because a statement does not end.
    pub fn leave(&self) {
        let mut statements = self.statements.lock();
        let current = statements.current.take();
        statements.left.extend(current);
    }
}

impl Statements {
    /// Ends the threads of statements that have ended late.
    fn end_idle(&mut self) {
        for runtime in std::mem::take(&mut self.left) {
            match Arc::try_unwrap(runtime) {
                Ok(idle) if idle.metrics().num_alive_tasks() == 0 => idle.shutdown_background(),
                Ok(busy) => self.left.push(Arc::new(busy)),
                Err(busy) => self.left.push(busy),
            }
        }
    }
}

impl Drop for Threads {
    /// Waits for tasks that end soon. Operators of DataFusion may compute for long before they check whether they are
    /// stopped.
    fn drop(&mut self) {
        let Statements { current, left } = std::mem::take(&mut *self.statements.lock());
        if let Some(current) = current.and_then(Arc::into_inner) {
            current.shutdown_timeout(TIMEOUT);
        }
        for busy in left.into_iter().filter_map(Arc::into_inner) {
            busy.shutdown_background();
        }
    }
}

/// Waits until a runtime has no tasks.
pub async fn wait_for_tasks(runtime: &Runtime) {
    while runtime.metrics().num_alive_tasks() > 0 {
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn threads_of_a_statement_that_ends_late_end_with_the_next_statement() {
        let threads = Threads::new().unwrap();
        let left = threads.statements().unwrap();
        let (ends, ended) = channel::<()>();
        let late = left.spawn(async move { ended.recv() });
        threads.leave();
        let next = threads.statements().unwrap();
        assert!(!Arc::ptr_eq(&left, &next));
        assert_eq!(threads.statements.lock().left.len(), 1);
        ends.send(()).unwrap();
        left.block_on(late).unwrap().unwrap();
        threads.waiting.block_on(wait_for_tasks(&left));
        drop(left);
        let again = threads.statements().unwrap();
        assert!(Arc::ptr_eq(&again, &next));
        assert!(threads.statements.lock().left.is_empty());
    }
}
