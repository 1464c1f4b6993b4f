//! Scans produce the same batches on the CPU and by the kernels, to the byte.

mod groups;
mod strings;

use proptest::prelude::*;
use rockmill_core::scan::{
    BATCH_BYTES, BATCH_ROWS, Batch, BatchSink, ColumnType, Instruction, IntegerRange, Literal,
    Operation, OutputColumn, Pattern, PatternPart, ScanOutput, ScanPlan,
};
use rockmill_core::{
    Backend, BatchOutput, CancelToken, ErrorKind, InputTable, KeyRange, NeedsMerge, Operator,
    Output, Purpose, ReadTask, Result, SnapshotRules, Support, Tombstones, Unsupported, Visibility,
};
use rockmill_cpu::CpuBackend;
use rockmill_cuda::{CudaBackend, CudaSettings};
use rockmill_format::key::MAX_SEQUENCE;

use super::super::target;
use super::{cases, device, drawn, request};
use crate::common::{self, Entry, PUT, config, open};
use rockmill_testkit::drawn_scans::Draw;

/// Stores the batches that it receives.
#[derive(Debug, Default)]
struct CollectedBatches(Vec<Batch>);

impl BatchSink for CollectedBatches {
    fn batch(&mut self, batch: Batch) -> Result<()> {
        self.0.push(batch);
        Ok(())
    }
}

pub const ALL: SnapshotRules = SnapshotRules {
    sequence: MAX_SEQUENCE,
    tombstones: Tombstones::Drop,
    needs_merge: NeedsMerge::Error,
    deleted: None,
};

/// The batches of a scan, or the kind of its error.
pub type Scanned = std::result::Result<(Vec<Batch>, BatchOutput), ErrorKind>;

pub fn scan(
    backend: &impl Backend,
    tables: &[InputTable],
    range: &KeyRange,
    rules: SnapshotRules,
    plan: &ScanPlan,
) -> Scanned {
    scan_in_stages(backend, tables, range, rules, plan).0
}

/// The same with the names of its stages, if it succeeds.
fn scan_in_stages(
    backend: &impl Backend,
    tables: &[InputTable],
    range: &KeyRange,
    rules: SnapshotRules,
    plan: &ScanPlan,
) -> (Scanned, Vec<&'static str>) {
    let request = request(
        tables,
        range,
        Visibility::Snapshot(rules),
        Purpose::Scan(plan),
    );
    assert_eq!(backend.supports(&request), Support::Yes);
    let task = ReadTask {
        reading: request.reading,
        cancel: &CancelToken::new(),
        progress: None,
    };
    let mut kept = CollectedBatches::default();
    let batches = &mut kept;
    let report = match backend.run(task, Operator::Scan { plan, batches }) {
        Ok(report) => report,
        Err(error) => return (Err(error.kind), Vec::new()),
    };
    assert!(report.read.is_balanced() && report.files().is_empty());
    let Output::Batches(output) = report.output else {
        panic!("{:?}", report.output);
    };
    assert_eq!(output.rows, report.read.kept);
    let stages = report.stages.iter().map(|stage| stage.stage);
    (Ok((kept.0, output)), stages.collect())
}

proptest! {
    #![proptest_config(config(2000))]

    #[test]
    fn any_scan_makes_the_same_batches_on_each_backend(
        runs in cases::runs(),
        input_plan in common::plans::table_plans(),
        sequence in 0u64..200,
        bounds in any::<[Option<prop::sample::Index>; 2]>(),
        plans in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..400), 1..6),
    ) {
        let tables = cases::tables(&runs, &input_plan);
        let all = runs.concat();
        let bound = |at: prop::sample::Index| all[at.index(all.len())].key.clone();
        let mut bounds = bounds.map(|at| at.filter(|_| !all.is_empty()).map(bound));
        bounds.sort();
        let [begin, end] = bounds;
        let range = KeyRange { begin, end };
        let rules = SnapshotRules { sequence, ..ALL };
        for plan in plans {
            let plan = Draw(&plan).plan(false);
            let meant = scan(&CpuBackend, &tables, &range, rules, &plan);
            let found = scan(device(), &tables, &range, rules, &plan);
            prop_assert_eq!(found, meant, "{:#?}", plan);
        }
    }

    #[test]
    fn a_scan_of_entries_that_do_not_decide_alone_fails_on_each_backend_or_on_none(
        runs in drawn::runs(),
        input_plan in common::plans::table_plans(),
        rules in drawn::rules(),
        plan in proptest::collection::vec(any::<u8>(), 0..400),
    ) {
        let (tables, range) = (drawn::tables(&runs, &input_plan), KeyRange::default());
        let rules = SnapshotRules { sequence: rules.sequence, ..ALL };
        let plan = Draw(&plan).plan(false);
        let meant = scan(&CpuBackend, &tables, &range, rules, &plan);
        match (scan(device(), &tables, &range, rules, &plan), meant) {
            // A scan may have several faults, and the backends meet them in different orders.
            (Err(_), Err(_)) => {}
            (found, meant) => prop_assert_eq!(found, meant, "{:#?}", plan),
        }
    }
}

pub fn values(registers: &[u16]) -> ScanPlan {
    let column = |&register| OutputColumn {
        register,
        stored: ColumnType::Bytes,
    };
    ScanPlan {
        checks: Vec::new(),
        instructions: vec![Instruction::Key, Instruction::Value],
        filter: None,
        output: ScanOutput::Rows(registers.iter().map(column).collect()),
    }
}

fn table(entries: &[Entry]) -> [InputTable; 1] {
    [open(common::one_file(&common::plan(), entries)).expect("sound")]
}

#[test]
fn batches_of_many_rows_and_of_large_ones_end_where_the_cpu_ends_them() {
    let range = KeyRange::default();
    let many = |n: u32| Entry::new(&n.to_be_bytes(), 1, PUT, &[7; 3]);
    let many: Vec<_> = (0..BATCH_ROWS as u32 + 5).map(many).collect();
    let large = |n: u32| {
        let bytes = [0, 100, BATCH_BYTES / 3, BATCH_BYTES / 2, BATCH_BYTES + 1, 9][n as usize % 6];
        Entry::new(
            &[&n.to_be_bytes()[..], &[b'k'; 20]].concat(),
            1,
            PUT,
            &vec![n as u8; bytes],
        )
    };
    let large: Vec<_> = (0..9).map(large).collect();
    for (entries, plan, least) in [
        (&many, values(&[]), 2),
        (&many, values(&[0, 1]), 2),
        (&large, values(&[1]), 3),
        (&large, values(&[1, 0, 1]), 4),
    ] {
        let tables = table(entries);
        let meant = scan(&CpuBackend, &tables, &range, ALL, &plan).expect("it is sound");
        assert!(meant.0.len() >= least, "{}", meant.0.len());
        let found = scan(device(), &tables, &range, ALL, &plan).expect("it is sound");
        assert!(found == meant);
    }
}

#[test]
fn what_is_foreseen_of_a_scan_is_enough() {
    let range = KeyRange::default();
    let entry = |n: u32| Entry::new(&n.to_be_bytes(), 1, PUT, &[n as u8; 60]);
    let entries: Vec<_> = (0..20_000).map(entry).collect();
    let tables = table(&entries);
    let mut literal = values(&[0, 1, 2]);
    let constant = Instruction::Constant(Literal::Bytes(vec![b'c'; 300]));
    literal.instructions.push(constant);
    let of_groups = groups::plan_of_most_memory();
    for plan in [values(&[]), values(&[0, 1, 1]), literal, of_groups] {
        let request = request(
            &tables,
            &range,
            Visibility::Snapshot(ALL),
            Purpose::Scan(&plan),
        );
        let settings = CudaSettings {
            memory_bytes: Some(device().footprint(&request).device_bytes),
            ..CudaSettings::default()
        };
        let exact = CudaBackend::new(target(), settings).expect("the device opens");
        let meant = scan(&CpuBackend, &tables, &range, ALL, &plan);
        assert!(scan(&exact, &tables, &range, ALL, &plan) == meant && meant.is_ok());
    }
}

#[test]
fn a_program_with_too_many_results_for_a_thread_is_refused() {
    let plan = |results: u16| {
        let mut instructions = vec![Instruction::Constant(Literal::Boolean(true))];
        instructions.extend((0..results).map(Instruction::Not));
        let stored = ColumnType::Boolean;
        let columns = (1..=results).map(|register| OutputColumn { register, stored });
        ScanPlan {
            checks: Vec::new(),
            instructions,
            filter: None,
            output: ScanOutput::Rows(columns.collect()),
        }
    };
    let (range, visibility) = (KeyRange::default(), Visibility::Snapshot(ALL));
    for (results, support) in [(64, Support::Yes), (65, Support::No(Unsupported::Purpose))] {
        let plan = plan(results);
        let request = request(&[], &range, visibility, Purpose::Scan(&plan));
        assert_eq!(device().supports(&request), support);
    }
}

#[test]
fn patterns_and_products_at_their_edges_are_the_same_on_each_backend() {
    let range = KeyRange::default();
    let values: [&[u8]; 10] = [
        b"",
        b"a",
        "€".as_bytes(),
        "é€a".as_bytes(),
        b"\xe2\x82",
        b"\xed\xa0\x80",
        b"\xf4\x8f\xbf\xbf",
        b"\xf4\x90\x80\x80",
        b"\xc3\xa9\xa9",
        b"a\xff\x80\xac",
    ];
    let entry = |(n, value): (usize, &&[u8])| Entry::new(&[n as u8], 1, PUT, value);
    let tables = table(&values.iter().enumerate().map(entry).collect::<Vec<_>>());
    let parts = [
        PatternPart::AnyBytes,
        PatternPart::AnyCharacter,
        PatternPart::Bytes(b"a".to_vec()),
        PatternPart::Bytes(b"\xac".to_vec()),
    ];
    for choice in 0..4usize.pow(4) {
        let part = |place: u32| parts[choice / 4usize.pow(place) % 4].clone();
        let pattern = Pattern::Parts((0..4).map(part).collect());
        let plan = ScanPlan {
            checks: Vec::new(),
            instructions: vec![Instruction::Value, Instruction::Like { of: 0, pattern }],
            filter: Some(1),
            output: values_of(),
        };
        let meant = scan(&CpuBackend, &tables, &range, ALL, &plan);
        assert_eq!(
            scan(device(), &tables, &range, ALL, &plan),
            meant,
            "{plan:?}"
        );
    }
    let edges = [
        0,
        1,
        -1,
        3,
        i128::MAX,
        i128::MIN,
        1 << 64,
        -1 << 64,
        1 << 63,
        (1 << 64) - 1,
    ];
    let operations = [Operation::Add, Operation::Subtract, Operation::Multiply];
    let mut errors = 0;
    for operation in operations {
        for (left, right) in edges
            .iter()
            .flat_map(|a| edges.iter().map(move |b| (*a, *b)))
        {
            let arithmetic = Instruction::Arithmetic {
                operation,
                left: 0,
                right: 1,
                range: IntegerRange::Exact,
            };
            let int = |integer| Instruction::Constant(Literal::Integer(integer));
            let stored = ColumnType::Integer { bytes: 16 };
            let plan = ScanPlan {
                checks: Vec::new(),
                instructions: vec![int(left), int(right), arithmetic],
                filter: None,
                output: ScanOutput::Rows(vec![OutputColumn {
                    register: 2,
                    stored,
                }]),
            };
            let meant = scan(&CpuBackend, &tables, &range, ALL, &plan);
            errors += u32::from(meant.is_err());
            let what = format!("{left} {operation:?} {right}");
            assert_eq!(scan(device(), &tables, &range, ALL, &plan), meant, "{what}");
        }
    }
    assert!(errors > 20, "{errors}");
}

/// The value of each row.
fn values_of() -> ScanOutput {
    ScanOutput::Rows(vec![OutputColumn {
        register: 0,
        stored: ColumnType::Bytes,
    }])
}
