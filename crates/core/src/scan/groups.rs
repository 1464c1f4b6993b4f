//! Rows to groups.

use std::ops::Range;

use super::batches::push_lowest;
use super::cell::sign_extend;
use super::{
    Aggregate, Aggregation, BatchSink, Batches, Cell, ColumnType, GROUP_BYTES, IntegerRange,
    OutputColumn, Register,
};
use crate::error::{Error, ErrorKind, Result};
use crate::hash::{entry_hash, kv_hash};

/// Puts rows together by their keys.
#[derive(Debug)]
pub struct Groups {
    keys: Vec<OutputColumn>,
    aggregates: Vec<Aggregate>,
    max_groups: usize,
    /// Positions of groups, from 1 on, by hash; 0 is free. More than twice as many as groups, and a power of two.
    table: Vec<u32>,
    /// In the order of their first rows.
    groups: Vec<Group>,
    /// Keys of all groups, as [`Groups::encode_keys`] writes them.
    key_bytes: Vec<u8>,
    /// States of each group's aggregates.
    states: Vec<State>,
    /// Bytes of the least and greatest values that are kept.
    kept_bytes: i64,
    /// Keys of the row at hand.
    encoded: Vec<u8>,
    batches: Batches,
}

#[derive(Debug)]
struct Group {
    hash: u64,
    /// Range of the group's keys.
    keys: Range<usize>,
}

/// What an aggregate knows of the rows of a group so far.
#[derive(Debug)]
enum State {
    Count(i128),
    /// A sum of 192 bits, of which these are the lowest 128 and the others, so that the order of the rows does not matter;
    /// and whether there was a value.
    Sum {
        low: i128,
        high: i64,
        is_any: bool,
    },
    Extreme(Kept),
}

/// The value of an aggregate over some rows of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// How many count.
    Count(u64),
    /// Their sum, of 192 bits.
    Sum {
        /// The lowest 128 bits, as two's complement.
        low: i128,
        /// What is missing in them, in units of 2^128.
        high: i64,
        /// Whether a value is not null.
        is_any: bool,
    },
    /// The least or greatest value that is not null, or null.
    Extreme(Cell<'static>),
}

/// A least or greatest value.
#[derive(Debug)]
enum Kept {
    Null,
    Boolean(bool),
    Integer(i128),
    Bytes(Vec<u8>),
}

const FIRST_SLOTS: usize = 64;

impl Groups {
    /// No rows yet. The columns are those of [`super::ScanOutput::columns`].
    pub fn new(aggregation: &Aggregation, columns: Vec<ColumnType>) -> Self {
        let mut groups = Self {
            keys: aggregation.keys.clone(),
            aggregates: aggregation.aggregates.clone(),
            max_groups: aggregation.max_groups as usize,
            table: vec![0; FIRST_SLOTS],
            groups: Vec::new(),
            key_bytes: Vec::new(),
            states: Vec::new(),
            kept_bytes: 0,
            encoded: Vec::new(),
            batches: Batches::new(columns),
        };
        if groups.keys.is_empty() {
            groups.add(0);
        }
        groups
    }

    /// Adds a row, of which `cell` gives the values.
    ///
    /// # Errors
    /// OutOfRange if groups are handed over and a sum exceeds 128 bits, and those of the sink.
    #[inline]
    pub fn row<'c>(
        &mut self,
        sink: &mut dyn BatchSink,
        cell: impl Fn(Register) -> Cell<'c>,
    ) -> Result<()> {
        let group = self.group(sink, &cell)?;
        let states = &mut self.states[group * self.aggregates.len()..];
        for (aggregate, state) in self.aggregates.iter().zip(states) {
            self.kept_bytes += state.update(aggregate, &cell);
        }
        self.bound(sink)
    }

    /// Adds rows of one group, of which `cell` gives the keys and `part` what each aggregate is of them.
    ///
    /// # Errors
    /// As [`Groups::row`].
    pub fn part<'c>(
        &mut self,
        sink: &mut dyn BatchSink,
        cell: impl Fn(Register) -> Cell<'c>,
        part: impl Fn(&Aggregate) -> Part,
    ) -> Result<()> {
        let group = self.group(sink, &cell)?;
        let states = &mut self.states[group * self.aggregates.len()..];
        for (aggregate, state) in self.aggregates.iter().zip(states) {
            self.kept_bytes += state.add(aggregate, part(aggregate));
        }
        self.bound(sink)
    }

    /// The group of a row.
    #[inline]
    fn group<'c>(
        &mut self,
        sink: &mut dyn BatchSink,
        cell: &impl Fn(Register) -> Cell<'c>,
    ) -> Result<usize> {
        if self.keys.is_empty() {
            return Ok(0);
        }
        self.encode_keys(cell);
        self.find(sink)
    }

    /// Hands over all groups if they have too many bytes.
    #[inline]
    fn bound(&mut self, sink: &mut dyn BatchSink) -> Result<()> {
        let bytes = self.key_bytes.len() as i64 + self.kept_bytes;
        match bytes > GROUP_BYTES as i64 && !self.keys.is_empty() {
            true => self.hand_over(sink),
            false => Ok(()),
        }
    }

    /// Writes the keys of a row one after another: a byte that says whether the key is there, and the key. The length
    /// precedes the bytes.
    #[inline]
    fn encode_keys<'c>(&mut self, cell: &impl Fn(Register) -> Cell<'c>) {
        self.encoded.clear();
        for key in &self.keys {
            let cell = cell(key.register);
            self.encoded.push(u8::from(cell != Cell::Null));
            match (cell, key.stored) {
                (Cell::Null, _) => {}
                (Cell::Boolean(is_true), _) => self.encoded.push(u8::from(is_true)),
                (Cell::Integer(integer), stored) => {
                    push_lowest(&mut self.encoded, stored.row_bytes() as u8, integer);
                }
                (Cell::Bytes(bytes), _) => {
                    let len = bytes.len().to_le_bytes();
                    self.encoded.extend_from_slice(&len);
                    self.encoded.extend_from_slice(bytes);
                }
            }
        }
    }

    /// The group of the keys at hand, which may be a new one.
    #[inline]
    fn find(&mut self, sink: &mut dyn BatchSink) -> Result<usize> {
        let hash = entry_hash(kv_hash(&self.encoded, &[]), 0);
        let mut slot = self.first_slot(hash);
        while let Some(group) = (self.table[slot] as usize).checked_sub(1) {
            let found = &self.groups[group];
            if found.hash == hash && self.key_bytes[found.keys.clone()] == self.encoded {
                return Ok(group);
            }
            slot = (slot + 1) & (self.table.len() - 1);
        }
        if self.groups.len() == self.max_groups {
            self.hand_over(sink)?;
        }
        Ok(self.add(hash))
    }

    fn first_slot(&self, hash: u64) -> usize {
        hash as usize & (self.table.len() - 1)
    }

    /// Adds a group of the keys at hand.
    fn add(&mut self, hash: u64) -> usize {
        if 2 * (self.groups.len() + 1) >= self.table.len() {
            self.table = vec![0; 2 * self.table.len()];
            for group in 0..self.groups.len() {
                self.enter(group);
            }
        }
        let start = self.key_bytes.len();
        self.key_bytes.extend_from_slice(&self.encoded);
        let keys = start..self.key_bytes.len();
        self.groups.push(Group { hash, keys });
        self.states.extend(self.aggregates.iter().map(State::new));
        self.enter(self.groups.len() - 1);
        self.groups.len() - 1
    }

    /// Makes a group be found.
    fn enter(&mut self, group: usize) {
        let mut slot = self.first_slot(self.groups[group].hash);
        while self.table[slot] != 0 {
            slot = (slot + 1) & (self.table.len() - 1);
        }
        self.table[slot] = group as u32 + 1;
    }

    /// Hands over all groups and forgets them.
    fn hand_over(&mut self, sink: &mut dyn BatchSink) -> Result<()> {
        for (i, group) in self.groups.iter().enumerate() {
            let keys = &mut &self.key_bytes[group.keys.clone()];
            let mut cells = Vec::with_capacity(self.keys.len() + self.aggregates.len());
            cells.extend(self.keys.iter().map(|key| take_key(keys, key.stored)));
            let states = &self.states[i * self.aggregates.len()..];
            for (aggregate, state) in self.aggregates.iter().zip(states) {
                cells.push(state.result(aggregate)?);
            }
            self.batches.row(sink, |column| cells[column])?;
        }
        self.batches.flush(sink)?;
        self.table.fill(0);
        self.groups.clear();
        self.key_bytes.clear();
        self.states.clear();
        self.kept_bytes = 0;
        Ok(())
    }

    /// Hands over the last groups.
    ///
    /// # Errors
    /// As [`Groups::row`].
    pub fn finish(mut self, sink: &mut dyn BatchSink) -> Result<()> {
        self.hand_over(sink)
    }
}

/// Takes a key off the front of encoded ones.
fn take_key<'k>(keys: &mut &'k [u8], stored: ColumnType) -> Cell<'k> {
    let mut take = |bytes: usize| keys.split_off(..bytes).unwrap_or_default();
    if take(1) != [1] {
        return Cell::Null;
    }
    match stored {
        ColumnType::Boolean => Cell::Boolean(take(1) == [1]),
        ColumnType::Integer { bytes } | ColumnType::Float { bytes } => {
            let mut word = [0; size_of::<i128>()];
            word[..usize::from(bytes)].copy_from_slice(take(usize::from(bytes)));
            Cell::Integer(sign_extend(i128::from_le_bytes(word), bytes))
        }
        ColumnType::Bytes => {
            let len = take(size_of::<usize>()).first_chunk().copied();
            Cell::Bytes(take(usize::from_le_bytes(len.unwrap_or_default())))
        }
    }
}

impl State {
    fn new(aggregate: &Aggregate) -> Self {
        match aggregate {
            Aggregate::Count(_) => Self::Count(0),
            Aggregate::Sum { .. } => Self::Sum {
                low: 0,
                high: 0,
                is_any: false,
            },
            Aggregate::Min(_) | Aggregate::Max(_) => Self::Extreme(Kept::Null),
        }
    }

    /// Takes in a row. Returns by how many bytes that what is kept gets longer.
    #[inline]
    fn update<'c>(&mut self, aggregate: &Aggregate, cell: &impl Fn(Register) -> Cell<'c>) -> i64 {
        match (self, *aggregate) {
            (Self::Count(count), Aggregate::Count(of)) => {
                let counts = of.is_none_or(|of| cell(of) != Cell::Null);
                *count += i128::from(counts);
            }
            (Self::Sum { low, high, is_any }, Aggregate::Sum { of, .. }) => {
                if let Cell::Integer(integer) = cell(of) {
                    add_to(low, high, integer);
                    *is_any = true;
                }
            }
            (Self::Extreme(kept), Aggregate::Min(column)) => {
                let cell = cell(column.register);
                if cell != Cell::Null && (kept.is_null() || cell < kept.cell()) {
                    return kept.replace(cell);
                }
            }
            (Self::Extreme(kept), Aggregate::Max(column)) => {
                let cell = cell(column.register);
                if cell != Cell::Null && (kept.is_null() || cell > kept.cell()) {
                    return kept.replace(cell);
                }
            }
            _ => {}
        }
        0
    }

    /// Takes in several rows. Returns by how many bytes that what is kept gets longer.
    fn add(&mut self, aggregate: &Aggregate, part: Part) -> i64 {
        match (self, part) {
            (Self::Count(count), Part::Count(more)) => *count += i128::from(more),
            (
                Self::Sum { low, high, is_any },
                Part::Sum {
                    low: more,
                    high: more_high,
                    is_any: is_more,
                },
            ) => {
                add_to(low, high, more);
                *high += more_high;
                *is_any |= is_more;
            }
            (state @ Self::Extreme(_), Part::Extreme(cell)) => {
                return state.update(aggregate, &|_| cell);
            }
            _ => {}
        }
        0
    }

    fn result(&self, aggregate: &Aggregate) -> Result<Cell<'_>> {
        Ok(match (self, aggregate) {
            (Self::Count(count), _) => Cell::Integer(*count),
            (Self::Sum { is_any: false, .. }, _) => Cell::Null,
            (Self::Sum { low, high, .. }, Aggregate::Sum { range, .. }) => {
                if *high != 0 && *range == IntegerRange::Exact {
                    return Err(exceeds("a sum"));
                }
                Cell::Integer(range.wrap(*low))
            }
            (Self::Sum { low, .. }, _) => Cell::Integer(*low),
            (Self::Extreme(kept), _) => kept.cell(),
        })
    }
}

/// Adds an integer to a sum of 192 bits.
#[inline]
fn add_to(low: &mut i128, high: &mut i64, integer: i128) {
    let (sum, is_over) = low.overflowing_add(integer);
    *low = sum;
    *high += i64::from(is_over) * integer.signum() as i64;
}

/// The error of an integer that does not fit 128 bits.
pub fn exceeds(what: &str) -> Error {
    Error::new(ErrorKind::OutOfRange, format!("{what} exceeds 128 bits"))
}

impl Kept {
    fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    fn cell(&self) -> Cell<'_> {
        match self {
            Self::Null => Cell::Null,
            Self::Boolean(is_true) => Cell::Boolean(*is_true),
            Self::Integer(integer) => Cell::Integer(*integer),
            Self::Bytes(bytes) => Cell::Bytes(bytes),
        }
    }

    /// Keeps another value. Returns by how many bytes that is longer.
    fn replace(&mut self, cell: Cell<'_>) -> i64 {
        match (self, cell) {
            (Self::Bytes(kept), Cell::Bytes(bytes)) => {
                let before = kept.len();
                kept.clear();
                kept.extend_from_slice(bytes);
                return bytes.len() as i64 - before as i64;
            }
            (kept, Cell::Bytes(bytes)) => {
                *kept = Self::Bytes(bytes.to_vec());
                return bytes.len() as i64;
            }
            (kept, Cell::Integer(integer)) => *kept = Self::Integer(integer),
            (kept, Cell::Boolean(is_true)) => *kept = Self::Boolean(is_true),
            (kept, Cell::Null) => *kept = Self::Null,
        }
        0
    }
}
