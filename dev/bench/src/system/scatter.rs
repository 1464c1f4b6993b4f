//! A permutation of numbers.

/// A bijection on the numbers below a limit that separates neighbours widely.
#[derive(Debug, Clone, Copy)]
pub struct Scatter {
    step: u64,
    limit: u64,
}

impl Scatter {
    /// Creates the permutation of the numbers below `limit`, which is not 0.
    pub fn new(limit: u64) -> Self {
        // Steps by the golden ratio give the most even gaps.
        const GOLDEN: f64 = 0.618_033_988_749_895;
        let mut step = (limit as f64 * GOLDEN) as u64;
        while greatest_common_divisor(step, limit) != 1 {
            step += 1;
        }
        Self { step, limit }
    }

    /// Returns the position of a number below the limit.
    pub fn place(self, number: u64) -> u64 {
        (u128::from(number) * u128::from(self.step) % u128::from(self.limit)) as u64
    }
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 {
        a
    } else {
        greatest_common_divisor(b, a % b)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_number_has_a_place_of_its_own() {
        for limit in [1, 2, 3, 7, 100, 1 << 10, 6 * 7 * 11 * 13] {
            let scatter = Scatter::new(limit);
            let places: HashSet<_> = (0..limit).map(|n| scatter.place(n)).collect();
            assert_eq!(places.len() as u64, limit);
            assert!(places.iter().all(|&place| place < limit));
        }
    }

    #[test]
    fn neighbours_are_far_apart() {
        let scatter = Scatter::new(1_000_000);
        let apart = |n| scatter.place(n).abs_diff(scatter.place(n + 1));
        assert!((0..1000).all(|n| apart(n) > 300_000));
        // The product does not overflow.
        assert!(Scatter::new(10_000_000_000).place(9_999_999_999) < 10_000_000_000);
    }
}
