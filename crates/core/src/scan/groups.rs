//! Rows to groups.

use std::ops::Range;

use super::batches::push_lowest;
use super::cell::sign_extend;
use super::{
    Aggregate, Aggregation, BatchSink, Batches, Cell, Cells, ColumnType, GROUP_BYTES, IntegerRange,
    OutputColumn, Register,
};
use crate::error::{Error, ErrorKind, Result};
use crate::hash::{entry_hash, kv_hash};

/// Groups rows by their keys.
#[derive(Debug)]
pub struct Groups {
    keys: Vec<OutputColumn>,
    aggregates: Vec<Aggregate>,
    max_groups: usize,
    /// Positions of groups, from 1 on, by hash; 0 is free. Its length is a power of two, more than twice the number of
    /// groups.
    table: Vec<u32>,
    /// In the order of their first rows.
    groups: Vec<Group>,
    /// Keys of all groups, as [`Groups::encode_keys`] writes them.
    key_bytes: Vec<u8>,
    /// States of each group's aggregates.
    states: Vec<State>,
    /// Bytes of the stored minima and maxima.
    stored_bytes: i64,
    /// Keys of the current row.
    encoded: Vec<u8>,
    /// Groups of the rows that [`Groups::rows`] has not added yet.
    waiting: Vec<u32>,
    batches: Batches,
}

#[derive(Debug)]
struct Group {
    hash: u64,
    /// Range of the group's keys.
    keys: Range<usize>,
}

/// State of an aggregate after the rows of a group so far.
#[derive(Debug)]
enum State {
    Count(i128),
    /// A sum of 192 bits, so that the order of the rows does not matter: the lowest 128 bits and the others; and
    /// whether there was a value.
    Sum {
        low: i128,
        high: i64,
        is_any: bool,
    },
    Extreme(StoredValue),
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
        /// The upper part, in units of 2^128.
        high: i64,
        /// Whether a value is not null.
        is_any: bool,
    },
    /// The minimum or maximum of the values that are not null, or null.
    Extreme(Cell<'static>),
}

/// A stored minimum or maximum.
#[derive(Debug)]
enum StoredValue {
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
            stored_bytes: 0,
            encoded: Vec::new(),
            waiting: Vec::new(),
            batches: Batches::new(columns),
        };
        if groups.keys.is_empty() {
            groups.add(0);
        }
        groups
    }

    /// Adds a row; `cell` returns its values.
    ///
    /// # Errors
    /// OutOfRange if groups are passed on and a sum exceeds 128 bits, and the errors of the sink.
    #[inline]
    pub fn row<'c>(
        &mut self,
        sink: &mut dyn BatchSink,
        cell: impl Fn(Register) -> Cell<'c>,
    ) -> Result<()> {
        let group = self.group(sink, &cell)?;
        let states = &mut self.states[group * self.aggregates.len()..];
        for (aggregate, state) in self.aggregates.iter().zip(states) {
            self.stored_bytes += state.update(aggregate, &cell);
        }
        self.bound(sink)
    }

    /// Adds rows, one aggregate after another.
    ///
    /// # Errors
    /// The errors of [`Groups::row`].
    pub fn rows(
        &mut self,
        sink: &mut dyn BatchSink,
        rows: &[u32],
        cells: &impl Cells,
    ) -> Result<()> {
        let stores_bytes = |aggregate: &Aggregate| match aggregate {
            Aggregate::Min(column) | Aggregate::Max(column) => column.stored == ColumnType::Bytes,
            _ => false,
        };
        if self.aggregates.iter().any(stores_bytes) {
            // Groups end with the row whose minimum or maximum is too long.
            for &row in rows {
                self.row(sink, |register| cells.cell(register, row as usize))?;
            }
            return Ok(());
        }
        if self.keys.is_empty() {
            self.waiting.resize(rows.len(), 0);
            self.add_waiting(rows, cells);
            return Ok(());
        }
        let mut first = 0;
        for (position, &row) in rows.iter().enumerate() {
            self.encode_keys(&|register| cells.cell(register, row as usize));
            let hash = self.hash();
            let group = match self.known(hash) {
                Some(group) => group,
                None => {
                    if self.groups.len() == self.max_groups {
                        self.add_waiting(&rows[first..position], cells);
                        first = position;
                        self.hand_over(sink)?;
                    }
                    self.add(hash)
                }
            };
            self.waiting.push(group as u32);
            if self.has_too_many_bytes() {
                self.add_waiting(&rows[first..=position], cells);
                first = position + 1;
                self.hand_over(sink)?;
            }
        }
        self.add_waiting(&rows[first..], cells);
        Ok(())
    }

    /// Adds rows whose groups wait. No aggregate stores bytes.
    fn add_waiting(&mut self, rows: &[u32], cells: &impl Cells) {
        let aggregates = self.aggregates.len();
        for (position, aggregate) in self.aggregates.iter().enumerate() {
            let places = self.waiting.iter();
            let places = places.map(|group| *group as usize * aggregates + position);
            let states = &mut self.states;
            match *aggregate {
                Aggregate::Count(None) => places.for_each(|place| states[place].count()),
                Aggregate::Sum { of, .. } if let Some((integers, nulls)) = cells.integers(of) => {
                    for (place, &row) in places.zip(rows) {
                        if nulls.is_none_or(|nulls| !nulls[row as usize]) {
                            states[place].sum(i128::from(integers[row as usize]));
                        }
                    }
                }
                _ => {
                    for (place, &row) in places.zip(rows) {
                        let cell = |register| cells.cell(register, row as usize);
                        states[place].update(aggregate, &cell);
                    }
                }
            }
        }
        self.waiting.clear();
    }

    /// Adds rows of one group; `cell` returns the keys and `part` each aggregate's value over them.
    ///
    /// # Errors
    /// The errors of [`Groups::row`].
    pub fn part<'c>(
        &mut self,
        sink: &mut dyn BatchSink,
        cell: impl Fn(Register) -> Cell<'c>,
        part: impl Fn(&Aggregate) -> Part,
    ) -> Result<()> {
        let group = self.group(sink, &cell)?;
        let states = &mut self.states[group * self.aggregates.len()..];
        for (aggregate, state) in self.aggregates.iter().zip(states) {
            self.stored_bytes += state.add(aggregate, part(aggregate));
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

    /// Passes on all groups if they have too many bytes.
    #[inline]
    fn bound(&mut self, sink: &mut dyn BatchSink) -> Result<()> {
        match self.has_too_many_bytes() {
            true => self.hand_over(sink),
            false => Ok(()),
        }
    }

    #[inline]
    fn has_too_many_bytes(&self) -> bool {
        let bytes = self.key_bytes.len() as i64 + self.stored_bytes;
        bytes > GROUP_BYTES as i64 && !self.keys.is_empty()
    }

    /// Writes the keys of a row one after another: a byte that says whether the key is null, and the key. The length
    /// precedes bytes.
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

    /// The group of the current keys, which may be a new one.
    #[inline]
    fn find(&mut self, sink: &mut dyn BatchSink) -> Result<usize> {
        let hash = self.hash();
        if let Some(group) = self.known(hash) {
            return Ok(group);
        }
        if self.groups.len() == self.max_groups {
            self.hand_over(sink)?;
        }
        Ok(self.add(hash))
    }

    /// Hash of the current keys.
    #[inline]
    fn hash(&self) -> u64 {
        entry_hash(kv_hash(&self.encoded, &[]), 0)
    }

    /// The group of the current keys, if there is one.
    #[inline]
    fn known(&self, hash: u64) -> Option<usize> {
        let mut slot = self.first_slot(hash);
        while let Some(group) = (self.table[slot] as usize).checked_sub(1) {
            let found = &self.groups[group];
            if found.hash == hash && self.key_bytes[found.keys.clone()] == self.encoded {
                return Some(group);
            }
            slot = (slot + 1) & (self.table.len() - 1);
        }
        None
    }

    fn first_slot(&self, hash: u64) -> usize {
        hash as usize & (self.table.len() - 1)
    }

    /// Adds a group with the current keys.
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

    /// Enters a group into the hash table.
    fn enter(&mut self, group: usize) {
        let mut slot = self.first_slot(self.groups[group].hash);
        while self.table[slot] != 0 {
            slot = (slot + 1) & (self.table.len() - 1);
        }
        self.table[slot] = group as u32 + 1;
    }

    /// Passes on all groups and forgets them.
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
        self.stored_bytes = 0;
        Ok(())
    }

    /// Passes on the last groups.
    ///
    /// # Errors
    /// The errors of [`Groups::row`].
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
            Aggregate::Min(_) | Aggregate::Max(_) => Self::Extreme(StoredValue::Null),
        }
    }

    /// Counts a row.
    #[inline]
    fn count(&mut self) {
        if let Self::Count(count) = self {
            *count += 1;
        }
    }

    /// Adds an integer to a sum.
    #[inline]
    fn sum(&mut self, integer: i128) {
        if let Self::Sum { low, high, is_any } = self {
            add_to(low, high, integer);
            *is_any = true;
        }
    }

    /// Adds a row. Returns by how many bytes the stored values grow.
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
            (Self::Extreme(stored), Aggregate::Min(column)) => {
                let cell = cell(column.register);
                if cell != Cell::Null && (stored.is_null() || cell < stored.cell()) {
                    return stored.replace(cell);
                }
            }
            (Self::Extreme(stored), Aggregate::Max(column)) => {
                let cell = cell(column.register);
                if cell != Cell::Null && (stored.is_null() || cell > stored.cell()) {
                    return stored.replace(cell);
                }
            }
            _ => {}
        }
        0
    }

    /// Adds several rows. Returns by how many bytes the stored values grow.
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
            (Self::Extreme(stored), _) => stored.cell(),
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

impl StoredValue {
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

    /// Stores another value. Returns by how many bytes it is longer.
    fn replace(&mut self, cell: Cell<'_>) -> i64 {
        match (self, cell) {
            (Self::Bytes(stored), Cell::Bytes(bytes)) => {
                let before = stored.len();
                stored.clear();
                stored.extend_from_slice(bytes);
                return bytes.len() as i64 - before as i64;
            }
            (stored, Cell::Bytes(bytes)) => {
                *stored = Self::Bytes(bytes.to_vec());
                return bytes.len() as i64;
            }
            (stored, Cell::Integer(integer)) => *stored = Self::Integer(integer),
            (stored, Cell::Boolean(is_true)) => *stored = Self::Boolean(is_true),
            (stored, Cell::Null) => *stored = Self::Null,
        }
        0
    }
}
