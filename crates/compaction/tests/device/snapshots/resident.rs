//! A table finds each key that a snapshot sees, and no other.

use std::collections::BTreeMap;
use std::ptr;

use proptest::prelude::*;
use rockmill_core::{
    Backend, CancelToken, Error, ErrorKind, InputTable, KeyRange, NeedsMerge, Operator, Output,
    Purpose, ReadTask, ResidentTable, Result, RowOutput, SnapshotRules, Support, Tombstones,
    Unsupported, Visibility,
};
use rockmill_cpu::CpuBackend;
use rockmill_cuda::faults::Faults;
use rockmill_cuda::{
    CallerStream, CudaBackend, CudaSettings, DeviceTable, IdForm, Integer, Keys, LookupResult,
    Rows, TableContents, TableSettings, Target, Unanswered,
};
use rockmill_format::key::MAX_SEQUENCE;

use super::{device, drawn, model, request};
use crate::common::{self, Entry, PUT, config, open};

const ALL: SnapshotRules = SnapshotRules {
    sequence: MAX_SEQUENCE,
    tombstones: Tombstones::Drop,
    needs_merge: NeedsMerge::Mark,
    deleted: None,
};

pub fn settings(keys: u64) -> TableSettings<'static> {
    TableSettings {
        keys,
        memory_bytes: 1 << 30,
        reservation: None,
        seed: 7,
        hash_mask: u64::MAX,
        outside: &[],
    }
}

/// Stores the rows of a range in a table.
pub fn place(
    backend: &CudaBackend,
    tables: &[InputTable],
    range: &KeyRange,
    rules: SnapshotRules,
    table: &dyn ResidentTable,
) -> Result<RowOutput> {
    let visibility = Visibility::Snapshot(rules);
    let request = request(tables, range, visibility, Purpose::Resident);
    backend.supports(&request).check()?;
    let task = ReadTask {
        reading: request.reading,
        cancel: &CancelToken::new(),
        progress: None,
    };
    let report = backend.run(task, Operator::Resident { table })?;
    assert!(report.read.is_balanced() && report.files().is_empty());
    match report.output {
        Output::Rows(rows) => Ok(rows),
        _ => Err(Error::internal("no rows")),
    }
}

/// A table of valid entries that are sorted.
fn table_of(backend: &CudaBackend, entries: &[Entry], settings: &TableSettings<'_>) -> DeviceTable {
    let table = DeviceTable::new(backend.device(), settings).expect("a table");
    let input = open(common::one_file(&common::plan(), entries)).expect("sound");
    place(backend, &[input], &KeyRange::default(), ALL, &table).expect("placed");
    table
}

pub fn numbered(numbers: std::ops::Range<u32>) -> Vec<Entry> {
    let entry = |n: u32| Entry::new(&n.to_be_bytes(), 1, PUT, &common::noise(u64::from(n), 20));
    numbers.map(entry).collect()
}

pub fn get(table: &DeviceTable, keys: &[&[u8]]) -> Vec<LookupResult> {
    table.get(keys).expect("answers")
}

/// Masks of hashes: all bits, four buckets in which tags have one bit, and one bucket in which all hashes are equal.
pub const MASKS: [u64; 3] = [u64::MAX, 3 << 62 | 1, 0];

proptest! {
    #![proptest_config(config(400))]

    #[test]
    fn a_table_has_what_the_snapshot_sees_and_nothing_else(
        runs in drawn::runs(),
        plan in common::plans::table_plans(),
        sequence in 0..50u64,
        seed: u64,
        hash_mask in prop::sample::select(MASKS.to_vec()),
        middle: prop::sample::Index,
        bounds in prop::option::of(any::<[Option<prop::sample::Index>; 2]>()),
        more_keys in prop_oneof![Just(0), 0..1000u64],
    ) {
        let tables = drawn::tables(&runs, &plan);
        let rules = SnapshotRules { sequence, ..ALL };
        let all = KeyRange::default();
        let (rows, report) = model::read(&runs, &all, &rules).expect("all is marked");
        let mut keys: Vec<Vec<u8>> = runs.iter().flat_map(|run| run.keys().cloned()).collect();
        for i in 0..keys.len() {
            let mut key = keys[i].clone();
            key.push(0);
            keys.push(key);
        }
        keys.extend([vec![], vec![0], vec![0xff; 100_000]]);
        // Keys of a range are left out.
        let outside = bounds.map(|bounds| drawn::range(&runs, bounds, false));
        let outside: Vec<_> = outside.into_iter().collect();
        let is_outside = |key: &[u8]| outside.iter().any(|range| range.contains(key));
        let given = TableSettings {
            keys: report.kept + more_keys,
            seed,
            hash_mask,
            outside: &outside,
            ..settings(0)
        };
        let table = DeviceTable::new(device().device(), &given).expect("a table");
        // Two tasks store the others, one for the keys on each side of a border.
        let middle = keys[middle.index(keys.len())].clone();
        let parts = [
            KeyRange { begin: None, end: Some(middle.clone()) },
            KeyRange { begin: Some(middle), end: None },
        ];
        let inside = match &outside[..] {
            [] => vec![all],
            [outside, ..] => [
                outside.begin.clone().map(|end| KeyRange { begin: None, end: Some(end) }),
                outside.end.clone().map(|begin| KeyRange { begin: Some(begin), end: None }),
            ].into_iter().flatten().collect(),
        };
        for range in &inside {
            for part in &parts {
                let larger = |a: &Option<Vec<u8>>, b: &Option<Vec<u8>>| a.clone().max(b.clone());
                let begin = larger(&range.begin, &part.begin);
                let end = [&range.end, &part.end].into_iter().flatten().min().cloned();
                place(device(), &tables, &KeyRange { begin, end }, rules, &table).expect("placed");
            }
        }
        let placed: Vec<_> = rows.iter().filter(|row| !is_outside(&row.key)).collect();
        let contents = table.contents();
        let asks = placed.iter().filter(|row| row.kind() != PUT).count() as u64;
        prop_assert_eq!((contents.keys, contents.needs_host), (placed.len() as u64 - asks, asks));
        prop_assert_eq!(contents.left_over, 0);
        let meant: BTreeMap<_, _> = placed.iter().map(|row| (&row.key, *row)).collect();
        let refs: Vec<_> = keys.iter().map(Vec::as_slice).collect();
        for (key, answer) in keys.iter().zip(get(&table, &refs)) {
            match meant.get(key) {
                _ if is_outside(key) => prop_assert_eq!(answer, LookupResult::NeedsHost),
                Some(row) if row.kind() == PUT => prop_assert_eq!(answer, LookupResult::Found(row.value.clone())),
                Some(_) => prop_assert_eq!(answer, LookupResult::NeedsHost),
                None => prop_assert_eq!(answer, LookupResult::NotFound),
            }
        }
    }
}

#[test]
fn absent_keys_are_not_asked_for_because_of_others_without_a_value() {
    const MERGE: u8 = 2;
    let entries = (0..2000u32).map(|n| Entry::new(&n.to_be_bytes(), 1, MERGE, b"operand"));
    let entries: Vec<_> = entries.collect();
    let table = table_of(device(), &entries, &settings(2000));
    // 20 bits of a hash are equal once in a million pairs, of which there are 16 for each key.
    let absent: Vec<_> = (1_000_000..1_200_000).map(u32::to_be_bytes).collect();
    let absent: Vec<_> = absent.iter().map(|key| &key[..]).collect();
    let answers = get(&table, &absent);
    assert!(
        answers
            .iter()
            .all(|answer| *answer == LookupResult::NotFound)
    );
    assert!(get(&table, &[&entries[7].key]) == [LookupResult::NeedsHost]);
}

#[test]
fn buckets_that_are_full_go_on_in_the_next_ones_and_runs_have_an_end() {
    let keys = numbered(0..1024);
    let refs: Vec<_> = keys.iter().map(|entry| entry.key.as_slice()).collect();
    // One bucket more than the keys fill, and as many equal hashes as a run has slots.
    for (keys_foreseen, hash_mask) in [(820, u64::MAX), (100_000, 0)] {
        let given = TableSettings {
            hash_mask,
            ..settings(keys_foreseen)
        };
        let table = table_of(device(), &keys, &given);
        assert_eq!(table.contents().left_over, 0);
        for (entry, answer) in keys.iter().zip(get(&table, &refs)) {
            assert_eq!(answer, LookupResult::Found(entry.value.clone()));
        }
        assert!(get(&table, &[b"absent"]) == [LookupResult::NotFound]);
    }
    let equal = TableSettings {
        hash_mask: 0,
        ..settings(100_000)
    };
    let table = table_of(device(), &numbered(0..1030), &equal);
    assert_eq!(table.contents().left_over, 6);
}

#[test]
fn keys_and_values_of_any_length_are_found() {
    let lens = [0, 1, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 100, 70_000];
    let mut entries = Vec::new();
    for (i, &key_len) in lens.iter().enumerate() {
        for (j, &value_len) in lens.iter().enumerate() {
            let mut key = common::noise((i * 100 + j) as u64, key_len);
            if key_len > 1 {
                key[0] = j as u8;
            }
            entries.push(Entry::new(
                &key,
                1,
                PUT,
                &common::noise(j as u64, value_len),
            ));
        }
    }
    entries.sort_by_key(Entry::order);
    entries.dedup_by(|a, b| a.key == b.key);
    let table = table_of(device(), &entries, &settings(entries.len() as u64));
    let refs: Vec<_> = entries.iter().map(|entry| entry.key.as_slice()).collect();
    for (entry, answer) in entries.iter().zip(get(&table, &refs)) {
        assert!(
            answer == LookupResult::Found(entry.value.clone()),
            "{}",
            entry.key.len()
        );
    }
    let bytes = entries
        .iter()
        .map(|entry| DeviceTable::record_bytes(entry.key.len() as u64, entry.value.len() as u64));
    assert_eq!(table.contents().record_bytes, bytes.sum::<u64>());
    assert_eq!(DeviceTable::record_bytes(16, 64), 96);
    assert!(get(&table, &[]).is_empty());
}

/// The kernels on the host, whose memory the test owns.
fn on_host() -> CudaBackend {
    CudaBackend::new(Target::Host, CudaSettings::default()).expect("the host")
}

#[test]
fn rows_have_values_the_default_or_what_they_had() {
    const STRIDE: usize = 24;
    let entries = [("a", 24), ("b", 25), ("c", 0), ("d", 5)]
        .map(|(key, len)| Entry::new(key.as_bytes(), 1, PUT, &vec![key.as_bytes()[0]; len]));
    let table = table_of(&on_host(), &entries, &settings(4));
    let keys = b"abcdxda";
    let offsets: Vec<u64> = (0..=keys.len() as u64).collect();
    let n = keys.len() as u64;
    let default_row = [9u8; STRIDE];
    for has_default in [false, true] {
        for is_varied in [false, true] {
            let mut memory = vec![1u8; STRIDE * keys.len()];
            let (mut statuses, mut sizes) = (vec![7u8; keys.len()], vec![7u32; keys.len()]);
            // SAFETY: the host's kernels use this memory before the call returns.
            unsafe {
                let keys = match is_varied {
                    true => Keys::varied(keys.as_ptr(), offsets.as_ptr(), n),
                    false => Keys::fixed(keys.as_ptr(), 1, n),
                };
                let rows = Rows::new(memory.as_mut_ptr(), STRIDE as u64, statuses.as_mut_ptr());
                let mut rows = rows.with_sizes(sizes.as_mut_ptr());
                if has_default {
                    rows = rows.with_default(default_row.as_ptr());
                }
                let stream = CallerStream::new(ptr::null_mut());
                table.look_up(&keys, &rows, stream).expect("looked up");
            }
            assert_eq!(
                statuses,
                [
                    Rows::FOUND,
                    Rows::TOO_SMALL,
                    Rows::FOUND,
                    Rows::FOUND,
                    Rows::NOT_FOUND,
                    Rows::FOUND,
                    Rows::FOUND
                ]
            );
            assert_eq!(sizes, [24, 25, 0, 5, 0, 5, 24]);
            let untouched = [1u8; STRIDE];
            let mut d = untouched;
            d[..5].fill(b'd');
            let absent = if has_default { default_row } else { untouched };
            let meant = [
                [b'a'; STRIDE],
                untouched,
                untouched,
                d,
                absent,
                d,
                [b'a'; STRIDE],
            ];
            assert_eq!(memory, meant.concat());
        }
    }
}

#[test]
fn rows_are_cleared_and_may_need_values_of_their_size() {
    const LENS: [usize; 7] = [0, 1, 15, 16, 17, 39, 40];
    let entries: Vec<_> = (0u8..)
        .zip(LENS)
        .map(|(key, len)| Entry::new(&[key], 1, PUT, &vec![b'v'; len]))
        .collect();
    let backend = on_host();
    let table = table_of(&backend, &entries, &settings(LENS.len() as u64));
    let keys: Vec<u8> = (0..=LENS.len() as u8).collect();
    for stride in [39, 40, 48] {
        for is_exact in [false, true] {
            let unanswered = Unanswered::new(backend.device()).expect("a word");
            let mut memory = vec![0xee_u8; stride * keys.len()];
            let mut found = vec![7u8; keys.len()];
            // SAFETY: the host's kernels use this memory before the call returns.
            unsafe {
                let rows = Rows::new(memory.as_mut_ptr(), stride as u64, ptr::null_mut());
                let rows = rows.with_found(found.as_mut_ptr()).cleared();
                let rows = rows.with_unanswered(&unanswered);
                let rows = if is_exact { rows.exact() } else { rows };
                let keys = Keys::fixed(keys.as_ptr(), 1, keys.len() as u64);
                let stream = CallerStream::new(ptr::null_mut());
                table.look_up(&keys, &rows, stream).expect("looked up");
            }
            let fits = |len: usize| len <= stride && (!is_exact || len == stride);
            for (i, row) in memory.chunks(stride).enumerate() {
                let len = LENS.get(i).copied().filter(|&len| fits(len));
                assert_eq!(found[i], u8::from(len.is_some()), "{i} {stride}");
                if let Some(len) = len {
                    assert!(row[..len].iter().all(|&byte| byte == b'v'), "{i} {stride}");
                }
                let rest = &row[len.unwrap_or(0)..];
                assert!(rest.iter().all(|&byte| byte == 0), "{i} {stride}");
            }
            let worst = if LENS.into_iter().all(fits) {
                0
            } else {
                Rows::TOO_SMALL
            };
            assert_eq!(unanswered.take(), worst);
            assert_eq!(unanswered.take(), 0);
        }
    }
}

/// A type of integers, and its numbers.
fn integer() -> impl Strategy<Value = (Integer, std::ops::RangeInclusive<i128>)> {
    (
        prop_oneof![Just(1u8), Just(2), Just(4), Just(8)],
        any::<bool>(),
    )
        .prop_map(|(bytes, is_signed)| {
            let bits = 8 * u32::from(bytes);
            let numbers = match is_signed {
                true => -(1i128 << (bits - 1))..=(1i128 << (bits - 1)) - 1,
                false => 0..=(1i128 << bits) - 1,
            };
            (Integer { bytes, is_signed }, numbers)
        })
}

proptest! {
    #![proptest_config(config(200))]

    #[test]
    fn integers_find_the_keys_of_their_form_and_no_others(
        (id, ids) in integer(),
        (key, keys) in integer(),
        is_big_endian: bool,
        prefix in prop::collection::vec(any::<u8>(), 0..=IdForm::MAX_PREFIX),
        seed: u64,
    ) {
        // Those at the edges of all types, and some around zero.
        let mut numbers: Vec<i128> = (-40..40).collect();
        for bits in [7, 8, 15, 16, 31, 32, 63, 64] {
            let edge = 1i128 << bits;
            numbers.extend([edge - 1, edge, -edge, -edge - 1]);
        }
        let key_of = |number: i128| {
            let bytes = usize::from(key.bytes);
            let mut made = prefix.clone();
            match is_big_endian {
                true => made.extend_from_slice(&number.to_be_bytes()[16 - bytes..]),
                false => made.extend_from_slice(&number.to_le_bytes()[..bytes]),
            }
            made
        };
        let is_stored = |number: &i128| keys.contains(number) && (number ^ i128::from(seed)) % 3 != 0;
        let stored: BTreeMap<_, _> = (numbers.iter().filter(|number| is_stored(number)))
            .map(|&number| (key_of(number), number))
            .collect();
        let entries: Vec<_> = (stored.iter())
            .map(|(key, number)| Entry::new(key, 1, PUT, &number.to_le_bytes()))
            .collect();
        let table = table_of(&on_host(), &entries, &settings(entries.len() as u64));
        numbers.retain(|number| ids.contains(number));
        let memory: Vec<u8> = (numbers.iter())
            .flat_map(|number| number.to_le_bytes()[..id.bytes.into()].to_vec())
            .collect();
        let form = IdForm::new(id, key, is_big_endian, &prefix).expect("a form");
        let mut rows = vec![[0u8; 16]; numbers.len()];
        let mut statuses = vec![7u8; numbers.len()];
        // SAFETY: the host's kernels use this memory before the call returns.
        unsafe {
            let keys = Keys::ids(memory.as_ptr(), form, numbers.len() as u64);
            let rows = Rows::new(rows.as_mut_ptr().cast(), 16, statuses.as_mut_ptr());
            table.look_up(&keys, &rows, CallerStream::new(ptr::null_mut())).expect("looked up");
        }
        for (i, number) in numbers.iter().enumerate() {
            let is_found = is_stored(number);
            prop_assert_eq!(statuses[i] == Rows::FOUND, is_found, "{}", number);
            let value = if is_found { *number } else { 0 };
            prop_assert_eq!(i128::from_le_bytes(rows[i]), value);
            if keys.contains(number) {
                let bytes = &memory[i * usize::from(id.bytes)..];
                prop_assert_eq!(form.key(bytes), key_of(*number));
            }
        }
    }
}

#[test]
fn forms_without_keys_are_refused() {
    let integer = |bytes| Integer {
        bytes,
        is_signed: false,
    };
    for (id, key, prefix) in [(3, 8, 0), (8, 0, 0), (8, 8, IdForm::MAX_PREFIX + 1)] {
        let prefix = vec![0; prefix];
        let refused = IdForm::new(integer(id), integer(key), true, &prefix).expect_err("refused");
        assert_eq!(refused.kind, ErrorKind::Invalid);
    }
}

#[test]
fn offsets_that_descend_or_lie_outside_find_nothing() {
    let table = table_of(&on_host(), &numbered(0..10), &settings(10));
    let (keys, offsets) = ([0u8; 8], [4u64, 0, 4, 8, 9, u64::MAX, 4]);
    let mut statuses = [7u8; 6];
    // SAFETY: the host's kernels use this memory before the call returns, and no byte that is not within the eight.
    unsafe {
        let keys = Keys::varied(keys.as_ptr(), offsets.as_ptr(), 6).within(8);
        let rows = Rows::new(ptr::null_mut(), 0, statuses.as_mut_ptr());
        let stream = CallerStream::new(ptr::null_mut());
        table.look_up(&keys, &rows, stream).expect("looked up");
    }
    let mut expected = [Rows::NOT_FOUND; 6];
    // Both are four zeros, like the key of the first row.
    expected[1..3].fill(Rows::TOO_SMALL);
    assert_eq!(statuses, expected);
}

#[test]
fn tasks_of_several_threads_share_a_table() {
    const THREADS: u32 = 4;
    const KEYS: u32 = 1800;
    const ROUNDS: u64 = 40;
    let inputs: Vec<_> = (0..THREADS)
        .map(|thread| {
            let entries = numbered(thread * KEYS..(thread + 1) * KEYS);
            open(common::one_file(&common::plan(), &entries)).expect("sound")
        })
        .collect();
    let all = numbered(0..THREADS * KEYS);
    let refs: Vec<_> = all.iter().map(|entry| entry.key.as_slice()).collect();
    // Eight long runs, so that threads compete for the same slots.
    let keys = 8 * 128 * 32 / 5;
    for seed in 0..ROUNDS {
        let given = TableSettings {
            hash_mask: 7 << 61 | 0xfff,
            seed,
            ..settings(keys)
        };
        let table = DeviceTable::new(device().device(), &given).expect("a table");
        let start = std::sync::Barrier::new(THREADS as usize);
        std::thread::scope(|scope| {
            for input in &inputs {
                let (table, start) = (&table, &start);
                scope.spawn(move || {
                    let inputs = std::slice::from_ref(input);
                    start.wait();
                    place(device(), inputs, &KeyRange::default(), ALL, table).expect("placed");
                });
            }
        });
        let contents = TableContents {
            keys: u64::from(THREADS * KEYS),
            record_bytes: u64::from(THREADS * KEYS) * 48,
            slot_bytes: DeviceTable::slot_bytes(keys),
            ..TableContents::default()
        };
        assert_eq!(table.contents(), contents);
        for (entry, answer) in all.iter().zip(get(&table, &refs)) {
            assert!(
                answer == LookupResult::Found(entry.value.clone()),
                "seed {seed}"
            );
        }
    }
}

#[test]
fn a_table_that_does_not_fit_says_what_it_needs() {
    let small = TableSettings {
        memory_bytes: 1000,
        ..settings(1 << 20)
    };
    let error = DeviceTable::new(device().device(), &small).expect_err("it is too small");
    assert_eq!(error.kind, ErrorKind::Device);
    let needed = DeviceTable::slot_bytes(1 << 20);
    let what = format!("needs {needed} bytes of device memory or more, and may take 1000");
    assert!(error.what.contains(&what), "{error}");
    let slots_alone = TableSettings {
        memory_bytes: 700,
        ..settings(32)
    };
    let table = DeviceTable::new(device().device(), &slots_alone).expect("slots fit");
    let input = open(common::one_file(&common::plan(), &numbered(0..32))).expect("sound");
    let placed = place(device(), &[input], &KeyRange::default(), ALL, &table);
    let error = placed.expect_err("records do not fit");
    assert_eq!(error.kind, ErrorKind::Device);
    assert!(error.what.contains("needs 1936 bytes"), "{error}");
}

#[test]
fn what_is_foreseen_of_a_task_is_enough() {
    for value_bytes in [0, 60] {
        let entry = |n: u32| Entry::new(&n.to_be_bytes(), 1, PUT, &vec![7; value_bytes]);
        let entries: Vec<_> = (0..20_000).map(entry).collect();
        let tables = [open(common::one_file(&common::plan(), &entries)).expect("sound")];
        let range = KeyRange::default();
        let asked = request(
            &tables,
            &range,
            Visibility::Snapshot(ALL),
            Purpose::Resident,
        );
        let given = CudaSettings {
            memory_bytes: Some(Backend::footprint(device(), &asked).device_bytes),
            ..CudaSettings::default()
        };
        let device = CudaBackend::new(super::super::target(), given).expect("it opens");
        let table = DeviceTable::new(device.device(), &settings(20_000)).expect("a table");
        let rows = place(&device, &tables, &range, ALL, &table).expect("there is memory");
        assert_eq!(rows.rows, 20_000);
    }
}

#[test]
fn what_no_table_takes_is_refused() {
    let range = KeyRange::default();
    let plan = common::plan();
    let visibility = Visibility::Compaction(&plan.rules);
    let compaction = request(&[], &range, visibility, Purpose::Resident);
    let refused = Support::No(Unsupported::Purpose);
    assert_eq!(Backend::supports(device(), &compaction), refused);
    let asked = request(&[], &range, Visibility::Snapshot(ALL), Purpose::Resident);
    let refused = Support::No(Unsupported::Purpose);
    assert_eq!(Backend::supports(&CpuBackend, &asked), refused);
    // A table of another device. Tests that plan faults reset the memory counts of this one, so they wait.
    let _alone = Faults::none();
    let faulty = CudaBackend::new(Target::Faulty, CudaSettings::default()).expect("it opens");
    let table = DeviceTable::new(faulty.device(), &settings(10)).expect("a table");
    let input = open(common::one_file(&plan, &numbered(0..10))).expect("sound");
    let placed = place(device(), &[input], &range, ALL, &table);
    let error = placed.expect_err("it is another's");
    assert_eq!(error.what, "the table lies on another device");
}
