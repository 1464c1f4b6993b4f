//! `rockmill worker`: runs parts of statements for other machines.

use std::path::PathBuf;

use rockmill_distributed::{Address, Tls, Worker, WorkerSettings};
use rockmill_side_by_side::scratch_dir::Scratch;
use rockmill_sql::{is_panic_caught, observe_panic};
use rockmill_terminal::outcome::Failure;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

use crate::say;
use crate::sql::RUNNING_STACK_BYTES;
use crate::sql::error::failure;
use crate::sql::memory::Limits;
use crate::sql::session::LimitArgs;

/// Arguments of `rockmill worker`.
#[derive(Debug, clap::Args)]
pub struct WorkerArgs {
    /// Address at which coordinators connect. Without --tls it must be a loopback address, such as 127.0.0.1:7400.
    #[arg(long, value_name = "HOST:PORT")]
    listen: Address,
    /// Folder of the databases. Files outside of it are not read, and nothing is written.
    #[arg(long, value_name = "DIR")]
    root: PathBuf,
    /// Folder with ca.pem, cert.pem and key.pem. Coordinators need a certificate of the same authority.
    #[arg(long, value_name = "DIR")]
    tls: Option<PathBuf>,
    /// Devices, threads and memory of all statements together.
    #[command(flatten)]
    limits: LimitArgs,
}

/// Help below the arguments.
pub const EXAMPLES: &str = "Examples:
  rockmill worker --listen 127.0.0.1:7400 --root /data
  rockmill worker --listen 0.0.0.0:7400 --root /data --tls /etc/rockmill/pki";

/// Name of the threads on which statements run.
const STATEMENT_THREAD: &str = "statement";

/// Ends the process at a panic that does not become the error of a statement. The distributed engine never joins the task
/// of a partition, so the rows that it had sent would look complete. Requests, nodes of plans and the executor's own
/// threads catch panics. Messages with rows and threads for blocking work remain.
fn end_at_panics() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        observe_panic(panic);
        let is_of_statement = std::thread::current().name() == Some(STATEMENT_THREAD);
        if is_of_statement && !is_panic_caught() {
            std::process::abort();
        }
    }));
}

/// Runs `rockmill worker` until Control-C or SIGTERM comes.
///
/// # Errors
/// Environment if the root, the certificate or the address cannot be used.
pub fn run(args: &WorkerArgs) -> Result<(), Failure> {
    let environment = |what: String| Failure::Environment(what);
    let limits = Limits::of(&args.limits)?;
    let tls = args.tls.as_deref().map(Tls::read).transpose();
    let tls = tls.map_err(|e| environment(e.to_string()))?;
    let query_bytes = limits.shares.query_bytes;
    let queries = rockmill_sql::runtime(query_bytes, Some(&limits.spill_dir));
    let settings = WorkerSettings {
        root: args.root.clone(),
        tls,
        scans: args.limits.scans(&limits)?,
        runtime: queries.map_err(failure)?,
        query_bytes,
    };
    // The process's end does not wait for statements, so their temporary folders lie in one that is removed. The next
    // worker removes that of a worker that was killed.
    let temporary = Scratch::new(&std::env::temp_dir()).map_err(|e| environment(e.to_string()))?;
    let _ = tempfile::env::override_temp_dir(temporary.path());
    end_at_panics();
    let worker = Worker::new(settings);
    let worker = worker.map_err(|e| Failure::of_path(&args.root, &e))?;
    let runtime = Builder::new_multi_thread()
        .enable_all()
        .thread_name(STATEMENT_THREAD)
        .thread_stack_size(RUNNING_STACK_BYTES)
        .build();
    let runtime = runtime.map_err(|e| environment(format!("no threads: {e}")))?;
    let served = runtime.block_on(async {
        let no_signals = |e: std::io::Error| environment(format!("no signals: {e}"));
        let mut interrupted = signal(SignalKind::interrupt()).map_err(no_signals)?;
        let mut terminated = signal(SignalKind::terminate()).map_err(no_signals)?;
        let refused = |e: std::io::Error| environment(format!("{}: {e}", args.listen));
        let listener = worker.listen(&args.listen).await.map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        say([format!("worker listens at {address}")]);
        let stop = async {
            tokio::select! {
                _ = interrupted.recv() => {}
                _ = terminated.recv() => {}
            }
        };
        let served = worker.serve(listener, stop).await;
        served.map_err(|e| environment(format!("{}: {e}", args.listen)))
    });
    // Statements that still run are abandoned, but no task is dropped: a stream whose task is gone ends as if it had sent
    // all rows. The end of the process cuts the connections.
    std::mem::forget(runtime);
    drop(temporary);
    served
}
