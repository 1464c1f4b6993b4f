//! The file operations of Linux that the standard library and rustix lack, as safe functions. All unsafe code for
//! reading and writing files is here; the crates that use it forbid unsafe code.
//!
//! ```text
//! Queue::submit(Transfer) -> Pending     several reads and writes at once
//!    ring.rs       io_uring: one thread hands them to the kernel and takes them back
//!    threads.rs    where there is no io_uring: some threads that wait for one each
//! Pending::wait() -> memory, bytes moved
//! ```

mod cached;
mod queue;
mod ring;
mod threads;
mod writeback;

pub use cached::{cached_pages, has_disk};
pub use queue::{Direction, Method, Pending, Queue, Transfer};
pub use writeback::start_writeback;
