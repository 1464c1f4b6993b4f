use rockmill_core::{CancelToken, ErrorKind, OutputFile, TablePlan};

use super::*;
use crate::driver::faults::{Call, Faults};
use crate::driver::{Device, DeviceMemory, MemoryUser, Target, test_target};
use crate::memory::Placed;

const CHUNK: u64 = 4096;
const KIB: u64 = 1 << 10;
const DEEPEST: u32 = 6;

/// A cache of `limit` bytes in memory of `max_bytes` bytes.
fn cache(device: &Device, max_bytes: Option<u64>, limit: u64) -> Arc<FileCache> {
    let arena = DeviceArena::new(device, max_bytes).expect("a budget");
    let cache = FileCache::new(&arena, CHUNK);
    cache.set_limit(limit);
    cache
}

fn small_cache(max_bytes: u64, limit: u64) -> Arc<FileCache> {
    let device = Device::open(test_target()).expect("the device opens");
    cache(&device, Some(max_bytes), limit)
}

fn file(number: u64, level: u32) -> Cacheable {
    let output = OutputFile {
        number,
        size: number,
        ..OutputFile::default()
    };
    let identity = FileIdentity::of_output(&output, &TablePlan::default());
    Cacheable {
        identity: identity.expect("its blocks have checksums"),
        level,
        database: 1,
    }
}

/// Caches a file of some chunks, as far as there is room.
fn keep(cache: &FileCache, file: &Cacheable, chunks: u64) -> Result<()> {
    let device = cache.arena.device();
    let _current = device.make_current()?;
    let bytes = chunks * CHUNK;
    let from = DeviceMemory::new(device, MemoryUser::Views, bytes)?;
    let stream = Stream::new(device)?;
    // SAFETY: the memory has these bytes, and no other code knows it.
    unsafe { cache.keep_read(file, bytes, 0..bytes, from.as_ptr(), &stream) }
}

fn kept(cache: &FileCache, file: &Cacheable) -> bool {
    cache.has(&file.identity, 0)
}

#[test]
fn while_a_task_waits_for_other_tasks_no_file_leaves_for_it_or_for_a_new_file() {
    let cache = small_cache(64 * KIB, 16 * KIB);
    let (old, new) = (file(1, DEEPEST), file(2, 0));
    keep(&cache, &old, 4).expect("the device works");
    let cancel = CancelToken::new();
    let arena = &cache.arena;
    let held = arena.take(40 * KIB, &cancel).expect("there is room");
    std::thread::scope(|scope| {
        // The cache has too little for it.
        let waits = scope.spawn(|| arena.take(40 * KIB, &cancel).map(drop));
        while !matches!(arena.take_for_cache(CHUNK, CHUNK), Placed::Later) {
            std::thread::yield_now();
        }
        keep(&cache, &new, 4).expect("the device works");
        drop(held);
        waits
            .join()
            .expect("no panic")
            .expect("the first has ended");
    });
    assert!(kept(&cache, &old) && !kept(&cache, &new));
    assert_eq!(cache.accounts().evicted_bytes, 0);
    keep(&cache, &new, 4).expect("the device works");
    assert!(!kept(&cache, &old) && kept(&cache, &new), "nothing waits");
}

#[test]
fn a_task_has_what_the_cache_holds_if_that_suffices() {
    let cache = small_cache(64 * KIB, 32 * KIB);
    let file = file(1, 0);
    keep(&cache, &file, 8).expect("the device works");
    let taken = cache.arena.take(48 * KIB, &CancelToken::new());
    drop(taken.expect("the file makes room"));
    assert!(!kept(&cache, &file));
}

#[test]
fn a_smaller_limit_frees_memory_in_which_little_or_nothing_is_cached() {
    const FILES: u64 = 256;
    let cache = small_cache(u64::MAX, FILES * CHUNK);
    let files: Vec<_> = (0..FILES).map(|number| file(number, 1)).collect();
    for file in &files {
        keep(&cache, file, 1).expect("the device works");
    }
    assert_eq!(cache.arena.bytes(), FILES * CHUNK);
    let limit = 2 * 32 * CHUNK;
    cache.set_limit(limit);
    // One chunk of each region stays. Threads of RocksDB free no memory of a device.
    let gone = files.iter().enumerate().filter(|(at, _)| at % 32 > 0);
    gone.for_each(|(_, file)| cache.forget(&file.identity));
    assert_eq!(cache.arena.bytes(), FILES * CHUNK);
    cache.arena.trim();
    assert_eq!(cache.arena.bytes(), limit);
    assert_eq!(cache.accounts().bytes, 2 * CHUNK);
    cache.set_limit(0);
    files.iter().for_each(|file| cache.forget(&file.identity));
    assert_eq!(cache.arena.bytes(), limit);
    cache.arena.trim();
    assert_eq!(cache.arena.bytes(), 0);
}

#[test]
fn memory_that_a_task_still_reads_costs_no_files_beside_it() {
    let cache = small_cache(1024 * KIB, 64 * CHUNK);
    let [read, beside, other] = [1, 2, 3].map(|number| file(number, 1));
    for (file, chunks) in [(&read, 1), (&beside, 31), (&other, 32)] {
        keep(&cache, file, chunks).expect("the device works");
    }
    let _read_by_a_task = cache.find(&read, 0..CHUNK);
    cache.forget(&read.identity);
    assert_eq!(cache.give_back(1), 32 * CHUNK);
    assert!(kept(&cache, &beside) && !kept(&cache, &other));
}

#[test]
fn files_that_a_compaction_has_read_make_room_for_those_that_it_writes() {
    let cache = small_cache(1024 * KIB, 64 * CHUNK);
    let [read, new, later] = [1, 2, 3].map(|number| file(number, DEEPEST));
    keep(&cache, &read, 64).expect("the device works");
    keep(&cache, &new, 1).expect("the device works");
    assert!(
        !kept(&cache, &new),
        "files of a level do not displace one another"
    );
    // One whole chunk, and parts of two others.
    cache.was_compacted(&read.identity, CHUNK / 2..5 * CHUNK / 2);
    let in_use = cache.find(&read, CHUNK..2 * CHUNK);
    keep(&cache, &new, 1).expect("the device works");
    assert!(!kept(&cache, &new), "a task reads it");
    drop(in_use);
    cache.was_compacted(&read.identity, 62 * CHUNK + 1..64 * CHUNK);
    keep(&cache, &new, 1).expect("the device works");
    keep(&cache, &later, 1).expect("the device works");
    assert!(kept(&cache, &new) && !kept(&cache, &later));
    assert!(cache.has(&read.identity, 62) && !cache.has(&read.identity, 63));
    let accounts = cache.accounts();
    assert_eq!(
        (accounts.bytes, accounts.evicted_bytes),
        (64 * CHUNK, CHUNK)
    );
}

#[test]
fn a_smaller_budget_of_tasks_holds_for_what_is_cached() {
    let cache = small_cache(1024 * KIB, u64::MAX);
    for number in 0..8 {
        keep(&cache, &file(number, 1), 32).expect("the device works");
    }
    assert_eq!(cache.arena.bytes(), 1024 * KIB);
    cache.arena.limit(Some(200 * KIB));
    cache.arena.trim();
    assert!(cache.arena.bytes() <= 200 * KIB);
    assert!(cache.accounts().bytes > 0, "only the excess goes");
}

#[test]
fn the_cache_leaves_memory_free_and_a_view_that_needs_more_gets_it() {
    let faults = Faults::none();
    faults.simulate_memory(1024 * KIB);
    let device = Device::open(Target::Faulty).expect("the host");
    let cache = cache(&device, None, u64::MAX);
    let view = |bytes| DeviceMemory::of(&device, MemoryUser::Views, None, bytes);
    let table = view(300 * KIB).expect("it is free");
    let files: Vec<_> = (0..64).map(|number| file(number, 1)).collect();
    for file in &files {
        keep(&cache, file, 8).expect("the device works");
    }
    let free = device.free_bytes().expect("it reports them");
    assert!(cache.accounts().evicted_bytes == 0 && cache.accounts().bytes > 0);
    assert!(free >= 128 * KIB, "{free}");
    view(free + KIB).expect_err("the device has less");
    let rows = DeviceMemory::for_view(&device, None, free + KIB);
    rows.expect("the cache gives it");
    assert!(cache.accounts().evicted_bytes > 0);
    drop(table);
}

#[test]
fn after_a_device_has_failed_tasks_have_its_error_also_while_files_are_cached() {
    let faults = Faults::none();
    let device = Device::open(Target::Faulty).expect("the host");
    let cache = cache(&device, Some(1024 * KIB), u64::MAX);
    let file = file(1, 1);
    keep(&cache, &file, 1).expect("the device works");
    let _used_by_a_task = cache.find(&file, 0..CHUNK);
    faults.break_down(Call::Allocate, 0);
    let taken = cache.arena.take_now(MemoryUser::Tasks, KIB);
    let error = taken.expect_err("the device has failed");
    assert_eq!(error.kind, ErrorKind::Device);
}

#[test]
fn memory_to_which_a_failed_device_may_still_copy_is_not_used_again() {
    let faults = Faults::none();
    let device = Device::open(Target::Faulty).expect("the host");
    let cache = cache(&device, Some(1024 * KIB), u64::MAX);
    faults.break_down(Call::Wait, 0);
    keep(&cache, &file(1, 1), 1).expect_err("the copy is not known to have ended");
    faults.end();
    assert_eq!(cache.arena.bytes(), 0);
    assert_eq!(cache.arena.give_back_regions(u64::MAX), 0);
    assert!(faults.usage().bytes > 0, "the device has it for ever");
}

/// Caches a group of a file, of about `bytes` bytes, if there is room.
fn keep_group(cache: &FileCache, file: &Cacheable, number: u64, bytes: u64) {
    let shape = GroupShape {
        entries: 1,
        key_bytes: None,
        block_bytes: bytes,
    };
    if let Some(memory) = cache.take_for_group(file, &shape) {
        let group = Group {
            memory: Arc::new(memory),
            shape,
            sum: 0,
        };
        cache.keep_group(file, CHUNK, group_name(number), group);
    }
}

fn group_name(number: u64) -> GroupName {
    GroupName {
        global_sequence: None,
        number,
        is_wide: false,
    }
}

fn has_group(cache: &FileCache, file: &Cacheable, number: u64) -> bool {
    cache.has_group(&file.identity, &group_name(number))
}

#[test]
fn groups_and_chunks_make_room_for_one_another_and_for_tasks() {
    let cache = small_cache(64 * KIB, 64 * KIB);
    let [shallow, deep] = [(1, 0), (2, DEEPEST)].map(|(number, level)| file(number, level));
    (0..10).for_each(|number| keep_group(&cache, &deep, number, 6 * KIB));
    let full = cache.column_accounts().bytes;
    assert!((48 * KIB..=64 * KIB).contains(&full) && has_group(&cache, &deep, 0));
    keep_group(&cache, &shallow, 0, 6 * KIB);
    assert!(has_group(&cache, &shallow, 0) && !has_group(&cache, &deep, 0));
    assert_eq!(cache.column_accounts().evicted_bytes, full);
    keep(&cache, &deep, 12).expect("the device works");
    assert!(has_group(&cache, &shallow, 0) && kept(&cache, &deep));
    let held = cache.find_group(&shallow, &group_name(0), 1);
    let task = || cache.arena.take_now(MemoryUser::Tasks, 60 * KIB);
    task().expect_err("a task uses the group");
    drop(held);
    drop(task().expect("there is room"));
    assert!(!has_group(&cache, &shallow, 0) && !kept(&cache, &deep));
    assert_eq!(
        (cache.column_accounts().bytes, cache.accounts().bytes),
        (0, 0)
    );
}

#[test]
fn groups_leave_with_their_file_and_those_that_have_changed_alone() {
    let cache = small_cache(1024 * KIB, 1024 * KIB);
    let [changed, gone, off] = [1, 2, 3].map(|number| file(number, 1));
    for file in [&changed, &gone] {
        (0..2).for_each(|number| keep_group(&cache, file, number, KIB));
    }
    cache.group_mismatch(&changed.identity, &group_name(0));
    assert!(!has_group(&cache, &changed, 0) && has_group(&cache, &changed, 1));
    assert_eq!(cache.column_accounts().mismatches, 1);
    cache.forget(&gone.identity);
    assert!(has_group(&cache, &changed, 1) && !has_group(&cache, &gone, 1));
    cache.look(1, &|_| false);
    assert_eq!(cache.column_accounts().bytes, 0);
    cache.set_limit(0);
    keep_group(&cache, &off, 0, KIB);
    cache.arena.trim();
    assert!(!has_group(&cache, &off, 0) && cache.arena.bytes() == 0);
}

#[test]
fn a_group_that_fits_into_no_region_evicts_nothing() {
    let cache = small_cache(1024 * KIB, 64 * CHUNK);
    let files: Vec<_> = (0..64).map(|number| file(number, DEEPEST)).collect();
    for file in &files {
        keep(&cache, file, 1).expect("the device works");
    }
    let large = file(64, 0);
    keep_group(&cache, &large, 0, 33 * CHUNK);
    assert!(!has_group(&cache, &large, 0) && files.iter().all(|file| kept(&cache, file)));
    keep_group(&cache, &large, 1, 16 * CHUNK);
    assert!(has_group(&cache, &large, 1));
}

#[test]
fn a_group_for_which_the_device_has_too_little_leaves_it_to_chunks() {
    let faults = Faults::none();
    faults.simulate_memory(1024 * KIB);
    let device = Device::open(Target::Faulty).expect("the host");
    let cache = cache(&device, None, u64::MAX);
    let table = DeviceMemory::of(&device, MemoryUser::Views, None, 300 * KIB);
    let file = file(1, 1);
    keep_group(&cache, &file, 0, 700 * KIB);
    keep(&cache, &file, 1).expect("the device works");
    assert!(!has_group(&cache, &file, 0) && kept(&cache, &file));
    drop(table);
}

#[test]
fn bytes_of_a_group_count_once_as_read() {
    let cache = small_cache(1024 * KIB, 1024 * KIB);
    let file = file(1, 1);
    let read = |number| {
        let found = cache
            .find_group(&file, &group_name(number), CHUNK)
            .is_some();
        if !found {
            cache.find(&file, 0..CHUNK);
        }
        (found, cache.state.lock().clock)
    };
    assert_eq!(read(0), (false, CHUNK));
    keep_group(&cache, &file, 0, KIB);
    assert_eq!(read(0), (true, 2 * CHUNK));
}
