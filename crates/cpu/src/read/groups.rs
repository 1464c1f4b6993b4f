//! A scan of tables whose columns are kept: groups of entries in place of single ones.
//!
//! ```text
//!   table --> group, group, ..     kept since an earlier scan, or parsed now
//!   Run   --> the first key that no scan step has passed
//!     ..  --> stretches: entries of one run in front of all keys of the others
//!               |  those that the snapshot sees, by the rules of `see`
//!               v
//!             Scanner::group
//! ```
//!
//! A group in which the filter selects nothing is passed without its columns: its rows still hide older ones of other runs.
//! A stretch of a plain group below the snapshot is passed on without a look at its entries.

use std::cell::OnceCell;
use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use rockmill_core::columns::{
    Column, ColumnName, Group, blocks_of, group_of, group_share, has_groups,
};
use rockmill_core::scan::{BatchSink, ScanPlan};
use rockmill_core::{
    CancelToken, Error, InputTable, KeyRange, Output, Purpose, ReadReport, Request, Result,
    SnapshotRules, TaskReport,
};
use rockmill_format::key;

use super::retain::RetainTotals;
use super::snapshot::decide;
use crate::scan::{GROUPS_BYTES, Leaves, Scanner, parse};

/// Maximum number of tables. With more, an order by single entries needs less memory and fewer comparisons.
const MAX_TABLES: usize = 16;

/// Maximum of [`memory_bytes`]. A piece of a scan fits the smallest budget with it.
const MAX_MEMORY_BYTES: u64 = 16 << 20;

/// Maximum bytes of a parsed group. Some blocks compress far better than others; then a group is a single block.
const MAX_PARSED_BYTES: usize = 4 << 20;

/// Whether a request may be scanned by groups, as far as its tables decide.
pub fn may_group(request: &Request<'_>) -> bool {
    let tables = || tables_in(request).map(|(_, table)| table);
    let is_named = |table: &InputTable| {
        table
            .columns()
            .is_some_and(|columns| columns.identity.is_some())
    };
    let keeps = |table: &InputTable| {
        let columns = table.columns();
        columns.is_some_and(|columns| columns.identity.is_some() && columns.cache.is_on())
    };
    matches!(request.purpose, Purpose::Scan(_))
        && tables().any(keeps)
        && tables().count() <= MAX_TABLES
        && memory_bytes(request) <= MAX_MEMORY_BYTES
        // A table that has an identity has groups.
        && tables().all(|table| is_named(table) || has_groups(table))
}

/// The columns of a request that is scanned by groups; `None` if it is scanned by entries: no table keeps columns, or some
/// value of the plan cannot be kept.
pub fn leaves(request: &Request<'_>) -> Result<Option<Leaves>> {
    match request.purpose {
        Purpose::Scan(plan) if may_group(request) => Leaves::of(plan),
        _ => Ok(None),
    }
}

/// The tables that have keys of a request's range, and their positions.
fn tables_in<'a>(request: &Request<'a>) -> impl Iterator<Item = (usize, &'a InputTable)> {
    let range = request.range;
    let tables = request.tables.iter().enumerate();
    tables.filter(move |(_, table)| table.overlaps(range))
}

/// Host memory of the groups of a request.
pub fn memory_bytes(request: &Request<'_>) -> u64 {
    /// Bytes of entries, their parts in columns that grow, and the columns.
    const COPIES: u64 = 4;
    let of_table = |(_, table): (usize, &InputTable)| {
        let group = group_share(table, table.meta.properties.raw_bytes());
        group.saturating_add(table.largest_block_bytes())
    };
    let groups = tables_in(request).map(of_table);
    let groups = groups.fold(0, u64::saturating_add).saturating_mul(COPIES);
    let waiting = tables_in(request).map(|(_, table)| table.meta.properties.raw_bytes());
    let waiting = waiting.fold(0, u64::saturating_add);
    groups.saturating_add(waiting.min(GROUPS_BYTES))
}

/// The groups of a request's tables.
#[derive(Debug)]
pub struct GroupReader<'a> {
    plan: &'a ScanPlan,
    rules: SnapshotRules<'a>,
    leaves: Arc<Leaves>,
    runs: Vec<Run<'a>>,
    report: ReadReport,
}

impl<'a> GroupReader<'a> {
    /// A reader at the first entries.
    ///
    /// # Errors
    /// Those of reading.
    pub fn open(
        plan: &'a ScanPlan,
        rules: SnapshotRules<'a>,
        leaves: Leaves,
        request: &Request<'a>,
        cancel: &'a CancelToken,
    ) -> Result<Self> {
        let mut reader = Self {
            plan,
            rules,
            leaves: Arc::new(leaves),
            runs: Vec::new(),
            report: ReadReport {
                entries: vec![0; request.tables.len()],
                ..ReadReport::default()
            },
        };
        for (ordinal, table) in tables_in(request) {
            let blocks = table.blocks_in_range(request.range);
            let mut run = Run {
                table,
                ordinal,
                range: request.range,
                next: blocks.start,
                blocks,
                single: 0..0,
                names: table.columns().map_or_else(Vec::new, |columns| {
                    columns.cache.names(&reader.leaves.expressions)
                }),
                read_ahead_bytes: request.read_ahead_bytes,
                cancel,
                loaded: None,
            };
            run.load(plan, &reader.leaves, &mut reader.report)?;
            reader.runs.push(run);
        }
        Ok(reader)
    }

    /// Scans all rows.
    ///
    /// # Errors
    /// Those of reading, of the scanner and of the sink; Declined for an entry that does not determine the value alone.
    pub fn scan(mut self, batches: &mut dyn BatchSink) -> Result<TaskReport> {
        let leaves = Arc::clone(&self.leaves);
        let mut scanner = Scanner::over(self.plan, &leaves, batches)?;
        let mut seen = Seen::default();
        while let Some(first) = self.first() {
            let run = &self.runs[first];
            let Some(loaded) = &run.loaded else {
                break;
            };
            let others = self.runs.iter().enumerate();
            let others = others.filter(|(position, _)| *position != first);
            let bound = others
                .filter_map(|(_, run)| Some(run.loaded.as_ref()?.key()))
                .min();
            let end = loaded.end_below(bound);
            seen.pass(&self.rules, loaded, end, &mut scanner)?;
            let run = &mut self.runs[first];
            if let Some(loaded) = &mut run.loaded {
                loaded.rows.start = end;
                if loaded.rows.is_empty() {
                    run.load(self.plan, &leaves, &mut self.report)?;
                }
            }
        }
        let totals = seen.totals;
        Ok(TaskReport {
            output: Output::Batches(scanner.finish()?),
            read: ReadReport {
                replaced: totals.replaced,
                tombstones_dropped: totals.tombstones_dropped,
                above_snapshot: totals.above,
                kept: totals.kept,
                dropped: totals.dropped,
                ..self.report
            },
            ..TaskReport::default()
        })
    }

    /// The run with the first entry.
    fn first(&self) -> Option<usize> {
        let heads = self.runs.iter().enumerate();
        let heads = heads.filter_map(|(position, run)| Some((position, run.loaded.as_ref()?)));
        let (first, _) = heads.min_by(|(_, a), (_, b)| a.order(b))?;
        Some(first)
    }
}

/// The entries of a table, group by group.
#[derive(Debug)]
struct Run<'a> {
    table: &'a InputTable,
    /// Position in the request's tables.
    ordinal: usize,
    range: &'a KeyRange,
    /// The blocks that may have keys of the range.
    blocks: Range<usize>,
    /// The first of them that is in no group so far.
    next: usize,
    /// Blocks that are too large to be parsed together.
    single: Range<usize>,
    /// Names of the columns, if the table keeps some.
    names: Vec<ColumnName>,
    read_ahead_bytes: usize,
    cancel: &'a CancelToken,
    /// The current group; `None` at the end.
    loaded: Option<Loaded>,
}

impl Run<'_> {
    /// Moves to the next group with entries in the range.
    fn load(&mut self, plan: &ScanPlan, leaves: &Leaves, report: &mut ReadReport) -> Result<()> {
        self.loaded = None;
        while self.loaded.is_none() && self.next < self.blocks.end {
            self.cancel.check()?;
            let number = group_of(self.table, self.next);
            let blocks = blocks_of(self.table, number);
            let selected = self.next..self.blocks.end.min(blocks.end);
            // Others may have kept a group whose first blocks were passed already.
            let is_begun = self.single.contains(&self.next);
            let kept = match is_begun {
                true => None,
                false => self.kept(number, plan, leaves, report),
            };
            let loaded = match kept {
                Some(kept) => {
                    self.next = blocks.end;
                    kept
                }
                None => self.parse(number, blocks, selected, plan, leaves, report)?,
            };
            report.entries[self.ordinal] += loaded.rows.len() as u64;
            self.loaded = Some(loaded).filter(|loaded| !loaded.rows.is_empty());
        }
        Ok(())
    }

    /// The group if it is kept and sound, with all columns; or without, if the filter selects none of its rows.
    fn kept(
        &self,
        number: u64,
        plan: &ScanPlan,
        leaves: &Leaves,
        report: &mut ReadReport,
    ) -> Option<Loaded> {
        let kept = self.table.columns()?;
        let identity = kept.identity?;
        let (group, columns) = (kept.cache).get(identity, number, &self.names)?;
        let is_unselected = leaves.conditions.select_nothing(plan, &columns);
        let used: Vec<_> = match is_unselected {
            true => leaves.conditions.positions.clone(),
            false => (0..columns.len()).collect(),
        };
        let names: Vec<_> = used.iter().map(|position| self.names[*position]).collect();
        let columns = used.iter().map(|position| columns[*position].clone());
        let columns = columns.collect::<Option<Vec<_>>>()?;
        if !group.is_sound() || !columns.iter().all(|column| column.is_sound()) {
            kept.cache.mismatch(identity, number);
            return None;
        }
        let bytes = columns.iter().map(|column| column.bytes());
        let bytes = group.bytes() + bytes.sum::<u64>();
        kept.cache.used(identity, number, &names, bytes);
        report.kept_columns += columns.len() as u64;
        report.kept_bytes += bytes;
        let columns = (!is_unselected).then_some(columns);
        Some(Loaded::new(group, columns, self.range))
    }

    /// Reads a group, of which a scan wants some blocks, or the first of these if all are too large.
    fn parse(
        &mut self,
        number: u64,
        blocks: Range<usize>,
        selected: Range<usize>,
        plan: &ScanPlan,
        leaves: &Leaves,
        report: &mut ReadReport,
    ) -> Result<Loaded> {
        let parse = |blocks, most_bytes| {
            let read_ahead_bytes = self.read_ahead_bytes;
            parse(
                plan,
                leaves,
                self.table,
                blocks,
                most_bytes,
                read_ahead_bytes,
                self.cancel,
            )
        };
        let kept = self.table.columns();
        let kept = kept.and_then(|kept| Some((&kept.cache, kept.identity?)));
        let mut is_large = self.single.contains(&selected.start);
        // A scan of few keys does not read many others.
        let is_most = 2 * selected.len() >= blocks.len() && !is_large;
        let mut parsed = None;
        if let Some((cache, identity)) = kept.filter(|_| is_most) {
            match parse(blocks.clone(), MAX_PARSED_BYTES) {
                Ok(Some(whole)) => {
                    let named = self.names.iter().copied();
                    let named: Vec<_> = named.zip(whole.columns.iter().cloned()).collect();
                    cache.put(identity, number, &whole.group, &named);
                    parsed = Some(whole);
                }
                Ok(None) => is_large = selected == blocks,
                // Another block may be damaged, which does not concern this scan.
                Err(_) => {}
            }
        }
        if parsed.is_none() && !is_large {
            parsed = parse(selected.clone(), MAX_PARSED_BYTES)?;
        }
        let parsed = match parsed {
            Some(parsed) => {
                self.next = blocks.end;
                parsed
            }
            None => {
                let first = selected.start..selected.start + 1;
                let parsed = parse(first.clone(), usize::MAX)?;
                self.single = selected;
                self.next = first.end;
                parsed.ok_or_else(|| Error::internal("a block was not parsed"))?
            }
        };
        report.bytes += parsed.bytes_read;
        let columns = Some(parsed.columns);
        Ok(Loaded::new(parsed.group, columns, self.range))
    }
}

/// The rows of a group whose keys are in a range.
fn rows_in(group: &Group, range: &KeyRange) -> Range<usize> {
    let before = |key: &Option<Vec<u8>>| {
        let key = key.as_deref()?;
        Some(first_not_below(group, 0..group.entries(), key))
    };
    let start = before(&range.begin).unwrap_or(0);
    let end = before(&range.end).unwrap_or(group.entries());
    start..end.max(start)
}

/// The first of some rows whose key is not below another one.
fn first_not_below(group: &Group, rows: Range<usize>, key: &[u8]) -> usize {
    let (mut start, mut end) = (rows.start, rows.end);
    while start < end {
        let middle = start.midpoint(end);
        match group.keys.row(middle).unwrap_or_default() < key {
            true => start = middle + 1,
            false => end = middle,
        }
    }
    start
}

/// The current group of a run.
#[derive(Debug)]
struct Loaded {
    group: Arc<Group>,
    /// `None` if no row is selected.
    columns: Option<Vec<Arc<Column>>>,
    /// The entries that are not passed yet.
    rows: Range<usize>,
    tags: OnceCell<Vec<i64>>,
}

impl Loaded {
    fn new(group: Arc<Group>, columns: Option<Vec<Arc<Column>>>, range: &KeyRange) -> Self {
        Self {
            rows: rows_in(&group, range),
            group,
            columns,
            tags: OnceCell::new(),
        }
    }

    fn key_of(&self, row: usize) -> &[u8] {
        self.group.keys.row(row).unwrap_or_default()
    }

    /// Key of the first entry.
    fn key(&self) -> &[u8] {
        self.key_of(self.rows.start)
    }

    fn tag_of(&self, row: usize) -> u64 {
        let tags = self.tags.get_or_init(|| {
            let mut tags = Vec::with_capacity(self.group.entries());
            self.group.tags.integers(0..self.group.entries(), &mut tags);
            tags
        });
        tags[row] as u64
    }

    /// Passes rows that the snapshot sees.
    fn pass(&self, rows: Range<usize>, scanner: &mut Scanner<'_>) -> Result<()> {
        match &self.columns {
            Some(columns) => scanner.group(&self.group, columns, rows),
            None => {
                scanner.skip(rows.len());
                Ok(())
            }
        }
    }

    /// The order of the first entries: user key ascending, newest first.
    fn order(&self, other: &Self) -> Ordering {
        let newest_first = || {
            let tags = [other, self].map(|of| of.tag_of(of.rows.start));
            tags[0].cmp(&tags[1])
        };
        self.key().cmp(other.key()).then_with(newest_first)
    }

    /// The end of the entries that come before a key of another run. If the first entry has that key, it is alone.
    fn end_below(&self, bound: Option<&[u8]>) -> usize {
        /// Rows that are tried first.
        const NEAR: usize = 8;
        let Some(bound) = bound else {
            return self.rows.end;
        };
        let (mut start, mut step) = (self.rows.start, NEAR);
        // Stretches are short where another run has keys between all.
        while start + step < self.rows.end && self.key_of(start + step) < bound {
            start += step;
            step *= 2;
        }
        let rows = start..self.rows.end.min(start + step);
        let end = first_not_below(&self.group, rows, bound);
        end.max(self.rows.start + 1)
    }
}

/// The entries so far, as [`super::snapshot::see`] counts them.
#[derive(Debug, Default)]
struct Seen {
    totals: RetainTotals,
    /// The last decided user key, once there is one.
    decided: Option<Vec<u8>>,
    /// Position of the first fragment of range tombstones that ends behind that key.
    fragment: usize,
}

impl Seen {
    /// Passes the first entries of a group up to `end`, and those that the snapshot sees to the scanner.
    fn pass(
        &mut self,
        rules: &SnapshotRules<'_>,
        loaded: &Loaded,
        end: usize,
        scanner: &mut Scanner<'_>,
    ) -> Result<()> {
        let rows = loaded.rows.start..end;
        let is_decided =
            |decided: &Option<Vec<u8>>, row| decided.as_deref() == Some(loaded.key_of(row));
        let is_below = loaded
            .group
            .plain
            .is_some_and(|newest| newest <= rules.sequence);
        let is_covered = rules.deleted.is_some_and(|deleted| {
            let (first, last) = (loaded.key_of(rows.start), loaded.key_of(end - 1));
            self.fragment = deleted.ending_behind(first, self.fragment);
            let next = deleted.get(self.fragment);
            next.is_some_and(|next| next.begin <= last)
        });
        if is_below && !is_covered && !is_decided(&self.decided, rows.start) {
            self.decide(loaded.key_of(end - 1));
            self.totals.kept += rows.len() as u64;
            return loaded.pass(rows, scanner);
        }
        let mut kept = rows.start..rows.start;
        for row in rows {
            let tag = loaded.tag_of(row);
            let is_kept = if key::tag_sequence(tag) > rules.sequence {
                self.totals.above += 1;
                false
            } else if is_decided(&self.decided, row) {
                self.totals.replaced += 1;
                false
            } else {
                let key = loaded.key_of(row);
                self.decide(key);
                decide(rules, key, tag, &mut self.fragment, &mut self.totals)?
            };
            if is_kept {
                self.totals.kept += 1;
                if kept.end != row {
                    loaded.pass(kept, scanner)?;
                    kept = row..row;
                }
                kept.end = row + 1;
            } else {
                self.totals.dropped += 1;
            }
        }
        loaded.pass(kept, scanner)
    }

    fn decide(&mut self, key: &[u8]) {
        let decided = self.decided.get_or_insert_default();
        decided.clear();
        decided.extend_from_slice(key);
    }
}
