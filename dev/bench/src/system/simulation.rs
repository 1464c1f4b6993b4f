//! How much of the input of compactions a cache should have, by a simulation of a leveled tree under uniform updates.
//!
//! Three levels, each ten times as large as the one above, under level 0. Keys lie in the interval from 0 to 1. A file has a
//! range of them and a number of bytes, which lie evenly in its range. A cached file makes room only for files of shallower
//! levels, and leaves when it is compacted.

use std::collections::BTreeMap;

/// Files of level 0 that start its compaction.
const LEVEL_0_FILES: usize = 4;
const LEVELS: usize = 3;
/// Size of a level per size of the one above.
const TIMES: f64 = 10.0;
/// Updates per byte of data before anything is counted, and in all.
const WARM: f64 = 0.6;
const ALL: f64 = 2.0;
/// Ranges that are narrower than this are empty.
const NOTHING: f64 = 1e-12;

/// Sizes of a database, in any unit.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// All records once.
    pub data: f64,
    /// A file.
    pub file: f64,
    /// A flushed write buffer.
    pub flush: f64,
    /// Files that have been flushed are not cached, since the host writes them.
    pub cache: f64,
}

#[derive(Debug, Clone, Copy)]
struct File {
    from: f64,
    to: f64,
    bytes: f64,
    id: u64,
}

/// Files by level and the order in which they came.
#[derive(Debug)]
struct Cache {
    limit: f64,
    bytes: f64,
    files: BTreeMap<(usize, u64), f64>,
}

impl Cache {
    /// Takes a file out, and returns whether it was there.
    fn take(&mut self, level: usize, id: u64) -> bool {
        let bytes = self.files.remove(&(level, id));
        self.bytes -= bytes.unwrap_or(0.0);
        bytes.is_some()
    }

    fn add(&mut self, level: usize, file: &File) {
        while self.bytes + file.bytes > self.limit {
            let deepest = self.files.keys().next_back().map(|&(level, _)| level);
            match deepest.filter(|&deepest| deepest > level) {
                Some(deepest) => {
                    let oldest = self.files.range((deepest, 0)..).next();
                    let oldest = oldest.map_or(0, |(&(_, id), _)| id);
                    self.take(deepest, oldest);
                }
                None => return,
            }
        }
        self.bytes += file.bytes;
        self.files.insert((level, file.id), file.bytes);
    }
}

struct Tree {
    sizes: Sizes,
    /// Level 0 and the three below it.
    levels: [Vec<File>; LEVELS + 1],
    cache: Cache,
    next: u64,
    read: f64,
    hit: f64,
}

/// The share of the bytes that compactions read which a cache of this size has.
pub fn hit_share(sizes: Sizes) -> f64 {
    let mut tree = Tree::new(sizes);
    let mut written = 0.0;
    while written < ALL * sizes.data {
        if written < WARM * sizes.data {
            (tree.read, tree.hit) = (0.0, 0.0);
        }
        let id = tree.id();
        tree.levels[0].push(File {
            from: 0.0,
            to: 1.0,
            bytes: sizes.flush,
            id,
        });
        written += sizes.flush;
        tree.compact();
    }
    tree.hit / tree.read.max(f64::MIN_POSITIVE)
}

impl Tree {
    fn new(sizes: Sizes) -> Self {
        let mut tree = Self {
            sizes,
            levels: Default::default(),
            cache: Cache {
                limit: sizes.cache,
                bytes: 0.0,
                files: BTreeMap::new(),
            },
            next: 0,
            read: 0.0,
            hit: 0.0,
        };
        for level in 1..=LEVELS {
            let bytes = tree.target(level);
            let files = (bytes / sizes.file).round().max(1.0);
            for at in 0..files as u64 {
                let (from, to) = (at as f64 / files, (at + 1) as f64 / files);
                let id = tree.id();
                let bytes = bytes / files;
                tree.levels[level].push(File {
                    from,
                    to,
                    bytes,
                    id,
                });
            }
        }
        tree
    }

    fn id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn target(&self, level: usize) -> f64 {
        self.sizes.data / TIMES.powi((LEVELS - level) as i32)
    }

    fn compact(&mut self) {
        if self.levels[0].len() >= LEVEL_0_FILES {
            let mut inputs = std::mem::take(&mut self.levels[0]);
            inputs.iter().for_each(|file| self.reads(0, file));
            let below = std::mem::take(&mut self.levels[1]);
            below.iter().for_each(|file| self.reads(1, file));
            inputs.extend(below);
            self.levels[1] = self.merge(&inputs, 1);
        }
        for level in 1..LEVELS {
            let bytes = |files: &[File]| files.iter().map(|file| file.bytes).sum::<f64>();
            while bytes(&self.levels[level]) > self.target(level) {
                self.compact_one(level);
            }
        }
    }

    /// Compacts the file that overlaps the least below it, per byte.
    fn compact_one(&mut self, level: usize) {
        let below = &self.levels[level + 1];
        let overlap = |file: &File| {
            let start = below.partition_point(|other| other.to <= file.from + NOTHING);
            let end = below.partition_point(|other| other.from < file.to - NOTHING);
            start..end.max(start)
        };
        let cost = |file: &File| {
            let overlapping = below[overlap(file)].iter();
            overlapping.map(|other| other.bytes).sum::<f64>() / file.bytes
        };
        let files = self.levels[level].iter().enumerate();
        let best = files.min_by(|(_, a), (_, b)| cost(a).total_cmp(&cost(b)));
        let Some((at, file)) = best.map(|(at, file)| (at, *file)) else {
            return;
        };
        let range = overlap(&file);
        let mut inputs = vec![file];
        inputs.extend(&self.levels[level + 1][range.clone()]);
        self.reads(level, &file);
        for input in &inputs[1..] {
            self.reads(level + 1, input);
        }
        let outputs = self.merge(&inputs, level + 1);
        self.levels[level].remove(at);
        self.levels[level + 1].splice(range, outputs);
    }

    fn reads(&mut self, level: usize, file: &File) {
        self.read += file.bytes;
        if self.cache.take(level, file.id) {
            self.hit += file.bytes;
        }
    }

    /// Files of the records of `inputs`, each once.
    fn merge(&mut self, inputs: &[File], level: usize) -> Vec<File> {
        let mut borders: Vec<_> = inputs
            .iter()
            .flat_map(|file| [file.from, file.to])
            .collect();
        borders.sort_by(f64::total_cmp);
        borders.dedup_by(|a, b| (*a - *b).abs() < NOTHING);
        let data = self.sizes.data;
        let parts = borders.windows(2).map(|ends| {
            let (from, to) = (ends[0], ends[1]);
            let lacks = |file: &File| {
                let has = file.from <= from + NOTHING && file.to >= to - NOTHING;
                let share = (file.bytes / (file.to - file.from) / data).min(1.0);
                if has { 1.0 - share } else { 1.0 }
            };
            let missing: f64 = inputs.iter().map(lacks).product();
            (from, to, (1.0 - missing) * data * (to - from))
        });
        let parts: Vec<_> = parts.filter(|(.., bytes)| *bytes > 0.0).collect();
        let all: f64 = parts.iter().map(|(.., bytes)| bytes).sum();
        let files = (all / self.sizes.file).round().max(1.0);
        let size = all / files;
        let (mut outputs, mut begun, mut bytes) = (Vec::new(), None, 0.0);
        let mut end = 0.0;
        for (mut from, to, mut left) in parts {
            while bytes + left >= size - size * NOTHING && outputs.len() + 1 < files as usize {
                let taken = size - bytes;
                let at = from + (to - from) * taken / left;
                let id = self.id();
                outputs.push(File {
                    from: begun.unwrap_or(from),
                    to: at,
                    bytes: size,
                    id,
                });
                (begun, bytes, from, left) = (Some(at), 0.0, at, left - taken);
            }
            begun = begun.or(Some(from));
            bytes += left;
            end = to;
        }
        if bytes > size * NOTHING {
            let id = self.id();
            let from = begun.unwrap_or(0.0);
            outputs.push(File {
                from,
                to: end,
                bytes,
                id,
            });
        }
        for file in &outputs {
            self.cache.add(level, file);
        }
        outputs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_larger_cache_has_more_and_a_whole_one_lacks_what_was_flushed() {
        let share = |cache| {
            hit_share(Sizes {
                data: 100.0,
                file: 0.5,
                flush: 0.5,
                cache,
            })
        };
        let shares = [0.0, 2.0, 10.0, 40.0, 80.0, 200.0].map(share);
        assert_eq!(shares[0], 0.0);
        assert!(shares.is_sorted(), "{shares:?}");
        assert!((0.3..0.7).contains(&shares[2]), "{shares:?}");
        assert!((0.85..0.99).contains(&shares[5]), "{shares:?}");
    }
}
