//! A cost that is linear in a slice's terms, and how it is found from measurements.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::shape::{SliceShape, Term};

/// Seconds for one of each term; what is not there costs nothing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cost(BTreeMap<Term, f64>);

impl Cost {
    /// Seconds for a slice.
    pub fn seconds(&self, shape: &SliceShape) -> f64 {
        let each = |(&term, rate): (&Term, &f64)| rate * shape.amount(term);
        self.0
            .iter()
            .map(each)
            .fold(0.0, |sum, seconds| sum + seconds)
    }

    /// Whether each rate is a number that a machine can have.
    pub fn is_sound(&self) -> bool {
        let is_sound = |(term, rate): (&Term, &f64)| (0.0..=term.most_seconds()).contains(rate);
        self.0.iter().all(is_sound)
    }

    /// Whether all together costs less than a byte does on any machine.
    pub fn is_nothing(&self) -> bool {
        /// What passes a terabyte a second takes as long for one.
        const LEAST_SECONDS: f64 = 1e-12;
        self.0.values().sum::<f64>() < LEAST_SECONDS
    }

    /// The cost in `terms` that comes nearest to what slices of these shapes took: the sum of squares of relative
    /// errors is least among all costs of which no rate is negative. What took no time tells nothing.
    pub fn fit(terms: &[Term], samples: &[(SliceShape, f64)]) -> Self {
        let rows: Vec<Vec<f64>> = samples
            .iter()
            .filter(|(_, seconds)| *seconds > 0.0)
            .map(|(shape, seconds)| {
                let relative = |&term| shape.amount(term) / seconds;
                terms.iter().map(relative).collect()
            })
            .collect();
        let rates = least_squares(&rows, terms.len());
        let rates = terms.iter().copied().zip(rates);
        Self(rates.filter(|(_, rate)| *rate > 0.0).collect())
    }
}

impl FromIterator<(Term, f64)> for Cost {
    fn from_iter<I: IntoIterator<Item = (Term, f64)>>(rates: I) -> Self {
        Self(rates.into_iter().collect())
    }
}

/// Non-negative `x` with which all rows come nearest to 1, by coordinate descent: one after another, each is made
/// the best that it can be beside the others.
fn least_squares(rows: &[Vec<f64>], columns: usize) -> Vec<f64> {
    const MOST_SWEEPS: usize = 20_000;
    /// Progress in a sweep, of a column's share of a row, below which nothing is left to gain.
    const DONE: f64 = 1e-10;
    let dot = |a: usize, b: usize| rows.iter().map(|row| row[a] * row[b]).sum::<f64>();
    let scales: Vec<f64> = (0..columns).map(|c| dot(c, c).sqrt()).collect();
    let used: Vec<usize> = (0..columns).filter(|&c| scales[c] > 0.0).collect();
    // Of columns scaled to length 1.
    let products: Vec<Vec<f64>> = used
        .iter()
        .map(|&a| {
            let with = |&b: &usize| dot(a, b) / (scales[a] * scales[b]);
            used.iter().map(with).collect()
        })
        .collect();
    let sums: Vec<f64> = used
        .iter()
        .map(|&c| rows.iter().map(|row| row[c]).sum::<f64>() / scales[c])
        .collect();
    let mut found = vec![0.0; used.len()];
    for _ in 0..MOST_SWEEPS {
        let mut change = 0.0_f64;
        for i in 0..used.len() {
            let others: f64 = products[i].iter().zip(&found).map(|(p, x)| p * x).sum();
            let better = (found[i] + sums[i] - others).max(0.0);
            change = change.max((better - found[i]).abs());
            found[i] = better;
        }
        if change < DONE {
            break;
        }
    }
    let mut all = vec![0.0; columns];
    for (&column, x) in used.iter().zip(found) {
        all[column] = x / scales[column];
    }
    all
}
