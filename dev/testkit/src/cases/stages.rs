//! Sources and sinks of the stages that process entries.

use rockmill_core::{CancelToken, InputTable, KeyRange, Result, key_prefix, kv_hash};
use rockmill_cpu::decode::{Accepted, Head, RunReader, RunTotals};
use rockmill_cpu::retain::{Sink, Source};

use super::tables::Entry;

/// A list of entries as the source of `retain`.
#[derive(Debug)]
pub struct VecSource<'a> {
    entries: &'a [Entry],
    at: usize,
}

impl<'a> VecSource<'a> {
    pub fn new(entries: &'a [Entry]) -> Self {
        Self { entries, at: 0 }
    }
}

impl Source for VecSource<'_> {
    fn head(&self) -> Option<Head<'_>> {
        let entry = self.entries.get(self.at)?;
        Some(Head {
            prefix: key_prefix(&entry.key),
            user_key: &entry.key,
            tag: entry.tag,
            value: &entry.value,
            kv_hash: kv_hash(&entry.key, &entry.value),
        })
    }

    fn advance(&mut self) -> Result<()> {
        assert!(self.at < self.entries.len(), "advanced behind the end");
        self.at += 1;
        Ok(())
    }
}

/// Collects the output of `retain`, and checks its hashes and flags.
#[derive(Debug, Default)]
pub struct VecSink(pub Vec<Entry>);

impl Sink for VecSink {
    fn emit(
        &mut self,
        user_key: &[u8],
        tag: u64,
        value: &[u8],
        hash: u64,
        first_of_key: bool,
    ) -> Result<()> {
        assert_eq!(hash, kv_hash(user_key, value), "hash of an emitted entry");
        let first = self.0.last().is_none_or(|last| last.key != user_key);
        assert_eq!(first_of_key, first, "first_of_key of an emitted entry");
        self.0.push(Entry {
            key: user_key.to_vec(),
            tag,
            value: value.to_vec(),
        });
        Ok(())
    }
}

/// All entries of a table in a range, and what the reader counted.
pub fn read(
    table: &InputTable,
    range: &KeyRange,
    read_ahead_bytes: usize,
) -> Result<(Vec<Entry>, RunTotals)> {
    let cancel = CancelToken::new();
    let mut run = RunReader::open(table, range, Accepted::Compacted, read_ahead_bytes, &cancel)?;
    let mut entries = Vec::new();
    while let Some(head) = run.head() {
        assert_eq!(head.kv_hash, kv_hash(head.user_key, head.value));
        assert_eq!(head.prefix, key_prefix(head.user_key));
        entries.push(entry_of(&head));
        run.advance()?;
    }
    Ok((entries, run.totals()))
}

pub fn entry_of(head: &Head<'_>) -> Entry {
    Entry {
        key: head.user_key.to_vec(),
        tag: head.tag,
        value: head.value.to_vec(),
    }
}
