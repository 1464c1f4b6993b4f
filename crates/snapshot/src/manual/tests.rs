use super::*;

const MB: u64 = 1 << 20;

/// Makes a column family of 1 MB files, given by level, number, smallest and largest key.
fn family(files: &[(u32, u64, &str, &str)]) -> ColumnFamily {
    let mut family = ColumnFamily::default();
    for &(level, number, smallest, largest) in files {
        let internal = |text: &str| key::join(text.as_bytes(), key::pack_tag(1, 1));
        let file = FileMeta {
            number,
            size: MB,
            smallest: internal(smallest),
            largest: internal(largest),
            ..FileMeta::default()
        };
        let level = family.levels.entry(level).or_insert_with(BTreeMap::new);
        level.insert(number, file);
    }
    family
}

fn shape(options: &str) -> Shape {
    Shape::read(&Options::from_value(options).expect("options")).expect("sound")
}

fn keys(from: &str, to: &str) -> UserKeys {
    UserKeys {
        from: Some(from.into()),
        to: Some(to.into()),
    }
}

/// Returns each step's levels, the numbers of its files, and its megabytes from earlier steps.
fn outline(steps: &[Step]) -> Vec<(u32, u32, Vec<u64>, u64)> {
    let number = |&(_, number): &(u32, u64)| number;
    let line = |step: &Step| {
        let files = step.files.iter().map(number).collect();
        (
            step.from_level,
            step.output_level,
            files,
            step.earlier_bytes / MB,
        )
    };
    steps.iter().map(line).collect()
}

#[test]
fn level_0_goes_to_the_base_level_and_on_to_the_last() {
    let family = family(&[
        (0, 21, "a", "m"),
        (0, 20, "d", "f"),
        (5, 10, "a", "g"),
        (6, 1, "a", "c"),
        (6, 2, "x", "z"),
    ]);
    let steps = steps(&family, &shape("num_levels=7"), &UserKeys::default());
    let expected = [
        (0, 5, vec![21, 20, 10], 0),
        (5, 6, vec![1], 3),
        (6, 6, vec![2], 0),
    ];
    assert_eq!(outline(&steps), expected);
    let sources = [(0, 21), (0, 20), (5, 10), (6, 1)];
    assert_eq!(steps[1].sources, sources);
}

#[test]
fn steps_end_however_deep_a_file_is_said_to_lie() {
    let family = family(&[(1, 20, "a", "m"), (u32::MAX, 1, "x", "z")]);
    let shape = shape("num_levels=4;level_compaction_dynamic_level_bytes=false");
    let steps = steps(&family, &shape, &keys("a", "b"));
    assert_eq!(outline(&steps), [(3, 3, vec![20], 0)]);
}

#[test]
fn sizes_that_no_file_has_do_not_overflow() {
    let mut family = family(&[
        (0, 20, "a", "m"),
        (5, 10, "a", "g"),
        (5, 11, "h", "m"),
        (6, 1, "a", "c"),
    ]);
    for file in family.levels.values_mut().flat_map(BTreeMap::values_mut) {
        file.size = u64::MAX;
    }
    let shape = shape("num_levels=7");
    let of = |family: &ColumnFamily| {
        let steps = steps(family, &shape, &UserKeys::default());
        steps.iter().map(|step| step.jobs).collect::<Vec<_>>()
    };
    let most = u64::MAX.div_ceil(shape.job_bytes);
    assert_eq!(of(&family), [most, most]);
    family.levels.remove(&0);
    for file in family.levels.values_mut().flat_map(BTreeMap::values_mut) {
        file.size = 0;
    }
    assert_eq!(of(&family), [1]);
}

#[test]
fn a_comparator_that_turns_keys_round_hides_no_file() {
    let steps = |files| {
        let family = family(files);
        outline(&steps(&family, &shape("x=1"), &UserKeys::default()))
    };
    let turned = steps(&[
        (0, 21, "m", "a"),
        (0, 20, "f", "d"),
        (6, 1, "c", "a"),
        (6, 2, "z", "x"),
    ]);
    assert_eq!(turned, [(0, 6, vec![21, 20, 1], 0), (6, 6, vec![2], 0)]);
}

#[test]
fn what_meets_nothing_is_moved_and_written_anew_in_the_last_level() {
    let family = family(&[(0, 20, "a", "b"), (0, 21, "c", "d")]);
    let found = steps(&family, &shape("x=1"), &UserKeys::default());
    assert_eq!(outline(&found), [(6, 6, vec![21, 20], 0)]);
    let fixed = shape("level_compaction_dynamic_level_bytes=false");
    let found = steps(&family, &fixed, &UserKeys::default());
    assert_eq!(outline(&found), [(1, 1, vec![21, 20], 0)]);
}

#[test]
fn without_dynamic_levels_files_stop_at_the_deepest_that_is_filled() {
    let family = family(&[(1, 10, "a", "k"), (3, 1, "b", "c")]);
    let fixed = shape("level_compaction_dynamic_level_bytes=false");
    let found = steps(&family, &fixed, &UserKeys::default());
    assert_eq!(outline(&found), [(2, 3, vec![10, 1], 0)]);
}

#[test]
fn a_range_takes_in_what_overlaps_and_no_more() {
    let family = family(&[
        (0, 20, "d", "f"),
        (0, 21, "a", "d"),
        (0, 22, "x", "z"),
        (6, 10, "a", "b"),
        (6, 11, "c", "e"),
        (6, 12, "g", "k"),
    ]);
    let of = |keys: &UserKeys| outline(&steps(&family, &shape("x=1"), keys));
    assert_eq!(of(&keys("f", "f")), [(0, 6, vec![21, 20, 10, 11], 0)]);
    assert_eq!(of(&keys("g", "h")), [(6, 6, vec![12], 0)]);
    assert_eq!(of(&keys("l", "m")), []);
    let from = UserKeys {
        from: Some(b"h".to_vec()),
        to: None,
    };
    assert_eq!(of(&from), [(6, 6, vec![22, 12], 0)]);
}

#[test]
fn large_steps_below_level_0_are_cut_into_jobs() {
    let family = family(&[
        (0, 30, "a", "z"),
        (0, 31, "a", "z"),
        (5, 20, "a", "l"),
        (5, 21, "m", "z"),
        (6, 10, "a", "m"),
    ]);
    let few = shape(&format!("max_compaction_bytes={}", 2 * MB));
    let jobs: Vec<_> = steps(&family, &few, &UserKeys::default())
        .iter()
        .map(|step| step.jobs)
        .collect();
    assert_eq!(jobs, [1, 3]);
}

#[test]
fn a_full_tree_has_its_base_level_further_up() {
    let family = family(&[(0, 9, "a", "b"), (6, 1, "a", "z")]);
    let levels = Levels::of(&family);
    let base = |level_base| {
        let small = format!("max_bytes_for_level_base={level_base}");
        shape(&small).base_level(&levels)
    };
    assert_eq!((base(MB), base(MB / 2), base(MB / 11)), (6, 5, 4));
}

#[test]
fn universal_style_merges_everything_at_once() {
    let family = family(&[(0, 9, "a", "b"), (0, 8, "x", "y"), (6, 1, "c", "d")]);
    let found = steps(
        &family,
        &shape("compaction_style=kCompactionStyleUniversal"),
        &keys("a", "b"),
    );
    assert_eq!(outline(&found), [(0, 6, vec![9, 8, 1], 0)]);
}

#[test]
fn files_of_the_last_level_without_sequence_numbers_are_compacted() {
    let of = |files: &[(u32, u64, &str, &str)], options: &str, keys: &UserKeys, newest: u64| {
        let mut family = family(files);
        let all = family.levels.values_mut();
        let last = all.flat_map(BTreeMap::values_mut).last();
        last.expect("a file").largest_seqno = newest;
        is_compacted(&family, &steps(&family, &shape(options), keys))
    };
    let all = UserKeys::default();
    let (level, universal) = ("num_levels=7", "compaction_style=kCompactionStyleUniversal");
    let fixed = "num_levels=7;level_compaction_dynamic_level_bytes=false";
    let last = [(6, 1, "a", "c"), (6, 2, "x", "z")];
    for options in [level, universal, fixed] {
        assert!(of(&last, options, &all, 0), "{options}");
        assert!(!of(&last, options, &all, 9), "{options}");
    }
    // Without dynamic levels, the deepest one that has files is the last.
    let higher = [(1, 1, "a", "c"), (1, 2, "x", "z")];
    assert!(of(&higher, fixed, &all, 0) && !of(&higher, level, &all, 0));
    let above = [(0, 3, "a", "b"), (6, 1, "a", "c"), (6, 2, "x", "z")];
    let moved = [(5, 3, "d", "e"), (6, 1, "a", "c"), (6, 2, "x", "z")];
    for options in [level, universal] {
        assert!(!of(&above, options, &all, 0), "{options}");
        assert!(!of(&moved, options, &all, 0), "{options}");
    }
    assert!(of(&above, level, &keys("x", "y"), 0) && !of(&above, level, &keys("a", "b"), 0));
    // Each file of level 0 is a sorted run.
    let one = "compaction_style=kCompactionStyleUniversal;num_levels=1";
    assert!(of(&[(0, 1, "a", "c")], one, &all, 0));
    assert!(!of(&[(0, 1, "a", "c"), (0, 2, "x", "z")], one, &all, 0));
}
