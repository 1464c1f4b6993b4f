//! A file with the state of each write.

use std::ops::Range;

use super::Survival;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Pending,
    Synced,
    /// Its sync failed.
    Lost,
}

#[derive(Debug, Clone, Default)]
pub(super) struct File {
    /// Contents, with zeros where nothing was written.
    pub(super) bytes: Vec<u8>,
    /// Writes in order, which is also their order in the file.
    writes: Vec<(Range<usize>, State)>,
}

impl File {
    /// Returns the end of the written bytes.
    pub(super) fn written(&self) -> usize {
        self.writes.last().map_or(0, |(range, _)| range.end)
    }

    pub(super) fn write_at(&mut self, bytes: &[u8], start: usize) {
        assert!(self.written() <= start, "files are written front to back");
        let range = start..start + bytes.len();
        self.reserve(range.end);
        self.bytes[range.clone()].copy_from_slice(bytes);
        self.writes.push((range, State::Pending));
    }

    /// Extends the file to at least `len` bytes.
    pub(super) fn reserve(&mut self, len: usize) {
        self.bytes.resize(self.bytes.len().max(len), 0);
    }

    /// Removes bytes that were not synced.
    pub(super) fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len);
        self.bytes.shrink_to_fit();
        for (range, _) in &mut self.writes {
            *range = range.start.min(len)..range.end.min(len);
        }
        self.writes.retain(|(range, _)| !range.is_empty());
    }

    pub(super) fn settle(&mut self, becomes: State) {
        for (_, state) in &mut self.writes {
            if *state == State::Pending {
                *state = becomes;
            }
        }
    }

    pub(super) fn is_durable(&self) -> bool {
        self.writes.iter().all(|(_, state)| *state == State::Synced)
    }

    pub(super) fn crash(&mut self, survival: &mut Survival<'_>) {
        let mut left = Vec::new();
        if self.written() < self.bytes.len() {
            // Preallocated space survives independently.
            left.resize(survival.part(self.bytes.len()), 0);
        }
        for (range, state) in &self.writes {
            let part = match state {
                State::Synced => range.len(),
                State::Pending => survival.part(range.len()),
                State::Lost => 0,
            };
            if part > 0 {
                let range = range.start..range.start + part;
                // A gap left by an earlier lost write reads as zeros.
                left.resize(left.len().max(range.end), 0);
                left[range.clone()].copy_from_slice(&self.bytes[range]);
            }
        }
        self.writes = vec![(0..left.len(), State::Synced)];
        self.bytes = left;
    }
}
