//! `rockmill worker`: runs parts of statements for other machines.

use std::path::PathBuf;

use rockmill_distributed::{Address, Tls, Worker, WorkerSettings};
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
    let worker = Worker::new(settings);
    let worker = worker.map_err(|e| environment(format!("{}: {e}", args.root.display())))?;
    let runtime = Builder::new_multi_thread()
        .enable_all()
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
    // Statements that still run are abandoned.
    runtime.shutdown_background();
    served
}
