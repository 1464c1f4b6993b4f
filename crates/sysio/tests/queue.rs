//! Every implementation of transfers gives the same results.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rockmill_sysio::{Direction, Method, Queue, Transfer};
use rockmill_testkit::machine::skipped;
use tempfile::NamedTempFile;

const FILE_BYTES: usize = 1 << 20;

/// The implementations that this machine allows: containers often forbid io_uring.
fn queues() -> Vec<Queue> {
    let ring = Queue::with(Method::Ring);
    if let Err(e) = &ring {
        skipped(&format!("no io_uring here: {e}"));
    }
    let threads = Queue::with(Method::Threads).expect("threads");
    ring.into_iter().chain([threads]).collect()
}

fn pattern() -> Vec<u8> {
    (0..FILE_BYTES).map(|i| (i * i / 251) as u8).collect()
}

fn filled() -> (NamedTempFile, Arc<File>) {
    let named = NamedTempFile::new().expect("a file");
    let file = OpenOptions::new().read(true).write(true).open(named.path());
    let file = file.expect("it is there");
    file.write_all_at(&pattern(), 0).expect("room");
    (named, Arc::new(file))
}

fn read(file: &Arc<File>, offset: u64, len: usize) -> Transfer<Vec<u8>> {
    Transfer {
        file: Arc::clone(file),
        direction: Direction::Read,
        memory: vec![0; len + 20],
        range: 10..10 + len,
        offset,
    }
}

#[test]
fn many_reads_at_once_each_get_their_bytes() {
    let (_named, file) = filled();
    let whole = pattern();
    for queue in queues() {
        let ranges: Vec<_> = (0..300).map(|i| (i * 3491, 1 + i * 37)).collect();
        let begun: Vec<_> = ranges
            .iter()
            .map(|&(offset, len)| queue.submit(read(&file, offset as u64, len)))
            .collect();
        // Waits in another order than that of submission.
        for (pending, (offset, len)) in begun.into_iter().zip(ranges).rev() {
            let (memory, done) = pending.wait();
            let memory = memory.expect("it comes back");
            let len = len.min(FILE_BYTES - offset.min(FILE_BYTES));
            assert_eq!(done.expect("a sound file"), len);
            assert_eq!(memory[10..10 + len], whole[offset..offset + len]);
            assert!(memory[..10].iter().all(|&b| b == 0));
        }
    }
}

#[test]
fn writes_leave_what_lies_beside_them() {
    for queue in queues() {
        let (_named, file) = filled();
        let mut whole = pattern();
        let begun: Vec<_> = (0..100)
            .map(|i| {
                let (offset, byte) = (i * 10_000, i as u8);
                whole[offset..offset + 5000].fill(byte);
                queue.submit(Transfer {
                    file: Arc::clone(&file),
                    direction: Direction::Write,
                    memory: vec![byte; 6000],
                    range: 500..5500,
                    offset: offset as u64,
                })
            })
            .collect();
        for pending in begun {
            assert_eq!(pending.wait().1.expect("room"), 5000);
        }
        let mut found = vec![0; FILE_BYTES];
        file.read_exact_at(&mut found, 0).expect("a sound file");
        assert!(found == whole);
    }
}

#[test]
fn errors_come_from_the_system_and_concern_nobody_else() {
    let (named, file) = filled();
    let deaf = Arc::new(File::create(named.path()).expect("it is there"));
    file.write_all_at(&pattern(), 0).expect("room");
    for queue in queues() {
        let refused = queue.submit(read(&deaf, 0, 100));
        let sound = queue.submit(read(&file, 0, 100));
        assert!(refused.wait().1.is_err());
        assert_eq!(sound.wait().1.expect("a sound file"), 100);
        let behind = queue.submit(read(&file, 1 << 40, 100));
        assert_eq!(behind.wait().1.expect("nothing is there"), 0);
    }
}

#[test]
fn what_was_submitted_is_done_when_a_queue_stops_and_also_behind() {
    for queue in queues() {
        let (_named, file) = filled();
        let kept = queue.submit(read(&file, 5, 1000));
        for i in 0..200 {
            // These are not waited for.
            drop(queue.submit(read(&file, i, 100_000)));
        }
        queue.stop();
        let (memory, done) = kept.wait();
        let memory = memory.expect("it comes back");
        assert_eq!(done.expect("a sound file"), 1000);
        assert_eq!(memory[10..1010], pattern()[5..1005]);
        let late = queue.submit(read(&file, 0, 7)).wait();
        assert_eq!(late.1.expect("a sound file"), 7);
        queue.stop();
    }
}

#[test]
fn whoever_waits_hears_of_it_when_a_queue_is_dropped() {
    const MANY: u64 = 20_000;
    let whole = pattern();
    for queue in queues() {
        let (_named, file) = filled();
        let begun: Vec<_> = (0..MANY)
            .map(|i| queue.submit(read(&file, i, 4096)))
            .collect();
        drop(queue);
        for (i, pending) in begun.into_iter().enumerate() {
            match pending.wait() {
                (Some(memory), Ok(bytes)) => {
                    assert_eq!(bytes, 4096);
                    assert_eq!(memory[10..4106], whole[i..i + 4096]);
                }
                (None, Err(e)) => assert!(e.to_string().contains("was dropped"), "{e}"),
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Forbids the calling thread, and threads that it starts, to set up an io_uring, as containers do.
fn forbid_io_uring() {
    let step = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let (load, equal) = (
        libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
        libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
    );
    let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    let mut steps = [
        // The number of the system call is the first field that a filter sees.
        step(load, 0, 0, 0),
        step(equal, 0, 1, libc::SYS_io_uring_setup as u32),
        step(libc::BPF_RET, 0, 0, refused),
        step(libc::BPF_RET, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_mut_ptr(),
    };
    // SAFETY: the kernel copies the program, which lives until both calls have returned.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const program,
            ) == 0
    };
    assert!(done, "{}", io::Error::last_os_error());
}

#[test]
fn threads_do_it_where_io_uring_is_forbidden() {
    let (_named, file) = filled();
    let forbidden = std::thread::spawn(move || {
        forbid_io_uring();
        let refused = Queue::with(Method::Ring).expect_err("it is forbidden");
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        let queue = Queue::new().expect("threads");
        assert_eq!(queue.method(), Method::Threads);
        queue.submit(read(&file, 7, 5000)).wait()
    });
    let (memory, done) = forbidden.join().expect("no panic");
    assert_eq!(done.expect("a sound file"), 5000);
    let memory = memory.expect("it comes back");
    assert_eq!(memory[10..5010], pattern()[7..5007]);
}

#[test]
fn a_range_beyond_the_memory_is_cut() -> io::Result<()> {
    let (_named, file) = filled();
    for queue in queues() {
        let transfer = Transfer {
            range: 5..1000,
            memory: vec![0; 8],
            ..read(&file, 0, 0)
        };
        assert_eq!(queue.submit(transfer).wait().1?, 3);
    }
    Ok(())
}
