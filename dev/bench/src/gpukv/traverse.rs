//! Breadth-first search and PageRank over adjacency lists that are values.

use rockmill_terminal::outcome::Failure;

use super::data::{Database, Shape, mixed};
use super::gpu::{Lists, Memory, Pinned, Resident};
use super::graph::{Graph, Kind, UNSEEN};
use super::measure::{Bench, Experiment, Way, WayName};

/// Rounds of PageRank.
const ROUNDS: usize = 10;

/// Initial rank of every vertex.
const FIRST_RANK: u64 = 100 << 24;

/// Vertices whose lists the CPU-driven way gets at a time.
const BATCH: usize = 1 << 20;

struct Traversal<'a> {
    kind: Kind,
    is_search: bool,
    graph: &'a Graph,
    database: &'a Database,
    /// Levels of a search as the host computes them.
    levels: &'a [u32],
}

/// Measures searches or PageRank.
///
/// # Errors
/// The errors of [`Bench::measure`].
pub fn traversals(bench: &mut Bench<'_>, is_search: bool) -> Result<(), Failure> {
    for kind in [Kind::Road, Kind::PowerLaw] {
        let graph = kind.make(bench.scaled(kind.vertices(), 400));
        let list_bytes = size_of_val(&graph.neighbours[..]) / graph.len();
        let shape = Shape::of(graph.len() as u64, list_bytes);
        let database = Database::new(bench.folder, shape, &|vertex, value| {
            let bytes = graph.of(vertex as u32).iter();
            value.extend(bytes.flat_map(|neighbour| neighbour.to_ne_bytes()));
        })?;
        let levels = if is_search {
            graph.levels()
        } else {
            Vec::new()
        };
        bench.measure(&Traversal {
            kind,
            is_search,
            levels: &levels,
            graph: &graph,
            database: &database,
        })?;
    }
    Ok(())
}

impl Experiment for Traversal<'_> {
    fn name(&self) -> (&'static str, String) {
        let vertices = self.graph.len();
        let reached = self.levels.iter().filter(|&&level| level != UNSEEN);
        let depth = reached.max().copied().unwrap_or(0);
        match self.is_search {
            true => (
                "bfs",
                format!("{}, {vertices} vertices, {depth} levels", self.kind.name()),
            ),
            false => (
                "pagerank",
                format!("{}, {vertices} vertices", self.kind.name()),
            ),
        }
    }

    fn ways(&self) -> Vec<WayName> {
        vec![WayName::Launch, WayName::Csr, WayName::View]
    }

    fn work(&self) -> (u64, u64) {
        if !self.is_search {
            let bytes = size_of_val(&self.graph.neighbours[..]);
            return ((self.graph.len() * ROUNDS) as u64, (bytes * ROUNDS) as u64);
        }
        let reached = (0..)
            .zip(self.levels)
            .filter(|&(_, &level)| level != UNSEEN);
        reached.fold((0, 0), |(keys, bytes), (vertex, _)| {
            (keys + 1, bytes + size_of_val(self.graph.of(vertex)) as u64)
        })
    }

    fn open<'a>(
        &'a self,
        bench: &'a Bench<'_>,
        way: WayName,
    ) -> Result<Box<dyn Way + 'a>, Failure> {
        let (gpu, n) = (&bench.gpu, self.graph.len());
        let from = match way {
            WayName::View => From::View(gpu.hold(&bench.view(self.database, None)?)?),
            WayName::Csr => {
                let (offsets, bytes) = self.database.scan_lists()?;
                let lists = gpu.memory(bytes.len() / size_of::<u32>())?;
                let mut pinned = gpu.pinned(bytes.len())?;
                pinned.bytes()[..bytes.len()].copy_from_slice(&bytes);
                gpu.write_pinned(lists.all(), &pinned, 0..bytes.len())?;
                From::Csr(gpu.with(&offsets)?, lists)
            }
            _ => {
                let part: Vec<_> = (0..BATCH.min(n) as u64).collect();
                let threads = bench
                    .best_threads(|threads| self.database.get_lists(&part, threads).map(|_| ()))?;
                From::Database(Launch {
                    pinned: gpu.pinned(size_of_val(&self.graph.neighbours[..]))?,
                    offsets: gpu.memory(n + 1)?,
                    lists: gpu.memory(self.graph.neighbours.len())?,
                    threads,
                })
            }
        };
        let mut way = TraversalWay {
            of: self,
            bench,
            from,
            levels: gpu.memory(if self.is_search { n } else { 0 })?,
            frontiers: [gpu.memory(n)?, gpu.memory(n)?],
            ranks: gpu.memory(if self.is_search { 0 } else { n })?,
            shares: gpu.memory(if self.is_search { 0 } else { n })?,
        };
        way.begin()?;
        Ok(Box::new(way))
    }
}

/// Source of the lists.
enum From {
    Database(Launch),
    Csr(Memory<u64>, Memory<u32>),
    View(Resident),
}

/// Memory for the lists of a step.
struct Launch {
    pinned: Pinned,
    offsets: Memory<u64>,
    lists: Memory<u32>,
    threads: usize,
}

struct TraversalWay<'a> {
    of: &'a Traversal<'a>,
    bench: &'a Bench<'a>,
    from: From,
    levels: Memory<u32>,
    frontiers: [Memory<u32>; 2],
    ranks: Memory<u64>,
    shares: Memory<u64>,
}

impl TraversalWay<'_> {
    /// Sets the initial state of a run.
    fn begin(&mut self) -> Result<(), Failure> {
        let (gpu, n) = (&self.bench.gpu, self.of.graph.len());
        if self.of.is_search {
            let mut levels = vec![UNSEEN; n];
            levels[self.of.graph.start as usize] = 0;
            gpu.write(self.levels.all(), &levels)?;
        } else {
            gpu.write(self.ranks.all(), &vec![FIRST_RANK; n])?;
        }
        Ok(())
    }

    /// With the CPU-driven way, copies the lists of these vertices to the device.
    fn load(&mut self, vertices: impl FnOnce() -> Vec<u64>) -> Result<(), Failure> {
        let From::Database(launch) = &mut self.from else {
            return Ok(());
        };
        let gpu = &self.bench.gpu;
        let (offsets, bytes) = self.of.database.get_lists(&vertices(), launch.threads)?;
        launch.pinned.bytes()[..bytes.len()].copy_from_slice(&bytes);
        gpu.write_pinned(launch.lists.all(), &launch.pinned, 0..bytes.len())?;
        gpu.write(launch.offsets.all(), &offsets)?;
        Ok(())
    }

    fn lists(&self) -> Lists<'_> {
        match &self.from {
            From::View(view) => Lists::Resident(view),
            From::Csr(offsets, lists) => Lists::Dense(offsets.all(), lists.all()),
            From::Database(launch) => Lists::Ordered(launch.offsets.all(), launch.lists.all()),
        }
    }

    fn search(&mut self) -> Result<(), Failure> {
        let (bench, n) = (self.bench, self.of.graph.len());
        bench
            .gpu
            .write(self.frontiers[0].all(), &[self.of.graph.start])?;
        let mut len = 1;
        for level in 1.. {
            let [here, next] = match level % 2 {
                1 => [0, 1],
                _ => [1, 0],
            };
            // The host needs the frontier to get its lists.
            let frontier = match &self.from {
                From::Database(_) => bench.gpu.read(self.frontiers[here].part(0..len))?,
                _ => Vec::new(),
            };
            self.load(|| frontier.into_iter().map(u64::from).collect())?;
            let lists = self.lists();
            let here = self.frontiers[here].part(0..len);
            let next = self.frontiers[next].part(0..n);
            len = bench
                .gpu
                .expand(lists, here, level, self.levels.all(), next)?;
            if len == 0 {
                break;
            }
        }
        Ok(())
    }

    fn rank(&mut self) -> Result<(), Failure> {
        let (bench, n) = (self.bench, self.of.graph.len());
        // All vertices at once if the lists are on the device.
        let step = if matches!(self.from, From::Database(_)) {
            BATCH
        } else {
            n
        };
        for _ in 0..ROUNDS {
            for first in (0..n).step_by(step) {
                let vertices = first..n.min(first + step);
                self.load(|| (vertices.start as u64..vertices.end as u64).collect())?;
                let (ranks, shares) = (self.ranks.all(), self.shares.all());
                (bench.gpu).share_rank(self.lists(), vertices, ranks, shares)?;
            }
            bench.gpu.sum_ranks(self.ranks.all(), self.shares.all())?;
        }
        Ok(())
    }
}

impl Way for TraversalWay<'_> {
    fn run(&mut self) -> Result<(), Failure> {
        if self.of.is_search {
            self.search()
        } else {
            self.rank()
        }
    }

    fn check(&mut self) -> Result<u64, Failure> {
        let gpu = &self.bench.gpu;
        let digest = |word: u64, at: u64| mixed(word.wrapping_add(mixed(at)));
        let sum = |sum: u64, digest: u64| sum.wrapping_add(digest);
        let digest = if self.of.is_search {
            let levels = gpu.read(self.levels.all())?;
            if levels != self.of.levels {
                let what = "bfs: vertices have other levels than the host finds".to_owned();
                return Err(Failure::Data(what));
            }
            0
        } else {
            let ranks = gpu.read(self.ranks.all())?;
            ranks
                .into_iter()
                .zip(0..)
                .map(|(rank, at)| digest(rank, at))
                .fold(0, sum)
        };
        self.begin()?;
        Ok(digest)
    }

    fn threads(&self) -> Option<usize> {
        match &self.from {
            From::Database(launch) => Some(launch.threads),
            _ => None,
        }
    }
}
