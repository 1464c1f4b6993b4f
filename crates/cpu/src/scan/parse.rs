//! From the blocks of a group to its columns.

use std::ops::Range;
use std::sync::Arc;

use rockmill_core::columns::{Column, Group};
use rockmill_core::scan::{ScanPlan, ValueKind};
use rockmill_core::{CancelToken, DeclineReason, Error, InputTable, Result};
use rockmill_format::key::{self, ValueType};

use super::evaluate::Rows;
use super::leaves::Leaves;
use super::value::Memory;
use super::vector::{Nulls, Vector};
use super::{ROWS_BYTES, max_rows};
use crate::read::decode::RunReader;

/// A group that was read.
#[derive(Debug)]
pub struct Parsed {
    pub group: Arc<Group>,
    /// The columns of [`Leaves`].
    pub columns: Vec<Arc<Column>>,
    /// Bytes read from the file.
    pub bytes_read: u64,
}

/// Reads blocks of a table, and parses all of their entries; `None` if they have more bytes than `most_bytes`.
///
/// # Errors
/// Those of reading; Declined for the memory if a column is too large.
pub fn parse(
    plan: &ScanPlan,
    leaves: &Leaves,
    table: &InputTable,
    blocks: Range<usize>,
    most_bytes: usize,
    read_ahead_bytes: usize,
    cancel: &CancelToken,
) -> Result<Option<Parsed>> {
    let mut reader = RunReader::open_blocks(table, blocks, read_ahead_bytes, cancel)?;
    let (kinds, max_rows) = (plan.kinds()?, max_rows(plan));
    let parts = leaves.registers.iter();
    let mut parts: Vec<_> = parts
        .map(|register| Part::new(kinds[usize::from(*register)]))
        .collect();
    let mut rows = Rows::new(plan, kinds);
    let (mut keys, mut key_ends, mut tags) = (Vec::new(), Vec::new(), Vec::new());
    let (mut is_plain, mut newest) = (true, 0);
    let mut last_key = 0..0;
    while let Some(head) = reader.head() {
        let is_value = key::tag_type(head.tag) == ValueType::Value as u8;
        let is_next = tags.is_empty() || keys[last_key] < *head.user_key;
        is_plain &= is_value && is_next;
        newest = newest.max(key::tag_sequence(head.tag));
        last_key = keys.len()..keys.len() + head.user_key.len();
        keys.extend_from_slice(head.user_key);
        key_ends.push(keys.len());
        tags.push(head.tag as i64);
        rows.push(head.user_key, head.value);
        if rows.len() == max_rows || rows.bytes() >= ROWS_BYTES {
            run(&mut rows, leaves, &mut parts)?;
            let parsed: usize = parts.iter().map(Part::bytes).sum();
            if parsed + keys.len() + tags.len() * ENTRY_BYTES > most_bytes {
                return Ok(None);
            }
        }
        reader.advance()?;
    }
    run(&mut rows, leaves, &mut parts)?;
    let too_large = || {
        let what = "a column of neighbouring blocks is too large";
        Error::declined(DeclineReason::MemoryBudget, what)
    };
    let keys = Column::of_bytes(&key_ends, &keys, None).ok_or_else(too_large)?;
    let tags = Column::of_integers(&tags, None);
    let columns = parts.into_iter().map(|part| part.column().map(Arc::new));
    Ok(Some(Parsed {
        group: Arc::new(Group::new(keys, tags, is_plain.then_some(newest))),
        columns: columns.collect::<Option<_>>().ok_or_else(too_large)?,
        bytes_read: reader.totals().bytes_read,
    }))
}

/// Parses the rows that wait.
fn run(rows: &mut Rows<'_>, leaves: &Leaves, parts: &mut [Part]) -> Result<()> {
    rows.begin();
    for step in &leaves.parsing {
        rows.step(step);
    }
    rows.results(&leaves.registers, |position, values, memory| {
        parts[position].add(values, rows.len(), memory);
    });
    rows.end(&[]).map(|_| ())
}

/// The rows of a column so far.
#[derive(Debug)]
enum Part {
    Values(Vector),
    Bytes {
        ends: Vec<usize>,
        bytes: Vec<u8>,
        nulls: Nulls,
    },
}

/// Bytes of an entry besides its key and values: its tag and the end of its key.
const ENTRY_BYTES: usize = 16;

impl Part {
    /// Bytes so far.
    fn bytes(&self) -> usize {
        match self {
            Self::Values(values) => values.bytes(),
            Self::Bytes { ends, bytes, .. } => size_of_val(&**ends) + bytes.len(),
        }
    }

    fn new(kind: ValueKind) -> Self {
        match kind {
            ValueKind::Bytes => Self::Bytes {
                ends: Vec::new(),
                bytes: Vec::new(),
                nulls: None,
            },
            kind => Self::Values(Vector::new(kind, 0)),
        }
    }

    /// Adds the first rows of a vector of the same kind.
    fn add(&mut self, values: &Vector, rows: usize, memory: &Memory) {
        match self {
            Self::Values(all) => all.extend(values, rows),
            Self::Bytes { ends, bytes, nulls } => {
                for row in 0..rows {
                    let span = values.span(row);
                    if span.is_none() {
                        nulls.get_or_insert_with(|| vec![false; ends.len()]);
                    }
                    if let Some(nulls) = nulls {
                        nulls.push(span.is_none());
                    }
                    let value = span.and_then(|span| memory.bytes(span));
                    bytes.extend_from_slice(value.unwrap_or_default());
                    ends.push(bytes.len());
                }
            }
        }
    }

    fn column(self) -> Option<Column> {
        Some(match &self {
            Self::Values(Vector::Booleans(values)) => Column::of_booleans(values),
            Self::Values(Vector::Integers(values, nulls)) => {
                Column::of_integers(values, nulls.as_deref())
            }
            Self::Values(Vector::Wide(values, nulls)) => Column::of_wide(values, nulls.as_deref()),
            Self::Values(Vector::Bytes(_)) => return None,
            Self::Bytes { ends, bytes, nulls } => {
                return Column::of_bytes(ends, bytes, nulls.as_deref());
            }
        })
    }
}
