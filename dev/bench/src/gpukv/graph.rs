//! Graphs whose adjacency lists are values: breadth-first search and PageRank.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Shape of a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A grid with few edges at a vertex and a long way between most of them.
    Road,
    /// Few vertices have most edges.
    PowerLaw,
}

/// Marks a vertex that a search has not seen (`functors.hpp`).
pub const UNSEEN: u32 = u32::MAX;

const SEED: u64 = 28;

/// Neighbours of all vertices, contiguous, and the position at which those of each vertex begin.
pub struct Graph {
    pub offsets: Vec<u64>,
    pub neighbours: Vec<u32>,
    /// Where searches begin.
    pub start: u32,
}

impl Kind {
    /// Name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Road => "road",
            Self::PowerLaw => "power law",
        }
    }

    /// Vertices at full scale.
    pub fn vertices(self) -> u64 {
        match self {
            Self::Road => 2_000_000,
            Self::PowerLaw => 20_000_000,
        }
    }

    /// Makes a graph of about `vertices` vertices, with 2.75 neighbours for each.
    pub fn make(self, vertices: u64) -> Graph {
        match self {
            Self::Road => road((vertices as f64).sqrt() as u32),
            Self::PowerLaw => power_law(vertices),
        }
    }
}

/// A square with two thirds of the streets, and motorways to more distant crossings.
fn road(side: u32) -> Graph {
    const STREETS: f64 = 0.67;
    const MOTORWAYS_APART: u32 = 16;
    const REACH: u32 = 4;
    let mut rng = SmallRng::seed_from_u64(SEED);
    let mut edges = Vec::new();
    for y in 0..side {
        for x in 0..side {
            let at = |x: u32, y: u32| y * side + x;
            if x + 1 < side && rng.random_bool(STREETS) {
                edges.push((at(x, y), at(x + 1, y)));
            }
            if y + 1 < side && rng.random_bool(STREETS) {
                edges.push((at(x, y), at(x, y + 1)));
            }
            if y % MOTORWAYS_APART == 0 && x % REACH == 0 && x + REACH < side {
                edges.push((at(x, y), at(x + REACH, y)));
            }
            if x % MOTORWAYS_APART == 0 && y % REACH == 0 && y + REACH < side {
                edges.push((at(x, y), at(x, y + REACH)));
            }
        }
    }
    Graph::new(side as usize * side as usize, &edges)
}

/// Edges between any vertex and one whose rank is drawn from a power law.
fn power_law(vertices: u64) -> Graph {
    /// Edges per vertex, as with roads.
    const EDGES: f64 = 1.375;
    const POWER: i32 = 3;
    let mut rng = SmallRng::seed_from_u64(SEED);
    let edges = (vertices as f64 * EDGES) as u64;
    let edges = (0..edges).map(|_| {
        let rank = rng.random::<f64>().powi(POWER) * vertices as f64;
        // Vertices with many edges are far apart.
        let other = super::data::mixed(rank as u64) % vertices;
        (other as u32, rng.random_range(0..vertices) as u32)
    });
    Graph::new(vertices as usize, &edges.collect::<Vec<_>>())
}

impl Graph {
    fn new(vertices: usize, edges: &[(u32, u32)]) -> Self {
        let mut offsets = vec![0u64; vertices + 1];
        for &(a, b) in edges {
            offsets[a as usize + 1] += 1;
            offsets[b as usize + 1] += 1;
        }
        for vertex in 0..vertices {
            offsets[vertex + 1] += offsets[vertex];
        }
        let mut next = offsets.clone();
        let mut neighbours = vec![0; 2 * edges.len()];
        for &(a, b) in edges {
            for (of, other) in [(a, b), (b, a)] {
                neighbours[next[of as usize] as usize] = other;
                next[of as usize] += 1;
            }
        }
        Self {
            offsets,
            neighbours,
            start: edges.first().map_or(0, |edge| edge.0),
        }
    }

    /// Number of vertices.
    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// The neighbours of a vertex.
    pub fn of(&self, vertex: u32) -> &[u32] {
        let at = |vertex: usize| self.offsets[vertex] as usize;
        &self.neighbours[at(vertex as usize)..at(vertex as usize + 1)]
    }

    /// The level of each vertex in a breadth-first search.
    pub fn levels(&self) -> Vec<u32> {
        let mut levels = vec![UNSEEN; self.len()];
        levels[self.start as usize] = 0;
        let mut frontier = vec![self.start];
        for level in 1.. {
            let mut next = Vec::new();
            for &vertex in &frontier {
                for &neighbour in self.of(vertex) {
                    if levels[neighbour as usize] == UNSEEN {
                        levels[neighbour as usize] = level;
                        next.push(neighbour);
                    }
                }
            }
            if next.is_empty() {
                break;
            }
            frontier = next;
        }
        levels
    }
}
