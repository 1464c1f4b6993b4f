//! Every way of doing transfers does the same.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rockmill_sysio::{Direction, Method, Queue, Transfer};
use tempfile::NamedTempFile;

const FILE_BYTES: usize = 1 << 20;

/// The queues that this machine can have: containers often forbid io_uring.
fn queues() -> Vec<Queue> {
    let ring = Queue::with(Method::Ring);
    if let Err(e) = &ring {
        println!("no io_uring here: {e}");
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

fn read(file: &Arc<File>, offset: u64, len: usize) -> Transfer {
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
        // Waited for in another order than they were submitted in.
        for (pending, (offset, len)) in begun.into_iter().zip(ranges).rev() {
            let (memory, done) = pending.wait();
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
            // Nobody waits for these.
            drop(queue.submit(read(&file, i, 100_000)));
        }
        queue.stop();
        let (memory, done) = kept.wait();
        assert_eq!(done.expect("a sound file"), 1000);
        assert_eq!(memory[10..1010], pattern()[5..1005]);
        let late = queue.submit(read(&file, 0, 7)).wait();
        assert_eq!(late.1.expect("a sound file"), 7);
        queue.stop();
    }
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
