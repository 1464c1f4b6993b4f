//! Transfers by threads, each of which waits for one.

use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use crate::queue::{Shared, run};

/// Transfers at once.
const THREADS: usize = 4;

/// Starts as many threads as the system gives.
pub fn start() -> io::Result<(Arc<Shared>, Vec<JoinHandle<()>>)> {
    let shared = Arc::<Shared>::default();
    let mut threads = Vec::new();
    for _ in 0..THREADS {
        let shared = Arc::clone(&shared);
        let spawned = Builder::new()
            .name("rockmill-io".to_owned())
            .spawn(move || work(&shared));
        match spawned {
            Ok(thread) => threads.push(thread),
            Err(e) if threads.is_empty() => return Err(e),
            Err(_) => break,
        }
    }
    Ok((shared, threads))
}

fn work(shared: &Shared) {
    let mut requests = shared.lock();
    loop {
        if let Some(task) = requests.tasks.pop_front() {
            drop(requests);
            run(task);
            requests = shared.lock();
        } else if requests.is_stopped {
            break;
        } else {
            requests = shared.wait(requests);
        }
    }
    drop(requests);
    shared.leave();
}
