//! Transfers by `io_uring`: one thread owns the ring, submits transfers to the kernel and takes the completions.
//!
//! The thread sleeps in the kernel until a transfer is done or a byte arrives on the wakeup socket. A table of the
//! thread owns the memory and file of each transfer until its completion was seen, even if the waiting thread has given
//! up.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use crate::queue::{Direction, Shared, Task, run};
use io_uring::{IoUring, Probe, opcode, squeue, types};

/// Maximum transfers that the kernel has at once; others wait.
const MOST_IN_FLIGHT: usize = 64;

/// Entries of a ring: the transfers and the wakeup socket.
const ENTRIES: u32 = 2 * MOST_IN_FLIGHT as u32;

/// Wakeups that are read at once.
const WAKEUP_BYTES: usize = 256;

/// User data of the completion for the wakeup socket.
const WAKEUP: u64 = u64::MAX;

/// A ring with its thread.
///
/// # Errors
/// The system's error; Unsupported if the kernel's rings do not read and write.
pub fn start() -> io::Result<(Arc<Shared>, Vec<JoinHandle<()>>)> {
    let ring = IoUring::builder().dontfork().build(ENTRIES)?;
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    let needed = [
        opcode::Read::CODE,
        opcode::Write::CODE,
        opcode::PollAdd::CODE,
    ];
    if !needed.into_iter().all(|code| probe.is_supported(code)) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let (wakeup, waker) = UnixStream::pair()?;
    wakeup.set_nonblocking(true)?;
    waker.set_nonblocking(true)?;
    let shared = Arc::new(Shared::with_waker(waker));
    let worker = Worker {
        ring,
        wakeup,
        shared: Arc::clone(&shared),
        in_flight: InFlight::default(),
        waiting: VecDeque::new(),
        polls_wakeup: false,
    };
    let thread = Builder::new()
        .name("rockmill-io".to_owned())
        .spawn(move || worker.work())?;
    Ok((shared, vec![thread]))
}

struct Worker {
    ring: IoUring,
    wakeup: UnixStream,
    shared: Arc<Shared>,
    in_flight: InFlight,
    /// Transfers that the thread has taken and not submitted yet.
    waiting: VecDeque<Task>,
    /// Whether a poll of the wakeup socket is submitted.
    polls_wakeup: bool,
}

/// Tasks in the kernel, by number.
#[derive(Default)]
struct InFlight {
    tasks: Vec<Option<Task>>,
    free: Vec<usize>,
}

impl InFlight {
    fn len(&self) -> usize {
        self.tasks.len() - self.free.len()
    }

    /// Stores a task and returns the entry for the kernel.
    fn add(&mut self, mut task: Task) -> squeue::Entry {
        let fd = types::Fd(task.file().as_raw_fd());
        let (direction, offset) = (task.direction(), task.offset());
        let bytes = task.bytes();
        // The kernel does not move more at once either.
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let address = bytes.as_mut_ptr();
        let entry = match direction {
            Direction::Read => opcode::Read::new(fd, address, len).offset(offset).build(),
            Direction::Write => opcode::Write::new(fd, address, len).offset(offset).build(),
        };
        let number = self.free.pop().unwrap_or_else(|| {
            self.tasks.push(None);
            self.tasks.len() - 1
        });
        // The memory stays where it is when the box moves.
        self.tasks[number] = Some(task);
        entry.user_data(number as u64)
    }

    fn take(&mut self, number: u64) -> Option<Task> {
        let number = usize::try_from(number).ok()?;
        let task = self.tasks.get_mut(number)?.take()?;
        self.free.push(number);
        Some(task)
    }
}

impl Worker {
    fn work(mut self) {
        let mut result = Ok(());
        while result.is_ok() {
            let is_stopped = self.take_over();
            if is_stopped && self.waiting.is_empty() && self.in_flight.len() == 0 {
                break;
            }
            self.give();
            result = match self.ring.submit_and_wait(1) {
                Err(e) if is_passing(&e) => Ok(()),
                done => done.map(drop),
            };
            self.take_back();
        }
    }

    /// Takes submitted transfers that may begin soon. Returns whether the queue is closed.
    fn take_over(&mut self) -> bool {
        let mut requests = self.shared.lock();
        let room = MOST_IN_FLIGHT - self.waiting.len();
        let now = room.min(requests.tasks.len());
        self.waiting.extend(requests.tasks.drain(..now));
        requests.is_stopped
    }

    /// Submits waiting transfers to the kernel.
    fn give(&mut self) {
        let mut entries = self.ring.submission();
        if !self.polls_wakeup {
            let fd = types::Fd(self.wakeup.as_raw_fd());
            let entry = opcode::PollAdd::new(fd, libc::POLLIN as u32).build();
            // SAFETY: no memory is passed, and the socket is closed after the ring.
            self.polls_wakeup = unsafe { entries.push(&entry.user_data(WAKEUP)) }.is_ok();
        }
        while self.in_flight.len() < MOST_IN_FLIGHT && !entries.is_full() {
            let Some(task) = self.waiting.pop_front() else {
                break;
            };
            let entry = self.in_flight.add(task);
            // SAFETY: the table holds the memory and the file until the completion with this number was taken from the
            // ring, or for ever if that is impossible; no other code touches the memory.
            let pushed = unsafe { entries.push(&entry) };
            debug_assert!(pushed.is_ok(), "there was room");
        }
    }

    /// Takes completions from the kernel.
    fn take_back(&mut self) {
        let completions: Vec<_> = self.ring.completion().collect();
        for completion in completions {
            if completion.user_data() == WAKEUP {
                self.polls_wakeup = false;
                // Clears the wakeups; it does not block.
                let _ = self.wakeup.read(&mut [0; WAKEUP_BYTES]);
            } else if let Some(task) = self.in_flight.take(completion.user_data()) {
                finish(task, completion.result());
            }
        }
    }

    /// The ring does not work any more. Transfers that the kernel does not have are done here. The memory of the others
    /// is leaked.
    fn abandon(&mut self) {
        let mut requests = self.shared.lock();
        requests.is_stopped = true;
        self.waiting.append(&mut requests.tasks);
        drop(requests);
        self.waiting.drain(..).for_each(run);
        for task in std::mem::take(&mut self.in_flight.tasks)
            .into_iter()
            .flatten()
        {
            task.fail("the queue of reads and writes broke");
            std::mem::forget(task);
        }
    }
}

impl Drop for Worker {
    /// However the thread ends, no thread waits for it any more, and memory that the kernel may still use stays
    /// allocated.
    fn drop(&mut self) {
        self.abandon();
        self.shared.leave();
    }
}

/// Whether the call has to be repeated.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)
    )
}

fn finish(task: Task, result: i32) {
    match usize::try_from(result) {
        Ok(bytes) => task.complete(Ok(bytes)),
        Err(_) => match io::Error::from_raw_os_error(result.saturating_neg()) {
            e if is_passing(&e) || e.raw_os_error() == Some(libc::ECANCELED) => run(task),
            e => task.complete(Err(e)),
        },
    }
}
