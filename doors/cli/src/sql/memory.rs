//! Memory of statements, and the messages if it is too small.

use std::panic::{AssertUnwindSafe, PanicHookInfo, resume_unwind, set_hook, take_hook};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use datafusion::arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use datafusion::physical_plan::ExecutionPlan;
use futures::FutureExt;
use rockmill_core::panic_message;
use rockmill_exec::host_memory::HostMemory;
use rockmill_side_by_side::machine::usual_threads;
use rockmill_sql::{Shares, SpillError, is_panic_of_size, is_too_long, observe_panic, too_long};
use rockmill_terminal::outcome::Failure;

use super::session::{LimitArgs, Stop};

/// Minimum memory, and the memory per thread by default.
const MIN_MEMORY_BYTES: u64 = 64 << 20;
const BYTES_FOR_EACH_THREAD: u64 = 32 << 20;

/// Limits of statements.
pub struct Limits {
    pub threads: usize,
    pub shares: Shares,
    pub spill_dir: PathBuf,
}

impl Limits {
    /// The limits that the arguments state, or that the memory of this process allows.
    ///
    /// # Errors
    /// Usage if statements and the cache together exceed that memory.
    pub fn of(args: &LimitArgs) -> Result<Self, Failure> {
        let host = HostMemory::now();
        let cache_bytes = args.host_cache_bytes()?;
        let left = HostMemory {
            bytes: host.bytes.saturating_sub(cache_bytes),
            ..host.clone()
        };
        let memory_bytes = match args.memory_mib {
            Some(mib) => mib << 20,
            None => left.half().max(MIN_MEMORY_BYTES),
        };
        if cache_bytes > 0 && cache_bytes.saturating_add(memory_bytes) > host.bytes {
            let mib = |bytes: u64| bytes >> 20;
            return Err(Failure::Usage(format!(
                "a cache of {} MiB and {} MiB for statements exceed the memory of {} MiB: give less to --cache or --memory-mib",
                mib(cache_bytes),
                mib(memory_bytes),
                mib(host.bytes)
            )));
        }
        let most_threads = memory_bytes / BYTES_FOR_EACH_THREAD;
        let usual = u64::from(usual_threads()).min(most_threads) as usize;
        Ok(Self {
            threads: args.threads.unwrap_or(usual).max(1),
            shares: Shares::of(memory_bytes),
            spill_dir: args.spill_dir.clone().unwrap_or_else(std::env::temp_dir),
        })
    }
}

/// The failure of a statement that has too little memory or too little space for temporary files; `None` for others.
pub fn failure(error: &DataFusionError) -> Option<Failure> {
    let more = |what: &str| {
        let what = format!("{what}: give the statement more with --memory-mib, or fewer --threads");
        Some(Failure::Environment(what))
    };
    let spill = |error: &std::io::Error| {
        let error = error.get_ref()?.downcast_ref::<SpillError>()?;
        Some(Failure::Environment(format!(
            "{error}: name another folder with --spill-dir"
        )))
    };
    match error.find_root() {
        DataFusionError::IoError(error) => spill(error),
        DataFusionError::ArrowError(error, _) => match &**error {
            ArrowError::IoError(_, error) => spill(error),
            _ => None,
        },
        DataFusionError::ResourcesExhausted(said) => match consumer(said) {
            Some(consumer) => more(&format!("there is too little memory for {consumer}")),
            None => None,
        },
        DataFusionError::External(error) => {
            let error = error.downcast_ref::<rockmill_core::Error>()?;
            match error.kind.is_out_of_memory() {
                true => more(&error.what),
                false => None,
            }
        }
        _ => None,
    }
}

/// Plans and runs a statement. If a column is too long for one batch, the error names those of the plan, which `run` sets
/// once it is known.
///
/// # Errors
/// Those of `run`.
pub async fn within_size<T>(
    plan: &OnceLock<Arc<dyn ExecutionPlan>>,
    run: impl Future<Output = Result<T, Stop>>,
) -> Result<T, Stop> {
    match AssertUnwindSafe(run).catch_unwind().await {
        Ok(Err(Stop::Statement(error))) if is_too_long(&error) => Err(too_long(plan.get()).into()),
        Ok(done) => done,
        Err(panic) if is_panic_of_size(&*panic) => Err(too_long(plan.get()).into()),
        Err(panic) => resume_unwind(panic),
    }
}

/// Prints no message for the panics that [`within_size`] turns into errors, and for those of cancelled tasks.
pub fn print_no_expected_panics() {
    let print = take_hook();
    set_hook(Box::new(move |panic| {
        if !observe_panic(panic) && !is_of_cancelled_task(panic) {
            print(panic);
        }
    }));
}

/// Whether a panic is that of tokio's `JoinSet::join_all` for a cancelled task. datafusion-distributed waits so for its tasks
/// while a failed statement ends the threads.
fn is_of_cancelled_task(panic: &PanicHookInfo<'_>) -> bool {
    let file = panic.location().map_or("", |place| place.file());
    let said = panic_message(panic.payload()).unwrap_or_default();
    file.ends_with("join_set.rs") && said.ends_with("was cancelled")
}

/// The operator whose memory DataFusion's error is about.
fn consumer(said: &str) -> Option<&str> {
    let (_, rest) = said.split_once("llocation failed for ")?;
    let (consumer, _) = rest.split_once(" with top memory consumers")?;
    Some(consumer)
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::{DataType, Field, Schema};
    use datafusion::common::exec_datafusion_err;
    use datafusion::physical_plan::empty::EmptyExec;

    use super::super::error;
    use super::*;

    #[test]
    fn a_column_that_is_too_long_is_a_failure_of_the_environment_that_names_it() {
        print_no_expected_panics();
        let schema = Schema::new(vec![Field::new("body", DataType::Utf8, false)]);
        let plan: Arc<dyn ExecutionPlan> = Arc::new(EmptyExec::new(Arc::new(schema)));
        let plan = OnceLock::from(plan);
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.unwrap().block_on(async {
            let fails = async { Err(exec_datafusion_err!("byte array offset overflow").into()) };
            let panics = async { panic!("offset overflow") };
            let ended: [Result<(), Stop>; 2] = [
                within_size(&plan, fails).await,
                within_size(&plan, panics).await,
            ];
            for done in ended {
                let Err(Stop::Statement(error)) = done else {
                    panic!("{done:?}");
                };
                let failure = error::failure(error);
                assert_eq!(failure.exit_code(), 3);
                let said = failure.to_string();
                assert!(
                    said.starts_with("column body has more than 2 GiB in one batch"),
                    "{said}"
                );
            }
        });
    }
}
