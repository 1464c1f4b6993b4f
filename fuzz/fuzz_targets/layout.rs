//! Layouts and rows: any text is a layout or gives a sentence, and any row gives its values or an error.
//!
//! The input's first line has a letter for each column's type, a capital one if the column may be null; the next two
//! lines have the layout of keys and that of values. If the second line is `mysql`, the columns are those of a table of
//! MyRocks, and the third line has as many letters as its primary key has columns. Rows follow: the sizes of key and
//! value in a byte each, and both.

#![no_main]

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, TimeUnit};
use libfuzzer_sys::fuzz_target;
use rockmill_core::scan::{
    Batch, BatchSink, Instruction, MAX_INSTRUCTIONS, OutputColumn, Register, ScanOutput, ScanPlan,
};
use rockmill_core::{Error, ErrorKind, Result};
use rockmill_cpu::scan::Scanner;
use rockmill_layout::{Layout, MysqlTable, column_type};

/// Maximum number of columns of a table. Their names are a, b, c ..
const MAX_COLUMNS: usize = 12;

const MAX_ROWS: usize = 16;

/// The number of the index, with which keys of MyRocks begin.
const INDEX: u32 = 260;

fuzz_target!(|input: &[u8]| {
    let mut parts = input.splitn(4, |byte| *byte == b'\n');
    let mut next = || parts.next().unwrap_or_default();
    let (types, key, value, rows) = (next(), next(), next(), next());
    let types = &types[..types.len().min(MAX_COLUMNS)];
    let layout = match (key, std::str::from_utf8(key), std::str::from_utf8(value)) {
        (b"mysql", ..) => mysql(types, value.len()),
        (_, Ok(key), Ok(value)) => {
            let columns = ('a'..).zip(types);
            let columns = columns.map(|(name, &letter)| {
                let is_nullable = letter.is_ascii_uppercase();
                Field::new(String::from(name), data_type(letter), is_nullable)
            });
            let columns: Vec<_> = columns.collect();
            Layout::parse(Arc::new(Schema::new(columns)), key, value)
        }
        _ => return,
    };
    match layout {
        Ok(layout) => {
            run(&layout, rows);
            run(&layout.nulls_what_is_malformed(), rows);
        }
        Err(sentence) => assert!(!sentence.is_empty()),
    }
});

fn data_type(letter: u8) -> DataType {
    match letter.to_ascii_lowercase() {
        b'a' => DataType::Int8,
        b'b' => DataType::UInt16,
        b'c' => DataType::Int32,
        b'd' => DataType::UInt64,
        b'e' => DataType::Float32,
        b'f' => DataType::Float64,
        b'g' => DataType::Decimal128(9, 2),
        b'h' => DataType::Date32,
        b'i' => DataType::Timestamp(TimeUnit::Microsecond, None),
        b'j' => DataType::Boolean,
        b'k' => DataType::Binary,
        b'l' => DataType::Utf8View,
        _ => DataType::Utf8,
    }
}

fn mysql(types: &[u8], keys: usize) -> std::result::Result<Layout, String> {
    let columns = ('a'..).zip(types).map(|(name, &letter)| {
        let of_type = match letter.to_ascii_lowercase() {
            b'a' => "tinyint",
            b'b' => "mediumint unsigned",
            b'c' => "bigint",
            b'd' => "decimal(12, 5)",
            b'e' => "double",
            b'f' => "date",
            b'g' => "datetime(3)",
            b'h' => "timestamp",
            b'i' => "char(3) collate latin1_bin",
            b'j' => "varchar(300) collate latin1_bin",
            b'k' => "varchar(9) collate utf8mb4_bin",
            b'l' => "varchar(9) collate utf8mb4_general_ci",
            b'm' => "varbinary(20)",
            b'n' => "binary(4)",
            b'o' => "year",
            b'p' => "enum('a', 'b')",
            b'q' => "varchar(255) character set latin1 /*M!100301 COMPRESSED*/",
            b'r' => "text character set latin1",
            b's' => "geometry",
            _ => "mediumtext collate utf8mb4_bin",
        };
        let null = if letter.is_ascii_uppercase() {
            ""
        } else {
            "not null"
        };
        format!("{name} {of_type} {null}")
    });
    let mut parts: Vec<_> = columns.collect();
    let names: Vec<_> = ('a'..)
        .take(keys.min(types.len()))
        .map(String::from)
        .collect();
    if !names.is_empty() {
        parts.push(format!("primary key ({})", names.join(", ")));
    }
    let text = format!("create table t ({})", parts.join(", "));
    match MysqlTable::all_of(&text).map(|mut all| all.pop()) {
        Ok(Some(table)) => Layout::mysql(&table, INDEX, names.is_empty()),
        other => Err(format!("{text}: {other:?}")),
    }
}

/// Runs the program of all columns over rows.
fn run(layout: &Layout, rows: &[u8]) {
    let mut instructions: Vec<Instruction> = Vec::new();
    let mut push = |instruction: Instruction| {
        let known = instructions.iter().position(|known| *known == instruction);
        let at = known.unwrap_or(instructions.len());
        if known.is_none() {
            instructions.push(instruction);
        }
        at as Register
    };
    let fields = layout.schema().fields().iter().enumerate();
    let fields = fields.filter(|(position, _)| layout.unsupported(*position).is_none());
    let used: BTreeSet<_> = fields.clone().map(|(position, _)| position).collect();
    let columns = fields.map(|(position, field)| OutputColumn {
        register: layout.column(position, &mut push),
        stored: column_type(field.data_type()).expect("a layout has it"),
    });
    let columns: Vec<_> = columns.collect();
    let checks = layout.checks(&used, &mut push);
    let counts = checks.iter().any(|check| check.counts);
    let plan = ScanPlan {
        instructions,
        checks,
        filter: None,
        output: ScanOutput::Rows(columns),
    };
    if plan.instructions.len() > MAX_INSTRUCTIONS {
        return;
    }
    let mut sink = Ignored;
    let mut scanner = Scanner::new(&plan, &mut sink).expect("the plan is sound");
    let mut rest = rows;
    for _ in 0..MAX_ROWS {
        let Some((&[key, value], behind)) = rest.split_first_chunk() else {
            break;
        };
        let (key, behind) = behind.split_at(usize::from(key).min(behind.len()));
        let (value, behind) = behind.split_at(usize::from(value).min(behind.len()));
        rest = behind;
        if let Err(error) = scanner.row(key, value) {
            return refused(&error, counts);
        }
    }
    // The last rows are computed now.
    if let Err(error) = scanner.finish() {
        refused(&error, counts);
    }
}

/// Asserts that a row was refused, by a layout that does not count such rows.
fn refused(error: &Error, counts: bool) {
    assert!(error.kind == ErrorKind::Corruption && !counts, "{error}");
}

struct Ignored;

impl BatchSink for Ignored {
    fn batch(&mut self, _: Batch) -> Result<()> {
        Ok(())
    }
}
