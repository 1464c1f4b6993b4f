//! What slices take where nothing slows them, or as a rule, from rounds of which each may have been slowed.

/// What slices take by rounds in which all were run: their times are in the proportions of all rounds, and as short as in
/// the quickest part of one; infinite without a round.
pub fn at_quickest_pace(slices: usize, rounds: &[Vec<f64>]) -> Vec<f64> {
    /// In each, the times follow from the paces and the paces from the times; more change nothing.
    const SWEEPS: usize = 8;
    /// Disturbances of a slice alone only add. The least of many is one in whose round others were disturbed.
    const OF_A_SLICE: f64 = 0.25;
    const OF_A_ROUND: f64 = 0.5;
    /// The pace changes in the midst of rounds, so that a round as a whole is seldom at the quickest there was. Of what
    /// disturbs single slices this takes the lucky ones: the more rounds, the more, a few per cent.
    const QUICKEST: f64 = 0.2;
    let pace = |round: &[f64], seconds: &[f64], share: f64| {
        let all = round.iter().zip(seconds);
        quantile(all.map(|(took, usual)| took / usual), share)
    };
    let (mut paces, mut seconds) = (vec![1.0; rounds.len()], Vec::new());
    for _ in 0..SWEEPS {
        let of_slice = |slice: usize| {
            let all = rounds.iter().zip(&paces);
            quantile(all.map(|(round, pace)| round[slice] / pace), OF_A_SLICE)
        };
        seconds = (0..slices).map(of_slice).collect();
        let of_round = |round: &Vec<f64>| pace(round, &seconds, OF_A_ROUND);
        paces = rounds.iter().map(of_round).collect();
    }
    let quickest = { rounds.iter() }
        .map(|round| pace(round, &seconds, QUICKEST))
        .fold(f64::INFINITY, f64::min);
    seconds.iter().map(|seconds| seconds * quickest).collect()
}

/// What slices take by rounds in which all were run, at the pace that these had on average; infinite without a round. Of a
/// slice that was kept from its work, no more counts than twice the least.
pub fn at_usual_pace(slices: usize, rounds: &[Vec<f64>]) -> Vec<f64> {
    const MOST: f64 = 2.0;
    let of_slice = |slice: usize| {
        let each = || rounds.iter().map(|round| round[slice]);
        let least = each().fold(f64::INFINITY, f64::min);
        let sum: f64 = each().map(|took| took.min(MOST * least)).sum();
        match rounds.is_empty() {
            true => least,
            false => sum / rounds.len() as f64,
        }
    };
    (0..slices).map(of_slice).collect()
}

/// The value that this share of all, rounded down, do not reach; infinite of none.
fn quantile(all: impl Iterator<Item = f64>, share: f64) -> f64 {
    let mut all: Vec<f64> = all.collect();
    all.sort_by(f64::total_cmp);
    let position = (all.len().saturating_sub(1) as f64 * share) as usize;
    all.get(position).copied().unwrap_or(f64::INFINITY)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What slices take by themselves.
    const TIMES: [f64; 7] = [1e-3, 2e-3, 3e-3, 5e-3, 8e-3, 13e-3, 21e-3];

    fn round(pace: f64) -> Vec<f64> {
        TIMES.iter().map(|seconds| pace * seconds).collect()
    }

    fn assert_found(rounds: &[Vec<f64>], pace: f64) {
        for (found, seconds) in at_quickest_pace(TIMES.len(), rounds).into_iter().zip(TIMES) {
            let error = found / (pace * seconds) - 1.0;
            assert!(error.abs() < 1e-9, "{error} of {seconds} in {rounds:?}");
        }
    }

    #[test]
    fn how_slow_a_round_was_does_not_matter_but_for_the_quickest() {
        for paces in [
            &[1.7][..],
            &[1.5, 1.0],
            &[1.6, 1.1, 1.6],
            &[2.0, 1.9, 1.5, 1.0, 3.0],
        ] {
            let rounds: Vec<_> = paces.iter().map(|&pace| round(pace)).collect();
            assert_found(&rounds, paces.iter().copied().fold(f64::INFINITY, f64::min));
        }
        assert_eq!(at_quickest_pace(2, &[]), [f64::INFINITY; 2]);
    }

    #[test]
    fn the_usual_pace_is_that_of_all_rounds_without_what_stalled() {
        let mut rounds = [1.0, 1.2, 1.1].map(round);
        rounds[1][2] *= 100.0;
        let found = at_usual_pace(TIMES.len(), &rounds);
        for (slice, seconds) in TIMES.into_iter().enumerate() {
            let pace = if slice == 2 { 4.1 / 3.0 } else { 1.1 };
            let error = found[slice] / (pace * seconds) - 1.0;
            assert!(error.abs() < 1e-9, "{error} of {seconds}");
        }
        assert_eq!(at_usual_pace(2, &[]), [f64::INFINITY; 2]);
    }

    #[test]
    fn a_slice_that_was_disturbed_in_the_quickest_round_is_known_from_the_others() {
        let mut rounds = [1.5, 1.0, 1.6].map(round);
        rounds[1][0] *= 1.4;
        rounds[1][6] *= 3.0;
        rounds[0][3] *= 1.2;
        assert_found(&rounds, 1.0);
    }

    #[test]
    fn what_was_quick_for_a_part_of_a_round_is_how_quick_the_machine_is() {
        let mut rounds = [1.5, 1.4, 1.5, 1.6, 1.7].map(round);
        rounds[3][4..].copy_from_slice(&TIMES[4..]);
        assert_found(&rounds, 1.0);
    }

    #[test]
    fn what_changes_in_the_middle_of_a_round_is_left_to_the_others() {
        let mut rounds = [1.0, 1.0, 1.0, 1.0, 1.5].map(round);
        rounds[4][..3].copy_from_slice(&TIMES[..3]);
        assert_found(&rounds, 1.0);
    }
}
