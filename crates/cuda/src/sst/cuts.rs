//! The keys of each output file, and its range tombstones. The keys from the start of a file to the start of the next
//! one belong to that file, so that no tombstone loses a key between files.

use std::ops::Range;

use rockmill_core::{CompactionRules, KeyRange, Result};
use rockmill_format::range_tombstone::RangeTombstone;

use super::buffers::SstBuffers;
use super::images::Image;
use super::layout::{MAX_CUTS, MAX_FILES};
use crate::driver::ffi::{Key, NO_FRAGMENT};
use crate::driver::{altered, refused};
use crate::read::{KEY_PADDING, ReadState, SelectedRows, WORD_KEY_BYTES, download_checked};

/// A file that may be written.
#[derive(Debug)]
pub struct Planned {
    /// Surviving entries; none in a file with only range tombstones.
    pub entries: Range<usize>,
    /// Range tombstones.
    pub tombstones: Vec<RangeTombstone>,
    /// The user key of its first surviving entry, if the file begins with it.
    pub first_key: Option<Vec<u8>>,
}

impl Planned {
    /// A file without range tombstones.
    pub fn without_tombstones(image: &Image) -> Self {
        Self {
            entries: image.entries.clone(),
            tombstones: Vec::new(),
            first_key: None,
        }
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.tombstones.is_empty()
    }
}

/// The files of a task with range tombstones, whose keys are those of `range`.
///
/// # Errors
/// Device; Verification if the returned data are impossible.
pub fn plan_files(
    read: &ReadState,
    sst: &SstBuffers,
    selected_rows: &SelectedRows,
    rules: &CompactionRules,
    range: &KeyRange,
) -> Result<Vec<Planned>> {
    let too_many = || refused("this number of output files in one task");
    let (cuts, error) = download_checked(&read.ws, &sst.cuts, MAX_CUTS + 1)?;
    if error.is_some() {
        return Err(too_many());
    }
    let unknown = || altered("files end where no key is");
    let number = cuts[MAX_CUTS].selected_rows as usize;
    let cuts = cuts[..MAX_CUTS].get(..number).ok_or_else(unknown)?;
    let begins: Vec<_> = rules
        .tombstones
        .in_range(range)
        .map(|one| one.begin)
        .collect();
    let mut starts = Vec::with_capacity(number);
    for (i, cut) in cuts.iter().enumerate() {
        let first = cut.selected_rows as usize;
        let first_key = match cut.fragment {
            NO_FRAGMENT => Some(user_key(read, selected_rows, first)?),
            _ => None,
        };
        // The first file has all keys before its first one.
        let begin = match (i, &first_key) {
            (0, _) => range.begin.clone(),
            (_, Some(key)) => Some(key.clone()),
            (_, None) => {
                let begin = begins.get(cut.fragment as usize).ok_or_else(unknown)?;
                Some(begin.to_vec())
            }
        };
        starts.push((first, begin, first_key));
    }
    if starts.is_empty() {
        starts.push((0, range.begin.clone(), None));
    }
    let mut files = Vec::with_capacity(starts.len());
    let mut end = (selected_rows.len, range.end.clone());
    while let Some((first, begin, first_key)) = starts.pop() {
        let keys = KeyRange {
            begin: begin.clone(),
            end: end.1,
        };
        let is_ordered = (keys.begin.as_ref().zip(keys.end.as_ref())).is_none_or(|(a, b)| a <= b);
        if !is_ordered || first > end.0 {
            return Err(unknown());
        }
        files.push(Planned {
            entries: first..end.0,
            tombstones: rules.kept_tombstones(&keys),
            first_key,
        });
        end = (first, begin);
    }
    files.retain(|file| !file.is_empty());
    if files.len() > MAX_FILES {
        return Err(too_many());
    }
    files.reverse();
    Ok(files)
}

/// The user key of a surviving entry.
fn user_key(read: &ReadState, selected_rows: &SelectedRows, at: usize) -> Result<Vec<u8>> {
    if at >= selected_rows.len {
        return Err(altered("a file begins with an entry that is not there"));
    }
    let stream = &read.ws.stream;
    let keys = read.buffers.keys_on(selected_rows.side);
    let Key {
        hi, lo, entry, len, ..
    } = keys.download(at, 1, stream)?[0];
    if u64::from(len) <= WORD_KEY_BYTES {
        let words = [hi.to_be_bytes(), lo.to_be_bytes()].concat();
        return Ok(words[..len as usize].to_vec());
    }
    let place = read.buffers.key_at.download(entry as usize, 1, stream)?[0];
    let start = KEY_PADDING + place as usize;
    (read.buffers.key_bytes).download(start, len as usize, stream)
}
