//! Splits a job into subcompactions.
//!
//! The result depends only on the job and its inputs: on the inputs' index blocks, which give the stored bytes up to
//! each separator, and not on threads or memory.

use std::collections::BTreeMap;
use std::time::Duration;

use rockmill_core::borders::{borders, grains};
use rockmill_core::{
    CancelToken, InputTable, KeyRange, OutputSplitting, Plan, Result, Subcompaction,
};

use rockmill_exec::parallel;
use rockmill_format::key::KeyOrder;

/// Input bytes of a subcompaction, in output files. RocksDB's subcompactions have at least one file. With one, the
/// shorter last file of a subcompaction would become the rule.
const FILES_PER_SUBCOMPACTION: u64 = 2;

/// A tail has this part of a target file's bytes of input. So a file is at most this much larger than others, and one that
/// begins before the tail is not smaller than the tail if nothing is dropped.
const TAILS_PER_FILE: u64 = 2;

/// Splits the job, reading several tables in parallel, and adds the subcompactions' tails to the plan. The subcompactions
/// cover the job's range without gap or overlap, in key order. Also returns the CPU time of threads other than the
/// caller's.
///
/// # Errors
/// Cancelled: indexes of large jobs take long.
pub fn split(
    plan: &mut Plan,
    tables: &[InputTable],
    threads: usize,
    cancel: &CancelToken,
) -> Result<(Vec<Subcompaction>, Duration)> {
    // A compaction filter may remember keys and skip any number of them, so it sees all keys in order.
    let is_single = plan.output.splitting.single_file || plan.rules.filter.is_some();
    let (borders, elsewhere) = if is_single {
        Default::default()
    } else {
        let subcompaction_bytes = subcompaction_bytes(&plan.output.splitting);
        let (grains, elsewhere) = parallel::map(tables, threads, |table| {
            cancel.check()?;
            Ok(grains(
                table,
                &plan.range,
                subcompaction_bytes / GRAINS_PER_SUBCOMPACTION,
            ))
        })?;
        let (order, mut grains) = (plan.rules.order, grains.concat());
        let borders = borders(order, &plan.range, subcompaction_bytes, &mut grains);
        let splitting = &mut plan.output.splitting;
        if !splitting.size_is_upper_bound {
            let tail_bytes = splitting.target_file_size / TAILS_PER_FILE;
            splitting.tails = tails(order, &borders, &grains, tail_bytes);
        }
        (borders, elsewhere)
    };
    let begins = std::iter::once(plan.range.begin.clone()).chain(borders.iter().cloned().map(Some));
    let ends = borders
        .iter()
        .cloned()
        .map(Some)
        .chain(std::iter::once(plan.range.end.clone()));
    let subcompactions = begins.zip(ends).enumerate();
    let subcompactions = subcompactions
        .map(|(index, (begin, end))| Subcompaction {
            index,
            range: KeyRange { begin, end },
        })
        .collect();
    Ok((subcompactions, elsewhere))
}

/// Returns the keys with which the tails of about `tail_bytes` begin that lie before the borders, by the borders.
fn tails(
    order: KeyOrder,
    borders: &[Vec<u8>],
    grains: &[(&[u8], u64)],
    tail_bytes: u64,
) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut tails = BTreeMap::new();
    let mut begin = 0;
    for border in borders {
        let end = grains.partition_point(|(separator, _)| !order.is_before(border, separator));
        let (mut tail, mut bytes) = (border.as_slice(), 0);
        for &(separator, size) in grains[begin..end].iter().rev() {
            if bytes > tail_bytes {
                break;
            }
            tail = separator;
            bytes += size;
        }
        tails.insert(border.clone(), tail.to_vec());
        begin = end;
    }
    tails
}

fn subcompaction_bytes(splitting: &OutputSplitting) -> u64 {
    splitting
        .max_output_file_size
        .saturating_mul(FILES_PER_SUBCOMPACTION)
}

/// Number of candidate borders per subcompaction in each table. Indexes have up to a million entries, so not every one
/// is a candidate.
const GRAINS_PER_SUBCOMPACTION: u64 = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tails_have_at_most_their_bytes() {
        let grains: [(&[u8], u64); 6] = [
            (b"b", 10),
            (b"d", 10),
            (b"f", 10),
            (b"h", 50),
            (b"j", 10),
            (b"l", 10),
        ];
        let borders = [b"f".to_vec(), b"h".to_vec(), b"j".to_vec()];
        let of = |order, tail_bytes| {
            let tails = tails(order, &borders, &grains, tail_bytes);
            tails.into_values().collect::<Vec<_>>()
        };
        assert_eq!(of(KeyOrder::Bytewise, 5), [b"f", b"h", b"j"]);
        assert_eq!(of(KeyOrder::Bytewise, 10), [b"d", b"h", b"j"]);
        // No tail begins in another subcompaction.
        assert_eq!(of(KeyOrder::Bytewise, 100), [b"b", b"h", b"j"]);
    }
}
